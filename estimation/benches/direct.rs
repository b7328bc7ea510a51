//! Direct position determination of one frame of spectra.
//!
//! Bound at K = 3: a third of 529 points of K L products in single precision, 0.4 Mflop; beams of the scan 0.5 Mflop; some ten
//! evaluations of the ascent with derivatives at 90 kflop, 0.9 Mflop. At the quarter of the peak that code without AVX2 has
//! (12 Gflop/s of double, 24 of single precision) 110 us. Measured 260 us on an AMD EPYC, 1.5 ms at K = 8, 6.4 ms at K = 16. With the whole
//! grid it was 360 us, 2.3 ms and 11.4 ms in the same run, and in space (`locate_in_space`) 18.7 instead of 8.9 ms from spectra.

use hyloc_estimation::delay::DelayEstimator;
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

/// The hall of `deploy/scenarios`, whose grid in space has 13 248 points: spectra or blocks to position.
#[divan::bench(args = [true, false])]
fn locate_in_space(bencher: divan::Bencher, spectra: bool) {
    let hall: Scenario =
        toml::from_str(include_str!("../../deploy/scenarios/hall.toml")).expect("a valid scenario");
    let source = EchoSource::new(&hall).expect("the scenario is valid");
    let system = source.system();
    let locator = DirectLocator::new(system, DirectSettings::default()).expect("a small area");
    let mut evidence = locator.evidence();
    for l in 0..system.irs_count() {
        let node = DelayEstimator::new(system, l).expect("a valid system");
        let report = node.estimate(&source.frame(l, 0, source.target_m(0))).expect("a frame of this system");
        for (k, path) in report.paths.iter().enumerate() {
            let added = match spectra {
                true => evidence.spectrum(l, k, &path.spectrum, report.noise_power_w),
                false => evidence.block(l, k, &path.expansion(), report.noise_power_w),
            };
            added.expect("it fits");
        }
    }
    bencher
        .with_inputs(|| evidence.clone())
        .bench_local_values(|evidence| locator.locate(&locator.survey(evidence)).expect("found"));
}

/// Spectra of Table I with unknown clocks: known to a nanosecond from earlier frames, and not known at all.
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
