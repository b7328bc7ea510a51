//! Joint likelihood of the K angles on the raw blocks, its scan and its Newton polish.
//!
//! With the gains profiled out, the log-likelihood of theta_1..theta_K is, but for a constant and the factor 1 / sigma^2,
//!
//! ```text
//! f(theta) = sum_lk |a(theta_l)^H R_lk b_k|^2 / (M ||b_k||^2),   b_k = S_k^H a(theta_k),
//! ```
//!
//! where the AOA and the AOD of one IRS are the same theta. Newton's method on it, started from the denoised blocks, reaches
//! the exact bound; the paper stops before this step. Where S_k has rank one, b_k / ||b_k|| does not depend on theta_k and the
//! AOD drops out by itself. The covariance is the inverse of the observed information, -f'' / sigma^2.
//! Cost per evaluation: O(M D) per path.

use model::{CMatrix, CVector};
use nalgebra::{DMatrix, DVector};
use num_complex::Complex64;

use super::QuadraticModel;
use super::scan::{Projected, highest, single};
use crate::blocks::Blocks;
use crate::linalg::ComplexLanes;
use crate::signals::ReflectedSignals;

/// Iteration limit of Newton's method.
const MAX_ROUNDS: usize = 40;
/// Newton's method ends at a step shorter than this.
const SETTLED_RAD: f64 = 1e-10;

/// The likelihood of the angles given the blocks.
pub struct AngleLikelihood<'a> {
    blocks: &'a Blocks,
    signals: &'a ReflectedSignals,
}

/// Angles at a maximum of the likelihood.
#[derive(Debug, Clone, PartialEq)]
pub struct Polished {
    /// theta_i; meaningful where `observed[i]`.
    pub angle_rad: Vec<f64>,
    /// Covariance over the observed angles, zero rows elsewhere.
    pub covariance_rad2: DMatrix<f64>,
    /// Whether any present path determines theta_i.
    pub observed: Vec<bool>,
}

/// `a` and `b` of all IRSs at some angles, `b` of unit norm.
struct Directions {
    angle_rad: Vec<f64>,
    arrival: Vec<CVector>,
    departure: Vec<CVector>,
}

/// `a`, `b` and their first two derivatives at one angle of one IRS.
struct Steering {
    arrival: [CVector; 3],
    departure: [CVector; 3],
}

impl<'a> AngleLikelihood<'a> {
    /// The likelihood of these blocks.
    pub fn new(blocks: &'a Blocks) -> Self {
        Self { blocks, signals: blocks.signals() }
    }

    fn sensors(&self) -> f64 {
        self.blocks.sensors() as f64
    }

    fn steering(&self, i: usize, theta: f64) -> Steering {
        let signal = self.blocks.signal(i);
        let departure = self.signals.element_array(i).steering_expansion(theta).map(|a| signal.ad_mul(&a));
        Steering { arrival: self.signals.sensor_array().steering_expansion(theta), departure }
    }

    fn directions(&self, angles: &[f64]) -> Directions {
        let sensors = self.signals.sensor_array();
        Directions {
            angle_rad: angles.to_vec(),
            arrival: angles.iter().map(|&theta| sensors.steering(theta)).collect(),
            departure: angles.iter().enumerate().map(|(k, &theta)| self.departure(k, theta)).collect(),
        }
    }

    /// `b_k(theta)` of unit norm; zero where nothing is sent.
    fn departure(&self, k: usize, theta: f64) -> CVector {
        let b = self.signals.illumination(k, theta);
        let norm = b.norm();
        if norm > 0.0 { b.unscale(norm) } else { b }
    }

    /// f(theta); NaN unless there is one angle for each IRS.
    pub fn value(&self, angles: &[f64]) -> f64 {
        if angles.len() != self.blocks.irs_count() {
            f64::NAN
        } else {
            self.value_at(&self.directions(angles))
        }
    }

    fn value_at(&self, at: &Directions) -> f64 {
        let term = |(l, k, block)| bilinear(&at.arrival[l], block, &at.departure[k]).norm_sqr();
        self.blocks.present().map(term).sum::<f64>() / self.sensors()
    }

