//! The relay: links, their connections, and the plan.
//!
//! A connection belongs to the link on whose port it was accepted. On the common port it belongs to the link of its
//! source address: one that the plan names by this address or by a host name that resolves to it, otherwise a new one
//! that is named after the address and removed with its last connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use telemetry::listener::{LimitedStream, Listener};
use telemetry::{Counter, Failures, Metrics, info_limited, warn_limited};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::end::End;
use crate::lane::{Lane, LaneMetrics};
use crate::measure::{MeasuredDirection, PlanRefused, Trust, measure};
use crate::plan::{MOST_LINKS, Plan};
use crate::profile::Direction;
use crate::wire::Wire;

/// Maximum number of simultaneous connections of one link.
const MOST_CONNECTIONS: usize = 16;

/// Timeout for connecting to the fusion center, and for resolving a name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of stored measurements.
const MOST_MEASURED: usize = 256;

#[derive(Debug)]
struct RelayLink {
    name: String,
    up: Arc<Lane>,
    down: Arc<Lane>,
    cut: watch::Sender<bool>,
    connections: AtomicUsize,
    /// Kept without connections, because it has its own port.
    fixed: bool,
}

/// Status of a link; `queued_up` and `queued_down` are bytes in transit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkView {
    pub name: String,
    pub profile: String,
    pub cut: bool,
    pub connections: usize,
    pub queued_up: usize,
    pub queued_down: usize,
}

/// The relay; cheap to clone.
#[derive(Debug, Clone)]
pub struct Relay(Arc<RelayShared>);

#[derive(Debug)]
struct RelayShared {
    fusion: String,
    seed: u64,
    epoch: Instant,
    trust: Trust,
    state: Mutex<RelayState>,
    measured: tokio::sync::Mutex<Vec<(Direction, MeasuredDirection)>>,
    lane_metrics: [LaneMetrics; 2],
    taken: Counter,
    refused: Counter,
    broken: Counter,
}

#[derive(Debug)]
struct RelayState {
    plan: Arc<Plan>,
    links: BTreeMap<String, Arc<RelayLink>>,
    /// Failed connections to the fusion center.
    unreachable: Failures,
}

