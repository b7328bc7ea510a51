//! What a node sends of every path and how finely, in settings and on the wire.

use estimation::fusion::PayloadKind;

use crate::samples::Precision;
use crate::v1;

/// What a node sends of every path, and how finely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PayloadFormat {
    /// What is sent beside the delay.
    pub kind: PayloadKind,
    /// How finely.
    pub precision: Precision,
}

/// The payload on the wire.
pub fn payload_to_wire(kind: PayloadKind) -> v1::Payload {
    match kind {
        PayloadKind::Parameters => v1::Payload::Parameters,
        PayloadKind::Block => v1::Payload::Block,
        PayloadKind::Spectrum => v1::Payload::Spectrum,
    }
}

/// The payload that a message names; none if it names none that is known.
pub fn payload_from_wire(payload: i32) -> Option<PayloadKind> {
    match v1::Payload::try_from(payload).ok()? {
        v1::Payload::Parameters => Some(PayloadKind::Parameters),
        v1::Payload::Block => Some(PayloadKind::Block),
        v1::Payload::Spectrum => Some(PayloadKind::Spectrum),
        v1::Payload::Unspecified => None,
    }
}

/// The precision on the wire.
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

/// The precision that a message names; none if it names none that is known.
pub fn precision_from_wire(precision: i32) -> Option<Precision> {
    match v1::Precision::try_from(precision).ok()? {
        v1::Precision::F32 => Some(Precision::F32),
        v1::Precision::F64 => Some(Precision::F64),
        v1::Precision::Q16 => Some(Precision::Q16),
        v1::Precision::Q8 => Some(Precision::Q8),
        v1::Precision::Q4 => Some(Precision::Q4),
        v1::Precision::Q2 => Some(Precision::Q2),
        v1::Precision::Unspecified => None,
    }
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
