//! Validation of a scenario.

use std::fmt::Display;

use super::coordinates::{Coordinates, stated};
use super::{Coverage, IrsPlacement, Phases, Scenario};
use crate::MOST_IRS;
use crate::geometry::Point;
use crate::panel::ElementGrid;

/// Smallest distance of an IRS from a target or the base station.
const CLOSEST_M: f64 = 1.0;
/// Largest coordinate of any position.
const FARTHEST_M: f64 = 1e6;
/// Largest array, frame or path count: far above any use, far below what exhausts memory.
const LARGEST_COUNT: usize = 4096;

/// Largest number of complex operations for channels and beams, see [`Scenario::beam_work`]: a few seconds.
const MOST_BEAM_WORK: f64 = 5e8;

/// An impossible value in a scenario or a system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {rule}")]
pub struct ScenarioError {
    /// Key in the scenario file, with dots and indices.
    pub key: String,
    /// The refused value as text.
    pub value: String,
    /// The condition that the value violates.
    pub rule: String,
}

impl ScenarioError {
    /// An error about `value` of `key`, which violates `rule`.
    pub fn new(key: impl Into<String>, value: impl Display, rule: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.to_string(), rule: rule.into() }
    }
}

pub(crate) type Check = Result<(), ScenarioError>;

impl Scenario {
    /// Refuses impossible values; the error names key, value and allowed range.
    pub fn validate(&self) -> Check {
        self.validate_signal()?;
        self.validate_counts()?;
        within("imperfections.channel_error", self.imperfections.channel_error, 0.0, 10.0)?;
        self.clocks.validate(self.irs.len())?;
        self.validate_places()?;
        if let Some(measured) = &self.measured {
            // Streams and subcarriers are checked with the site; no channel or beam is made.
            return measured.validate(self);
        }
        self.validate_streams()?;
        self.validate_work()
    }

    fn validate_signal(&self) -> Check {
        let s = &self.signal;
        within("base_station.power_dbm", self.base_station.power_dbm, 0.0, 100.0)?;
        within("base_station.broadside_deg", self.base_station.broadside_deg, -360.0, 360.0)?;
        within("signal.wavelength_m", s.wavelength_m, 1e-6, 1e3)?;
        within("signal.spacing_wavelengths", s.spacing_wavelengths, 0.01, 10.0)?;
        within("signal.bandwidth_hz", s.bandwidth_hz, 1.0, 1e12)?;
        within("signal.noise_dbm", s.noise_dbm, -300.0, 100.0)?;
        within("prior.rcs_dbsm", self.prior.rcs_dbsm, -100.0, 100.0)?;
        within("prior.rcs_deviation_db", self.prior.rcs_deviation_db, 0.0, 30.0)?;
        if s.coherent_frames == 0 {
            return Err(ScenarioError::new("signal.coherent_frames", 0, "must be at least 1"));
        }
        Ok(())
    }

    fn validate_counts(&self) -> Check {
        count("signal.subcarriers", self.signal.subcarriers)?;
        count("base_station.antennas", self.base_station.antennas)?;
        grid("surface.elements", self.surface.elements)?;
        grid("surface.sensors", self.surface.sensors)?;
        count("channel.paths", self.channel.paths)?;
        for (k, irs) in self.irs.iter().enumerate() {
            if let Some(paths) = irs.paths {
                count(&format!("irs[{k}].paths"), paths)?;
            }
        }
        irs_count(self.irs.len())
    }

    fn validate_places(&self) -> Check {
        place("base_station.position_m", self.base_station.position_m)?;
        place("coverage.min_m", self.coverage.min_m)?;
        place("coverage.max_m", self.coverage.max_m)?;
        extents(&self.coverage)?;
        if let Phases::Aligned { toward_m } = self.surface.phases {
            place("surface.phases.aligned.toward_m", toward_m)?;
        }
        for (k, irs) in self.irs.iter().enumerate() {
            place(&format!("irs[{k}].position_m"), irs.position_m)?;
            self.validate_orientation(k, irs)?;
            self.validate_irs_place(k)?;
        }
        self.validate_targets()
    }

    fn validate_irs_place(&self, k: usize) -> Check {
        let position = Point::from(self.irs[k].position_m);
        let refuse = |rule: String| {
            Err(ScenarioError::new(format!("irs[{k}].position_m"), show(self.irs[k].position_m), rule))
        };
        if self.coverage.contains(position) {
            return refuse("lies inside the coverage area, where a target could stand on it".into());
        }
        if (position - self.base_station.position()).norm() < CLOSEST_M {
            return refuse(format!("must be at least {CLOSEST_M} m from the base station"));
        }
        match (0..k).find(|&j| self.irs[j].position_m == self.irs[k].position_m) {
            Some(j) => refuse(format!("is where irs[{j}] already stands")),
            None => Ok(()),
        }
    }

    fn validate_orientation(&self, k: usize, irs: &IrsPlacement) -> Check {
        let key = |name: &str| format!("irs[{k}].{name}");
        if let Some(facing_m) = irs.facing_m {
            place(&key("facing_m"), facing_m)?;
            if facing_m == irs.position_m {
                let rule = "must differ from the position of the IRS, or there is no direction to face";
                return Err(ScenarioError::new(key("facing_m"), show(facing_m), rule));
            }
        }
        let angles = [("azimuth_deg", irs.azimuth_deg, 360.0), ("elevation_deg", irs.elevation_deg, 90.0)];
        for (name, angle, most) in angles.into_iter().chain([("roll_deg", irs.roll_deg, 360.0)]) {
            let Some(angle) = angle else { continue };
            within(&key(name), angle, -most, most)?;
            if irs.facing_m.is_some() && name != "roll_deg" {
                let rule = "state either facing_m or azimuth_deg and elevation_deg, not both";
                return Err(ScenarioError::new(key(name), angle, rule));
            }
        }
        let pose = self.pose(k);
        let boresight = pose.orientation.axes().column(2).into_owned();
        let behind = |corner: &Point| boresight.dot(&(corner - pose.position_m)) <= 0.0;
        if self.coverage.corners().iter().all(behind) {
            let shown = format!(
                "azimuth {:.1}, elevation {:.1} degrees",
                pose.orientation.azimuth_rad.to_degrees(),
                pose.orientation.elevation_rad.to_degrees()
            );
            let rule = "the panel faces away: the whole coverage area lies behind it (facing_m, azimuth_deg)";
            return Err(ScenarioError::new(key("boresight"), shown, rule));
        }
        Ok(())
    }

