//! What the page may change: the target's path and the profile of the backhaul, if that was allowed.
//!
//! The fusion center only passes on. The simulator and the relay have controls of their own, on addresses that
//! a browser need not reach, and decide for themselves. Nothing is passed on unless this process was started
//! with `--allow-control`, and unless the request is one that only its own page can make: JSON, which a form
//! elsewhere cannot send, to an address rather than a name, which another page cannot have taken over.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use settings::OrNone;
use settings::check::host_and_port_or_none;
use telemetry::client;
use telemetry::http::named_by_address;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Shown;

/// How long what the others said is passed on without asking again.
const FRESH: Duration = Duration::from_secs(1);

/// Longest body that is looked at.
pub const LARGEST_BODY: usize = 1024;

/// What may be changed, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default, clap::Args)]
pub struct ControlSettings {
    /// Let the page change what --control-simulator and --control-backhaul name.
    #[arg(long = "allow-control", id = "allow_control")]
    pub allowed: bool,
    /// Host and port where the simulator's path is changed, or `none`.
    #[arg(long = "control-simulator", id = "control_simulator", value_name = "ADDRESS", default_value = "none",
          value_parser = host_and_port_or_none)]
    pub simulator: OrNone<String>,
    /// Host and port where the backhaul's profile is changed, or `none`.
    #[arg(long = "control-backhaul", id = "control_backhaul", value_name = "ADDRESS", default_value = "none",
          value_parser = host_and_port_or_none)]
    pub backhaul: OrNone<String>,
}

/// Passes changes on, one at a time.
#[derive(Debug, Clone)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: ControlSettings,
    changing: Mutex<()>,
    known: Mutex<Option<(Instant, Value)>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    name: String,
}

/// A status and the reason.
type ErrorResponse = (StatusCode, Json<Value>);

fn refuse(status: StatusCode, reason: impl std::fmt::Display) -> ErrorResponse {
    (status, Json(json!({ "error": reason.to_string() })))
}

impl Control {
    /// With these settings.
    pub fn new(settings: ControlSettings) -> Self {
        Self(Arc::new(Inner { settings, changing: Mutex::default(), known: Mutex::default() }))
    }

    /// In words, for the API's description of itself.
    pub fn describe(&self) -> &'static str {
        if self.0.settings.allowed { "allowed" } else { "off: start the fusion center with --allow-control" }
    }

    /// What may be changed, and how things stand.
    async fn view(&self) -> Value {
        let Inner { settings, known, .. } = &*self.0;
        if !settings.allowed {
            return json!({ "allowed": false, "simulator": null, "backhaul": null });
        }
        let mut known = known.lock().await;
        if let Some((since, view)) = &*known
            && since.elapsed() < FRESH
        {
            return view.clone();
        }
        let simulator = current(settings.simulator.as_deref(), "/motion").await;
        let backhaul = current(settings.backhaul.as_deref(), "/profiles").await;
        let view = json!({ "allowed": true, "simulator": simulator, "backhaul": backhaul });
        *known = Some((Instant::now(), view.clone()));
        view
    }

    /// Whether a request may change anything, and the name that it asks for.
    fn admit(&self, headers: &HeaderMap, body: &Bytes) -> Result<String, ErrorResponse> {
        if !self.0.settings.allowed {
            return Err(refuse(
                StatusCode::FORBIDDEN,
                "control is off: start the fusion center with --allow-control",
            ));
        }
        if !named_by_address(headers) {
            let reason = "control is for pages opened by address, as in http://127.0.0.1:7401/";
            return Err(refuse(StatusCode::FORBIDDEN, reason));
        }
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json"));
        }
        let wish: Wish =
            serde_json::from_slice(body).map_err(|error| refuse(StatusCode::UNPROCESSABLE_ENTITY, error))?;
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if !(1..=32).contains(&wish.name.len()) || !wish.name.bytes().all(plain) {
            let reason = "a name has 1 to 32 lower-case letters, digits or hyphens";
            return Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, reason));
        }
        Ok(wish.name)
    }

    /// Passes a change on, and tells how things stand then.
    async fn pass_on(
        &self,
        whom: Option<&str>,
        what: &'static str,
        path: &'static str,
        body: String,
    ) -> Result<Json<Value>, ErrorResponse> {
        let Some(whom) = whom else {
            let reason = format!("the fusion center was not told where the {what} is controlled");
            return Err(refuse(StatusCode::NOT_FOUND, reason));
        };
        let Ok(_one_at_a_time) = self.0.changing.try_lock() else {
            return Err(refuse(StatusCode::CONFLICT, "another change is under way"));
        };
        tracing::info!(what, body, "a change was asked for");
        match ask(whom, "PUT", path, body).await {
            Ok(client::Answer { status: 200..300, .. }) => {}
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
        *self.0.known.lock().await = None;
        Ok(Json(self.view().await))
    }
}

