//! Encoding of the echo messages: a version byte, then bincode. Decoding never panics, whatever the input.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bytes::Bytes;
use model::CMatrix;
use num_complex::Complex64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::convert::FrameId;

/// Version of the echo messages: the first byte of each.
pub const ECHO_VERSION: u8 = 1;

/// Longest message that is decoded: 64 MiB, about four million samples.
const LONGEST_BYTES: usize = 64 << 20;

const BINCODE: Configuration<LittleEndian, Varint, Limit<LONGEST_BYTES>> =
    bincode::config::standard().with_limit::<LONGEST_BYTES>();

/// Why bytes are not an echo message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("the message is empty")]
    Empty,
    #[error("the message has version {found}, this process speaks {ECHO_VERSION}")]
    Version { found: u8 },
    #[error("the message cannot be decoded: {0}")]
    Bincode(String),
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    #[error("the message cannot be encoded: {0}")]
    Encode(String),
    #[error("the message has {0} parts")]
    Parts(usize),
    #[error(
        "frame {frame} is {sensors} x {subcarriers} with {samples} samples, expected {expected_sensors} x \
         {expected_subcarriers}"
    )]
    Shape {
        frame: u64,
        sensors: u32,
        subcarriers: u32,
        samples: usize,
        expected_sensors: usize,
        expected_subcarriers: usize,
    },
    #[error("frame {frame} contains a sample that is not finite")]
    NotFinite { frame: u64 },
    #[error("frame {frame} is for node {found}, this is node {node}")]
    Node { frame: u64, found: u32, node: u32 },
    #[error("the samples of frame {frame} have no known format")]
    Format { frame: u64 },
    #[error("the samples of frame {frame} have {found} bytes, expected {expected}")]
    Length { frame: u64, found: usize, expected: usize },
}

pub(super) fn encode<T: Serialize>(message: &T) -> Result<Bytes, CodecError> {
    let mut out = vec![ECHO_VERSION];
    bincode::serde::encode_into_std_write(message, &mut out, BINCODE)
        .map_err(|error| CodecError::Encode(error.to_string()))?;
    Ok(out.into())
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (&version, body) = bytes.split_first().ok_or(CodecError::Empty)?;
    if version != ECHO_VERSION {
        return Err(CodecError::Version { found: version });
    }
    let (message, read) = bincode::serde::decode_from_slice(body, BINCODE)
        .map_err(|error| CodecError::Bincode(error.to_string()))?;
    match body.len() - read {
        0 => Ok(message),
        left => Err(CodecError::Trailing(left)),
    }
}

/// What the M sensors of one node receive in one frame on L subcarriers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EchoFrame {
    /// The run of the simulator; frame numbers restart with it.
    pub run: u64,
    pub frame: u64,
    pub node: u32,
    /// When the frame was due to leave, nanoseconds since the Unix epoch.
    pub intended_ns: u64,
    pub sensors: u32,
    pub subcarriers: u32,
    /// M x L samples, column-major.
    pub samples: Vec<Complex64>,
}

impl EchoFrame {
    /// A frame of node `node` from the received matrix, M x L.
    pub fn new(frame: FrameId, node: u32, intended_ns: u64, received: &CMatrix) -> Self {
        Self {
            run: frame.run,
            frame: frame.frame,
            node,
            intended_ns,
            sensors: received.nrows() as u32,
            subcarriers: received.ncols() as u32,
            samples: received.as_slice().to_vec(),
        }
    }

    /// Bytes of an encoded frame of this shape, at most: the fields other than the samples need less than 64.
    pub fn bytes(sensors: usize, subcarriers: usize) -> usize {
        sensors.saturating_mul(subcarriers).saturating_mul(16).saturating_add(64)
    }

    /// Whether frames of this shape are short enough to be sent.
    pub fn fits(sensors: usize, subcarriers: usize) -> bool {
        Self::bytes(sensors, subcarriers) <= LONGEST_BYTES
    }

    pub fn id(&self) -> FrameId {
        FrameId { run: self.run, frame: self.frame }
    }

    pub fn encode(&self) -> Result<Bytes, CodecError> {
        encode(self)
    }

