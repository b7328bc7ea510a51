//! Coarse search: the likelihood on a grid over the coverage area, from tables made once per system.
//!
//! Per frame each node's spectrum is beamformed with a set of beams ([`Beams`]); after that a point costs one multiplication per
//! node and subcarrier, in single precision, whatever K: the subcarriers are shared out among the IRSs. In a flat area the grid
//! is a fifth of the resolution wide, which loses 6 % of a peak at most, and reaches half a resolution past the area so that a
//! target on its edge has its peak inside. Table I: 529 points, 1.3 MB of tables. In space, where the resolution differs
//! from axis to axis, its steps follow from the roughness of the likelihood ([`peak_widths_m`]).

use std::ops::Range;

use model::Point;
use nalgebra::DVector;
use num_complex::{Complex32, Complex64};

use super::block::block_term;
use super::block_products::BlockProducts;
use super::detection::{peak_widths_m, resolution_m};
use super::evidence::{Evidence, NodeEvidence, PathEvidence};
use super::grid::RegularGrid;
use super::layout::View;
use super::likelihood::{bearing_term, cascade_delay_s, delay_term};
use super::moments::beamformed;
use super::posterior::Hypotheses;
use super::scene::{IrsView, Scene};
use crate::beams::Beams;
use crate::delay::BlockExpansion;
use crate::linalg::ComplexLanes;

/// Grid points per resolution.
const POINTS_PER_RESOLUTION: f64 = 5.0;
/// How far past the coverage area the grid reaches, in resolutions.
const MARGIN_RESOLUTIONS: f64 = 0.5;
/// Largest share of a peak that the grid of a flat area loses.
const FLAT_LOSS: f64 = 0.06;
/// Steps of the grid in space, in units of the width of a peak along each axis: half a cell along all three loses 9 %.
const STEPS_IN_SPACE: f64 = 0.35;
/// How far past the coverage area the grid in space reaches, in the same units.
const MARGIN_IN_SPACE: f64 = 0.7;
/// Largest share of a peak that the grid in space and its beams lose.
const SPACE_LOSS: f64 = 0.2;
/// Beams per beamwidth 1 / (M s): in the plane, and in space.
const BEAMS: [f64; 2] = [8.0, 4.0];
/// Largest table, bytes.
const MOST_BYTES: usize = 512 << 20;
/// Number of partial sums that are computed in parallel.
const LANES: usize = 8;

/// The grid with its tables.
#[derive(Debug, Clone)]
pub(super) struct CoarseGrid {
    pub places: RegularGrid,
    /// Largest share of a peak that is lost between the points.
    pub loss: f64,
    /// Per node.
    beams: Vec<Beams>,
    /// Per point, node and place: what the beamformed spectrum is multiplied with.
    re: Vec<f32>,
    im: Vec<f32>,
    /// Places of the subcarriers of every IRS, filled up with zeros to whole lanes.
    slots: Vec<Range<usize>>,
    /// Per point and IRS.
    views: Vec<Vec<IrsView>>,
    /// Per node: responses of its sensors to all points; per IRS: its light to them, over the root of the number of sensors.
    arrivals: Vec<Vec<ComplexLanes<f32>>>,
    lights: Vec<Vec<ComplexLanes<f32>>>,
}

/// Real and imaginary parts over all subcarriers.
pub(super) type SplitRow = (Vec<f32>, Vec<f32>);

/// Beamformed evidence of a node.
pub(super) struct Beamed<'a> {
    node: &'a NodeEvidence,
    /// Per beam, over all subcarriers; empty without a spectrum.
    pub spectra: Vec<SplitRow>,
}

/// Values on the grid.
#[derive(Debug, Clone)]
pub(super) struct Values {
    /// Per point.
    pub total: Vec<f64>,
    /// Per path, row by row: its highest value on the grid.
    pub highest: Vec<f64>,
    /// Per sensing node: the highest value of its paths together.
    pub highest_sensor: Vec<f64>,
    /// Per point and path, row by row: product of the spectrum with the unit atom of the point, whose square is the value; zero
    /// for a path that delivers none.
    pub products: Vec<Complex32>,
}

/// The coverage area is too large for the tables of the direct search.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "the direct search over this coverage area needs {points} points and {bytes} bytes of tables, more than {most}: \
     make the area smaller or use the three-stage method"
)]
pub struct TooLarge {
    points: usize,
    bytes: usize,
    most: usize,
}

