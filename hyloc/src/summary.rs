//! Figures of fixes in words, the same for the demo and for scores of fixes by others.

use std::fmt::{Result, Write};

use serde_json::{Value, json};

/// Error, bound, gap and consistency of single fixes, then of coordinates and of several targets where these have figures.
pub fn write_accuracy(out: &mut String, figures: &Value, targets: usize) -> Result {
    let expected = figures["nees_expected"].as_u64().unwrap_or(2);
    let interval = |key: &str| {
        let ends: Vec<f64> =
            figures[key].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let [low, high] = ends.as_slice() else { return String::new() };
        format!(" (95 %: {low:.2} to {high:.2})")
    };
    writeln!(
        out,
        "rms error {}, exact bound {}, gap {}, NEES {}",
        centimetres(&figures["rms_error_m"]),
        centimetres(&figures["bound_rms_m"]),
        figures["gap_db"]
            .as_f64()
            .map_or("-".into(), |gap| format!("{gap:.2} dB{}", interval("gap_db_interval"))),
        figures["nees"].as_f64().map_or("-".into(), |nees| format!(
            "{nees:.2}{}, {expected} is expected",
            interval("nees_interval")
        )),
    )?;
    let gross = number(&figures["gross_errors"]);
    if gross > 0 {
        writeln!(out, "gross errors (above 1 m): {gross}")?;
    }
    write_axes(out, &figures["axes"])?;
    write_targets(out, &figures["targets"], targets)
}

/// Horizontal and vertical error, and every coordinate against its bound, where positions have a height.
fn write_axes(out: &mut String, axes: &Value) -> Result {
    let figure = |axis: &str, key: &str| axes[axis][key].as_f64();
    let horizontal = |key: &str| Some(json!(figure("x", key)?.hypot(figure("y", key)?)));
    let (Some(rms), Some(bound)) = (horizontal("rms_m"), horizontal("bound_rms_m")) else {
        return Ok(());
    };
    writeln!(
        out,
        "horizontal rms {}, bound {}; vertical rms {}, bound {}",
        centimetres(&rms),
        centimetres(&bound),
        centimetres(&axes["z"]["rms_m"]),
        centimetres(&axes["z"]["bound_rms_m"]),
    )?;
    let gap = |axis: &str| format!("{axis} {:.2} dB", figure(axis, "gap_db").unwrap_or(f64::NAN));
    writeln!(out, "gap by coordinate: {}", ["x", "y", "z"].map(gap).join(", "))
}

/// Several targets: tracks, if there are any, and single frames beside the truth.
fn write_targets(out: &mut String, targets: &Value, count: usize) -> Result {
    if targets["frames"].as_u64().is_none_or(|frames| frames == 0) {
        return Ok(());
    }
    let percent = |value: &Value| format!("{:.1} %", 100.0 * value.as_f64().unwrap_or(f64::NAN));
    let figure = |key: &str| targets[key].as_f64().map_or("-".into(), |value| format!("{value:.2}"));
    let tracked = targets.get("gospa_m").is_some();
    let sets = [("tracks", targets, tracked), ("single frames", &targets["fixes"], true)];
    for (name, set, _) in sets.into_iter().filter(|(_, _, known)| *known) {
        writeln!(
            out,
            "{name}: GOSPA {}, localisation {}, {} missed, {} false, count right in {} of the frames",
            centimetres(&set["gospa_m"]),
            centimetres(&set["localisation_m"]),
            percent(&set["missed_rate"]),
            percent(&set["false_rate"]),
            percent(&set["count_right_rate"]),
        )?;
    }
    let switches = number(&targets["switches"]);
    let switches = if tracked { format!("identity switches {switches}, ") } else { String::new() };
    let tracks = if tracked { format!(" (tracks {})", figure("track_nees")) } else { String::new() };
    writeln!(
        out,
        "{count} targets: {switches}gap of single frames to the joint bound {} dB, NEES {}{tracks}",
        figure("gap_db"),
        figure("nees"),
    )
}

/// Quantiles of all stages; nothing without any.
pub fn write_latency(out: &mut String, stages: &Value) -> Result {
    if stages.as_object().is_none_or(serde_json::Map::is_empty) {
        return Ok(());
    }
    writeln!(out, "latency (ms)       p50      p90      p99    p99.9      max        n")?;
    for stage in fusion_center::statistics::STAGES {
        let row = &stages[stage];
        write!(out, "  {stage:<12}")?;
        for quantile in ["p50", "p90", "p99", "p999", "max"] {
            write!(out, " {:>8.3}", row[quantile].as_f64().unwrap_or(f64::NAN))?;
        }
        writeln!(out, " {:>8}", number(&row["n"]))?;
    }
    Ok(())
}

fn centimetres(value: &Value) -> String {
    value.as_f64().map_or("-".into(), |metres| format!("{:.1} cm", 100.0 * metres))
}

/// A count; 0 if there is none.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
