//! `hyloc replay`.

use std::path::Path;

use anyhow::ensure;
use fusion_center::replay::Replayed;
use fusion_center::statistics::Figures;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use telemetry::exit::{self, Failure};

use super::{move_aside, note, reserve_stdout, say};

/// The figures of a replay with what could not be replayed.
#[derive(Serialize)]
struct ReplaySummary<'a> {
    #[serde(flatten)]
    figures: &'a Figures,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    damage: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    missing: &'a [String],
    /// Fixes that equal the recorded ones.
    equal: u64,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    different: &'a [String],
}

/// Replays a recording and prints statistics of its fixes. A damaged recording is an error in the end.
pub fn replay(directory: &Path, fixes: Option<&Path>, json: bool) -> anyhow::Result<()> {
    reserve_stdout(fixes, json)?;
    move_aside(fixes)?;
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {pos} frames, {per_sec}")?);
    let replayed = fusion_center::replay::replay(directory, fixes, |frames| bar.set_position(frames))?;
    bar.finish_and_clear();
    let Replayed { figures, broken, damage, missing, equal, different } = replayed;
    if let Some(broken) = broken {
        note(&format!("the recording is truncated, everything before is replayed: {broken}"));
    }
    damage.iter().for_each(|fault| note(&format!("damaged: {fault}")));
    missing.iter().for_each(|frames| note(&format!("missing: {frames}")));
    different.iter().for_each(|fix| note(&format!("different: {fix}")));
    if json {
        let (damage, missing, different) = (&damage, &missing, &different);
        say(&serde_json::to_string(&ReplaySummary { figures: &figures, damage, missing, equal, different })?);
    } else {
        say(&table(&figures));
        if equal > 0 || !different.is_empty() {
            say(&format!("{equal} fixes equal the recorded ones, {} differ", different.len()));
        }
    }
    let faults = damage.len();
    ensure!(faults == 0, Failure::new(exit::DATA, format!("the recording is damaged in {faults} places")));
    Ok(())
}

fn table(figures: &Figures) -> String {
    let interval = figures.gap_db_interval;
    let interval = interval.map_or(String::new(), |[low, high]| format!(" (95 %: {low:.2} to {high:.2})"));
    let centimetres = |value: Option<f64>| value.map_or("-".into(), |m| format!("{:.1} cm", 100.0 * m));
    format!(
        "{} fixes replayed ({} nominal, {} degraded, {} doubtful, {} frames without)\nrms error {}, exact bound {}, gap {}",
        figures.fixes,
        figures.nominal,
        figures.degraded,
        figures.doubtful,
        figures.without_fix,
        centimetres(figures.rms_error_m),
        centimetres(figures.bound_rms_m),
        figures.gap_db.map_or("-".into(), |gap| format!("{gap:.2} dB{interval}")),
    )
}
