//! Several targets in one frame of Table I: how many are found, and how far they are from the joint bound.
#![allow(clippy::print_stdout)]

use hyloc_estimation::direct::{ClockPrior, DirectLocator, DirectSettings, TargetList};
use model::random::{Purpose, Stream, complex_normal, stream};
use model::units::db_from_ratio;
use model::{EchoSource, Point, Scenario};
use nalgebra::{DMatrix, DVector};
use num_complex::Complex64;
use rand::RngExt;
use rayon::prelude::*;

/// Limit of the number of targets.
const MOST: usize = 10;
/// A target counts as found within this distance.
const GROSS_M: f64 = 1.0;

/// One scene: the targets of a frame, what was found, and the joint bound.
struct Outcome {
    truth: Vec<Point>,
    found: TargetList,
    bound_m2: f64,
    /// Normalised squared error of the clock offsets, where these are unknown.
    offset_nees: Option<f64>,
}

/// Targets of a seed, at least `apart_m` from each other and, for a pair, at most a tenth more.
fn targets(random: &mut Stream, count: usize, apart_m: f64) -> Vec<Point> {
    let mut uniform = |from: f64, to: f64| from + (to - from) * random.random::<f64>();
    loop {
        let mut places: Vec<Point> = Vec::new();
        for _ in 0..1000 {
            if places.len() == count {
                return places;
            }
            let place = if count == 2 && places.len() == 1 {
                let turn = uniform(0.0, std::f64::consts::TAU);
                places[0] + Point::new(turn.cos(), turn.sin(), 0.0) * apart_m
            } else {
                Point::new(uniform(0.5, 9.5), uniform(0.5, 9.5), 0.0)
            };
            let inside = (0.0..=10.0).contains(&place.x) && (0.0..=10.0).contains(&place.y);
            if inside && places.iter().all(|other| (other - place).norm() > apart_m * 0.999) {
                places.push(place);
            }
        }
    }
}

/// What is known about the clocks.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Exactly,
    /// Offsets of up to 100 ns, with this standard deviation, about zero if it is 100 ns and about the truth if it is less.
    Within(f64),
}

const FRESH: Known = Known::Within(100e-9);

/// The law of the clocks of a seed that are known within this deviation, and the same about the truth.
fn laws(source: &EchoSource, seed: u64, deviation_s: f64) -> [ClockPrior; 2] {
    let offsets_s = DVector::from_fn(3, |l, _| source.clock_offset_s(l, 0));
    let mut draws = stream(seed, Purpose::Study, [22, 0]);
    let error_s = DVector::from_fn(3, |_, _| deviation_s * complex_normal(&mut draws, 2.0).re);
    let mean_s = if Known::Within(deviation_s) == FRESH { DVector::zeros(3) } else { &offsets_s + error_s };
    let spread = DMatrix::identity(3, 3) * deviation_s.powi(2);
    [mean_s, offsets_s].map(|mean_s| ClockPrior::new(mean_s, spread.clone()).unwrap())
}

