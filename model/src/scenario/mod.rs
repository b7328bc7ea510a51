//! A scenario: everything that defines an experiment, as one serde type.
//!
//! Its defaults are Table I of the paper, so that a file contains only what differs. Scenarios use dBm, dBsm and degrees;
//! the rest of the program uses SI units and radians. The error of [`Scenario::validate`] names the key, the value and
//! the allowed range.

mod clocks;
pub mod coordinates;
mod generate;
mod measured;
mod motion;
mod targets;
pub(crate) mod validate;
mod walk;

use serde::{Deserialize, Serialize};

use crate::geometry::{Orientation, Point, Pose};
use crate::panel::{Carrier, ElementGrid, Wavefront};
use crate::prior::CrossSectionPrior;
use crate::units::{ratio_from_db, watts_from_dbm};

pub use clocks::{ClockStep, NodeClocks};
pub use coordinates::Coordinates;
pub use generate::ring;
pub use measured::{MeasuredIrs, MeasuredSignals};
pub use motion::Motion;
pub use targets::Target;
pub use validate::ScenarioError;

/// The definition of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Seed of all random streams.
    pub seed: u64,
    /// Reflected signals and codes that replace those of the channel model; the file that they come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredSignals>,
    /// Position, antennas and power of the transmitter.
    pub base_station: BaseStation,
    /// Carrier, band and noise.
    pub signal: Signal,
    /// Construction of every IRS.
    pub surface: Surface,
    /// Propagation between base station and IRSs.
    pub channel: Channel,
    /// Area of possible target positions.
    pub coverage: Coverage,
    /// What estimators may assume about targets.
    pub prior: Prior,
    /// Cross-sections and motions of the targets, 0 to [`crate::MOST_TARGETS`]; the table or list `target` of a file.
    #[serde(rename = "target", with = "targets")]
    pub targets: Vec<Target>,
    /// Clocks of the nodes; synchronous and trusted by default.
    pub clocks: NodeClocks,
    /// Deviations from the model of the paper; all off by default.
    pub imperfections: Imperfections,
    /// Placement of the IRSs, 1 to [`crate::MOST_IRS`].
    pub irs: Vec<IrsPlacement>,
}

/// The base station.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BaseStation {
    /// Centre of the array.
    #[serde(with = "coordinates::point")]
    pub position_m: Coordinates,
    /// Bearing of the broadside of the array.
    pub broadside_deg: f64,
    /// Transmit antennas N_t.
    pub antennas: usize,
    /// Transmit power P_max.
    pub power_dbm: f64,
}

/// Carrier, band and noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Signal {
    /// Wavelength lambda of the carrier.
    pub wavelength_m: f64,
    /// Distance between neighbouring elements of all arrays, in wavelengths.
    pub spacing_wavelengths: f64,
    /// Shape of the waves between IRSs and target.
    pub wavefront: Wavefront,
    /// Bandwidth W.
    pub bandwidth_hz: f64,
    /// Subcarriers L, the length of one frame.
    pub subcarriers: usize,
    /// Noise power per sensor and subcarrier.
    pub noise_dbm: f64,
    /// Frames over which path phases, cross-sections and a random target position are constant.
    pub coherent_frames: u64,
}

/// Construction of the IRSs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Surface {
    /// Reflecting elements, N in all: a count for a line array, or `[columns, rows]`.
    pub elements: ElementGrid,
    /// Sensors, M in all: a count for a line array, or `[columns, rows]`.
    pub sensors: ElementGrid,
    /// Choice of the phases of the elements.
    pub phases: Phases,
}

/// Choice of the phases of the reflecting elements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "snake_case", deny_unknown_fields)]
pub enum Phases {
    /// Independent and uniform, as in the paper: gain of order N.
    Random,
    /// Aligned to a point: gain of order N^2 there.
    Aligned {
        /// The point.
        #[serde(with = "coordinates::point")]
        toward_m: Coordinates,
    },
}

/// BS-IRS propagation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Channel {
    /// Paths R_k per IRS.
    pub paths: usize,
    /// Choice of the path angles.
    pub angles: PathAngles,
}

/// Angles of the BS-IRS paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathAngles {
    /// Uniform over the half plane at both ends, Gaussian gains.
    Random,
    /// On the DFT grids of IRS and BS, equal gains: S_k is well conditioned.
    DftGrid,
    /// The first path is the line of sight; any others are random.
    LineOfSight,
}

/// The box of possible target positions. Without height it is *flat*: positions have two free coordinates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Coverage {
    /// Least coordinates.
    #[serde(with = "coordinates::point")]
    pub min_m: Coordinates,
    /// Largest coordinates.
    #[serde(with = "coordinates::point")]
    pub max_m: Coordinates,
}

