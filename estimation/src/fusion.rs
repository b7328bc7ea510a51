//! From the blocks of one frame to a fix: joint angles, coherent delays, location.
//!
//! The chain of Sections IV-B to V as a fusion center runs it, free of sockets and clocks. Two steps, so
//! that a caller can time each: [`Fuser::angles`] solves all K^2 paths jointly; [`Fuser::locate`] takes the
//! angles back to every block, refines its delay coherently (which the paper does not do; it needs the
//! block's derivative and no raw data) and locates. Every frame is solved from a cold start: the fix of a
//! frame depends on that frame alone, whatever came before it, in whatever order and on however many threads.
//!
//! Any path may be missing. Cost: the joint solve; the rest is some hundred microseconds.

use model::{CVector, System};

use crate::angles::{AngleError, AngleEstimate, AngleEstimator, AngleSettings};
use crate::blocks::Blocks;
use crate::delay::{BlockExpansion, DelayError, MatchedFilter, NodeDelays, coherent_refinement};
use crate::location::{
    Bearing, CascadeDelay, CoverageArea, Fix, LocateSettings, MeasurementError, Measurements, Unobservable,
    locate,
};

/// One path as its node reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct PathBlock {
    /// Delay, block and the block's derivative by the delay.
    pub expansion: BlockExpansion,
    /// Variance of the delay.
    pub delay_variance_s2: f64,
    /// SNR of the path.
    pub snr: f64,
}

/// What has arrived of one frame, indexed by sensing node l and reflecting IRS k.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameBlocks {
    noise_power_w: Vec<Option<f64>>,
    paths: Vec<Vec<Option<PathBlock>>>,
}

impl FrameBlocks {
    /// Nothing yet, of `irs_count` nodes.
    pub fn new(irs_count: usize) -> Self {
        Self { noise_power_w: vec![None; irs_count], paths: vec![vec![None; irs_count]; irs_count] }
    }

    /// Takes the block of path `(l, k)` in a frame in which node `l` measured this noise power.
    ///
    /// # Panics
    /// If there is no such path.
    pub fn insert(&mut self, l: usize, k: usize, noise_power_w: f64, path: PathBlock) {
        self.noise_power_w[l] = Some(noise_power_w);
        self.paths[l][k] = Some(path);
    }

    /// Takes all that node `l` reports of the frame.
    pub fn insert_node(&mut self, l: usize, report: NodeDelays) {
        for (k, estimate) in report.paths.into_iter().enumerate() {
            let path = PathBlock {
                delay_variance_s2: estimate.delay_variance_s2,
                snr: estimate.snr,
                expansion: BlockExpansion {
                    delay_s: estimate.delay_s,
                    block: estimate.block,
                    block_derivative: estimate.block_derivative,
                },
            };
            self.insert(l, k, report.noise_power_w, path);
        }
    }

    /// Number of IRSs K.
    pub fn irs_count(&self) -> usize {
        self.paths.len()
    }

    /// The block of path `(l, k)`, if it came.
    pub fn path(&self, l: usize, k: usize) -> Option<&PathBlock> {
        self.paths[l][k].as_ref()
    }

    /// Paths that came, as (l, k, block), row by row.
    pub fn present(&self) -> impl Iterator<Item = (usize, usize, &PathBlock)> {
        self.paths.iter().enumerate().flat_map(|(l, row)| {
            row.iter().enumerate().filter_map(move |(k, path)| path.as_ref().map(|path| (l, k, path)))
        })
    }

    /// Noise power per entry of a block: the mean of the nodes that came.
    fn noise_power_w(&self) -> Option<f64> {
        let known: Vec<f64> = self.noise_power_w.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }
}

/// Settings of a [`Fuser`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FusionSettings {
    /// Of the joint angle estimator.
    pub angles: AngleSettings,
    /// Of the locator; without a coverage area the system's is taken.
    pub locate: LocateSettings,
}

