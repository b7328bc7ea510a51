//! The web page and its API.
//!
//! The page is part of the executable, loads nothing from other hosts and uses only the API, which
//! is described at `/api`. Live data are sent as server-sent events: every viewer has one buffer for the
//! latest fix, so that one that does not read delays no other and uses no further memory ([`crate::viewers`] says who gives
//! way when there are too many). Changes are forwarded to the
//! simulator, the backhaul and the supervisor of the nodes only if that is allowed.

mod assets;
mod change;
mod control;
mod describe;
mod downloads;
mod happenings;
mod live;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use model::units::dbm_from_watts;
use model::{Point, System};
use serde::{Deserialize, Serialize};
use telemetry::needing;
use trust::Needs;

use crate::likelihood::Likelihoods;
use crate::node_table::NodeTable;
use crate::place::{Axes, FixPlace};
use crate::publish::Viewer;
use crate::run::FusionSummary;
pub use control::{Control, ControlSettings};
use happenings::{Happening, Happenings};
use live::{EventSender, Live};

/// Nothing inline, nothing from other hosts; pictures of plots are made by the page itself.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                       img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(Debug)]
pub struct Dashboard {
    state: ApiState,
    events: EventSender,
}

/// What requests have access to; cheap to clone.
#[derive(Debug, Clone)]
struct ApiState {
    viewer: Viewer,
    node_table: NodeTable,
    site: Arc<SiteView>,
    site_toml: Arc<str>,
    control: Arc<Control>,
    likelihoods: Arc<Likelihoods>,
    happenings: Happenings,
    live: Live,
}

impl Dashboard {
    /// The page of a site, whose hash in short form is `hash`.
    pub fn new(
        viewer: Viewer,
        node_table: NodeTable,
        (system, hash): (&System, String),
        control: Control,
        likelihoods: Likelihoods,
    ) -> Self {
        let (events, live) = Live::new();
        let state = ApiState {
            viewer,
            node_table,
            site: Arc::new(SiteView::new(system, hash)),
            site_toml: settings::site_toml(system).into(),
            control: Arc::new(control),
            likelihoods: Arc::new(likelihoods),
            happenings: Happenings::default(),
            live,
        };
        Self { state, events }
    }

    /// The routes of page and API. Spawns the tasks that send the live events and note what happens.
    pub fn start(self) -> Router {
        tokio::spawn(self.events.run(self.state.clone()));
        tokio::spawn(self.state.happenings.clone().follow(self.state.clone()));
        let shown = Router::new()
            .route("/", get(assets::index))
            .route("/assets/{name}", get(assets::asset))
            .route("/api", get(describe::describe))
            .route("/api/site", get(site))
            .route("/api/summary", get(summary))
            .route("/api/live", get(live::stream))
            .route("/api/history", get(downloads::history))
            .route("/api/fixes.csv", get(downloads::csv))
            .route("/api/fixes.jsonl", get(downloads::json_lines))
            .route("/api/site.toml", get(downloads::site))
            .route("/api/likelihood", get(likelihood))
            .route("/api/events", get(events))
            .route("/api/control", get(control::show));
        let changed = Router::new().route("/api/control/{subject}", post(control::change));
        needing(Needs::Watcher, shown)
            .merge(needing(Needs::Operator, changed))
            .layer(DefaultBodyLimit::max(control::LARGEST_BODY))
            .with_state(self.state)
            .layer(map_response(guard))
    }
}

/// Positions of the site's stations, for the map.
#[derive(Debug, Clone, Serialize)]
struct SiteView {
    base_station_m: FixPlace,
    /// Least and largest coordinates.
    coverage_m: [FixPlace; 2],
    irs: Vec<SiteIrs>,
    power_dbm: f64,
    /// Short form of the site's hash.
    hash: String,
}

#[derive(Debug, Clone, Serialize)]
struct SiteIrs {
    position_m: FixPlace,
    /// Azimuth of the boresight.
    broadside_rad: f64,
    elevation_rad: f64,
    roll_rad: f64,
    half_sector_rad: f64,
}

impl SiteView {
    fn new(system: &System, hash: String) -> Self {
        let axes = Axes::of_site(system);
        let place = |at: Point| FixPlace::new(at, axes);
        let half_sector_rad = system.sensor_array().unambiguous_half_sector_rad();
        let irs = system.irs.iter().map(|irs| SiteIrs {
            position_m: place(irs.pose.position_m),
            broadside_rad: irs.pose.broadside_rad(),
            elevation_rad: irs.pose.orientation.elevation_rad,
            roll_rad: irs.pose.orientation.roll_rad,
            half_sector_rad,
        });
        Self {
            base_station_m: place(system.base_station_m),
            coverage_m: [system.coverage.min_m, system.coverage.max_m].map(|at| place(at.into())),
            irs: irs.collect(),
            power_dbm: dbm_from_watts(system.transmit_power_w),
            hash,
        }
    }
}

async fn site(State(state): State<ApiState>) -> Json<SiteView> {
    Json(state.site.as_ref().clone())
}

async fn summary(State(state): State<ApiState>) -> Json<FusionSummary> {
    Json(FusionSummary::new(&state.viewer, &state.node_table))
}

async fn likelihood(State(state): State<ApiState>) -> Response {
    match state.likelihoods.view().await {
        Ok(view) => Json(&*view).into_response(),
        Err(reason) => control::refuse(StatusCode::CONFLICT, reason).into_response(),
    }
}

#[derive(Debug, Deserialize)]
struct EventsAfter {
    after: Option<u64>,
}

async fn events(
    State(state): State<ApiState>,
    Query(EventsAfter { after }): Query<EventsAfter>,
) -> Json<Vec<Happening>> {
    Json(state.happenings.after(after.unwrap_or(0)))
}

async fn guard(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