/// What `whom` says of itself; null if nobody is there to be asked.
async fn current(whom: Option<&str>, path: &'static str) -> Value {
    let Some(whom) = whom else { return Value::Null };
    let answer = ask(whom, "GET", path, String::new()).await;
    let parsed = answer.map_err(|error| error.to_string()).and_then(|answer| match answer.status {
        200 => serde_json::from_str(&answer.body).map_err(|error| error.to_string()),
        _ => Err(answer.body),
    });
    parsed.unwrap_or_else(|reason| json!({ "error": reason }))
}

/// Asks by address: the others, too, trust no names.
async fn ask(
    whom: &str,
    method: &'static str,
    path: &'static str,
    body: String,
) -> std::io::Result<client::Answer> {
    let whom = whom.to_owned();
    let asking = move || {
        let unknown = || std::io::Error::new(std::io::ErrorKind::NotFound, format!("{whom} has no address"));
        let address = whom.to_socket_addrs()?.next().ok_or_else(unknown)?;
        client::request(method, &format!("http://{address}{path}"), &body)
    };
    tokio::task::spawn_blocking(asking).await.map_err(std::io::Error::other)?
}

/// `GET /api/control`.
pub async fn show(State(shown): State<Shown>) -> Json<Value> {
    Json(shown.control.view().await)
}

/// `POST /api/control/motion`.
pub async fn motion(
    State(Shown { control, .. }): State<Shown>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ErrorResponse> {
    let name = control.admit(&headers, &body)?;
    control.pass_on(control.0.settings.simulator.as_deref(), "simulator", "/motion", name).await
}

/// `POST /api/control/profile`.
pub async fn profile(
    State(Shown { control, .. }): State<Shown>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ErrorResponse> {
    let plan = format!("profile = \"{}\"\n", control.admit(&headers, &body)?);
    control.pass_on(control.0.settings.backhaul.as_deref(), "backhaul", "/profile", plan).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(allowed: bool, host: &str, kind: &str, body: &str) -> Result<String, u16> {
        let control = Control::new(ControlSettings { allowed, ..ControlSettings::default() });
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        let admitted = control.admit(&headers, &Bytes::from(body.to_owned()));
        admitted.map_err(|(status, _)| status.as_u16())
    }

    #[test]
    fn only_what_its_own_page_can_send_is_passed_on() {
        let (here, json, wish) = ("127.0.0.1:7401", "application/json", r#"{"name":"5g-fronthaul"}"#);
        assert_eq!(admitted(true, here, json, wish), Ok("5g-fronthaul".into()));
        assert_eq!(admitted(true, here, "application/json; charset=utf-8", wish), Ok("5g-fronthaul".into()));
        assert_eq!(admitted(false, here, json, wish), Err(403));
        assert_eq!(admitted(true, "rebound.example:7401", json, wish), Err(403));
        for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            assert_eq!(admitted(true, here, form, wish), Err(415), "{form}");
        }
        for name in ["", "a\\n[up]", "Fibre", "fibre\\\"", &"a".repeat(33)] {
            assert_eq!(admitted(true, here, json, &format!(r#"{{"name":"{name}"}}"#)), Err(422), "{name}");
        }
        assert_eq!(admitted(true, here, json, r#"{"name":"fibre","link":"x"}"#), Err(422));
    }
}
