//! What has arrived of one frame.

use model::CMatrix;

use crate::delay::NodeDelays;
use crate::location::Bearing;

/// What a path delivers beside its delay.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// Nothing.
    Parameters,
    /// R_lk at the delay and its derivative by the delay.
    Block {
        /// R_lk, M x D_k.
        block: CMatrix,
        /// dR_lk/dtau, per second.
        block_derivative: CMatrix,
    },
    /// Y_lk, M x n_k: all that was received on the subcarriers of IRS k.
    Spectrum(CMatrix),
}

/// One path as its node reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct PathBlock {
    /// Delay of the path.
    pub delay_s: f64,
    /// Variance of the delay.
    pub delay_variance_s2: f64,
    /// SNR of the path.
    pub snr: f64,
    /// What it delivers beside the delay.
    pub payload: Payload,
    /// Power that quantisation added to every entry of the payload.
    pub quantisation_power_w: f64,
}

/// What one node says of itself in a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeReport {
    /// Noise power per entry of a block or spectrum.
    pub noise_power_w: f64,
    /// AOA at the node, local angle, with its variance; where it is told.
    pub arrival: Option<Bearing>,
    /// Echo frames that its report averages coherently.
    pub averaged_frames: u32,
}

/// What has arrived of one frame, indexed by sensing node l and reflecting IRS k.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameBlocks {
    nodes: Vec<Option<NodeReport>>,
    paths: Vec<Vec<Option<PathBlock>>>,
}

impl FrameBlocks {
    /// Nothing yet, of `irs_count` nodes.
    pub fn new(irs_count: usize) -> Self {
        Self { nodes: vec![None; irs_count], paths: vec![vec![None; irs_count]; irs_count] }
    }

    /// Takes the report of path `(l, k)` in a frame in which node `l` says this of itself.
    ///
    /// # Panics
    /// If there is no such path.
    pub fn insert(&mut self, l: usize, k: usize, node: NodeReport, path: PathBlock) {
        self.nodes[l] = Some(node);
        self.paths[l][k] = Some(path);
    }

    /// Takes all that node `l` has estimated of the frame, with blocks or with spectra.
    pub fn insert_node(&mut self, l: usize, report: NodeDelays, kind: PayloadKind) {
        let node = NodeReport::of(&report);
        for (k, estimate) in report.paths.into_iter().enumerate() {
            let payload = match kind {
                PayloadKind::Parameters => Payload::Parameters,
                PayloadKind::Block => {
                    Payload::Block { block: estimate.block, block_derivative: estimate.block_derivative }
                }
                PayloadKind::Spectrum => Payload::Spectrum(estimate.spectrum),
            };
            let path = PathBlock {
                delay_s: estimate.delay_s,
                delay_variance_s2: estimate.delay_variance_s2,
                snr: estimate.snr,
                payload,
                quantisation_power_w: 0.0,
            };
            self.insert(l, k, node, path);
        }
    }

    /// Number of IRSs K.
    pub fn irs_count(&self) -> usize {
        self.paths.len()
    }

    /// The report of path `(l, k)`, if it came.
    pub fn path(&self, l: usize, k: usize) -> Option<&PathBlock> {
        self.paths[l][k].as_ref()
    }

    /// What node `l` says of itself, if it reported.
    pub fn node(&self, l: usize) -> Option<&NodeReport> {
        self.nodes[l].as_ref()
    }

    /// Paths that came, as (l, k, report), row by row.
    pub fn present(&self) -> impl Iterator<Item = (usize, usize, &PathBlock)> {
        self.paths.iter().enumerate().flat_map(|(l, row)| {
            row.iter().enumerate().filter_map(move |(k, path)| path.as_ref().map(|path| (l, k, path)))
        })
    }

    /// Noise power per entry of a block: the mean over the paths that came, quantisation included.
    pub(super) fn noise_power_w(&self) -> Option<f64> {
        let powers = self.present().filter_map(|(l, _, path)| {
            self.node(l).map(|node| node.noise_power_w + path.quantisation_power_w)
        });
        let (sum, count) = powers.fold((0.0, 0), |(sum, count), power| (sum + power, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }
}

impl NodeReport {
    /// What a node's estimates say of the node.
    pub fn of(report: &NodeDelays) -> Self {
        let arrival =
            Bearing { bearing_rad: report.arrival_rad, variance_rad2: report.arrival_variance_rad2 };
        let averaged_frames = report.frames as u32;
        Self { noise_power_w: report.noise_power_w, arrival: Some(arrival), averaged_frames }
    }
}

/// Kind of payload that a node is told to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadKind {
    /// Delays and the AOA only.
    Parameters,
    /// Blocks with their derivatives.
    #[default]
    Block,
    /// Spectra.
    Spectrum,
}
