//! The embedded files of the page.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

const ASSETS: [(&str, &str, &str); 11] = [
    ("style.css", "text/css; charset=utf-8", include_str!("../../assets/style.css")),
    ("app.js", "text/javascript; charset=utf-8", include_str!("../../assets/app.js")),
    ("map.js", "text/javascript; charset=utf-8", include_str!("../../assets/map.js")),
    ("side.js", "text/javascript; charset=utf-8", include_str!("../../assets/side.js")),
    ("charts.js", "text/javascript; charset=utf-8", include_str!("../../assets/charts.js")),
    ("dom.js", "text/javascript; charset=utf-8", include_str!("../../assets/dom.js")),
    ("panels.js", "text/javascript; charset=utf-8", include_str!("../../assets/panels.js")),
    ("clocks.js", "text/javascript; charset=utf-8", include_str!("../../assets/clocks.js")),
    ("tracks.js", "text/javascript; charset=utf-8", include_str!("../../assets/tracks.js")),
    ("controls.js", "text/javascript; charset=utf-8", include_str!("../../assets/controls.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
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
