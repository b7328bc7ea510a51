//! Latency against the number of IRSs. Each curve is the sum of the stages up to it; the gaps are the stages.

use super::MeasuredCount;
use crate::figures::plot::{Axis, Marker, Plot, PlotPanel, Scale, Series, Style};
use crate::figures::statistics::Estimate;

/// Consecutive stages between the intended send time and the fix.
const STACK: [(&str, &str, Marker); 6] = [
    ("emit", "#4c72b0", Marker::Disc),
    ("filter", "#55a868", Marker::Square),
    ("wire", "#8172b3", Marker::Triangle),
    ("assemble", "#937860", Marker::Diamond),
    ("angles", "#dd8452", Marker::Ring),
    ("locate", "#c44e52", Marker::OpenSquare),
];

pub fn plot(all: &[MeasuredCount]) -> Plot {
    let panel = |heading: &str, value: fn(&MeasuredCount, &str) -> f64| PlotPanel {
        heading: heading.into(),
        x: Axis::new("number of IRSs", Scale::Log)
            .with_ticks(&all.iter().map(|measured| measured.nodes as f64).collect::<Vec<_>>()),
        y: Axis::new("latency, stages summed (ms)", Scale::Log),
        series: series(all, value),
    };
    Plot {
        id: "latency".into(),
        description: "Latency of the stages of a fix, stacked, against the number of IRSs".into(),
        panels: vec![
            panel("median", |measured, stage| measured.quantiles(stage).p50),
            panel("99 %", |measured, stage| measured.quantiles(stage).p99),
        ],
    }
}

fn series(all: &[MeasuredCount], value: fn(&MeasuredCount, &str) -> f64) -> Vec<Series> {
    let mut sums = vec![0.0; all.len()];
    let mut series = Vec::with_capacity(STACK.len() + 1);
    for (stage, color, marker) in STACK {
        for (sum, measured) in sums.iter_mut().zip(all) {
            *sum += value(measured, stage);
        }
        series.push(Series {
            name: format!("up to {stage}"),
            style: Style { color, dash: "", marker },
            points: points(all, &sums),
        });
    }
    let totals: Vec<f64> = all.iter().map(|measured| value(measured, "total")).collect();
    series.push(Series {
        name: "total, as measured".into(),
        style: Style { color: "#333333", dash: "5 3", marker: Marker::None },
        points: points(all, &totals),
    });
    series
}

fn points(all: &[MeasuredCount], values: &[f64]) -> Vec<(f64, Estimate)> {
    let point = |(measured, value): (&MeasuredCount, &f64)| (measured.nodes as f64, Estimate::exact(*value));
    all.iter().zip(values).map(point).collect()
}
