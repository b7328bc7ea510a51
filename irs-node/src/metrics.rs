//! What can be seen of a node from outside: metrics and readiness.

use std::sync::{Arc, Mutex, PoisonError};

use proto::echo::Link;
use telemetry::metrics::SECONDS;
use telemetry::{Counter, Gauge, Health, Histogram, Metrics};

use crate::outbox::Totals;

/// Handles of all metrics.
#[derive(Debug, Clone)]
pub(crate) struct NodeMetrics {
    pub frames: Counter,
    pub frames_refused: Counter,
    pub frames_failed: Counter,
    pub filter_seconds: Histogram,
    pub blocks_dropped_at_node: Counter,
    blocks_sent: Counter,
    blocks_fused: Counter,
    blocks_late: Counter,
    blocks_duplicate: Counter,
    blocks_dropped: Counter,
    pub blocks_in_flight: Gauge,
    pub reports_waiting: Gauge,
    pub connections_lost: Counter,
}

impl NodeMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let blocks = |fate| {
            let help = "Blocks by what became of them.";
            metrics.counter("hyloc_node_blocks_total", help, &[("fate", fate)])
        };
        let counter = |name, help| metrics.counter(name, help, &[]);
        Self {
            frames: counter("hyloc_node_frames_total", "Echo frames received."),
            frames_refused: counter("hyloc_node_frames_refused_total", "Echo frames that made no sense."),
            frames_failed: counter("hyloc_node_frames_failed_total", "Echo frames without an estimate."),
            filter_seconds: metrics.histogram(
                "hyloc_node_filter_seconds",
                "Time of the matched filter per report.",
                &[],
                &SECONDS,
            ),
            blocks_sent: blocks("sent"),
            blocks_fused: blocks("fused"),
            blocks_late: blocks("late"),
            blocks_duplicate: blocks("duplicate"),
            blocks_dropped: blocks("dropped"),
            blocks_dropped_at_node: blocks("dropped_at_node"),
            blocks_in_flight: metrics.gauge("hyloc_node_blocks_in_flight", "Blocks without a decision.", &[]),
            reports_waiting: metrics.gauge("hyloc_node_reports_waiting", "Reports that wait.", &[]),
            connections_lost: counter(
                "hyloc_node_fusion_connections_lost_total",
                "Connections to the fusion center that broke.",
            ),
        }
    }

    /// Counts what moved between two states of the same books.
    pub fn moved(&self, before: &Totals, after: &Totals) {
        self.blocks_sent.add(after.sent.saturating_sub(before.sent));
        self.blocks_fused.add(after.fused.saturating_sub(before.fused));
        self.blocks_late.add(after.late.saturating_sub(before.late));
        self.blocks_duplicate.add(after.duplicate.saturating_sub(before.duplicate));
        self.blocks_dropped.add(after.dropped.saturating_sub(before.dropped));
        self.blocks_in_flight.set(after.in_flight as f64);
    }
}

/// A node is ready when both its neighbours are there.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    health: Health,
    missing: Arc<Mutex<[Option<String>; 2]>>,
}

impl Readiness {
    pub fn new(health: Health) -> Self {
        let missing = [Some("not registered".into()), Some("not subscribed to the simulator".into())];
        Self { health, missing: Arc::new(Mutex::new(missing)) }
    }

    /// Why the fusion center is not there; none when it is.
    pub fn fusion(&self, reason: Option<String>) {
        self.set(0, reason);
    }

    /// How the subscription stands.
    pub fn simulator(&self, link: &Link) {
        self.set(
            1,
            match link {
                Link::Subscribed => None,
                Link::Connecting => Some("not subscribed to the simulator".into()),
                Link::Refused(reason) => Some(format!("refused by the simulator: {reason}")),
            },
        );
    }

    fn set(&self, neighbour: usize, reason: Option<String>) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing[neighbour] = reason;
        match missing.iter().flatten().next() {
            Some(reason) => self.health.not_ready(reason),
            None => self.health.ready(),
        }
    }
}