/// What estimators may assume about a target. They never see [`Target`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prior {
    /// Median of the radar cross-section.
    pub rcs_dbsm: f64,
    /// Standard deviation of the radar cross-section in decibels, at least 0.
    pub rcs_deviation_db: f64,
    /// Shape of the waves that estimators assume, if different from `signal.wavefront`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wavefront: Option<Wavefront>,
}

/// Deviations from the ideal model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Imperfections {
    /// Rms error of the channel estimate behind zero-forcing, relative to the channel: streams leak.
    pub channel_error: f64,
    /// Fluctuation of the radar cross-section.
    pub cross_section: CrossSection,
    /// Whether the echo includes waves that are reflected between two IRSs.
    pub second_order_reflections: bool,
}

/// Radar cross-section over paths and coherent intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrossSection {
    /// The same for all paths and times.
    #[default]
    Constant,
    /// Swerling I: exponential, independent per path and coherent interval.
    Swerling1,
}

/// One IRS. Without any angle and without `facing_m`, its boresight points to the middle of the coverage area.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IrsPlacement {
    /// Centre of the panel.
    #[serde(with = "coordinates::point")]
    pub position_m: Coordinates,
    /// Point that the boresight faces.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "coordinates::optional")]
    pub facing_m: Option<Coordinates>,
    /// Azimuth of the boresight, from the x-axis towards the y-axis, instead of `facing_m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azimuth_deg: Option<f64>,
    /// Elevation of the boresight above the horizontal plane, instead of `facing_m`; 0 beside an azimuth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elevation_deg: Option<f64>,
    /// Rotation of the panel about its boresight; 0 where its columns stand side by side horizontally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_deg: Option<f64>,
    /// Paths from the base station, if different from `channel.paths`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<usize>,
    /// Path angles, if different from `channel.angles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub angles: Option<PathAngles>,
}

impl Default for Scenario {
    fn default() -> Self {
        let irs = [[10.0, 50.0, 0.0], [10.0, -50.0, 0.0], [50.0, 0.0, 0.0]];
        Self {
            seed: 1,
            measured: None,
            base_station: BaseStation::default(),
            signal: Signal::default(),
            surface: Surface::default(),
            channel: Channel::default(),
            coverage: Coverage::default(),
            prior: Prior::default(),
            targets: vec![Target::default()],
            clocks: NodeClocks::default(),
            imperfections: Imperfections::default(),
            irs: irs.map(|at| IrsPlacement::facing(at, [0.0; 3])).to_vec(),
        }
    }
}

impl Default for BaseStation {
    fn default() -> Self {
        Self { position_m: [0.0; 3], broadside_deg: 0.0, antennas: 50, power_dbm: 50.0 }
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self {
            wavelength_m: 0.3,
            spacing_wavelengths: 1.0,
            wavefront: Wavefront::Plane,
            bandwidth_hz: 50e6,
            subcarriers: 100,
            noise_dbm: -100.0,
            coherent_frames: 1,
        }
    }
}

impl Default for Surface {
    fn default() -> Self {
        Self { elements: 10.into(), sensors: 10.into(), phases: Phases::Random }
    }
}

impl Default for Channel {
    fn default() -> Self {
        Self { paths: 10, angles: PathAngles::Random }
    }
}

impl Default for Coverage {
    fn default() -> Self {
        Self { min_m: [0.0; 3], max_m: [10.0, 10.0, 0.0] }
    }
}

impl Default for Prior {
    fn default() -> Self {
        Self { rcs_dbsm: 0.0, rcs_deviation_db: 10.0, wavefront: None }
    }
}

impl IrsPlacement {
    /// An IRS at `position_m` whose boresight points to the middle of the coverage area.
    pub fn at(position_m: Coordinates) -> Self {
        Self {
            position_m,
            facing_m: None,
            azimuth_deg: None,
            elevation_deg: None,
            roll_deg: None,
            paths: None,
            angles: None,
        }
    }

    /// An IRS at `position_m` that faces a point.
    pub fn facing(position_m: Coordinates, facing_m: Coordinates) -> Self {
        Self { facing_m: Some(facing_m), ..Self::at(position_m) }
    }
}

impl Scenario {
    /// The carrier as it is.
    pub(crate) fn carrier(&self) -> Carrier {
        Carrier { wavelength_m: self.signal.wavelength_m, wavefront: self.signal.wavefront }
    }

