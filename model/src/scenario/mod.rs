//! A scenario: everything that defines an experiment, as one serde type.
//!
//! Its defaults are Table I of the paper, so that a file names only what differs. Units
//! at this edge are those people write (dBm, dBsm, degrees); the rest of the program
//! sees SI and radians. [`Scenario::validate`] refuses what is impossible with a
//! sentence that names the key, the value and the allowed range.

mod generate;
mod motion;
pub(crate) mod validate;

use serde::{Deserialize, Serialize};

use crate::geometry::{Point, Pose};
use crate::prior::CrossSectionPrior;
use crate::units::{ratio_from_db, watts_from_dbm};

pub use generate::{IRS_COUNT_RANGE, ring};
pub use motion::Motion;
pub use validate::ScenarioError;

/// An experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Seed of everything random.
    pub seed: u64,
    /// The transmitter.
    pub base_station: BaseStation,
    /// Carrier, band, noise.
    pub signal: Signal,
    /// What every IRS is built of.
    pub surface: Surface,
    /// Propagation between base station and IRSs.
    pub channel: Channel,
    /// Where targets can be.
    pub coverage: Coverage,
    /// What is assumed of targets before any is seen.
    pub prior: Prior,
    /// What is to be located.
    pub target: Target,
    /// What the paper idealises away; all off by default.
    pub imperfections: Imperfections,
    /// Where the IRSs stand.
    pub irs: Vec<IrsPlacement>,
}

/// The base station.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BaseStation {
    /// Position.
    pub position_m: [f64; 2],
    /// Direction of the array's broadside.
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
    /// Carrier wavelength.
    pub wavelength_m: f64,
    /// Element spacing of all arrays, in wavelengths.
    pub spacing_wavelengths: f64,
    /// Bandwidth W.
    pub bandwidth_hz: f64,
    /// Subcarriers L, the length of one frame.
    pub subcarriers: usize,
    /// Noise power per sensor and subcarrier.
    pub noise_dbm: f64,
    /// Frames over which path phases, cross-sections and a random target hold still.
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
    /// How the elements' phases are set.
    pub phases: Phases,
}

/// How the phases of the reflecting elements are set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "snake_case", deny_unknown_fields)]
pub enum Phases {
    /// Independent and uniform, as in the paper: gain of order N.
    Random,
    /// Aligned to a point: gain of order N^2 there.
    Aligned {
        /// The favoured point.
        toward_m: [f64; 2],
    },
}

/// BS-IRS propagation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Channel {
    /// Paths R_k.
    pub paths: usize,
    /// Where the paths come from.
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

/// The rectangle in which targets can be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Coverage {
    /// Lower left corner.
    pub min_m: [f64; 2],
    /// Upper right corner.
    pub max_m: [f64; 2],
}

/// What estimators may assume of a target. They are never told what [`Target`] says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prior {
    /// Median of the radar cross-section.
    pub rcs_dbsm: f64,
    /// Standard deviation of the radar cross-section in decibels.
    pub rcs_deviation_db: f64,
}

/// The target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// Radar cross-section kappa.
    pub rcs_dbsm: f64,
    /// How it moves.
    pub motion: Motion,
}

/// Departures from the ideal model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Imperfections {
    /// Rms error of the channel estimate behind zero-forcing, relative to the channel: streams leak.
    pub channel_error: f64,
    /// Standard deviation of the clock offset of a node.
    pub clock_offset_s: f64,
    /// Whether the radar cross-section fluctuates.
    pub cross_section: CrossSection,
    /// Whether waves that bounce between two IRSs are present.
    pub second_order_reflections: bool,
}

/// Radar cross-section over paths and coherent intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrossSection {
    /// The same for all paths, always.
    Constant,
    /// Swerling I: exponential, independent per path and coherent interval.
    Swerling1,
}

/// One IRS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IrsPlacement {
    /// Position.
    pub position_m: [f64; 2],
    /// Point that the broadside looks at.
    #[serde(default)]
    pub facing_m: [f64; 2],
    /// Paths from the base station, where they differ from `channel.paths`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<usize>,
    /// Path angles, where they differ from `channel.angles`.
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
        Self { rcs_dbsm: 0.0, rcs_deviation_db: 10.0 }
    }
}

impl Default for Target {
    fn default() -> Self {
        Self { rcs_dbsm: 7.0, motion: Motion::Random }
    }
}

impl Default for Imperfections {
    fn default() -> Self {
        Self {
            channel_error: 0.0,
            clock_offset_s: 0.0,
            cross_section: CrossSection::Constant,
            second_order_reflections: false,
        }
    }
}

impl IrsPlacement {
    /// An IRS at `position_m` that faces the origin, as in the paper.
    pub fn at(position_m: [f64; 2]) -> Self {
        Self { position_m, facing_m: [0.0, 0.0], paths: None, angles: None }
    }
}

impl BaseStation {
    /// Position as a point.
    pub fn position(&self) -> Point {
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
    /// Pose of IRS `k`.
    pub fn pose(&self, k: usize) -> Pose {
        Pose::facing(Point::from(self.irs[k].position_m), Point::from(self.irs[k].facing_m))
    }

    /// Paths R_k between the base station and IRS `k`.
    pub fn paths(&self, k: usize) -> usize {
        self.irs[k].paths.unwrap_or(self.channel.paths)
    }

    /// Path angles of IRS `k`.
    pub fn path_angles(&self, k: usize) -> PathAngles {
        self.irs[k].angles.unwrap_or(self.channel.angles)
    }

    /// Streams D_k = min(N, R_k) sent to IRS `k`.
    pub fn streams(&self, k: usize) -> usize {
        self.surface.elements.min(self.paths(k))
    }

    /// Radar cross-section of the target in square metres; where it fluctuates, its mean.
    pub fn rcs_m2(&self) -> f64 {
        ratio_from_db(self.target.rcs_dbsm)
    }

    /// What estimators may assume of the cross-section.
    pub fn cross_section_prior(&self) -> CrossSectionPrior {
        let median_m2 = ratio_from_db(self.prior.rcs_dbsm);
        CrossSectionPrior { median_m2, deviation_db: self.prior.rcs_deviation_db }
    }

    /// Transmit power P_max.
    pub fn transmit_power_w(&self) -> f64 {
        watts_from_dbm(self.base_station.power_dbm)
    }

    /// Noise power per sensor and subcarrier.
    pub fn noise_power_w(&self) -> f64 {
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

    /// The same scenario under another seed.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The paper's "single IRS": all K N elements and K M sensors at the first IRS.
    pub fn single_irs(mut self) -> Self {
        self.surface.elements *= self.irs.len();
        self.surface.sensors *= self.irs.len();
        self.irs.truncate(1);
        self
    }
}
