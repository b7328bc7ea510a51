//! A relay on loopback, with a stand-in for the fusion center behind it.
#![allow(dead_code)]

use std::net::SocketAddr;

use hyloc_backhaul::measure::Trust;
use hyloc_backhaul::plan::Plan;
use hyloc_backhaul::relay::Relay;
use telemetry::Metrics;
use telemetry::listener::{Limiter, limits};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::{CancellationToken, DropGuard};

/// One relay at a time, because SIGHUP reaches all relays of a process.
pub async fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::const_new(());
    LOCK.lock().await
}

/// A relay with one port per link. It is not measured, so that tests pass on a busy machine.
pub struct Site {
    pub relay: Relay,
    ports: Vec<(String, SocketAddr)>,
    fusion: TcpListener,
    _stop: DropGuard,
}

impl Site {
    pub async fn new(plan: &str, links: &[&str], seed: u64) -> Self {
        let fusion = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = fusion.local_addr().unwrap().to_string();
        let plan = (Plan::parse(plan, "clear").unwrap(), Trust::Unmeasured);
        let names = links.iter().map(|name| name.to_string());
        let metrics = Metrics::new();
        let relay = Relay::new(&address, plan, seed, names, &metrics).await.unwrap();
        let limiter = Limiter::new(limits::RELAY, &metrics);
        let stop = CancellationToken::new();
        let mut ports = Vec::new();
        for name in links {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ports.push((name.to_string(), listener.local_addr().unwrap()));
            let listener = limiter.listen(listener);
            tokio::spawn(relay.clone().serve(listener, Some(name.to_string()), stop.clone()));
        }
        Self { relay, ports, fusion, _stop: stop.drop_guard() }
    }

    pub fn port(&self, link: &str) -> SocketAddr {
        self.ports.iter().find(|(name, _)| name == link).unwrap().1
    }

    /// A connection over a link: node end and fusion center end.
    pub async fn connect(&self, link: &str) -> (TcpStream, TcpStream) {
        let node = TcpStream::connect(self.port(link)).await.unwrap();
        let (fusion, _) = self.fusion.accept().await.unwrap();
        node.set_nodelay(true).unwrap();
        fusion.set_nodelay(true).unwrap();
        (node, fusion)
    }
}
