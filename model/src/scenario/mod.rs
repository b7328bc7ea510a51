//! A scenario: everything that defines an experiment, as one serde type.
//!
//! Its defaults are Table I of the paper, so that a file contains only what differs. Scenarios use dBm, dBsm and degrees;
//! the rest of the program uses SI units and radians. The error of [`Scenario::validate`] names the key, the value and
//! the allowed range.

mod coordinates;
mod generate;
mod motion;
pub(crate) mod validate;

use serde::{Deserialize, Serialize};

use crate::geometry::{Point, Pose};
use crate::panel::{Carrier, Wavefront};
use crate::prior::CrossSectionPrior;
use crate::units::{ratio_from_db, watts_from_dbm};

pub use generate::ring;
pub use motion::Motion;
pub use validate::ScenarioError;

/// The definition of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Seed of all random streams.
    pub seed: u64,
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
    /// Cross-section and motion of the target.
    pub target: Target,
    /// Deviations from the model of the paper; all off by default.
    pub imperfections: Imperfections,
    /// Placement of the IRSs, 1 to [`crate::MOST_IRS`].
    pub irs: Vec<IrsPlacement>,
}

/// The base station.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BaseStation {
    /// Centre of the array, (x, y).
    #[serde(deserialize_with = "coordinates::point")]
    pub position_m: [f64; 2],
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
    /// Reflecting elements N.
    pub elements: usize,
    /// Sensors M.
    pub sensors: usize,
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
        /// The point, (x, y).
        #[serde(deserialize_with = "coordinates::point")]
        toward_m: [f64; 2],
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

/// The rectangle of possible target positions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Coverage {
    /// Lower left corner, (x, y).
    #[serde(deserialize_with = "coordinates::point")]
    pub min_m: [f64; 2],
    /// Upper right corner, (x, y).
    #[serde(deserialize_with = "coordinates::point")]
    pub max_m: [f64; 2],
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

/// The target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// Radar cross-section kappa.
    pub rcs_dbsm: f64,
    /// Position as a function of the frame.
    pub motion: Motion,
}

/// Deviations from the ideal model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Imperfections {
    /// Rms error of the channel estimate behind zero-forcing, relative to the channel: streams leak.
    pub channel_error: f64,
    /// Standard deviation of the constant clock offset of a node.
    pub clock_offset_s: f64,
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

/// One IRS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IrsPlacement {
    /// Centre of the array, (x, y).
    #[serde(deserialize_with = "coordinates::point")]
    pub position_m: [f64; 2],
    /// Point that the broadside faces, (x, y).
    #[serde(default)]
    #[serde(deserialize_with = "coordinates::point")]
    pub facing_m: [f64; 2],
    /// Paths from the base station, if different from `channel.paths`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<usize>,
    /// Path angles, if different from `channel.angles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub angles: Option<PathAngles>,
}

impl Default for Scenario {
    fn default() -> Self {
        let irs = [[10.0, 50.0], [10.0, -50.0], [50.0, 0.0]];
        Self {
            seed: 1,
            base_station: BaseStation::default(),
            signal: Signal::default(),
            surface: Surface::default(),
            channel: Channel::default(),
            coverage: Coverage::default(),
            prior: Prior::default(),
            target: Target::default(),
            imperfections: Imperfections::default(),
            irs: irs.map(IrsPlacement::at).to_vec(),
        }
    }
}

impl Default for BaseStation {
    fn default() -> Self {
        Self { position_m: [0.0, 0.0], broadside_deg: 0.0, antennas: 50, power_dbm: 50.0 }
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
        Self { elements: 10, sensors: 10, phases: Phases::Random }
    }
}

impl Default for Channel {
    fn default() -> Self {
        Self { paths: 10, angles: PathAngles::Random }
    }
}

impl Default for Coverage {
    fn default() -> Self {
        Self { min_m: [0.0, 0.0], max_m: [10.0, 10.0] }
    }
}

impl Default for Prior {
    fn default() -> Self {
        Self { rcs_dbsm: 0.0, rcs_deviation_db: 10.0, wavefront: None }
    }
}

impl Default for Target {
    fn default() -> Self {
        Self { rcs_dbsm: 7.0, motion: Motion::Random }
    }
}

impl IrsPlacement {
    /// An IRS at `position_m` that faces the origin, as in the paper.
    pub fn at(position_m: [f64; 2]) -> Self {
        Self { position_m, facing_m: [0.0, 0.0], paths: None, angles: None }
    }

    /// Position and orientation.
    pub fn pose(&self) -> Pose {
        Pose::facing(Point::from(self.position_m), Point::from(self.facing_m))
    }
}

impl Scenario {
    /// The carrier as it is.
    pub(crate) fn carrier(&self) -> Carrier {
        Carrier { wavelength_m: self.signal.wavelength_m, wavefront: self.signal.wavefront }
    }
}

impl BaseStation {
    pub(crate) fn position(&self) -> Point {
        Point::from(self.position_m)
    }
}

impl Coverage {
    /// Centre of the rectangle.
    pub fn centre(&self) -> Point {
        (Point::from(self.min_m) + Point::from(self.max_m)) / 2.0
    }

    /// The point at fractions `(u, v)` of the way from the lower left to the upper right corner.
    pub fn at(&self, u: f64, v: f64) -> Point {
        let (min, max) = (Point::from(self.min_m), Point::from(self.max_m));
        Point::new(min.x + u * (max.x - min.x), min.y + v * (max.y - min.y))
    }

    /// Whether `point` lies inside or on the edge.
    pub fn contains(&self, point: Point) -> bool {
        (0..2).all(|i| self.min_m[i] <= point[i] && point[i] <= self.max_m[i])
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
        self.surface.elements.min(self.paths(k))
    }

    /// Radar cross-section of the target in square metres; the mean if it fluctuates.
    pub fn rcs_m2(&self) -> f64 {
        ratio_from_db(self.target.rcs_dbsm)
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
        self.surface.elements = self.surface.elements.saturating_mul(self.irs.len());
        self.surface.sensors = self.surface.sensors.saturating_mul(self.irs.len());
        self.irs.truncate(1);
        self
    }
}
