//! Node-side delays against outside truth and against the exact bound.
//!
//! Statistical tests: Table I, one scene per scenario seed, nine paths per scene. An error counts as gross
//! above 6 m, one sample; all other figures are over the rest.

#![allow(clippy::print_stdout)]

use std::f64::consts::TAU;

use hyloc_estimation::delay::{
    BlockExpansion, BlockNorm, DelayError, DelayEstimator, DelaySettings, DelayWindow, MatchedFilter,
    NodeDelays, Statistic, coherent_refinement,
};
use model::algebra::unit_phasor;
use model::geometry::cascade_delay_s;
use model::scenario::ring;
use model::units::{SPEED_OF_LIGHT_M_S, db_from_ratio};
use model::{CMatrix, CVector, EchoSource, Gain, Information, Point, Scenario, System};
use num_complex::Complex64;
use proptest::prelude::*;
use serde_json::Value;

const GROSS_S: f64 = 6.0 / SPEED_OF_LIGHT_M_S;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("an array").iter().map(|v| v.as_f64().expect("a number")).collect()
}

fn matrix(value: &Value) -> CMatrix {
    let rows =
        |part: &str| -> Vec<Vec<f64>> { value[part].as_array().expect("rows").iter().map(numbers).collect() };
    let (re, im) = (rows("re"), rows("im"));
    CMatrix::from_fn(re.len(), re[0].len(), |i, j| Complex64::new(re[i][j], im[i][j]))
}

#[test]
fn oracle_delay() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/delay.json");
    let text = std::fs::read_to_string(path).expect("the reference vectors");
    let vectors: Value = serde_json::from_str(&text).expect("JSON");
    let cases = vectors["cases"].as_array().expect("cases");
    assert!(!cases.is_empty());
    for case in cases {
        let indices: Vec<usize> = numbers(&case["subcarrier_index"]).iter().map(|&i| i as usize).collect();
        let subcarriers = case["subcarriers"].as_u64().expect("a count") as usize;
        let bandwidth_hz = case["bandwidth_hz"].as_f64().expect("a bandwidth");
        let filter = MatchedFilter::new(matrix(&case["codes"]), &indices, subcarriers, bandwidth_hz).unwrap();
        let window = numbers(&case["search_window_s"]);
        let window = DelayWindow::new(window[0], window[1]).unwrap();
        let found = filter.search(&matrix(&case["spectrum"]), &window, BlockNorm::Frobenius).unwrap();
        let expected_s = case["expected"]["delay_s"].as_f64().expect("a delay");
        let expected = matrix(&case["expected"]["block"]);
        let block_error = (&found.block - &expected).norm() / expected.norm();
        println!("oracle delay: off by {:.1e} s, block by {block_error:.1e}", found.delay_s - expected_s);
        assert!((found.delay_s - expected_s).abs() < 1e-12);
        assert!(block_error < 1e-4);
    }
}

/// Sums over the paths of a study.
#[derive(Default)]
struct Tally {
    paths: usize,
    gross: usize,
    squared_m2: f64,
    over_variance: f64,
    over_bound: f64,
    refined: usize,
    refined_over_variance: f64,
    refined_over_bound: f64,
    snr_ratio: f64,
    noise_ratio: f64,
    nodes: usize,
}