    pub(super) fn validate_target_place(&self, key: &str, position_m: Coordinates) -> Check {
        place(key, position_m)?;
        let distance_m = |k: usize| (Point::from(position_m) - Point::from(self.irs[k].position_m)).norm();
        match (0..self.irs.len()).find(|&k| distance_m(k) < CLOSEST_M) {
            Some(k) => {
                let rule = format!("must be at least {CLOSEST_M} m from irs[{k}]");
                Err(ScenarioError::new(key, show(position_m), rule))
            }
            None => Ok(()),
        }
    }

    fn validate_streams(&self) -> Check {
        let irs_count = self.irs.len();
        let share = self.signal.subcarriers / irs_count;
        let widest = (0..irs_count).map(|k| self.streams(k)).max().unwrap_or(0);
        if widest > share {
            let rule = format!(
                "must be at least {} so that each of {irs_count} IRSs owns a subcarrier for each of {widest} streams",
                widest * irs_count
            );
            return Err(ScenarioError::new("signal.subcarriers", self.signal.subcarriers, rule));
        }
        let ranks: usize = (0..irs_count).map(|k| self.streams(k)).sum();
        if self.base_station.antennas < ranks {
            let rule =
                format!("zero-forcing needs at least {ranks}, the sum of the ranks of all BS-IRS channels");
            return Err(ScenarioError::new("base_station.antennas", self.base_station.antennas, rule));
        }
        Ok(())
    }

    /// Complex operations of zero-forcing up to a factor: a decomposition per IRS (N x N_t), and the basis of all streams.
    fn beam_work(&self) -> f64 {
        let (elements, antennas) = (self.surface.elements.count() as f64, self.base_station.antennas as f64);
        let streams: usize = (0..self.irs.len()).map(|k| self.streams(k)).sum();
        let decomposition = elements.min(antennas).powi(2) * elements.max(antennas);
        self.irs.len() as f64 * decomposition + antennas.powi(2) * streams as f64
    }

    /// Refuses what would take minutes; the error names the largest of the counts that matter.
    fn validate_work(&self) -> Check {
        let work = self.beam_work();
        if work <= MOST_BEAM_WORK {
            return Ok(());
        }
        let counts = [
            ("base_station.antennas", self.base_station.antennas),
            ("surface.elements", self.surface.elements.count()),
        ];
        let (key, value) = if counts[1].1 > counts[0].1 { counts[1] } else { counts[0] };
        let rule = format!(
            "takes too long: K min(N, N_t)^2 max(N, N_t) + N_t^2 D must be at most {MOST_BEAM_WORK:e} for K IRSs, \
             N elements, N_t antennas and D streams, and is {work:.1e}; lower this count, channel.paths or the \
             number of IRSs"
        );
        Err(ScenarioError::new(key, value, rule))
    }
}

pub(crate) fn within(key: &str, value: f64, min: f64, max: f64) -> Check {
    if value >= min && value <= max {
        return Ok(());
    }
    Err(ScenarioError::new(key, value, format!("must be a number between {min} and {max}")))
}

pub(crate) fn place(key: &str, position_m: Coordinates) -> Check {
    (0..3).try_for_each(|axis| within(&format!("{key}[{axis}]"), position_m[axis], -FARTHEST_M, FARTHEST_M))
}

/// Checks that a coverage area has an extent along x and y, and no negative height.
pub(crate) fn extents(coverage: &Coverage) -> Check {
    for axis in 0..3 {
        let (min, max) = (coverage.min_m[axis], coverage.max_m[axis]);
        if max < min || (max == min && axis < 2) {
            let rule = format!("must be above coverage.min_m[{axis}] = {min}");
            return Err(ScenarioError::new(format!("coverage.max_m[{axis}]"), max, rule));
        }
    }
    Ok(())
}

/// Checks the columns and rows of a panel.
pub(crate) fn grid(key: &str, grid: ElementGrid) -> Check {
    if grid.columns > 0 && grid.rows > 0 && grid.count() <= LARGEST_COUNT {
        return Ok(());
    }
    let rule = format!("must have between 1 and {LARGEST_COUNT} elements: a count, or [columns, rows]");
    Err(ScenarioError::new(key, grid, rule))
}

pub(crate) fn irs_count(count: usize) -> Check {
    if (1..=MOST_IRS).contains(&count) {
        return Ok(());
    }
    Err(ScenarioError::new("irs", count, format!("must list between 1 and {MOST_IRS} IRSs")))
}

pub(crate) fn count(key: &str, value: usize) -> Check {
    if (1..=LARGEST_COUNT).contains(&value) {
        return Ok(());
    }
    Err(ScenarioError::new(key, value, format!("must be between 1 and {LARGEST_COUNT}")))
}

/// A position as a scenario states it.
pub(crate) fn show(position_m: Coordinates) -> String {
    let stated: Vec<String> = stated(&position_m).iter().map(f64::to_string).collect();
    format!("[{}]", stated.join(", "))
}
