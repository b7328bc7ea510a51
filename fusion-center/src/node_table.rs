//! What the process knows of its nodes: registry, ledger, counters, metrics. Shared, cheap to clone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::convert::Report;
use serde::Serialize;
use telemetry::{Counter, Gauge, Metrics};

use crate::ledger::{Balance, Fates, Ledger};
use crate::load::{Load, LoadMonitor, LoadNotice};
use crate::registry::{Application, RegistrationError, Registry};

/// Counts that belong to no single node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Frames on their way through the solvers.
    #[serde(flatten)]
    pub load: Load,
    /// Frames that too few nodes reported.
    pub frames_minority: u64,
    /// Frame numbers refused because they lie too far ahead of what a majority of the nodes reports.
    pub frames_ahead: u64,
    /// Reports refused whole: not a report, too large, past the credit, no session.
    pub refused_reports: u64,
}

/// A node as it is told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeView {
    /// Its index.
    pub index: usize,
    /// Its identity; empty if none has registered.
    pub identity: String,
    /// Whether its stream is up.
    pub connected: bool,
    /// The last frame that it reported.
    pub last_frame: Option<u64>,
    /// When that came, nanoseconds since the Unix epoch.
    pub last_report_ns: Option<u64>,
    /// Its account.
    #[serde(flatten)]
    pub balance: Balance,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    ledger: Ledger,
    counts: Counts,
    monitor: LoadMonitor,
    last: Vec<Option<(u64, u64)>>,
}

#[derive(Debug)]
struct NodeMetrics {
    fused: Counter,
    late: Counter,
    duplicate: Counter,
    dropped: Counter,
    connected: Gauge,
}

