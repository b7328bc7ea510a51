//! Metrics of the simulator.

use proto::echo::EchoLedger;
use telemetry::{Counter, Gauge, Histogram, Metrics};

#[derive(Debug)]
pub(crate) struct SimulatorMetrics {
    pub frames: Counter,
    pub late_seconds: Histogram,
    pub subscribed: Gauge,
    pub refused: Gauge,
    pub evicted: Gauge,
    nodes: Vec<EchoMetrics>,
}

/// Echo frames of one node.
#[derive(Debug)]
struct EchoMetrics {
    delivered: Counter,
    dropped: Counter,
    in_flight: Gauge,
}

impl SimulatorMetrics {
    pub fn new(metrics: &Metrics, nodes: usize) -> Self {
        let node = |node: usize| {
            let node = node.to_string();
            let echoes = |fate| {
                let labels = [("node", node.as_str()), ("fate", fate)];
                metrics.counter("hyloc_simulator_echoes_total", "Echo frames by fate.", &labels)
            };
            let labels = [("node", node.as_str())];
            let help = "Echo frames in flight.";
            let in_flight = metrics.gauge("hyloc_simulator_echoes_in_flight", help, &labels);
            EchoMetrics { delivered: echoes("delivered"), dropped: echoes("dropped"), in_flight }
        };
        Self {
            frames: metrics.counter("hyloc_simulator_frames_total", "Frames made.", &[]),
            late_seconds: metrics.seconds(
                "hyloc_simulator_late_seconds",
                "Delay of a frame after its intended time.",
                &[],
            ),
            subscribed: metrics.gauge("hyloc_simulator_nodes_subscribed", "Nodes subscribed.", &[]),
            refused: metrics.gauge("hyloc_simulator_messages_refused", "Messages that were invalid.", &[]),
            evicted: metrics.gauge(
                "hyloc_simulator_peers_evicted",
                "Peers that were disconnected because they were too slow.",
                &[],
            ),
            nodes: (0..nodes).map(node).collect(),
        }
    }

    /// Brings the counters up to the ledgers.
    pub fn update(&self, ledgers: &[EchoLedger]) {
        for (node, ledger) in self.nodes.iter().zip(ledgers) {
            node.delivered.inc_by(ledger.delivered.saturating_sub(node.delivered.get()));
            node.dropped.inc_by(ledger.dropped.saturating_sub(node.dropped.get()));
            node.in_flight.set(ledger.in_flight as f64);
        }
    }
}
