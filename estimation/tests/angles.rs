//! Angles at the true delays against the exact bound: Monte Carlo with fixed seeds.

mod support;

use hyloc_estimation::angles::problem::DepartureForm;
use hyloc_estimation::angles::{AngleSettings, Extraction, estimate_angles};
use hyloc_estimation::baselines::{Baseline, Extent};
use model::Scenario;
use model::scenario::PathAngles;
use support::{Scene, Tally, scene};

const SCENES: u64 = 300;

fn scenes(base: &Scenario, power_dbm: f64) -> impl Iterator<Item = Scene> {
    let base = base.clone().with_power_dbm(power_dbm);
    (0..SCENES).map(move |seed| scene(&base.clone().with_seed(seed)))
}

fn tally(base: &Scenario, power_dbm: f64, settings: &AngleSettings) -> Tally {
    let mut tally = Tally::default();
    for scene in scenes(base, power_dbm) {
        let estimate = estimate_angles(&scene.blocks, settings).unwrap();
        let angles: Vec<_> = estimate.irs.iter().map(|irs| irs.angle_rad).collect();
        let variances: Vec<_> = estimate.irs.iter().map(|irs| irs.variance_rad2).collect();
        tally.add_scene(&angles, &variances, &scene);
    }
    tally
}

#[allow(clippy::print_stdout)]
fn show(name: &str, tally: &Tally) {
    println!(
        "{name:<28} {:6.2} dB above the exact bound, {:5.2} % gross, squared error over variance {:.2}",
        tally.gap_db(),
        100.0 * tally.gross_share(),
        tally.normalised()
    );
}

#[test]
fn polished_angles_reach_the_exact_bound() {
    for (power, bar) in [(50.0, 0.5), (60.0, 0.5), (70.0, 0.5)] {
        let tally = tally(&Scenario::default(), power, &AngleSettings::default());
        show(&format!("polished, {power} dBm"), &tally);
        assert!(tally.gap_db() <= bar, "{power} dBm: {:.2} dB", tally.gap_db());
        assert_eq!(tally.gross_share(), 0.0);
        // 900 squared errors over their own variances: mean 1, standard deviation 0.047; 4 sigma.
        assert!((tally.normalised() - 1.0).abs() < 0.19, "{power} dBm: {:.3}", tally.normalised());
    }
}

/// Gap in dB and share of gross errors of plain beamforming and of the polished angles, at 40 dBm.
#[test]
fn gross_errors_stay_rare_at_40_dbm() {
    let polished = tally(&Scenario::default(), 40.0, &AngleSettings::default());
    let beamforming = baseline_tally(40.0, Baseline::Beamformer, Extent::AllBlocks);
    show("polished, 40 dBm", &polished);
    show("plain beamforming, 40 dBm", &beamforming);
    // 16 of 900 angles, 1.8 %: 4 standard deviations of a binomial law above it.
    assert!(polished.gross_share() <= 0.035, "{}", polished.gross_share());
    assert!((0.10..=0.19).contains(&beamforming.gross_share()), "{}", beamforming.gross_share());
}

fn baseline_tally(power_dbm: f64, baseline: Baseline, extent: Extent) -> Tally {
    let mut tally = Tally::default();
    for scene in scenes(&Scenario::default(), power_dbm) {
        let angles: Vec<_> = (0..3).map(|l| baseline.estimate(&scene.blocks, l, extent).ok()).collect();
        tally.add_scene(&angles, &[], &scene);
    }
    tally
}

/// Every way of reading angles off the same blocks, in one table.
#[test]
fn paper_eigenvector_extraction_is_4_to_6_db_above_the_bound() {
    let of = |extraction| {
        let settings = AngleSettings { extraction, ..AngleSettings::default() };
        let tally = tally(&Scenario::default(), 50.0, &settings);
        show(&format!("joint, {extraction:?}"), &tally);
        tally.gap_db()
    };
    let eigenvector = of(Extraction::Eigenvector);
    let denoised = of(Extraction::Denoised);
    let polished = of(Extraction::Polished);
    assert!((4.0..=6.0).contains(&eigenvector), "{eigenvector}");
    assert!(denoised < eigenvector && polished < denoised);
    for baseline in Baseline::ALL {
        for extent in [Extent::AllBlocks, Extent::OneBlock] {
            let tally = baseline_tally(50.0, baseline, extent);
            show(&format!("{baseline:?}, {extent:?}"), &tally);
            assert!(tally.gap_db() > polished, "{baseline:?}, {extent:?}");
        }
    }
}

/// Free and structured departure side in rank case 2, before the polish makes them equal: over the same 900 angles
/// they are as good as each other at 50 dBm, and near the threshold both have few gross errors (3.7 and 4.6 % at
/// 35 dBm, a difference of one standard deviation; the limit is 4 of them above the mean of both).
#[test]
fn both_departure_forms_of_rank_case_2_are_as_good() {
    let mut scenario = Scenario::default();
    scenario.channel.paths = 4;
    let of = |form, power_dbm| {
        let settings = AngleSettings {
            partial_rank: form,
            extraction: Extraction::Denoised,
            ..AngleSettings::default()
        };
        let tally = tally(&scenario, power_dbm, &settings);
        show(&format!("R_k = 4, {form:?}, denoised, {power_dbm} dBm"), &tally);
        (tally.gap_db(), tally.gross_share())
    };
    let (structured, free) = (of(DepartureForm::Structured, 50.0), of(DepartureForm::Free, 50.0));
    assert!((structured.0 - free.0).abs() < 0.3, "{structured:?} {free:?}");
    for form in [DepartureForm::Structured, DepartureForm::Free] {
        let (_, gross) = of(form, 35.0);
        assert!(gross < 0.041 + 4.0 * 0.0066, "{form:?}: {gross}");
    }
}

#[test]
fn partial_rank_meets_the_bound_in_both_forms() {
    let mut scenario = Scenario::default();
    scenario.channel.paths = 4;
    for (power, bar) in [(50.0, 0.8), (60.0, 0.5)] {
        for form in [DepartureForm::Structured, DepartureForm::Free] {
            let settings = AngleSettings { partial_rank: form, ..AngleSettings::default() };
            let tally = tally(&scenario, power, &settings);
            show(&format!("R_k = 4, {form:?}, {power} dBm"), &tally);
            assert!(tally.gap_db() <= bar, "{form:?}, {power} dBm: {:.2} dB", tally.gap_db());
        }
    }
}

#[test]
fn rank_one_gives_arrival_only() {
    let mut scenario = Scenario::default();
    scenario.channel.paths = 1;
    scenario.channel.angles = PathAngles::LineOfSight;
    let mut tally = Tally::default();
    for scene in scenes(&scenario, 50.0) {
        let estimate = estimate_angles(&scene.blocks, &AngleSettings::default()).unwrap();
        assert!(estimate.irs.iter().all(|irs| irs.departure_rad.is_none()));
        let angles: Vec<_> = estimate.irs.iter().map(|irs| irs.angle_rad).collect();
        let variances: Vec<_> = estimate.irs.iter().map(|irs| irs.variance_rad2).collect();
        tally.add_scene(&angles, &variances, &scene);
    }
    show("rank one, 50 dBm", &tally);
    assert!(tally.gap_db() <= 0.5);
    assert!((tally.normalised() - 1.0).abs() < 0.19, "{}", tally.normalised());
}
