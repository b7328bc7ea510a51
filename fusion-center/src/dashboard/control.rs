//! Control by the page: targets, power and clocks of the simulator, profile and links of the backhaul, and node
//! processes, if that is allowed.
//!
//! The fusion center only forwards requests. The simulator, the backhaul emulator and the supervisor of the nodes have controls
//! of their own, on addresses that a browser need not reach, and decide for themselves. Nothing is forwarded unless this process
//! was started with `--allow-control`; pages of other sites are refused before ([`telemetry::guard`]).

use std::net::ToSocketAddrs;
use std::time::Duration;

use anyhow::Context;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use proto::clock::unix_time_ns;
use serde_json::{Value, json};
use settings::OrNone;
use settings::check::host_and_port_or_none;
use telemetry::client;
use telemetry::exit::sentence;
use tokio::sync::Mutex;
use tokio::time::Instant;
use trust::{ClientTls, Identity};

use super::ApiState;
use super::change::{Change, ChangeHolder};

/// How long the state of simulator, backhaul and nodes is cached.
const FRESH: Duration = Duration::from_secs(1);

/// Longest request body that is accepted, bytes.
pub const LARGEST_BODY: usize = 1024;

/// What may be changed, and the addresses where.
#[derive(Debug, Clone, PartialEq, Eq, Default, clap::Args)]
pub struct ControlSettings {
    /// Allow the page to change what --control-simulator, --control-backhaul and --control-nodes name.
    #[arg(long = "allow-control", id = "allow_control")]
    pub allowed: bool,
    /// Host and port where targets, power and clocks of the simulator are changed, or `none`.
    #[arg(long = "control-simulator", id = "control_simulator", value_name = "ADDRESS", default_value = "none",
          value_parser = host_and_port_or_none)]
    pub simulator: OrNone<String>,
    /// Host and port where the backhaul's profile is changed and its links are cut, or `none`.
    #[arg(long = "control-backhaul", id = "control_backhaul", value_name = "ADDRESS", default_value = "none",
          value_parser = host_and_port_or_none)]
    pub backhaul: OrNone<String>,
    /// Host and port where node processes are killed and started, or `none`.
    #[arg(long = "control-nodes", id = "control_nodes", value_name = "ADDRESS", default_value = "none",
          value_parser = host_and_port_or_none)]
    pub nodes: OrNone<String>,
}

impl ControlSettings {
    fn address(&self, holder: ChangeHolder) -> Option<&str> {
        match holder {
            ChangeHolder::Simulator => self.simulator.as_deref(),
            ChangeHolder::Backhaul => self.backhaul.as_deref(),
            ChangeHolder::Nodes => self.nodes.as_deref(),
        }
    }
}

/// Forwards changes, one at a time.
#[derive(Debug)]
pub struct Control {
    settings: ControlSettings,
    /// Proves to the others that the request comes from the fusion center.
    tls: Option<ClientTls>,
    changing: Mutex<()>,
    cached: Mutex<Option<(Instant, Value)>>,
}

/// A status and the reason.
pub type ErrorResponse = (StatusCode, Json<Value>);

pub fn refuse(status: StatusCode, reason: impl std::fmt::Display) -> ErrorResponse {
    (status, Json(json!({ "error": reason.to_string() })))
}

impl Control {
    pub fn new(settings: ControlSettings, identity: Option<Identity>) -> Self {
        let tls = identity.map(|identity| identity.client(None));
        Self { settings, tls, changing: Mutex::default(), cached: Mutex::default() }
    }

