//! Conversion between wire messages and domain types: the only place where reports from outside become trusted, after
//! checks of shape, finiteness, range and size.
//!
//! A report is checked block by block, so that one bad block does not invalidate the others. Every refusal names
//! the block and the value, so that the sender can be told.

use std::f64::consts::TAU;

use estimation::delay::{DelayEstimate, NodeDelays};
use estimation::fusion::{NodeReport, PathBlock, Payload, PayloadKind};
use estimation::location::Bearing;
use model::{CMatrix, System};
use prost::Message;

use crate::samples::{DitherKey, Precision, pack, unpack};
use crate::v1;

/// Largest number of echo frames that one report may average.
pub const MOST_AVERAGED_FRAMES: u32 = 1000;

/// Largest count of blocks that a node may declare: more than it can send in years, and far from where sums overflow.
pub const MOST_DECLARED_BLOCKS: u64 = 1 << 48;

/// Why a report or a block of it is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WireError {
    #[error("block ({l}, {k}) was sent by node {node}")]
    Foreign { node: usize, l: u32, k: u32 },
    #[error("there is no path ({l}, {k}) with {count} IRSs")]
    Path { l: u32, k: u32, count: usize },
    #[error("path ({l}, {k}) occurs twice in one report")]
    Repeated { l: usize, k: usize },
    #[error("{found} blocks in one report: at most {most}")]
    TooMany { found: usize, most: usize },
    #[error("block ({l}, {k}) is {rows} x {columns}, expected {expected_rows} x {expected_columns}")]
    Shape { l: usize, k: usize, rows: u32, columns: u32, expected_rows: usize, expected_columns: usize },
    #[error("the {what} of block ({l}, {k}) has {found} bytes, expected {expected}")]
    Length { what: &'static str, l: usize, k: usize, found: usize, expected: usize },
    #[error("block ({l}, {k}) names no known {what}")]
    Unknown { what: &'static str, l: usize, k: usize },
    #[error("{what} of block ({l}, {k}) is {value}: {allowed}")]
    Value { what: &'static str, l: usize, k: usize, value: f64, allowed: &'static str },
    #[error("noise_power_w = {0}: must be positive and finite")]
    Noise(f64),
    #[error("averaged_frames = {0}: must be at most {MOST_AVERAGED_FRAMES}")]
    AveragedFrames(u32),
    #[error("{what} = {value}: must be at most {MOST_DECLARED_BLOCKS}")]
    Declared { what: &'static str, value: u64 },
    #[error(
        "arrival_rad = {angle_rad} with variance {variance_rad2}: must be an angle with a positive variance"
    )]
    Arrival { angle_rad: f64, variance_rad2: f64 },
}

/// A frame of a run: frame numbers restart with every run of the simulator. Within a run, later frames are greater; the
/// order of two runs has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FrameId {
    /// A random identity of one start of the simulator.
    pub run: u64,
    pub frame: u64,
}

/// A report that passed the checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub frame: FrameId,
    pub node: NodeReport,
    /// Size of the report on the wire.
    pub bytes: usize,
    /// Valid blocks as (k, block).
    pub paths: Vec<(usize, PathBlock)>,
    /// One error for each refused block.
    pub refused: Vec<WireError>,
    pub times: Times,
    /// The node's own count of blocks sent.
    pub blocks_sent: u64,
    /// The node's own count of blocks dropped before sending.
    pub blocks_dropped: u64,
    /// Whether the report may have been received before.
    pub resent: bool,
}

/// Times at the node, nanoseconds since the Unix epoch; zero where not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// When the echo frame was due to leave the simulator.
    pub intended_ns: u64,
    pub received_ns: u64,
    /// When the matched filter was done.
    pub filtered_ns: u64,
    pub sent_ns: u64,
}