    /// Position and orientation of IRS `k`.
    pub(crate) fn pose(&self, k: usize) -> Pose {
        let irs = &self.irs[k];
        let position_m = Point::from(irs.position_m);
        let aim_m = irs.facing_m.map_or_else(|| self.coverage.centre(), Point::from);
        let mut orientation = Orientation::towards(position_m, aim_m);
        if irs.azimuth_deg.is_some() || irs.elevation_deg.is_some() {
            orientation.azimuth_rad = irs.azimuth_deg.map_or(orientation.azimuth_rad, f64::to_radians);
            orientation.elevation_rad = irs.elevation_deg.unwrap_or(0.0).to_radians();
        }
        orientation.roll_rad = irs.roll_deg.unwrap_or(0.0).to_radians();
        Pose { position_m, orientation }
    }
}

impl BaseStation {
    pub(crate) fn position(&self) -> Point {
        Point::from(self.position_m)
    }
}

impl Coverage {
    /// Centre of the box.
    pub fn centre(&self) -> Point {
        (Point::from(self.min_m) + Point::from(self.max_m)) / 2.0
    }

    /// The point at fractions `(u, v)` of the way from the least to the largest x and y, at the middle height.
    pub fn at(&self, u: f64, v: f64) -> Point {
        self.at_height(u, v, 0.5)
    }

    /// The point at fractions `(u, v, w)` of the way from the least to the largest coordinates.
    pub fn at_height(&self, u: f64, v: f64, w: f64) -> Point {
        let (min, max) = (Point::from(self.min_m), Point::from(self.max_m));
        Point::new(min.x + u * (max.x - min.x), min.y + v * (max.y - min.y), min.z + w * (max.z - min.z))
    }

    /// Whether `point` lies inside or on the edge.
    pub fn contains(&self, point: Point) -> bool {
        (0..3).all(|i| self.min_m[i] <= point[i] && point[i] <= self.max_m[i])
    }

    /// Whether all positions have the same height.
    pub fn is_flat(&self) -> bool {
        self.min_m[2] == self.max_m[2]
    }

    /// Free coordinates of a position: x and y, and the height unless the area is flat.
    pub fn axes(&self) -> &'static [usize] {
        if self.is_flat() { &[0, 1] } else { &[0, 1, 2] }
    }

    /// Edge lengths along the free coordinates.
    pub fn extents_m(&self) -> Vec<f64> {
        self.axes().iter().map(|&axis| self.max_m[axis] - self.min_m[axis]).collect()
    }

    /// The corners, in order round the area of a flat one.
    pub fn corners(&self) -> Vec<Point> {
        let heights: &[f64] = if self.is_flat() { &[0.0] } else { &[0.0, 1.0] };
        let round = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)];
        heights.iter().flat_map(|&w| round.map(|(u, v)| self.at_height(u, v, w))).collect()
    }
}

impl Scenario {
    /// Paths R_k between the base station and IRS `k`.
    pub(crate) fn paths(&self, k: usize) -> usize {
        self.irs[k].paths.unwrap_or(self.channel.paths)
    }

    pub(crate) fn path_angles(&self, k: usize) -> PathAngles {
        self.irs[k].angles.unwrap_or(self.channel.angles)
    }

    /// Streams D_k = min(N, R_k) sent to IRS `k`.
    pub(crate) fn streams(&self, k: usize) -> usize {
        self.surface.elements.count().min(self.paths(k))
    }

    /// Radar cross-section of the first target in square metres; the mean if it fluctuates. Where there is no target, the median
    /// that estimators assume.
    pub fn rcs_m2(&self) -> f64 {
        self.targets.first().map_or_else(|| self.cross_section_prior().median_m2, Target::rcs_m2)
    }

    pub(crate) fn cross_section_prior(&self) -> CrossSectionPrior {
        let median_m2 = ratio_from_db(self.prior.rcs_dbsm);
        CrossSectionPrior { median_m2, deviation_db: self.prior.rcs_deviation_db }
    }

    pub(crate) fn transmit_power_w(&self) -> f64 {
        watts_from_dbm(self.base_station.power_dbm)
    }

    pub(crate) fn noise_power_w(&self) -> f64 {
        watts_from_dbm(self.signal.noise_dbm)
    }

    /// Energy of all streams in a frame, `L P_max`.
    pub fn frame_power_w(&self) -> f64 {
        self.signal.subcarriers as f64 * self.transmit_power_w()
    }

    /// The same scenario at another transmit power.
    pub fn with_power_dbm(mut self, power_dbm: f64) -> Self {
        self.base_station.power_dbm = power_dbm;
        self
    }

    /// The same scenario with another seed.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The paper's "single IRS": all K N elements and K M sensors at the first IRS.
    pub fn single_irs(mut self) -> Self {
        for grid in [&mut self.surface.elements, &mut self.surface.sensors] {
            grid.columns = grid.columns.saturating_mul(self.irs.len());
        }
        self.irs.truncate(1);
        self
    }
}
