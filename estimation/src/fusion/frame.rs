//! The received paths of one frame.

use model::CMatrix;

use crate::delay::NodeDelays;
use crate::location::Bearing;

/// Data of a path besides its delay.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// Delay and angle only.
    Parameters,
    /// R_lk at the delay and its derivative by the delay.
    Block {
        /// R_lk, M x D_k.
        block: CMatrix,
        /// dR_lk/dtau, per second.
        block_derivative: CMatrix,
    },
    /// Y_lk, M x n_k: the received signal on the subcarriers of IRS k.
    Spectrum(CMatrix),
}

/// One path as reported by its node.
#[derive(Debug, Clone, PartialEq)]
pub struct PathBlock {
    /// Cascade delay tau_lk.
    pub delay_s: f64,
    /// Variance of the delay, gross errors excluded.
    pub delay_variance_s2: f64,
    /// SNR after the matched filter, as a power ratio.
    pub snr: f64,
    /// Further data, as configured at the node.
    pub payload: Payload,
    /// Power that quantisation adds to every entry of the payload.
    pub quantisation_power_w: f64,
}

/// The part of a report that concerns the node as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeReport {
    /// Noise power per entry of a block or spectrum.
    pub noise_power_w: f64,
    /// AOA at the node, local angle, with its variance, if reported.
    pub arrival: Option<Bearing>,
    /// Number of echo frames that the report averages coherently.
    pub averaged_frames: u32,
}

/// The received paths of one frame, indexed by sensing node l and reflecting IRS k.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameBlocks {
    nodes: Vec<Option<NodeReport>>,
    paths: Vec<Vec<Option<PathBlock>>>,
}

impl FrameBlocks {
    /// An empty frame of `irs_count` nodes.
    pub fn new(irs_count: usize) -> Self {
        Self { nodes: vec![None; irs_count], paths: vec![vec![None; irs_count]; irs_count] }
    }

    /// Adds path `(l, k)` from a report of node `l`; returns whether there is such a path.
    pub fn insert(&mut self, l: usize, k: usize, node: NodeReport, path: PathBlock) -> bool {
        let Some(place) = self.paths.get_mut(l).and_then(|row| row.get_mut(k)) else { return false };
        *place = Some(path);
        self.nodes[l] = Some(node);
        true
    }

    /// Adds all paths that node `l` has estimated, with this kind of payload; returns whether all of them exist.
    pub fn insert_node(&mut self, l: usize, report: NodeDelays, kind: PayloadKind) -> bool {
        let mut exist = true;
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
            exist &= self.insert(l, k, node, path);
        }
        exist
    }

    /// Number of IRSs K.
    pub fn irs_count(&self) -> usize {
        self.paths.len()
    }

    /// Path `(l, k)`, if received.
    pub fn path(&self, l: usize, k: usize) -> Option<&PathBlock> {
        self.paths.get(l)?.get(k)?.as_ref()
    }

    /// The report of node `l`, if received.
    pub fn node(&self, l: usize) -> Option<&NodeReport> {
        self.nodes.get(l)?.as_ref()
    }

    /// Received paths as (l, k, path), row by row.
    pub fn present(&self) -> impl Iterator<Item = (usize, usize, &PathBlock)> {
        self.paths.iter().enumerate().flat_map(|(l, row)| {
            row.iter().enumerate().filter_map(move |(k, path)| path.as_ref().map(|path| (l, k, path)))
        })
    }

    /// Noise power per entry of a block: the mean over the received paths, quantisation included.
    pub(super) fn noise_power_w(&self) -> Option<f64> {
        let powers = self.present().filter_map(|(l, _, path)| {
            self.node(l).map(|node| node.noise_power_w + path.quantisation_power_w)
        });
        let (sum, count) = powers.fold((0.0, 0), |(sum, count), power| (sum + power, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }
}

impl NodeReport {
    /// The report about the node that made these estimates.
    pub fn of(report: &NodeDelays) -> Self {
        let averaged_frames = report.frames as u32;
        Self { noise_power_w: report.noise_power_w, arrival: report.arrival, averaged_frames }
    }
}

/// Kind of payload that a node sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadKind {
    /// [`Payload::Parameters`].
    Parameters,
    /// [`Payload::Block`].
    #[default]
    Block,
    /// [`Payload::Spectrum`].
    Spectrum,
}

impl PayloadKind {
    /// All of them, smallest first.
    pub const ALL: [Self; 3] = [Self::Parameters, Self::Block, Self::Spectrum];

    /// Its name in settings and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Block => "block",
            Self::Spectrum => "spectrum",
        }
    }
}
