//! Frames for unit tests: Table I or a hall with a target in the area, and what the nodes deliver of its echoes.

use model::{EchoSource, Point, Scenario};

use super::{DirectLocator, DirectSettings, Evidence};
use crate::delay::DelayEstimator;
use crate::location::{Bearing, CascadeDelay};

pub(super) const TARGET_M: Point = Point::new(4.0, 6.0, 0.0);

/// What a path delivers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Spectrum,
    Block,
    Delay,
    Missing,
}

pub(super) const KINDS: [Kind; 3] = [Kind::Spectrum, Kind::Block, Kind::Delay];

pub(super) struct TestScene {
    pub source: EchoSource,
    pub locator: DirectLocator,
}

impl TestScene {
    /// Table I at a power, with clocks that are known to within 100 ns.
    pub fn new(power_dbm: f64) -> Self {
        let mut scenario = Scenario::default().with_power_dbm(power_dbm);
        scenario.clocks.prior_ns = 100.0;
        Self::of(&scenario)
    }

    /// A hall in space.
    pub fn hall() -> Self {
        Self::of(&toml::from_str(include_str!("../../../deploy/scenarios/hall.toml")).unwrap())
    }

    pub fn of(scenario: &Scenario) -> Self {
        let source = EchoSource::new(scenario).unwrap();
        let locator = DirectLocator::new(source.system(), DirectSettings::default()).unwrap();
        Self { source, locator }
    }

    /// What the nodes deliver of a frame; node 0 also delivers a bearing.
    pub fn evidence(&self, frame: u64, target_m: Point, kind: impl Fn(usize, usize) -> Kind) -> Evidence {
        let system = self.source.system();
        let mut evidence = self.locator.evidence();
        for l in 0..system.irs_count() {
            let node = DelayEstimator::new(system, l).unwrap();
            let report = node.estimate(&self.source.frame(l, frame, target_m)).unwrap();
            for (k, path) in report.paths.iter().enumerate() {
                match kind(l, k) {
                    Kind::Missing => Ok(()),
                    Kind::Spectrum => evidence.spectrum(l, k, &path.spectrum, report.noise_power_w),
                    Kind::Block => evidence.block(l, k, &path.expansion(), report.noise_power_w),
                    Kind::Delay => {
                        let delay =
                            CascadeDelay { delay_s: path.delay_s, variance_s2: path.delay_variance_s2 };
                        evidence.delay(l, k, delay, node.window(k).unwrap().width_s())
                    }
                }
                .unwrap();
            }
            if let Some(arrival) = report.arrival.filter(|_| l == 0) {
                let bearing_rad = arrival.bearing_rad + system.irs[l].pose.broadside_rad();
                evidence.bearing(l, Bearing { bearing_rad, ..arrival }, 0.5).unwrap();
            }
        }
        evidence
    }
}