impl Relay {
    /// A relay to `fusion` with `plan`, which is measured first unless `trust` says otherwise.
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
        let relay = Self(Arc::new(RelayShared {
            fusion: fusion.to_owned(),
            seed,
            epoch: Instant::now(),
            trust,
            state: Mutex::new(RelayState {
                plan: Arc::new(plan),
                links: BTreeMap::new(),
                unreachable: Failures::default(),
            }),
            measured: tokio::sync::Mutex::new(measured),
            lane_metrics: ["up", "down"].map(|direction| LaneMetrics::new(metrics, direction)),
            taken: connections("taken"),
            refused: connections("refused"),
            broken: connections("broken"),
        }));
        for name in fixed {
            relay.link(&mut relay.state(), &name, true);
        }
        Ok(relay)
    }

    fn state(&self) -> MutexGuard<'_, RelayState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn plan(&self) -> Arc<Plan> {
        self.state().plan.clone()
    }

    /// Measures the new directions of `plan`, then applies it. Cuts by request are replaced by those of the plan.
    pub async fn apply(&self, plan: Plan) -> Result<(), PlanRefused> {
        // Held to the end, so that changes do not overlap.
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

    pub async fn measured(&self) -> Vec<(Direction, MeasuredDirection)> {
        self.0.measured.lock().await.clone()
    }

    pub fn links(&self) -> Vec<LinkView> {
        let state = self.state();
        let view = |link: &Arc<RelayLink>| LinkView {
            name: link.name.clone(),
            profile: state.plan.of(&link.name).profile.clone(),
            cut: *link.cut.borrow(),
            connections: link.connections.load(Ordering::Acquire),
            queued_up: link.up.queued(),
            queued_down: link.down.queued(),
        };
        state.links.values().map(view).collect()
    }

    /// Cuts or restores all links, or one given by its name, its address, or a host name that resolves to it.
    /// Returns the names of the links concerned.
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
            tracing::info!(link = name, cut, "set by request");
        }
        names
    }

    /// Accepts connections on one port until `shutdown`: that of link `name`, or the common one.
    pub async fn serve(self, listener: Listener, name: Option<String>, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let node = tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                node = listener.accept() => node,
            };
            let (relay, name, source) = (self.clone(), name.clone(), node.peer());
            // Fails if the connection is closed already.
            let Ok(node) = End::new(node) else { continue };
            connections.spawn(async move {
                let name = match (name, source) {
                    (Some(name), _) => name,
                    (None, Some(source)) => relay.name_of(source.ip().to_canonical()).await,
                    (None, None) => return,
                };
                relay.connection(node, &name).await;
            });
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

    /// The link of this name, created if necessary; none if there are too many.
    fn link<'a>(&self, state: &'a mut RelayState, name: &str, fixed: bool) -> Option<&'a Arc<RelayLink>> {
        if !state.links.contains_key(name) && state.links.len() >= MOST_LINKS {
            return None;
        }
        let plan = state.plan.of(name);
        let lane = |direction: Direction, upwards: bool| {
            let wire = Wire::new(direction, self.0.seed, name, upwards, self.0.epoch.elapsed());
            Arc::new(Lane::new(wire, self.0.epoch, self.0.lane_metrics[usize::from(!upwards)].clone()))
        };
        Some(state.links.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(RelayLink {
                name: name.to_owned(),
                up: lane(plan.up, true),
                down: lane(plan.down, false),
                cut: watch::Sender::new(plan.cut),
                connections: AtomicUsize::new(0),
                fixed,
            })
        }))
    }

    /// Counts a connection on the link of this name; none if there are too many links.
    fn hold(&self, name: &str) -> Option<Hold<'_>> {
        let mut state = self.state();
        let link = self.link(&mut state, name, false)?.clone();
        let others = link.connections.fetch_add(1, Ordering::AcqRel);
        Some(Hold { relay: self, link, others })
    }

    /// Serves one connection until it ends.
    async fn connection(&self, node: End, name: &str) {
        let Some(hold) = self.hold(name) else {
            self.0.refused.inc();
            return warn_limited!(link = name, "refused: there are {MOST_LINKS} links already");
        };
        let link = &hold.link;
        let mut cut = link.cut.subscribe();
        if *cut.borrow_and_update() || hold.others >= MOST_CONNECTIONS {
            self.0.refused.inc();
            return;
        }
        self.0.taken.inc();
        // Biased towards the cut: nothing passes after it, not even a FIN.
        let outcome = tokio::select! {
            biased;
            _ = cut.wait_for(|cut| *cut) => Err("cut".to_owned()),
            outcome = self.relay(node, link) => outcome.map_err(|error| error.to_string()),
        };
        match outcome {
            Ok(()) => info_limited!(link = name, "ended"),
            Err(reason) => {
                self.0.broken.inc();
                info_limited!(link = name, reason, "broken");
            }
        }
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.0.fusion)).await?
    }

    /// Logs that the fusion center cannot be reached, at a limited rate.
    fn unreachable(&self, error: &std::io::Error) {
        let (fusion, reason) = (&self.0.fusion, error.to_string());
        if let Some(notice) = self.state().unreachable.failed(Instant::now(), &reason) {
            let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
            tracing::warn!(fusion, reason, attempts, failing_for_s, "no connection to the fusion center");
        }
    }

    /// Relays until both directions have ended. If this is cancelled, or one end fails, both ends are reset.
    async fn relay(&self, mut node: End, link: &RelayLink) -> std::io::Result<()> {
        let fusion = self.connect().await.inspect_err(|error| self.unreachable(error))?;
        let mut fusion = End::new(LimitedStream::unlimited(fusion))?;
        self.state().unreachable.succeeded(Instant::now());
        info_limited!(link = link.name, "connected");
        let ((from_node, to_node), (from_fusion, to_fusion)) = (node.halves(), fusion.halves());
        tokio::try_join!(link.up.carry(from_node, to_fusion), link.down.carry(from_fusion, to_node))?;
        node.close();
        fusion.close();
        Ok(())
    }
}

/// A connection's reference to its link, counted under the lock of all links, so that a link in use is not removed.
struct Hold<'a> {
    relay: &'a Relay,
    link: Arc<RelayLink>,
    /// Connections that the link had before.
    others: usize,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.relay.state();
        let last = self.link.connections.fetch_sub(1, Ordering::AcqRel) == 1;
        // A cut link is kept, so that its node cannot reconnect.
        if last && !self.link.fixed && !*self.link.cut.borrow() {
            state.links.remove(&self.link.name);
        }
    }
}

/// Measures the directions of `plan` that are not in `measured`, unless `trust` says otherwise.
async fn check(
    plan: &Plan,
    trust: Trust,
    measured: &mut Vec<(Direction, MeasuredDirection)>,
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
            if measured.len() == MOST_MEASURED {
                measured.remove(0);
            }
            measured.push((steady, found));
        }
    }
    Ok(())
}

/// Addresses that a name resolves to.
async fn addresses(name: &str) -> Vec<IpAddr> {
    match tokio::time::timeout(CONNECT_TIMEOUT, lookup_host((name, 0))).await {
        Ok(Ok(found)) => found.map(|address| address.ip().to_canonical()).collect(),
        _ => Vec::new(),
    }
}