impl CoarseGrid {
    pub fn new(scene: &Scene) -> Result<Self, TooLarge> {
        let system = scene.system();
        let (places, loss) = places(scene);
        let (points, irs) = (places.points(), scene.irs_count());
        let mut slots: Vec<Range<usize>> = Vec::with_capacity(irs);
        for k in 0..irs {
            let start = slots.last().map_or(0, |last| last.end);
            slots.push(start..start + scene.range(k).len().next_multiple_of(LANES));
        }
        let row = irs * slots.last().map_or(0, |last| last.end);
        let bytes = points.saturating_mul(row * 2 * size_of::<f32>());
        if bytes > MOST_BYTES {
            return Err(TooLarge { points, bytes, most: MOST_BYTES });
        }
        let entries = points * row;
        let mut grid = Self {
            places,
            loss,
            beams: Vec::new(),
            re: Vec::with_capacity(entries),
            im: Vec::with_capacity(entries),
            views: Vec::with_capacity(points),
            slots,
            arrivals: Vec::new(),
            lights: Vec::new(),
        };
        let position_m = |point: usize| scene.layout().position_m(&grid.places.coordinates(point));
        let positions_m: Vec<Point> = (0..points).map(position_m).collect();
        let per_beamwidth = BEAMS[usize::from(!system.coverage.is_flat())];
        let beams = |l: usize| Beams::new(system, l, positions_m.iter().copied(), per_beamwidth);
        grid.beams = (0..irs).map(beams).collect();
        let mut views = Vec::new();
        let mut arrivals: Vec<Vec<Vec<Complex64>>> = vec![Vec::with_capacity(points); irs];
        let mut lights = arrivals.clone();
        let root = (system.sensors() as f64).sqrt();
        for &position_m in &positions_m {
            scene.look(position_m, false, &mut views);
            let summaries = scene.summaries(position_m, &views);
            for (k, (view, summary)) in views.iter().zip(&summaries).enumerate() {
                arrivals[k].push(view.arrival[0].clone());
                let scale = root * summary.strength;
                lights[k].push(view.contents[0].iter().map(|content| content / scale).collect());
            }
            grid.views.push(summaries);
            grid.tabulate(scene, &views);
        }
        let in_lanes =
            |vectors: &Vec<Vec<Complex64>>| ComplexLanes::of_vectors(vectors.iter().map(Vec::as_slice));
        grid.arrivals = arrivals.iter().map(in_lanes).collect();
        grid.lights = lights.iter().map(in_lanes).collect();
        Ok(grid)
    }

    pub fn points(&self) -> usize {
        self.views.len()
    }

    /// A point as every IRS sees it.
    pub fn views(&self, point: usize) -> &[IrsView] {
        &self.views[point]
    }

    /// The beam of node `l` in which a point is.
    pub fn beam_of(&self, l: usize, point: usize) -> usize {
        self.beams[l].of_point[point] as usize
    }

    /// Responses of the beams of node `l`.
    pub fn responses(&self, l: usize) -> &[Vec<Complex64>] {
        &self.beams[l].responses
    }

    /// Where the subcarriers of IRS `k` are in a row of the tables, with the zeros that fill it up.
    pub fn slot(&self, k: usize) -> Range<usize> {
        self.slots[k].clone()
    }

    /// What the beamformed spectrum of node `l` is multiplied with for a point: real and imaginary parts.
    pub fn atom(&self, point: usize, l: usize) -> (&[f32], &[f32]) {
        let places = self.slots.last().map_or(0, |last| last.end);
        let at = (point * self.slots.len() + l) * places;
        (&self.re[at..at + places], &self.im[at..at + places])
    }

    /// A row over all subcarriers in the places of the tables, in single precision.
    pub fn split(&self, scene: &Scene, row: &[Complex64]) -> SplitRow {
        let places = self.slots.last().map_or(0, |last| last.end);
        let mut split = (vec![0.0; places], vec![0.0; places]);
        for (k, slot) in self.slots.iter().enumerate() {
            for (place, y) in slot.clone().zip(&row[scene.range(k)]) {
                (split.0[place], split.1[place]) = (y.re as f32, y.im as f32);
            }
        }
        split
    }