/// Size of the largest report that a node of this system can send, with room for the envelope.
pub fn max_report_bytes(system: &System) -> usize {
    let entries = system.irs.iter().map(|irs| {
        let (streams, subcarriers) = (irs.reflected_signal.ncols(), irs.waveform.subcarriers.len());
        system.sensors() * subcarriers.max(2 * streams)
    });
    Precision::F64.bytes(entries.sum()) + 256 * system.irs_count() + 1024
}

/// Which matrix of a block: each has a dither of its own.
pub const BLOCK: u64 = 0;
pub const BLOCK_DERIVATIVE: u64 = 1;
pub const SPECTRUM: u64 = 2;

/// Identifies the dither of a matrix of path (l, k). It is independent of the run, so that two runs of one scenario send the same
/// bytes.
pub fn dither_key(frame: FrameId, l: usize, k: usize, which: u64) -> DitherKey {
    DitherKey([frame.frame, l as u64, k as u64, which])
}

/// A node's report of one frame as a message; the sender fills in the counts.
pub fn report_message(
    frame: FrameId,
    node: usize,
    delays: &NodeDelays,
    format: PayloadFormat,
    times: Times,
) -> v1::FrameReport {
    let blocks = delays.paths.iter().enumerate();
    v1::FrameReport {
        run: frame.run,
        frame: frame.frame,
        noise_power_w: delays.noise_power_w,
        blocks: blocks.map(|(k, path)| block_message(frame, node, k, path, format)).collect(),
        times: Some(v1::NodeTimes {
            intended_ns: times.intended_ns,
            received_ns: times.received_ns,
            filtered_ns: times.filtered_ns,
            sent_ns: times.sent_ns,
        }),
        arrival_rad: delays.arrival.map(|arrival| arrival.bearing_rad),
        arrival_variance_rad2: delays.arrival.map_or(0.0, |arrival| arrival.variance_rad2),
        averaged_frames: delays.frames as u32,
        ..v1::FrameReport::default()
    }
}

fn block_message(
    frame: FrameId,
    l: usize,
    k: usize,
    path: &DelayEstimate,
    PayloadFormat { kind, precision }: PayloadFormat,
) -> v1::Block {
    let packed = |matrix: &CMatrix, which| pack(matrix, precision, dither_key(frame, l, k, which));
    let mut message = v1::Block {
        l: l as u32,
        k: k as u32,
        delay_s: path.delay_s,
        delay_variance_s2: path.delay_variance_s2,
        snr: path.snr,
        precision: precision_to_wire(precision) as i32,
        payload: payload_to_wire(kind) as i32,
        ..v1::Block::default()
    };
    let mut shape = |matrix: &CMatrix| {
        (message.rows, message.columns) = (matrix.nrows() as u32, matrix.ncols() as u32);
    };
    match kind {
        PayloadKind::Parameters => {}
        PayloadKind::Block => {
            shape(&path.block);
            let (block, derivative) =
                (packed(&path.block, BLOCK), packed(&path.block_derivative, BLOCK_DERIVATIVE));
            // The derivative's noise is that of the block times the mean square frequency.
            let scale =
                path.block_derivative.norm_squared() / path.block.norm_squared().max(f64::MIN_POSITIVE);
            let derivative_power = derivative.error_power / scale.max(f64::MIN_POSITIVE);
            message.quantisation_power_w = block.error_power.max(derivative_power);
            (message.block, message.block_derivative) = (block.bytes, derivative.bytes);
        }
        PayloadKind::Spectrum => {
            shape(&path.spectrum);
            let spectrum = packed(&path.spectrum, SPECTRUM);
            message.quantisation_power_w = spectrum.error_power;
            message.spectrum = spectrum.bytes;
        }
    }
    message
}

