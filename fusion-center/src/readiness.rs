//! Whether a fix could be made and published now, for `/ready`. Pure except for [`watch`].
//!
//! Writers of files set conditions of their own, such as a fix log that cannot be written.

use std::time::Duration;

use proto::clock::steady_time_ns;
use telemetry::Health;
use tokio_util::sync::CancellationToken;

use crate::node_table::NodeTable;

/// How long without a frame the fusion center counts as ready.
const MOST_QUIET: Duration = Duration::from_secs(5);

/// How often readiness is checked.
const INTERVAL: Duration = Duration::from_millis(250);

/// What readiness depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    pub irs_count: usize,
    /// Nodes whose stream is open.
    pub connected: usize,
    /// Time since the last frame that had enough paths to be solved; none before the first.
    pub frame_age_ns: Option<u64>,
    /// Frames shed so far, while the solvers are overloaded.
    pub shed: Option<u64>,
}

/// What may keep fixes from being made, and why it does.
type Conditions = [(&'static str, Option<String>); 3];

pub fn conditions(observed: Observed) -> Conditions {
    let Observed { irs_count, connected, frame_age_ns, shed } = observed;
    let nodes = match connected {
        0 => Some("none is connected".to_owned()),
        _ if 2 * connected < irs_count => {
            Some(format!("{connected} of {irs_count} are connected, fewer than half"))
        }
        _ => None,
    };
    let most_ns = MOST_QUIET.as_nanos() as u64;
    let frames = match frame_age_ns {
        None => Some("none has been received".to_owned()),
        Some(age_ns) if age_ns > most_ns => Some(format!("none for {} s", age_ns / 1_000_000_000)),
        Some(_) => None,
    };
    let load = shed.map(|shed| format!("overloaded, {shed} frames shed so far"));
    [("nodes", nodes), ("frames", frames), ("load", load)]
}

/// Keeps the readiness of `health` up to date until `shutdown`.
pub async fn watch(node_table: NodeTable, health: Health, shutdown: CancellationToken) {
    let mut interval = tokio::time::interval(INTERVAL);
    while !shutdown.is_cancelled() {
        for (what, problem) in conditions(node_table.observed(steady_time_ns())) {
            health.condition(what, problem);
        }
        tokio::select! {
            _ = interval.tick() => {}
            () = shutdown.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Observed = Observed { irs_count: 4, connected: 2, frame_age_ns: Some(0), shed: None };

    fn problems(observed: Observed) -> Vec<String> {
        conditions(observed)
            .into_iter()
            .filter_map(|(what, why)| why.map(|why| format!("{what}: {why}")))
            .collect()
    }

    #[test]
    fn every_reason_is_listed() {
        assert_eq!(problems(READY), [""; 0]);
        assert_eq!(problems(Observed { frame_age_ns: Some(5_000_000_000), ..READY }), [""; 0]);
        let nothing = Observed { connected: 0, frame_age_ns: None, shed: Some(7), ..READY };
        let all = [
            "nodes: none is connected",
            "frames: none has been received",
            "load: overloaded, 7 frames shed so far",
        ];
        assert_eq!(problems(nothing), all);
        assert_eq!(
            problems(Observed { connected: 1, ..READY }),
            ["nodes: 1 of 4 are connected, fewer than half"]
        );
        assert_eq!(
            problems(Observed { frame_age_ns: Some(12_900_000_000), ..READY }),
            ["frames: none for 12 s"]
        );
    }
}
