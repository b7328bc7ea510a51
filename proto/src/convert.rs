//! Wire to domain and back: the only place where reports from outside are trusted, after checks of shape,
//! finiteness, range and size.
//!
//! A report is checked block by block: one bad block does not take the others with it. What is refused is
//! said by name, so that the sender can be told.

use bytes::{BufMut, Bytes, BytesMut};
use estimation::delay::{BlockExpansion, NodeDelays};
use estimation::fusion::PathBlock;
use model::{CMatrix, System};
use num_complex::Complex64;

use crate::v1;

/// Why a report or a block of it is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WireError {
    /// A block claims to be sensed by another node.
    #[error("block ({l}, {k}) was sent by node {node}")]
    Foreign {
        /// The sender.
        node: usize,
        /// Sensing IRS claimed.
        l: u32,
        /// Reflecting IRS claimed.
        k: u32,
    },
    /// There is no such path.
    #[error("there is no path ({l}, {k}) with {count} IRSs")]
    Path {
        /// Sensing IRS.
        l: u32,
        /// Reflecting IRS.
        k: u32,
        /// IRSs there are.
        count: usize,
    },
    /// A path occurs twice in one report.
    #[error("path ({l}, {k}) occurs twice in one report")]
    Repeated {
        /// Sensing IRS.
        l: usize,
        /// Reflecting IRS.
        k: usize,
    },
    /// The report holds more blocks than there are IRSs.
    #[error("{found} blocks in one report: at most {most}")]
    TooMany {
        /// Blocks found.
        found: usize,
        /// Blocks allowed.
        most: usize,
    },
    /// The matrix is not M x D_k.
    #[error("block ({l}, {k}) is {rows} x {columns}, expected {expected_rows} x {expected_columns}")]
    Shape {
        /// Sensing IRS.
        l: usize,
        /// Reflecting IRS.
        k: usize,
        /// Rows claimed.
        rows: u32,
        /// Columns claimed.
        columns: u32,
        /// Sensors M.
        expected_rows: usize,
        /// Streams D_k.
        expected_columns: usize,
    },
    /// The bytes do not hold a matrix of that shape.
    #[error("the {what} of block ({l}, {k}) has {found} bytes, expected {expected}")]
    Length {
        /// Which matrix.
        what: &'static str,
        /// Sensing IRS.
        l: usize,
        /// Reflecting IRS.
        k: usize,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// No known precision.
    #[error("block ({l}, {k}) names no known precision")]
    Precision {
        /// Sensing IRS.
        l: usize,
        /// Reflecting IRS.
        k: usize,
    },
    /// A value is not finite or out of range.
    #[error("{what} of block ({l}, {k}) is {value}: {allowed}")]
    Value {
        /// Which value.
        what: &'static str,
        /// Sensing IRS.
        l: usize,
        /// Reflecting IRS.
        k: usize,
        /// The value.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The noise power is not positive and finite.
    #[error("noise_power_w = {0}: must be positive and finite")]
    Noise(f64),
}

/// Precision of the samples of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// Single: half the bytes; rounding is 100 dB below the signal.
    #[default]
    F32,
    /// Double.
    F64,
}

/// A frame of a run: frame numbers begin anew with every start of the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FrameId {
    /// The run; later ones are larger.
    pub run: u64,
    /// The frame within it.
    pub frame: u64,
}

/// What a sound report says.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The frame.
    pub frame: FrameId,
    /// Noise power that the node measured.
    pub noise_power_w: f64,
    /// Sound blocks as (k, block).
    pub paths: Vec<(usize, PathBlock)>,
    /// Blocks that were refused, and why.
    pub refused: Vec<WireError>,
    /// The node's times.
    pub times: Times,
    /// The node's own count of blocks sent.
    pub blocks_sent: u64,
    /// The node's own count of blocks dropped before sending.
    pub blocks_dropped: u64,
    /// Whether it may have come before.
    pub resent: bool,
}

/// When things happened at the node, nanoseconds since the Unix epoch; zero where not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// When the echo frame was due.
    pub intended_ns: u64,
    /// When it reached the node.
    pub received_ns: u64,
    /// When the matched filter was done.
    pub filtered_ns: u64,
    /// When the report left.
    pub sent_ns: u64,
}

/// Largest report that a node of this system can send, with room for the envelope.
pub fn max_report_bytes(system: &System) -> usize {
    let samples: usize = system.irs.iter().map(|irs| system.sensors * irs.reflected_signal.ncols()).sum();
    2 * 16 * samples + 256 * system.irs_count() + 1024
}

/// A node's report of one frame as a message; counts are filled in by the sender.
pub fn report_message(
    frame: FrameId,
    node: usize,
    delays: &NodeDelays,
    precision: Precision,
    times: Times,
) -> v1::FrameReport {
    let blocks = delays.paths.iter().enumerate().map(|(k, path)| v1::Block {
        l: node as u32,
        k: k as u32,
        delay_s: path.delay_s,
        delay_variance_s2: path.delay_variance_s2,
        snr: path.snr,
        precision: match precision {
            Precision::F32 => v1::Precision::F32,
            Precision::F64 => v1::Precision::F64,
        } as i32,
        rows: path.block.nrows() as u32,
        columns: path.block.ncols() as u32,
        block: pack(&path.block, precision),
        block_derivative: pack(&path.block_derivative, precision),
    });
    v1::FrameReport {
        run: frame.run,
        frame: frame.frame,
        noise_power_w: delays.noise_power_w,
        blocks: blocks.collect(),
        times: Some(v1::NodeTimes {
            intended_ns: times.intended_ns,
            received_ns: times.received_ns,
            filtered_ns: times.filtered_ns,
            sent_ns: times.sent_ns,
        }),
        blocks_sent: 0,
        blocks_dropped: 0,
        resent: false,
    }
}

