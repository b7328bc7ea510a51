//! The control interface of a running relay over HTTP, and the commands that use it. It is served only if the relay was
//! started with `--allow-control`, and pages of other sites are refused ([`telemetry::guard`]).
//!
//! | request | effect |
//! | --- | --- |
//! | `GET /links` | links as JSON: profile, cut, connections, bytes in transit |
//! | `GET /profile` | the plan as TOML |
//! | `PUT /profile` | applies the plan in the body, TOML; 422 with the reason if it is refused |
//! | `GET /profiles` | `{"profile": NAME, "profiles": [NAMES]}`: common profile of the plan, and all known ones |
//! | `POST /cut`, `POST /restore` | with `?link=NAME` that link, without one all of them; 404 if there is none |
//! | `GET /measured` | measured directions, as JSON |
//! | `GET /metrics`, `GET /health` | as in every process |

use std::net::SocketAddr;

use anyhow::{Context, bail};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use clap::Subcommand;
use serde::Deserialize;
use telemetry::exit::{self, Failure};
use telemetry::{Health, Metrics, client, needing};
use trust::{ClientTls, Needs};

use crate::plan::{Document, Plan};
use crate::profile::NAMES;
use crate::relay::{LinkView, Relay};
use crate::report::no_profile;

#[derive(Debug, Deserialize)]
struct Which {
    link: Option<String>,
}

/// The routes; `fallback` is the profile of a plan without one.
pub fn routes(relay: Relay, fallback: String, metrics: Metrics, health: Health) -> Router {
    let follow = move |State(relay): State<Relay>, text: String| async move {
        let plan = Plan::parse(&text, &fallback).map_err(unusable)?;
        relay.apply(plan).await.map_err(unusable)
    };
    let show = async |State(relay): State<Relay>| toml::to_string(relay.plan().document()).map_err(unusable);
    let choices = async |State(relay): State<Relay>| {
        Json(serde_json::json!({ "profile": relay.plan().document().profile, "profiles": NAMES }))
    };
    let shown = Router::new()
        .route("/links", get(async |State(relay): State<Relay>| Json(relay.links())))
        .route("/measured", get(async |State(relay): State<Relay>| Json(relay.measured().await)))
        .route("/profile", get(show))
        .route("/profiles", get(choices));
    let changed = Router::new()
        .route("/profile", put(follow))
        .route("/cut", post(async |relay, which| set_cut(relay, which, true).await))
        .route("/restore", post(async |relay, which| set_cut(relay, which, false).await));
    needing(Needs::Watcher, shown)
        .merge(needing(Needs::Operator, changed))
        .with_state(relay)
        .merge(telemetry::http::routes(metrics, health))
}

fn unusable(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n"))
}

async fn set_cut(
    State(relay): State<Relay>,
    Query(which): Query<Which>,
    cut: bool,
) -> Result<Json<Vec<String>>, (StatusCode, String)> {
    let done = relay.set_cut(which.link.as_deref(), cut).await;
    match which.link {
        Some(link) if done.is_empty() => {
            let known: Vec<String> = relay.links().into_iter().map(|link| link.name).collect();
            Err((StatusCode::NOT_FOUND, format!("no link '{link}'; there are: {}\n", known.join(", "))))
        }
        _ => Ok(Json(done)),
    }
}

#[derive(Debug, Clone, Subcommand)]
pub enum Action {
    /// Show the links.
    Links,
    /// Cut a link, or all: connections break, new ones are refused.
    Cut {
        /// Name of the link, its address, or a host name that resolves to it (a node's identity in Docker).
        link: Option<String>,
    },
    /// Restore a link, or all.
    Restore {
        /// Name of the link, its address, or a host name that resolves to it.
        link: Option<String>,
    },
    /// Show the plan, or give all links, or one, a profile.
    Profile {
        /// One of clear, fibre, microwave, 5g-fronthaul, congested and flaky.
        profile: Option<String>,
        /// Name or address of the one link that it is for.
        link: Option<String>,
    },
    /// Measure how well this machine keeps the profiles, over real sockets and without a relay. Takes half a minute.
    Measure {
        /// Profiles to measure; all by default.
        profiles: Vec<String>,
    },
}

impl Action {
    /// Sends the request to the relay whose control interface is at `control` (host:port); returns the text to print.
    pub fn perform(&self, control: &str, tls: Option<&ClientTls>) -> anyhow::Result<String> {
        let is_loopback = |address: SocketAddr| address.ip().is_loopback();
        let local = control.starts_with("localhost:") || control.parse().is_ok_and(is_loopback);
        let tls = tls.filter(|_| !local);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let ask = |method: &str, path: &str, body: &str| {
            let url = format!("{scheme}://{control}{path}");
            let context = || format!("{url}: is a relay running there with --allow-control?");
            match client::request_with(tls, method, &url, body).with_context(context)? {
                client::Response { status: 200..300, body } => Ok(body.trim_end().to_owned()),
                answer => {
                    bail!(Failure::new(exit::DATA, format!("{}: {}", answer.status, answer.body.trim_end())))
                }
            }
        };
        let path = |action: &str, link: &Option<String>| match link {
            Some(link) => format!("/{action}?link={}", client::escape(link)),
            None => format!("/{action}"),
        };
        match self {
            Self::Links => table(&ask("GET", "/links", "")?),
            Self::Cut { link } => ask("POST", &path("cut", link), ""),
            Self::Restore { link } => ask("POST", &path("restore", link), ""),
            Self::Measure { .. } => bail!("measures this machine, not a running relay"),
            Self::Profile { profile: None, .. } => ask("GET", "/profile", ""),
            Self::Profile { profile: Some(profile), link } => {
                if !NAMES.contains(&profile.as_str()) {
                    bail!(no_profile(profile));
                }
                let text = ask("GET", "/profile", "")?;
                let mut plan: Document = toml::from_str(&text)?;
                match link {
                    Some(link) => plan.link.entry(link.clone()).or_default().profile = Some(profile.clone()),
                    None => plan = Document { profile: Some(profile.clone()), ..Document::default() },
                }
                ask("PUT", "/profile", &toml::to_string(&plan)?)
            }
        }
    }
}

fn table(json: &str) -> anyhow::Result<String> {
    let links: Vec<LinkView> = serde_json::from_str(json)?;
    let mut text = format!(
        "{:<24} {:<14} {:<5} {:>5} {:>10} {:>10}\n",
        "link", "profile", "cut", "open", "up B", "down B"
    );
    for link in links {
        let cut = if link.cut { "yes" } else { "no" };
        text += &format!(
            "{:<24} {:<14} {cut:<5} {:>5} {:>10} {:>10}\n",
            link.name, link.profile, link.connections, link.queued_up, link.queued_down
        );
    }
    Ok(text.trim_end().to_owned())
}