/// Why a frame gives no fix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FusionError {
    /// The angles cannot be estimated.
    #[error(transparent)]
    Angles(#[from] AngleError),
    /// The measurements are unusable.
    #[error(transparent)]
    Measurements(#[from] MeasurementError),
    /// The position is not observable from what came.
    #[error(transparent)]
    Unobservable(#[from] Unobservable),
}

/// A fix with the measurements behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedFix {
    /// Position, covariance, stages, faults.
    pub fix: Fix,
    /// Delays and bearings that it was located from.
    pub measurements: Measurements,
}

/// Turns the blocks of a frame into a fix.
#[derive(Debug, Clone)]
pub struct Fuser {
    system: System,
    filters: Vec<MatchedFilter>,
    settings: FusionSettings,
}

impl Fuser {
    /// The fuser of a system.
    pub fn new(system: System, mut settings: FusionSettings) -> Result<Self, DelayError> {
        let filters = (0..system.irs_count())
            .map(|k| MatchedFilter::of_system(&system, k))
            .collect::<Result<_, _>>()?;
        let area = CoverageArea { min_m: system.coverage.min_m.into(), max_m: system.coverage.max_m.into() };
        settings.locate.coverage.get_or_insert(area);
        Ok(Self { system, filters, settings })
    }

    /// The system whose blocks are fused.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Joint angles of all IRSs from the blocks that came (Section IV-B).
    pub fn angles(&self, frame: &FrameBlocks) -> Result<AngleEstimate, FusionError> {
        let noise_power_w = frame.noise_power_w().unwrap_or(self.system.noise_power_w);
        let table = frame
            .paths
            .iter()
            .map(|row| row.iter().map(|path| path.as_ref().map(|p| p.expansion.block.clone())).collect());
        let blocks = Blocks::of_system(&self.system, noise_power_w, table.collect())
            .map_err(|error| FusionError::Angles(error.into()))?;
        Ok(AngleEstimator::new(self.settings.angles.clone()).estimate(&blocks)?)
    }

    /// Delays refined with the angles, bearings, and the position from both (Section V).
    pub fn locate(&self, frame: &FrameBlocks, angles: &AngleEstimate) -> Result<FusedFix, FusionError> {
        let measurements = self.measurements(frame, angles)?;
        let fix = locate(&measurements, &self.settings.locate)?;
        Ok(FusedFix { fix, measurements })
    }

    /// Both steps.
    pub fn fuse(&self, frame: &FrameBlocks) -> Result<FusedFix, FusionError> {
        self.locate(frame, &self.angles(frame)?)
    }

    fn measurements(
        &self,
        frame: &FrameBlocks,
        angles: &AngleEstimate,
    ) -> Result<Measurements, MeasurementError> {
        let count = self.system.irs_count();
        let noise_power_w = frame.noise_power_w().unwrap_or(self.system.noise_power_w);
        let sensors = self.system.sensor_array();
        let arrivals: Vec<Option<CVector>> =
            angles.irs.iter().map(|irs| irs.angle_rad.map(|angle| sensors.steering(angle))).collect();
        let lights: Vec<Option<(CVector, f64)>> = (0..count)
            .map(|k| angles.irs[k].angle_rad.and_then(|angle| self.illumination(k, angle)))
            .collect();
        let delays = (0..count * count).map(|path| {
            let (l, k) = (path / count, path % count);
            let block = frame.path(l, k)?;
            let as_reported =
                CascadeDelay { delay_s: block.expansion.delay_s, variance_s2: block.delay_variance_s2 };
            let (Some(arrival), Some((light, bandwidth))) = (&arrivals[l], &lights[k]) else {
                return Some(as_reported);
            };
            let refined = coherent_refinement(&block.expansion, arrival, light, noise_power_w, *bandwidth);
            Some(refined.map_or(as_reported, |refined| CascadeDelay {
                delay_s: refined.delay_s,
                variance_s2: refined.delay_variance_s2,
            }))
        });
        let delays: Vec<Option<CascadeDelay>> = delays.collect();
        let bearings = angles.irs.iter().zip(&self.system.irs).map(|(angle, irs)| {
            Some(Bearing {
                bearing_rad: angle.angle_rad? + irs.pose.broadside_rad,
                variance_rad2: angle.variance_rad2?,
            })
        });
        let positions = self.system.irs.iter().map(|irs| irs.pose.position_m).collect();
        Measurements::new(positions, delays, bearings.collect())
    }

    /// `b_k = S_k^H a(theta)` and the effective bandwidth of the spectrum that it makes.
    fn illumination(&self, k: usize, angle_rad: f64) -> Option<(CVector, f64)> {
        let steering = self.system.element_array().steering(angle_rad);
        let light = self.system.irs[k].reflected_signal.ad_mul(&steering);
        let bandwidth = self.filters[k].effective_bandwidth_rad_s(&light).ok()?;
        Some((light, bandwidth))
    }
}
