//! One plot per axis of a sweep: error beside its bound, and the gap, for every combination of the other axes.

use std::collections::{HashMap, HashSet};

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
    let mut seen = HashSet::new();
    let others = plan.points.iter().map(|point| without(&point.values, axis));
    let others: Vec<Vec<&str>> =
        others.filter(|other| seen.insert(other.clone())).take(MOST_CURVES).collect();
    let places = AxisPlaces::new(plan, axis);
    let several = rows.iter().any(|row| row.metric == "gospa_m");
    let (error, bound) = if several { ("gospa_m", "") } else { ("rms_error_m", "bound_rms_m") };
    let curves = |metric: &str, dash: &'static str, marked: bool| -> Vec<Series> {
        let series = others.iter().enumerate().map(|(i, other)| Series {
            name: name(plan, axis, other, metric),
            style: Style {
                color: COLORS[i % COLORS.len()],
                dash,
                marker: if marked { MARKERS[i % MARKERS.len()] } else { Marker::None },
            },
            points: curve((plan, axis, &places), other, rows, metric),
        });
        series.filter(|series| !series.points.is_empty()).collect()
    };
    let panel = |heading: &str, y: Axis, series: Vec<Series>| PlotPanel {
        heading: heading.into(),
        x: places.label(&plan.axes[axis]),
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

/// The place of every value of an axis: its number, or its position in the list where values are words.
struct AxisPlaces<'a>(HashMap<&'a str, f64>);

impl<'a> AxisPlaces<'a> {
    fn new(plan: &'a SweepPlan, axis: usize) -> Self {
        let mut listed = HashMap::new();
        for point in &plan.points {
            let next = listed.len() as f64 + 1.0;
            listed.entry(point.values[axis].as_str()).or_insert(next);
        }
        let numbers: Option<HashMap<_, _>> =
            listed.keys().map(|value| Some((*value, value.parse().ok()?))).collect();
        Self(numbers.unwrap_or(listed))
    }

    fn label(&self, key: &str) -> Axis {
        let mut ticks: Vec<f64> = self.0.values().copied().collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let label = Axis::new(key, Scale::Linear);
        if ticks.len() <= 8 { label.with_ticks(&ticks) } else { label }
    }
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

/// A metric of the points with these values on the other axes.
fn curve(
    (plan, axis, places): (&SweepPlan, usize, &AxisPlaces),
    other: &[&str],
    rows: &[SweepRow],
    metric: &str,
) -> Vec<(f64, Estimate)> {
    let here =
        |row: &&SweepRow| row.metric == metric && without(&plan.points[row.point].values, axis) == other;
    let place = |row: &SweepRow| places.0.get(plan.points[row.point].values[axis].as_str()).copied();
    let mut points: Vec<(f64, Estimate)> =
        rows.iter().filter(here).filter_map(|row| Some((place(row)?, row.estimate))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}