    /// Appends the tables of a point: conjugate atoms over the subcarriers, of unit energy with the response of the sensors.
    fn tabulate(&mut self, scene: &Scene, views: &[View]) {
        for sensor in views {
            let root = (sensor.arrival[0].len() as f64).sqrt();
            for (k, reflector) in views.iter().enumerate() {
                let (own, scale) = (scene.range(k), root * reflector.strength());
                let phasors = sensor.phasors[own.clone()].iter().zip(&reflector.phasors[own]);
                for ((a, b), stream) in phasors.zip(&reflector.streams[0]) {
                    let weight = (a * b * stream).conj() / scale;
                    self.re.push(weight.re as f32);
                    self.im.push(weight.im as f32);
                }
                let end = self.re.len().next_multiple_of(LANES);
                self.re.resize(end, 0.0);
                self.im.resize(end, 0.0);
            }
        }
    }

    /// The likelihood on the whole grid.
    pub fn values(&self, scene: &Scene, evidence: &Evidence) -> Values {
        let irs = scene.irs_count();
        let mut values = Values {
            total: vec![0.0; self.points()],
            highest: vec![f64::NEG_INFINITY; irs * irs],
            highest_sensor: vec![f64::NEG_INFINITY; irs],
            products: vec![Complex32::ZERO; self.points() * irs * irs],
        };
        let mut own = vec![0.0; self.points()];
        for (l, node) in evidence.nodes.iter().enumerate() {
            own.fill(0.0);
            let mut add = |point: usize, k: usize, value: f64| {
                own[point] += value;
                if k < irs {
                    let highest = &mut values.highest[l * irs + k];
                    *highest = highest.max(value);
                }
            };
            let beamed = self.beamed(scene, l, node);
            self.each_spectrum(scene, l, &beamed, |point, k, product| {
                values.products[(point * irs + l) * irs + k] = product;
                add(point, k, f64::from(product.norm_sqr()));
            });
            self.each_other(l, node, &mut add);
            values.highest_sensor[l] = own.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            values.total.iter_mut().zip(&own).for_each(|(total, own)| *total += own);
        }
        values
    }

    /// Log-likelihood ratio at some points, one value for each hypothesis per point. The prior of the hypotheses is not
    /// included, so that frames can be added.
    pub fn log_likelihoods(
        &self,
        scene: &Scene,
        evidence: &Evidence,
        hypotheses: &Hypotheses,
        points: &[usize],
    ) -> Vec<f64> {
        let count = hypotheses.count();
        let mut sums = vec![0.0; count * points.len()];
        let mut places = vec![None; self.points()];
        points.iter().enumerate().for_each(|(place, &point)| places[point] = Some(place));
        for (l, node) in evidence.nodes.iter().enumerate() {
            self.each_value(scene, l, node, |point, k, value| {
                let Some(place) = places[point] else { return };
                let views = &self.views[point];
                let fitted = node.paths.get(k).is_some_and(PathEvidence::has_gain);
                let unit_snr = fitted
                    .then(|| scene.unit_snr(views[k].strength, views[l].distance_m, views[k].distance_m));
                hypotheses.add(&mut sums[place * count..(place + 1) * count], value, unit_snr);
            });
        }
        sums
    }

    /// Calls `take` with (point, k, value) for every point and term of node `l`; a bearing comes as k = K.
    pub fn each_value(
        &self,
        scene: &Scene,
        l: usize,
        node: &NodeEvidence,
        mut take: impl FnMut(usize, usize, f64),
    ) {
        let beamed = self.beamed(scene, l, node);
        self.each_spectrum(scene, l, &beamed, |point, k, product| {
            take(point, k, f64::from(product.norm_sqr()));
        });
        self.each_other(l, node, &mut take);
    }

    /// [`Self::each_value`] of everything but spectra.
    fn each_other(&self, l: usize, node: &NodeEvidence, take: &mut impl FnMut(usize, usize, f64)) {
        self.each_block(l, node, take);
        let has_bearing = node.counted_bearing().is_some();
        if !has_bearing && !node.paths.iter().any(|path| matches!(path, PathEvidence::Delay { .. })) {
            return;
        }
        for (point, views) in self.views.iter().enumerate() {
            for (k, path) in node.paths.iter().enumerate() {
                if let Some(value) = delay_term(path, &views[l], &views[k], 0.0) {
                    take(point, k, value);
                }
            }
            if let Some(value) = bearing_term(node, &views[l]) {
                take(point, views.len(), value);
            }
        }
    }