    /// Whether control is allowed, for the API's description.
    pub fn describe(&self) -> &'static str {
        if self.settings.allowed { "allowed" } else { "off: start the fusion center with --allow-control" }
    }

    /// What may be changed, and its current state.
    async fn view(&self) -> Value {
        if !self.settings.allowed {
            return json!({ "allowed": false, "simulator": null, "backhaul": null, "nodes": null });
        }
        let mut cached = self.cached.lock().await;
        if let Some((since, view)) = &*cached
            && since.elapsed() < FRESH
        {
            return view.clone();
        }
        let simulator = self.current(ChangeHolder::Simulator, "/state").await;
        let mut backhaul = self.current(ChangeHolder::Backhaul, "/profiles").await;
        if backhaul["profiles"].is_array() {
            backhaul["links"] = self.current(ChangeHolder::Backhaul, "/links").await;
        }
        let nodes = self.current(ChangeHolder::Nodes, "/nodes").await;
        let view = json!({ "allowed": true, "simulator": simulator, "backhaul": backhaul, "nodes": nodes });
        *cached = Some((Instant::now(), view.clone()));
        view
    }

    /// Checks whether a request may change anything, and what it asks for.
    fn admit(&self, subject: &str, body: &Bytes) -> Result<Change, ErrorResponse> {
        if !self.settings.allowed {
            return Err(refuse(StatusCode::FORBIDDEN, format!("control is {}", self.describe())));
        }
        Change::parse(subject, body)
    }

    /// Forwards a change and returns the new state.
    async fn forward(&self, change: &Change) -> Result<Json<Value>, ErrorResponse> {
        let what = change.holder.name();
        let Some(address) = self.settings.address(change.holder) else {
            let reason = format!("the fusion center was not told where the {what} is controlled");
            return Err(refuse(StatusCode::NOT_FOUND, reason));
        };
        let Ok(_one_at_a_time) = self.changing.try_lock() else {
            return Err(refuse(StatusCode::CONFLICT, "another change is in progress"));
        };
        tracing::info!(change = change.said, "change requested");
        match self.request(address, change.method, &change.path, change.body.clone()).await {
            Ok(client::Response { status: 200..300, .. }) => {}
            Ok(answer) => {
                let status = match answer.status {
                    404 | 422 => StatusCode::UNPROCESSABLE_ENTITY,
                    _ => StatusCode::BAD_GATEWAY,
                };
                return Err(refuse(status, answer.body.trim_end()));
            }
            Err(error) => {
                return Err(refuse(StatusCode::BAD_GATEWAY, format!("the {what} does not answer: {error}")));
            }
        }
        *self.cached.lock().await = None;
        Ok(Json(self.view().await))
    }

    /// The state that a holder serves; null without an address.
    async fn current(&self, holder: ChangeHolder, path: &str) -> Value {
        let Some(address) = self.settings.address(holder) else { return Value::Null };
        let answer = self.request(address, "GET", path, String::new()).await;
        let parsed = answer.map_err(|error| sentence(&error)).and_then(|answer| match answer.status {
            200 => serde_json::from_str(&answer.body).map_err(|error| error.to_string()),
            _ => Err(answer.body),
        });
        parsed.unwrap_or_else(|reason| json!({ "error": reason }))
    }

    /// Sends a request to the IP address of `host`: the other processes, too, refuse requests by an unknown name. Other
    /// hosts are asked over TLS, if there is a certificate, as they serve it.
    async fn request(
        &self,
        host: &str,
        method: &'static str,
        path: &str,
        body: String,
    ) -> anyhow::Result<client::Response> {
        let (host, path, tls) = (host.to_owned(), path.to_owned(), self.tls.clone());
        let request = move || {
            let unknown = || format!("{host} has no address");
            let address = host.to_socket_addrs().with_context(unknown)?.next().with_context(unknown)?;
            let tls = tls.filter(|_| !address.ip().is_loopback());
            let scheme = if tls.is_some() { "https" } else { "http" };
            client::request_with(tls.as_ref(), method, &format!("{scheme}://{address}{path}"), &body)
        };
        tokio::task::spawn_blocking(request).await?
    }
}

/// `GET /api/control`.
pub async fn show(State(state): State<ApiState>) -> Json<Value> {
    Json(state.control.view().await)
}

/// `POST /api/control/{subject}`. What was asked for and what became of it is told to all viewers.
pub async fn change(
    State(ApiState { control, happenings, .. }): State<ApiState>,
    Path(subject): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ErrorResponse> {
    let change = control.admit(&subject, &body)?;
    let answer = control.forward(&change).await;
    let text = match &answer {
        Ok(_) => change.said,
        Err((_, Json(reason))) => {
            format!("{}: refused: {}", change.said, reason["error"].as_str().unwrap_or_default())
        }
    };
    happenings.add(unix_time_ns(), "control", text);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_admitted_unless_that_is_allowed() {
        let admitted = |allowed: bool, subject: &str, body: &str| {
            let control = Control::new(ControlSettings { allowed, ..ControlSettings::default() }, None);
            let admitted = control.admit(subject, &Bytes::from(body.to_owned()));
            admitted.map(|change| change.path).map_err(|(status, _)| status.as_u16())
        };
        let wish = r#"{"name":"circle"}"#;
        assert_eq!(admitted(true, "motion", wish), Ok("/motion".into()));
        assert_eq!(admitted(false, "motion", wish), Err(403));
        assert_eq!(admitted(false, "nothing", ""), Err(403));
        assert_eq!(admitted(true, "nothing", wish), Err(404));
    }
}
