//! Live data as server-sent events: each is written once and shared by all viewers, who are bounded in number
//! and in what is kept for them.
//!
//! Every viewer has one place for the latest fix and one for the latest status. One that reads slowly misses
//! what came in between; one that never reads costs a place, and holds up nobody.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use proto::clock::unix_time_ns;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shown;
use crate::statistics::Quantiles;

/// Viewers at once.
const MOST_VIEWERS: usize = 64;

/// Time between two fixes that are shown: as fast as an eye follows, whatever the rate of the frames.
const FIX_INTERVAL: Duration = Duration::from_millis(100);

/// What each viewer adds to it at least: all together get a hundred fixes a second, however many they are.
const SHARE: Duration = Duration::from_millis(10);

/// Time between two words on nodes and counts.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// Words of status between two looks at the quantiles of all fixes so far, which change slowly and cost most.
const QUANTILES_EVERY: u32 = 4;

/// Where viewers find the latest events; cheap to clone.
#[derive(Debug, Clone)]
pub struct Live {
    fix: watch::Receiver<Bytes>,
    status: watch::Receiver<Bytes>,
    viewers: Arc<AtomicUsize>,
}

/// Where the events are put.
#[derive(Debug)]
pub struct Caster {
    fix: watch::Sender<Bytes>,
    status: watch::Sender<Bytes>,
    viewers: Arc<AtomicUsize>,
}

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

impl Live {
    /// Both ends, nobody watching.
    pub fn new() -> (Caster, Self) {
        let (fix_in, fix) = watch::channel(Bytes::new());
        let (status_in, status) = watch::channel(Bytes::new());
        let viewers = Arc::<AtomicUsize>::default();
        let caster = Caster { fix: fix_in, status: status_in, viewers: viewers.clone() };
        (caster, Self { fix, status, viewers })
    }

    /// A place for one more viewer, who sees what comes from now on; none if all are taken.
    fn join(&self) -> Option<Viewing> {
        let seat = Seat::take(&self.viewers)?;
        let (mut fix, mut status) = (self.fix.clone(), self.status.clone());
        fix.mark_unchanged();
        status.mark_unchanged();
        Some(Viewing { fix, status, _seat: seat })
    }
}

struct Viewing {
    fix: watch::Receiver<Bytes>,
    status: watch::Receiver<Bytes>,
    _seat: Seat,
}

impl Viewing {
    /// The next event that this viewer has not seen; none when there will be no more.
    async fn next(&mut self) -> Option<Bytes> {
        let latest = tokio::select! {
            changed = self.status.changed() => changed.ok().map(|()| &mut self.status),
            changed = self.fix.changed() => changed.ok().map(|()| &mut self.fix),
        };
        latest.map(|event| event.borrow_and_update().clone())
    }
}

/// The stream of one viewer.
pub async fn stream(State(shown): State<Shown>) -> Response {
    let Some(viewing) = shown.live.join() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many viewers\n").into_response();
    };
    let events = futures_util::stream::unfold(viewing, |mut viewing| async {
        let event = viewing.next().await?;
        Some((Ok::<_, Infallible>(event), viewing))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

/// An event as it goes over the wire: JSON has no line breaks, so that one line holds it.
fn event(name: &str, data: &impl Serialize) -> serde_json::Result<Bytes> {
    Ok(format!("event: {name}\ndata: {}\n\n", serde_json::to_string(data)?).into())
}

impl Caster {
    /// Writes events for as long as fixes are published; viewers' streams end with it.
    pub async fn run(self, shown: Shown) {
        let Some(mut latest) = shown.viewer.live() else { return };
        let (mut next_status, mut said, mut latency_ms) = (Instant::now(), 0, BTreeMap::new());
        loop {
            let viewers = self.viewers.load(Ordering::Relaxed);
            tokio::time::sleep(interval(viewers)).await;
            let Ok(fresh) = latest.has_changed() else { return };
            let fix = latest.borrow_and_update().clone();
            if self.viewers.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if Instant::now() >= next_status {
                next_status = Instant::now() + STATUS_INTERVAL;
                if said % QUANTILES_EVERY == 0 {
                    latency_ms = shown.viewer.latency_ms();
                }
                said = said.wrapping_add(1);
                let last_fix_ns = fix.as_ref().map(|fix| fix.timing.time_ns);
                put(&self.status, event("status", &status(&shown, last_fix_ns, &latency_ms)));
            }
            if let Some(fix) = fix.filter(|_| fresh) {
                put(&self.fix, event("fix", &*fix));
            }
        }
    }
}

/// Time between two fixes for that many viewers.
fn interval(viewers: usize) -> Duration {
    FIX_INTERVAL.max(SHARE * viewers.min(MOST_VIEWERS) as u32)
}

fn put(place: &watch::Sender<Bytes>, event: serde_json::Result<Bytes>) {
    match event {
        Ok(event) => drop(place.send_replace(event)),
        Err(error) => tracing::error!(%error, "an event cannot be written"),
    }
}

fn status(
    shown: &Shown,
    last_fix_ns: Option<u64>,
    latency_ms: &BTreeMap<&'static str, Quantiles>,
) -> serde_json::Value {
    let figures = shown.viewer.tally();
    json!({
        "now_ns": unix_time_ns(),
        "last_fix_ns": last_fix_ns,
        "nodes": shown.node_table.nodes(),
        "counts": shown.node_table.counts(),
        "fixes": figures.fixes,
        "nominal": figures.nominal,
        "without_fix": figures.without_fix,
        "gap_db": figures.gap_db,
        "gap_db_interval": figures.gap_db_interval,
        "nees": figures.nees,
        "nees_interval": figures.nees_interval,
        "rms_error_m": figures.rms_error_m,
        "bound_rms_m": figures.bound_rms_m,
        "latency_ms": latency_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_viewer_who_does_not_read_finds_the_latest_alone() {
        let (caster, live) = Live::new();
        put(&caster.fix, event("fix", &"before it came"));
        let mut viewing = live.join().unwrap();
        for frame in 0..10_000 {
            put(&caster.fix, event("fix", &frame));
        }
        assert_eq!(viewing.next().await.unwrap(), "event: fix\ndata: 9999\n\n");
        put(&caster.status, event("status", &json!({"identity": "a\nb"})));
        let status = viewing.next().await.unwrap();
        assert_eq!(status, "event: status\ndata: {\"identity\":\"a\\nb\"}\n\n", "no line break gets through");
        let other = live.join().unwrap().fix.borrow().clone();
        assert_eq!(other.as_ptr(), viewing.fix.borrow().as_ptr(), "the same bytes for all");
        drop(caster);
        assert_eq!(viewing.next().await, None);
    }

    #[test]
    fn many_viewers_share_a_hundred_fixes_a_second() {
        let intervals_ms = [0, 1, 10, 21, 64, 1000].map(|viewers| interval(viewers).as_millis());
        assert_eq!(intervals_ms, [100, 100, 100, 210, 640, 640]);
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let (_caster, live) = Live::new();
        let viewers: Vec<Viewing> = std::iter::from_fn(|| live.join()).take(1000).collect();
        assert_eq!(viewers.len(), MOST_VIEWERS);
        drop(viewers);
        assert!(live.join().is_some());
        assert_eq!(live.viewers.load(Ordering::Relaxed), 0);
    }
}