    /// A spectrum of node `l` in all beams, over all subcarriers.
    pub fn beamed_spectra(&self, scene: &Scene, l: usize, rows: &[Vec<Complex64>]) -> Vec<SplitRow> {
        let responses = self.beams[l].responses.iter();
        responses.map(|arrival| self.split(scene, &beamformed(rows, arrival))).collect()
    }

    /// The evidence of node `l`, its spectrum in all beams.
    pub fn beamed<'a>(&self, scene: &Scene, l: usize, node: &'a NodeEvidence) -> Beamed<'a> {
        let spectra = node.spectrum.as_ref().map(|rows| self.beamed_spectra(scene, l, rows));
        Beamed { node, spectra: spectra.unwrap_or_default() }
    }

    /// Products of a block of path (l, k) with the unit atoms of all points.
    pub fn block_products(&self, l: usize, k: usize, expansion: &BlockExpansion) -> BlockProducts {
        BlockProducts::new(expansion, &self.arrivals[l], &self.lights[k])
    }

    /// Calls `take` with (point, k, product) for every point and path of node `l` that delivers its spectrum.
    fn each_spectrum(
        &self,
        scene: &Scene,
        l: usize,
        beamed: &Beamed,
        take: impl FnMut(usize, usize, Complex32),
    ) {
        if beamed.spectra.is_empty() {
            return;
        }
        let delivered = |k: &usize| beamed.node.paths[*k] == PathEvidence::Spectrum;
        let used: Vec<usize> = (0..scene.irs_count()).filter(delivered).collect();
        self.each_product(l, &used, |beam| &beamed.spectra[beam], take);
    }

    /// Calls `take` with (point, k, sum of the products of a row, which depends on the beam, and the atom of the point) for every
    /// point and every IRS k of `used`.
    pub fn each_product<'a>(
        &self,
        l: usize,
        used: &[usize],
        row: impl Fn(usize) -> &'a SplitRow,
        mut take: impl FnMut(usize, usize, Complex32),
    ) {
        for point in 0..self.points() {
            let (w_re, w_im) = self.atom(point, l);
            let (y_re, y_im) = row(self.beam_of(l, point));
            for &k in used {
                let own = self.slot(k);
                let y = (&y_re[own.clone()], &y_im[own.clone()]);
                take(point, k, product(y, (&w_re[own.clone()], &w_im[own])));
            }
        }
    }

    fn each_block(&self, l: usize, node: &NodeEvidence, take: &mut impl FnMut(usize, usize, f64)) {
        for (k, path) in node.paths.iter().enumerate() {
            let PathEvidence::Block(expansion) = path else { continue };
            let products = self.block_products(l, k, expansion);
            for (point, views) in self.views.iter().enumerate() {
                let [z, turned] = products.at(point);
                let offset_s = cascade_delay_s(views[l].distance_m, views[k].distance_m) - expansion.delay_s;
                take(point, k, block_term(z, turned, views[k].width_rad_s, offset_s));
            }
        }
    }
}

/// The grid of a system, and what it loses of a peak.
pub(super) fn places(scene: &Scene) -> (RegularGrid, f64) {
    let system = scene.system();
    let coordinates = |corner: [f64; 3]| scene.layout().coordinates(&Point::from(corner));
    let (min, max) = (coordinates(system.coverage.min_m), coordinates(system.coverage.max_m));
    let (longest, margin, loss): (DVector<f64>, DVector<f64>, f64) = if system.coverage.is_flat() {
        let resolution = resolution_m(system);
        let both = |value: f64| DVector::repeat(2, value);
        (both(resolution / POINTS_PER_RESOLUTION), both(MARGIN_RESOLUTIONS * resolution), FLAT_LOSS)
    } else {
        let widths = DVector::from_vec(peak_widths_m(scene));
        (&widths * STEPS_IN_SPACE, &widths * MARGIN_IN_SPACE, SPACE_LOSS)
    };
    let (min, max) = (min - &margin, max + &margin);
    (RegularGrid::new(min.as_slice().to_vec(), max.as_slice(), longest.as_slice()), loss)
}

/// `sum y w` over whole lanes: four real products, which the compiler turns into vectors without shuffles.
fn product((y_re, y_im): (&[f32], &[f32]), (w_re, w_im): (&[f32], &[f32])) -> Complex32 {
    Complex32::new(dot(y_re, w_re) - dot(y_im, w_im), dot(y_re, w_im) + dot(y_im, w_re))
}

