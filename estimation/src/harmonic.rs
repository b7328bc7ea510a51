//! Real trigonometric polynomials and their maxima.
//!
//! A quadratic form in phasors, `sum_ij G_ij exp(j (i - j) w x)` with G Hermitian, depends on the phasors
//! only through their lags: it is the series `g_0 + 2 Re sum_d g_d exp(j d w x)`, g_d the sum of G's d-th
//! diagonal. Every statistic here that is searched in one dimension has this form: the energy of a matched
//! filter over the delay (lags of subcarriers) and the beam, Capon and MUSIC spectra over the sine of the
//! angle (lags of sensors). Value and derivatives are exact and cost one pass over the lags, whatever the
//! number of sensors and streams behind them.

use model::algebra::unit_phasor;
use num_complex::Complex64;

use crate::linalg::register::{Complexes, Register};
use crate::linalg::{ComplexLanes, Instructions, Kernel, LANES, Lanes, dispatch};
use crate::planar::lanes;

/// `g_0 + 2 Re sum_{d >= 1} g_d exp(j d w x)`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HarmonicSeries {
    /// g_d for d = 0, 1, ..; of g_0 only the real part counts.
    lags: Vec<Complex64>,
    /// w, radians per unit of x.
    step_rad: f64,
}

/// A maximum of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peak {
    pub(crate) at: f64,
    pub(crate) value: f64,
}

/// Equally spaced points with their phasors, for series in `x - centre` in which all other lags are zero.
///
/// Points come in pairs at `centre +- u`, at which a series is the sum and the difference of an even and an odd part: each part is
/// computed for one of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    points: Vec<f64>,
    centre: f64,
    /// `2 exp(j d w u)`, [`LANES`] offsets u side by side: for the outermost ones all lags d in question, then for the next.
    phasors: Vec<ComplexLanes<f64>>,
    /// The lags d except zero.
    lags: Vec<usize>,
}

/// Local maxima of the grid are refined where they are at least this share of the best.
const CONTENDER: f64 = 0.9;
/// Iteration limit of Newton's method with bisection.
const MAX_STEPS: usize = 60;
/// Newton's method ends with a step below this share of the bracket: the next would be near the square of it.
const LAST_STEP: f64 = 1e-9;

/// Points from `min` to `max`, both included, at most `spacing` apart.
pub(crate) fn grid_points(min: f64, max: f64, spacing: f64) -> Vec<f64> {
    let intervals = ((max - min) / spacing).ceil().max(1.0) as usize;
    (0..=intervals).map(|i| min + (max - min) * (i as f64 / intervals as f64)).collect()
}

impl Grid {
    /// A grid over [min, max] at most `spacing` apart, for series of these lags (except zero) and angular step
    /// `step_rad`.
    pub(crate) fn new(min: f64, max: f64, spacing: f64, lags: Vec<usize>, step_rad: f64) -> Self {
        let points = grid_points(min, max, spacing);
        let centre = 0.5 * (min + max);
        let (half, last) = (points.len().div_ceil(2), points.len() - 1);
        // The innermost offset fills the last register.
        let offset = |t: usize| points[last - t.min(half - 1)] - centre;
        let mut phasors = Vec::with_capacity(half.div_ceil(LANES) * lags.len());
        for first in (0..half).step_by(LANES) {
            phasors.extend(lags.iter().map(|&d| {
                let phasor = |lane| 2.0 * unit_phasor(d as f64 * step_rad * offset(first + lane));
                lanes(phasor)
            }));
        }
        Self { points, centre, phasors, lags }
    }

    /// The highest values on the grid of [`LANES`] series side by side, from their constants and the lags of the grid.
    #[inline(always)]
    pub(crate) fn highest<R: Register<Scalar = f64>>(&self, constants: R, lags: &[ComplexLanes<f64>]) -> R {
        if R::MANY {
            self.highest_by::<R, 8>(constants, lags)
        } else {
            self.highest_by::<R, 2>(constants, lags)
        }
    }

    /// The same, `OFFSETS` of them at a time: as many as there are registers for.
    #[inline(always)]
    fn highest_by<R: Register<Scalar = f64>, const OFFSETS: usize>(
        &self,
        constants: R,
        lags: &[ComplexLanes<f64>],
    ) -> R {
        let mut highest = R::splat(f64::NEG_INFINITY);
        for (block, phasors) in self.phasors.chunks_exact(lags.len().max(1)).enumerate() {
            let used = self.points.len().div_ceil(2) - block * LANES;
            for first in (0..used.min(LANES)).step_by(OFFSETS) {
                let (mut even, mut odd) = ([R::zero(); OFFSETS], [R::zero(); OFFSETS]);
                for (g, phasor) in lags.iter().zip(phasors) {
                    let g = Complexes::<R>::load(g);
                    for t in 0..OFFSETS {
                        even[t] = g.re.mul_add(R::splat(phasor.re.0[first + t]), even[t]);
                        odd[t] = g.im.mul_add(R::splat(phasor.im.0[first + t]), odd[t]);
                    }
                }
                for t in 0..OFFSETS {
                    highest = highest.max(even[t] - odd[t]).max(even[t] + odd[t]);
                }
            }
        }
        if lags.is_empty() { constants } else { constants + highest }
    }
}

