//! Both transports of echo frames through real processes: the same seed gives the same fixes.

use std::collections::BTreeMap;

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;
use serde_json::Value;

const FRAMES: u64 = 40;

/// The fixes of a demo with everything that does not depend on time or run, as text, and the truths that came in time: no fix waits
/// for one.
fn fixes_over(transport: &str, more: &[&str]) -> (Vec<String>, BTreeMap<u64, Value>) {
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let frames = FRAMES.to_string();
    // Long deadline, so that a stall of the machine makes no report late.
    let mut arguments = vec!["demo", "--json", "--frames", &frames, "--rate", "20", "--deadline-ms", "30000"];
    arguments.extend(["--echo-transport", transport, "--fixes", log.to_str().unwrap()]);
    arguments.extend(more);
    let report = Process::start("hyloc", &arguments).finish();
    assert_eq!((count(&report, "fixes"), &report["unaccounted"]), (FRAMES, &Value::from(0)), "{report}");
    let ledgers = report["simulator"]["nodes"].as_array().expect("the ledgers of the simulator");
    assert_eq!(ledgers.len(), 3);
    for ledger in ledgers {
        let fates = (count(ledger, "offered"), count(ledger, "delivered"), count(ledger, "dropped"));
        assert_eq!(fates, (FRAMES, FRAMES, 0), "{transport}: {ledger}");
    }
    let mut fixes = fixes(&log);
    fixes.sort_by_key(|fix| count(fix, "frame"));
    let stable = |fix: &Value| {
        let keys = ["frame", "position_m", "covariance_m2", "status"];
        keys.map(|key| format!("{key}: {}", fix[key])).join(", ")
    };
    let with_truth = fixes.iter().filter(|fix| !fix["truth"].is_null());
    let truths = with_truth.map(|fix| (count(fix, "frame"), fix["truth"].clone())).collect();
    (fixes.iter().map(stable).collect(), truths)
}

#[test]
fn the_same_seed_gives_the_same_fixes_to_the_byte() {
    let _alone = alone();
    let (zeromq, truths) = fixes_over("zeromq", &[]);
    assert_eq!(zeromq.len() as u64, FRAMES);
    assert!(zeromq[0].contains("position_m: ["), "{}", zeromq[0]);
    for encrypted in [&[][..], &["--tls"]] {
        let (grpc, others) = fixes_over("grpc", encrypted);
        assert_eq!(zeromq, grpc, "{encrypted:?}");
        let both: Vec<_> =
            truths.iter().filter_map(|(frame, truth)| Some((truth, others.get(frame)?))).collect();
        assert!(!both.is_empty() && both.iter().all(|(a, b)| a == b), "{encrypted:?}: {both:?}");
    }
}

#[test]
fn a_killed_node_and_a_restarted_pusher_are_found_again() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let echo: Vec<String> = (0..3).map(|_| free_address().to_string()).collect();
    let node = |index: usize| site.node(index, &["--echo-listen", &echo[index]]);
    let mut nodes: Vec<Process> = (0..3).map(node).collect();
    let pushes: Vec<&str> = echo.iter().flat_map(|address| ["--push", address]).collect();
    let simulator = || site.simulator(&[&["--frames", "0"], &pushes[..]].concat());
    let first = simulator();
    let (summary, _) = site.until_more_fixes(20);
    nodes.pop().unwrap().kill();
    let before = of_node(&summary, 2, "fused");
    nodes.push(node(2));
    site.until("the node is back", |summary| of_node(summary, 2, "fused") > before + 20);
    first.kill();
    let second = simulator();
    site.until_more_fixes(20);
    let told = second.stop();
    for ledger in told["nodes"].as_array().unwrap() {
        assert_eq!(
            count(ledger, "offered"),
            count(ledger, "delivered") + count(ledger, "dropped"),
            "every frame is accounted for: {ledger}"
        );
    }
    nodes.into_iter().for_each(|node| drop(node.stop()));
    assert_eq!(fusion.stop()["unaccounted"], 0);
}
