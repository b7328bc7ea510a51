//! The state of the nodes: registry, ledger, counters, metrics. Shared, cheap to clone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use estimation::clock_filter::ClockEstimate;
use proto::clock::{steady_time_ns, unix_time_ns};
use proto::convert::{FrameId, Report};
use proto::secret::secret;
use serde::Serialize;
use telemetry::{Counter, Gauge, Metrics};

use crate::ledger::{Balance, Fates, Ledger};
use crate::load::{Load, LoadMonitor, LoadNotice};
use crate::readiness::Observed;
use crate::registry::{Application, RegistrationError, Registry, StreamError};

/// Counts that belong to no single node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    #[serde(flatten)]
    pub load: Load,
    /// Frames that too few nodes reported.
    pub frames_minority: u64,
    /// Frames refused because they are too far ahead of what a majority of the nodes reports.
    pub frames_ahead: u64,
    /// Reports refused as a whole: malformed, too large, beyond the credit, without a session.
    pub refused_reports: u64,
}

/// The published state of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeView {
    pub index: usize,
    /// Empty if no node has registered.
    pub identity: String,
    /// Whether its report stream is open.
    pub connected: bool,
    pub last_frame: Option<u64>,
    /// Arrival of the last report, nanoseconds since the Unix epoch.
    pub last_report_ns: Option<u64>,
    #[serde(flatten)]
    pub balance: Balance,
    /// The clock of the node as estimated; none where clocks are trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<NodeClock>,
}

/// The clock of a node as estimated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NodeClock {
    pub offset_ns: f64,
    /// Standard deviation of the offset.
    pub deviation_ns: f64,
    pub rate_ppb: f64,
    /// The frame of the current run in which it was last found to have stepped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stepped_frame: Option<u64>,
}

impl NodeClock {
    fn new(clock: ClockEstimate, stepped_frame: Option<u64>) -> Self {
        let ClockEstimate { offset_s, deviation_s, rate } = clock;
        Self {
            offset_ns: offset_s * 1e9,
            deviation_ns: deviation_s * 1e9,
            rate_ppb: rate * 1e9,
            stepped_frame,
        }
    }
}

#[derive(Debug)]
struct NodeTableState {
    registry: Registry,
    ledger: Ledger,
    counts: Counts,
    monitor: LoadMonitor,
    /// When a frame was last closed with enough paths to be solved.
    offered_ns: Option<u64>,
    /// Number and arrival of the last frame that each node reported.
    last: Vec<Option<(u64, u64)>>,
    /// Clocks of all nodes; empty where they are trusted.
    clocks: Vec<NodeClock>,
    /// The run of the frames that they were estimated with.
    clock_run: Option<u64>,
}

/// Metrics of one node.
#[derive(Debug)]
struct FateMetrics {
    fused: Counter,
    late: Counter,
    duplicate: Counter,
    dropped: Counter,
    connected: Gauge,
    clock_offset: Gauge,
    clock_deviation: Gauge,
    clock_rate: Gauge,
}

#[derive(Debug)]
struct FusionMetrics {
    nodes: Vec<FateMetrics>,
    offered: Counter,
    shed: Counter,
    ahead: Counter,
    refused: Counter,
    open_frames: Gauge,
    waiting_frames: Gauge,
    oldest_waiting: Gauge,
}