/// Values of a series on a grid.
struct GridValues<'a> {
    grid: &'a Grid,
    series: &'a HarmonicSeries,
    values: &'a mut [f64],
}

impl Kernel<f64> for GridValues<'_> {
    type Output = ();

    #[inline(always)]
    fn run<R: Register<Scalar = f64>>(self) {
        let Self { grid: Grid { points, phasors, lags, .. }, series, values } = self;
        let (half, last) = (points.len().div_ceil(2), points.len() - 1);
        values.fill(series.lags[0].re);
        for (block, phasors) in phasors.chunks_exact(lags.len().max(1)).enumerate() {
            let (mut even, mut odd) = (R::zero(), R::zero());
            for (phasor, &d) in phasors.iter().zip(lags) {
                let g = series.lags[d];
                even = R::load(&phasor.re).mul_add(R::splat(g.re), even);
                odd = R::load(&phasor.im).mul_add(R::splat(g.im), odd);
            }
            let (low, high) = ((even + odd).to_array(), (even - odd).to_array());
            for (lane, t) in (block * LANES..half).take(LANES).enumerate() {
                values[t] = series.lags[0].re + low[lane];
                values[last - t] = series.lags[0].re + high[lane];
            }
        }
    }
}

impl HarmonicSeries {
    /// The series with the given lags, at least one: the first is the constant.
    pub(crate) fn new(lags: Vec<Complex64>, step_rad: f64) -> Self {
        Self { lags, step_rad }
    }

    /// `sum_ij G_ij exp(j (j - i) w x)` = `a^H G a` with `a_i = exp(j i w x)`, of a Hermitian matrix.
    pub(crate) fn of_hermitian(matrix: &model::CMatrix, step_rad: f64) -> Self {
        let size = matrix.nrows();
        let lags = (0..size.max(1)).map(|d| (d..size).map(|j| matrix[(j - d, j)]).sum()).collect();
        Self { lags, step_rad }
    }

    /// The lags g_0, g_1, ..
    pub(crate) fn lags(&self) -> &[Complex64] {
        &self.lags
    }

    /// Starts anew with this many lags, all zero.
    pub(crate) fn reset(&mut self, lags: usize, step_rad: f64) -> &mut [Complex64] {
        self.lags.clear();
        self.lags.resize(lags, Complex64::ZERO);
        self.step_rad = step_rad;
        &mut self.lags
    }

    /// Value, first and second derivative at `x`.
    pub(crate) fn at(&self, x: f64) -> [f64; 3] {
        dispatch(Instructions::detect(), At { series: self, x })
    }

    /// The highest point over [min, max], searched on a grid at most `spacing` apart and refined by Newton.
    pub(crate) fn maximum(&self, min: f64, max: f64, spacing: f64) -> Peak {
        let points = grid_points(min, max, spacing);
        let values: Vec<f64> = points.iter().map(|&x| self.at(x)[0]).collect();
        refined_maximum(&points, &values, |x| self.at(x))
    }

    /// The same on a prepared grid with the lags of the series, which is one in `x - centre`; `values` is scratch.
    pub(crate) fn maximum_on(&self, grid: &Grid, values: &mut Vec<f64>) -> Peak {
        values.resize(grid.points.len(), 0.0);
        dispatch(Instructions::detect(), GridValues { grid, series: self, values });
        refined_maximum(&grid.points, values, |x| self.at(x - grid.centre))
    }
}

/// A series with its derivatives at a point, [`LANES`] lags at a time.
struct At<'a> {
    series: &'a HarmonicSeries,
    x: f64,
}

