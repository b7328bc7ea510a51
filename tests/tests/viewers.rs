//! Looking on holds nobody up. What it costs in time is measured by `cargo run -p hyloc-tests --example viewers`.
#![allow(clippy::print_stdout)]

use std::net::TcpStream;

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;

/// Frames of the run: a viewer that never reads is due some 100 fixes, far more than its socket takes.
const FRAMES: u64 = 600;

/// Forty viewers who never read and ten who do: every frame becomes a fix, the readers are served to the end, and
/// what is kept for those who do not read is bounded.
#[test]
fn viewers_who_never_read_hold_up_nobody() {
    let _alone = alone();
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let patient = ["--queue", "4096", "--deadline-ms", "30000", "--fixes", log.to_str().unwrap()];
    let mut fusion = site.fusion(&patient);
    fusion.started();
    let viewers: Vec<TcpStream> = (0..50).map(|viewer| viewer_of(site.http, viewer < 10)).collect();
    let nodes = site.nodes(3);
    let frames = FRAMES.to_string();
    let simulator = site.simulator(&["--frames", &frames, "--rate", "50"]);
    site.until("a third of the fixes", |summary| count(summary, "fixes") >= FRAMES / 3);
    let before = fusion.memory_bytes();
    simulator.finish();
    // Events still come, though forty have not read one.
    site.until("all fixes", |summary| count(summary, "fixes") == FRAMES);
    live_event(site.http, "status");
    let growth_mib = (fusion.memory_bytes() as f64 - before as f64) / f64::from(1 << 20);
    println!("memory grew by {growth_mib:.1} MiB");
    assert!(growth_mib < 32.0, "{growth_mib} MiB");
    drop(viewers);
    nodes.into_iter().for_each(|node| drop(node.stop()));
    let summary = fusion.stop();
    assert_eq!((count(&summary, "fixes"), count(&summary, "without_fix")), (FRAMES, 0), "{summary}");
    assert_eq!(summary["unaccounted"], 0, "{summary}");
    let numbers: Vec<u64> = fixes(&log).iter().map(|fix| count(fix, "frame")).collect();
    assert_eq!(numbers, (0..FRAMES).collect::<Vec<_>>(), "each is written once, in order");
}
