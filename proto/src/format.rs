//! Payload kind and precision of the path reports, in settings and on the wire.

use estimation::fusion::PayloadKind;

use crate::samples::Precision;
use crate::v1;

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
    let kinds = [PayloadKind::Parameters, PayloadKind::Block, PayloadKind::Spectrum];
    kinds.into_iter().find(|&kind| payload_to_wire(kind) as i32 == payload)
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
        for kind in [PayloadKind::Parameters, PayloadKind::Block, PayloadKind::Spectrum] {
            assert_eq!(payload_from_wire(payload_to_wire(kind) as i32), Some(kind));
        }
        for unknown in [0, 99, -1] {
            assert_eq!((payload_from_wire(unknown), precision_from_wire(unknown)), (None, None));
        }
    }
}