impl Tally {
    fn add(&mut self, system: &System, l: usize, target: Point, frames: usize, found: &NodeDelays) {
        let rcs_m2 = Scenario::default().rcs_m2();
        let information = Information::new(system, target, rcs_m2, Gain::Unknown);
        let delay_bounds = information.delay_crb_s2().unwrap();
        self.nodes += 1;
        self.noise_ratio += found.noise_power_w * frames as f64 / system.noise_power_w;
        for (k, path) in found.paths.iter().enumerate() {
            let true_s = cascade_delay_s(&system.irs[l].pose, &system.irs[k].pose, target);
            let bound_s2 = delay_bounds[l][k].expect("all paths are present") / frames as f64;
            let squared = (path.delay_s - true_s).powi(2);
            self.paths += 1;
            self.snr_ratio += path.snr / (system.path_snr(l, k, target, rcs_m2).unwrap() * frames as f64);
            if squared > GROSS_S.powi(2) {
                self.gross += 1;
                continue;
            }
            self.squared_m2 += squared * SPEED_OF_LIGHT_M_S.powi(2);
            self.over_variance += squared / path.delay_variance_s2;
            self.over_bound += squared / bound_s2;
            let filter = MatchedFilter::of_system(system, k).unwrap();
            let b = system.illumination(k, target).unwrap();
            let a = system.sensor_array().steering(system.irs[l].pose.local_angle_rad(target));
            let bandwidth = filter.effective_bandwidth_rad_s(&b).unwrap();
            let refined =
                coherent_refinement(&path.expansion(), &a, &b, found.noise_power_w, bandwidth).unwrap();
            let squared = (refined.delay_s - true_s).powi(2);
            if squared <= GROSS_S.powi(2) {
                self.refined += 1;
                self.refined_over_variance += squared / refined.delay_variance_s2;
                self.refined_over_bound += squared / bound_s2;
            }
        }
    }

    fn gross_share(&self) -> f64 {
        self.gross as f64 / self.paths as f64
    }

    fn fair(&self) -> f64 {
        (self.paths - self.gross) as f64
    }

    /// Mean of squared error over reported variance.
    fn consistency(&self) -> f64 {
        self.over_variance / self.fair()
    }

    fn refined_consistency(&self) -> f64 {
        self.refined_over_variance / self.refined as f64
    }

    fn gap_db(&self) -> f64 {
        db_from_ratio(self.over_bound / self.fair())
    }

    fn refined_gap_db(&self) -> f64 {
        db_from_ratio(self.refined_over_bound / self.refined as f64)
    }

    fn print(&self, name: &str) {
        println!(
            "{name:<12} gross {:5.2} % of {}  rms {:.3} m  error^2/variance {:.3}  gap {:5.2} dB  \
             refined: gross {}, gap {:5.2} dB, error^2/variance {:.3}  SNR ratio {:.3}  noise ratio {:.4}",
            100.0 * self.gross_share(),
            self.paths,
            (self.squared_m2 / self.fair()).sqrt(),
            self.consistency(),
            self.gap_db(),
            self.paths - self.gross - self.refined,
            self.refined_gap_db(),
            self.refined_consistency(),
            self.snr_ratio / self.paths as f64,
            self.noise_ratio / self.nodes as f64,
        );
    }
}

/// Squared error over reported variance, over some 2700 paths: mean 1, standard deviation sqrt(2 / 2700) = 0.027. The
/// limit is 4.4 of them.
fn is_consistent(mean: f64) -> bool {
    (mean - 1.0).abs() < 0.12
}

/// A share of 2700 paths that should be `expected`, within 4 standard deviations of a binomial law.
fn is_share(share: f64, expected: f64) -> bool {
    (share - expected).abs() < 4.0 * (expected * (1.0 - expected) / 2700.0).sqrt()
}

fn study(statistic: Statistic, scenes: u64, frames: usize) -> Tally {
    let mut tally = Tally::default();
    for seed in 1..=scenes {
        let mut scenario = Scenario::default().with_seed(seed);
        scenario.signal.coherent_frames = frames as u64;
        let source = EchoSource::new(&scenario).expect("a valid scenario");
        let (system, target) = (source.system(), source.target_m(0));
        for l in 0..system.irs_count() {
            let settings = DelaySettings { statistic, frames, ..DelaySettings::default() };
            let estimator = DelayEstimator::with_settings(system, l, settings).expect("valid settings");
            let data: Vec<CMatrix> = (0..frames as u64).map(|f| source.frame(l, f, target)).collect();
            tally.add(system, l, target, frames, &estimator.estimate_frames(&data).expect("a valid frame"));
        }
    }
    tally
}