    /// Decodes a frame without checking its samples.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        decode(bytes)
    }

    /// The matrix M x L, checked: it belongs to this node, has the shape of the site and is finite.
    pub fn into_matrix(self, node: u32, sensors: usize, subcarriers: usize) -> Result<CMatrix, CodecError> {
        if self.node != node {
            return Err(CodecError::Node { frame: self.frame, found: self.node, node });
        }
        let claimed = (self.sensors as usize, self.subcarriers as usize);
        if claimed != (sensors, subcarriers) || self.samples.len() != sensors * subcarriers {
            return Err(CodecError::Shape {
                frame: self.frame,
                sensors: self.sensors,
                subcarriers: self.subcarriers,
                samples: self.samples.len(),
                expected_sensors: sensors,
                expected_subcarriers: subcarriers,
            });
        }
        if !self.samples.iter().all(|sample| sample.is_finite()) {
            return Err(CodecError::NotFinite { frame: self.frame });
        }
        Ok(CMatrix::from_vec(sensors, subcarriers, self.samples))
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{ToNode, ToSource};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn frame() -> EchoFrame {
        let received = CMatrix::from_fn(3, 4, |m, f| Complex64::new(m as f64, -(f as f64)));
        EchoFrame::new(FrameId { run: 4, frame: 7 }, 2, 123, &received)
    }

    #[test]
    fn a_frame_survives() {
        let bytes = frame().encode().unwrap();
        let back = EchoFrame::decode(&bytes).unwrap();
        assert_eq!(back, frame());
        let matrix = back.into_matrix(2, 3, 4).unwrap();
        assert_eq!(matrix[(2, 1)], Complex64::new(2.0, -1.0));
    }

    #[test]
    fn other_versions_and_loose_ends_are_refused() {
        let mut bytes = frame().encode().unwrap().to_vec();
        bytes.push(0);
        assert_eq!(EchoFrame::decode(&bytes), Err(CodecError::Trailing(1)));
        bytes[0] = 9;
        assert_eq!(EchoFrame::decode(&bytes), Err(CodecError::Version { found: 9 }));
        assert_eq!(EchoFrame::decode(&[]), Err(CodecError::Empty));
    }

    #[test]
    fn a_hostile_length_is_refused_before_memory_is_taken() {
        // A frame whose count of samples claims 2^60.
        let mut bytes = vec![ECHO_VERSION, 0, 0, 0, 0, 0, 0, 253];
        bytes.extend((1u64 << 60).to_le_bytes());
        assert!(matches!(EchoFrame::decode(&bytes), Err(CodecError::Bincode(_))));
    }

    #[test]
    fn shape_owner_and_values_are_checked() {
        assert!(matches!(frame().into_matrix(1, 3, 4), Err(CodecError::Node { found: 2, node: 1, .. })));
        assert!(matches!(frame().into_matrix(2, 4, 3), Err(CodecError::Shape { .. })));
        let mut short = frame();
        short.samples.pop();
        assert!(matches!(short.into_matrix(2, 3, 4), Err(CodecError::Shape { samples: 11, .. })));
        let mut broken = frame();
        broken.samples[5].im = f64::NAN;
        assert_eq!(broken.into_matrix(2, 3, 4), Err(CodecError::NotFinite { frame: 7 }));
        assert!(EchoFrame::fits(10, 100) && !EchoFrame::fits(4096, 4096) && !EchoFrame::fits(usize::MAX, 2));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes in vec(any::<u8>(), 0..200), versioned in any::<bool>()) {
            if versioned && !bytes.is_empty() {
                bytes[0] = ECHO_VERSION;
            }
            if let Ok(frame) = EchoFrame::decode(&bytes) {
                let _ = frame.into_matrix(0, 1, 1);
            }
            let _ = decode::<ToNode>(&bytes);
            let _ = decode::<ToSource>(&bytes);
        }

        #[test]
        fn a_damaged_frame_never_panics(at in 0usize..200, value in any::<u8>(), cut in 0usize..200) {
            let mut bytes = frame().encode().unwrap().to_vec();
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(bytes.len() - cut % bytes.len());
            if let Ok(frame) = EchoFrame::decode(&bytes) {
                let _ = frame.into_matrix(2, 3, 4);
            }
        }
    }
}
