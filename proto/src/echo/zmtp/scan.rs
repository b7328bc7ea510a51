//! Checks the byte stream of a ZMTP peer before anything is allocated for it: greeting, frame headers, their order, lengths
//! and number.
//!
//! The scanner holds at most the 64 bytes of a greeting. It can be given bytes in any pieces; the outcome does not depend
//! on where they were cut.

use super::{COMMAND, LONG, MORE};

const GREETING_BYTES: usize = 64;

/// What a peer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLimits {
    /// Longest frame of a message.
    pub frame_bytes: u64,
    /// Most frames of a message.
    pub frames: u32,
}

/// Longest command: READY with a socket type and an identity of at most 255 bytes.
pub const COMMAND_BYTES: u64 = 512;

/// Why a peer does not speak the protocol as it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the greeting is not that of ZMTP")]
    Signature,
    #[error("ZMTP version {0}.x: 3.0 or later is needed")]
    Version(u8),
    #[error("the security mechanism is not NULL")]
    Mechanism,
    #[error("the frame flags 0x{0:02x} are not defined")]
    Flags(u8),
    #[error("the first frame is not a command")]
    NoCommand,
    #[error("a command after the handshake")]
    LateCommand,
    #[error("a command of {0} bytes: at most {COMMAND_BYTES}")]
    LongCommand(u64),
    #[error("a frame of {found} bytes: at most {most}")]
    LongFrame { found: u64, most: u64 },
    #[error("more than {0} frames in a message")]
    Frames(u32),
    #[error("the command READY is malformed or of another socket type")]
    Ready,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub command: bool,
    pub more: bool,
    pub length: u64,
}

/// A piece of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    Greeting,
    Header(FrameHeader),
    /// Some or all of the bytes of the frame.
    Body(&'a [u8]),
}

#[derive(Debug, Clone)]
enum ScanState {
    Greeting {
        bytes: [u8; GREETING_BYTES],
        filled: usize,
    },
    /// Flags, then one byte of length or eight.
    Header {
        bytes: [u8; 9],
        filled: usize,
    },
    Body {
        left: u64,
    },
}

/// Position in the stream of one peer.
#[derive(Debug, Clone)]
pub struct Scanner {
    limits: MessageLimits,
    state: ScanState,
    /// Whether the command that ends the handshake has begun.
    commanded: bool,
    /// Frames of the current message so far.
    frames: u32,
}

const HEADER: ScanState = ScanState::Header { bytes: [0; 9], filled: 0 };

impl Scanner {
    pub fn new(limits: MessageLimits) -> Self {
        let state = ScanState::Greeting { bytes: [0; GREETING_BYTES], filled: 0 };
        Self { limits, state, commanded: false, frames: 0 }
    }

    /// Takes the next token from the front of `input`; none if all of it is taken and more is needed. After an error the
    /// connection must be closed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Token<'a>>, Violation> {
        match &mut self.state {
            ScanState::Greeting { bytes, filled } => {
                fill(bytes, filled, GREETING_BYTES, input);
                if *filled > 0 && bytes[0] != 0xff {
                    return Err(Violation::Signature);
                }
                if *filled < GREETING_BYTES {
                    return Ok(None);
                }
                check_greeting(bytes)?;
                self.state = HEADER;
                Ok(Some(Token::Greeting))
            }
            ScanState::Header { bytes, filled } => {
                fill(bytes, filled, 1, input);
                let flags = bytes[0];
                if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
                    return Err(Violation::Flags(flags));
                }
                let long = flags & LONG != 0;
                let whole = if long { 9 } else { 2 };
                fill(bytes, filled, whole, input);
                if *filled < whole {
                    return Ok(None);
                }
                let mut length = [0; 8];
                let digits = if long { &bytes[1..9] } else { &bytes[1..2] };
                length[8 - digits.len()..].copy_from_slice(digits);
                let header = FrameHeader {
                    command: flags & COMMAND != 0,
                    more: flags & MORE != 0,
                    length: u64::from_be_bytes(length),
                };
                self.check(header)?;
                self.state =
                    if header.length == 0 { HEADER } else { ScanState::Body { left: header.length } };
                Ok(Some(Token::Header(header)))
            }
            ScanState::Body { left } => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                if count == 0 {
                    return Ok(None);
                }
                let (body, rest) = input.split_at(count);
                *input = rest;
                *left -= count as u64;
                if *left == 0 {
                    self.state = HEADER;
                }
                Ok(Some(Token::Body(body)))
            }
        }
    }

    /// Checks all of `input`, for a caller that passes it on.
    pub fn check_all(&mut self, mut input: &[u8]) -> Result<(), Violation> {
        while self.next(&mut input)?.is_some() {}
        Ok(())
    }

    fn check(&mut self, header: FrameHeader) -> Result<(), Violation> {
        let MessageLimits { frame_bytes, frames } = self.limits;
        match (header.command, self.commanded) {
            (false, false) => return Err(Violation::NoCommand),
            (true, true) => return Err(Violation::LateCommand),
            (true, false) if header.length > COMMAND_BYTES => {
                return Err(Violation::LongCommand(header.length));
            }
            (true, false) => {
                self.commanded = true;
                return Ok(());
            }
            (false, true) => {}
        }
        if header.length > frame_bytes {
            return Err(Violation::LongFrame { found: header.length, most: frame_bytes });
        }
        self.frames += 1;
        if self.frames > frames {
            return Err(Violation::Frames(frames));
        }
        if !header.more {
            self.frames = 0;
        }
        Ok(())
    }
}

/// Moves bytes from `input` until `whole` are there.
fn fill(bytes: &mut [u8], filled: &mut usize, whole: usize, input: &mut &[u8]) {
    let count = whole.saturating_sub(*filled).min(input.len());
    let (taken, rest) = input.split_at(count);
    bytes[*filled..*filled + count].copy_from_slice(taken);
    *filled += count;
    *input = rest;
}