fn outcome(seed: u64, power_dbm: f64, count: usize, apart_m: f64, clocks: Known) -> Outcome {
    let mut scenario = Scenario::default().with_power_dbm(power_dbm).with_seed(seed);
    if clocks != Known::Exactly {
        (scenario.clocks.offset_ns, scenario.clocks.prior_ns) = (100.0, 100.0);
    }
    let source = EchoSource::new(&scenario).unwrap();
    let system = source.system();
    let truth = targets(&mut stream(seed, Purpose::Study, [20, count as u64]), count, apart_m);
    let locator = DirectLocator::new(system, DirectSettings::default()).unwrap();
    let [mut noiseless, mut evidence] = [locator.evidence(), locator.evidence()];
    for l in 0..system.irs_count() {
        // Every target is that of another frame, so that their gains are independent.
        let echo =
            |(t, target_m): (usize, &Point)| source.frame(l, t as u64, *target_m) - source.noise(l, t as u64);
        let mut echoes = source.noise(l, 0) * Complex64::ZERO;
        truth.iter().enumerate().for_each(|target| echoes += echo(target));
        let received = &echoes + source.noise(l, 0);
        for (k, irs) in system.irs.iter().enumerate() {
            for (of, echoes) in [(&mut noiseless, &echoes), (&mut evidence, &received)] {
                let spectrum = echoes.select_columns(&irs.waveform.subcarriers);
                of.spectrum(l, k, &spectrum, system.noise_power_w).unwrap();
            }
        }
    }
    let (survey, exact) = match clocks {
        Known::Exactly => (locator.survey(evidence), None),
        Known::Within(deviation_s) => {
            let [prior, exact] = laws(&source, seed, deviation_s);
            (locator.survey_with_clocks(evidence, prior), Some(exact))
        }
    };
    let bound_m2 =
        locator.joint_bound_m2(&noiseless, &truth, exact.as_ref()).map_or(0.0, |bound| bound.trace());
    let found = locator.locate_several(&survey, MOST).unwrap();
    let offset_nees = found.clocks.as_ref().zip(exact.as_ref()).map(|(update, exact)| {
        let error_ns = (update.posterior.mean_s() - exact.mean_s()) * 1e9;
        let spread = (update.posterior.covariance_s2() * 1e18).cholesky().unwrap();
        error_ns.dot(&spread.solve(&error_ns))
    });
    Outcome { truth, found, bound_m2, offset_nees }
}

impl Outcome {
    /// Squared errors, the targets assigned greedily by distance; none where a target is missed or too many are found.
    fn squared_m2(&self) -> Option<Vec<f64>> {
        if self.found.targets.len() != self.truth.len() {
            return None;
        }
        let mut left: Vec<Point> = self.found.targets.iter().map(|target| target.position_m).collect();
        let mut squared = Vec::new();
        for truth in &self.truth {
            let distance = |p: &Point| (p - truth).norm_squared();
            let nearest =
                (0..left.len()).min_by(|&a, &b| distance(&left[a]).total_cmp(&distance(&left[b])))?;
            squared.push(distance(&left.swap_remove(nearest)));
        }
        Some(squared)
    }
}

/// Share of scenes with the right number, share of those with a gross error, and the gap to the joint bound in decibels.
fn judged(outcomes: &[Outcome]) -> [f64; 3] {
    let right: Vec<(Vec<f64>, &Outcome)> =
        outcomes.iter().filter_map(|o| Some((o.squared_m2()?, o))).collect();
    let (good, gross): (Vec<_>, Vec<_>) =
        right.iter().partition(|(squared, _)| squared.iter().all(|s| *s < GROSS_M * GROSS_M));
    let error: f64 = good.iter().flat_map(|(squared, _)| squared).sum();
    let bound: f64 = good.iter().map(|(_, o)| o.bound_m2).sum();
    let share = right.len() as f64 / outcomes.len() as f64;
    [share, gross.len() as f64 / right.len().max(1) as f64, db_from_ratio(error / bound)]
}

fn scenes(count: u64, power_dbm: f64, targets: usize, apart_m: f64) -> Vec<Outcome> {
    timed_scenes(count, power_dbm, targets, apart_m, Known::Exactly)
}

fn timed_scenes(count: u64, power_dbm: f64, targets: usize, apart_m: f64, clocks: Known) -> Vec<Outcome> {
    (0..count).into_par_iter().map(|seed| outcome(seed, power_dbm, targets, apart_m, clocks)).collect()
}

