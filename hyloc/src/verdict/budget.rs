//! The link budget of a path: factors whose decibels add up to its SNR after the matched filter.
//!
//! `SNR = |alpha|^2 M ||b_k||^2 / sigma^2`, `b_k = S_k^H a`, `S_k = Theta_k H_k W_k`, is factored along the path of the wave:
//! energy of the beam `||W_k||^2`, mean power per element `||S_k||^2 / N`, power towards the target `||b_k||^2`.

use std::f64::consts::PI;

use model::units::{db_from_ratio, dbm_from_watts};
use model::{Point, System};
use serde::Serialize;

/// One factor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub what: String,
    pub db: f64,
}

/// The budget of path (sensor, reflector).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Budget {
    pub sensor: usize,
    pub reflector: usize,
    /// The first line and the noise are absolute (dBm), the noise subtracted; all lines add up to the SNR.
    pub lines: Vec<Line>,
    pub snr_db: f64,
}

impl Budget {
    /// The budget of path (l, k) for a target of cross-section `rcs_m2` at `target_m`, with `frames` frames averaged coherently.
    pub fn new(
        system: &System,
        (l, k): (usize, usize),
        target_m: Point,
        rcs_m2: f64,
        frames: u64,
    ) -> Option<Self> {
        let (irs, elements) = (system.irs.get(k)?, system.elements() as f64);
        let streams: usize = system.irs.iter().map(|irs| irs.reflected_signal.ncols()).sum();
        let share = irs.reflected_signal.ncols() as f64 / streams as f64;
        let beam_w = system.transmit_power_w * system.subcarriers as f64 * share;
        let base_m = irs.pose.distance_m(system.base_station_m);
        let free_space = (system.wavelength_m / (4.0 * PI * base_m)).powi(2);
        let element_w = irs.reflected_signal.norm_squared() / elements;
        let target_w = system.illumination(k, target_m)?.norm_squared();
        let echo = system.echo_gain(l, k, target_m, rcs_m2)?.powi(2);
        let legs_m = [k, l].map(|i| system.irs[i].pose.distance_m(target_m));
        let line = |what: String, ratio: f64| Line { what, db: db_from_ratio(ratio) };
        let lines = vec![
            Line { what: "transmit power (dBm)".into(), db: dbm_from_watts(system.transmit_power_w) },
            line(format!("{} subcarriers added up", system.subcarriers), system.subcarriers as f64),
            line("share of the power for this IRS".into(), share),
            line("base station beam".into(), element_w / (beam_w * free_space)),
            line(format!("path loss to the IRS, {base_m:.1} m"), free_space),
            line(format!("IRS of {elements} elements"), target_w / element_w),
            line(
                format!(
                    "radar equation, {:.1} dBsm, {:.1} and {:.1} m",
                    db_from_ratio(rcs_m2),
                    legs_m[0],
                    legs_m[1]
                ),
                echo,
            ),
            line(format!("{} sensors", system.sensors()), system.sensors() as f64),
            line(format!("{frames} frame(s) averaged"), frames as f64),
            Line { what: "minus the noise (dBm)".into(), db: -dbm_from_watts(system.noise_power_w) },
        ];
        let snr = system.path_snr(l, k, target_m, rcs_m2)? * frames as f64;
        Some(Self { sensor: l, reflector: k, lines, snr_db: db_from_ratio(snr) })
    }
}

#[cfg(test)]
mod tests {
    use model::Scenario;
    use model::scenario::{IrsPlacement, PathAngles, Phases};

    use super::*;

    #[test]
    fn lines_add_up_to_the_snr() {
        let hall = include_str!("../../../deploy/scenarios/hall.toml");
        for scenario in [Scenario::default(), toml::from_str(hall).unwrap()] {
            let system = System::new(&scenario).unwrap();
            let target_m = system.coverage.at_height(0.3, 0.8, 0.6);
            for path in [(0, 0), (1, 2), (2, 0)] {
                let budget = Budget::new(&system, path, target_m, scenario.rcs_m2(), 3).unwrap();
                let sum: f64 = budget.lines.iter().map(|line| line.db).sum();
                let snr = 3.0 * system.path_snr(path.0, path.1, target_m, scenario.rcs_m2()).unwrap();
                assert!((sum - db_from_ratio(snr)).abs() < 1e-9, "{path:?}: {budget:?}");
                assert!((budget.snr_db - sum).abs() < 1e-9);
            }
        }
    }

    /// One IRS in line of sight, with phases aligned to the target: the beam has the gain of all antennas, the IRS that of all
    /// elements squared, and the path loss is that of free space.
    #[test]
    fn lines_are_what_they_say() {
        let mut scenario = Scenario { irs: vec![IrsPlacement::at([30.0, 40.0, 0.0])], ..Scenario::default() };
        (scenario.channel.paths, scenario.channel.angles) = (1, PathAngles::LineOfSight);
        scenario.surface.phases = Phases::Aligned { toward_m: [5.0, 5.0, 0.0] };
        let system = System::new(&scenario).unwrap();
        let budget = Budget::new(&system, (0, 0), Point::new(5.0, 5.0, 0.0), 1.0, 1).unwrap();
        let db = |what: &str| budget.lines.iter().find(|line| line.what.contains(what)).unwrap().db;
        for (what, expected) in [
            ("transmit power", 50.0),
            ("subcarriers", 20.0),
            ("share", 0.0),
            ("beam", db_from_ratio(50.0)),
            ("path loss", 2.0 * db_from_ratio(0.3 / (4.0 * PI * 50.0))),
            ("elements", 20.0),
            ("sensors", 10.0),
            ("frame(s)", 0.0),
            ("noise", 100.0),
        ] {
            assert!((db(what) - expected).abs() < 1e-6, "{what}: {} instead of {expected}", db(what));
        }
    }
}