#[derive(Debug)]
struct Instruments {
    nodes: Vec<NodeMetrics>,
    offered: Counter,
    shed: Counter,
    ahead: Counter,
    refused: Counter,
    open_frames: Gauge,
    waiting_frames: Gauge,
    oldest_waiting: Gauge,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct NodeTable {
    state: Arc<Mutex<State>>,
    instruments: Arc<Instruments>,
}

impl NodeTable {
    /// Empty books.
    pub fn new(registry: Registry, irs_count: usize, metrics: &Metrics) -> Self {
        let blocks = "Blocks by node and fate.";
        let node = |index: usize| {
            let index = index.to_string();
            let fate = |fate: &str| {
                metrics.counter("hyloc_blocks_total", blocks, &[("node", &index), ("fate", fate)])
            };
            NodeMetrics {
                fused: fate("fused"),
                late: fate("late"),
                duplicate: fate("duplicate"),
                dropped: fate("dropped"),
                connected: metrics.gauge(
                    "hyloc_node_connected",
                    "Whether a node's stream is up.",
                    &[("node", &index)],
                ),
            }
        };
        let instruments = Instruments {
            nodes: (0..irs_count).map(node).collect(),
            offered: metrics.counter(
                "hyloc_frames_offered_total",
                "Frames with enough blocks to be solved.",
                &[],
            ),
            shed: metrics.counter("hyloc_frames_shed_total", "Frames shed under overload.", &[]),
            ahead: metrics.counter(
                "hyloc_frames_ahead_total",
                "Frame numbers refused: too far ahead of the other nodes.",
                &[],
            ),
            refused: metrics.counter("hyloc_reports_refused_total", "Reports refused whole.", &[]),
            open_frames: metrics.gauge("hyloc_frames_open", "Frames that wait for blocks.", &[]),
            waiting_frames: metrics.gauge("hyloc_frames_waiting", "Frames that wait for a solver.", &[]),
            oldest_waiting: metrics.gauge(
                "hyloc_oldest_waiting_seconds",
                "How long the oldest frame that waits for a solver has waited.",
                &[],
            ),
        };
        let state = State {
            registry,
            ledger: Ledger::new(irs_count),
            counts: Counts::default(),
            monitor: LoadMonitor::default(),
            last: vec![None; irs_count],
        };
        Self { state: Arc::new(Mutex::new(state)), instruments: Arc::new(instruments) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a node and opens its account.
    pub fn register(&self, application: &Application) -> Result<(usize, String), RegistrationError> {
        let mut state = self.state();
        let (index, session) = state.registry.register(application)?;
        state.ledger.open(index, &application.incarnation);
        Ok((index, session))
    }

    /// A session opens its stream: its index, if it is known.
    pub fn connect(&self, session: &str) -> Option<usize> {
        let index = self.state().registry.connect(session)?;
        self.instruments.nodes[index].connected.set(1.0);
        Some(index)
    }

    /// A stream ended; whether it was the node's current one.
    pub fn disconnect(&self, session: &str, index: usize) -> bool {
        let current = self.state().registry.disconnect(session);
        if current {
            self.instruments.nodes[index].connected.set(0.0);
        }
        current
    }

    /// Whether a session is its index's current one.
    pub fn is_current(&self, session: &str) -> bool {
        self.state().registry.is_current(session)
    }

    /// A checked report came in with this many blocks.
    pub fn received(&self, node: usize, report: &Report, blocks: u64) {
        let mut state = self.state();
        state.ledger.declare(node, report.blocks_sent, report.blocks_dropped);
        state.ledger.receive(node, blocks);
        state.last[node] = Some((report.frame.frame, proto::clock::unix_time_ns()));
    }

    /// The fate of blocks is decided.
    pub fn settled(&self, node: usize, fates: Fates, repeated: u64) {
        let metrics = &self.instruments.nodes[node];
        metrics.fused.add(fates.fused);
        metrics.late.add(fates.late);
        metrics.duplicate.add(fates.duplicate);
        metrics.dropped.add(fates.dropped);
        let mut state = self.state();
        state.ledger.settle(node, fates);
        state.ledger.repeat(node, repeated);
    }

    /// A report was refused whole.
    pub fn refused(&self) {
        self.instruments.refused.increment();
        self.state().counts.refused_reports += 1;
    }

    /// A report of a node was refused whole, with this many blocks.
    pub fn refused_blocks(&self, node: usize, blocks: u64) {
        self.refused();
        self.instruments.nodes[node].dropped.add(blocks);
        let mut state = self.state();
        state.ledger.receive(node, blocks);
        state.ledger.settle(node, Fates { dropped: blocks, ..Fates::default() });
    }

    /// A frame can be solved.
    pub fn offered(&self) {
        self.instruments.offered.increment();
        self.state().monitor.offered();
    }

    /// A frame was shed.
    pub fn shed(&self) {
        self.instruments.shed.increment();
        self.state().monitor.shed();
    }

    /// A frame was closed without a quorum.
    pub fn minority(&self) {
        self.state().counts.frames_minority += 1;
    }

    /// A frame number was refused.
    pub fn ahead(&self) {
        self.instruments.ahead.increment();
        self.state().counts.frames_ahead += 1;
    }

    /// How much is under way: frames that wait for blocks, and for a solver, the oldest of these since `oldest_ns`.
    /// Overload is said at a pace.
    pub fn load(&self, now_ns: u64, open_frames: usize, waiting_frames: usize, oldest_ns: Option<u64>) {
        let (notice, load) = {
            let monitor = &mut self.state().monitor;
            (monitor.observe(now_ns, waiting_frames, oldest_ns), monitor.load())
        };
        self.instruments.open_frames.set(open_frames as f64);
        self.instruments.waiting_frames.set(waiting_frames as f64);
        self.instruments.oldest_waiting.set(load.oldest_waiting_ms as f64 * 1e-3);
        match notice {
            Some(LoadNotice::Overloaded { offered, shed }) => tracing::warn!(
                offered,
                shed,
                waiting = load.frames_waiting,
                oldest_ms = load.oldest_waiting_ms,
                "overloaded: frames come faster than they are solved"
            ),
            Some(LoadNotice::Recovered) => tracing::info!(shed = load.frames_shed, "no longer overloaded"),
            None => {}
        }
    }

    /// All nodes.
    pub fn nodes(&self) -> Vec<NodeView> {
        let state = self.state();
        let view = |(index, balance): (usize, Balance)| {
            let (identity, connected) = state.registry.seat(index);
            NodeView {
                index,
                identity: identity.to_owned(),
                connected,
                last_frame: state.last[index].map(|(frame, _)| frame),
                last_report_ns: state.last[index].map(|(_, at)| at),
                balance,
            }
        };
        state.ledger.balances().into_iter().enumerate().map(view).collect()
    }

    /// Counts that belong to no single node.
    pub fn counts(&self) -> Counts {
        let state = self.state();
        Counts { load: state.monitor.load(), ..state.counts }
    }
}