impl FusionMetrics {
    fn new(irs_count: usize, metrics: &Metrics) -> Self {
        let counter = |name, help| metrics.counter(name, help, &[]);
        let gauge = |name, help| metrics.gauge(name, help, &[]);
        let node = |index: usize| {
            let index = index.to_string();
            let fate = |fate: &str| {
                let labels = [("node", index.as_str()), ("fate", fate)];
                metrics.counter("hyloc_blocks_total", "Paths by node and fate.", &labels)
            };
            let labels = [("node", index.as_str())];
            let gauge = |name, help| metrics.gauge(name, help, &labels);
            FateMetrics {
                fused: fate("fused"),
                late: fate("late"),
                duplicate: fate("duplicate"),
                dropped: fate("dropped"),
                connected: gauge("hyloc_node_connected", "Whether a node's stream is up."),
                clock_offset: gauge("hyloc_clock_offset_seconds", "Estimated offset of a node's clock."),
                clock_deviation: gauge(
                    "hyloc_clock_deviation_seconds",
                    "Standard deviation of the estimated offset of a node's clock.",
                ),
                clock_rate: gauge(
                    "hyloc_clock_rate",
                    "Estimated rate of a node's clock, seconds per second.",
                ),
            }
        };
        Self {
            nodes: (0..irs_count).map(node).collect(),
            offered: counter("hyloc_frames_offered_total", "Frames with enough paths to be solved."),
            shed: counter("hyloc_frames_shed_total", "Frames shed under overload."),
            ahead: counter("hyloc_frames_ahead_total", "Frames refused: too far ahead of the other nodes."),
            refused: counter("hyloc_reports_refused_total", "Reports refused as a whole."),
            open_frames: gauge("hyloc_frames_open", "Frames that wait for paths."),
            waiting_frames: gauge("hyloc_frames_waiting", "Frames that wait for a solver."),
            oldest_waiting: gauge(
                "hyloc_oldest_waiting_seconds",
                "Age of the oldest frame that waits for a solver.",
            ),
        }
    }
}

#[derive(Debug, Clone)]
pub struct NodeTable {
    state: Arc<Mutex<NodeTableState>>,
    metrics: Arc<FusionMetrics>,
}

impl NodeTable {
    pub fn new(registry: Registry, irs_count: usize, metrics: &Metrics) -> Self {
        let state = NodeTableState {
            registry,
            ledger: Ledger::new(irs_count),
            counts: Counts::default(),
            monitor: LoadMonitor::default(),
            offered_ns: None,
            last: vec![None; irs_count],
            clocks: Vec::new(),
            clock_run: None,
        };
        let metrics = Arc::new(FusionMetrics::new(irs_count, metrics));
        Self { state: Arc::new(Mutex::new(state)), metrics }
    }

    fn state(&self) -> MutexGuard<'_, NodeTableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a node; returns index and session.
    pub fn register(&self, application: &Application) -> Result<(usize, String), RegistrationError> {
        let session = secret();
        let index = self.state().registry.register(application, &session, steady_time_ns())?;
        Ok((index, session))
    }

    /// A session opens its one stream, and its node's account: returns its index.
    pub fn connect(&self, session: &str) -> Result<usize, StreamError> {
        let mut state = self.state();
        let index = state.registry.connect(session, steady_time_ns())?;
        let incarnation = state.registry.incarnation(index).to_owned();
        state.ledger.open(index, &incarnation);
        self.metrics.nodes[index].connected.set(1.0);
        Ok(index)
    }

    /// Whether a session is the current one of `index`.
    pub fn belongs(&self, session: &str, index: u32) -> bool {
        self.state().registry.belongs(session, index as usize)
    }

    /// A stream has ended, in order or not; returns whether it was the node's current one.
    pub fn disconnect(&self, session: &str, index: usize, in_order: bool) -> bool {
        let current = self.state().registry.disconnect(session, in_order, steady_time_ns());
        if current {
            self.metrics.nodes[index].connected.set(0.0);
        }
        current
    }

    /// Whether the node of an index has a stream now.
    pub fn is_connected(&self, index: usize) -> bool {
        self.state().registry.holder(index).1
    }

    /// Whether a session is the current one of its index.
    pub fn is_current(&self, session: &str) -> bool {
        self.state().registry.is_current(session)
    }

    /// A checked report was received with this many paths.
    pub fn received(&self, node: usize, report: &Report, paths: u64) {
        let mut state = self.state();
        state.ledger.declare(node, report.blocks_sent, report.blocks_dropped);
        state.ledger.receive(node, paths);
        state.last[node] = Some((report.frame.frame, unix_time_ns()));
    }

    /// The fate of paths is decided.
    pub fn settled(&self, node: usize, fates: Fates, repeated: u64) {
        let metrics = &self.metrics.nodes[node];
        metrics.fused.inc_by(fates.fused);
        metrics.late.inc_by(fates.late);
        metrics.duplicate.inc_by(fates.duplicate);
        metrics.dropped.inc_by(fates.dropped);
        let mut state = self.state();
        state.ledger.settle(node, fates);
        state.ledger.repeat(node, repeated);
    }

