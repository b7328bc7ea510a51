//! AOD where the departure side is free: Algorithm 2, a trust region over gains and angle.
//!
//! With the AOAs known, `r_l = R_lk^H a(theta_l) / M` is fitted by `g_l b(theta)`, b(theta) = S_k^H a(theta), for all sensing IRSs l at once:
//!
//! ```text
//! min over theta, g_1..g_K of  h = sum_l || g_l b(theta) - r_l ||^2          (g_l = conj(alpha_lk))
//! ```
//!
//! Departures from the paper: it fits one l at a time and transposes S_k (its S_k a is N-dimensional where the data
//! have D_k entries); the start is a scan of theta with the gains profiled out, since h has many local minima; a
//! step that does not lower h is not taken. Radius: doubled above a model agreement of 0.75, else a quarter of the
//! step taken, as in Algorithm 2 (which puts the square of the step there; here both are lengths).
//!
//! The Hessian is an arrow: all gains have the curvature 2 ||b||^2, and only the angle is coupled to them. A step therefore
//! costs O(K) instead of an eigendecomposition of order 2 K + 1.

use model::array::UniformLinearArray;
use model::{CMatrix, CVector};
use nalgebra::DVector;
use num_complex::Complex64;

use super::scan::{Projected, highest, single};
use crate::signals::ReflectedSignals;

/// Iteration limit of the trust region.
const MAX_ROUNDS: usize = 60;
/// Scan points per element.
const POINTS_PER_ELEMENT: usize = 8;
/// Relative decrease of h at which the iteration ends, epsilon_3 of Algorithm 2.
const SETTLED: f64 = 1e-13;

/// AOD of an IRS with reflected signal `signal` from the beamformed rows `r_l` (D entries each); none where
/// the signal has only one direction, all rows are zero, or the arguments do not fit.
pub fn trust_region_departure_rad(
    signal: &CMatrix,
    rows: &[CVector],
    spacing_wavelengths: f64,
) -> Option<f64> {
    let array = UniformLinearArray { elements: signal.nrows(), spacing_wavelengths };
    let fit = Fit { signal, rows, array };
    if !fit.is_sound() {
        return None;
    }
    fit.scan().map(|theta| fit.descend(theta))
}

/// [`trust_region_departure_rad`] of IRS `k` with the scan over the grid of the tables; `rows` may be in any unit.
pub(super) fn grid_departure_rad(signals: &ReflectedSignals, k: usize, rows: &[CVector]) -> Option<f64> {
    let fit = Fit { signal: &signals.signals()[k], rows, array: signals.element_array(k) };
    if !fit.is_sound() {
        return None;
    }
    let largest = rows.iter().map(|row| row.camax()).fold(f64::MIN_POSITIVE, f64::max);
    let reflected = rows.iter().flat_map(|row| row.iter().map(|value| single(value / largest))).collect();
    let (tables, streams) = (signals.tables(), fit.signal.ncols());
    let paths = Projected { reflected, ..Projected::default() };
    let points = tables.grid_rad.len();
    let (value, point) =
        highest(&paths, &tables.arrivals, &tables.departures[k], signals.sensors(), streams, points);
    (value > 0.0).then(|| fit.descend(tables.grid_rad[point]))
}

struct Fit<'a> {
    signal: &'a CMatrix,
    rows: &'a [CVector],
    array: UniformLinearArray,
}

/// h with its derivatives over (Re g_l, Im g_l, ..., theta): an arrow.
struct ArrowModel {
    value: f64,
    gradient: DVector<f64>,
    /// Second derivative by every part of every gain.
    gain_curvature: f64,
    /// Mixed derivatives of the parts of the gains and the angle.
    mixed: DVector<f64>,
    angle_curvature: f64,
}

