//! Physical constants and conversions of units.
//!
//! All quantities are in SI units and radians; decibels and degrees occur only in scenarios, flags and reports.

/// Speed of light in vacuum, m/s.
pub const SPEED_OF_LIGHT_M_S: f64 = 299_792_458.0;

/// Power in watts from dBm.
pub fn watts_from_dbm(dbm: f64) -> f64 {
    ratio_from_db(dbm - 30.0)
}

/// Power in dBm from watts.
pub fn dbm_from_watts(watts: f64) -> f64 {
    db_from_ratio(watts) + 30.0
}

/// Power ratio from decibels.
pub fn ratio_from_db(db: f64) -> f64 {
    10f64.powf(db / 10.0)
}

/// Decibels from a power ratio.
pub fn db_from_ratio(ratio: f64) -> f64 {
    10.0 * ratio.log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_dbm_is_a_hundred_watts() {
        assert!((watts_from_dbm(50.0) - 100.0).abs() < 1e-9);
        assert!((dbm_from_watts(1e-13) + 100.0).abs() < 1e-9);
    }
}
