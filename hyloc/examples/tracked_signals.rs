//! The runs of the figure `tracking-power` as JSON lines: truth, detections of single frames, and tracks that are followed in the
//! signals. `benchmarks/tracking.py --signals` passes the detections to Stone Soup.
//!
//! `cargo run --release -p hyloc --example tracked_signals -- SEED RUNS`
#![allow(clippy::print_stdout)]

use anyhow::Context;
use hyloc::sweep::tracking::{FrameOfRun, UNSCORED, points, run};
use rayon::prelude::*;
use serde_json::{Value, json};
use tracking::scores::Identified;

/// Identities and coordinates.
fn places(set: &[Identified]) -> Vec<Value> {
    set.iter().map(|(id, place_m)| json!({"id": id, "place_m": place_m.as_slice()})).collect()
}

fn line(power_dbm: f64, run: u64, frame: usize, shown: &FrameOfRun) -> Value {
    let rows = shown.covariance_m2.row_iter().map(|row| row.iter().copied().collect::<Vec<f64>>());
    json!({
        "power_dbm": power_dbm,
        "run": run,
        "frame": frame,
        "scored": frame as u64 >= UNSCORED,
        "truth": places(&shown.truth_m),
        "detections": places(&shown.found_m),
        "covariance_m2": rows.collect::<Vec<_>>(),
        "tracks": places(&shown.tracks_m),
    })
}

fn main() -> anyhow::Result<()> {
    let numbers = std::env::args().skip(1).map(|number| number.parse::<u64>());
    let numbers = numbers.collect::<Result<Vec<_>, _>>().context("SEED and RUNS are numbers")?;
    let [seed, runs] = numbers[..] else { anyhow::bail!("give SEED and RUNS") };
    for point in points(seed)? {
        let made: Vec<_> = (0..runs).into_par_iter().map(|index| run(&point, index)).collect();
        for (frames, index) in made.into_iter().zip(0..) {
            for (frame, shown) in frames?.iter().enumerate() {
                println!("{}", line(point.x, index, frame, shown));
            }
        }
    }
    Ok(())
}
