//! What a viewer can take along: the history of the fixes, and the site.

use std::convert::Infallible;
use std::ops::Range;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ApiState;
use crate::history::{CSV_HEADER, FixHistory, PastFix, WINDOW_S};

/// Fixes of an answer unless it is asked for others, and at most.
const FEW: usize = 1200;
const MOST: usize = 6000;

/// Fixes that are written at once.
const CHUNK: u64 = 256;

#[derive(Debug, Deserialize)]
pub struct Wanted {
    most: Option<usize>,
}

/// `GET /api/history`.
pub async fn history(State(state): State<ApiState>, Query(Wanted { most }): Query<Wanted>) -> Json<Value> {
    let fixes = state.viewer.history(|history| history.thinned(most.unwrap_or(FEW).min(MOST)));
    Json(json!({ "window_s": WINDOW_S, "fixes": fixes }))
}

/// `GET /api/fixes.csv`.
pub async fn csv(State(state): State<ApiState>) -> Response {
    lines(&state, "text/csv; charset=utf-8", "fixes.csv", CSV_HEADER, |fix| fix.brief.csv())
}

/// `GET /api/fixes.jsonl`.
pub async fn json_lines(State(state): State<ApiState>) -> Response {
    let line = |fix: &PastFix| serde_json::to_string(fix).map_or_else(|_| String::new(), |line| line + "\n");
    lines(&state, "application/jsonl; charset=utf-8", "fixes.jsonl", "", line)
}

/// The history as a file, copied while it is read: a slow reader holds no fixes, and misses those that grow too old meanwhile.
fn lines(
    state: &ApiState,
    kind: &'static str,
    name: &str,
    head: &'static str,
    line: fn(&PastFix) -> String,
) -> Response {
    let viewer = state.viewer.clone();
    let Range { start, end } = viewer.history(FixHistory::numbers);
    let chunks = (start..end).step_by(CHUNK as usize).map(move |from| {
        let fixes = viewer.history(|history| history.range(from..end.min(from + CHUNK)));
        Bytes::from(fixes.iter().map(line).collect::<String>())
    });
    let all = std::iter::once(Bytes::from_static(head.as_bytes())).chain(chunks);
    let body = Body::from_stream(futures_util::stream::iter(all.map(Ok::<_, Infallible>)));
    attachment(kind, name, body)
}

fn attachment(kind: &'static str, name: &str, body: impl Into<Body>) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    ([(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, disposition)], body.into())
        .into_response()
}

/// `GET /api/site.toml`.
pub async fn site(State(state): State<ApiState>) -> Response {
    attachment("application/toml; charset=utf-8", "site.toml", state.site_toml.to_string())
}
