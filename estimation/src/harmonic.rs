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

/// `g_0 + 2 Re sum_{d >= 1} g_d exp(j d w x)`.
#[derive(Debug, Clone, PartialEq)]
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

/// Equally spaced points with their phasors, for series in which all other lags are zero.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    points: Vec<f64>,
    /// Real and then imaginary parts of `exp(j d w x)` for the lags d in question, point by point.
    phasors: Vec<f64>,
    /// The lags d except zero.
    lags: Vec<usize>,
}

/// Local maxima of the grid are refined where they are at least this share of the best.
const CONTENDER: f64 = 0.9;
/// Iteration limit of Newton's method with bisection.
const MAX_STEPS: usize = 60;

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
        let phase = |x: f64, d: usize| d as f64 * step_rad * x;
        let mut phasors = Vec::with_capacity(2 * points.len() * lags.len());
        for &x in &points {
            phasors.extend(lags.iter().map(|&d| phase(x, d).cos()));
            phasors.extend(lags.iter().map(|&d| phase(x, d).sin()));
        }
        Self { points, phasors, lags }
    }

    /// Values of a series without other lags.
    fn values(&self, series: &HarmonicSeries) -> Vec<f64> {
        let lags = || self.lags.iter().map(|&d| series.lags[d]);
        let parts: Vec<f64> = lags().map(|g| 2.0 * g.re).chain(lags().map(|g| -2.0 * g.im)).collect();
        let width = 2 * self.lags.len();
        (0..self.points.len())
            .map(|i| series.lags[0].re + dot(&parts, &self.phasors[i * width..(i + 1) * width]))
            .collect()
    }
}

/// Inner product in eight independent sums, which the compiler can keep in vector registers.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
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

    /// Value, first and second derivative at `x`.
    pub(crate) fn at(&self, x: f64) -> [f64; 3] {
        let turn = unit_phasor(self.step_rad * x);
        let mut phasor = Complex64::ONE;
        let mut sums = [0.0; 3];
        for (d, g) in self.lags.iter().enumerate().skip(1) {
            phasor *= turn;
            let term = g * phasor;
            let order = d as f64;
            sums[0] += term.re;
            sums[1] -= order * term.im;
            sums[2] -= order * order * term.re;
        }
        let w = self.step_rad;
        [self.lags[0].re + 2.0 * sums[0], 2.0 * w * sums[1], 2.0 * w * w * sums[2]]
    }

    /// The highest point over [min, max], searched on a grid at most `spacing` apart and refined by Newton.
    pub(crate) fn maximum(&self, min: f64, max: f64, spacing: f64) -> Peak {
        let points = grid_points(min, max, spacing);
        let values: Vec<f64> = points.iter().map(|&x| self.at(x)[0]).collect();
        refined_maximum(&points, &values, |x| self.at(x))
    }

    /// The same on a prepared grid with the lags of the series.
    pub(crate) fn maximum_on(&self, grid: &Grid) -> Peak {
        refined_maximum(&grid.points, &grid.values(self), |x| self.at(x))
    }

    /// The highest value on a prepared grid, not refined.
    pub(crate) fn grid_maximum(&self, grid: &Grid) -> f64 {
        grid.values(self).into_iter().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// The highest of the local maxima of `values` after refinement of every contender between its neighbours.
/// `function` gives value, first and second derivative.
pub(crate) fn refined_maximum(points: &[f64], values: &[f64], function: impl Fn(f64) -> [f64; 3]) -> Peak {
    let last = values.len() - 1;
    let is_peak =
        |i: usize| (i == 0 || values[i] > values[i - 1]) && (i == last || values[i] >= values[i + 1]);
    let peaks: Vec<usize> = (0..=last).filter(|&i| is_peak(i)).collect();
    let top = peaks.iter().map(|&i| values[i]).fold(f64::NEG_INFINITY, f64::max);
    let mut best = Peak { at: points[0], value: f64::NEG_INFINITY };
    for &i in peaks.iter().filter(|&&i| values[i] >= CONTENDER * top || values[i] == top) {
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
        if moved <= 4.0 * f64::EPSILON * x.abs() || high - low <= 4.0 * f64::EPSILON * x.abs() {
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
            prop_assert!((series.maximum_on(&grid).value - peak.value).abs() < 1e-9);
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
