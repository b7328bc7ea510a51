//! The protection level holds the error, with and without a fault.

use crate::scene::*;
use hyloc_estimation::location::*;
use model::units::SPEED_OF_LIGHT_M_S;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

const FIXES: u64 = 100_000;

/// Adds one fault of a random kind, its size log-uniform between 1 and 300 deviations
/// (about 100 m, 1 rad).
fn add_fault(draw: &mut Draw, rng: &mut ChaCha8Rng) {
    let count = draw.irs.len();
    let size = 10f64.powf(rng.random_range(0.0..2.5)) * if rng.random_bool(0.5) { 1.0 } else { -1.0 };
    let (node, other) = (rng.random_range(0..count), rng.random_range(0..count));
    let bias_s = size * draw.delay_deviation_s(node, node);
    match rng.random_range(0..5) {
        0 => draw.bias_delay(node, other, size * draw.delay_deviation_s(node, other)),
        1 => (0..count).for_each(|k| draw.bias_delay(node, k, bias_s)),
        2 => (0..count).for_each(|l| draw.bias_delay(l, node, bias_s)),
        3 => (0..count).for_each(|k| {
            draw.bias_delay(node, k, bias_s);
            draw.bias_delay(k, node, bias_s);
        }),
        _ => {
            let bias_rad = size * draw.variances.bearing_rad2[node].sqrt();
            draw.bearing_rad[node] = draw.bearing_rad[node].map(|b| b + bias_rad);
        }
    }
}

struct Outcome {
    /// Share of fixes whose error exceeds the level.
    exceeded: f64,
    /// Share of fixes whose error exceeds what noise alone explains with the same risk.
    exceeded_noise: f64,
    /// Share of fixes without a level.
    unprotected: f64,
    /// Median of the level over the rms bound.
    level: f64,
}

fn run(
    what: &str,
    count: usize,
    power_dbm: f64,
    seed: u64,
    spoil: impl Fn(&mut Draw, &mut ChaCha8Rng) + Sync,
) -> Outcome {
    let irs = irs(count);
    let outcomes = monte_carlo(seed + count as u64 + power_dbm as u64, FIXES, |rng| {
        let target_m = random_target(rng);
        let mut draw = Draw::new(&irs, target_m, power_dbm, rng);
        spoil(&mut draw, rng);
        let fix = locate(&draw.measurements(), &LocateSettings::default()).expect("observable");
        let error_m = (fix.position_m() - target_m).norm();
        let level_m = fix.protection_level_m.unwrap_or(f64::INFINITY);
        let noise_m = (-2.0 * 1e-3f64.ln() * fix.covariance_m2().symmetric_eigenvalues().max()).sqrt();
        (error_m > level_m, error_m > noise_m, level_m / draw.bound_m2().trace().sqrt())
    });
    let share = |hit: fn(&(bool, bool, f64)) -> bool| {
        outcomes.iter().filter(|outcome| hit(outcome)).count() as f64 / FIXES as f64
    };
    let mut levels: Vec<f64> = outcomes.iter().map(|o| o.2).collect();
    levels.sort_by(f64::total_cmp);
    let outcome = Outcome {
        exceeded: share(|o| o.0),
        exceeded_noise: share(|o| o.1),
        unprotected: share(|o| o.2.is_infinite()),
        level: levels[levels.len() / 2],
    };
    println!(
        "K = {count}, {power_dbm} dBm, {what:<16} outside {:.1e} (outside the noise radius {:.1e}), no level {:.1e}, \
         median level {:.1} rms bounds",
        outcome.exceeded, outcome.exceeded_noise, outcome.unprotected, outcome.level
    );
    outcome
}

#[test]
fn protection_level_holds() {
    for (count, power_dbm) in [(3, 50.0), (4, 50.0), (3, 40.0)] {
        let clean = run("no fault", count, power_dbm, 79, |_, _| {});
        let faulty = run("one fault", count, power_dbm, 83, add_fault);
        assert!(clean.exceeded <= 1e-3 && faulty.exceeded <= 1e-3);
        // The faults matter: a radius for the noise alone does not hold.
        assert!(clean.exceeded_noise <= 1e-3 && faulty.exceeded_noise > 2e-3);
        // A level that is never given, or is out of proportion, would hold trivially.
        assert!(clean.unprotected <= 1e-3 && clean.level < 6.0);
        assert!(faulty.unprotected <= 2e-3 && faulty.level < 8.0);
    }
}

/// Two IRSs can see a fault but often not tell which: the level then reaches to the rivals.
#[test]
fn protection_level_holds_with_two_irs() {
    let clean = run("no fault", 2, 50.0, 79, |_, _| {});
    let faulty = run("one fault", 2, 50.0, 83, add_fault);
    assert!(clean.exceeded <= 1e-3 && faulty.exceeded <= 1e-3);
    assert!(faulty.exceeded_noise > 5e-3 && faulty.unprotected < 0.05);
}

#[test]
fn protection_level_holds_with_gross_errors() {
    let gross = run("2 % gross errors", 3, 50.0, 89, |draw, rng| {
        for path in 0..9 {
            if rng.random_bool(0.02) {
                draw.bias_delay(path / 3, path % 3, rng.random_range(-100.0..100.0) / SPEED_OF_LIGHT_M_S);
            }
        }
    });
    assert!(gross.exceeded <= 1e-3 && gross.unprotected <= 1e-3);
}
