//! Delays of one node. Budget: 2000 Table I frames per second and core, 500 us each.
//!
//! Operations at Table I: scan `K A (8 (M n + n^2 / 2) + 2 T lags)`, 0.5 Mflop with A = 13 angles, T = 29 delays and 93 lags; blocks,
//! weighted twice and expanded once with derivatives, 0.3 Mflop. That is 17 us at the 48 Gflop/s of a core with AVX2. Measured 67 us at
//! best, a quarter of it. With 16 IRSs (600 us at best) the tables of the scan have 1.5 MB. A correlation by FFT would cost more: the
//! window has some 40 points, and the subcarriers of an IRS are a third of the grid or less.

use hyloc_estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use model::scenario::ring;
use model::{EchoSource, Scenario};

fn main() {
    divan::main();
}

#[divan::bench(args = [Statistic::Frobenius, Statistic::Spectral, Statistic::Beamformed, Statistic::Illuminated])]
fn one_frame_at_table_one(bencher: divan::Bencher, statistic: Statistic) {
    estimate(bencher, &Scenario::default(), statistic);
}

/// With the statistic of the node process.
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
