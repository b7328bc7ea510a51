//! Frames of several targets, and the direct locator that gets their spectra.

use estimation::direct::{DirectLocator, DirectSettings, LocatedTarget, Survey};
use model::{EchoSource, Point, Scenario, TrueTarget};
use nalgebra::{DMatrix, DVector};

/// Limit of the number of targets of a frame.
const MOST: usize = 8;

/// The echoes of a scenario and the locator of its site, with default settings.
pub(super) struct TargetSite {
    pub source: EchoSource,
    pub locator: DirectLocator,
}

impl TargetSite {
    pub fn new(scenario: &Scenario) -> anyhow::Result<Self> {
        let source = EchoSource::new(scenario)?;
        let locator = DirectLocator::new(source.system(), DirectSettings::default())?;
        Ok(Self { source, locator })
    }

    /// The survey of a frame with these targets.
    pub fn survey(&self, frame: u64, targets: &[TrueTarget]) -> anyhow::Result<Survey> {
        let system = self.source.system();
        let mut evidence = self.locator.evidence();
        for l in 0..system.irs_count() {
            let received = self.source.frame_of(l, frame, targets);
            for (k, irs) in system.irs.iter().enumerate() {
                let spectrum = received.select_columns(&irs.waveform.subcarriers);
                evidence.spectrum(l, k, &spectrum, system.noise_power_w)?;
            }
        }
        Ok(self.locator.survey(evidence))
    }

    /// The free coordinates of a position.
    pub fn free_m(&self, position_m: Point) -> DVector<f64> {
        let axes = self.source.system().axes();
        DVector::from_iterator(axes.len(), axes.iter().map(|&axis| position_m[axis]))
    }

    /// The targets of a frame alone, none where the frame does not determine them, and the covariance of all.
    pub fn located(&self, survey: &Survey) -> (Vec<LocatedTarget>, DMatrix<f64>) {
        let found = self.locator.locate_several(survey, MOST);
        found.map_or((Vec::new(), DMatrix::zeros(0, 0)), |found| (found.targets, found.covariance_m2))
    }
}
