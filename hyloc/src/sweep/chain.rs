//! The pipeline in this process: echoes of a scenario, the nodes, and what the fusion center receives from them; no sockets.

use estimation::delay::{DelayError, DelayEstimate, DelayEstimator, DelaySettings, NodeDelays, Statistic};
use estimation::fusion::{FrameBlocks, PayloadKind};
use model::{CMatrix, EchoSource, Scenario, System, TrueTarget};
use proto::convert::{FrameId, PayloadFormat, Times, report_from_wire, report_message};

/// Echoes and nodes of a scenario.
pub struct FrameChain {
    pub source: EchoSource,
    /// None where spectra alone are needed.
    nodes: Option<Vec<DelayEstimator>>,
}

impl FrameChain {
    /// Nodes with the settings of the node process.
    pub fn new(scenario: &Scenario) -> anyhow::Result<Self> {
        Self::of_spectra(scenario)?.with_delays()
    }

    /// Nodes that estimate no delays and take the noise power of the site for granted, which is enough for the direct method.
    pub fn of_spectra(scenario: &Scenario) -> anyhow::Result<Self> {
        Ok(Self { source: EchoSource::new(scenario)?, nodes: None })
    }

    /// The same with nodes that estimate delays.
    pub fn with_delays(mut self) -> anyhow::Result<Self> {
        let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
        let node = |l| DelayEstimator::with_settings(self.system(), l, settings.clone());
        self.nodes = Some((0..self.system().irs_count()).map(node).collect::<Result<_, _>>()?);
        Ok(self)
    }

    pub fn system(&self) -> &System {
        self.source.system()
    }

    /// The report of node `l` about its echoes.
    pub fn report(&self, l: usize, echoes: &CMatrix) -> Result<NodeDelays, DelayError> {
        match &self.nodes {
            Some(nodes) => nodes[l].estimate(echoes),
            None => Ok(spectra(self.system(), echoes)),
        }
    }

    /// The reports of all nodes about a frame with these targets.
    pub fn reports(&self, frame: u64, targets: &[TrueTarget]) -> anyhow::Result<Vec<NodeDelays>> {
        let report = |l| Ok(self.report(l, &self.source.frame_of(l, frame, targets))?);
        (0..self.system().irs_count()).map(report).collect()
    }

    /// What arrives of these reports, and the size of all messages, which quantise them; without a format spectra as they are.
    pub fn received(
        &self,
        frame: u64,
        reports: Vec<NodeDelays>,
        format: Option<PayloadFormat>,
    ) -> anyhow::Result<(FrameBlocks, usize)> {
        let (mut blocks, mut bytes) = (FrameBlocks::new(reports.len()), 0);
        for (l, report) in reports.into_iter().enumerate() {
            let Some(format) = format else {
                blocks.insert_node(l, report, PayloadKind::Spectrum);
                continue;
            };
            let message = report_message(FrameId { run: 0, frame }, l, &report, format, Times::default());
            let report = report_from_wire(message, l, self.system())?;
            bytes += report.bytes;
            for (k, path) in report.paths {
                blocks.insert(l, k, report.node, path);
            }
        }
        Ok((blocks, bytes))
    }

    /// What arrives of a frame with the targets of the scenario.
    pub fn frame(&self, frame: u64, format: Option<PayloadFormat>) -> anyhow::Result<FrameBlocks> {
        let reports = self.reports(frame, &self.source.targets(frame))?;
        Ok(self.received(frame, reports, format)?.0)
    }
}

/// The report of a node that estimates no delays: those of its message are not read.
fn spectra(system: &System, echoes: &CMatrix) -> NodeDelays {
    let path = |irs: &model::system::Irs| DelayEstimate {
        delay_s: 0.0,
        delay_variance_s2: 1.0,
        snr: 0.0,
        block: CMatrix::zeros(0, 0),
        block_derivative: CMatrix::zeros(0, 0),
        spectrum: echoes.select_columns(&irs.waveform.subcarriers),
    };
    let paths = system.irs.iter().map(path).collect();
    NodeDelays { paths, arrival: None, noise_power_w: system.noise_power_w, frames: 1 }
}
