//! A frame allocates the matrices of its result, and nothing else for each path.

#[path = "support/counting.rs"]
mod counting;

use counting::allocations;
use hyloc_estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use model::scenario::ring;
use model::{EchoSource, Scenario};

/// Allocations of a frame once a frame like it has been seen, with this many IRSs.
fn of_a_frame(count: usize) -> usize {
    let scenario = ring(&Scenario::default(), count).expect("a ring of this size exists");
    let source = EchoSource::new(&scenario).expect("the scenario is valid");
    let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
    let estimator = DelayEstimator::with_settings(source.system(), 0, settings).expect("valid settings");
    let frames = [source.frame(0, 0, source.target_m(0)), source.frame(0, 1, source.target_m(1))];
    let first = estimator.estimate(&frames[0]).expect("a valid frame");
    let before = allocations();
    let second = estimator.estimate_timed(&frames[1..], None).expect("a valid frame");
    let after = allocations();
    assert_ne!(first, second);
    after - before
}

#[test]
fn paths_allocate_their_results_only() {
    let (four, eight) = (of_a_frame(4), of_a_frame(8));
    println!("{four} allocations with 4 IRSs, {eight} with 8");
    // Block, derivative and spectrum.
    assert_eq!(eight - four, 3 * 4);
}
