//! Detection of a target: the distribution of the maximum of the likelihood on noise alone.
//!
//! On noise every path's J is exponential at any one point, so that 2 J of P paths is chi-square with `n = 2 P`
//! degrees of freedom, a smooth field over positions. The probability that its maximum over a region exceeds u is,
//! where it is small, the expected Euler characteristic of the set above u (Worsley 1994), `sum_d L_d rho_d(u)`:
//!
//! - `L_d` is the size of the region in d dimensions, in units of the field's own scale. A box has the sum over all d of its
//!   edges of their product times the root of the determinant of these rows and columns of `Lambda`, the roughness
//!   matrix of the field: a rectangle has `L_0 = 1`, `L_1 = w s_x + h s_y`, `L_2 = w h s`.
//! - `rho_0 = P(chi2 > u)`, `rho_1 = q sqrt(u) / sqrt(2 pi)`, `rho_2 = q (u - (n - 1)) / (2 pi)`,
//!   `q = (u / 2)^(P - 1) exp(-u / 2) / Gamma(P)`, and so on: [`density`].
//!
//! `Lambda` is the curvature of `1 - |m(x)^H m(x + d)|^2` for unit templates, averaged over the paths.
//!
//! A batch of frames is searched over velocities too: a field over twice the dimensions, the box times a disc (in space: a ball) of
//! velocities. Frame f is looked at `x + v t_f`, so that with times about their mean the roughness in velocity is
//! `t^2 Lambda`, t their root mean square, and none is shared between position and velocity. Added up coherently, a
//! change of velocity also turns the frames against each other: the roughness is then `t^2 (Lambda + G)`, `G = g g^T`
//! with the gradient g of the phase of `m(x)^H m(x + d)`. The sizes of a product are the sums of products of sizes.
//!
//! Delays and bearings are likelihood ratios of fixed laws, with nothing fitted: their exponential has the mean one on
//! noise, so that by Markov's inequality they multiply the probability by `e^-t` and add no degree of freedom.

use std::f64::consts::{PI, TAU};

use model::{ElementGrid, Point, System};
use nalgebra::DMatrix;

use super::coarse::places;
use super::grid::RegularGrid;
use super::moments::{Moments, NodeProducts, NodeSight, PathMemory};
use super::scene::Scene;
use crate::location::chi_square_survival;

/// Points per side at which the roughness is taken.
const POINTS: usize = 3;

/// Where the search for a threshold begins, above twice the mean, and where it ends.
const FAR: f64 = 200.0;
const MOST_LOG_LIKELIHOOD: f64 = 1e9;

/// The velocities of a batch, which are searched besides the box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Velocities {
    /// Largest speed.
    pub most_speed: f64,
    /// Root mean square of the frames' times about their mean.
    pub time_spread: f64,
    /// Whether frames are added coherently.
    pub coherent: bool,
}

/// Roughness of the field at a point, per square metre.
#[derive(Debug, Clone, PartialEq)]
struct Roughness {
    /// `Lambda`.
    shape: DMatrix<f64>,
    /// `G`.
    phase: DMatrix<f64>,
}

/// The searched box with the roughness of the field on a grid of points in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SearchRegion {
    /// Edges along the free coordinates.
    size: Vec<f64>,
    roughness: Vec<Roughness>,
}

impl SearchRegion {
    /// The box of a grid.
    pub fn new(scene: &Scene, grid: &RegularGrid) -> Self {
        let size: Vec<f64> = (0..grid.dimensions()).map(|i| grid.extent(i)).collect();
        let points = POINTS.pow(size.len() as u32);
        let roughness = (0..points).map(|point| {
            let mut code = point;
            // The last coordinate varies fastest.
            let mut coordinates: Vec<f64> = (0..size.len())
                .rev()
                .map(|i| {
                    let fraction = ((code % POINTS) as f64 + 0.5) / POINTS as f64;
                    code /= POINTS;
                    grid.min[i] + fraction * size[i]
                })
                .collect();
            coordinates.reverse();
            roughness(scene, scene.layout().position_m(&coordinates))
        });
        Self { roughness: roughness.collect(), size }
    }