/// Checks a report of `node`. An error refuses the whole report; single bad blocks are listed in the result.
pub fn report_from_wire(message: v1::FrameReport, node: usize, system: &System) -> Result<Report, WireError> {
    let count = system.irs_count();
    if message.blocks.len() > count {
        return Err(WireError::TooMany { found: message.blocks.len(), most: count });
    }
    for (what, value) in [("blocks_sent", message.blocks_sent), ("blocks_dropped", message.blocks_dropped)] {
        if value > MOST_DECLARED_BLOCKS {
            return Err(WireError::Declared { what, value });
        }
    }
    let frame = FrameId { run: message.run, frame: message.frame };
    let times = message.times.unwrap_or_default();
    let mut report = Report {
        frame,
        node: node_from_wire(&message)?,
        bytes: message.encoded_len(),
        paths: Vec::with_capacity(count),
        refused: Vec::new(),
        times: Times {
            intended_ns: times.intended_ns,
            received_ns: times.received_ns,
            filtered_ns: times.filtered_ns,
            sent_ns: times.sent_ns,
        },
        blocks_sent: message.blocks_sent,
        blocks_dropped: message.blocks_dropped,
        resent: message.resent,
    };
    for block in message.blocks {
        match path_from_wire(block, frame, node, system) {
            Ok((k, _)) if report.paths.iter().any(|(known, _)| *known == k) => {
                report.refused.push(WireError::Repeated { l: node, k });
            }
            Ok(path) => report.paths.push(path),
            Err(error) => report.refused.push(error),
        }
    }
    Ok(report)
}

fn node_from_wire(message: &v1::FrameReport) -> Result<NodeReport, WireError> {
    let noise_power_w = message.noise_power_w;
    if !(noise_power_w.is_finite() && noise_power_w > 0.0) {
        return Err(WireError::Noise(noise_power_w));
    }
    let variance_rad2 = message.arrival_variance_rad2;
    let arrival = message.arrival_rad.map(|angle_rad| {
        if angle_rad.abs() <= TAU && variance_rad2.is_finite() && variance_rad2 > 0.0 {
            Ok(Bearing { bearing_rad: angle_rad, variance_rad2 })
        } else {
            Err(WireError::Arrival { angle_rad, variance_rad2 })
        }
    });
    let averaged_frames = message.averaged_frames.max(1);
    if averaged_frames > MOST_AVERAGED_FRAMES {
        return Err(WireError::AveragedFrames(averaged_frames));
    }
    Ok(NodeReport { noise_power_w, arrival: arrival.transpose()?, averaged_frames })
}

fn path_from_wire(
    message: v1::Block,
    frame: FrameId,
    node: usize,
    system: &System,
) -> Result<(usize, PathBlock), WireError> {
    let count = system.irs_count();
    if message.l as usize >= count || message.k as usize >= count {
        return Err(WireError::Path { l: message.l, k: message.k, count });
    }
    if message.l as usize != node {
        return Err(WireError::Foreign { node, l: message.l, k: message.k });
    }
    let (l, k) = (message.l as usize, message.k as usize);
    // The delay range of the subcarrier grid, L / W: every delay of the model lies inside.
    let range_s = system.subcarriers as f64 / system.bandwidth_hz;
    let (variance, power) = (message.delay_variance_s2, message.quantisation_power_w);
    let not_negative = |value: f64| value.is_finite() && value >= 0.0;
    let finite = "must be finite and not negative";
    for (what, value, valid, allowed) in [
        ("delay_s", message.delay_s, message.delay_s.abs() <= 2.0 * range_s, "must lie within two frames"),
        (
            "delay_variance_s2",
            variance,
            variance.is_finite() && variance > 0.0,
            "must be positive and finite",
        ),
        ("snr", message.snr, not_negative(message.snr), finite),
        ("quantisation_power_w", power, not_negative(power), finite),
    ] {
        if !valid {
            return Err(WireError::Value { what, l, k, value, allowed });
        }
    }
    Ok((
        k,
        PathBlock {
            payload: checked_payload(&message, frame, (l, k), system)?,
            delay_s: message.delay_s,
            delay_variance_s2: variance,
            snr: message.snr,
            quantisation_power_w: power,
        },
    ))
}