#[test]
fn paper_statistics_at_table_one() {
    println!("one frame, 300 scenes");
    let frobenius = study(Statistic::Frobenius, 300, 1);
    frobenius.print("frobenius");
    let spectral = study(Statistic::Spectral, 300, 1);
    spectral.print("spectral");
    assert!(frobenius.gross_share() > spectral.gross_share());
    assert!(is_share(frobenius.gross_share(), 0.06), "{}", frobenius.gross_share());
    assert!(is_share(spectral.gross_share(), 0.04), "{}", spectral.gross_share());
    for tally in [frobenius, spectral] {
        assert!(is_consistent(tally.consistency()), "{}", tally.consistency());
    }
}

#[test]
fn beamformed_delays_at_table_one() {
    println!("one frame, 300 scenes");
    let tally = study(Statistic::Beamformed, 300, 1);
    tally.print("beamformed");
    assert!(is_share(tally.gross_share(), 0.014), "{}", tally.gross_share());
    assert!(is_consistent(tally.consistency()) && is_consistent(tally.refined_consistency()));
    // Standard deviation of a gap over 2700 paths: 0.12 dB.
    assert!((2.5..3.5).contains(&tally.gap_db()), "{}", tally.gap_db());
    assert!(tally.refined_gap_db().abs() <= 0.5, "{}", tally.refined_gap_db());
    assert!((0.995..1.005).contains(&(tally.noise_ratio / tally.nodes as f64)));
    assert!((0.92..1.02).contains(&(tally.snr_ratio / tally.paths as f64)));

    let tally = study(Statistic::Illuminated, 300, 1);
    tally.print("illuminated");
    assert!(is_share(tally.gross_share(), 0.0037), "{}", tally.gross_share());
    assert!(is_consistent(tally.consistency()), "{}", tally.consistency());
    assert!(tally.gap_db() <= 0.95 && tally.refined_gap_db().abs() <= 0.5);
}

#[test]
fn ten_coherent_frames() {
    println!("ten frames, 300 scenes");
    for (name, statistic) in [("beamformed", Statistic::Beamformed), ("illuminated", Statistic::Illuminated)]
    {
        let tally = study(statistic, 300, 10);
        tally.print(name);
        assert!(tally.gross_share() <= 0.001);
        assert!(is_consistent(tally.consistency()), "{}", tally.consistency());
        assert!(tally.refined_gap_db().abs() <= 0.4);
    }
}

fn table_one() -> (EchoSource, DelayEstimator) {
    let source = EchoSource::new(&Scenario::default()).expect("valid");
    let estimator = DelayEstimator::new(source.system(), 0).expect("valid");
    (source, estimator)
}

#[test]
fn a_frame_without_noise_gives_the_truth() {
    let mut scenario = Scenario::default();
    scenario.signal.noise_dbm = -200.0;
    let source = EchoSource::new(&scenario).expect("valid");
    let (system, target) = (source.system(), source.target_m(0));
    for statistic in
        [Statistic::Frobenius, Statistic::Spectral, Statistic::Beamformed, Statistic::Illuminated]
    {
        let settings = DelaySettings { statistic, ..DelaySettings::default() };
        let estimator = DelayEstimator::with_settings(system, 1, settings).expect("valid");
        let found = estimator.estimate(&source.frame(1, 0, target)).expect("a valid frame");
        assert!(
            (found.arrival.unwrap().bearing_rad - system.irs[1].pose.local_angle_rad(target)).abs() < 1e-5
        );
        for (k, path) in found.paths.iter().enumerate() {
            let true_s = cascade_delay_s(&system.irs[1].pose, &system.irs[k].pose, target);
            assert!((path.delay_s - true_s).abs() < 1e-12, "{statistic:?}");
        }
    }
}

