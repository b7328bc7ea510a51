//! Live data as server-sent events, bounded per viewer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use proto::clock::unix_time_ns;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::Dashboard;

/// Viewers at once.
const MOST_VIEWERS: usize = 64;

/// Shortest time between two fixes of one viewer.
const FIX_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two words on nodes and counts.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// A viewer's place; given back when it leaves.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(viewers: &Arc<AtomicUsize>) -> Option<Self> {
        let taken = viewers.fetch_add(1, Ordering::Relaxed);
        let seat = Self(viewers.clone());
        (taken < MOST_VIEWERS).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The stream of one viewer.
pub async fn stream(State(dashboard): State<Dashboard>) -> Response {
    let Some(seat) = Seat::take(&dashboard.viewers) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many viewers").into_response();
    };
    let Some(latest) = dashboard.viewer.live() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down").into_response();
    };
    let mut status = tokio::time::interval(STATUS_INTERVAL);
    status.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let viewing = Viewing { dashboard, latest, status, next_fix: Instant::now(), _seat: seat };
    let events = futures_util::stream::unfold(viewing, |mut viewing| async {
        let event = viewing.next().await?;
        Some((Ok::<_, Infallible>(event), viewing))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

struct Viewing {
    dashboard: Dashboard,
    latest: tokio::sync::watch::Receiver<Option<Arc<str>>>,
    status: tokio::time::Interval,
    next_fix: Instant,
    _seat: Seat,
}

impl Viewing {
    /// The next event; none when the publisher has stopped.
    async fn next(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                _ = self.status.tick() => return Some(self.status_event()),
                changed = fresh(&mut self.latest, self.next_fix) => {
                    if !changed {
                        return None;
                    }
                    let fix = self.latest.borrow_and_update().clone();
                    if let Some(fix) = fix {
                        self.next_fix = Instant::now() + FIX_INTERVAL;
                        return Some(Event::default().event("fix").data(&*fix));
                    }
                }
            }
        }
    }

    fn status_event(&self) -> Event {
        let figures = self.dashboard.viewer.figures();
        let status = json!({
            "now_ns": unix_time_ns(),
            "nodes": self.dashboard.office.nodes(),
            "counts": self.dashboard.office.counts(),
            "fixes": figures.fixes,
            "nominal": figures.nominal,
            "without_fix": figures.without_fix,
            "gap_db": figures.gap_db,
            "nees": figures.nees,
            "rms_error_m": figures.rms_error_m,
            "bound_rms_m": figures.bound_rms_m,
            "latency_ms": figures.latency_ms,
        });
        Event::default().event("status").data(status.to_string())
    }
}

/// Waits for a fix that the viewer has not seen, but not before `at`; false when there will be none.
async fn fresh(latest: &mut tokio::sync::watch::Receiver<Option<Arc<str>>>, at: Instant) -> bool {
    tokio::time::sleep_until(at).await;
    latest.changed().await.is_ok()
}