fn checked_payload(
    message: &v1::Block,
    frame: FrameId,
    (l, k): (usize, usize),
    system: &System,
) -> Result<Payload, WireError> {
    let precision =
        precision_from_wire(message.precision).ok_or(WireError::Unknown { what: "precision", l, k })?;
    let irs = &system.irs[k];
    let matrix = |what: &'static str, bytes: &[u8], which: u64, columns: usize| {
        let shape = (system.sensors(), columns);
        if (message.rows as usize, message.columns as usize) != shape {
            return Err(WireError::Shape {
                l,
                k,
                rows: message.rows,
                columns: message.columns,
                expected_rows: shape.0,
                expected_columns: shape.1,
            });
        }
        let expected = precision.bytes(shape.0 * shape.1);
        let matrix = unpack(bytes, shape, precision, dither_key(frame, l, k, which))
            .ok_or(WireError::Length { what, l, k, found: bytes.len(), expected })?;
        let energy = matrix.norm_squared();
        if !energy.is_finite() {
            let allowed = "every sample must be finite";
            return Err(WireError::Value { what, l, k, value: energy, allowed });
        }
        Ok(matrix)
    };
    let streams = irs.reflected_signal.ncols();
    match v1::Payload::try_from(message.payload) {
        Ok(v1::Payload::Parameters) => Ok(Payload::Parameters),
        Ok(v1::Payload::Block) => Ok(Payload::Block {
            block: matrix("block", &message.block, BLOCK, streams)?,
            block_derivative: matrix(
                "block_derivative",
                &message.block_derivative,
                BLOCK_DERIVATIVE,
                streams,
            )?,
        }),
        Ok(v1::Payload::Spectrum) => {
            let subcarriers = irs.waveform.subcarriers.len();
            Ok(Payload::Spectrum(matrix("spectrum", &message.spectrum, SPECTRUM, subcarriers)?))
        }
        _ => Err(WireError::Unknown { what: "payload", l, k }),
    }
}

/// Payload and precision that a node sends for every path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PayloadFormat {
    pub kind: PayloadKind,
    pub precision: Precision,
}

pub fn payload_to_wire(kind: PayloadKind) -> v1::Payload {
    match kind {
        PayloadKind::Parameters => v1::Payload::Parameters,
        PayloadKind::Block => v1::Payload::Block,
        PayloadKind::Spectrum => v1::Payload::Spectrum,
    }
}

/// The payload that a message names; none if it is not known.
pub fn payload_from_wire(payload: i32) -> Option<PayloadKind> {
    PayloadKind::ALL.into_iter().find(|&kind| payload_to_wire(kind) as i32 == payload)
}

pub fn precision_to_wire(precision: Precision) -> v1::Precision {
    match precision {
        Precision::F32 => v1::Precision::F32,
        Precision::F64 => v1::Precision::F64,
        Precision::Q16 => v1::Precision::Q16,
        Precision::Q8 => v1::Precision::Q8,
        Precision::Q4 => v1::Precision::Q4,
        Precision::Q2 => v1::Precision::Q2,
    }
}

/// The precision that a message names; none if it is not known.
pub fn precision_from_wire(precision: i32) -> Option<Precision> {
    Precision::ALL.into_iter().find(|&known| precision_to_wire(known) as i32 == precision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_survive_the_wire_and_strangers_are_none() {
        for precision in Precision::ALL {
            assert_eq!(precision_from_wire(precision_to_wire(precision) as i32), Some(precision));
        }
        for kind in PayloadKind::ALL {
            assert_eq!(payload_from_wire(payload_to_wire(kind) as i32), Some(kind));
        }
        for unknown in [0, 99, -1] {
            assert_eq!((payload_from_wire(unknown), precision_from_wire(unknown)), (None, None));
        }
    }
}
