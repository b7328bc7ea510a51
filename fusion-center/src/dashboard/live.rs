//! Live data as server-sent events. Each event is serialised once and shared by all viewers, whose number and buffers are
//! bounded.
//!
//! Every viewer has a buffer for the latest fix and one for the latest status. A viewer that reads slowly misses
//! events; one that never reads occupies a slot until its connection is closed as idle, and delays no other.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use proto::clock::unix_time_ns;
use serde::Serialize;
use serde_json::json;
use telemetry::listener::admission::peer_key;
use tokio::sync::watch;
use tokio::time::Instant;
use trust::Caller;

use super::ApiState;
use crate::statistics::Quantiles;
use crate::viewers::{MOST_VIEWERS, ViewerSlot, Viewers};

/// Least time between two fix events, independent of the rate of frames.
const FIX_INTERVAL: Duration = Duration::from_millis(100);

/// Least time between two fix events per viewer: all viewers together get at most a hundred fixes a second.
const FIX_INTERVAL_PER_VIEWER: Duration = Duration::from_millis(10);

const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// Status events per computation of the latency quantiles, which change slowly and are expensive.
const QUANTILES_EVERY: u32 = 4;

/// The receiving side of the latest events; cheap to clone.
#[derive(Debug, Clone)]
pub struct Live {
    fix: watch::Receiver<Bytes>,
    status: watch::Receiver<Bytes>,
    viewers: Viewers,
}

/// The sending side of the events.
#[derive(Debug)]
pub struct EventSender {
    fix: watch::Sender<Bytes>,
    status: watch::Sender<Bytes>,
    viewers: Viewers,
}

impl Live {
    pub fn new() -> (EventSender, Self) {
        let (fix_in, fix) = watch::channel(Bytes::new());
        let (status_in, status) = watch::channel(Bytes::new());
        let viewers = Viewers::default();
        let events = EventSender { fix: fix_in, status: status_in, viewers: viewers.clone() };
        (events, Self { fix, status, viewers })
    }

    /// Adds a viewer, which gets events from now on; none if all slots are taken by others.
    fn join(&self, peer: IpAddr) -> Option<Viewing> {
        let slot = self.viewers.join(peer)?;
        let (mut fix, mut status) = (self.fix.clone(), self.status.clone());
        fix.mark_unchanged();
        status.mark_unchanged();
        Some(Viewing { fix, status, slot, ended: false })
    }
}

struct Viewing {
    fix: watch::Receiver<Bytes>,
    status: watch::Receiver<Bytes>,
    slot: ViewerSlot,
    ended: bool,
}

impl Viewing {
    /// The next event that this viewer has not received; none when the stream has ended.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let latest = tokio::select! {
            biased;
            () = self.slot.evicted.cancelled() => {
                self.ended = true;
                let reason = "closed: this address has too many viewers, and another one was opened";
                return event("evicted", &json!({ "reason": reason })).ok();
            }
            changed = self.status.changed() => changed.ok().map(|()| &mut self.status),
            changed = self.fix.changed() => changed.ok().map(|()| &mut self.fix),
        };
        latest.map(|event| event.borrow_and_update().clone())
    }
}

