//! The evidence of one frame, path by path, scaled to unit noise.

use std::ops::Range;

use model::CMatrix;
use num_complex::Complex64;

use super::layout::Layout;
use crate::delay::BlockExpansion;
use crate::location::{Bearing, CascadeDelay, Fault};

/// Why a piece of evidence cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum EvidenceError {
    #[error("there is no path ({l}, {k}) among {count} IRSs")]
    Path { l: usize, k: usize, count: usize },
    #[error(
        "the {what} of path ({l}, {k}) is {rows} x {columns}, expected {expected_rows} x {expected_columns}"
    )]
    Shape {
        what: &'static str,
        l: usize,
        k: usize,
        rows: usize,
        columns: usize,
        expected_rows: usize,
        expected_columns: usize,
    },
    #[error("path ({l}, {k}): {what} is not usable")]
    Value { what: &'static str, l: usize, k: usize },
}

/// Evidence of one path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PathEvidence {
    Missing,
    /// Its columns of the node's spectrum.
    Spectrum,
    /// Block and derivative by the delay, divided by the standard deviation of the noise.
    Block(BlockExpansion),
    /// A delay with its variance, and the width of the window in which it was searched.
    Delay {
        delay: CascadeDelay,
        window_s: f64,
    },
}

/// Evidence of one node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeEvidence {
    /// Rows over all subcarriers by owner, divided by the standard deviation of the noise; zero where missing.
    pub spectrum: Option<Vec<Vec<Complex64>>>,
    pub paths: Vec<PathEvidence>,
    /// Bearing of the target and the width of the sector in which it was searched.
    pub bearing: Option<(Bearing, f64)>,
}

/// The evidence of one frame. Paths may deliver different kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    pub(super) nodes: Vec<NodeEvidence>,
    /// Sensors of every node.
    sensors: Vec<usize>,
    channels: usize,
    /// Subcarriers of every IRS, by owner.
    ranges: Vec<Range<usize>>,
    streams: Vec<usize>,
}

impl Evidence {
    /// Empty evidence for the IRSs of a layout.
    pub fn of_layout(layout: &Layout) -> Self {
        let count = layout.irs().len();
        let node = NodeEvidence { spectrum: None, paths: vec![PathEvidence::Missing; count], bearing: None };
        Self {
            nodes: vec![node; count],
            sensors: layout.irs().iter().map(|irs| irs.sensors.len()).collect(),
            channels: layout.frequencies_rad_s().len(),
            ranges: (0..count).map(|k| layout.range(k)).collect(),
            streams: layout.irs().iter().map(|irs| irs.codes.nrows()).collect(),
        }
    }

    /// Sets the spectrum Y (M x n_k) of path (l, k), with this noise power per entry.
    pub fn spectrum(
        &mut self,
        l: usize,
        k: usize,
        spectrum: &CMatrix,
        noise_power_w: f64,
    ) -> Result<(), EvidenceError> {
        self.check_path(l, k)?;
        check_shape("spectrum", l, k, spectrum, (self.sensors[l], self.ranges[k].len()))?;
        let scale = deviation("noise power", l, k, noise_power_w)?.recip();
        check_finite("spectrum", l, k, spectrum)?;
        let (sensors, channels, start) = (self.sensors[l], self.channels, self.ranges[k].start);
        let node = &mut self.nodes[l];
        let rows = node.spectrum.get_or_insert_with(|| vec![vec![Complex64::ZERO; channels]; sensors]);
        for (row, values) in rows.iter_mut().zip(spectrum.row_iter()) {
            for (out, y) in row[start..].iter_mut().zip(values.iter()) {
                *out = y * scale;
            }
        }
        node.paths[k] = PathEvidence::Spectrum;
        Ok(())
    }

    /// Sets the block of path (l, k) with its derivative, with this noise power per entry of the block.
    pub fn block(
        &mut self,
        l: usize,
        k: usize,
        expansion: &BlockExpansion,
        noise_power_w: f64,
    ) -> Result<(), EvidenceError> {
        self.check_path(l, k)?;
        for (what, matrix) in
            [("block", &expansion.block), ("block's derivative", &expansion.block_derivative)]
        {
            check_shape(what, l, k, matrix, (self.sensors[l], self.streams[k]))?;
            check_finite(what, l, k, matrix)?;
        }
        let deviation = deviation("noise power", l, k, noise_power_w)?;
        if !expansion.delay_s.is_finite() {
            return Err(EvidenceError::Value { what: "delay", l, k });
        }
        self.nodes[l].paths[k] = PathEvidence::Block(BlockExpansion {
            delay_s: expansion.delay_s,
            block: expansion.block.unscale(deviation),
            block_derivative: expansion.block_derivative.unscale(deviation),
        });
        Ok(())
    }

    /// Sets the delay of path (l, k), found in a window of this width.
    pub fn delay(
        &mut self,
        l: usize,
        k: usize,
        delay: CascadeDelay,
        window_s: f64,
    ) -> Result<(), EvidenceError> {
        self.check_path(l, k)?;
        deviation("variance of the delay", l, k, delay.variance_s2)?;
        deviation("window of the delay", l, k, window_s)?;
        if !delay.delay_s.is_finite() {
            return Err(EvidenceError::Value { what: "delay", l, k });
        }
        self.nodes[l].paths[k] = PathEvidence::Delay { delay, window_s };
        Ok(())
    }