/// Checks a report of `node`. An error refuses all of it; single bad blocks are listed in the result.
pub fn report_from_wire(message: v1::FrameReport, node: usize, system: &System) -> Result<Report, WireError> {
    let count = system.irs_count();
    if message.blocks.len() > count {
        return Err(WireError::TooMany { found: message.blocks.len(), most: count });
    }
    if !(message.noise_power_w.is_finite() && message.noise_power_w > 0.0) {
        return Err(WireError::Noise(message.noise_power_w));
    }
    let mut report = Report {
        frame: FrameId { run: message.run, frame: message.frame },
        noise_power_w: message.noise_power_w,
        paths: Vec::with_capacity(count),
        refused: Vec::new(),
        times: times_from_wire(message.times.unwrap_or_default()),
        blocks_sent: message.blocks_sent,
        blocks_dropped: message.blocks_dropped,
        resent: message.resent,
    };
    for block in message.blocks {
        match path_from_wire(block, node, system) {
            Ok((k, _)) if report.paths.iter().any(|(known, _)| *known == k) => {
                report.refused.push(WireError::Repeated { l: node, k });
            }
            Ok(path) => report.paths.push(path),
            Err(error) => report.refused.push(error),
        }
    }
    Ok(report)
}

fn times_from_wire(times: v1::NodeTimes) -> Times {
    Times {
        intended_ns: times.intended_ns,
        received_ns: times.received_ns,
        filtered_ns: times.filtered_ns,
        sent_ns: times.sent_ns,
    }
}

fn path_from_wire(block: v1::Block, node: usize, system: &System) -> Result<(usize, PathBlock), WireError> {
    let count = system.irs_count();
    if block.l as usize >= count || block.k as usize >= count {
        return Err(WireError::Path { l: block.l, k: block.k, count });
    }
    if block.l as usize != node {
        return Err(WireError::Foreign { node, l: block.l, k: block.k });
    }
    let (l, k) = (block.l as usize, block.k as usize);
    let shape = (system.sensors, system.irs[k].reflected_signal.ncols());
    if (block.rows as usize, block.columns as usize) != shape {
        return Err(WireError::Shape {
            l,
            k,
            rows: block.rows,
            columns: block.columns,
            expected_rows: shape.0,
            expected_columns: shape.1,
        });
    }
    let precision = match v1::Precision::try_from(block.precision) {
        Ok(v1::Precision::F32) => Precision::F32,
        Ok(v1::Precision::F64) => Precision::F64,
        _ => return Err(WireError::Precision { l, k }),
    };
    let value = |what, value: f64, sound: bool, allowed| {
        if sound { Ok(()) } else { Err(WireError::Value { what, l, k, value, allowed }) }
    };
    // The fold of the subcarrier grid, L / W: no delay of the model lies outside.
    let fold_s = system.subcarriers as f64 / system.bandwidth_hz;
    value("delay_s", block.delay_s, block.delay_s.abs() <= 2.0 * fold_s, "must lie within two frames")?;
    let variance = block.delay_variance_s2;
    value(
        "delay_variance_s2",
        variance,
        variance.is_finite() && variance > 0.0,
        "must be positive and finite",
    )?;
    value("snr", block.snr, block.snr.is_finite() && block.snr >= 0.0, "must not be negative, and finite")?;
    let expansion = BlockExpansion {
        delay_s: block.delay_s,
        block: unpack("block", &block.block, shape, precision, (l, k))?,
        block_derivative: unpack("block_derivative", &block.block_derivative, shape, precision, (l, k))?,
    };
    Ok((k, PathBlock { expansion, delay_variance_s2: variance, snr: block.snr }))
}

/// A matrix as packed little-endian bytes, column-major.
pub fn pack(matrix: &CMatrix, precision: Precision) -> Bytes {
    let mut out = BytesMut::with_capacity(matrix.len() * sample_bytes(precision));
    for value in matrix.iter() {
        match precision {
            Precision::F32 => {
                out.put_f32_le(value.re as f32);
                out.put_f32_le(value.im as f32);
            }
            Precision::F64 => {
                out.put_f64_le(value.re);
                out.put_f64_le(value.im);
            }
        }
    }
    out.freeze()
}

fn sample_bytes(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 8,
        Precision::F64 => 16,
    }
}

fn unpack(
    what: &'static str,
    bytes: &[u8],
    (rows, columns): (usize, usize),
    precision: Precision,
    (l, k): (usize, usize),
) -> Result<CMatrix, WireError> {
    let expected = rows * columns * sample_bytes(precision);
    if bytes.len() != expected {
        return Err(WireError::Length { what, l, k, found: bytes.len(), expected });
    }
    let real = |bytes: &[u8]| match precision {
        Precision::F32 => f64::from(f32::from_le_bytes(bytes.try_into().expect("four bytes"))),
        Precision::F64 => f64::from_le_bytes(bytes.try_into().expect("eight bytes")),
    };
    let half = sample_bytes(precision) / 2;
    let samples = bytes.chunks_exact(2 * half).map(|pair| {
        let (re, im) = pair.split_at(half);
        Complex64::new(real(re), real(im))
    });
    let matrix = CMatrix::from_iterator(rows, columns, samples);
    let energy = matrix.norm_squared();
    if !energy.is_finite() {
        return Err(WireError::Value { what, l, k, value: energy, allowed: "every sample must be finite" });
    }
    Ok(matrix)
}
