//! Normalised estimation error squared, and the band in which its mean lies if the covariances are right.
//!
//! `e^T P^-1 e` of an error e with covariance P follows the chi-square law with as many degrees of freedom n as e has
//! coordinates. The mean of N independent ones is chi-square with n N degrees of freedom, divided by N (Bar-Shalom, Li and
//! Kirubarajan 2001, Section 5.4.2).

use nalgebra::{DMatrix, DVector};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::error::{TrackingError, require};

/// Normalised squared error.
pub fn nees(error: &DVector<f64>, covariance: &DMatrix<f64>) -> Result<f64, TrackingError> {
    let what = "error";
    if covariance.shape() != (error.len(), error.len()) {
        let (found, expected) = (error.len(), covariance.nrows().to_string());
        return Err(TrackingError::Dimension { what, found, expected });
    }
    let factor = covariance.clone().cholesky().ok_or(TrackingError::Covariance { what })?;
    let value = error.dot(&factor.solve(error));
    if value.is_finite() { Ok(value) } else { Err(TrackingError::Covariance { what }) }
}

/// Lower and upper limit between which the mean of `samples` normalised errors with `freedoms` coordinates lies with
/// probability `confidence`.
pub fn nees_band(freedoms: usize, samples: usize, confidence: f64) -> Result<(f64, f64), TrackingError> {
    let inside = (0.0..1.0).contains(&confidence);
    require(inside, "confidence", confidence, "at least 0 and below 1")?;
    let total = freedoms as f64 * samples as f64;
    require(total >= 1.0, "samples times freedoms", total, "at least 1")?;
    let law = ChiSquared::new(total).map_err(|_| TrackingError::Setting {
        name: "samples times freedoms",
        value: total,
        rule: "finite",
    })?;
    let quantile = |probability: f64| law.inverse_cdf(probability) / samples as f64;
    Ok((quantile((1.0 - confidence) / 2.0), quantile((1.0 + confidence) / 2.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_is_that_of_the_tables() {
        // Chi-square with 100 degrees of freedom: 74.222 and 129.561 at 2.5 and 97.5 %.
        let (low, high) = nees_band(4, 25, 0.95).unwrap();
        assert!((low - 74.222 / 25.0).abs() < 1e-4 && (high - 129.561 / 25.0).abs() < 1e-4, "{low} {high}");
        let (low, high) = nees_band(4, 100_000, 0.95).unwrap();
        let deviation = (2.0 * 4.0 / 100_000_f64).sqrt() * 1.96;
        assert!(
            (low - 4.0 + deviation).abs() < 1e-4 && (high - 4.0 - deviation).abs() < 1e-4,
            "{low} {high}"
        );
    }

    #[test]
    fn a_unit_error_counts_one_per_coordinate() {
        let covariance = DMatrix::from_diagonal(&DVector::from_vec(vec![4.0, 9.0]));
        assert!((nees(&DVector::from_vec(vec![2.0, 3.0]), &covariance).unwrap() - 2.0).abs() < 1e-12);
        assert!(nees(&DVector::zeros(2), &DMatrix::zeros(2, 2)).is_err());
        assert!(nees(&DVector::zeros(3), &covariance).is_err());
        assert!(nees(&DVector::from_vec(vec![f64::NAN, 0.0]), &covariance).is_err());
    }
}