    /// Sets the bearing of the target from node `l`, found in a sector of this width. It is used only where all paths of the
    /// node deliver delays: blocks and spectra contain it already.
    pub fn bearing(&mut self, l: usize, bearing: Bearing, sector_rad: f64) -> Result<(), EvidenceError> {
        self.check_path(l, l)?;
        deviation("variance of the bearing", l, l, bearing.variance_rad2)?;
        deviation("sector of the bearing", l, l, sector_rad)?;
        if !bearing.bearing_rad.is_finite() {
            return Err(EvidenceError::Value { what: "bearing", l, k: l });
        }
        self.nodes[l].bearing = Some((bearing, sector_rad));
        Ok(())
    }

    /// Whether this is evidence for the same system, as far as sizes show it.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let sizes = |e: &Self| (e.nodes.len(), e.channels);
        sizes(self) == sizes(other)
            && self.sensors == other.sensors
            && self.ranges == other.ranges
            && self.streams == other.streams
    }

    /// Removes the paths that a fault affects.
    pub(super) fn remove(&mut self, fault: Fault) {
        for (l, node) in self.nodes.iter_mut().enumerate() {
            for (k, path) in node.paths.iter_mut().enumerate() {
                if fault.spoils_path(l, k) {
                    *path = PathEvidence::Missing;
                }
            }
        }
    }

    /// Number of terms of the likelihood: present paths and used bearings.
    pub(super) fn terms(&self) -> usize {
        self.present_paths() + self.nodes.iter().filter(|node| node.counted_bearing().is_some()).count()
    }

    /// Number of present paths.
    pub(super) fn present_paths(&self) -> usize {
        self.count(|path| *path != PathEvidence::Missing)
    }

    /// Number of paths whose gain is fitted: those that deliver a spectrum or a block.
    pub(super) fn gains(&self) -> usize {
        self.count(PathEvidence::has_gain)
    }

    /// Energy of all spectra in use, and their number of entries.
    pub(super) fn spectral_energy(&self) -> (f64, usize) {
        let (mut energy, mut entries) = (0.0, 0);
        for node in &self.nodes {
            let Some(rows) = &node.spectrum else { continue };
            for (k, _) in node.paths.iter().enumerate().filter(|(_, path)| **path == PathEvidence::Spectrum) {
                let own = &self.ranges[k];
                let values = rows.iter().flat_map(|row| &row[own.clone()]);
                energy += values.map(Complex64::norm_sqr).sum::<f64>();
                entries += own.len() * rows.len();
            }
        }
        (energy, entries)
    }

    /// Whether some path delivers only evidence that its node has selected, a block or a delay, instead of a spectrum.
    pub(super) fn is_selected(&self) -> bool {
        self.spectra() < self.present_paths()
    }

    /// Number of paths that deliver a spectrum.
    pub(super) fn spectra(&self) -> usize {
        self.count(|path| *path == PathEvidence::Spectrum)
    }

    fn count(&self, counted: impl Fn(&PathEvidence) -> bool) -> usize {
        self.nodes.iter().flat_map(|node| &node.paths).filter(|path| counted(path)).count()
    }

    fn check_path(&self, l: usize, k: usize) -> Result<(), EvidenceError> {
        let count = self.nodes.len();
        if l.max(k) < count { Ok(()) } else { Err(EvidenceError::Path { l, k, count }) }
    }
}

impl PathEvidence {
    /// Whether the gain of the path is fitted.
    pub fn has_gain(&self) -> bool {
        matches!(self, Self::Spectrum | Self::Block(_))
    }
}

impl NodeEvidence {
    /// Removes an offset of the node's clock; `phasors` are `exp(+j w o)` on all subcarriers.
    pub fn retime(&mut self, offset_s: f64, phasors: &[Complex64]) {
        for row in self.spectrum.iter_mut().flatten() {
            row.iter_mut().zip(phasors).for_each(|(y, phasor)| *y *= phasor);
        }
        for path in &mut self.paths {
            match path {
                PathEvidence::Block(block) => block.delay_s -= offset_s,
                PathEvidence::Delay { delay, .. } => delay.delay_s -= offset_s,
                PathEvidence::Spectrum | PathEvidence::Missing => {}
            }
        }
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        (self.spectrum, self.bearing) = (None, None);
        self.paths.fill(PathEvidence::Missing);
    }

    /// The bearing, where no path contains it already.
    pub fn counted_bearing(&self) -> Option<(Bearing, f64)> {
        let delays = |path: &PathEvidence| matches!(path, PathEvidence::Delay { .. } | PathEvidence::Missing);
        let any = self.paths.iter().any(|path| *path != PathEvidence::Missing);
        self.bearing.filter(|_| any && self.paths.iter().all(delays))
    }
}

fn deviation(what: &'static str, l: usize, k: usize, variance: f64) -> Result<f64, EvidenceError> {
    let deviation = variance.sqrt();
    if deviation.is_finite() && deviation > 0.0 {
        Ok(deviation)
    } else {
        Err(EvidenceError::Value { what, l, k })
    }
}

fn check_shape(
    what: &'static str,
    l: usize,
    k: usize,
    matrix: &CMatrix,
    (expected_rows, expected_columns): (usize, usize),
) -> Result<(), EvidenceError> {
    let (rows, columns) = matrix.shape();
    if (rows, columns) == (expected_rows, expected_columns) {
        return Ok(());
    }
    Err(EvidenceError::Shape { what, l, k, rows, columns, expected_rows, expected_columns })
}

fn check_finite(what: &'static str, l: usize, k: usize, matrix: &CMatrix) -> Result<(), EvidenceError> {
    if matrix.iter().all(|v| v.is_finite()) { Ok(()) } else { Err(EvidenceError::Value { what, l, k }) }
}