    fn expand(&self, angles: &[f64]) -> QuadraticModel {
        let steering: Vec<Steering> = angles.iter().enumerate().map(|(i, &t)| self.steering(i, t)).collect();
        let mut out = QuadraticModel::zeros(angles.len());
        let mut through = std::array::from_fn(|_| vec![Complex64::ZERO; self.blocks.sensors()]);
        for (l, k, block) in self.blocks.present() {
            let (a, b) = (&steering[l].arrival, &steering[k].departure);
            self.add_path(&mut out, (l, k, block), a, b, &mut through);
        }
        out
    }

    /// Adds |p|^2 / (M q), p = a^H R b, q = ||b||^2, with its derivatives by theta_l (through a) and theta_k (through b).
    /// `through` is scratch for R b and its derivatives.
    fn add_path(
        &self,
        out: &mut QuadraticModel,
        (l, k, block): (usize, usize, &CMatrix),
        a: &[CVector; 3],
        b: &[CVector; 3],
        through: &mut [Vec<Complex64>; 3],
    ) {
        let q = b[0].norm_squared();
        if q == 0.0 {
            return;
        }
        for (product, b) in through.iter_mut().zip(b) {
            multiply(block, b, product);
        }
        let p = |i: usize, j: usize| inner(a[i].as_slice(), &through[j]);
        let (p00, p10, p01, p20, p11, p02) = (p(0, 0), p(1, 0), p(0, 1), p(2, 0), p(1, 1), p(0, 2));
        let along = |x: Complex64, y: Complex64| 2.0 * (x.conj() * y).re;
        let n = p00.norm_sqr();
        let (n_l, n_k) = (along(p00, p10), along(p00, p01));
        let n_ll = 2.0 * p10.norm_sqr() + along(p00, p20);
        let n_lk = along(p10, p01) + along(p00, p11);
        let n_kk = 2.0 * p01.norm_sqr() + along(p00, p02);
        let q_k = 2.0 * b[0].dotc(&b[1]).re / q;
        let q_kk = 2.0 * (b[1].norm_squared() + b[0].dotc(&b[2]).re) / q;
        let scale = 1.0 / (self.sensors() * q);
        out.value += scale * n;
        out.gradient[l] += scale * n_l;
        out.gradient[k] += scale * (n_k - n * q_k);
        out.hessian[(l, l)] += scale * n_ll;
        out.hessian[(k, k)] += scale * (n_kk - 2.0 * n_k * q_k - n * q_kk + 2.0 * n * q_k * q_k);
        let mixed = scale * (n_lk - n_l * q_k);
        out.hessian[(l, k)] += mixed;
        out.hessian[(k, l)] += mixed;
    }

    /// Moves each angle in turn to the maximum of f along it, twice over all angles. This leaves a wrong peak of one angle
    /// where the other paths contradict it. No change unless there is one angle for each IRS.
    pub fn scan(&self, angles: &mut [f64]) {
        if angles.len() == self.blocks.irs_count() {
            let mut at = self.directions(angles);
            self.scan_all(&mut at);
            angles.copy_from_slice(&at.angle_rad);
        }
    }

    fn scan_all(&self, at: &mut Directions) {
        // In this unit single precision holds the blocks.
        let largest = self.blocks.present().flat_map(|(_, _, block)| block.iter());
        let unit = largest.map(|v| v.re.abs().max(v.im.abs())).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let mut paths = Projected::default();
        for _ in 0..2 {
            for i in 0..at.angle_rad.len() {
                self.project(at, i, unit, &mut paths);
                self.scan_one(at, i, &paths);
            }
        }
    }

    /// The paths of IRS `i`, projected on the steering vector at their other end.
    fn project(&self, at: &Directions, i: usize, unit: f64, paths: &mut Projected) {
        paths.sensed.clear();
        paths.reflected.clear();
        paths.own.clear();
        let scaled = |value: Complex64| single(value / unit);
        let mut sensed = vec![Complex64::ZERO; self.blocks.sensors()];
        for j in (0..at.angle_rad.len()).filter(|&j| j != i) {
            if let Some(block) = self.blocks.block(i, j) {
                multiply(block, &at.departure[j], &mut sensed);
                paths.sensed.extend(sensed.iter().map(|&value| scaled(value)));
            }
            if let Some(block) = self.blocks.block(j, i) {
                let columns = block.as_slice().chunks_exact(block.nrows());
                let products = columns.map(|column| inner(column, at.arrival[j].as_slice()));
                paths.reflected.extend(products.map(scaled));
            }
        }
        if let Some(block) = self.blocks.block(i, i) {
            paths.own.extend(block.iter().map(|&value| scaled(value)));
        }
    }