fn check_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<(), Violation> {
    if bytes[9] != 0x7f {
        return Err(Violation::Signature);
    }
    if bytes[10] < 3 {
        return Err(Violation::Version(bytes[10]));
    }
    let mut mechanism = [0; 20];
    mechanism[..4].copy_from_slice(b"NULL");
    if bytes[12..32] != mechanism {
        return Err(Violation::Mechanism);
    }
    Ok(())
}

/// Headers, bytes of bodies and the violation of a stream that comes in pieces: what tests and fuzz targets compare.
#[doc(hidden)]
pub fn scan_pieces(limits: MessageLimits, pieces: &[&[u8]]) -> (Vec<FrameHeader>, usize, Option<Violation>) {
    let (mut scanner, mut headers, mut body) = (Scanner::new(limits), Vec::new(), 0);
    for piece in pieces {
        let mut input = *piece;
        loop {
            match scanner.next(&mut input) {
                Ok(Some(Token::Greeting)) => {}
                Ok(Some(Token::Header(header))) => headers.push(header),
                Ok(Some(Token::Body(bytes))) => body += bytes.len(),
                Ok(None) => break,
                Err(violation) => return (headers, body, Some(violation)),
            }
        }
        assert!(input.is_empty(), "bytes were left over");
    }
    (headers, body, None)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{GREETING, READY_ROUTER};
    use super::*;

    const LIMITS: MessageLimits = MessageLimits { frame_bytes: 300, frames: 2 };

    fn opening() -> Vec<u8> {
        [&GREETING[..], READY_ROUTER].concat()
    }

    fn scanned(pieces: &[&[u8]]) -> (Vec<FrameHeader>, usize, Option<Violation>) {
        scan_pieces(LIMITS, pieces)
    }

    fn violation(after_opening: &[u8]) -> Option<Violation> {
        scanned(&[&opening(), after_opening]).2
    }

    #[test]
    fn a_proper_stream_passes() {
        let mut stream = opening();
        stream.extend([1, 2, 7, 7, 0, 0]);
        stream.extend([2, 0, 0, 0, 0, 0, 0, 1, 44]);
        stream.extend(vec![9; 300]);
        let (headers, body, violation) = scanned(&[&stream]);
        assert_eq!(violation, None);
        let told: Vec<(bool, bool, u64)> = headers.iter().map(|h| (h.command, h.more, h.length)).collect();
        assert_eq!(told, [(true, false, 28), (false, true, 2), (false, false, 0), (false, false, 300)]);
        assert_eq!(body, 28 + 2 + 300);
    }

    #[test]
    fn hostile_lengths_are_refused_at_the_header() {
        for length in [301, 1 << 31, 1 << 40, i64::MAX as u64, u64::MAX] {
            let mut header = vec![2];
            header.extend(length.to_be_bytes());
            assert_eq!(violation(&header), Some(Violation::LongFrame { found: length, most: 300 }));
        }
        let mut command = GREETING.to_vec();
        command.push(6);
        command.extend((1u64 << 40).to_be_bytes());
        assert_eq!(scanned(&[&command]).2, Some(Violation::LongCommand(1 << 40)));
    }

    #[test]
    fn order_flags_and_numbers_are_checked() {
        assert_eq!(violation(&[1, 0, 1, 0, 0, 0]), Some(Violation::Frames(2)));
        assert_eq!(violation(&[0, 0, 1, 0, 0, 0, 1, 0, 0, 0]), None, "messages are counted one by one");
        assert_eq!(violation(&[4, 5]), Some(Violation::LateCommand));
        assert_eq!(violation(&[8, 0]), Some(Violation::Flags(8)));
        assert_eq!(violation(&[5, 0]), Some(Violation::Flags(5)));
        assert_eq!(scanned(&[&GREETING, &[0, 1]]).2, Some(Violation::NoCommand));
    }

    #[test]
    fn other_greetings_are_refused() {
        assert_eq!(scanned(&[b"G"]).2, Some(Violation::Signature), "at the first byte");
        let with = |at: usize, value: u8| {
            let mut greeting = GREETING;
            greeting[at] = value;
            scanned(&[&greeting]).2
        };
        assert_eq!(with(9, 0), Some(Violation::Signature));
        assert_eq!(with(10, 1), Some(Violation::Version(1)));
        assert_eq!(with(12, b'C'), Some(Violation::Mechanism));
        assert_eq!(with(31, 1), Some(Violation::Mechanism));
        assert_eq!(with(11, 1), None, "a later minor version");
    }

    proptest! {
        #[test]
        fn the_outcome_does_not_depend_on_the_cuts(
            tail in vec(any::<u8>(), 0..60),
            small in vec(0u8..6, 0..60),
            opened in any::<bool>(),
            cuts in vec(0usize..200, 0..8),
        ) {
            let mut stream = if opened { opening() } else { Vec::new() };
            stream.extend(small);
            stream.extend(tail);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (stream.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([stream.len()]) {
                pieces.push(&stream[from..cut]);
                from = cut;
            }
            prop_assert_eq!(scanned(&pieces), scanned(&[&stream]));
        }

        #[test]
        fn no_header_past_the_limits_is_let_through(mut stream in vec(any::<u8>(), 0..400), opened in any::<bool>()) {
            if opened {
                stream.splice(0..0, opening());
            }
            let (headers, body, _) = scanned(&[&stream]);
            prop_assert!(body <= stream.len());
            for header in headers {
                let most = if header.command { COMMAND_BYTES } else { LIMITS.frame_bytes };
                prop_assert!(header.length <= most);
            }
        }
    }
}
