//! Faults found, named and excluded; false alarms; what gross errors cost.

use crate::scene::*;
use hyloc_estimation::location::*;
use model::units::{SPEED_OF_LIGHT_M_S, db_from_ratio};
use rand::RngExt;

fn share(outcomes: &[bool]) -> f64 {
    outcomes.iter().filter(|hit| **hit).count() as f64 / outcomes.len() as f64
}

#[test]
fn false_alarms_are_rare() {
    const FIXES: u64 = 100_000;
    for (count, power_dbm) in [(3, 50.0), (4, 50.0), (4, 40.0)] {
        let irs = irs(count);
        let alarms = monte_carlo(61 + count as u64 + power_dbm as u64, FIXES, |rng| {
            let target_m = random_target(rng);
            let draw = Draw::new(&irs, target_m, power_dbm, rng);
            locate(&draw.measurements(), &LocateSettings::default()).expect("observable").status()
                != Status::Nominal
        });
        println!("K = {count}, {power_dbm} dBm: false alarms in {:.2e} of {FIXES} fixes", share(&alarms));
        assert!(share(&alarms) <= 1e-3);
    }
}

/// One node's delays off by 10 standard deviations: as one clock offset (10 times the row's rms
/// deviation) and as 10 deviations of each path.
#[test]
fn a_biased_node_is_found_and_named() {
    const FIXES: u64 = 20_000;
    let irs = irs(4);
    for same_offset in [true, false] {
        let outcomes = monte_carlo(67, FIXES, |rng| {
            let target_m = random_target(rng);
            let mut draw = Draw::new(&irs, target_m, 50.0, rng);
            let node = rng.random_range(0..4);
            let sign = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
            let row_s = ((0..4).map(|k| draw.delay_deviation_s(node, k).powi(2)).sum::<f64>() / 4.0).sqrt();
            for k in 0..4 {
                let deviation_s = if same_offset { row_s } else { draw.delay_deviation_s(node, k) };
                draw.bias_delay(node, k, 10.0 * sign * deviation_s);
            }
            let fix = locate(&draw.measurements(), &LocateSettings::default()).expect("observable");
            let detected = fix.status() != Status::Nominal;
            let of_node = [
                Fault::SensorDelays { node },
                Fault::ReflectorDelays { node },
                Fault::NodeDelays { node },
                Fault::Bearing { node },
            ];
            let named = fix.excluded.len() == 1 && of_node.contains(&fix.excluded[0].fault);
            (detected, named)
        });
        let (detected, named): (Vec<bool>, Vec<bool>) = outcomes.into_iter().unzip();
        println!(
            "same offset {same_offset}: detected {:.5}, right node {:.5}",
            share(&detected),
            share(&named)
        );
        assert!(share(&detected) >= 0.999);
        assert!(share(&named) >= 0.99);
    }
}

/// A wrong bearing and a wrong survey (row and column together) are named as well.
#[test]
fn bearing_and_survey_faults_are_named() {
    const FIXES: u64 = 5_000;
    let irs = irs(4);
    let outcomes = monte_carlo(71, FIXES, |rng| {
        let target_m = random_target(rng);
        let node = rng.random_range(0..4);
        let clean = Draw::new(&irs, target_m, 50.0, rng);
        let mut turned = clean.clone();
        turned.bearing_rad[node] =
            clean.bearing_rad[node].map(|b| b + 10.0 * clean.variances.bearing_rad2[node].sqrt());
        let mut moved = clean.clone();
        let bias_s = 10.0 * clean.delay_deviation_s(node, node);
        for other in 0..4 {
            moved.bias_delay(node, other, bias_s);
            moved.bias_delay(other, node, bias_s);
        }
        let excluded = |draw: &Draw| {
            let fix = locate(&draw.measurements(), &LocateSettings::default()).expect("observable");
            fix.excluded.iter().map(|exclusion| exclusion.fault).collect::<Vec<_>>()
        };
        (excluded(&turned) == [Fault::Bearing { node }], excluded(&moved) == [Fault::NodeDelays { node }])
    });
    let (bearing, survey): (Vec<bool>, Vec<bool>) = outcomes.into_iter().unzip();
    println!("bearing named {:.4}, survey named {:.4}", share(&bearing), share(&survey));
    assert!(share(&bearing) >= 0.99 && share(&survey) >= 0.99);
}

/// A bearing that is off by anything up to half a turn pulls the fix far away; it is named all the
/// same, and costs what its absence costs.
#[test]
fn a_wild_bearing_is_named() {
    const FIXES: u64 = 5_000;
    for count in [3, 4, 8] {
        let irs = irs(count);
        let outcomes = monte_carlo(71, FIXES, |rng| {
            let target_m = random_target(rng);
            let node = rng.random_range(0..count);
            let mut draw = Draw::new(&irs, target_m, 50.0, rng);
            let sign = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
            draw.bearing_rad[node] = draw.bearing_rad[node].map(|b| b + sign * rng.random_range(0.05..3.1));
            let fix = locate(&draw.measurements(), &LocateSettings::default()).expect("observable");
            draw.bearing_rad[node] = None;
            let named = fix.excluded.len() == 1 && fix.excluded[0].fault == Fault::Bearing { node };
            (named, (fix.position_m() - target_m).norm_squared(), draw.bound_m2().trace())
        });
        let named = outcomes.iter().filter(|o| o.0).count() as f64 / FIXES as f64;
        let gap_db = db_from_ratio(
            outcomes.iter().map(|o| o.1).sum::<f64>() / outcomes.iter().map(|o| o.2).sum::<f64>(),
        );
        println!("K = {count}: wild bearing named {named:.4}, {gap_db:.2} dB from the bound without it");
        assert!(named >= 0.99 && gap_db < 0.3);
    }
}

/// Errors of 6 to 100 m in 2 % of the paths, independently.
#[test]
fn gross_errors_cost_little() {
    const FIXES: u64 = 20_000;
    for (count, power_dbm) in [(3, 50.0), (3, 60.0), (4, 50.0), (8, 50.0)] {
        let irs = irs(count);
        let outcomes = monte_carlo(73, FIXES, |rng| {
            let target_m = random_target(rng);
            let mut draw = Draw::new(&irs, target_m, power_dbm, rng);
            let bound_m2 = draw.bound_m2().trace();
            for path in 0..count * count {
                if rng.random_bool(0.02) {
                    let sign = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
                    draw.bias_delay(
                        path / count,
                        path % count,
                        sign * rng.random_range(6.0..100.0) / SPEED_OF_LIGHT_M_S,
                    );
                }
            }
            let measurements = draw.measurements();
            let fix = locate(&measurements, &LocateSettings::default()).expect("observable");
            let trusting =
                estimate_by_scheme(LocatorScheme::MaximumLikelihood, &measurements).expect("finite");
            (bound_m2, (fix.position_m() - target_m).norm_squared(), (trusting - target_m).norm_squared())
        });
        let bound: f64 = outcomes.iter().map(|o| o.0).sum();
        let cost_db = db_from_ratio(outcomes.iter().map(|o| o.1).sum::<f64>() / bound);
        let trusting_db = db_from_ratio(outcomes.iter().map(|o| o.2).sum::<f64>() / bound);
        let worst_m = outcomes.iter().map(|o| o.1).fold(0.0, f64::max).sqrt();
        println!(
            "K = {count}, {power_dbm} dBm: gross errors cost {cost_db:.2} dB (without exclusion {trusting_db:.1} dB), worst error {worst_m:.2} m"
        );
        assert!(cost_db <= 0.5, "K = {count}: {cost_db} dB");
    }
}
