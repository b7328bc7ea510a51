//! Hostile peers of the ZeroMQ echo port: raw TCP clients on loopback, bounded in count and time. The processes go on, stay
//! within their memory, answer `/health` and end on SIGTERM.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;

/// Bytes that a hostile client sends at most.
const MOST_BYTES: usize = 192 << 20;

/// Resident memory that an attack may cost a process.
const MEMORY_BYTES: u64 = 64 << 20;

/// The greeting of ZMTP 3.0 with the mechanism NULL, and the command READY of a socket of this type.
fn handshake(socket: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[9], bytes[10]) = (0xff, 0x7f, 3);
    bytes[12..16].copy_from_slice(b"NULL");
    let mut ready = b"\x05READY\x0bSocket-Type".to_vec();
    ready.extend((socket.len() as u32).to_be_bytes());
    ready.extend(socket.as_bytes());
    bytes.extend([4, ready.len() as u8]);
    bytes.extend(ready);
    bytes
}

/// The header of a long frame.
fn long_header(more: bool, length: u64) -> Vec<u8> {
    let mut bytes = vec![2 | u8::from(more)];
    bytes.extend(length.to_be_bytes());
    bytes
}

/// A client that never reads and does not wait long for the peer to read.
struct Stranger(TcpStream);

impl Stranger {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        Self(stream)
    }

    fn dealer(address: SocketAddr) -> Self {
        let mut stranger = Self::connect(address);
        stranger.send(&handshake("DEALER"));
        stranger
    }

    /// Whether the peer took the bytes.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Sends `chunk` again and again until the peer closes the connection or stops reading, or enough is sent.
    fn flood(&mut self, chunk: &[u8]) -> usize {
        let mut sent = 0;
        while sent < MOST_BYTES && self.send(chunk) {
            sent += chunk.len();
        }
        sent
    }

    /// Waits until the peer has closed the connection.
    fn closed(&mut self) {
        self.0.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut sink = [0; 4096];
        while matches!(self.0.read(&mut sink), Ok(1..)) {}
    }
}

/// A simulator that waits for its nodes.
fn simulator(site: &Site) -> (Process, SocketAddr, SocketAddr) {
    let mut simulator = site.simulator(&["--frames", "0"]);
    let started = simulator.started();
    (simulator, started.echo.expect("an echo address"), started.http.expect("an HTTP address"))
}

fn health(http: SocketAddr) -> String {
    self::http(http, "GET /health", "", "").expect("an answer of /health").0
}

#[test]
fn a_header_that_claims_a_terabyte_costs_the_stranger_its_connection_alone() {
    let _alone = alone();
    let site = Site::new();
    let (simulator, echo, http) = simulator(&site);
    let before = simulator.memory_bytes();
    for length in [1 << 40, u64::MAX, i64::MAX as u64, 1 << 31] {
        let mut stranger = Stranger::dealer(echo);
        stranger.send(&long_header(false, length));
        stranger.send(&[0; 1000]);
        stranger.closed();
        assert!(health(http).contains("503"), "it waits for its nodes");
    }
    let grown = simulator.memory_bytes().saturating_sub(before);
    assert!(grown < MEMORY_BYTES, "{grown} bytes");
    simulator.stop();
}

#[test]
fn a_message_without_end_costs_no_memory() {
    let _alone = alone();
    let site = Site::new();
    let (simulator, echo, _) = simulator(&site);
    let before = simulator.memory_bytes();
    // Frames of 64 KiB that are never the last of their message; and one frame that is as long as all of them.
    let mut parts = long_header(true, 1 << 16);
    parts.extend(vec![7; 1 << 16]);
    let mut many = Stranger::dealer(echo);
    many.flood(&parts);
    let mut one = Stranger::dealer(echo);
    one.send(&long_header(false, MOST_BYTES as u64 + 1));
    one.flood(&vec![7; 1 << 16]);
    let grown = simulator.memory_bytes().saturating_sub(before);
    assert!(grown < MEMORY_BYTES, "{grown} bytes");
    simulator.stop();
}

#[test]
fn a_peer_that_does_not_read_holds_up_nobody() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let (simulator, echo, http) = simulator(&site);
    let nodes = site.nodes(3);
    site.until_more_fixes(10);
    // Every message of one byte is invalid and would be answered.
    let junk: Vec<u8> = [0, 1, 0xff].repeat(100_000);
    let mut stranger = Stranger::dealer(echo);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) && stranger.send(&junk) {}
    site.until_more_fixes(20);
    eventually("a healthy simulator", || health(http).contains("200").then_some(()));
    simulator.stop();
    drop(stranger);
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

#[test]
fn strangers_that_only_connect_are_sent_away_and_keep_no_node_out() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let (simulator, echo, http) = simulator(&site);
    // Silent, with half a greeting, with another protocol, with a handshake and nothing more.
    let words: [&[u8]; 4] = [b"", &[0xff, 0, 0], b"GET / HTTP/1.1\r\n\r\n", &handshake("DEALER")];
    let connect = |turn: usize| {
        let mut stranger = Stranger::connect(echo);
        stranger.send(words[turn % 4]);
        stranger
    };
    let mut strangers: Vec<Stranger> = (0..400).map(connect).collect();
    let nodes = site.nodes(3);
    site.until_more_fixes(20);
    eventually("a healthy simulator", || health(http).contains("200").then_some(()));
    let began = Instant::now();
    strangers.iter_mut().for_each(Stranger::closed);
    assert!(began.elapsed() < PATIENCE);
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

#[test]
fn a_node_survives_a_hostile_simulator() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let hostile = TcpListener::bind(site.echo).expect("the echo address");
    let mut node = site.node(0, &[]);
    let http = node.started().http.expect("an HTTP address");
    let mut part = long_header(true, 1 << 16);
    part.extend(vec![7; 1 << 16]);
    let attacks: [(Vec<u8>, Vec<u8>); 4] = [
        (long_header(false, 1 << 40), vec![0; 1000]),
        (long_header(false, MOST_BYTES as u64 + 1), vec![7; 1 << 16]),
        (Vec::new(), part),
        (vec![0xff; 64], Vec::new()),
    ];
    let before = node.memory_bytes();
    for (first, then) in attacks {
        let (stream, _) = hostile.accept().expect("the node");
        let mut simulator = Stranger(stream);
        simulator.0.set_write_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        simulator.send(&handshake("ROUTER"));
        simulator.send(&first);
        if !then.is_empty() {
            simulator.flood(&then);
        }
        assert!(health(http).contains("503"), "not subscribed");
    }
    let grown = node.memory_bytes().saturating_sub(before);
    assert!(grown < MEMORY_BYTES, "{grown} bytes");
    node.stop();
    fusion.stop();
}
