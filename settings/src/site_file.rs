//! A site as a scenario file: what a fusion center knows, and nothing that only a simulator knows.

use model::System;
use model::scenario::{IrsPlacement, Scenario};
use model::units::{db_from_ratio, dbm_from_watts};

/// What is said at the beginning of the file.
const ABOUT: &str = "\
# The site as the fusion center knows it, as a scenario file. The fusion center is not told the seed, the targets, their motion,
# nor the imperfections of a scenario; a scenario made from this file draws its own channels. The number of antennas is not part
# of a site: there are five for every three streams.
";

/// The site as a scenario file: what a fusion center knows, and nothing that only a simulator knows.
pub fn site_toml(system: &System) -> String {
    let mut scenario = Scenario::default();
    let streams = |k: usize| system.irs[k].reflected_signal.ncols();
    let count = system.irs_count();
    scenario.base_station.position_m = system.base_station_m.into();
    scenario.base_station.power_dbm = dbm_from_watts(system.transmit_power_w);
    // Five for every three streams, as in Table I.
    scenario.base_station.antennas = (5 * (0..count).map(streams).sum::<usize>()).div_ceil(3);
    let signal = &mut scenario.signal;
    signal.wavelength_m = system.wavelength_m;
    signal.spacing_wavelengths = system.spacing_wavelengths;
    signal.wavefront = system.wavefront;
    signal.bandwidth_hz = system.bandwidth_hz;
    signal.subcarriers = system.subcarriers;
    signal.noise_dbm = dbm_from_watts(system.noise_power_w);
    signal.coherent_frames = system.coherent_frames;
    (scenario.surface.elements, scenario.surface.sensors) = (system.element_grid, system.sensor_grid);
    scenario.coverage = system.coverage.clone();
    scenario.prior.rcs_dbsm = db_from_ratio(system.prior.median_m2);
    scenario.prior.rcs_deviation_db = system.prior.deviation_db;
    scenario.clocks.prior_ns = system.clock_prior_s * 1e9;
    let placed = |k: usize| {
        let pose = &system.irs[k].pose;
        let orientation = pose.orientation;
        IrsPlacement {
            azimuth_deg: Some(orientation.azimuth_rad.to_degrees()),
            elevation_deg: Some(orientation.elevation_rad.to_degrees()),
            roll_deg: Some(orientation.roll_rad.to_degrees()),
            paths: Some(streams(k)),
            ..IrsPlacement::at(pose.position_m.into())
        }
    };
    scenario.irs = (0..count).map(placed).collect();
    let mut table = toml::Table::try_from(&scenario).unwrap_or_default();
    for unknown in ["seed", "target", "imperfections", "channel"] {
        table.remove(unknown);
    }
    let mut leave_out = |section: &str, known: fn(&str) -> bool| {
        if let Some(section) = table.get_mut(section).and_then(toml::Value::as_table_mut) {
            section.retain(|key, _| known(key));
        }
    };
    leave_out("clocks", |key| key == "prior_ns");
    leave_out("surface", |key| key != "phases");
    leave_out("base_station", |key| key != "broadside_deg");
    let text = toml::to_string(&table).unwrap_or_default();
    format!("{ABOUT}\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file is a scenario of the same site but for the channels, and says nothing about targets.
    #[test]
    fn a_site_can_be_taken_along() {
        let mut own = model::scenario::ring(&Scenario::default(), 8).unwrap();
        (own.clocks.prior_ns, own.clocks.offset_ns, own.seed) = (100.0, 70.0, 987_654);
        let system = System::new(&own).unwrap();
        let text = site_toml(&system);
        for hidden in ["987654", "seed =", "[target", "rcs_dbsm = 7", "offset_ns"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
        let read: Scenario = toml::from_str(&text).unwrap();
        read.validate().unwrap();
        let again = System::new(&read).unwrap();
        assert_eq!((again.irs_count(), again.coverage.clone()), (8, system.coverage.clone()));
        assert_eq!(again.subcarriers, system.subcarriers);
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-9);
        assert!(close(again.noise_power_w, system.noise_power_w));
        assert!(close(again.transmit_power_w, system.transmit_power_w));
        assert!(close(again.clock_prior_s, system.clock_prior_s));
        for (a, b) in again.irs.iter().zip(&system.irs) {
            assert!((a.pose.position_m - b.pose.position_m).norm() < 1e-9);
            assert!((a.pose.broadside_rad() - b.pose.broadside_rad()).sin().abs() < 1e-9);
            assert_eq!(a.reflected_signal.shape(), b.reflected_signal.shape());
        }
    }
}
