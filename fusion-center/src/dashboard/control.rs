//! Control by the page: the target's motion and the profile of the backhaul, if that is allowed.
//!
//! The fusion center only forwards requests. The simulator and the backhaul emulator have controls of their own, on
//! addresses that a browser need not reach, and decide for themselves. Nothing is forwarded unless this process was
//! started with `--allow-control`; pages of other sites are refused before ([`telemetry::guard`]).

use std::net::ToSocketAddrs;
use std::time::Duration;

use anyhow::Context;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use settings::OrNone;
use settings::check::host_and_port_or_none;
use telemetry::client;
use telemetry::exit::sentence;
use tokio::sync::Mutex;
use tokio::time::Instant;
use trust::{ClientTls, Identity};

use super::ApiState;

/// How long the state of simulator and backhaul is cached.
const FRESH: Duration = Duration::from_secs(1);

/// Longest request body that is accepted, bytes.
pub const LARGEST_BODY: usize = 1024;

/// What may be changed, and the addresses where.
#[derive(Debug, Clone, PartialEq, Eq, Default, clap::Args)]
pub struct ControlSettings {
    /// Allow the page to change what --control-simulator and --control-backhaul name.
    #[arg(long = "allow-control", id = "allow_control")]
    pub allowed: bool,
    /// Host and port where the motion of the simulator's target is changed, or `none`.
    #[arg(long = "control-simulator", id = "control_simulator", value_name = "ADDRESS", default_value = "none",
          value_parser = host_and_port_or_none)]
    pub simulator: OrNone<String>,
    /// Host and port where the backhaul's profile is changed, or `none`.
    #[arg(long = "control-backhaul", id = "control_backhaul", value_name = "ADDRESS", default_value = "none",
          value_parser = host_and_port_or_none)]
    pub backhaul: OrNone<String>,
}

/// Forwards changes, one at a time.
#[derive(Debug)]
pub struct Control {
    settings: ControlSettings,
    /// Proves to simulator and backhaul that the request comes from the fusion center.
    tls: Option<ClientTls>,
    changing: Mutex<()>,
    cached: Mutex<Option<(Instant, Value)>>,
}

/// The body of a change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeRequest {
    name: String,
}

/// A status and the reason.
type ErrorResponse = (StatusCode, Json<Value>);

fn refuse(status: StatusCode, reason: impl std::fmt::Display) -> ErrorResponse {
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
        let settings = &self.settings;
        if !settings.allowed {
            return json!({ "allowed": false, "simulator": null, "backhaul": null });
        }
        let mut cached = self.cached.lock().await;
        if let Some((since, view)) = &*cached
            && since.elapsed() < FRESH
        {
            return view.clone();
        }
        let simulator = self.current(settings.simulator.as_deref(), "/motion").await;
        let backhaul = self.current(settings.backhaul.as_deref(), "/profiles").await;
        let view = json!({ "allowed": true, "simulator": simulator, "backhaul": backhaul });
        *cached = Some((Instant::now(), view.clone()));
        view
    }

    /// Checks whether a request may change anything; returns the name that it asks for.
    fn admit(&self, body: &Bytes) -> Result<String, ErrorResponse> {
        if !self.settings.allowed {
            return Err(refuse(StatusCode::FORBIDDEN, format!("control is {}", self.describe())));
        }
        let ChangeRequest { name } =
            serde_json::from_slice(body).map_err(|error| refuse(StatusCode::UNPROCESSABLE_ENTITY, error))?;
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if !(1..=32).contains(&name.len()) || !name.bytes().all(plain) {
            let reason = "a name has 1 to 32 lower-case letters, digits or hyphens";
            return Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, reason));
        }
        Ok(name)
    }

    /// Forwards a change of `what` and returns the new state.
    async fn forward(
        &self,
        address: Option<&str>,
        what: &'static str,
        path: &'static str,
        body: String,
    ) -> Result<Json<Value>, ErrorResponse> {
        let Some(address) = address else {
            let reason = format!("the fusion center was not told where the {what} is controlled");
            return Err(refuse(StatusCode::NOT_FOUND, reason));
        };
        let Ok(_one_at_a_time) = self.changing.try_lock() else {
            return Err(refuse(StatusCode::CONFLICT, "another change is in progress"));
        };
        tracing::info!(what, body, "change requested");
        match self.request(address, "PUT", path, body).await {
            Ok(client::Response { status: 200..300, .. }) => {}
            Ok(answer) => {
                let status = if answer.status == 422 {
                    StatusCode::UNPROCESSABLE_ENTITY
                } else {
                    StatusCode::BAD_GATEWAY
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

    /// The state that is served at `address`; null without an address.
    async fn current(&self, address: Option<&str>, path: &'static str) -> Value {
        let Some(address) = address else { return Value::Null };
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
        path: &'static str,
        body: String,
    ) -> anyhow::Result<client::Response> {
        let (host, tls) = (host.to_owned(), self.tls.clone());
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

/// `POST /api/control/motion`.
pub async fn motion(
    State(ApiState { control, .. }): State<ApiState>,
    body: Bytes,
) -> Result<Json<Value>, ErrorResponse> {
    let name = control.admit(&body)?;
    control.forward(control.settings.simulator.as_deref(), "simulator", "/motion", name).await
}

/// `POST /api/control/profile`.
pub async fn profile(
    State(ApiState { control, .. }): State<ApiState>,
    body: Bytes,
) -> Result<Json<Value>, ErrorResponse> {
    let plan = format!("profile = \"{}\"\n", control.admit(&body)?);
    control.forward(control.settings.backhaul.as_deref(), "backhaul", "/profile", plan).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_name_is_passed_on() {
        let admitted = |allowed: bool, body: &str| {
            let control = Control::new(ControlSettings { allowed, ..ControlSettings::default() }, None);
            let admitted = control.admit(&Bytes::from(body.to_owned()));
            admitted.map_err(|(status, _)| status.as_u16())
        };
        let wish = r#"{"name":"5g-fronthaul"}"#;
        assert_eq!(admitted(true, wish), Ok("5g-fronthaul".into()));
        assert_eq!(admitted(false, wish), Err(403));
        for name in ["", "a\\n[up]", "Fibre", "fibre\\\"", &"a".repeat(33)] {
            assert_eq!(admitted(true, &format!(r#"{{"name":"{name}"}}"#)), Err(422), "{name}");
        }
        assert_eq!(admitted(true, r#"{"name":"fibre","link":"x"}"#), Err(422));
    }
}