    /// A report was refused as a whole.
    pub fn refused(&self) {
        self.metrics.refused.inc();
        self.state().counts.refused_reports += 1;
    }

    /// A report of a node was refused as a whole, with this many paths.
    pub fn refused_paths(&self, node: usize, paths: u64) {
        self.refused();
        self.state().ledger.receive(node, paths);
        self.settled(node, Fates { dropped: paths, ..Fates::default() }, 0);
    }

    /// A frame was closed with enough paths to be solved.
    pub fn offered(&self) {
        self.metrics.offered.inc();
        let mut state = self.state();
        state.monitor.load.frames_offered += 1;
        state.offered_ns = Some(steady_time_ns());
    }

    pub fn shed(&self) {
        self.metrics.shed.inc();
        self.state().monitor.load.frames_shed += 1;
    }

    /// A frame was closed without a quorum.
    pub fn minority(&self) {
        self.state().counts.frames_minority += 1;
    }

    /// A frame was refused because it is too far ahead.
    pub fn ahead(&self) {
        self.metrics.ahead.inc();
        self.state().counts.frames_ahead += 1;
    }

    /// Updates the load: frames that wait for paths, and for a solver, the oldest of these since `oldest_ns`.
    /// Overload is logged at a limited rate.
    pub fn load(&self, now_ns: u64, open_frames: usize, waiting_frames: usize, oldest_ns: Option<u64>) {
        let (notice, load) = {
            let monitor = &mut self.state().monitor;
            (monitor.observe(now_ns, waiting_frames, oldest_ns), monitor.load)
        };
        self.metrics.open_frames.set(open_frames as f64);
        self.metrics.waiting_frames.set(waiting_frames as f64);
        self.metrics.oldest_waiting.set(load.oldest_waiting_ms as f64 * 1e-3);
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

    /// The clocks of all nodes as estimated with a frame, and the nodes whose clocks have stepped in it.
    pub fn clocks(&self, clocks: Vec<ClockEstimate>, frame: FrameId, stepped: &[usize]) {
        for (metrics, clock) in self.metrics.nodes.iter().zip(&clocks) {
            metrics.clock_offset.set(clock.offset_s);
            metrics.clock_deviation.set(clock.deviation_s);
            metrics.clock_rate.set(clock.rate);
        }
        let mut state = self.state();
        if state.clock_run.replace(frame.run) != Some(frame.run) {
            state.clocks.clear();
        }
        let before = |node: usize| state.clocks.get(node).and_then(|clock| clock.stepped_frame);
        let last = |node: usize| if stepped.contains(&node) { Some(frame.frame) } else { before(node) };
        let clocks = clocks.into_iter().enumerate().map(|(node, clock)| NodeClock::new(clock, last(node)));
        state.clocks = clocks.collect();
    }

    pub fn nodes(&self) -> Vec<NodeView> {
        let state = self.state();
        let view = |(index, balance): (usize, Balance)| {
            let (identity, connected) = state.registry.holder(index);
            NodeView {
                index,
                identity: identity.to_owned(),
                connected,
                last_frame: state.last[index].map(|(frame, _)| frame),
                last_report_ns: state.last[index].map(|(_, at)| at),
                balance,
                clock: state.clocks.get(index).copied(),
            }
        };
        state.ledger.balances().into_iter().enumerate().map(view).collect()
    }

    /// What readiness depends on, at `now_ns`.
    pub fn observed(&self, now_ns: u64) -> Observed {
        let state = self.state();
        let load = state.monitor.load;
        Observed {
            irs_count: state.last.len(),
            connected: state.registry.connected(),
            frame_age_ns: state.offered_ns.map(|offered_ns| now_ns.saturating_sub(offered_ns)),
            shed: load.overloaded.then_some(load.frames_shed),
        }
    }

    pub fn counts(&self) -> Counts {
        let state = self.state();
        Counts { load: state.monitor.load, ..state.counts }
    }
}