    /// Probability that noise alone reaches `log_likelihood` somewhere, with this many gains fitted; `offsets` are the sizes of
    /// the intervals in which clock offsets are searched, in units of the roughness of the field.
    pub fn false_alarm_probability(
        &self,
        log_likelihood: f64,
        gains: usize,
        velocities: Option<Velocities>,
        offsets: &[f64],
    ) -> f64 {
        let sizes = self.sizes(velocities);
        // A further dimension multiplies the leading term of the densities by the root of u / (2 pi).
        let root = (log_likelihood.max(0.0) / PI).sqrt();
        let offsets: f64 = offsets.iter().map(|size| 1.0 + size * root).product();
        if gains == 0 {
            return (offsets * sizes.iter().sum::<f64>() * (-log_likelihood).exp()).min(1.0);
        }
        // Below the mean of the field the approximation for rare events does not hold.
        if log_likelihood <= gains as f64 {
            return 1.0;
        }
        let terms = sizes.iter().enumerate().map(|(d, size)| size * density(d, log_likelihood, gains));
        let expected: f64 = offsets * terms.sum::<f64>();
        // Just above the mean the set above it has more holes than parts.
        if expected < 0.0 { 1.0 } else { expected.min(1.0) }
    }

    /// The least log-likelihood above which noise alone comes with at most this probability, with this many gains fitted.
    fn threshold(&self, probability: f64, gains: usize) -> f64 {
        let rare = |at: f64| self.false_alarm_probability(at, gains, None, &[]) <= probability;
        let mut high = 2.0 * gains as f64 + FAR;
        while !rare(high) && high < MOST_LOG_LIKELIHOOD {
            high *= 2.0;
        }
        // From above, because the approximation is not monotone near the mean of the field.
        let mut low = high - 1.0;
        while rare(low) && low > 0.0 {
            (low, high) = (low - 1.0, low);
        }
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            if rare(middle) { high = middle } else { low = middle }
        }
        high
    }

    /// `L_0` up to the number of dimensions, averaged over the box.
    fn sizes(&self, velocities: Option<Velocities>) -> Vec<f64> {
        let dimensions = self.size.len();
        let mut sizes = vec![0.0; 2 * dimensions + 1];
        for Roughness { shape, phase } in &self.roughness {
            let mut of_box = vec![0.0; dimensions + 1];
            for edges in 0..1usize << dimensions {
                let chosen: Vec<usize> = (0..dimensions).filter(|i| edges >> i & 1 == 1).collect();
                let part = DMatrix::from_fn(chosen.len(), chosen.len(), |i, j| shape[(chosen[i], chosen[j])]);
                let product: f64 = chosen.iter().map(|&i| self.size[i]).product();
                of_box[chosen.len()] += product * root(part.determinant());
            }
            let of_ball = velocities.map_or(vec![1.0], |searched| searched.sizes(shape, phase));
            for (i, a) in of_box.iter().enumerate() {
                of_ball.iter().enumerate().for_each(|(j, b)| sizes[i + j] += a * b);
            }
        }
        sizes.iter_mut().for_each(|sum| *sum /= self.roughness.len() as f64);
        sizes
    }
}

impl Velocities {
    /// Sizes of the disc or ball of velocities. An ellipse has half its circumference, within 11 %, and its area; an ellipsoid
    /// has those of the ball with the same mean radius, mean section and volume.
    fn sizes(&self, shape: &DMatrix<f64>, phase: &DMatrix<f64>) -> Vec<f64> {
        let metric = if self.coherent { shape + phase } else { shape.clone() };
        let radius = self.most_speed * self.time_spread;
        let mean = root(metric.trace() / metric.nrows() as f64);
        let whole = root(metric.determinant());
        match metric.nrows() {
            2 => vec![1.0, PI * radius * mean, PI * radius.powi(2) * whole],
            _ => {
                let pairs = [(0, 1), (0, 2), (1, 2)];
                let section = |(i, j): (usize, usize)| {
                    metric[(i, i)] * metric[(j, j)] - metric[(i, j)] * metric[(j, i)]
                };
                let sections = root(pairs.into_iter().map(section).sum::<f64>() / 3.0);
                vec![
                    1.0,
                    4.0 * radius * mean,
                    2.0 * PI * radius.powi(2) * sections,
                    4.0 / 3.0 * PI * radius.powi(3) * whole,
                ]
            }
        }
    }
}

