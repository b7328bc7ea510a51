//! What estimators may assume of a target that they have not seen yet.
//!
//! The radar cross-section of a target is not known beforehand, only its order of magnitude. The prior is log-normal,
//! that is normal in decibels: 0 dBsm with a standard deviation of 10 dB by default, which holds anything from a drone
//! to a car within two deviations. Estimators average over it, or weigh it by what they receive.

/// A log-normal prior on the radar cross-section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossSectionPrior {
    /// Median.
    pub median_m2: f64,
    /// Standard deviation of `10 log10` of the cross-section.
    pub deviation_db: f64,
}

/// Spacing of [`CrossSectionPrior::grid`]: weights of streams hardly change over it.
const STEP_DB: f64 = 5.0;
/// Standard deviations that the grid reaches either way.
const REACH: f64 = 2.5;

impl CrossSectionPrior {
    /// Cross-sections in square metres with their probabilities, which sum to one; the median alone where the deviation
    /// is below 2 dB.
    pub fn grid(&self) -> Vec<(f64, f64)> {
        let steps = (REACH * self.deviation_db / STEP_DB).floor() as i32;
        let at_db = |i: i32| f64::from(i) * STEP_DB;
        let density = |db: f64| if db == 0.0 { 1.0 } else { (-(db / self.deviation_db).powi(2) / 2.0).exp() };
        let total: f64 = (-steps..=steps).map(|i| density(at_db(i))).sum();
        let point = |i: i32| {
            let db = at_db(i);
            (self.median_m2 * 10f64.powf(db / 10.0), density(db) / total)
        };
        (-steps..=steps).map(point).collect()
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
