//! `hyloc backhaul measure`: how well this machine keeps every profile, over real sockets.
//!
//! A report, not a test: on a busy machine bytes are late regardless of the relay.

use std::time::Duration;

use anyhow::bail;
use telemetry::exit::{self, Failure};

use crate::measure::{PlanRefused, found, times_ms};
use crate::profile::{Direction, NAMES, named};

/// Number of messages that measure the jitter, and the time between them, which exceeds the validity of one draw.
const PROBES: usize = 200;
const GAP: Duration = Duration::from_millis(5);

/// The error for a profile that does not exist.
pub fn no_profile(name: &str) -> Failure {
    Failure::new(exit::USAGE, format!("there is no profile '{name}'; there are {}", NAMES.join(", ")))
}

/// Measures the given profiles, or all, and returns a row per direction, with progress on standard error.
pub fn measured_profiles(profiles: &[String]) -> anyhow::Result<String> {
    let names = if profiles.is_empty() { NAMES.map(str::to_owned).to_vec() } else { profiles.to_vec() };
    if let Some(unknown) = names.iter().find(|name| named(name).is_none()) {
        bail!(no_profile(unknown));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(table(&names)).map_err(|refusal| Failure::new(exit::FAILED, refusal).into())
}

async fn table(names: &[String]) -> Result<String, PlanRefused> {
    let mut text = format!(
        "{:<14} {:<5} {:>17} {:>17} {:>17} {:>21}",
        "profile", "way", "delay ms", "median ms", "quartiles ms", "rate Mbit/s"
    );
    for name in names {
        let Some((up, down)) = named(name) else { continue };
        telemetry::note(&format!("measuring {name}"));
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
    // Losses and outages would appear as jitter.
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
