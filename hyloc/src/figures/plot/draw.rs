//! A plot as SVG text.

use std::fmt::{self, Write};

use super::axis::{Fitted, TickLabel};
use super::letters::{Anchor, Lettering, Letters};
use super::{Marker, Plot, PlotPanel, Series, Style};

const PANEL_WIDTH: f64 = 400.0;
const PANEL_HEIGHT: f64 = 340.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 54.0;
const LEGEND_ROW: f64 = 19.0;
const LEGEND_KEY: f64 = 38.0;
/// Width of a letter of the legend, generous enough for any sans-serif.
const LETTER: f64 = 7.2;
const FONT: &str = "DejaVu Sans, Verdana, Arial, Helvetica, sans-serif";
/// Size of headings and of the labels of axes.
const LABEL_SIZE: f64 = 13.0;

/// The plot as a complete SVG document.
pub fn to_svg(plot: &Plot) -> String {
    to_svg_with(plot, Letters::Text)
}

/// The plot as a complete SVG document, with text or outlines.
pub fn to_svg_with(plot: &Plot, letters: Letters) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_plot(&mut out, plot, letters);
    out
}

fn write_plot(out: &mut String, plot: &Plot, letters: Letters) -> fmt::Result {
    let legend = legend_of(plot);
    let longest = legend.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let legend_width = LEGEND_KEY + LETTER * longest as f64 + 16.0;
    let outer = LEFT + PANEL_WIDTH + RIGHT;
    let width = outer * plot.panels.len() as f64 + legend_width;
    let height = TOP + BOTTOM + PANEL_HEIGHT.max(LEGEND_ROW * legend.len() as f64 + 12.0);
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" font-family="{FONT}" font-size="12" fill="#000" role="img" aria-labelledby="{id}-title">"##,
        id = plot.id
    )?;
    writeln!(out, r#"<title id="{}-title">{}</title>"#, plot.id, escaped(&plot.description))?;
    writeln!(out, r##"<rect width="{width:.0}" height="{height:.0}" fill="#fff"/>"##)?;
    for (i, panel) in plot.panels.iter().enumerate() {
        let id = format!("{}-{i}", plot.id);
        writeln!(out, r#"<g transform="translate({:.1} {TOP})">"#, outer * i as f64 + LEFT)?;
        write_panel(out, panel, &id, letters)?;
        writeln!(out, "</g>")?;
    }
    write_legend(out, &legend, outer * plot.panels.len() as f64 + 6.0, legend_width - 12.0, letters)?;
    writeln!(out, "</svg>")
}

/// Names and styles of all curves, once each, in order of appearance.
fn legend_of(plot: &Plot) -> Vec<(&str, Style)> {
    let mut legend: Vec<(&str, Style)> = Vec::new();
    for series in plot.panels.iter().flat_map(|panel| &panel.series) {
        if !legend.iter().any(|(name, _)| *name == series.name) {
            legend.push((&series.name, series.style));
        }
    }
    legend
}

fn write_panel(out: &mut String, panel: &PlotPanel, id: &str, letters: Letters) -> fmt::Result {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let x = Fitted::new(&panel.x, points().map(|(x, _)| *x), 0.03);
    let y = Fitted::new(&panel.y, points().map(|(_, y)| y.value), 0.05);
    writeln!(
        out,
        r#"<clipPath id="{id}-frame"><rect width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}"/></clipPath>"#
    )?;
    write_grid(out, &x, &y)?;
    writeln!(out, r##"<g clip-path="url(#{id}-frame)" fill="none">"##)?;
    for series in &panel.series {
        write_series(out, series, &x, &y)?;
    }
    writeln!(out, "</g>")?;
    writeln!(
        out,
        r##"<rect width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="none" stroke="#000" stroke-width="1"/>"##
    )?;
    write_tick_labels(out, &x, &y, letters)?;
    let (centre, middle) = (PANEL_WIDTH / 2.0, PANEL_HEIGHT / 2.0);
    let label = |text, place| Lettering { size: LABEL_SIZE, ..Lettering::new(text, place, Anchor::Middle) };
    label(&panel.x.label, (centre, PANEL_HEIGHT + 40.0)).write(out, letters)?;
    Lettering { upright: true, ..label(&panel.y.label, (-54.0, middle)) }.write(out, letters)?;
    label(&panel.heading, (centre, -10.0)).write(out, letters)
}

/// Grid lines at labelled ticks, short strokes at the others.
fn write_grid(out: &mut String, x: &Fitted, y: &Fitted) -> fmt::Result {
    let (mut grid, mut marks) = (String::new(), String::new());
    for tick in &x.ticks {
        let at = tick.at * PANEL_WIDTH;
        if tick.label.is_some() {
            write!(grid, "M{at:.1} 0V{PANEL_HEIGHT}")?;
        }
        let length = if tick.label.is_some() { 6.0 } else { 3.0 };
        write!(marks, "M{at:.1} {PANEL_HEIGHT}v-{length}M{at:.1} 0v{length}")?;
    }
    for tick in &y.ticks {
        let at = (1.0 - tick.at) * PANEL_HEIGHT;
        if tick.label.is_some() {
            write!(grid, "M0 {at:.1}H{PANEL_WIDTH}")?;
        }
        let length = if tick.label.is_some() { 6.0 } else { 3.0 };
        write!(marks, "M0 {at:.1}h{length}M{PANEL_WIDTH} {at:.1}h-{length}")?;
    }
    writeln!(out, r##"<path d="{grid}" stroke="#d8d8d8" stroke-width="0.7" fill="none"/>"##)?;
    writeln!(out, r##"<path d="{marks}" stroke="#000" stroke-width="0.8" fill="none"/>"##)
}

fn write_tick_labels(out: &mut String, x: &Fitted, y: &Fitted, letters: Letters) -> fmt::Result {
    for tick in &x.ticks {
        let place = (tick.at * PANEL_WIDTH, PANEL_HEIGHT + 18.0);
        write_tick_label(out, tick.label.as_ref(), place, Anchor::Middle, letters)?;
    }
    for tick in &y.ticks {
        let place = (-7.0, (1.0 - tick.at) * PANEL_HEIGHT + 4.0);
        write_tick_label(out, tick.label.as_ref(), place, Anchor::End, letters)?;
    }
    Ok(())
}

fn write_tick_label(
    out: &mut String,
    label: Option<&TickLabel>,
    place: (f64, f64),
    anchor: Anchor,
    letters: Letters,
) -> fmt::Result {
    match label {
        None => Ok(()),
        Some(TickLabel::Plain(text)) => Lettering::new(text, place, anchor).write(out, letters),
        Some(TickLabel::PowerOfTen(power)) => {
            let exponent = power.to_string().replace('-', "\u{2212}");
            Lettering { exponent: &exponent, ..Lettering::new("10", place, anchor) }.write(out, letters)
        }
    }
}

fn write_series(out: &mut String, series: &Series, x: &Fitted, y: &Fitted) -> fmt::Result {
    let Style { color, dash, marker } = series.style;
    let down = |fraction: f64| (1.0 - fraction) * PANEL_HEIGHT;
    let (mut line, mut bars, mut markers) = (String::new(), String::new(), String::new());
    let mut pen_down = false;
    for (at, estimate) in &series.points {
        let (Some(px), Some(py)) = (x.fraction(*at), y.fraction(estimate.value)) else {
            pen_down = false;
            continue;
        };
        let (px, py) = (px * PANEL_WIDTH, down(py));
        write!(line, "{}{px:.1} {py:.1}", if pen_down { 'L' } else { 'M' })?;
        pen_down = true;
        write!(markers, "{}", marker_path(marker, px, py))?;
        // An interval that leaves the plot below ends at its edge.
        let low = y.fraction(estimate.low).map_or(PANEL_HEIGHT + 9.0, down);
        if let Some(high) = y.fraction(estimate.high).map(down).filter(|high| low - high > 2.0) {
            write!(bars, "M{px:.1} {low:.1}V{high:.1}m-3 0h6")?;
            write!(bars, "M{:.1} {low:.1}h6", px - 3.0)?;
        }
    }
    let dashes = if dash.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dash}""#) };
    writeln!(
        out,
        r#"<path d="{line}" stroke="{color}" stroke-width="1.6"{dashes} stroke-linejoin="round"/>"#
    )?;
    if !bars.is_empty() && marker != Marker::None {
        writeln!(out, r#"<path d="{bars}" stroke="{color}" stroke-width="0.8" stroke-opacity="0.7"/>"#)?;
    }
    write_markers(out, marker, color, &markers)
}

fn write_markers(out: &mut String, marker: Marker, color: &str, path: &str) -> fmt::Result {
    let fill = match marker {
        Marker::None => return Ok(()),
        Marker::Disc | Marker::Square | Marker::Triangle | Marker::Diamond => color,
        Marker::Cross | Marker::Plus => "none",
        Marker::Ring | Marker::OpenSquare | Marker::OpenTriangle | Marker::OpenDiamond => "#fff",
    };
    writeln!(out, r#"<path d="{path}" stroke="{color}" stroke-width="1.3" fill="{fill}"/>"#)
}

fn marker_path(marker: Marker, x: f64, y: f64) -> String {
    match marker {
        Marker::None => String::new(),
        Marker::Disc | Marker::Ring => {
            format!("M{:.1} {y:.1}a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z", x - 3.4)
        }
        Marker::Square | Marker::OpenSquare => format!("M{:.1} {:.1}h6.2v6.2h-6.2z", x - 3.1, y - 3.1),
        Marker::Triangle | Marker::OpenTriangle => format!("M{x:.1} {:.1}l4 7h-8z", y - 4.4),
        Marker::Diamond | Marker::OpenDiamond => {
            format!("M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z", y - 4.2)
        }
        Marker::Cross => format!("M{:.1} {:.1}l6.4 6.4m0 -6.4l-6.4 6.4", x - 3.2, y - 3.2),
        Marker::Plus => format!("M{:.1} {y:.1}h8M{x:.1} {:.1}v8", x - 4.0, y - 4.0),
    }
}

fn write_legend(
    out: &mut String,
    legend: &[(&str, Style)],
    left: f64,
    width: f64,
    letters: Letters,
) -> fmt::Result {
    let height = LEGEND_ROW * legend.len() as f64 + 9.0;
    writeln!(
        out,
        r##"<rect x="{left:.1}" y="{TOP}" width="{width:.1}" height="{height:.1}" fill="#fff" stroke="#000" stroke-width="0.7"/>"##
    )?;
    for (i, (name, style)) in legend.iter().enumerate() {
        let y = TOP + LEGEND_ROW * i as f64 + 14.0;
        let (from, to) = (left + 6.0, left + LEGEND_KEY - 4.0);
        let dashes = if style.dash.is_empty() {
            String::new()
        } else {
            format!(r#" stroke-dasharray="{}""#, style.dash)
        };
        writeln!(
            out,
            r#"<path d="M{from:.1} {y:.1}H{to:.1}" stroke="{}" stroke-width="1.6"{dashes}/>"#,
            style.color
        )?;
        let middle = (from + to) / 2.0;
        write_markers(out, style.marker, style.color, &marker_path(style.marker, middle, y))?;
        let place = (left + LEGEND_KEY + 2.0, y + 4.0);
        Lettering::new(name, place, Anchor::Start).write(out, letters)?;
    }
    Ok(())
}

/// Text as it may stand in XML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
