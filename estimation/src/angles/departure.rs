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

use model::array::UniformLinearArray;
use model::{CMatrix, CVector};
use nalgebra::{DMatrix, DVector};
use num_complex::Complex64;

use super::QuadraticModel;

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
    let misfit = |row: &CVector| row.len() != signal.ncols() || row.iter().any(|v| !v.is_finite());
    let spaced = spacing_wavelengths.is_finite() && spacing_wavelengths > 0.0;
    if !spaced
        || signal.ncols() < 2
        || rows.iter().any(misfit)
        || rows.iter().all(|r| r.norm_squared() == 0.0)
    {
        return None;
    }
    fit.scan().map(|theta| fit.descend(theta))
}

struct Fit<'a> {
    signal: &'a CMatrix,
    rows: &'a [CVector],
    array: UniformLinearArray,
}

impl Fit<'_> {
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

    /// h with gradient and Hessian over (Re g_l, Im g_l, ..., theta).
    fn expand(&self, y: &DVector<f64>) -> QuadraticModel {
        let last = y.len() - 1;
        let theta = y[last];
        let [b, b1, b2] = self.array.steering_expansion(theta).map(|a| self.signal.ad_mul(&a));
        let energy = b.norm_squared();
        let mut model = QuadraticModel::zeros(y.len());
        for (l, r) in self.rows.iter().enumerate() {
            let g = gain(y, l);
            let error = &b * g - r;
            model.value += error.norm_squared();
            // d h / d g (real and imaginary part), d h / d theta.
            let by_gain = b.dotc(&error) * 2.0;
            let (re, im) = (2 * l, 2 * l + 1);
            model.gradient[re] = by_gain.re;
            model.gradient[im] = by_gain.im;
            model.gradient[last] += 2.0 * (g.conj() * b1.dotc(&error)).re;
            model.hessian[(re, re)] = 2.0 * energy;
            model.hessian[(im, im)] = 2.0 * energy;
            let mixed = (b1.dotc(&error) + b.dotc(&b1) * g) * 2.0;
            for (at, value) in [(re, mixed.re), (im, mixed.im)] {
                model.hessian[(at, last)] = value;
                model.hessian[(last, at)] = value;
            }
            model.hessian[(last, last)] +=
                2.0 * (g.conj() * b2.dotc(&error)).re + 2.0 * g.norm_sqr() * b1.norm_squared();
        }
        model
    }

    fn descend(&self, theta: f64) -> f64 {
        let mut y = self.best_gains(theta);
        let last = y.len() - 1;
        // Gains are scaled by their largest part, so that one radius suits all variables.
        let size = y.rows(0, last).amax().max(f64::MIN_POSITIVE);
        let scale = DVector::from_fn(y.len(), |i, _| if i == last { 1.0 } else { size });
        let mut radius = 0.5 / (self.array.spacing_wavelengths * self.array.elements as f64);
        for _ in 0..MAX_ROUNDS {
            let model = self.expand(&y);
            let gradient = model.gradient.component_mul(&scale);
            let hessian =
                DMatrix::from_fn(y.len(), y.len(), |i, j| model.hessian[(i, j)] * scale[i] * scale[j]);
            let step = boxed_step(&hessian, &gradient, radius);
            let predicted = gradient.dot(&step) + 0.5 * step.dot(&(&hessian * &step));
            let trial = &y + step.component_mul(&scale);
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

/// Minimiser of the quadratic model within the radius: (H + mu I) step = -g, mu by bisection (problem (P4)).
fn boxed_step(hessian: &DMatrix<f64>, gradient: &DVector<f64>, radius: f64) -> DVector<f64> {
    let eigen = hessian.clone().symmetric_eigen();
    let turned = eigen.eigenvectors.tr_mul(gradient);
    let step = |mu: f64| {
        let inner = DVector::from_fn(turned.len(), |i, _| -turned[i] / (eigen.eigenvalues[i] + mu));
        &eigen.eigenvectors * inner
    };
    let lowest = eigen.eigenvalues.min();
    let floor = (-lowest).max(0.0) + 1e-12 * eigen.eigenvalues.amax().max(f64::MIN_POSITIVE);
    if lowest > 0.0 {
        let newton = step(0.0);
        if newton.norm() <= radius {
            return newton;
        }
    }
    let (mut low, mut high) = (floor, floor + gradient.norm() / radius + eigen.eigenvalues.amax());
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if step(middle).norm() > radius {
            low = middle;
        } else {
            high = middle;
        }
    }
    step(high)
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
            assert!((curvature - here.hessian.column(i)).amax() < 1e-6 * here.hessian.amax());
        }
    }
}
