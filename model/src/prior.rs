//! What estimators may assume about a target before it is observed.
//!
//! Only the order of magnitude of a target's radar cross-section is known in advance. The prior is log-normal, that is
//! normal in decibels: by default 0 dBsm with a standard deviation of 10 dB, so that a drone and a car both lie within
//! two deviations. Estimators average over it, or weight it by the received signal.

use crate::units::ratio_from_db;

/// A log-normal prior on the radar cross-section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossSectionPrior {
    /// Median of the cross-section, positive.
    pub median_m2: f64,
    /// Standard deviation of `10 log10` of the cross-section.
    pub deviation_db: f64,
}

/// Spacing of [`CrossSectionPrior::grid`]; the weights of streams hardly change over it.
const STEP_DB: f64 = 5.0;
/// Half width of the grid in standard deviations.
const REACH: f64 = 2.5;
/// Largest half width of the grid in steps, which no valid prior reaches.
const MOST_STEPS: f64 = 100.0;

impl CrossSectionPrior {
    /// Cross-sections in square metres with their probabilities, which sum to one; only the median if the deviation is
    /// below 2 dB.
    pub fn grid(&self) -> Vec<(f64, f64)> {
        let steps = (REACH * self.deviation_db / STEP_DB).floor().clamp(0.0, MOST_STEPS) as i32;
        let grid_db = (-steps..=steps).map(|i| f64::from(i) * STEP_DB);
        let density = |db: f64| if db == 0.0 { 1.0 } else { (-(db / self.deviation_db).powi(2) / 2.0).exp() };
        let total: f64 = grid_db.clone().map(density).sum();
        grid_db.map(|db| (self.median_m2 * ratio_from_db(db), density(db) / total)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_the_moments_of_the_prior() {
        for (median_m2, deviation_db) in [(1.0, 10.0), (5.0, 6.0), (0.1, 20.0)] {
            let prior = CrossSectionPrior { median_m2, deviation_db };
            let moment = |power: i32| -> f64 {
                let db = |m2: f64| 10.0 * (m2 / median_m2).log10();
                prior.grid().iter().map(|(m2, probability)| probability * db(*m2).powi(power)).sum()
            };
            assert!((moment(0) - 1.0).abs() < 1e-12 && moment(1).abs() < 1e-9);
            // Cut off at 2.5 deviations.
            assert!((moment(2).sqrt() / deviation_db - 0.95).abs() < 0.05, "{}", moment(2).sqrt());
        }
        let certain = CrossSectionPrior { median_m2: 5.0, deviation_db: 0.0 };
        assert_eq!(certain.grid(), [(5.0, 1.0)]);
    }
}
