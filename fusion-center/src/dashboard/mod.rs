//! The web page and its API.
//!
//! The page is part of the executable, loads nothing from other hosts and uses only the API, which
//! is described at `/api`. Live data are sent as server-sent events: every viewer has one buffer for the
//! latest fix, so that one that does not read delays no other and uses no further memory ([`crate::viewers`] says who gives
//! way when there are too many). Changes are forwarded to the
//! simulator and the backhaul only if that is allowed.

mod assets;
mod control;
mod describe;
mod live;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use model::units::dbm_from_watts;
use model::{Point, System};
use serde::Serialize;
use telemetry::needing;
use trust::Needs;

use crate::node_table::NodeTable;
use crate::place::{Axes, FixPlace};
use crate::publish::Viewer;
use crate::run::FusionSummary;
pub use control::{Control, ControlSettings};
use live::{EventSender, Live};

/// Nothing inline, nothing from other hosts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                       img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

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
    control: Arc<Control>,
    live: Live,
}

impl Dashboard {
    pub fn new(viewer: Viewer, node_table: NodeTable, site: SiteView, control: Control) -> Self {
        let (events, live) = Live::new();
        let control = Arc::new(control);
        Self { state: ApiState { viewer, node_table, site: Arc::new(site), control, live }, events }
    }

    /// The routes of page and API. Spawns a task that sends the live events.
    pub fn start(self) -> Router {
        tokio::spawn(self.events.run(self.state.clone()));
        let shown = Router::new()
            .route("/", get(assets::index))
            .route("/assets/{name}", get(assets::asset))
            .route("/api", get(describe::describe))
            .route("/api/site", get(site))
            .route("/api/summary", get(summary))
            .route("/api/live", get(live::stream))
            .route("/api/control", get(control::show));
        let changed = Router::new()
            .route("/api/control/motion", post(control::motion))
            .route("/api/control/profile", post(control::profile));
        needing(Needs::Watcher, shown)
            .merge(needing(Needs::Operator, changed))
            .layer(DefaultBodyLimit::max(control::LARGEST_BODY))
            .with_state(self.state)
            .layer(map_response(guard))
    }
}

/// Positions of the site's stations, for the map.
#[derive(Debug, Clone, Serialize)]
pub struct SiteView {
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
    pub fn new(system: &System, hash: String) -> Self {
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

async fn guard(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
