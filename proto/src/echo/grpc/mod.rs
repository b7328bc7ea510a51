//! Echo frames by gRPC: the service `Echoes` of `hyloc/v1/echoes.proto`, whose comments are the protocol.
//!
//! The node serves ([`service`]), the simulator pushes ([`pusher`]); any other program may push instead of it. The books
//! are those of ZeroMQ: a welcome of the node becomes the subscription that a node would have sent.

pub mod pusher;
pub mod service;

use bytes::{BufMut, Bytes, BytesMut};
use num_complex::Complex64;

use super::codec::{CodecError, EchoFrame};
use crate::v1;

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// Bytes of a message around the samples, at most: the fields of a frame, or a hello with its name.
const AROUND_BYTES: usize = 256;

/// Longest request for frames of this shape.
pub fn max_message_bytes(sensors: usize, subcarriers: usize) -> usize {
    sensors.saturating_mul(subcarriers).saturating_mul(16).saturating_add(AROUND_BYTES)
}

/// The message of a frame, in double precision.
pub fn message_of(sequence: u64, frame: &EchoFrame) -> v1::EchoFrame {
    let mut samples = BytesMut::with_capacity(frame.samples.len() * 16);
    for sample in &frame.samples {
        samples.put_f64_le(sample.re);
        samples.put_f64_le(sample.im);
    }
    v1::EchoFrame {
        sequence,
        frame: frame.frame,
        intended_ns: frame.intended_ns,
        format: v1::EchoSamples::F64 as i32,
        samples: samples.freeze(),
    }
}

/// The frame of a message for node `node`, checked: format, length and finite samples.
pub fn frame_of(
    message: v1::EchoFrame,
    run: u64,
    node: u32,
    sensors: usize,
    subcarriers: usize,
) -> Result<EchoFrame, CodecError> {
    let frame = message.frame;
    let (read, bytes): (fn(&[u8]) -> Complex64, usize) = match message.format() {
        v1::EchoSamples::F64 => (|b| Complex64::new(f64_at(b, 0), f64_at(b, 8)), 16),
        v1::EchoSamples::F32 => (|b| Complex64::new(f32_at(b, 0), f32_at(b, 4)), 8),
        v1::EchoSamples::Unspecified => return Err(CodecError::Format { frame }),
    };
    let expected = sensors * subcarriers * bytes;
    let found = message.samples.len();
    if found != expected {
        return Err(CodecError::Length { frame, found, expected });
    }
    let samples: Vec<Complex64> = message.samples.chunks_exact(bytes).map(read).collect();
    if !samples.iter().all(|sample| sample.is_finite()) {
        return Err(CodecError::NotFinite { frame });
    }
    let (sensors, subcarriers) = (sensors as u32, subcarriers as u32);
    Ok(EchoFrame { run, frame, node, intended_ns: message.intended_ns, sensors, subcarriers, samples })
}

fn f64_at(bytes: &[u8], at: usize) -> f64 {
    bytes[at..].first_chunk().map_or(f64::NAN, |digits| f64::from_le_bytes(*digits))
}

fn f32_at(bytes: &[u8], at: usize) -> f64 {
    bytes[at..].first_chunk().map_or(f64::NAN, |digits| f64::from(f32::from_le_bytes(*digits)))
}

/// A hash as bytes of a message.
fn bytes_of(hash: [u8; 32]) -> Bytes {
    Bytes::copy_from_slice(&hash)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn frame() -> EchoFrame {
        let samples = (0..6).map(|n| Complex64::new(f64::from(n) / 3.0, -1e-9)).collect();
        EchoFrame { run: 5, frame: 8, node: 1, intended_ns: 77, sensors: 2, subcarriers: 3, samples }
    }

    #[test]
    fn a_frame_survives_to_the_bit() {
        let message = message_of(4, &frame());
        assert_eq!((message.sequence, message.samples.len()), (4, 96));
        assert_eq!(frame_of(message, 5, 1, 2, 3), Ok(frame()));
    }

    #[test]
    fn single_precision_is_read() {
        let samples: Vec<u8> = [1.5f32, -2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let message = v1::EchoFrame {
            format: v1::EchoSamples::F32 as i32,
            samples: samples.into(),
            ..Default::default()
        };
        assert_eq!(frame_of(message, 5, 1, 1, 1).unwrap().samples, [Complex64::new(1.5, -2.0)]);
    }

    #[test]
    fn malformed_frames_are_refused_by_name() {
        let message = message_of(4, &frame());
        let refused = |message, sensors| frame_of(message, 5, 1, sensors, 3).unwrap_err();
        assert_eq!(refused(message.clone(), 3), CodecError::Length { frame: 8, found: 96, expected: 144 });
        assert_eq!(
            refused(v1::EchoFrame { format: 9, ..message.clone() }, 2),
            CodecError::Format { frame: 8 }
        );
        let mut samples = message.samples.to_vec();
        samples[8..16].copy_from_slice(&f64::NAN.to_le_bytes());
        let broken = v1::EchoFrame { samples: samples.into(), ..message };
        assert_eq!(refused(broken, 2), CodecError::NotFinite { frame: 8 });
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            samples in vec(any::<u8>(), 0..70), format in -1i32..4, sensors in 0usize..4, subcarriers in 0usize..3,
        ) {
            let message = v1::EchoFrame { format, samples: samples.into(), ..Default::default() };
            if let Ok(frame) = frame_of(message, 1, 0, sensors, subcarriers) {
                prop_assert_eq!(frame.samples.len(), sensors * subcarriers);
            }
        }
    }
}