#[inline]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for i in 0..LANES {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::super::likelihood::terms;
    use super::super::test_scene::{KINDS, Kind, TARGET_M, TestScene};
    use super::*;

    #[test]
    fn products_are_summed() {
        let [a, b, c, d] =
            [0.1, 1.2, 2.5, 3.9].map(|at: f32| (0..24).map(|i| (at + i as f32).sin()).collect::<Vec<f32>>());
        for n in [8, 16, 24] {
            let each = (0..n).map(|i| Complex32::new(a[i], b[i]) * Complex32::new(c[i], d[i]));
            let (found, expected) =
                (product((&a[..n], &b[..n]), (&c[..n], &d[..n])), each.sum::<Complex32>());
            assert!((found - expected).norm() < 1e-5 * (1.0 + expected.norm()), "{n}: {found} {expected}");
        }
    }

    /// At every point of the grid, path by path: delays and bearings exactly, spectra and blocks up to what beams of an eighth
    /// of a beamwidth lose on the flank of a peak.
    #[test]
    fn values_on_the_grid_are_those_of_the_likelihood() {
        let TestScene { locator, source } = &TestScene::new(50.0);
        let (grid, irs) = (&locator.grid, source.system().irs_count());
        for kind in KINDS {
            let evidence = TestScene::new(50.0).evidence(0, TARGET_M, |_, _| kind);
            let values = grid.values(&locator.scene, &evidence);
            let mut highest = vec![f64::NEG_INFINITY; irs * (irs + 1)];
            let mut highest_sensor = vec![f64::NEG_INFINITY; irs];
            let mut total = Vec::new();
            for point in 0..grid.points() {
                let at = locator.position_m(&grid.places.coordinates(point));
                let mut own = vec![0.0; irs];
                for term in terms(&locator.scene, &evidence, at.into(), false, &mut Default::default()) {
                    let path = &mut highest[term.sensor * (irs + 1) + term.reflector];
                    *path = path.max(term.value());
                    own[term.sensor] += term.value();
                }
                total.push(own.iter().sum::<f64>());
                highest_sensor.iter_mut().zip(own).for_each(|(highest, own)| *highest = highest.max(own));
            }
            let tolerance = if kind == Kind::Delay { 1e-12 } else { 0.1 };
            let top = total.iter().copied().fold(0.0, f64::max);
            for (found, exact) in values.total.iter().zip(&total) {
                assert!((found - exact).abs() < tolerance * top, "{kind:?}: {found} {exact} of {top}");
            }
            for (l, exact) in highest_sensor.iter().enumerate() {
                assert!((values.highest_sensor[l] / exact - 1.0).abs() < tolerance, "{kind:?}: node {l}");
                for k in 0..irs {
                    let ratio = values.highest[l * irs + k] / highest[l * (irs + 1) + k];
                    assert!((ratio - 1.0).abs() < tolerance, "{kind:?}: path ({l}, {k}) {ratio}");
                }
            }
        }
    }

    /// Echoes almost without noise from the middle of cells all over the area, where a grid is worst: its highest value is below the
    /// peak by no more than its loss.
    #[test]
    fn a_cell_hides_no_more_than_the_loss() {
        let scene = TestScene::new(90.0);
        let (locator, coverage) = (&scene.locator, &scene.source.system().coverage);
        let places = &locator.grid.places;
        let half = DVector::from_vec(places.step.iter().map(|step| 0.5 * step).collect());
        let middles = (0..places.points()).step_by(7).map(|point| places.coordinates(point) + &half);
        let middles = middles.map(|middle| locator.position_m(&middle));
        let mut most: f64 = 0.0;
        for (frame, target_m) in (0..).zip(middles.filter(|middle| coverage.contains(*middle))) {
            for kind in [Kind::Spectrum, Kind::Block] {
                let survey = locator.survey(scene.evidence(frame, target_m, |_, _| kind));
                let top = survey.values.total.iter().copied().fold(0.0, f64::max);
                let hidden = 1.0 - top / locator.log_likelihood(&survey, target_m);
                most = most.max(hidden);
            }
        }
        assert!((0.7 * locator.grid.loss..locator.grid.loss).contains(&most), "{most}");
    }
}