impl Fit<'_> {
    fn is_sound(&self) -> bool {
        let streams = self.signal.ncols();
        let fits = |row: &CVector| row.len() == streams && row.iter().all(|v| v.is_finite());
        let spacing = self.array.spacing_wavelengths;
        let spaced = spacing.is_finite() && spacing > 0.0;
        let silent = self.rows.iter().all(|row| row.norm_squared() == 0.0);
        spaced && streams >= 2 && self.rows.iter().all(fits) && !silent
    }

    fn illumination(&self, theta: f64) -> CVector {
        self.signal.ad_mul(&self.array.steering(theta))
    }

    /// Best theta on a grid, gains profiled out: maximises sum_l |b^H r_l|^2 / ||b||^2.
    fn scan(&self) -> Option<f64> {
        let points = POINTS_PER_ELEMENT * self.array.elements;
        let sector = self.array.unambiguous_half_sector_rad().sin();
        let mut best = (0.0, None);
        for i in 0..points {
            let theta = (sector * ((2 * i + 1) as f64 / points as f64 - 1.0)).asin();
            let b = self.illumination(theta);
            let value = self.rows.iter().map(|r| b.dotc(r).norm_sqr()).sum::<f64>() / b.norm_squared();
            if value > best.0 {
                best = (value, Some(theta));
            }
        }
        best.1
    }

    fn best_gains(&self, theta: f64) -> DVector<f64> {
        let b = self.illumination(theta);
        let energy = b.norm_squared();
        let gains = self.rows.iter().map(|r| b.dotc(r) / energy);
        let mut y: Vec<f64> = gains.flat_map(|g| [g.re, g.im]).collect();
        y.push(theta);
        DVector::from_vec(y)
    }

    fn value(&self, y: &DVector<f64>) -> f64 {
        let b = self.illumination(y[y.len() - 1]);
        self.rows.iter().enumerate().map(|(l, r)| (&b * gain(y, l) - r).norm_squared()).sum()
    }

    /// h with its derivatives.
    fn expand(&self, y: &DVector<f64>) -> ArrowModel {
        let last = y.len() - 1;
        let theta = y[last];
        let [b, b1, b2] = self.array.steering_expansion(theta).map(|a| self.signal.ad_mul(&a));
        let (energy, slope, cross) = (b.norm_squared(), b1.norm_squared(), b.dotc(&b1));
        let mut model = ArrowModel {
            value: 0.0,
            gradient: DVector::zeros(y.len()),
            gain_curvature: 2.0 * energy,
            mixed: DVector::zeros(last),
            angle_curvature: 0.0,
        };
        for (l, r) in self.rows.iter().enumerate() {
            let g = gain(y, l);
            let error = &b * g - r;
            model.value += error.norm_squared();
            // d h / d g (real and imaginary part), d h / d theta.
            let (by_gain, by_slope) = (b.dotc(&error) * 2.0, b1.dotc(&error));
            let (re, im) = (2 * l, 2 * l + 1);
            model.gradient[re] = by_gain.re;
            model.gradient[im] = by_gain.im;
            model.gradient[last] += 2.0 * (g.conj() * by_slope).re;
            let mixed = (by_slope + cross * g) * 2.0;
            (model.mixed[re], model.mixed[im]) = (mixed.re, mixed.im);
            model.angle_curvature += 2.0 * (g.conj() * b2.dotc(&error)).re + 2.0 * g.norm_sqr() * slope;
        }
        model
    }

    fn descend(&self, theta: f64) -> f64 {
        let mut y = self.best_gains(theta);
        let last = y.len() - 1;
        // Gains are scaled by their largest part, so that one radius suits all variables.
        let size = y.rows(0, last).amax().max(f64::MIN_POSITIVE);
        let mut radius = 0.5 / (self.array.spacing_wavelengths * self.array.elements as f64);
        for _ in 0..MAX_ROUNDS {
            let model = self.expand(&y).scaled(size);
            let step = model.boxed_step(radius);
            let predicted = model.gradient.dot(&step) + 0.5 * model.curvature_along(&step);
            let mut trial = y.clone();
            for i in 0..=last {
                trial[i] += step[i] * if i == last { 1.0 } else { size };
            }
            let change = self.value(&trial) - model.value;
            if change < 0.0 {
                y = trial;
            }
            radius = if change / predicted > 0.75 { 2.0 * radius } else { step.norm() / 4.0 };
            if change.abs() <= SETTLED * model.value || radius < 1e-12 {
                break;
            }
        }
        let sector = self.array.unambiguous_half_sector_rad();
        y[last].clamp(-sector, sector)
    }
}

fn gain(y: &DVector<f64>, l: usize) -> Complex64 {
    Complex64::new(y[2 * l], y[2 * l + 1])
}

impl ArrowModel {
    /// The model over gains in multiples of `size`.
    fn scaled(mut self, size: f64) -> Self {
        let last = self.mixed.len();
        self.gradient.rows_mut(0, last).scale_mut(size);
        self.mixed.scale_mut(size);
        self.gain_curvature *= size * size;
        self
    }

    /// `step^T H step`.
    fn curvature_along(&self, step: &DVector<f64>) -> f64 {
        let (gains, angle) = (step.rows(0, self.mixed.len()), step[self.mixed.len()]);
        self.gain_curvature * gains.norm_squared()
            + angle * (2.0 * self.mixed.dot(&gains) + self.angle_curvature * angle)
    }