/// Square root of a value that rounding may have made negative.
fn root(square: f64) -> f64 {
    square.max(0.0).sqrt()
}

/// `rho_d(u)` of a chi-square field at `u = 2 log_likelihood` with n = 2 degrees of freedom per gain (Worsley 1994, Theorem
/// 3.5): `u^((n - d) / 2) e^(-u / 2) / ((2 pi)^(d / 2) 2^((n - 2) / 2) Gamma(n / 2))` times the sum over `2 j + k < d` of
/// `C(n - 1, d - 1 - 2 j - k) (-1)^(d - 1 + j + k) (d - 1)! / (j! k! 2^j) u^(j + k)`.
fn density(d: usize, log_likelihood: f64, gains: usize) -> f64 {
    let (u, n) = (2.0 * log_likelihood, 2.0 * gains as f64);
    if d == 0 {
        return chi_square_survival(u, 2 * gains);
    }
    let factorial = |count: usize| (1..=count).map(|i| i as f64).product::<f64>();
    let choose = |count: usize| (1..=count).map(|i| (n - i as f64) / i as f64).product::<f64>();
    let mut polynomial = 0.0;
    for (j, k) in (0..=(d - 1) / 2).flat_map(|j| (0..d - 2 * j).map(move |k| (j, k))) {
        let sign = if (d - 1 + j + k).is_multiple_of(2) { 1.0 } else { -1.0 };
        let weight = factorial(d - 1) / (factorial(j) * factorial(k) * 2f64.powi(j as i32));
        polynomial += sign * choose(d - 1 - 2 * j - k) * weight * u.powi((j + k) as i32);
    }
    let ln_gamma: f64 = (1..gains).map(|i| (i as f64).ln()).sum();
    let ln_q = (gains as f64 - 1.0) * log_likelihood.ln() - log_likelihood - ln_gamma;
    // u^((n - d) / 2) against the u^((n - 2) / 2) of q.
    ln_q.exp() * u.powf(1.0 - 0.5 * d as f64) * TAU.powf(-0.5 * d as f64) * polynomial
}

/// `Lambda` and `G` at a point.
fn roughness(scene: &Scene, point: Point) -> Roughness {
    let mut views = Vec::new();
    scene.look(point, true, &mut views);
    let axes = scene.layout().axes().len();
    let (mut shape, mut phase) = (DMatrix::zeros(axes, axes), DMatrix::zeros(axes, axes));
    let (mut products, mut memory) = (NodeProducts::default(), PathMemory::default());
    let mut moments = Moments::default();
    for sensor in &views {
        let sensing = [sensor];
        let sight = NodeSight::new(None, &sensing, &mut products);
        for (k, reflector) in views.iter().enumerate() {
            moments.set(scene.layout(), k, &sight, &[reflector], None, &mut memory);
            shape += moments.roughness();
            let turn = |i: usize| moments.mixed[(0, i)].im / moments.energy().max(f64::MIN_POSITIVE);
            phase += DMatrix::from_fn(axes, axes, |i, j| turn(i) * turn(j));
        }
    }
    let paths = (views.len() * views.len()) as f64;
    Roughness { shape: shape / paths, phase: phase / paths }
}

