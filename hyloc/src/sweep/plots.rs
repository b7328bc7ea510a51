//! One plot per axis of a sweep: error beside its bound, and the gap, for every combination of the other axes.

use super::plan::SweepPlan;
use super::rows::SweepRow;
use crate::figures::plot::{Axis, Marker, Plot, PlotPanel, Scale, Series, Style};
use crate::figures::statistics::Estimate;

const COLORS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const MARKERS: [Marker; 6] =
    [Marker::Disc, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Ring, Marker::OpenSquare];

/// Most curves of a plot; of more combinations the first are drawn.
const MOST_CURVES: usize = 6;

/// The plot over an axis.
pub fn over_axis(plan: &SweepPlan, axis: usize, rows: &[SweepRow]) -> Plot {
    let mut others: Vec<Vec<&str>> = Vec::new();
    for point in &plan.points {
        let other = without(&point.values, axis);
        if !others.contains(&other) {
            others.push(other);
        }
    }
    let several = rows.iter().any(|row| row.metric == "gospa_m");
    let (error, bound) = if several { ("gospa_m", "") } else { ("rms_error_m", "bound_rms_m") };
    let curves = |metric: &str, dash: &'static str, marked: bool| -> Vec<Series> {
        let shown = others.iter().take(MOST_CURVES).enumerate();
        let series = shown.map(|(i, other)| Series {
            name: name(plan, axis, other, metric),
            style: Style {
                color: COLORS[i % COLORS.len()],
                dash,
                marker: if marked { MARKERS[i % MARKERS.len()] } else { Marker::None },
            },
            points: curve(plan, axis, other, rows, metric),
        });
        series.filter(|series| !series.points.is_empty()).collect()
    };
    let panel = |heading: &str, y: Axis, series: Vec<Series>| PlotPanel {
        heading: heading.into(),
        x: horizontal(plan, axis),
        y,
        series,
    };
    let errors = [curves(error, "", true), curves(bound, "6 3", false)].concat();
    Plot {
        id: format!("sweep-{axis}"),
        description: format!("Error, exact bound and gap over {}", plan.axes[axis]),
        panels: vec![
            panel("error and exact bound", Axis::new("metres", Scale::Log), errors),
            panel(
                "gap",
                Axis::new("error above the exact bound (dB)", Scale::Linear),
                curves("gap_db", "", true),
            ),
        ],
    }
}

fn without(values: &[String], axis: usize) -> Vec<&str> {
    values.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, value)| value.as_str()).collect()
}

/// The place of a value on its axis: its number, or its position in the list where values are words.
fn place(plan: &SweepPlan, axis: usize, value: &str) -> f64 {
    let mut listed: Vec<&str> = Vec::new();
    for point in &plan.points {
        if !listed.contains(&point.values[axis].as_str()) {
            listed.push(&point.values[axis]);
        }
    }
    let numeric = listed.iter().all(|value| value.parse::<f64>().is_ok());
    let position = || listed.iter().position(|other| *other == value).unwrap_or(0) as f64 + 1.0;
    value.parse().ok().filter(|_| numeric).unwrap_or_else(position)
}

fn horizontal(plan: &SweepPlan, axis: usize) -> Axis {
    let mut ticks: Vec<f64> =
        plan.points.iter().map(|point| place(plan, axis, &point.values[axis])).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let label = Axis::new(&plan.axes[axis], Scale::Linear);
    if ticks.len() <= 8 { label.with_ticks(&ticks) } else { label }
}

fn name(plan: &SweepPlan, axis: usize, other: &[&str], metric: &str) -> String {
    let keys = plan.axes.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, key)| key);
    let short = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let parts: Vec<String> = keys.zip(other).map(|(key, value)| format!("{} {value}", short(key))).collect();
    let what = match metric {
        "bound_rms_m" => "exact bound",
        "gospa_m" => "GOSPA",
        _ => "error",
    };
    if parts.is_empty() { what.into() } else { format!("{what}, {}", parts.join(", ")) }
}

fn curve(
    plan: &SweepPlan,
    axis: usize,
    other: &[&str],
    rows: &[SweepRow],
    metric: &str,
) -> Vec<(f64, Estimate)> {
    let here =
        |row: &&SweepRow| row.metric == metric && without(&plan.points[row.point].values, axis) == other;
    let mut points: Vec<(f64, Estimate)> = rows
        .iter()
        .filter(here)
        .map(|row| (place(plan, axis, &plan.points[row.point].values[axis]), row.estimate))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}
