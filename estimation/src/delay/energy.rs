//! The energy of a path over its delay: `J(tau) = sum_ij conj(z_i) z_j K_ji exp(j (w_j - w_i) tau)` of a row z of subcarriers,
//! with the kernel K of the statistic. It is a trigonometric polynomial over the distances of the subcarriers, its lags, of which
//! several pairs of subcarriers may share one. Its origin is the middle of the search window: K is turned there once.
//!
//! Cost per row: n^2 / 2 for the lags, half of the grid times the lags for its values. [`Scan`] does this for all beams of a node,
//! [`LANES`] at a time, path by path: the tables of a path are read once per frame, not once per beam.

use model::CMatrix;
use model::algebra::unit_phasor;
use num_complex::Complex64;

use super::arrival::Beam;
use super::filter::MatchedFilter;
use super::window::DelayWindow;
use crate::harmonic::{Grid, HarmonicSeries, Peak};
use crate::linalg::register::{Complexes, Register};
use crate::linalg::{ComplexLanes, Kernel, LANES, Lanes};
use crate::planar;

/// Two subcarriers with their entry of the kernel; `high` has the higher frequency.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SubcarrierPair {
    high: u32,
    low: u32,
    kernel: Complex64,
}

/// Tables of one path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Energy {
    /// Diagonal of the kernel.
    diagonal: Vec<f64>,
    /// All pairs by their lag.
    pairs: Vec<SubcarrierPair>,
    /// The distinct lags with the number of their pairs.
    lags: Vec<(usize, usize)>,
    step_rad_s: f64,
    grid: Grid,
}

impl Energy {
    /// For the kernel of a filter (n x n, `X^H X` or weighted) over a window.
    pub fn new(filter: &MatchedFilter, kernel: &CMatrix, window: &DelayWindow) -> Self {
        let (offsets, step_rad_s) = (filter.offsets(), filter.step_rad_s());
        let centre_s = 0.5 * (window.min_s + window.max_s);
        let all = (0..offsets.len()).flat_map(|high| (0..offsets.len()).map(move |low| (high, low)));
        let lag = |pair: &SubcarrierPair| offsets[pair.high as usize] - offsets[pair.low as usize];
        let mut pairs: Vec<SubcarrierPair> = all
            .filter(|&(high, low)| offsets[high] > offsets[low])
            .map(|(high, low)| {
                let turn = unit_phasor((offsets[high] - offsets[low]) as f64 * step_rad_s * centre_s);
                SubcarrierPair { high: high as u32, low: low as u32, kernel: kernel[(high, low)] * turn }
            })
            .collect();
        pairs.sort_by_key(lag);
        let lags: Vec<_> =
            pairs.chunk_by(|a, b| lag(a) == lag(b)).map(|equal| (lag(&equal[0]), equal.len())).collect();
        let distinct = lags.iter().map(|(lag, _)| *lag).collect();
        let grid = Grid::new(window.min_s, window.max_s, filter.grid_spacing_s(), distinct, step_rad_s);
        let diagonal = kernel.diagonal().iter().map(|k| k.re).collect();
        Self { diagonal, pairs, lags, step_rad_s, grid }
    }

    /// The highest point over the window, where `gram(i, j)` is `conj(z_i) z_j`, summed over the rows; the others are scratch.
    pub fn maximum(
        &self,
        gram: impl Fn(usize, usize) -> Complex64,
        series: &mut HarmonicSeries,
        values: &mut Vec<f64>,
    ) -> Peak {
        let highest = self.lags.last().map_or(0, |(lag, _)| *lag);
        let sums = series.reset(highest + 1, self.step_rad_s);
        sums[0].re = self.diagonal.iter().enumerate().map(|(i, k)| k * gram(i, i).re).sum();
        let mut pairs = self.pairs.as_slice();
        for &(lag, count) in &self.lags {
            let (equal, rest) = pairs.split_at(count);
            let term = |pair: &SubcarrierPair| gram(pair.low as usize, pair.high as usize) * pair.kernel;
            sums[lag] = equal.iter().map(term).sum();
            pairs = rest;
        }
        series.maximum_on(&self.grid, values)
    }

    /// The highest values on the grid for a row of each lane.
    #[inline(always)]
    fn highest<R: Register<Scalar = f64>>(
        &self,
        rows: &[ComplexLanes<f64>],
        lags: &mut Vec<ComplexLanes<f64>>,
    ) -> R {
        let mut constant = R::zero();
        for (row, kernel) in rows.iter().zip(&self.diagonal) {
            constant = Complexes::<R>::load(row).energy().mul_add(R::splat(*kernel), constant);
        }
        lags.resize(self.lags.len(), ComplexLanes::ZERO);
        let mut pairs = self.pairs.as_slice();
        for (out, &(_, count)) in lags.iter_mut().zip(&self.lags) {
            let (equal, rest) = pairs.split_at(count);
            let mut sum = Complexes::<R>::zero();
            for pair in equal {
                let (high, low) = (&rows[pair.high as usize], &rows[pair.low as usize]);
                let gram = Complexes::<R>::zero().plus_conjugate(Complexes::load(low), Complexes::load(high));
                sum = sum.plus(gram, planar::splat(pair.kernel));
            }
            sum.store(out);
            pairs = rest;
        }
        self.grid.highest(constant, lags)
    }
}

/// Beams of a scan side by side.
#[derive(Debug, Clone)]
pub(super) struct ScanBeams {
    /// Conjugate responses of the sensors.
    groups: Vec<ComplexLanes<f64>>,
    sensors: usize,
    count: usize,
}