/// Width of a peak of the likelihood along every free coordinate: the distance over which a template changes by its own size, as
/// the median over a grid of points in the coverage area. It is narrower near an IRS, where echoes are strong.
pub(super) fn peak_widths_m(scene: &Scene) -> Vec<f64> {
    let (coverage, axes) = (&scene.system().coverage, scene.layout().axes().len());
    let fractions = || [0.0, 0.25, 0.5, 0.75, 1.0].into_iter();
    let places = fractions().flat_map(|u| fractions().flat_map(move |v| [0.0, 0.5, 1.0].map(|w| (u, v, w))));
    let shapes = places.map(|(u, v, w)| roughness(scene, coverage.at_height(u, v, w)).shape);
    let shapes: Vec<DMatrix<f64>> = shapes.collect();
    let median = |i: usize| {
        let mut all: Vec<f64> = shapes.iter().map(|shape| shape[(i, i)]).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let extent = coverage.extents_m();
    // A coordinate on which nothing depends has no peak.
    (0..axes).map(|i| median(i).sqrt().recip().min(10.0 * extent[i])).collect()
}

/// The log-likelihood that a target must reach to be detected from the spectra of `paths` paths of one frame, if noise alone may
/// reach it with this probability. At the target 2 J is noncentral chi-square with `2 paths` degrees of freedom and a
/// noncentrality of twice the sum of the paths' SNRs, and the maximum is a little higher.
pub fn detection_threshold(system: &System, false_alarm_probability: f64, paths: usize) -> f64 {
    let scene = Scene::new(system);
    SearchRegion::new(&scene, &places(&scene).0).threshold(false_alarm_probability, paths)
}

/// Distance at which two points can be resolved: a delay sample along the path, a beam across it.
pub(super) fn resolution_m(system: &System) -> f64 {
    let delay_m = model::units::SPEED_OF_LIGHT_M_S / (2.0 * system.bandwidth_hz);
    let size = Point::from(system.coverage.max_m) - Point::from(system.coverage.min_m);
    let widest = |grid: &ElementGrid| grid.columns.max(grid.rows);
    let elements = widest(&system.sensor_grid).max(widest(&system.element_grid));
    let beam = 1.0 / (elements as f64 * system.spacing_wavelengths);
    let nearest_m = system
        .irs
        .iter()
        .map(|irs| irs.pose.distance_m(system.coverage.centre()))
        .fold(f64::INFINITY, f64::min)
        .max(0.5 * size.norm());
    delay_m.min(beam * nearest_m)
}

#[cfg(test)]
mod tests {
    use num_complex::Complex64;

    use super::super::layout::View;
    use super::super::moments::inner;
    use super::*;

    /// `m^H m'` of the unit atoms of path (l, k) at two points.
    fn product(scene: &Scene, here: &[View], there: &[View], l: usize, k: usize) -> Complex64 {
        let own = scene.range(k);
        let atom = |views: &[View]| -> Vec<Complex64> {
            let phasors = views[l].phasors[own.clone()].iter().zip(&views[k].phasors[own.clone()]);
            phasors.zip(&views[k].streams[0]).map(|((a, b), stream)| a * b * stream).collect()
        };
        let energy = 10.0 * here[k].strength() * there[k].strength();
        inner(&here[l].arrival[0], &there[l].arrival[0]) * inner(&atom(here), &atom(there)) / energy
    }

    /// A chi-square variable of very many degrees of freedom is normal, and its field is twice as rough as each of its
    /// parts: `rho_d -> 2^(d/2) H_(d-1)(z) exp(-z^2 / 2) / (2 pi)^((d + 1) / 2)`. In five and six dimensions rounding
    /// allows fewer degrees of freedom, whose skewness shows.
    #[test]
    fn many_degrees_of_freedom_make_a_gaussian_field() {
        let z: f64 = 3.0;
        let hermite = [
            1.0,
            z,
            z * z - 1.0,
            z.powi(3) - 3.0 * z,
            z.powi(4) - 6.0 * z * z + 3.0,
            z.powi(5) - 10.0 * z.powi(3) + 15.0 * z,
        ];
        for d in 1..=6 {
            let (gains, tolerance) = if d < 5 { (4_000_000, 0.02) } else { (30_000, 0.2) };
            let log_likelihood = gains as f64 + z * (gains as f64).sqrt();
            let half = 0.5 * d as f64;
            let gaussian = 2f64.powf(half) * hermite[d - 1] * (-0.5 * z * z).exp() / TAU.powf(half + 0.5);
            let ratio = density(d, log_likelihood, gains) / gaussian;
            assert!((ratio - 1.0).abs() < tolerance, "d = {d}: {ratio}");
        }
    }

    /// Sizes of a rectangle times a disc, by hand.
    #[test]
    fn sizes_of_a_product_are_sums_of_products() {
        let roughness = Roughness {
            shape: DMatrix::from_row_slice(2, 2, &[4.0, 1.0, 1.0, 9.0]),
            phase: DMatrix::from_row_slice(2, 2, &[5.0, 0.0, 0.0, 7.0]),
        };
        let region = SearchRegion { size: vec![4.0, 3.0], roughness: vec![roughness; 2] };
        let (l1, l2) = (4.0 * 2.0 + 3.0 * 3.0, 12.0 * 35f64.sqrt());
        assert_eq!(region.sizes(None), [1.0, l1, l2, 0.0, 0.0]);
        // A radius of 3 * 0.5; the metric is [[4, 1], [1, 9]], coherently [[9, 1], [1, 16]].
        for (coherent, trace, determinant) in [(false, 13.0, 35.0), (true, 25.0, 143.0)] {
            let sizes = region.sizes(Some(Velocities { most_speed: 3.0, time_spread: 0.5, coherent }));
            let (d1, d2) = (PI * 1.5 * (trace / 2f64).sqrt(), PI * 2.25 * f64::sqrt(determinant));
            let expected = [1.0, l1 + d1, l2 + l1 * d1 + d2, l2 * d1 + l1 * d2, l2 * d2];
            for (size, expected) in sizes.iter().zip(expected) {
                assert!((size - expected).abs() < 1e-9 * expected, "{size} {expected}");
            }
        }
    }

    /// At the threshold noise alone has the allowed probability, and above it never more.
    #[test]
    fn thresholds_have_the_allowed_probability() {
        let flat = model::Scenario::default();
        let mut high = flat.clone();
        (high.surface.elements, high.surface.sensors) =
            (ElementGrid { columns: 4, rows: 4 }, ElementGrid { columns: 4, rows: 4 });
        high.coverage.max_m[2] = 4.0;
        for scenario in [flat, high] {
            let system = System::new(&scenario).unwrap();
            let scene = Scene::new(&system);
            let region = SearchRegion::new(&scene, &places(&scene).0);
            let mut last = 0f64;
            for (allowed, paths) in [(1e-2, 1), (5e-4, 1), (5e-4, 9), (1e-6, 9), (1e-6, 1024)] {
                let threshold = detection_threshold(&system, allowed, paths);
                let probability = |at: f64| region.false_alarm_probability(at, paths, None, &[]);
                assert!(
                    (probability(threshold) / allowed - 1.0).abs() < 1e-6,
                    "{allowed}, {paths}: {threshold}"
                );
                assert!((1..200).all(|i| probability(threshold + 0.5 * f64::from(i)) < allowed));
                // Between mean and threshold noise alone is never called rare.
                let below = |i: i32| paths as f64 + f64::from(i) / 100.0 * (threshold - paths as f64);
                assert!((0..100).all(|i| probability(below(i)) > allowed), "{allowed}, {paths}");
                assert!(threshold > last.max(paths as f64), "{threshold}");
                last = threshold;
            }
            // One position and one path would be an exponential variable.
            assert!(detection_threshold(&system, 5e-4, 1) > -f64::ln(5e-4));
        }
    }

    /// The roughness is the curvature of what templates lose, and of their phase, over any small distance.
    #[test]
    fn roughness_predicts_what_a_displacement_loses() {
        let system = System::new(&model::Scenario::default()).unwrap();
        let scene = Scene::new(&system);
        let (point, step) = (Point::new(3.0, 6.5, 0.0), Point::new(0.03, -0.02, 0.0));
        let Roughness { shape, phase } = roughness(&scene, point);
        let seen = |point: Point| {
            let mut views = Vec::new();
            scene.look(point, false, &mut views);
            views
        };
        let (here, there, back) = (seen(point), seen(point + step), seen(point - step));
        let paths = (0..9).map(|path| (path / 3, path % 3));
        let products: Vec<(Complex64, Complex64)> = paths
            .map(|(l, k)| (product(&scene, &here, &there, l, k), product(&scene, &here, &back, l, k)))
            .collect();
        let lost = products.iter().map(|(a, b)| 1.0 - 0.5 * (a.norm_sqr() + b.norm_sqr())).sum::<f64>() / 9.0;
        let step = nalgebra::DVector::from_row_slice(&[0.03, -0.02]);
        let predicted = step.dot(&(shape * &step));
        assert!((lost / predicted - 1.0).abs() < 0.02, "{lost} {predicted}");
        let turned = products.iter().map(|(a, b)| (0.5 * (a * b.conj()).arg()).powi(2)).sum::<f64>() / 9.0;
        let predicted = step.dot(&(phase * &step));
        assert!((turned / predicted - 1.0).abs() < 0.02, "{turned} {predicted}");
        // Taken in the middle of each ninth of the rectangle.
        let grid = RegularGrid::new(vec![1.0, 2.0], &[7.0, 8.0], &[1.0, 1.0]);
        let region = SearchRegion::new(&scene, &grid);
        assert_eq!(region.roughness.len(), 9);
        assert_eq!(region.roughness[0], roughness(&scene, Point::new(2.0, 3.0, 0.0)));
        assert_eq!(region.roughness[8], roughness(&scene, Point::new(6.0, 7.0, 0.0)));
    }

    /// Every unknown offset of size s multiplies the probability by `1 + s sqrt(u / (2 pi))`, `u = 2 log_likelihood`.
    #[test]
    fn unknown_offsets_raise_the_probability() {
        let roughness = Roughness { shape: DMatrix::identity(2, 2), phase: DMatrix::identity(2, 2) };
        let region = SearchRegion { size: vec![4.0, 3.0], roughness: vec![roughness] };
        for gains in [0, 9] {
            let probability = |offsets: &[f64]| region.false_alarm_probability(40.0, gains, None, offsets);
            let factor = |size: f64| 1.0 + size * (80.0 / TAU).sqrt();
            let ratio = probability(&[0.5, 2.0]) / probability(&[]);
            assert!((ratio / (factor(0.5) * factor(2.0)) - 1.0).abs() < 1e-9, "{gains}: {ratio}");
        }
        // Without gains: the size of the box, 1 + 7 + 12, times e^-t.
        let probability = region.false_alarm_probability(10.0, 0, None, &[]);
        assert!((probability / (20.0 * (-10f64).exp()) - 1.0).abs() < 1e-9);
        assert_eq!(region.false_alarm_probability(8.9, 9, None, &[]), 1.0);
    }

    /// A delay sample of c / 2 B, or the width of a beam at the nearest IRS, whichever is smaller.
    #[test]
    fn the_resolution_is_that_of_delay_or_beam() {
        let mut scenario = model::Scenario::default();
        scenario.surface.sensors = ElementGrid { columns: 4, rows: 1 };
        let system = System::new(&scenario).unwrap();
        let delay_m = model::units::SPEED_OF_LIGHT_M_S / (2.0 * system.bandwidth_hz);
        let elements = system.sensor_grid.columns.max(system.element_grid.columns) as f64;
        let centre = system.coverage.centre();
        let nearest_m =
            system.irs.iter().map(|irs| irs.pose.distance_m(centre)).fold(f64::INFINITY, f64::min);
        let beam_m = nearest_m / (elements * system.spacing_wavelengths);
        assert!((resolution_m(&system) / delay_m.min(beam_m) - 1.0).abs() < 1e-12);
        // With a hundredth of the bandwidth it is the beam, with a hundred times as much the delay.
        scenario.signal.bandwidth_hz /= 100.0;
        let narrow = System::new(&scenario).unwrap();
        assert!((resolution_m(&narrow) / beam_m - 1.0).abs() < 1e-12);
    }
}
