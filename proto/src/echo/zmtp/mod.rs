//! ZMTP 3.0, the wire protocol of ZeroMQ, as far as the echo leg needs it: one message type each way, mechanism NULL.
//!
//! The crate `zeromq` allocates the length that a frame header claims, has no limit on frames per message, handshakes
//! or connections, and awaits peers that do not read. A header of 2^40 bytes from any stranger aborts the process. The
//! public port of the simulator therefore is an endpoint of its own (`router`), which is less code than a guard around the
//! crate's ROUTER would be and needs no second socket: the guard would have to parse the same headers, and could
//! neither close a single connection nor bound the crate's queues of 100 000 messages.
//! The node's side is the crate's DEALER behind a `guard`: a node has one connection, which the guard can check and close,
//! and every run shows that the endpoint works with the crate.
//!
//! [`scan`] checks headers, [`inbound`] assembles messages and `guests` decides who may stay; all three are pure state
//! machines without sockets or clocks.

pub(super) mod guard;
pub(super) mod guests;
pub mod inbound;
pub(super) mod router;
pub mod scan;

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

/// Time for greeting and READY.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// A peer that takes no byte for this long is disconnected.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The greeting: signature, version 3.0, mechanism NULL, not as a server.
pub const GREETING: [u8; 64] = {
    let mut bytes = [0; 64];
    (bytes[0], bytes[9], bytes[10]) = (0xff, 0x7f, 3);
    (bytes[12], bytes[13], bytes[14], bytes[15]) = (b'N', b'U', b'L', b'L');
    bytes
};

/// The command READY of a ROUTER, with its header.
pub const READY_ROUTER: &[u8] = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER";

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Writes the header of a message frame.
pub fn put_header(out: &mut BytesMut, length: usize, more: bool) {
    let more = if more { MORE } else { 0 };
    match u8::try_from(length) {
        Ok(short) => out.extend_from_slice(&[more, short]),
        Err(_) => {
            out.put_u8(more | LONG);
            out.put_u64(length as u64);
        }
    }
}

/// The bytes of a message in front of its last frame: all other frames with their headers, and the header of the last.
pub fn head_of(first: &[u8], payload: Option<&Bytes>) -> BytesMut {
    let mut out = BytesMut::with_capacity(first.len() + 18);
    put_header(&mut out, first.len(), payload.is_some());
    out.extend_from_slice(first);
    if let Some(payload) = payload {
        put_header(&mut out, payload.len(), false);
    }
    out
}
