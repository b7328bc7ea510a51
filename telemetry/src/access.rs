//! HTTP routes that need a role.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use trust::{Denied, Needs, Peer};

/// The same routes for peers that `needs` admits; over connections without TLS, for all.
pub fn needing<S: Clone + Send + Sync + 'static>(needs: Needs, routes: Router<S>) -> Router<S> {
    routes.route_layer(from_fn_with_state(needs, check))
}

async fn check(State(needs): State<Needs>, request: Request, next: Next) -> Response {
    match Peer::check(request.extensions(), needs) {
        Ok(()) => next.run(request).await,
        Err(denied) => {
            let status = match denied {
                Denied::NoCertificate { .. } => StatusCode::UNAUTHORIZED,
                _ => StatusCode::FORBIDDEN,
            };
            (status, format!("{denied}\n")).into_response()
        }
    }
}
