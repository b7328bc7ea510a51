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
use telemetry::{Counter, Failures, Metrics};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::end::End;
use crate::lane::{Instruments, Lane};
use crate::measure::{Measured, PlanRefused, Trust, measure};
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
    trust: Trust,
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
    /// Connections to the fusion center that could not be made.
    unreachable: Failures,
}

impl Relay {
    /// A relay to `fusion` under `plan`, which is measured first if so asked; times count from now on.
    pub async fn new(
        fusion: &str,
        (plan, trust): (Plan, Trust),
        seed: u64,
        fixed: impl IntoIterator<Item = String>,
        metrics: &Metrics,
    ) -> Result<Self, PlanRefused> {
        let connections = |fate| {
            metrics.counter("hyloc_backhaul_connections_total", "Connections by fate.", &[("fate", fate)])
        };
        let mut measured = Vec::new();
        check(&plan, trust, &mut measured).await?;
        let relay = Self(Arc::new(Inner {
            fusion: fusion.to_owned(),
            seed,
            epoch: Instant::now(),
            trust,
            state: Mutex::new(State {
                plan: Arc::new(plan),
                links: BTreeMap::new(),
                unreachable: Failures::default(),
            }),
            measured: tokio::sync::Mutex::new(measured),
            instruments: [Instruments::new(metrics, "up"), Instruments::new(metrics, "down")],
            taken: connections("taken"),
            refused: connections("refused"),
            broken: connections("broken"),
        }));
        for name in fixed {
            relay.link(&mut relay.state(), &name, true);
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
    pub async fn apply(&self, plan: Plan) -> Result<(), PlanRefused> {
        // Held to the end: one change at a time.
        let mut measured = self.0.measured.lock().await;
        check(&plan, self.0.trust, &mut measured).await?;
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
                    // Fails on one that is gone already.
                    let Ok(node) = End::new(node) else { continue };
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
    fn link<'a>(&self, state: &'a mut State, name: &str, fixed: bool) -> Option<&'a Arc<Link>> {
        if !state.links.contains_key(name) && state.links.len() >= MOST_LINKS {
            return None;
        }
        let plan = state.plan.of(name);
        let lane = |direction: Direction, upwards: bool| {
            let wire = Wire::new(direction, self.0.seed, name, upwards, self.0.epoch.elapsed());
            Arc::new(Lane::new(wire, self.0.epoch, self.0.instruments[usize::from(!upwards)].clone()))
        };
        Some(state.links.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Link {
                name: name.to_owned(),
                up: lane(plan.up, true),
                down: lane(plan.down, false),
                cut: watch::Sender::new(plan.cut),
                connections: AtomicUsize::new(0),
                fixed,
            })
        }))
    }

    /// Counts a connection on the link of that name; none if there are too many links.
    fn hold(&self, name: &str) -> Option<Hold<'_>> {
        let mut state = self.state();
        let link = self.link(&mut state, name, false)?.clone();
        let others = link.connections.fetch_add(1, Ordering::AcqRel);
        Some(Hold { relay: self, link, others })
    }

    /// One connection from its beginning to its end.
    async fn connection(&self, node: End, name: &str) {
        let Some(hold) = self.hold(name) else {
            self.0.refused.increment();
            return tracing::warn!(link = name, "refused: there are {MOST_LINKS} links already");
        };
        let link = &hold.link;
        let mut cut = link.cut.subscribe();
        if *cut.borrow_and_update() || hold.others >= MOST_CONNECTIONS {
            self.0.refused.increment();
            return;
        }
        self.0.taken.increment();
        // A cut comes first: nothing passes after it, not even an end in order.
        let outcome = tokio::select! {
            biased;
            _ = cut.wait_for(|cut| *cut) => Err("cut".to_owned()),
            outcome = self.relay(node, link) => outcome.map_err(|error| error.to_string()),
        };
        match outcome {
            Ok(()) => tracing::info!(link = name, "ended"),
            Err(reason) => {
                self.0.broken.increment();
                tracing::info!(link = name, reason, "broken");
            }
        }
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        tokio::time::timeout(PATIENCE, TcpStream::connect(&self.0.fusion)).await?
    }

    /// Reports that the fusion center does not take connections, however often the nodes ask.
    fn unreachable(&self, error: &std::io::Error) {
        let (fusion, reason) = (&self.0.fusion, error.to_string());
        if let Some(notice) = self.state().unreachable.failed(Instant::now(), &reason) {
            let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
            tracing::warn!(fusion, reason, attempts, failing_for_s, "no connection to the fusion center");
        }
    }

    /// Relays until both directions have ended. Given up before, or once an end is gone, both ends see a broken
    /// connection, as on a dead line.
    async fn relay(&self, mut node: End, link: &Link) -> std::io::Result<()> {
        let mut fusion = End::new(self.connect().await.inspect_err(|error| self.unreachable(error))?)?;
        self.state().unreachable.succeeded(Instant::now());
        tracing::info!(link = link.name, "connected");
        let ((from_node, to_node), (from_fusion, to_fusion)) = (node.halves(), fusion.halves());
        tokio::try_join!(link.up.carry(from_node, to_fusion), link.down.carry(from_fusion, to_node))?;
        node.close();
        fusion.close();
        Ok(())
    }
}

/// A connection's hold on its link, counted under the lock of all links: a link that is held stays known.
struct Hold<'a> {
    relay: &'a Relay,
    link: Arc<Link>,
    /// Connections that were there before.
    others: usize,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.relay.state();
        let last = self.link.connections.fetch_sub(1, Ordering::AcqRel) == 1;
        // A cut link is remembered: its node must not come back by asking again.
        if last && !self.link.fixed && !*self.link.cut.borrow() {
            state.links.remove(&self.link.name);
        }
    }
}

/// Measures what is new in `plan`, unless it is followed unmeasured.
async fn check(
    plan: &Plan,
    trust: Trust,
    measured: &mut Vec<(Direction, Measured)>,
) -> Result<(), PlanRefused> {
    if trust == Trust::Unmeasured {
        return Ok(());
    }
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