    fn scan_one(&self, at: &mut Directions, i: usize, paths: &Projected) {
        let tables = self.signals.tables();
        let (sensors, streams) = (at.arrival[i].len(), at.departure[i].len());
        // The angle itself is one more point.
        let [a, b] = [&at.arrival[i], &at.departure[i]].map(|v| ComplexLanes::of_vectors([v.as_slice()]));
        let (here, _) = highest(paths, &a, &b, sensors, streams, 1);
        let points = tables.grid_rad.len();
        let (value, point) =
            highest(paths, &tables.arrivals, &tables.departures[i], sensors, streams, points);
        if value > here {
            let theta = tables.grid_rad[point];
            at.angle_rad[i] = theta;
            at.arrival[i] = self.signals.sensor_array().steering(theta);
            at.departure[i] = self.departure(i, theta);
        }
    }

    /// Scans from each start and runs Newton's method from the best of the results.
    pub fn polish_best(&self, starts: impl IntoIterator<Item = Vec<f64>>) -> Polished {
        let scanned = starts.into_iter().map(|angles| {
            if angles.len() != self.blocks.irs_count() {
                return (f64::NAN, angles);
            }
            let mut at = self.directions(&angles);
            self.scan_all(&mut at);
            (self.value_at(&at), at.angle_rad)
        });
        let highest = scanned.reduce(|best, next| if next.0 > best.0 { next } else { best });
        self.polish(&highest.map_or_else(|| vec![0.0; self.blocks.irs_count()], |(_, angles)| angles))
    }

    /// Newton's method from `start`, damped where the Hessian is not negative definite; angles that are missing start at zero.
    pub fn polish(&self, start: &[f64]) -> Polished {
        let mut angles = start.to_vec();
        angles.resize(self.blocks.irs_count(), 0.0);
        let sector = self.signals.sensor_array().unambiguous_half_sector_rad();
        let longest = 0.25 / (self.blocks.spacing_wavelengths() * self.sensors());
        let mut here = self.expand(&angles);
        let mut damping = 0.0;
        for _ in 0..MAX_ROUNDS {
            let Some(mut step) = ascent(&here, damping) else { break };
            let length = step.amax();
            if length > longest {
                step *= longest / length;
            }
            let trial: Vec<f64> =
                angles.iter().zip(step.iter()).map(|(a, s)| (a + s).clamp(-sector, sector)).collect();
            let there = self.expand(&trial);
            if there.value >= here.value || length < SETTLED_RAD {
                angles = trial;
                here = there;
                damping *= 0.1;
                if length < SETTLED_RAD {
                    break;
                }
            } else {
                damping = (10.0 * damping).max(1e-3);
            }
        }
        let observed = self.observed(&here);
        let covariance_rad2 = self.covariance(&here, &observed);
        Polished { angle_rad: angles, covariance_rad2, observed }
    }

    /// An angle is observed when an IRS senses a path, or reflects one with a signal of more than one direction.
    fn observed(&self, here: &QuadraticModel) -> Vec<bool> {
        let scale = here.hessian.diagonal().amax();
        (0..here.gradient.len())
            .map(|i| {
                self.blocks.present().any(|(l, k, _)| l == i || k == i)
                    && here.hessian[(i, i)] < -1e-9 * scale
            })
            .collect()
    }

    fn covariance(&self, here: &QuadraticModel, observed: &[bool]) -> DMatrix<f64> {
        let count = observed.len();
        let index: Vec<usize> = (0..count).filter(|&i| observed[i]).collect();
        let information = DMatrix::from_fn(index.len(), index.len(), |i, j| {
            -here.hessian[(index[i], index[j])] / self.blocks.noise_variance()
        });
        let mut covariance = DMatrix::zeros(count, count);
        // Away from a maximum the observed information may be indefinite: only its diagonal is then used.
        let inverse = match information.clone().cholesky() {
            Some(factor) => factor.inverse(),
            None => {
                DMatrix::from_diagonal(&information.diagonal().map(|v| 1.0 / v.abs().max(f64::MIN_POSITIVE)))
            }
        };
        for (i, &row) in index.iter().enumerate() {
            for (j, &column) in index.iter().enumerate() {
                covariance[(row, column)] = inverse[(i, j)];
            }
        }
        covariance
    }
}

