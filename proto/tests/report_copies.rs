//! What a report costs on its way to the solver: its bytes are shared with the buffer they were received in, and every matrix is
//! decoded into the only memory that is allocated for it.

#[path = "../../estimation/tests/support/counting.rs"]
mod counting;

use bytes::{Buf, Bytes, BytesMut};
use counting::allocations;
use estimation::delay::DelayEstimator;
use estimation::fusion::{Payload, PayloadKind};
use hyloc_proto::convert::{FrameId, PayloadFormat, Times, report_from_wire, report_message};
use hyloc_proto::samples::Precision;
use hyloc_proto::v1;
use model::{EchoSource, Scenario};
use prost::Message;

#[test]
fn a_payload_is_copied_once() {
    let source = EchoSource::new(&Scenario::default()).unwrap();
    let system = source.system();
    let delays =
        DelayEstimator::new(system, 1).unwrap().estimate(&source.frame(1, 7, source.target_m(7))).unwrap();
    let frame = FrameId { run: 5, frame: 7 };
    for (kind, precision) in PayloadKind::ALL.into_iter().flat_map(|kind| Precision::ALL.map(|p| (kind, p))) {
        let sent = report_message(frame, 1, &delays, PayloadFormat { kind, precision }, Times::default());
        // As the server does: messages are decoded from the buffer in which the bytes of the connection are collected.
        let mut received = BytesMut::from(sent.encode_to_vec().as_slice());
        let buffer = received.as_ptr_range();
        let message = v1::FrameReport::decode(&mut received).unwrap();
        let fields = |message: &v1::FrameReport| -> Vec<Bytes> {
            let blocks = message.blocks.iter();
            blocks.flat_map(|b| [b.block.clone(), b.block_derivative.clone(), b.spectrum.clone()]).collect()
        };
        let filled = fields(&message).into_iter().filter(|field| field.has_remaining()).collect::<Vec<_>>();
        assert!(
            filled.iter().all(|field| buffer.contains(&field.as_ptr())),
            "{kind:?}: copied out of the buffer"
        );
        // A recording keeps a clone.
        let kept = fields(&message.clone());
        assert!(kept.iter().zip(fields(&message)).all(|(a, b)| a.as_ptr() == b.as_ptr()));
        let before = allocations();
        let report = report_from_wire(message, 1, system).unwrap();
        let made = allocations() - before;
        assert!(report.refused.is_empty() && report.paths.len() == 3);
        let matrices = report.paths.iter().map(|(_, path)| match path.payload {
            Payload::Parameters => 0,
            Payload::Block { .. } => 2,
            Payload::Spectrum(_) => 1,
        });
        let matrices: usize = matrices.sum();
        assert_eq!(matrices, filled.len());
        // The list of paths is the other allocation.
        assert_eq!(made, matrices + 1, "{kind:?} {precision:?}");
    }
}
