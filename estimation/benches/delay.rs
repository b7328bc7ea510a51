//! Delays of one node. Budget: 2000 Table I frames per second and core, 500 us each.

use estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use model::scenario::ring;
use model::{EchoSource, Scenario};

fn main() {
    divan::main();
}

#[divan::bench(args = [Statistic::Frobenius, Statistic::Spectral, Statistic::Beamformed, Statistic::Illuminated])]
fn one_frame_at_table_one(bencher: divan::Bencher, statistic: Statistic) {
    estimate(bencher, &Scenario::default(), statistic);
}

/// As the nodes run it.
#[divan::bench(args = [2, 4, 8, 16])]
fn one_frame_on_a_ring(bencher: divan::Bencher, count: usize) {
    let scenario = ring(&Scenario::default(), count).expect("a ring of this size exists");
    estimate(bencher, &scenario, Statistic::Illuminated);
}

#[divan::bench]
fn build_the_tables(bencher: divan::Bencher) {
    let source = EchoSource::new(&Scenario::default()).expect("the scenario is valid");
    bencher.bench_local(|| DelayEstimator::new(source.system(), 0));
}

fn estimate(bencher: divan::Bencher, scenario: &Scenario, statistic: Statistic) {
    let source = EchoSource::new(scenario).expect("the scenario is valid");
    let settings = DelaySettings { statistic, ..DelaySettings::default() };
    let estimator = DelayEstimator::with_settings(source.system(), 0, settings).expect("valid settings");
    let frame = source.frame(0, 0, source.target_m(0));
    bencher.bench_local(|| estimator.estimate(&frame));
}