/// `x^H y`.
fn inner(x: &[Complex64], y: &[Complex64]) -> Complex64 {
    x.iter().zip(y).map(|(x, y)| x.conj() * y).sum()
}

/// `product = R b`.
fn multiply(block: &CMatrix, b: &CVector, product: &mut [Complex64]) {
    product.fill(Complex64::ZERO);
    for (column, b) in block.as_slice().chunks_exact(block.nrows()).zip(b.iter()) {
        product.iter_mut().zip(column).for_each(|(sum, r)| *sum += r * b);
    }
}

/// `a^H R b`.
fn bilinear(a: &CVector, block: &CMatrix, b: &CVector) -> Complex64 {
    let columns = block.as_slice().chunks_exact(block.nrows());
    columns.zip(b.iter()).map(|(column, b)| inner(a.as_slice(), column) * b).sum()
}

/// Solves (-H + damping) step = gradient, with enough damping to make the matrix positive definite.
fn ascent(here: &QuadraticModel, mut damping: f64) -> Option<DVector<f64>> {
    let scale = here.hessian.diagonal().amax();
    if !(scale.is_finite() && scale > 0.0) {
        return None;
    }
    for _ in 0..12 {
        let mut matrix = -here.hessian.clone();
        for i in 0..matrix.nrows() {
            // The floor keeps angles without information unchanged.
            matrix[(i, i)] += (damping + 1e-12) * scale;
        }
        if let Some(factor) = matrix.cholesky() {
            return Some(factor.solve(&here.gradient));
        }
        damping = (10.0 * damping).max(1e-3);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::random::{Purpose, complex_normal, stream};

    fn random_blocks(seed: u64) -> Blocks {
        let mut draw = stream(seed, Purpose::Study, [0, 0]);
        let mut matrix =
            |rows, columns| CMatrix::from_fn(rows, columns, |_, _| complex_normal(&mut draw, 1.0));
        let signals = vec![matrix(5, 3), matrix(5, 4), matrix(5, 1)];
        let mut table: Vec<Vec<Option<CMatrix>>> =
            (0..3).map(|_| (0..3).map(|k| Some(matrix(4, signals[k].ncols()))).collect()).collect();
        table[1][0] = None;
        Blocks::new(1.0, signals, 1.0, table).unwrap()
    }

    #[test]
    fn derivatives_match_finite_differences() {
        for seed in 0..5 {
            let blocks = random_blocks(seed);
            let likelihood = AngleLikelihood::new(&blocks);
            let angles = [0.1, -0.2, 0.3];
            let here = likelihood.expand(&angles);
            let h = 1e-5;
            for i in 0..3 {
                let moved = |sign: f64| {
                    let mut at = angles;
                    at[i] += sign * h;
                    likelihood.expand(&at)
                };
                let (up, down) = (moved(1.0), moved(-1.0));
                let slope = (up.value - down.value) / (2.0 * h);
                assert!((slope - here.gradient[i]).abs() < 1e-6 * here.gradient.amax().max(1.0));
                let curvature = (up.gradient - down.gradient) / (2.0 * h);
                assert!((curvature - here.hessian.column(i)).amax() < 1e-6 * here.hessian.amax());
            }
            assert!((likelihood.value(&angles) - here.value).abs() < 1e-10 * here.value);
        }
    }

    #[test]
    fn polishing_and_scanning_only_climb() {
        for seed in 0..20 {
            let blocks = random_blocks(seed);
            let likelihood = AngleLikelihood::new(&blocks);
            let mut angles = vec![0.1, -0.2, 0.3];
            let before = likelihood.value(&angles);
            likelihood.scan(&mut angles);
            let scanned = likelihood.value(&angles);
            let polished = likelihood.polish(&angles);
            let top = likelihood.value(&polished.angle_rad);
            assert!(scanned >= before && top >= scanned - 1e-12 * scanned, "seed {seed}");
        }
    }
}
