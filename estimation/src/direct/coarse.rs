//! Coarse search: a grid over the coverage area with tables made once per system.
//!
//! Per frame each node's spectrum is beamformed with a set of beams ([`Beams`]); after that a point costs one multiplication per
//! node and subcarrier, in single precision, whatever K: the subcarriers are shared out among the IRSs. Which points are computed is
//! up to [`values`](super::values). In a flat area the grid
//! is a fifth of the resolution wide, which loses 6 % of a peak at most, and reaches half a resolution past the area so that a
//! target on its edge has its peak inside. Table I: 529 points, 1.7 MB of tables. In space, where the resolution differs
//! from axis to axis, its steps follow from the roughness of the likelihood ([`peak_widths_m`]).

use std::ops::Range;

use model::Point;
use nalgebra::DVector;
use num_complex::{Complex32, Complex64};

use super::beamforming::beamformed_rows;
use super::block_products::BlockProducts;
use super::detection::{peak_widths_m, resolution_m};
use super::evidence::NodeEvidence;
use super::grid::RegularGrid;
use super::interpolation::Interpolation;
use super::layout::View;
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
    pub interpolation: Interpolation,
}

/// Real and imaginary parts over some subcarriers.
pub(super) type Split<'a> = (&'a [f32], &'a [f32]);
/// Real and imaginary parts over all subcarriers.
pub(super) type SplitRow = (Vec<f32>, Vec<f32>);

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
        let between = Interpolation::bytes_per_point(places.dimensions(), irs * irs);
        let bytes = points.saturating_mul(row * 2 * size_of::<f32>() + between);
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
            interpolation: Interpolation::default(),
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
        grid.interpolation = Interpolation::new(&grid, irs);
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

    /// The same on the subcarriers of IRS `k`.
    pub fn part(&self, point: usize, l: usize, k: usize) -> Split<'_> {
        let ((re, im), own) = (self.atom(point, l), self.slot(k));
        (&re[own.clone()], &im[own])
    }

    /// Product of a row with the atom of a point on path (l, k).
    #[inline]
    pub fn product(&self, (re, im): &SplitRow, point: usize, l: usize, k: usize) -> Complex32 {
        let own = self.slot(k);
        product((&re[own.clone()], &im[own]), self.part(point, l, k))
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

    /// A spectrum of node `l` in all beams, over all subcarriers.
    pub fn beamed_spectra(&self, scene: &Scene, l: usize, rows: &[Vec<Complex64>]) -> Vec<SplitRow> {
        let rows: Vec<SplitRow> = rows.iter().map(|row| self.split(scene, row)).collect();
        beamformed_rows(&rows, self.responses(l))
    }

    /// The spectrum of a node in all beams; empty without one.
    pub fn beamed(&self, scene: &Scene, l: usize, node: &NodeEvidence) -> Vec<SplitRow> {
        node.spectrum.as_ref().map_or(Vec::new(), |rows| self.beamed_spectra(scene, l, rows))
    }

    /// Products of a block of path (l, k) with the unit atoms of all points.
    pub fn block_products(&self, l: usize, k: usize, expansion: &BlockExpansion) -> BlockProducts {
        BlockProducts::new(expansion, &self.arrivals[l], &self.lights[k])
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
            let row = row(self.beam_of(l, point));
            used.iter().for_each(|&k| take(point, k, self.product(row, point, l, k)));
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

/// `sum v w^*` over whole lanes, in double precision.
pub(super) fn overlap((v_re, v_im): Split, (w_re, w_im): Split) -> Complex64 {
    let mut sums = [[0f64; LANES]; 2];
    let v = v_re.as_chunks::<LANES>().0.iter().zip(v_im.as_chunks::<LANES>().0);
    let w = w_re.as_chunks::<LANES>().0.iter().zip(w_im.as_chunks::<LANES>().0);
    for ((v_re, v_im), (w_re, w_im)) in v.zip(w) {
        for i in 0..LANES {
            let [a, b, c, d] = [v_re[i], v_im[i], w_re[i], w_im[i]].map(f64::from);
            sums[0][i] += a * c + b * d;
            sums[1][i] += b * c - a * d;
        }
    }
    let [re, im] = sums.map(|sums| sums.iter().sum());
    Complex64::new(re, im)
}

/// `sum y w` over whole lanes: four real products, which the compiler turns into vectors without shuffles.
fn product((y_re, y_im): Split, (w_re, w_im): Split) -> Complex32 {
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
    use super::super::test_scene::{Kind, TestScene};
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

    /// Echoes almost without noise from the middle of cells all over the area, where a grid is worst: its highest value is below the
    /// peak by no more than its loss, in the plane and in space.
    #[test]
    fn a_cell_hides_no_more_than_the_loss() {
        for (scene, step, least) in [(TestScene::new(90.0), 7, 0.7), (TestScene::hall(), 151, 0.4)] {
            let (locator, coverage) = (&scene.locator, &scene.source.system().coverage);
            let places = &locator.grid.places;
            let half = DVector::from_vec(places.step.iter().map(|step| 0.5 * step).collect());
            let middles = (0..places.points()).step_by(step).map(|point| places.coordinates(point) + &half);
            let middles = middles.map(|middle| locator.position_m(&middle));
            let mut most: f64 = 0.0;
            for (frame, target_m) in (0..).zip(middles.filter(|middle| coverage.contains(*middle))) {
                for kind in [Kind::Spectrum, Kind::Block] {
                    let survey = locator.survey(scene.evidence(frame, target_m, |_, _| kind));
                    let top = locator.searched_totals(&survey).iter().copied().fold(0.0, f64::max);
                    let hidden = 1.0 - top / locator.log_likelihood(&survey, target_m);
                    most = most.max(hidden);
                }
            }
            assert!((least * locator.grid.loss..locator.grid.loss).contains(&most), "{most}");
        }
    }
}