#[test]
fn wrong_input_is_refused_by_name() {
    let (source, estimator) = table_one();
    let frame = source.frame(0, 0, source.target_m(0));
    assert_eq!(estimator.estimate_frames(&[]), Err(DelayError::Empty));
    let narrow = frame.columns(0, 99).into_owned();
    assert!(matches!(estimator.estimate(&narrow), Err(DelayError::Shape { what: "frame", .. })));
    let mut broken = frame.clone();
    broken[(3, 7)] = Complex64::new(f64::NAN, 0.0);
    assert_eq!(estimator.estimate_frames(&[frame, broken]), Err(DelayError::NotFinite { what: "frame" }));
    assert_eq!(estimator.estimate(&CMatrix::zeros(10, 100)), Err(DelayError::NoEnergy { what: "frame" }));
    let missing = DelayEstimator::new(source.system(), 3);
    assert!(matches!(missing, Err(DelayError::Node { node: 3, count: 3 })));
    let settings = DelaySettings { guard_samples: f64::NAN, ..DelaySettings::default() };
    assert!(DelayEstimator::with_settings(source.system(), 0, settings).is_err());
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1.0..1.0f64,
        1 => prop_oneof![Just(0.0), Just(f64::NAN), Just(f64::INFINITY), Just(1e200), Just(1e-200), Just(-1e-20)],
        1 => any::<f64>(),
    ]
}

/// Mostly ordinary matrices, some with one entry out of line.
fn any_matrix(rows: usize, columns: usize) -> impl Strategy<Value = CMatrix> {
    let entry = (-1.0..1.0f64, -1.0..1.0f64).prop_map(|(re, im)| Complex64::new(re, im));
    let odd = prop::option::of((any::<prop::sample::Index>(), value(), value()));
    (prop::collection::vec(entry, rows * columns), value(), odd).prop_map(move |(mut data, scale, odd)| {
        data.iter_mut().for_each(|v| *v *= scale);
        if let (Some((at, re, im)), false) = (odd, data.is_empty()) {
            let at = at.index(data.len());
            data[at] = Complex64::new(re, im);
        }
        CMatrix::from_vec(rows, columns, data)
    })
}

fn shaped_matrix(most: usize) -> impl Strategy<Value = CMatrix> {
    (0..=most, 0..=most).prop_flat_map(|(rows, columns)| any_matrix(rows, columns))
}

