//! Scenarios for any number of IRSs.

use std::f64::consts::TAU;

use super::{IrsPlacement, Scenario, ScenarioError};
use crate::MOST_IRS;

/// Distance of the IRSs from the centre of the coverage area.
const RING_RADIUS_M: f64 = 50.0;

/// `count` IRSs, 2 to [`MOST_IRS`], on a ring around the coverage area of `base`, all facing its centre.
///
/// The numbers of subcarriers and transmit antennas per IRS are those of `base`, so that the energy per path does not
/// depend on the count and zero-forcing stays feasible.
pub fn ring(base: &Scenario, count: usize) -> Result<Scenario, ScenarioError> {
    if !(2..=MOST_IRS).contains(&count) {
        return Err(ScenarioError::new("nodes", count, format!("must be between 2 and {MOST_IRS}")));
    }
    let given = base.irs.len().max(1);
    let scaled = |total: usize| total.saturating_mul(count).div_ceil(given);
    let centre = base.coverage.centre();
    let mut scenario = base.clone();
    scenario.signal.subcarriers = scaled(base.signal.subcarriers);
    scenario.base_station.antennas = scaled(base.base_station.antennas);
    scenario.irs = (0..count)
        .map(|k| {
            // The offset of a quarter step avoids IRSs on the axis through the base station.
            let (sin, cos) = (TAU * (k as f64 + 0.25) / count as f64).sin_cos();
            let position_m = [centre.x + RING_RADIUS_M * cos, centre.y + RING_RADIUS_M * sin, centre.z];
            IrsPlacement::facing(position_m, centre.into())
        })
        .collect();
    scenario.validate()?;
    Ok(scenario)
}
