//! The relay: links, the connections on them, and the plan they follow.
//!
//! A connection belongs to the link whose port it came to. On the common port it belongs to the link of its
//! source address: one that the plan names by this address or by a host name that resolves to it, else a new one
//! that is called by the address and goes with its last connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use telemetry::{Counter, Metrics};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::lane::{Instruments, Lane};
use crate::measure::{Measured, Refusal, measure};
use crate::plan::{MOST_LINKS, Plan};
use crate::profile::Direction;
use crate::wire::Wire;

/// Connections of one link at once.
const MOST_CONNECTIONS: usize = 16;

/// How long the fusion center gets to take a connection, and a name to be resolved.
const PATIENCE: Duration = Duration::from_secs(2);

/// Measurements that are remembered.
const MOST_MEASURED: usize = 256;

/// One link.
#[derive(Debug)]
pub struct Link {
    name: String,
    up: Arc<Lane>,
    down: Arc<Lane>,
    cut: watch::Sender<bool>,
    connections: AtomicUsize,
    /// Stays without connections: it has a port of its own.
    fixed: bool,
}

/// A link as it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkView {
    /// Its name.
    pub name: String,
    /// The profile that it starts from.
    pub profile: String,
    /// Whether it is cut.
    pub cut: bool,
    /// Connections now.
    pub connections: usize,
    /// Bytes on the way to the fusion center.
    pub queued_up: usize,
    /// Bytes on the way back.
    pub queued_down: usize,
}

/// The relay; cheap to clone.
#[derive(Debug, Clone)]
pub struct Relay(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fusion: String,
    seed: u64,
    epoch: Instant,
    state: Mutex<State>,
    measured: tokio::sync::Mutex<Vec<(Direction, Measured)>>,
    instruments: [Instruments; 2],
    taken: Counter,
    refused: Counter,
    broken: Counter,
}

#[derive(Debug)]
struct State {
    plan: Arc<Plan>,
    links: BTreeMap<String, Arc<Link>>,
}

