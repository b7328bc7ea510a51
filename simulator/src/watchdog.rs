//! Health of the simulator: whether frames are sent at their rate, and whether a node receives them. It is checked by a
//! separate task, which also notices when the task that sends is stuck.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::Health;
use tokio::sync::watch;

/// Frames may be this late, and at least this many periods, before the echo leg counts as stuck.
const LATE: Duration = Duration::from_secs(5);
const LATE_PERIODS: f64 = 20.0;

const LOOK: Duration = Duration::from_millis(500);

/// What the task that sends has done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending {
    /// When the last frame left, or sending began.
    pub last: Instant,
    pub subscribed: usize,
}

/// Why no echo can reach a node; none if it can.
fn reason(sending: Sending, rate_hz: f64, now: Instant) -> Option<String> {
    let period = Duration::try_from_secs_f64(LATE_PERIODS / rate_hz).unwrap_or(Duration::MAX);
    let since = now.saturating_duration_since(sending.last);
    if since > LATE.max(period) {
        return Some(format!("the echo leg is stuck: no frame has left for {} s", since.as_secs()));
    }
    (sending.subscribed == 0).then(|| "no node is subscribed".into())
}

/// Keeps `health` up to date, for ever.
pub(crate) async fn watch(sending: Arc<watch::Sender<Sending>>, rate_hz: f64, health: Health) {
    let mut looks = tokio::time::interval(LOOK);
    loop {
        looks.tick().await;
        let sending = *sending.borrow();
        match reason(sending, rate_hz, Instant::now()) {
            Some(reason) => health.not_ready(reason),
            None => health.ready(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_when_nothing_leaves_and_when_nobody_takes_it() {
        let last = Instant::now();
        let at = |seconds: f64, rate_hz: f64, subscribed: usize| {
            reason(Sending { last, subscribed }, rate_hz, last + Duration::from_secs_f64(seconds))
        };
        assert_eq!(at(4.9, 50.0, 3), None);
        assert_eq!(at(6.0, 50.0, 3).unwrap(), "the echo leg is stuck: no frame has left for 6 s");
        assert_eq!(at(6.0, 0.1, 3), None, "a frame every ten seconds");
        assert!(at(201.0, 0.1, 3).is_some());
        assert_eq!(at(0.0, 50.0, 0).unwrap(), "no node is subscribed");
    }
}
