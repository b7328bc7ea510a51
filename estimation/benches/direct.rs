//! Direct position determination of one frame of spectra.
//!
//! Bound at K = 3: 529 points of K L products in single precision, 1.3 Mflop; beams of the scan 0.5 Mflop; some ten
//! evaluations of the ascent with derivatives at 90 kflop, 0.9 Mflop. At the quarter of the peak that code without AVX2 has
//! (12 Gflop/s of double, 24 of single precision) 180 us. Measured 375 us on an AMD EPYC. With more IRSs the segments that a point sums over
//! get shorter (L / K subcarriers), and their ends cost more than they do: 2.5 ms at K = 8, 12 ms at K = 16.

use hyloc_estimation::direct::{ClockPrior, Combination, DirectLocator, DirectSettings, Evidence, Survey};
use model::scenario::ring;
use model::{EchoSource, Point, Scenario};

fn main() {
    divan::main();
}

fn scene(count: usize) -> (DirectLocator, Evidence) {
    let paper = Scenario::default();
    let scenario = if count == 3 { paper } else { ring(&paper, count).expect("a ring of this size exists") };
    let source = EchoSource::new(&scenario).expect("the scenario is valid");
    let system = source.system();
    let locator = DirectLocator::new(system, DirectSettings::default()).expect("a small area");
    let mut evidence = locator.evidence();
    for l in 0..count {
        let echo = source.frame(l, 0, source.target_m(0));
        for (k, irs) in system.irs.iter().enumerate() {
            let spectrum = echo.select_columns(&irs.waveform.subcarriers);
            evidence.spectrum(l, k, &spectrum, system.noise_power_w).expect("it fits");
        }
    }
    (locator, evidence)
}

/// Spectra to position.
#[divan::bench(args = [2, 3, 4, 8, 16])]
fn locate(bencher: divan::Bencher, count: usize) {
    let (locator, evidence) = scene(count);
    bencher
        .with_inputs(|| evidence.clone())
        .bench_local_values(|evidence| locator.locate(&locator.survey(evidence)).expect("found"));
}

/// The same with unknown clocks: known to a nanosecond from earlier frames, and not known at all.
#[divan::bench(args = [1.0, 100.0], sample_count = 20)]
fn locate_with_unknown_clocks(bencher: divan::Bencher, deviation_ns: f64) {
    let (locator, evidence) = scene(3);
    let prior = ClockPrior::independent(3, deviation_ns * 1e-9).expect("a valid law");
    bencher.with_inputs(|| evidence.clone()).bench_local_values(|evidence| {
        locator.locate(&locator.survey_with_clocks(evidence, prior.clone())).expect("found")
    });
}

/// The tables, once per system.
#[divan::bench(args = [3, 16], sample_count = 10, sample_size = 1)]
fn build_the_tables(bencher: divan::Bencher, count: usize) {
    let (locator, _) = scene(count);
    let system = locator.system().clone();
    bencher.bench_local(|| DirectLocator::new(&system, DirectSettings::default()));
}

/// Six frames of a target of constant velocity, from their surveys.
#[divan::bench(args = [Combination::NonCoherent, Combination::Coherent], sample_count = 20)]
fn locate_six_frames(bencher: divan::Bencher, combination: Combination) {
    let mut scenario = Scenario::default();
    scenario.signal.coherent_frames = 6;
    let source = EchoSource::new(&scenario).expect("the scenario is valid");
    let system = source.system();
    let locator = DirectLocator::new(system, DirectSettings::default()).expect("a small area");
    let survey = |frame: u64| {
        let target_m = Point::new(3.0 + 0.2 * frame as f64, 7.0 + 0.1 * frame as f64, 0.0);
        let mut evidence = locator.evidence();
        for l in 0..system.irs_count() {
            let echo = source.frame(l, frame, target_m);
            for (k, irs) in system.irs.iter().enumerate() {
                let spectrum = echo.select_columns(&irs.waveform.subcarriers);
                evidence.spectrum(l, k, &spectrum, system.noise_power_w).expect("it fits");
            }
        }
        locator.survey(evidence)
    };
    let surveys: Vec<Survey> = (0..6).map(survey).collect();
    let timed: Vec<(f64, &Survey)> = surveys.iter().enumerate().map(|(i, s)| (i as f64 - 5.0, s)).collect();
    bencher.bench_local(|| locator.locate_frames(&timed, 0.0, combination, 0.5).expect("found"));
}
