//! `hyloc backhaul measure`: what this machine makes of every profile, over real sockets.
//!
//! A report, not a test: on a busy machine bytes are late, whatever the relay does.

use std::process::ExitCode;
use std::time::Duration;

use telemetry::exit;

use crate::measure::{PlanRefused, found, times_ms};
use crate::options::ROLE;
use crate::profile::{Direction, NAMES, named};

/// Messages by which jitter is measured, and the time between two: longer than a draw of it holds.
const PROBES: usize = 200;
const GAP: Duration = Duration::from_millis(5);

/// Measures the named profiles, or all, and prints a row for each direction of each.
pub fn main(profiles: &[String]) -> ExitCode {
    let complain = |code, reason: String| {
        telemetry::complain(ROLE, &reason);
        ExitCode::from(code)
    };
    let names = if profiles.is_empty() { NAMES.map(str::to_owned).to_vec() } else { profiles.to_vec() };
    if let Some(unknown) = names.iter().find(|name| named(name).is_none()) {
        let reason = format!("there is no profile '{unknown}'; there are {}", NAMES.join(", "));
        return complain(exit::BAD_CONFIGURATION, reason);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(exit::FAILED, error.to_string()),
    };
    match runtime.block_on(table(&names)) {
        Ok(text) => {
            telemetry::print_text(&text);
            ExitCode::from(exit::CLEAN)
        }
        Err(refusal) => complain(exit::FAILED, refusal.to_string()),
    }
}

async fn table(names: &[String]) -> Result<String, PlanRefused> {
    let mut text = format!(
        "{:<14} {:<5} {:>17} {:>17} {:>17} {:>21}",
        "profile", "way", "delay ms", "median ms", "quartiles ms", "rate Mbit/s"
    );
    for name in names {
        let Some((up, down)) = named(name) else { continue };
        for (way, direction) in [("up", up), ("down", down)] {
            text += &format!("\n{name:<14} {way:<5} {}", row(&direction).await?);
        }
    }
    Ok(
        text + "\n\nEach as asked for / as found: delay without jitter, median and interquartile range with it."
    )
}

async fn row(direction: &Direction) -> Result<String, PlanRefused> {
    let steady = found(direction).await?;
    // Losses and outages would be counted as jitter.
    let jittery = Direction { jitter_ms: direction.jitter_ms, ..direction.steady() };
    let times_ms = times_ms(&jittery, PROBES, GAP).await?;
    let range_ms = times_ms[3 * PROBES / 4] - times_ms[PROBES / 4];
    let (median, range) = direction.jitter_law.median_and_range();
    let pair = |asked: f64, found: f64| format!("{asked:>8.2} {found:>8.2}");
    let rate = match steady.rate_mbit_s {
        Some(rate) => format!("{:>10.1} {rate:>10.1}", direction.rate_mbit_s),
        None => format!("{:>21}", "no limit"),
    };
    Ok(format!(
        "{} {} {} {rate}",
        pair(direction.delay_ms, steady.delay_ms),
        pair(direction.delay_ms + median * direction.jitter_ms, times_ms[PROBES / 2]),
        pair(range * direction.jitter_ms, range_ms),
    ))
}
