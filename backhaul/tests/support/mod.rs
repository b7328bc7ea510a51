//! A relay on loopback, with a stand-in for the fusion center behind it.
#![allow(dead_code)]

pub mod machine;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use backhaul::measure::Refusal;
use backhaul::plan::Plan;
use backhaul::relay::Relay;
use telemetry::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Bytes of a probe.
pub const PROBE: usize = 64;

/// One measurement at a time.
pub async fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::const_new(());
    LOCK.lock().await
}

/// A relay with one port per link.
pub struct Site {
    pub relay: Relay,
    /// When the relay's times began, to a few microseconds.
    pub epoch: Instant,
    ports: Vec<(String, SocketAddr)>,
    fusion: TcpListener,
    _stop: DropGuard,
}

impl Site {
    pub async fn new(plan: &str, links: &[&str], seed: u64) -> Result<Self, Refusal> {
        let fusion = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = fusion.local_addr().unwrap().to_string();
        let plan = Plan::parse(plan, "clear").unwrap();
        let names = links.iter().map(|name| name.to_string());
        let relay = Relay::new(&address, plan, seed, names, &Metrics::new()).await?;
        let epoch = Instant::now();
        let stop = CancellationToken::new();
        let mut ports = Vec::new();
        for name in links {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ports.push((name.to_string(), listener.local_addr().unwrap()));
            tokio::spawn(relay.clone().serve(listener, Some(name.to_string()), stop.clone()));
        }
        Ok(Self { relay, epoch, ports, fusion, _stop: stop.drop_guard() })
    }

    pub fn port(&self, link: &str) -> SocketAddr {
        self.ports.iter().find(|(name, _)| name == link).unwrap().1
    }

    /// A connection over a link: the node's end and the fusion center's.
    pub async fn connect(&self, link: &str) -> (TcpStream, TcpStream) {
        let node = TcpStream::connect(self.port(link)).await.unwrap();
        let (fusion, _) = self.fusion.accept().await.unwrap();
        node.set_nodelay(true).unwrap();
        fusion.set_nodelay(true).unwrap();
        (node, fusion)
    }
}

/// Sends `count` probes, `gap` apart: when each was sent and when it arrived.
pub async fn probes(
    from: &mut (impl AsyncWriteExt + Unpin),
    to: &mut (impl AsyncReadExt + Unpin),
    count: usize,
    gap: Duration,
) -> Vec<(Instant, Instant)> {
    let send = async {
        let mut sent = Vec::new();
        let mut tick = tokio::time::interval(gap);
        for _ in 0..count {
            tick.tick().await;
            sent.push(Instant::now());
            from.write_all(&[7; PROBE]).await.unwrap();
        }
        sent
    };
    let receive = async {
        let mut received = Vec::new();
        let mut probe = [0; PROBE];
        for _ in 0..count {
            to.read_exact(&mut probe).await.unwrap();
            received.push(Instant::now());
        }
        received
    };
    let (sent, received) = tokio::join!(send, receive);
    sent.into_iter().zip(received).collect()
}

/// Times on the way, sorted, in milliseconds.
pub fn times_ms(probes: &[(Instant, Instant)]) -> Vec<f64> {
    let mut times: Vec<f64> = probes.iter().map(|(s, r)| (*r - *s).as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Rate of `bytes` sent at once, Mbit/s: the median over all pairs of arrivals that lie half of them apart, which
/// a few late ones do not move.
pub async fn rate_mbit_s(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) -> f64 {
    let send = async {
        let block = vec![1; 65_536];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(block.len());
            from.write_all(&block[..now]).await.unwrap();
            left -= now;
        }
    };
    let receive = async {
        let (mut buffer, mut arrived, mut arrivals) = (vec![0; 65_536], 0, Vec::new());
        while arrived < bytes {
            arrived += to.read(&mut buffer).await.unwrap();
            arrivals.push((Instant::now(), arrived));
        }
        arrivals
    };
    let arrivals = tokio::join!(send, receive).1;
    let pairs = arrivals.iter().zip(&arrivals[arrivals.len() / 2..]);
    let rate = |(a, b): (&(Instant, usize), &(Instant, usize))| {
        (b.1 - a.1) as f64 * 8e-6 / (b.0 - a.0).as_secs_f64()
    };
    let mut rates: Vec<f64> = pairs.map(rate).collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
