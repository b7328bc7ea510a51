//! What has come of one frame, path by path, brought to unit noise.

use model::CMatrix;
use num_complex::Complex64;

use super::scene::Scene;
use crate::delay::BlockExpansion;
use crate::location::{Bearing, CascadeDelay, Fault};

/// Why a piece of evidence cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EvidenceError {
    /// There is no such path.
    #[error("there is no path ({l}, {k}) among {count} IRSs")]
    Path {
        /// Sensing IRS.
        l: usize,
        /// Reflecting IRS.
        k: usize,
        /// IRSs of the system.
        count: usize,
    },
    /// A matrix has the wrong shape.
    #[error(
        "the {what} of path ({l}, {k}) is {rows} x {columns}, expected {expected_rows} x {expected_columns}"
    )]
    Shape {
        /// Which matrix.
        what: &'static str,
        /// Sensing IRS.
        l: usize,
        /// Reflecting IRS.
        k: usize,
        /// Rows found.
        rows: usize,
        /// Columns found.
        columns: usize,
        /// Rows expected.
        expected_rows: usize,
        /// Columns expected.
        expected_columns: usize,
    },
    /// A value is not finite, or a variance or power not positive.
    #[error("path ({l}, {k}): {what} is not usable")]
    Value {
        /// Which value.
        what: &'static str,
        /// Sensing IRS.
        l: usize,
        /// Reflecting IRS.
        k: usize,
    },
}

/// One path's part.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PathEvidence {
    /// Nothing came.
    Missing,
    /// Its columns of the node's spectrum.
    Spectrum,
    /// Block and derivative by the delay, over the noise's deviation.
    Block(BlockExpansion),
    /// A delay with its variance, and the width of the window that it was searched in.
    Delay { delay: CascadeDelay, window_s: f64 },
}

/// One node's part.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeEvidence {
    /// Row by row over all subcarriers by owner, over the noise's deviation; zero where there is none.
    pub spectrum: Option<Vec<Vec<Complex64>>>,
    pub paths: Vec<PathEvidence>,
    /// Bearing of the target and the width of the sector that it was searched in.
    pub bearing: Option<(Bearing, f64)>,
}

/// What has come of one frame. Paths may deliver different things.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    pub(super) nodes: Vec<NodeEvidence>,
    sensors: usize,
    channels: usize,
    subcarriers: Vec<usize>,
    streams: Vec<usize>,
    starts: Vec<usize>,
}

impl Evidence {
    /// Nothing yet.
    pub(super) fn of_scene(scene: &Scene) -> Self {
        let count = scene.irs_count();
        let node = NodeEvidence { spectrum: None, paths: vec![PathEvidence::Missing; count], bearing: None };
        Self {
            nodes: vec![node; count],
            sensors: scene.system().sensors,
            channels: scene.channels(),
            subcarriers: (0..count).map(|k| scene.range(k).len()).collect(),
            streams: (0..count).map(|k| scene.streams(k)).collect(),
            starts: (0..count).map(|k| scene.range(k).start).collect(),
        }
    }

    /// Path (l, k) delivers its spectrum Y (M x n_k), of this noise power per entry.
    pub fn spectrum(
        &mut self,
        l: usize,
        k: usize,
        spectrum: &CMatrix,
        noise_power_w: f64,
    ) -> Result<(), EvidenceError> {
        self.check_path(l, k)?;
        check_shape("spectrum", l, k, spectrum, (self.sensors, self.subcarriers[k]))?;
        let scale = deviation("noise power", l, k, noise_power_w)?.recip();
        check_finite("spectrum", l, k, spectrum)?;
        let (sensors, channels, start) = (self.sensors, self.channels, self.starts[k]);
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

    /// Path (l, k) delivers its block with derivative, of this noise power per entry of the block.
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
            check_shape(what, l, k, matrix, (self.sensors, self.streams[k]))?;
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

    /// Path (l, k) delivers its delay only, found in a window of this width.
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

    /// Node `l` delivers the target's bearing, found in a sector of this width. It counts only where none of
    /// its paths delivers more than a delay: blocks and spectra hold it already.
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

    /// Takes the paths that a fault spoils out, whatever they deliver.
    pub fn remove(&mut self, fault: Fault) {
        for (l, node) in self.nodes.iter_mut().enumerate() {
            for (k, path) in node.paths.iter_mut().enumerate() {
                if fault.spoils_path(l, k) {
                    *path = PathEvidence::Missing;
                }
            }
        }
    }

    /// Terms of the likelihood: the paths that came, and the bearings that count.
    pub(super) fn terms(&self) -> usize {
        self.present_paths() + self.nodes.iter().filter(|node| node.counted_bearing().is_some()).count()
    }

    /// Paths that came.
    pub(super) fn present_paths(&self) -> usize {
        let paths = self.nodes.iter().flat_map(|node| &node.paths);
        paths.filter(|path| **path != PathEvidence::Missing).count()
    }

    /// Paths whose gain is fitted: those that deliver a spectrum or a block.
    pub(super) fn gains(&self) -> usize {
        let fitted = |node: &NodeEvidence| (0..node.paths.len()).filter(|&k| node.fits_gain(k)).count();
        self.nodes.iter().map(fitted).sum()
    }

    /// Energy of all spectra in use, and their number of entries.
    pub(super) fn spectral_energy(&self) -> (f64, usize) {
        let (mut energy, mut entries) = (0.0, 0);
        for node in &self.nodes {
            let Some(rows) = &node.spectrum else { continue };
            for (k, _) in node.paths.iter().enumerate().filter(|(_, path)| **path == PathEvidence::Spectrum) {
                let own = self.starts[k]..self.starts[k] + self.subcarriers[k];
                let values = rows.iter().flat_map(|row| &row[own.clone()]);
                energy += values.map(Complex64::norm_sqr).sum::<f64>();
                entries += own.len() * rows.len();
            }
        }
        (energy, entries)
    }

    /// Whether some path delivers what its node has selected, a block or a delay, and not all that was received.
    pub(super) fn is_selected(&self) -> bool {
        self.spectra() < self.present_paths()
    }

    /// Paths that came as spectra.
    pub(super) fn spectra(&self) -> usize {
        let paths = self.nodes.iter().flat_map(|node| &node.paths);
        paths.filter(|path| **path == PathEvidence::Spectrum).count()
    }

    fn check_path(&self, l: usize, k: usize) -> Result<(), EvidenceError> {
        let count = self.nodes.len();
        if l.max(k) < count { Ok(()) } else { Err(EvidenceError::Path { l, k, count }) }
    }
}

impl NodeEvidence {
    /// Whether the gain of the path to IRS `k` is fitted: whether it delivers a spectrum or a block.
    pub fn fits_gain(&self, k: usize) -> bool {
        matches!(self.paths.get(k), Some(PathEvidence::Spectrum | PathEvidence::Block(_)))
    }

    /// The bearing, where no path holds it already.
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
    if matrix.iter().all(|v| v.re.is_finite() && v.im.is_finite()) {
        Ok(())
    } else {
        Err(EvidenceError::Value { what, l, k })
    }
}
