//! The chance that a target is detected by the direct method.
//!
//! At the target 2 J is the sum over the paths of noncentral chi-square variables with two degrees of freedom each and a
//! noncentrality of twice the SNR. The maximum over positions is a little higher than the value at the target, so that these
//! chances err on the low side.

use estimation::location::chi_square_survival;
use model::random::{Purpose, stream};
use rand::RngExt;
use rand_distr::Exp1;

/// Draws of fluctuating cross-sections per position.
const DRAWS: usize = 400;
/// Seed of these draws; any fixed value is suitable.
const DRAW_SEED: u64 = 0x0076_6572;
/// Beyond this many standard deviations a chance is taken as zero or one.
const CERTAIN: f64 = 9.0;

/// Chance that J exceeds `threshold` with constant SNRs that sum up to `sum`, over `paths` paths: a Poisson mixture of central
/// tails.
pub fn constant(threshold: f64, paths: usize, sum: f64) -> f64 {
    let (mean, variance) = (paths as f64 + sum, paths as f64 + 2.0 * sum);
    if (mean - threshold).abs() > CERTAIN * variance.sqrt() {
        return if mean > threshold { 1.0 } else { 0.0 };
    }
    let last = (sum + CERTAIN * (sum.sqrt() + 3.0)) as usize;
    let (mut log_weight, mut chance) = (-sum, 0.0);
    for j in 0..=last {
        if log_weight > -40.0 {
            chance += log_weight.exp() * chi_square_survival(2.0 * threshold, 2 * (paths + j));
        }
        log_weight += (sum / (j + 1) as f64).ln();
    }
    chance.min(1.0)
}

/// Chance that J exceeds `threshold` with exponentially distributed SNRs of these means (Swerling I), by seeded draws.
pub fn fluctuating(threshold: f64, means: &[f64]) -> f64 {
    let mut draws = stream(DRAW_SEED, Purpose::Study, [means.len() as u64, 0]);
    let mut drawn = || means.iter().map(|mean| (1.0 + mean) * draws.sample::<f64, _>(Exp1)).sum::<f64>();
    (0..DRAWS).filter(|_| drawn() > threshold).count() as f64 / DRAWS as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_distr::StandardNormal;

    /// 40 000 draws of the variable itself: the deviation of a share is at most 0.0025.
    #[test]
    fn constant_echoes_match_draws() {
        for (threshold, paths, snr) in [(18.0, 1, 14.0), (30.0, 9, 2.0), (30.0, 9, 3.0), (60.0, 16, 2.0)] {
            let mut draws = stream(1, Purpose::Study, [paths as u64, 7]);
            let mut normal = || draws.sample::<f64, _>(StandardNormal);
            let mut value = || {
                (0..paths)
                    .map(|_| ((normal() + f64::sqrt(2.0 * snr)).powi(2) + normal().powi(2)) / 2.0)
                    .sum::<f64>()
            };
            let share = (0..40_000).filter(|_| value() > threshold).count() as f64 / 40_000.0;
            let chance = constant(threshold, paths, snr * paths as f64);
            assert!((chance - share).abs() < 0.0075, "{threshold}, {paths}, {snr}: {chance}, {share}");
        }
        assert_eq!((constant(30.0, 9, 1e6), constant(1e5, 9, 10.0)), (1.0, 0.0));
        assert_eq!(constant(12.0, 9, 0.0), chi_square_survival(24.0, 18));
    }

    /// One path: an exponential variable of mean `1 + SNR`.
    #[test]
    fn fluctuating_echoes_have_their_tail() {
        let (threshold, mean) = (10.0, 9.0);
        assert!((fluctuating(threshold, &[mean]) - f64::exp(-1.0)).abs() < 0.075);
        assert!(fluctuating(threshold, &[mean; 4]) > 0.9);
    }
}