/// One scene in a hundred may have a wrong number, or a gross error where the number is right.
#[test]
fn pairs_are_resolved_below_the_resolution() {
    for (apart_m, most_db) in [(2.0, 1.0), (3.0, 1.0), (6.0, 1.0)] {
        let [right, gross, gap_db] = judged(&scenes(200, 50.0, 2, apart_m));
        println!("2 targets {apart_m} m apart: right {right:.3}, gross {gross:.3}, {gap_db:.2} dB");
        assert!(
            right >= 0.97 && gross <= 0.01 && gap_db.abs() < most_db,
            "{apart_m} m: {right} {gross} {gap_db}"
        );
    }
    let [right, gross, gap_db] = judged(&scenes(100, 50.0, 2, 1.0));
    println!("2 targets 1 m apart: right {right:.3}, gross {gross:.3}, {gap_db:.2} dB");
}

#[test]
fn three_and_five_are_found_at_the_joint_bound() {
    for (count, frames, least, most_db) in [(3, 200, 0.98, 0.7), (5, 100, 0.95, 1.0)] {
        let [right, gross, gap_db] = judged(&scenes(frames, 50.0, count, 2.0));
        println!("{count} targets: right {right:.3}, gross {gross:.3}, {gap_db:.2} dB");
        assert!(right >= least && gross <= 0.01 && gap_db < most_db, "{count}: {right} {gross} {gap_db}");
    }
    let [right, gross, gap_db] = judged(&scenes(24, 55.0, 8, 1.5));
    println!("8 targets at 55 dBm: right {right:.3}, gross {gross:.3}, {gap_db:.2} dB");
}

/// One target is not taken for two, and is where the direct method alone finds it; none is found in noise.
#[test]
fn one_and_none_stay_one_and_none() {
    let one = scenes(200, 50.0, 1, 1.0);
    let [right, gross, gap_db] = judged(&one);
    println!("1 target: right {right:.3}, gross {gross:.3}, {gap_db:.2} dB");
    assert!(right >= 0.99 && gross == 0.0 && gap_db.abs() < 0.7, "{right} {gross} {gap_db}");
    let unresolved = one.iter().filter(|o| o.found.targets[0].unresolved).count();
    assert!(unresolved == 0, "{unresolved} of 200 single targets are called unresolved");
    // At a false-alarm probability of 5e-4 at most three of 400 frames, which one time in 3000 is exceeded.
    let alarms = scenes(400, 50.0, 0, 1.0).iter().filter(|o| !o.found.targets.is_empty()).count();
    println!("{alarms} false alarms in 400");
    assert!(alarms <= 3, "{alarms}");
}

/// Two targets 3 m apart with clocks that are unknown within 100 ns, and within 0.2 ns from earlier frames: at the joint bound of
/// positions and offsets, and the offsets are as good as they say but for one in a hundred whose clock is at a wrong lag.
#[test]
fn pairs_are_found_with_unknown_clocks() {
    for (clocks, name) in [(FRESH, "100 ns"), (Known::Within(0.2e-9), "0.2 ns")] {
        let outcomes = timed_scenes(200, 50.0, 2, 3.0, clocks);
        let [right, gross, gap_db] = judged(&outcomes);
        let good = outcomes.iter().filter(|o| o.squared_m2().is_some_and(|s| s.iter().all(|s| *s < 1.0)));
        let mut nees: Vec<f64> = good.filter_map(|o| o.offset_nees).collect();
        nees.sort_by(f64::total_cmp);
        let (median, far) = (nees[nees.len() / 2], nees.iter().filter(|nees| **nees > 20.0).count());
        println!(
            "clocks within {name}: right {right:.3}, gross {gross:.3}, {gap_db:.2} dB, offsets NEES {median:.2}, {far} far"
        );
        assert!(right >= 0.98 && gross <= 0.01 && gap_db.abs() < 0.6, "{name}: {right} {gross} {gap_db}");
        // The median of chi-square with three degrees of freedom is 2.37, that of 200 scatters by 0.2; one in 6000 exceeds 20.
        assert!((1.7..3.1).contains(&median) && far <= 3, "{name}: {median} {far}");
    }
}
