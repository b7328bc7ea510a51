//! Metrics and readiness of a node.

use std::sync::{Arc, Mutex, PoisonError};

use proto::echo::SubscriptionState;
use telemetry::{Counter, Gauge, Health, Histogram, Metrics};

use crate::outbox::Totals;

#[derive(Debug, Clone)]
pub(crate) struct NodeMetrics {
    pub frames: Counter,
    pub frames_refused: Counter,
    pub frames_failed: Counter,
    pub filter_seconds: Histogram,
    pub paths_dropped_at_node: Counter,
    paths_sent: Counter,
    paths_fused: Counter,
    paths_late: Counter,
    paths_duplicate: Counter,
    paths_dropped: Counter,
    paths_in_flight: Gauge,
    pub reports_waiting: Gauge,
    pub connections_lost: Counter,
}

impl NodeMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let paths = |fate| metrics.counter("hyloc_node_blocks_total", "Paths by fate.", &[("fate", fate)]);
        let gauge = |name, help| metrics.gauge(name, help, &[]);
        let counter = |name, help| metrics.counter(name, help, &[]);
        Self {
            frames: counter("hyloc_node_frames_total", "Echo frames received."),
            frames_refused: counter("hyloc_node_frames_refused_total", "Echo frames that were invalid."),
            frames_failed: counter("hyloc_node_frames_failed_total", "Echo frames without an estimate."),
            filter_seconds: metrics.seconds(
                "hyloc_node_filter_seconds",
                "Time of the matched filter per report.",
                &[],
            ),
            paths_sent: paths("sent"),
            paths_fused: paths("fused"),
            paths_late: paths("late"),
            paths_duplicate: paths("duplicate"),
            paths_dropped: paths("dropped"),
            paths_dropped_at_node: paths("dropped_at_node"),
            paths_in_flight: gauge("hyloc_node_blocks_in_flight", "Paths that are not decided yet."),
            reports_waiting: gauge("hyloc_node_reports_waiting", "Reports that wait to be sent."),
            connections_lost: counter(
                "hyloc_node_fusion_connections_lost_total",
                "Connections to the fusion center that broke.",
            ),
        }
    }

    /// Adds the difference between two states of the totals.
    pub fn add_difference(&self, before: &Totals, after: &Totals) {
        self.paths_sent.inc_by(after.sent.saturating_sub(before.sent));
        self.paths_fused.inc_by(after.fused.saturating_sub(before.fused));
        self.paths_late.inc_by(after.late.saturating_sub(before.late));
        self.paths_duplicate.inc_by(after.duplicate.saturating_sub(before.duplicate));
        self.paths_dropped.inc_by(after.dropped.saturating_sub(before.dropped));
        self.paths_in_flight.set(after.in_flight as f64);
    }
}

/// A node is ready when it is connected to the fusion center and to a source of echoes.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    health: Health,
    missing: Arc<Mutex<[Option<String>; 2]>>,
}

impl Readiness {
    pub fn new(health: Health) -> Self {
        let missing = [Some("not registered".into()), Some("no source of echoes is connected".into())];
        Self { health, missing: Arc::new(Mutex::new(missing)) }
    }

    /// Sets why the fusion center is not connected; none if it is.
    pub fn fusion(&self, reason: Option<String>) {
        self.set(0, reason);
    }

    pub fn simulator(&self, state: &SubscriptionState) {
        self.set(
            1,
            match state {
                SubscriptionState::Subscribed => None,
                SubscriptionState::Connecting => Some("no source of echoes is connected".into()),
                SubscriptionState::Refused(reason) => Some(format!("refused by the simulator: {reason}")),
                SubscriptionState::Ended { fault: None } => Some("the file of echoes has ended".into()),
                SubscriptionState::Ended { fault: Some(fault) } => Some(fault.clone()),
            },
        );
    }

    fn set(&self, peer: usize, reason: Option<String>) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing[peer] = reason;
        match missing.iter().flatten().next() {
            Some(reason) => self.health.not_ready(reason),
            None => self.health.ready(),
        }
    }
}