impl ScanBeams {
    pub fn new(beams: &[Beam], sensors: usize) -> Self {
        let groups = planar::groups(sensors, beams.len(), |m, beam| beams[beam].conjugate[m]);
        Self { groups, sensors, count: beams.len() }
    }
}

/// Scratch of a [`Scan`].
#[derive(Debug, Default)]
pub(super) struct ScanScratch {
    rows: Vec<ComplexLanes<f64>>,
    lags: Vec<ComplexLanes<f64>>,
    energies: Vec<Lanes<f64>>,
}

/// Finds the beam with the highest energy: the sum over the paths, each given with its spectrum, of the maximum on its grid.
pub(super) struct Scan<'a, P> {
    pub beams: &'a ScanBeams,
    pub paths: P,
    pub scratch: &'a mut ScanScratch,
}

impl<'a, P: Iterator<Item = (&'a Energy, &'a CMatrix)>> Kernel<f64> for Scan<'_, P> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<R: Register<Scalar = f64>>(self) -> Option<usize> {
        let ScanBeams { groups, sensors, count } = self.beams;
        let ScanScratch { rows, lags, energies } = self.scratch;
        energies.clear();
        energies.resize(count.div_ceil(LANES), Lanes::ZERO);
        for (path, spectrum) in self.paths {
            rows.resize(spectrum.ncols(), ComplexLanes::ZERO);
            for (beams, energy) in groups.chunks_exact(*sensors).zip(&mut *energies) {
                planar::product::<R>(spectrum.as_slice(), (*sensors, 1), beams, rows);
                (R::load(energy) + path.highest::<R>(rows, lags)).store(energy);
            }
        }
        let energies = energies.iter().flat_map(|lanes| lanes.0).take(*count);
        energies.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(beam, _)| beam)
    }
}

#[cfg(test)]
mod tests {
    use model::random::{Purpose, complex_normal, stream};
    use model::{CVector, Scenario, System};

    use super::*;
    use crate::harmonic::grid_points;
    use crate::linalg::{Instructions, dispatch};

    /// Scan and maximum against blocks that are computed delay by delay, on noise alone, where no delay or beam is much better than
    /// the others.
    #[test]
    fn energies_are_those_of_the_blocks() {
        let system = System::new(&Scenario::default()).expect("valid");
        let mut draw = stream(1, Purpose::Study, [0, 0]);
        let sensors = system.sensors();
        let mut random = |columns| CMatrix::from_fn(sensors, columns, |_, _| complex_normal(&mut draw, 1.0));
        let filters: Vec<_> =
            (0..3).map(|k| MatchedFilter::of_system(&system, k).expect("a filter")).collect();
        // Odd and even numbers of points, less than a register and more.
        let windows = [(1e-7, 2e-7), (-3e-8, 1.11e-7), (4e-7, 4.11e-7)]
            .map(|(min_s, max_s)| DelayWindow::new(min_s, max_s).expect("a window"));
        let spectra: Vec<CMatrix> = filters.iter().map(|filter| random(filter.codes().ncols())).collect();
        let beams: Vec<CVector> = random(11).column_iter().map(|beam| beam.into_owned()).collect();
        let energy = |path: usize, beam: &CVector, delay_s: f64| {
            let block = filters[path].block(&spectra[path], delay_s).expect("a block");
            block.ad_mul(beam).norm_squared()
        };
        let tables: Vec<Energy> = filters
            .iter()
            .zip(&windows)
            .map(|(filter, window)| Energy::new(filter, &filter.codes().ad_mul(filter.codes()), window))
            .collect();
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-11 * expected;
        let mut expected = [0.0; 11];
        for (path, (filter, window)) in filters.iter().zip(&windows).enumerate() {
            let points = grid_points(window.min_s, window.max_s, filter.grid_spacing_s());
            for (beam, sum) in beams.iter().zip(&mut expected) {
                let on_grid = points.iter().map(|&delay_s| energy(path, beam, delay_s)).fold(0.0, f64::max);
                *sum += on_grid;
                let row = beam.adjoint() * &spectra[path];
                let gram = |i: usize, j: usize| row[i].conj() * row[j];
                let peak = tables[path].maximum(gram, &mut HarmonicSeries::default(), &mut Vec::new());
                assert!(peak.value >= on_grid * (1.0 - 1e-11), "{} < {on_grid}", peak.value);
                assert!(near(peak.value, energy(path, beam, peak.at)));
            }
        }
        let conjugates = planar::groups(sensors, beams.len(), |m, beam| beams[beam][m].conj());
        let scan_beams = ScanBeams { groups: conjugates, sensors, count: beams.len() };
        let best = (0..beams.len()).max_by(|&a, &b| expected[a].total_cmp(&expected[b]));
        let sets = [Instructions::Baseline, Instructions::Avx2, Instructions::Avx512];
        for instructions in sets.into_iter().filter(|set| set.is_available()) {
            let mut scratch = ScanScratch::default();
            let paths = tables.iter().zip(&spectra);
            assert_eq!(
                dispatch(instructions, Scan { beams: &scan_beams, paths, scratch: &mut scratch }),
                best
            );
            let found = scratch.energies.iter().flat_map(|lanes| lanes.0);
            assert!(found.zip(expected).all(|(found, expected)| near(found, expected)), "{instructions:?}");
        }
    }
}
