//! The embedded files of the page.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// An embedded script.
macro_rules! script {
    ($name:literal) => {
        ($name, "text/javascript; charset=utf-8", include_str!(concat!("../../assets/", $name)))
    };
}

const ASSETS: [(&str, &str, &str); 19] = [
    ("style.css", "text/css; charset=utf-8", include_str!("../../assets/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
    script!("app.js"),
    script!("charts.js"),
    script!("clocks.js"),
    script!("controls.js"),
    script!("dom.js"),
    script!("ellipse.js"),
    script!("events.js"),
    script!("headline.js"),
    script!("map.js"),
    script!("panels.js"),
    script!("plot.js"),
    script!("save.js"),
    script!("side.js"),
    script!("store.js"),
    script!("surface.js"),
    script!("tracks.js"),
    script!("view.js"),
];

pub async fn index() -> Response {
    let page = include_str!("../../assets/index.html");
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

pub async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|(known, _, _)| *known == name) {
        Some((_, kind, text)) => ([(header::CONTENT_TYPE, *kind)], *text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
