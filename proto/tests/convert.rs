//! Reports over the wire: what is sound comes back as it was, what is not is named, and nothing panics.

use estimation::delay::DelayEstimator;
use estimation::fusion::{Payload, PayloadKind};
use hyloc_proto::convert::{
    FrameId, PayloadFormat, Times, WireError, max_report_bytes, report_from_wire, report_message,
};
use hyloc_proto::samples::Precision;
use hyloc_proto::v1;
use model::{EchoSource, Scenario};
use proptest::prelude::*;
use prost::Message;

const FRAME: FrameId = FrameId { run: 5, frame: 7 };
const NODE: usize = 1;

fn source() -> EchoSource {
    EchoSource::new(&Scenario::default()).unwrap()
}

fn message(source: &EchoSource, precision: Precision) -> v1::FrameReport {
    message_of(source, PayloadFormat { kind: PayloadKind::Block, precision })
}

fn message_of(source: &EchoSource, format: PayloadFormat) -> v1::FrameReport {
    let node = DelayEstimator::new(source.system(), NODE).unwrap();
    let delays = node.estimate(&source.frame(NODE, 7, source.target_m(7))).unwrap();
    let times = Times { intended_ns: 1, received_ns: 2, filtered_ns: 3, sent_ns: 4 };
    report_message(FRAME, NODE, &delays, format, times)
}

#[test]
fn a_report_survives_the_wire() {
    let source = source();
    let delays = DelayEstimator::new(source.system(), NODE).unwrap();
    let delays = delays.estimate(&source.frame(NODE, 7, source.target_m(7))).unwrap();
    for (precision, tolerance) in [(Precision::F64, 0.0), (Precision::F32, 1e-7)] {
        let bytes = message(&source, precision).encode_to_vec();
        assert!(bytes.len() <= max_report_bytes(source.system()));
        let message = v1::FrameReport::decode(bytes.as_slice()).unwrap();
        let report = report_from_wire(message, NODE, source.system()).unwrap();
        assert_eq!((report.frame, report.refused.len(), report.paths.len()), (FRAME, 0, 3));
        assert_eq!(report.times, Times { intended_ns: 1, received_ns: 2, filtered_ns: 3, sent_ns: 4 });
        for ((k, path), sent) in report.paths.iter().zip(&delays.paths) {
            let Payload::Block { block, .. } = &path.payload else { panic!("a block was sent") };
            let error = (block - &sent.block).norm() / sent.block.norm();
            assert!(error <= tolerance, "block {k}: {error}");
            assert_eq!(path.delay_s, sent.delay_s);
        }
    }
}

/// Every payload in every precision: what comes back is off by what the sender said, and no more bytes are
/// sent than that takes.
#[test]
fn every_payload_survives_the_wire() {
    let source = source();
    let delays = DelayEstimator::new(source.system(), NODE).unwrap();
    let delays = delays.estimate(&source.frame(NODE, 7, source.target_m(7))).unwrap();
    for kind in PayloadKind::ALL {
        for precision in Precision::ALL {
            let bytes = message_of(&source, PayloadFormat { kind, precision }).encode_to_vec();
            assert!(bytes.len() <= max_report_bytes(source.system()));
            let message = v1::FrameReport::decode(bytes.as_slice()).unwrap();
            let report = report_from_wire(message, NODE, source.system()).unwrap();
            assert_eq!((report.refused.len(), report.paths.len(), report.bytes), (0, 3, bytes.len()));
            assert_eq!(report.node.arrival, delays.arrival);
            for ((_, path), sent) in report.paths.iter().zip(&delays.paths) {
                let (received, sent) = match &path.payload {
                    Payload::Parameters => continue,
                    Payload::Block { block, .. } => (block, &sent.block),
                    Payload::Spectrum(spectrum) => (spectrum, &sent.spectrum),
                };
                let error = (received - sent).norm_squared() / sent.len() as f64;
                let rounding = 1e-12 * sent.norm_squared();
                assert!(error <= 1.0001 * path.quantisation_power_w + rounding, "{kind:?} {precision:?}");
            }
        }
    }
}

#[test]
fn a_bad_block_is_named_and_takes_no_other_with_it() {
    let source = source();
    let sound = message(&source, Precision::F64);
    let spoil: [fn(&mut v1::Block); 9] = [
        |b| b.delay_s = f64::NAN,
        |b| b.delay_s = 1.0,
        |b| b.delay_variance_s2 = 0.0,
        |b| b.snr = f64::INFINITY,
        |b| b.rows = 11,
        |b| b.block = b.block.slice(1..),
        |b| b.block_derivative = vec![0xff; b.block.len()].into(),
        |b| b.precision = 9,
        |b| b.l = 2,
    ];
    for (case, spoil) in spoil.iter().enumerate() {
        let mut message = sound.clone();
        spoil(&mut message.blocks[1]);
        let report = report_from_wire(message, NODE, source.system()).unwrap();
        assert_eq!((report.paths.len(), report.refused.len()), (2, 1), "case {case}");
    }
    let mut twice = sound.clone();
    twice.blocks[2] = twice.blocks[0].clone();
    let report = report_from_wire(twice, NODE, source.system()).unwrap();
    assert_eq!(report.refused, [WireError::Repeated { l: NODE, k: 0 }]);
}

#[test]
fn a_report_that_says_nothing_sound_is_refused_whole() {
    let source = source();
    let mut many = message(&source, Precision::F32);
    many.blocks.push(many.blocks[0].clone());
    assert_eq!(report_from_wire(many, NODE, source.system()), Err(WireError::TooMany { found: 4, most: 3 }));
    let mut silent = message(&source, Precision::F32);
    silent.noise_power_w = -1.0;
    assert_eq!(report_from_wire(silent, NODE, source.system()), Err(WireError::Noise(-1.0)));
    let mut boastful = message(&source, Precision::F32);
    boastful.averaged_frames = 1001;
    assert_eq!(report_from_wire(boastful, NODE, source.system()), Err(WireError::AveragedFrames(1001)));
}

#[test]
fn a_report_says_how_many_frames_it_averages() {
    let source = source();
    let averaged = |message| report_from_wire(message, NODE, source.system()).unwrap().node.averaged_frames;
    let mut message = message(&source, Precision::F32);
    assert_eq!((message.averaged_frames, averaged(message.clone())), (1, 1));
    message.averaged_frames = 10;
    assert_eq!(averaged(message.clone()), 10);
    // A node that does not say has averaged none.
    message.averaged_frames = 0;
    assert_eq!(averaged(message), 1);
}

proptest! {
    /// Any bytes: decoded or refused, never a panic.
    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0usize..4000, value in any::<u8>()) {
        let source = source();
        if let Ok(message) = v1::FrameReport::decode(bytes.as_slice()) {
            let _ = report_from_wire(message, NODE, source.system());
        }
        let mut bytes = message(&source, Precision::F32).encode_to_vec();
        let at = at % bytes.len();
        bytes[at] = value;
        if let Ok(message) = v1::FrameReport::decode(bytes.as_slice()) {
            let _ = report_from_wire(message, NODE, source.system());
        }
    }
}
