//! `hyloc replay`.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use super::{note, reserve_stdout, say};

/// Replays a recording and prints statistics of its fixes.
pub fn replay(directory: &Path, fixes: Option<&Path>, json: bool) -> anyhow::Result<()> {
    reserve_stdout(fixes, json)?;
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {pos} frames, {per_sec}")?);
    let replayed = fusion_center::replay::replay(directory, fixes, |frames| bar.set_position(frames))?;
    bar.finish_and_clear();
    if let Some(broken) = replayed.broken {
        note(&format!("the recording is truncated, everything before is replayed: {broken}"));
    }
    let figures = replayed.figures;
    if json {
        say(&serde_json::to_string(&figures)?);
        return Ok(());
    }
    let interval = figures.gap_db_interval;
    let interval = interval.map_or(String::new(), |[low, high]| format!(" (95 %: {low:.2} to {high:.2})"));
    let centimetres = |value: Option<f64>| value.map_or("-".into(), |m| format!("{:.1} cm", 100.0 * m));
    say(&format!(
        "{} fixes replayed ({} nominal, {} degraded, {} doubtful, {} frames without)\nrms error {}, exact bound {}, gap {}",
        figures.fixes,
        figures.nominal,
        figures.degraded,
        figures.doubtful,
        figures.without_fix,
        centimetres(figures.rms_error_m),
        centimetres(figures.bound_rms_m),
        figures.gap_db.map_or("-".into(), |gap| format!("{gap:.2} dB{interval}")),
    ));
    Ok(())
}