impl Kernel<f64> for At<'_> {
    type Output = [f64; 3];

    #[inline(always)]
    fn run<R: Register<Scalar = f64>>(self) -> [f64; 3] {
        let HarmonicSeries { lags, step_rad: w } = self.series;
        let turn = unit_phasor(w * self.x);
        let mut power = Complex64::ONE;
        let first = lanes(|_| {
            let current = power;
            power *= turn;
            current
        });
        let step = Complexes { re: R::splat(power.re), im: R::splat(power.im) };
        let mut phasor = Complexes::<R>::load(&first);
        let mut order = R::load(&Lanes(std::array::from_fn(|lane| lane as f64)));
        let mut sums = [R::zero(); 3];
        let (blocks, rest) = lags.as_chunks();
        let mut last = [Complex64::ZERO; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for g in blocks.iter().chain([&last]) {
            let g = Complexes::load(&lanes(|lane| g[lane]));
            let term = Complexes::zero().plus(g, phasor);
            let curved = order * term.re;
            sums = [sums[0] + term.re, order.mul_add(term.im, sums[1]), order.mul_add(curved, sums[2])];
            phasor = Complexes::zero().plus(phasor, step);
            order = order + R::splat(LANES as f64);
        }
        let sum = |sum: R| 2.0 * sum.to_array().iter().sum::<f64>();
        [sum(sums[0]) - lags[0].re, -w * sum(sums[1]), -w * w * sum(sums[2])]
    }
}

/// The highest of the local maxima of `values` after refinement of every contender between its neighbours.
/// `function` gives value, first and second derivative.
pub(crate) fn refined_maximum(points: &[f64], values: &[f64], function: impl Fn(f64) -> [f64; 3]) -> Peak {
    let last = values.len() - 1;
    let is_peak =
        |i: usize| (i == 0 || values[i] > values[i - 1]) && (i == last || values[i] >= values[i + 1]);
    let top = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut best = Peak { at: points[0], value: f64::NEG_INFINITY };
    let contends = |&i: &usize| is_peak(i) && (values[i] >= CONTENDER * top || values[i] == top);
    for i in (0..=last).filter(contends) {
        let (low, high) = (points[i.saturating_sub(1)], points[(i + 1).min(last)]);
        let at = climb(points[i], low, high, &function);
        let value = function(at)[0];
        if value > best.value {
            best = Peak { at, value };
        }
    }
    best
}

/// Newton's method on the derivative within the bracket [low, high], which shrinks according to its sign.
fn climb(start: f64, mut low: f64, mut high: f64, function: &impl Fn(f64) -> [f64; 3]) -> f64 {
    let mut x = start;
    let short = LAST_STEP * (high - low);
    for _ in 0..MAX_STEPS {
        let [_, slope, curvature] = function(x);
        if slope > 0.0 {
            low = x;
        } else if slope < 0.0 {
            high = x;
        } else {
            return x;
        }
        let newton = x - slope / curvature;
        let inside = curvature < 0.0 && newton > low && newton < high;
        let next = if inside { newton } else { (low + high) / 2.0 };
        let moved = (next - x).abs();
        x = next;
        if inside && moved <= short
            || moved <= 4.0 * f64::EPSILON * x.abs()
            || high - low <= 4.0 * f64::EPSILON * x.abs()
        {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn series() -> impl Strategy<Value = HarmonicSeries> {
        let lag = (-1.0..1.0f64, -1.0..1.0f64).prop_map(|(re, im)| Complex64::new(re, im));
        (prop::collection::vec(lag, 2..12), 0.5..3.0f64).prop_map(|(g, w)| HarmonicSeries::new(g, w))
    }

    proptest! {
        #[test]
        fn derivatives_match_finite_differences(series in series(), x in -3.0..3.0f64) {
            let h = 1e-5;
            let (below, here, above) = (series.at(x - h), series.at(x), series.at(x + h));
            let scale = 1.0 + here[2].abs();
            prop_assert!(((above[0] - below[0]) / (2.0 * h) - here[1]).abs() < 1e-4 * scale);
            prop_assert!(((above[1] - below[1]) / (2.0 * h) - here[2]).abs() < 1e-3 * scale);
        }

        #[test]
        fn no_sampled_point_is_higher_than_the_maximum(series in series(), span in 0.1..6.0f64) {
            let finest = 0.02;
            let peak = series.maximum(-span, span, finest);
            let grid = Grid::new(-span, span, finest, (1..series.lags().len()).collect(), series.step_rad);
            prop_assert!((series.maximum_on(&grid, &mut Vec::new()).value - peak.value).abs() < 1e-9);
            for i in 0..=500 {
                let x = span * (i as f64 / 250.0 - 1.0);
                prop_assert!(series.at(x)[0] <= peak.value + 1e-6);
            }
        }
    }

    #[test]
    fn a_maximum_at_the_edge_is_found_there() {
        // cos(x) over [1, 2]: highest at 1.
        let cosine = HarmonicSeries::new(vec![Complex64::ZERO, Complex64::new(0.5, 0.0)], 1.0);
        let peak = cosine.maximum(1.0, 2.0, 0.1);
        assert!((peak.at - 1.0).abs() < 1e-9 && (peak.value - 1f64.cos()).abs() < 1e-9);
    }
}