    /// Least and greatest eigenvalue: with d the curvature of the gains, those of [[d, |m|], [|m|, h]].
    fn extreme_eigenvalues(&self) -> [f64; 2] {
        let (d, h) = (self.gain_curvature, self.angle_curvature);
        let (middle, half) =
            (0.5 * (d + h), 0.5 * ((d - h).powi(2) + 4.0 * self.mixed.norm_squared()).sqrt());
        [middle - half, middle + half]
    }

    /// Solves (H + mu I) step = -g, the angle first.
    fn step(&self, mu: f64) -> DVector<f64> {
        let last = self.mixed.len();
        let (gains, diagonal) = (self.gradient.rows(0, last), self.gain_curvature + mu);
        let angle = -(self.gradient[last] - self.mixed.dot(&gains) / diagonal)
            / (self.angle_curvature + mu - self.mixed.norm_squared() / diagonal);
        DVector::from_fn(last + 1, |i, _| {
            if i == last { angle } else { -(self.gradient[i] + self.mixed[i] * angle) / diagonal }
        })
    }

    /// Minimiser within the radius: (H + mu I) step = -g, mu by bisection (problem (P4)).
    fn boxed_step(&self, radius: f64) -> DVector<f64> {
        let [lowest, highest] = self.extreme_eigenvalues();
        let largest = lowest.abs().max(highest.abs());
        let floor = (-lowest).max(0.0) + 1e-12 * largest.max(f64::MIN_POSITIVE);
        if lowest > 0.0 {
            let newton = self.step(0.0);
            if newton.norm() <= radius {
                return newton;
            }
        }
        let (mut low, mut high) = (floor, floor + self.gradient.norm() / radius + largest);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.step(middle).norm() > radius {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.step(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::random::{Purpose, complex_normal, stream};

    #[test]
    fn noiseless_departure_is_found() {
        for seed in 0..20 {
            let mut draw = stream(seed, Purpose::Study, [0, 0]);
            let signal = CMatrix::from_fn(8, 3, |_, _| complex_normal(&mut draw, 1.0));
            let array = UniformLinearArray { elements: 8, spacing_wavelengths: 1.0 };
            let theta = 0.45 * (seed as f64 / 10.0 - 1.0);
            let b = signal.ad_mul(&array.steering(theta));
            let rows: Vec<CVector> = (0..3).map(|_| &b * complex_normal(&mut draw, 1.0)).collect();
            let found = trust_region_departure_rad(&signal, &rows, 1.0).unwrap();
            assert!((found - theta).abs() < 1e-6, "seed {seed}: {found} for {theta}");
        }
    }

    #[test]
    fn derivatives_match_finite_differences() {
        let mut draw = stream(5, Purpose::Study, [0, 0]);
        let signal = CMatrix::from_fn(6, 3, |_, _| complex_normal(&mut draw, 1.0));
        let rows: Vec<CVector> =
            (0..2).map(|_| CVector::from_fn(3, |_, _| complex_normal(&mut draw, 1.0))).collect();
        let array = UniformLinearArray { elements: 6, spacing_wavelengths: 1.0 };
        let fit = Fit { signal: &signal, rows: &rows, array };
        let y = DVector::from_vec(vec![0.3, -0.4, 0.5, 0.2, 0.1]);
        let here = fit.expand(&y);
        let h = 1e-5;
        for i in 0..5 {
            let moved = |sign: f64| {
                let mut at = y.clone();
                at[i] += sign * h;
                fit.expand(&at)
            };
            let (up, down) = (moved(1.0), moved(-1.0));
            assert!(
                ((up.value - down.value) / (2.0 * h) - here.gradient[i]).abs() < 1e-6 * here.gradient.amax()
            );
            let curvature = (up.gradient - down.gradient) / (2.0 * h);
            let unit = DVector::from_fn(5, |j, _| f64::from(u8::from(j == i)));
            let [_, largest] = here.extreme_eigenvalues();
            for j in 0..5 {
                let both = &unit + DVector::from_fn(5, |row, _| f64::from(u8::from(row == j)));
                let alone = DVector::from_fn(5, |row, _| f64::from(u8::from(row == j)));
                let along = |step: &DVector<f64>| here.curvature_along(step);
                let entry = 0.5 * (along(&both) - along(&unit) - along(&alone));
                assert!((curvature[j] - entry).abs() < 1e-6 * largest, "({i}, {j})");
            }
        }
    }
}
