//! A frame allocates the matrices of its result, and nothing else for each path.

#[path = "support/counting.rs"]
mod counting;

use counting::own_allocations;
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
    let before = own_allocations();
    let second = estimator.estimate_timed(&frames[1..], None).expect("a valid frame");
    let after = own_allocations();
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

/// Memory that is kept serves whichever thread takes the next frame.
#[test]
fn another_thread_allocates_no_more() {
    let source = EchoSource::new(&Scenario::default()).expect("the scenario is valid");
    let estimator = DelayEstimator::new(source.system(), 0).expect("a valid system");
    let frame = source.frame(0, 0, source.target_m(0));
    let of_a_frame = || {
        let before = own_allocations();
        estimator.estimate(&frame).expect("a valid frame");
        own_allocations() - before
    };
    let (first, second) = (of_a_frame(), of_a_frame());
    let elsewhere = std::thread::scope(|scope| scope.spawn(of_a_frame).join().unwrap());
    println!("{first} allocations of the first frame, {second} of the second, {elsewhere} in another thread");
    assert_eq!(elsewhere, second);
}