impl Relay {
    /// A relay to `fusion` under `plan`, which is measured first; times count from now on.
    pub async fn new(
        fusion: &str,
        plan: Plan,
        seed: u64,
        fixed: impl IntoIterator<Item = String>,
        metrics: &Metrics,
    ) -> Result<Self, Refusal> {
        let connections = |fate| {
            metrics.counter("hyloc_backhaul_connections_total", "Connections by fate.", &[("fate", fate)])
        };
        let mut measured = Vec::new();
        check(&plan, &mut measured).await?;
        let relay = Self(Arc::new(Inner {
            fusion: fusion.to_owned(),
            seed,
            epoch: Instant::now(),
            state: Mutex::new(State { plan: Arc::new(plan), links: BTreeMap::new() }),
            measured: tokio::sync::Mutex::new(measured),
            instruments: [Instruments::new(metrics, "up"), Instruments::new(metrics, "down")],
            taken: connections("taken"),
            refused: connections("refused"),
            broken: connections("broken"),
        }));
        for name in fixed {
            relay.link(&name, true);
        }
        Ok(relay)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan.
    pub fn plan(&self) -> Arc<Plan> {
        self.state().plan.clone()
    }

    /// Measures what is new in `plan`, then follows it. A link that was cut by hand is as the plan says again.
    pub async fn apply(&self, plan: Plan) -> Result<(), Refusal> {
        // Held to the end: one change at a time.
        let mut measured = self.0.measured.lock().await;
        check(&plan, &mut measured).await?;
        let mut state = self.state();
        state.plan = Arc::new(plan);
        for link in state.links.values() {
            let plan = state.plan.of(&link.name);
            link.up.change(plan.up, self.0.seed, &link.name);
            link.down.change(plan.down, self.0.seed, &link.name);
            link.cut.send_replace(plan.cut);
        }
        tracing::info!(profile = state.plan.of("").profile, "the plan has changed");
        Ok(())
    }

    /// What has been measured so far.
    pub async fn measured(&self) -> Vec<(Direction, Measured)> {
        self.0.measured.lock().await.clone()
    }

    /// All links.
    pub fn links(&self) -> Vec<LinkView> {
        let state = self.state();
        let view = |link: &Arc<Link>| LinkView {
            name: link.name.clone(),
            profile: state.plan.of(&link.name).profile.clone(),
            cut: *link.cut.borrow(),
            connections: link.connections.load(Ordering::Acquire),
            queued_up: link.up.queued(),
            queued_down: link.down.queued(),
        };
        state.links.values().map(view).collect()
    }

    /// Cuts or restores a link, or all of them: by its name, its address, or a host name that resolves to it.
    /// Gives the names of those that it was done to.
    pub async fn set_cut(&self, wanted: Option<&str>, cut: bool) -> Vec<String> {
        let mut names: Vec<String> = match wanted {
            Some(name) => vec![name.to_owned()],
            None => self.state().links.keys().cloned().collect(),
        };
        if let Some(name) = wanted {
            names.extend(addresses(name).await.iter().map(IpAddr::to_string));
        }
        names.sort();
        names.dedup();
        let state = self.state();
        names.retain(|name| state.links.contains_key(name));
        for name in &names {
            state.links[name].cut.send_replace(cut);
            tracing::info!(link = name, cut, "by hand");
        }
        names
    }

    /// Takes connections of one port until `shutdown`; the port of link `name`, or the common one.
    pub async fn serve(self, listener: TcpListener, name: Option<String>, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((node, source)) => {
                    let (relay, name) = (self.clone(), name.clone());
                    connections.spawn(async move {
                        let name = match name {
                            Some(name) => name,
                            None => relay.name_of(source.ip().to_canonical()).await,
                        };
                        relay.connection(node, &name).await;
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely: let some close first.
                    tracing::warn!(%error, "a connection cannot be taken");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        connections.shutdown().await;
    }

    /// The link of a source address.
    async fn name_of(&self, source: IpAddr) -> String {
        let plain = source.to_string();
        let names: Vec<String> = self.plan().names().map(str::to_owned).collect();
        for name in names {
            if name == plain || addresses(&name).await.contains(&source) {
                return name;
            }
        }
        plain
    }

    /// The link of that name; none if there are too many.
    fn link(&self, name: &str, fixed: bool) -> Option<Arc<Link>> {
        let mut state = self.state();
        if let Some(link) = state.links.get(name) {
            return Some(link.clone());
        }
        if state.links.len() >= MOST_LINKS {
            return None;
        }
        let plan = state.plan.of(name);
        let lane = |direction: Direction, upwards: bool| {
            let wire = Wire::new(direction, self.0.seed, name, upwards, self.0.epoch.elapsed());
            Arc::new(Lane::new(wire, self.0.epoch, self.0.instruments[usize::from(!upwards)].clone()))
        };
        let link = Arc::new(Link {
            name: name.to_owned(),
            up: lane(plan.up, true),
            down: lane(plan.down, false),
            cut: watch::Sender::new(plan.cut),
            connections: AtomicUsize::new(0),
            fixed,
        });
        state.links.insert(name.to_owned(), link.clone());
        Some(link)
    }

    /// One connection from its beginning to its end.
    async fn connection(&self, node: TcpStream, name: &str) {
        let Some(link) = self.link(name, false) else {
            self.0.refused.increment();
            tracing::warn!(link = name, "refused: there are {MOST_LINKS} links already");
            return reset(&node);
        };
        let mut cut = link.cut.subscribe();
        let held = link.connections.fetch_add(1, Ordering::AcqRel);
        if *cut.borrow_and_update() || held >= MOST_CONNECTIONS {
            self.0.refused.increment();
            reset(&node);
        } else {
            self.0.taken.increment();
            self.relay(node, &link, cut).await;
        }
        if link.connections.fetch_sub(1, Ordering::AcqRel) == 1 && !link.fixed {
            let mut state = self.state();
            // A cut link is remembered: its node must not come back by asking again.
            let idle = link.connections.load(Ordering::Acquire) == 0 && !*link.cut.borrow();
            if idle {
                state.links.remove(name);
            }
        }
    }

    async fn relay(&self, node: TcpStream, link: &Link, mut cut: watch::Receiver<bool>) {
        let fusion = match tokio::time::timeout(PATIENCE, TcpStream::connect(&self.0.fusion)).await {
            Ok(Ok(fusion)) => fusion,
            Ok(Err(error)) => {
                tracing::debug!(link = link.name, %error, "the fusion center does not answer");
                self.0.broken.increment();
                return reset(&node);
            }
            Err(_) => return reset(&node),
        };
        if node.set_nodelay(true).and_then(|()| fusion.set_nodelay(true)).is_err() {
            return;
        }
        tracing::info!(link = link.name, "connected");
        let (from_node, to_node) = node.into_split();
        let (from_fusion, to_fusion) = fusion.into_split();
        // Once an end is gone or the link is cut, both ends see a broken connection, as on a dead line.
        for half in [&from_node, &from_fusion] {
            let stream: &TcpStream = half.as_ref();
            let _ = stream.set_zero_linger();
        }
        let carried = async {
            tokio::try_join!(link.up.carry(from_node, to_fusion), link.down.carry(from_fusion, to_node))
        };
        tokio::select! {
            outcome = carried => match outcome {
                Ok(_) => tracing::info!(link = link.name, "ended"),
                Err(error) => {
                    self.0.broken.increment();
                    tracing::info!(link = link.name, %error, "broken");
                }
            },
            _ = cut.wait_for(|cut| *cut) => {
                self.0.broken.increment();
                tracing::info!(link = link.name, "cut");
            }
        }
    }
}

fn reset(stream: &TcpStream) {
    // Closed without it, the end would look orderly.
    let _ = stream.set_zero_linger();
}

/// Measures what is new in `plan`.
async fn check(plan: &Plan, measured: &mut Vec<(Direction, Measured)>) -> Result<(), Refusal> {
    let wanted: Vec<Direction> = plan.directions().map(Direction::steady).collect();
    for steady in wanted {
        if measured.iter().all(|(known, _)| *known != steady) {
            let found = measure(&steady).await?;
            tracing::info!(
                delay_ms = steady.delay_ms,
                rate_mbit_s = steady.rate_mbit_s,
                measured_delay_ms = found.delay_ms,
                measured_rate_mbit_s = found.rate_mbit_s,
                "measured"
            );
            measured.truncate(MOST_MEASURED - 1);
            measured.push((steady, found));
        }
    }
    Ok(())
}

/// What a name resolves to; nothing if it does not.
async fn addresses(name: &str) -> Vec<IpAddr> {
    match tokio::time::timeout(PATIENCE, lookup_host((name, 0))).await {
        Ok(Ok(found)) => found.map(|address| address.ip().to_canonical()).collect(),
        _ => Vec::new(),
    }
}
