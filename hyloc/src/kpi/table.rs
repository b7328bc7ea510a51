//! The scorecard as text.

use std::fmt::Write;

use super::LEAVES_OUT;
use super::measure::Measured;
use super::requirements::Criterion;
use super::score::{KpiFigure, KpiJudgement, NOT_MEASURED, Scorecard};
use crate::commands::written;

pub fn text(card: &Scorecard, measured: &Measured) -> String {
    written(|out| write(out, card, measured))
}

fn write(out: &mut String, card: &Scorecard, measured: &Measured) -> std::fmt::Result {
    let Measured { frames, errors, nominal, false_alarms, .. } = measured;
    writeln!(
        out,
        "3GPP TS 22.137: {} fixes of {frames} targets ({nominal} nominal), {false_alarms} fixes in {frames} frames of noise alone\n",
        errors.len()
    )?;
    write!(out, "{:<30} {:<26}", "", "reached (95 % interval)")?;
    for score in &card.categories {
        write!(out, " {:>15}", format!("category {}", score.category))?;
    }
    writeln!(out)?;
    for (i, criterion) in Criterion::ALL.into_iter().enumerate() {
        let (unit, size) = criterion.unit();
        write!(out, "{:<30}", format!("{} ({unit})", criterion.name()))?;
        for (column, score) in card.categories.iter().enumerate() {
            let Some(row) = score.rows.get(i) else { continue };
            if column == 0 {
                write!(out, " {:<26}", shown(row.reached.figure, size))?;
            }
            let judgement = match row.judgement {
                KpiJudgement::Pass => "pass",
                KpiJudgement::Fail => "FAIL",
                KpiJudgement::NotApplicable => "-",
            };
            write!(out, " {:>15}", format!("{} {judgement}", short(row.required / size)))?;
        }
        writeln!(out)?;
    }
    for name in ["velocity", "resolution"] {
        writeln!(out, "{name:<30} {NOT_MEASURED}")?;
    }
    writeln!(out)?;
    for score in &card.categories {
        let verdict = match score.fails.as_slice() {
            [] => "met in everything that is measured".to_owned(),
            fails => format!("not shown to be met: {}", fails.join(", ")),
        };
        writeln!(out, "category {}: {verdict}", score.category)?;
    }
    writeln!(
        out,
        "\nLatency is the 99 % quantile from the end of an echo frame to its fix (median {:.1} ms), refresh the mean time per frame \
         on this machine; {LEAVES_OUT}.",
        1e3 * measured.median_latency_s().unwrap_or(f64::NAN)
    )
}

/// A number without superfluous digits.
fn short(value: f64) -> String {
    format!("{}", (1e6 * value).round() / 1e6)
}

fn shown(figure: KpiFigure, size: f64) -> String {
    let KpiFigure::Value(value) = figure else {
        return if figure == KpiFigure::NotApplicable { "not applicable" } else { "not known" }.to_owned();
    };
    let end = |end: f64| if end.is_finite() { format!("{:.3}", end / size) } else { "?".to_owned() };
    if value.low == value.high {
        end(value.value)
    } else {
        format!("{} ({} to {})", end(value.value), end(value.low), end(value.high))
    }
}
