//! Assembles the messages of a peer from its byte stream. Memory follows the bytes that have come, within the limits of
//! the [`Scanner`], never a length that was only claimed.

use bytes::Bytes;

use super::scan::{FrameHeader, MessageLimits, Scanner, Token, Violation};

/// Something complete from the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboundEvent {
    /// The greeting came.
    Greeting,
    /// The command READY of a DEALER came: the handshake is complete.
    Ready,
    /// The frames of a message.
    Message(Vec<Bytes>),
}

/// What has come of the current message.
#[derive(Debug, Clone)]
pub struct Inbound {
    scanner: Scanner,
    /// The current frame: its header and its bytes so far.
    frame: Option<(FrameHeader, Vec<u8>)>,
    parts: Vec<Bytes>,
}

impl Inbound {
    pub fn new(limits: MessageLimits) -> Self {
        Self { scanner: Scanner::new(limits), frame: None, parts: Vec::new() }
    }

    /// Takes bytes from the front of `input` until something is complete; none if all of it is taken.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<InboundEvent>, Violation> {
        while let Some(token) = self.scanner.next(input)? {
            match token {
                Token::Greeting => return Ok(Some(InboundEvent::Greeting)),
                Token::Header(header) => self.frame = Some((header, Vec::new())),
                Token::Body(bytes) => {
                    if let Some((_, body)) = &mut self.frame {
                        body.extend_from_slice(bytes);
                    }
                }
            }
            if let Some(event) = self.finished()? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The event that the current frame completes, if it is whole.
    fn finished(&mut self) -> Result<Option<InboundEvent>, Violation> {
        let whole = |(header, body): &(FrameHeader, Vec<u8>)| body.len() as u64 == header.length;
        let Some((header, body)) = self.frame.take_if(|frame| whole(frame)) else { return Ok(None) };
        if header.command {
            return if is_ready_of_a_dealer(&body) {
                Ok(Some(InboundEvent::Ready))
            } else {
                Err(Violation::Ready)
            };
        }
        self.parts.push(body.into());
        let complete = !header.more;
        Ok(complete.then(|| InboundEvent::Message(std::mem::take(&mut self.parts))))
    }
}

/// Whether a command is READY with the property Socket-Type = DEALER; other properties are skipped.
fn is_ready_of_a_dealer(command: &[u8]) -> bool {
    let Some(mut properties) = command.strip_prefix(b"\x05READY") else { return false };
    let mut dealer = false;
    while !properties.is_empty() {
        let Some((name, value, rest)) = property(properties) else { return false };
        dealer |= name.eq_ignore_ascii_case(b"Socket-Type") && value == b"DEALER";
        properties = rest;
    }
    dealer
}

/// Name and value of the first property, and what follows it.
fn property(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(length.into())?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((name, value, rest))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::GREETING;
    use super::*;

    const LIMITS: MessageLimits = MessageLimits { frame_bytes: 100, frames: 2 };
    const READY: &[u8] =
        b"\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00";

    fn events(stream: &[u8]) -> Result<Vec<InboundEvent>, Violation> {
        let (mut inbound, mut input, mut events) = (Inbound::new(LIMITS), stream, Vec::new());
        while let Some(event) = inbound.next(&mut input)? {
            events.push(event);
        }
        Ok(events)
    }

    #[test]
    fn a_handshake_and_messages() {
        let mut stream = [&GREETING[..], READY].concat();
        assert_eq!(READY[1] as usize, READY.len() - 2);
        stream.extend([1, 2, 7, 8, 0, 1, 9, 0, 0, 0, 3, 1]);
        let parts = |parts: &[&'static [u8]]| {
            InboundEvent::Message(parts.iter().map(|p| Bytes::from_static(p)).collect())
        };
        let expected = [InboundEvent::Greeting, InboundEvent::Ready, parts(&[&[7, 8], &[9]]), parts(&[&[]])];
        assert_eq!(events(&stream), Ok(expected.to_vec()));
    }

    #[test]
    fn another_socket_or_a_malformed_command_is_refused() {
        let with = |command: &[u8]| {
            let mut stream = GREETING.to_vec();
            stream.extend([4, command.len() as u8]);
            stream.extend(command);
            events(&stream)
        };
        for command in [
            &b"\x05READY"[..],
            b"\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB",
            b"\x05READY\x0bSocket-Type\x00\x00\x00\xffDEALER",
            b"\x05READY\x0bSocket-Type\x00\x00",
            b"\x05READY\xffSocket-Type",
            b"\x05ERROR\x00",
            b"",
        ] {
            assert_eq!(with(command), Err(Violation::Ready), "{command:?}");
        }
    }

    proptest! {
        #[test]
        fn messages_stay_within_the_limits(bytes in vec(any::<u8>(), 0..600), plain in any::<bool>()) {
            let mut stream = [&GREETING[..], READY].concat();
            stream.extend(bytes.into_iter().map(|byte| if plain { byte % 4 } else { byte }));
            let (mut inbound, mut input) = (Inbound::new(LIMITS), &stream[..]);
            while let Ok(Some(event)) = inbound.next(&mut input) {
                if let InboundEvent::Message(parts) = event {
                    prop_assert!(parts.len() <= 2 && parts.iter().all(|part| part.len() <= 100));
                }
            }
            let held = inbound.frame.as_ref().map_or(0, |(_, body)| body.len());
            prop_assert!(held <= 100 && inbound.parts.len() <= 2);
        }
    }
}
