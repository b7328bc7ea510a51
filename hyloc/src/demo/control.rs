//! The node processes of a demo, killed and started on request over HTTP on loopback: the fusion center forwards what its page asks
//! for.
//!
//! | request | effect |
//! | --- | --- |
//! | `GET /nodes` | whether each node runs: `[{"index": 0, "running": true}, ...]` |
//! | `PUT /node` | `kill N` or `start N`; 422 with the reason if that cannot be done |
//!
//! Orders go to the loop that supervises the processes and are carried out one after another.

use std::net::TcpListener;

use anyhow::Context;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use telemetry::listener::limits;
use telemetry::{HostNames, Listener, Metrics, needing};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use trust::Needs;

/// Orders that may wait.
const WAITING: usize = 8;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeWork {
    Show,
    Kill(usize),
    Start(usize),
}

/// Whether each node runs, or why an order cannot be carried out.
pub type NodeAnswer = Result<Vec<bool>, String>;

#[derive(Debug)]
pub struct NodeOrder {
    pub work: NodeWork,
    pub answer: oneshot::Sender<NodeAnswer>,
}

impl NodeWork {
    fn parse(text: &str) -> Option<Self> {
        let (verb, index) = text.split_once(' ')?;
        let index = index.parse().ok()?;
        match verb {
            "kill" => Some(Self::Kill(index)),
            "start" => Some(Self::Start(index)),
            _ => None,
        }
    }
}

/// Serves the control; the orders are to be carried out by the caller. Ends when the handle is dropped.
pub fn serve(listener: TcpListener) -> anyhow::Result<(AbortOnDropHandle<()>, mpsc::Receiver<NodeOrder>)> {
    listener.set_nonblocking(true).context("the control of the nodes")?;
    let listener = tokio::net::TcpListener::from_std(listener).context("the control of the nodes")?;
    let listener = Listener::new(listener, limits::CONTROL, &Metrics::new());
    let (orders, incoming) = mpsc::channel(WAITING);
    let shown = needing(Needs::Watcher, Router::new().route("/nodes", get(show)));
    let changed = needing(Needs::Operator, Router::new().route("/node", put(change)));
    let routes = shown.merge(changed).with_state(orders);
    let served = telemetry::http::serve(listener, HostNames::default(), routes, CancellationToken::new());
    Ok((AbortOnDropHandle::new(tokio::spawn(served)), incoming))
}

type Orders = State<mpsc::Sender<NodeOrder>>;
type Answered = Result<Json<Value>, (StatusCode, String)>;

async fn show(State(orders): Orders) -> Answered {
    ask(&orders, NodeWork::Show).await
}

async fn change(State(orders): Orders, text: String) -> Answered {
    let unknown = || {
        let reason = format!("'{}': must be 'kill N' or 'start N'\n", text.trim().escape_default());
        (StatusCode::UNPROCESSABLE_ENTITY, reason)
    };
    ask(&orders, NodeWork::parse(text.trim()).ok_or_else(unknown)?).await
}

async fn ask(orders: &mpsc::Sender<NodeOrder>, work: NodeWork) -> Answered {
    let gone = |_| (StatusCode::SERVICE_UNAVAILABLE, "the demo is ending\n".to_owned());
    let (answer, answered) = oneshot::channel();
    orders.send(NodeOrder { work, answer }).await.map_err(|_| gone(()))?;
    let answer = answered.await.map_err(|_| gone(()))?;
    let running = answer.map_err(|reason| (StatusCode::UNPROCESSABLE_ENTITY, reason))?;
    let nodes =
        running.iter().enumerate().map(|(index, running)| json!({ "index": index, "running": running }));
    Ok(Json(nodes.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read() {
        assert_eq!(NodeWork::parse("kill 2"), Some(NodeWork::Kill(2)));
        assert_eq!(NodeWork::parse("start 0"), Some(NodeWork::Start(0)));
        for bad in ["", "kill", "kill x", "stop 1", "kill -1"] {
            assert_eq!(NodeWork::parse(bad), None, "{bad}");
        }
    }
}
