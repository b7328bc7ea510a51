//! Uniform linear arrays: steering vector, its derivatives and the sector in which an angle is unambiguous.
//!
//! Eq. (2): `a(theta, n)_m = exp(j 2 pi s m sin theta)`, with the element spacing `s` in wavelengths made explicit. The
//! paper prints `s = 1`, where only `|sin theta| < 1/2` is unambiguous; spacing is configuration here.

use std::f64::consts::{FRAC_PI_2, TAU};

use num_complex::Complex64;

use crate::algebra::{CVector, unit_phasor};

/// A uniform linear array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UniformLinearArray {
    /// Number of elements, indexed from 0 at the phase reference.
    pub elements: usize,
    /// Distance between neighbouring elements, in wavelengths.
    pub spacing_wavelengths: f64,
}

impl UniformLinearArray {
    /// Steering vector at the local angle `theta_rad`.
    pub fn steering(&self, theta_rad: f64) -> CVector {
        self.steering_at_sine(theta_rad.sin())
    }

    /// Steering vector at the sine of a local angle.
    pub(crate) fn steering_at_sine(&self, sine: f64) -> CVector {
        let step = TAU * self.spacing_wavelengths * sine;
        CVector::from_fn(self.elements, |m, _| unit_phasor(step * m as f64))
    }

    /// Derivative of the steering vector with respect to the local angle.
    pub fn steering_derivative(&self, theta_rad: f64) -> CVector {
        let [_, first, _] = self.steering_expansion(theta_rad);
        first
    }

    /// Steering vector and its first two derivatives with respect to the local angle.
    pub fn steering_expansion(&self, theta_rad: f64) -> [CVector; 3] {
        let rate = TAU * self.spacing_wavelengths;
        let (slope, bend) = (rate * theta_rad.cos(), -rate * theta_rad.sin());
        let a = self.steering(theta_rad);
        let first = CVector::from_fn(a.len(), |m, _| a[m] * Complex64::new(0.0, slope * m as f64));
        let second = CVector::from_fn(a.len(), |m, _| {
            a[m] * Complex64::new(-(slope * m as f64).powi(2), bend * m as f64)
        });
        [a, first, second]
    }

    /// Half width of the sector about broadside in which `2 pi s sin theta` stays inside (-pi, pi).
    pub fn unambiguous_half_sector_rad(&self) -> f64 {
        let sin = 0.5 / self.spacing_wavelengths;
        if sin >= 1.0 { FRAC_PI_2 } else { sin.asin() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spacing_of_one_wavelength_leaves_thirty_degrees() {
        let sector = |spacing_wavelengths| {
            UniformLinearArray { elements: 10, spacing_wavelengths }.unambiguous_half_sector_rad()
        };
        assert!((sector(1.0).to_degrees() - 30.0).abs() < 1e-12);
        assert!((sector(0.5) - FRAC_PI_2).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn derivative_matches_finite_difference(theta in -1.5..1.5f64, spacing in 0.25..1.5f64, n in 1usize..20) {
            let array = UniformLinearArray { elements: n, spacing_wavelengths: spacing };
            let h = 1e-6;
            let difference = (array.steering(theta + h) - array.steering(theta - h)).unscale(2.0 * h);
            let error = (difference - array.steering_derivative(theta)).norm();
            prop_assert!(error < 1e-6 * (1.0 + array.steering_derivative(theta).norm()));
            let [a, first, second] = array.steering_expansion(theta);
            prop_assert!((a - array.steering(theta)).norm() == 0.0);
            prop_assert!((&first - array.steering_derivative(theta)).norm() < 1e-12 * (1.0 + first.norm()));
            let difference = (array.steering_derivative(theta + h) - array.steering_derivative(theta - h)).unscale(2.0 * h);
            prop_assert!((difference - &second).norm() < 1e-6 * (1.0 + second.norm()));
        }
    }
}