/// `GET /api/live`.
pub async fn stream(State(state): State<ApiState>, caller: Option<Extension<Caller>>) -> Response {
    let address = caller.and_then(|Extension(caller)| caller.address);
    let peer = address.map_or(Ipv4Addr::UNSPECIFIED.into(), |address| peer_key(address.ip()));
    let Some(viewing) = state.live.join(peer) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many viewers\n").into_response();
    };
    let events = futures_util::stream::unfold(viewing, |mut viewing| async {
        let event = viewing.next().await?;
        Some((Ok::<_, Infallible>(event), viewing))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

/// A server-sent event; its JSON contains no line break and is therefore one line.
fn event(name: &str, data: &impl Serialize) -> serde_json::Result<Bytes> {
    Ok(format!("event: {name}\ndata: {}\n\n", serde_json::to_string(data)?).into())
}

impl EventSender {
    /// Sends events as long as fixes are published; the viewers' streams end with it.
    pub async fn run(self, state: ApiState) {
        let Some(mut latest) = state.viewer.live() else { return };
        let (mut next_status, mut sent, mut latency_ms) = (Instant::now(), 0, BTreeMap::new());
        loop {
            tokio::time::sleep(interval(self.viewers.count())).await;
            let Ok(fresh) = latest.has_changed() else { return };
            let fix = latest.borrow_and_update().clone();
            if self.viewers.count() == 0 {
                continue;
            }
            if Instant::now() >= next_status {
                next_status = Instant::now() + STATUS_INTERVAL;
                if sent % QUANTILES_EVERY == 0 {
                    latency_ms = state.viewer.latency_ms();
                }
                sent = sent.wrapping_add(1);
                let last_fix_ns = fix.as_ref().map(|fix| fix.timing.time_ns);
                put(&self.status, event("status", &status(&state, last_fix_ns, &latency_ms)));
            }
            if let Some(fix) = fix.filter(|_| fresh) {
                put(&self.fix, event("fix", &*fix));
            }
        }
    }
}

/// Time between two fix events for this many viewers.
fn interval(viewers: usize) -> Duration {
    FIX_INTERVAL.max(FIX_INTERVAL_PER_VIEWER * viewers.min(MOST_VIEWERS) as u32)
}

fn put(place: &watch::Sender<Bytes>, event: serde_json::Result<Bytes>) {
    match event {
        Ok(event) => drop(place.send_replace(event)),
        Err(error) => tracing::error!(%error, "an event cannot be serialised"),
    }
}

fn status(
    state: &ApiState,
    last_fix_ns: Option<u64>,
    latency_ms: &BTreeMap<&'static str, Quantiles>,
) -> serde_json::Value {
    let figures = state.viewer.tally();
    json!({
        "now_ns": unix_time_ns(),
        "last_fix_ns": last_fix_ns,
        "last_event": state.happenings.last(),
        "nodes": state.node_table.nodes(),
        "counts": state.node_table.counts(),
        "fixes": figures.fixes,
        "nominal": figures.nominal,
        "degraded": figures.degraded,
        "doubtful": figures.doubtful,
        "without_fix": figures.without_fix,
        "gap_db": figures.gap_db,
        "gap_db_interval": figures.gap_db_interval,
        "nees": figures.nees,
        "nees_expected": figures.nees_expected,
        "nees_interval": figures.nees_interval,
        "rms_error_m": figures.rms_error_m,
        "bound_rms_m": figures.bound_rms_m,
        "judged": figures.judged,
        "targets": figures.targets,
        "latency_ms": latency_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_viewer_who_does_not_read_finds_the_latest_alone() {
        let (events, live) = Live::new();
        put(&events.fix, event("fix", &"before it came"));
        let peer = IpAddr::from([192, 0, 2, 1]);
        let mut viewing = live.join(peer).unwrap();
        for frame in 0..10_000 {
            put(&events.fix, event("fix", &frame));
        }
        assert_eq!(viewing.next().await.unwrap(), "event: fix\ndata: 9999\n\n");
        put(&events.status, event("status", &json!({"identity": "a\nb"})));
        let status = viewing.next().await.unwrap();
        assert_eq!(status, "event: status\ndata: {\"identity\":\"a\\nb\"}\n\n", "no line break gets through");
        let other = live.join(peer).unwrap().fix.borrow().clone();
        assert_eq!(other.as_ptr(), viewing.fix.borrow().as_ptr(), "the same bytes for all");
        drop(events);
        assert_eq!(viewing.next().await, None);
    }

    #[test]
    fn many_viewers_share_a_hundred_fixes_a_second() {
        let intervals_ms = [0, 1, 10, 21, 64, 1000].map(|viewers| interval(viewers).as_millis());
        assert_eq!(intervals_ms, [100, 100, 100, 210, 640, 640]);
    }

    #[tokio::test]
    async fn a_viewer_who_gives_way_is_told_so() {
        let (_caster, live) = Live::new();
        let peer = IpAddr::from([192, 0, 2, 1]);
        let mut viewers: Vec<Viewing> = (0..=MOST_VIEWERS).map(|_| live.join(peer).unwrap()).collect();
        let told = viewers[0].next().await.unwrap();
        assert!(told.starts_with(b"event: evicted\ndata: {\"reason\":\"closed: "), "{told:?}");
        assert_eq!(viewers[0].next().await, None);
        assert_eq!(live.viewers.count(), MOST_VIEWERS);
    }
}