proptest! {
    #[test]
    fn the_filter_never_panics(
        codes in shaped_matrix(4),
        spectrum in shaped_matrix(4),
        indices in prop::collection::vec(0usize..12, 0..5),
        (subcarriers, bandwidth_hz) in (0usize..12, prop_oneof![3 => Just(50e6), 1 => value()]),
        (min_s, max_s) in (prop_oneof![Just(1e-7), value()], prop_oneof![Just(2e-7), value()]),
        spectral in any::<bool>(),
    ) {
        let window = DelayWindow::new(min_s, max_s).unwrap_or(DelayWindow { min_s, max_s });
        let norm = if spectral { BlockNorm::Spectral } else { BlockNorm::Frobenius };
        if let Ok(filter) = MatchedFilter::new(codes, &indices, subcarriers, bandwidth_hz)
            && let Ok(found) = filter.search(&spectrum, &window, norm)
        {
            prop_assert!(found.delay_s >= window.min_s && found.delay_s <= window.max_s);
            prop_assert!(found.block.iter().all(|v| v.re.is_finite() && v.im.is_finite()));
        }
    }

    #[test]
    fn a_sound_search_never_fails(
        (rows, streams, carriers) in (1usize..5, 1usize..4, 4usize..9), spectral in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut draw = model::random::stream(seed, model::random::Purpose::Study, [0, 0]);
        let mut random =
            |r, c| CMatrix::from_fn(r, c, |_, _| model::random::complex_normal(&mut draw, 1.0));
        let (codes, spectrum) = (random(streams, carriers), random(rows, carriers));
        let indices: Vec<usize> = (0..carriers).map(|i| (i * 7 + 3) % 23).collect();
        let filter = MatchedFilter::new(codes, &indices, 23, 50e6).unwrap();
        let window = DelayWindow::new(1e-7, 2e-7).unwrap();
        let norm = if spectral { BlockNorm::Spectral } else { BlockNorm::Frobenius };
        let found = filter.search(&spectrum, &window, norm).unwrap();
        let height = |block: &CMatrix| if spectral { block.clone().svd(false, false).singular_values.max() } else { block.norm() };
        for i in 0..=400 {
            let other = filter.block(&spectrum, 1e-7 + 1e-7 * f64::from(i) / 400.0).unwrap();
            prop_assert!(height(&other) <= height(&found.block) * (1.0 + 1e-3));
        }
        // dR/dtau against a difference.
        let (at, h) = (found.delay_s, 1e-13);
        let difference = (filter.block(&spectrum, at + h).unwrap() - filter.block(&spectrum, at - h).unwrap()).unscale(2.0 * h);
        let expansion = filter.expansion(&spectrum, at).unwrap();
        prop_assert!((difference - &expansion.block_derivative).norm() <= 1e-3 * expansion.block_derivative.norm());
    }

    #[test]
    fn the_refinement_never_panics(
        (block, block_derivative) in (any_matrix(3, 2), shaped_matrix(3)),
        (arrival, illumination) in (any_matrix(3, 1), any_matrix(2, 1)),
        (delay_s, noise, bandwidth) in (value(), value(), value()),
    ) {
        let column = |m: CMatrix| CVector::from_vec(m.as_slice().to_vec());
        let expansion = BlockExpansion { delay_s, block, block_derivative };
        let refined = coherent_refinement(&expansion, &column(arrival), &column(illumination), noise, bandwidth);
        prop_assert!(refined.is_err() || refined.is_ok_and(|r| r.snr > 0.0 && r.delay_s.is_finite()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn the_estimator_never_panics(
        frame in prop_oneof![any_matrix(10, 100), shaped_matrix(12)], statistic in 0usize..4,
    ) {
        let statistics = [Statistic::Frobenius, Statistic::Spectral, Statistic::Beamformed, Statistic::Illuminated];
        let system = System::new(&Scenario::default()).expect("valid");
        let settings = DelaySettings { statistic: statistics[statistic], ..DelaySettings::default() };
        let estimator = DelayEstimator::with_settings(&system, 2, settings).expect("valid");
        if let Ok(found) = estimator.estimate(&frame) {
            for (k, path) in found.paths.iter().enumerate() {
                let window = estimator.window(k).expect("a path");
                prop_assert!(path.delay_s >= window.min_s && path.delay_s <= window.max_s);
                prop_assert!(path.delay_variance_s2 > 0.0 && path.delay_variance_s2.is_finite());
                prop_assert!(path.snr >= 0.0 && path.snr.is_finite());
            }
        }
    }
}

/// Blocks and derivatives of an estimate against the sum over the subcarriers that defines them.
#[test]
fn blocks_are_sums_over_the_subcarriers() {
    let source = EchoSource::new(&ring(&Scenario::default(), 5).expect("a ring")).expect("valid");
    let system = source.system();
    let frame = source.frame(2, 0, source.target_m(0));
    let found = DelayEstimator::new(system, 2).expect("valid").estimate(&frame).expect("a valid frame");
    for (k, path) in found.paths.iter().enumerate() {
        let codes = &system.irs[k].waveform.codes;
        let (rows, columns) = path.block.shape();
        let (mut block, mut derivative) = (CMatrix::zeros(rows, columns), CMatrix::zeros(rows, columns));
        for (column, &i) in system.irs[k].waveform.subcarriers.iter().enumerate() {
            let w = TAU * system.frequency_hz(i);
            let term = frame.column(i) * codes.column(column).adjoint() * unit_phasor(w * path.delay_s);
            derivative += &term * Complex64::new(0.0, w);
            block += term;
        }
        assert_eq!(path.spectrum, frame.select_columns(&system.irs[k].waveform.subcarriers));
        assert!((&path.block - &block).norm() < 1e-12 * block.norm());
        assert!((&path.block_derivative - &derivative).norm() < 1e-12 * derivative.norm());
    }
}
