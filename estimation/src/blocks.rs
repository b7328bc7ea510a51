//! The matched-filter blocks R_lk of one fix: the data of every angle estimator.
//!
//! `R_lk = alpha_lk a(theta_l) a(theta_k)^H S_k + noise` (M x D_k), white noise of one variance per entry. Any path may be
//! missing. Values that are not finite, wrong shapes and signals without energy are rejected
//! here, once, with an error that names the path.

use std::sync::Arc;

use model::array::UniformLinearArray;
use model::{CMatrix, System};

use crate::signals::{ReflectedSignals, SignalTables};

/// Why a set of blocks cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum BlockError {
    #[error("no block at all: at least one path must be present")]
    Empty,
    #[error("the table of blocks has {found} entries in row {row}, expected {expected}")]
    Table { row: usize, found: usize, expected: usize },
    #[error("block ({l}, {k}) is {rows} x {columns}, expected {expected_rows} x {expected_columns}")]
    Shape { l: usize, k: usize, rows: usize, columns: usize, expected_rows: usize, expected_columns: usize },
    #[error("block ({l}, {k}) holds a value that is not finite")]
    NotFinite { l: usize, k: usize },
    #[error("the reflected signal of IRS {k} is {problem}")]
    ReflectedSignal { k: usize, problem: &'static str },
    #[error("{name} = {value}: must be positive and finite")]
    Scalar { name: &'static str, value: f64 },
}

/// Blocks of all paths with the reflected signals, the element spacing and the noise variance.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks {
    signals: Arc<ReflectedSignals>,
    noise_variance: f64,
    blocks: Vec<Vec<Option<CMatrix>>>,
}

impl Blocks {
    /// Checks the values: `blocks[l][k]` (M x D_k) is sensed at IRS l and reflected by IRS k with S_k (N x D_k).
    pub fn new(
        spacing_wavelengths: f64,
        reflected_signals: Vec<CMatrix>,
        noise_variance: f64,
        blocks: Vec<Vec<Option<CMatrix>>>,
    ) -> Result<Self, BlockError> {
        let sensors = blocks.iter().flatten().flatten().map(CMatrix::nrows).next().ok_or(BlockError::Empty);
        let signals = ReflectedSignals::new(spacing_wavelengths, sensors?, reflected_signals);
        Self::of_signals(Arc::new(signals), noise_variance, blocks)
    }

    /// As [`Self::new`] for signals that many sets of blocks share, so that what depends on them alone is computed once.
    pub fn of_signals(
        signals: Arc<ReflectedSignals>,
        noise_variance: f64,
        blocks: Vec<Vec<Option<CMatrix>>>,
    ) -> Result<Self, BlockError> {
        positive("spacing_wavelengths", signals.spacing_wavelengths())?;
        positive("noise_variance", noise_variance)?;
        check_signals(signals.signals())?;
        check_table(&signals, &blocks)?;
        Ok(Self { signals, noise_variance, blocks })
    }

    /// Blocks of the paths of a system.
    pub fn of_system(
        system: &System,
        noise_variance: f64,
        blocks: Vec<Vec<Option<CMatrix>>>,
    ) -> Result<Self, BlockError> {
        Self::of_signals(Arc::new(ReflectedSignals::of_system(system)), noise_variance, blocks)
    }

    /// Element spacing in wavelengths.
    pub fn spacing_wavelengths(&self) -> f64 {
        self.signals.spacing_wavelengths()
    }

    /// Number of IRSs K.
    pub fn irs_count(&self) -> usize {
        self.signals.signals().len()
    }

    /// Number of sensors M per IRS.
    pub fn sensors(&self) -> usize {
        self.signals.sensors()
    }

    /// S_k, N x D_k; none if there is no such IRS.
    pub fn reflected_signal(&self, k: usize) -> Option<&CMatrix> {
        self.signals.signals().get(k)
    }

    /// S_k of an IRS that exists.
    pub(crate) fn signal(&self, k: usize) -> &CMatrix {
        &self.signals.signals()[k]
    }

    /// The signals with their geometry.
    pub(crate) fn signals(&self) -> &ReflectedSignals {
        &self.signals
    }

    /// What depends on the signals alone.
    pub(crate) fn tables(&self) -> &SignalTables {
        self.signals.tables()
    }

    /// Number of elements N of an IRS that exists.
    pub(crate) fn elements(&self, k: usize) -> usize {
        self.signal(k).nrows()
    }

    /// The sensor array of every IRS.
    pub(crate) fn sensor_array(&self) -> UniformLinearArray {
        self.signals.sensor_array()
    }

    /// Noise variance per entry of a block.
    pub fn noise_variance(&self) -> f64 {
        self.noise_variance
    }

    /// R_lk, M x D_k, where present.
    pub fn block(&self, l: usize, k: usize) -> Option<&CMatrix> {
        self.blocks.get(l)?.get(k)?.as_ref()
    }

    /// All present blocks as (l, k, R_lk), row by row.
    pub fn present(&self) -> impl Iterator<Item = (usize, usize, &CMatrix)> {
        self.blocks.iter().enumerate().flat_map(|(l, row)| {
            row.iter().enumerate().filter_map(move |(k, b)| b.as_ref().map(|b| (l, k, b)))
        })
    }
}

fn positive(name: &'static str, value: f64) -> Result<(), BlockError> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(BlockError::Scalar { name, value }) }
}

fn check_signals(signals: &[CMatrix]) -> Result<(), BlockError> {
    if signals.is_empty() {
        return Err(BlockError::Empty);
    }
    for (k, signal) in signals.iter().enumerate() {
        let refuse = |problem| Err(BlockError::ReflectedSignal { k, problem });
        if signal.is_empty() {
            return refuse("empty");
        }
        if signal.iter().any(|v| !v.is_finite()) {
            return refuse("not finite");
        }
        // Squared norms must neither vanish nor overflow.
        let energy = signal.norm_squared();
        if !(f64::MIN_POSITIVE..=f64::MAX).contains(&energy) {
            return refuse("zero (rank 0) or out of range");
        }
    }
    Ok(())
}

/// Checks the shape of the table and of every block.
fn check_table(signals: &ReflectedSignals, blocks: &[Vec<Option<CMatrix>>]) -> Result<(), BlockError> {
    let (signals, sensors) = (signals.signals(), signals.sensors());
    let expected = signals.len();
    if blocks.len() != expected {
        return Err(BlockError::Table { row: blocks.len(), found: blocks.len(), expected });
    }
    if let Some(row) = blocks.iter().position(|row| row.len() != expected) {
        return Err(BlockError::Table { row, found: blocks[row].len(), expected });
    }
    if blocks.iter().flatten().flatten().next().is_none() {
        return Err(BlockError::Empty);
    }
    for (l, row) in blocks.iter().enumerate() {
        for (k, block) in row.iter().enumerate().filter_map(|(k, b)| b.as_ref().map(|b| (k, b))) {
            let streams = signals[k].ncols();
            if block.shape() != (sensors, streams) || sensors == 0 {
                return Err(BlockError::Shape {
                    l,
                    k,
                    rows: block.nrows(),
                    columns: block.ncols(),
                    expected_rows: sensors.max(1),
                    expected_columns: streams,
                });
            }
            if block.iter().any(|v| !v.is_finite()) || !block.norm_squared().is_finite() {
                return Err(BlockError::NotFinite { l, k });
            }
        }
    }
    Ok(())
}
