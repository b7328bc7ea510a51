//! Means, ratios and shares with 95 % intervals.
//!
//! Means and ratios of means: percentile bootstrap over the trials. Squared errors are far from Gaussian if some are
//! gross; the bootstrap assumes no distribution and keeps a mean of squares positive. Quantities that are compared within
//! a trial (estimator and bound, two estimators) are resampled together, which gives the interval of the paired
//! comparison. Shares: Wilson's interval, which is valid at zero hits as well.
//!
//! Sums run in trial order and resamples have a fixed seed: the same trials give the same bits.

use model::random::{Purpose, stream};
use model::units::db_from_ratio;
use rand::RngExt;

const RESAMPLES: usize = 1000;
/// Two-sided 95 % point of the normal distribution.
const NORMAL_95: f64 = 1.959_963_984_540_054;
/// Seed of the resampling; any fixed value is suitable.
const RESAMPLING_SEED: u64 = 0x0068_796c_6f63;

/// A value with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// A value without uncertainty.
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Value and interval mapped by an increasing function.
    pub fn map(self, increasing: impl Fn(f64) -> f64) -> Self {
        Self { value: increasing(self.value), low: increasing(self.low), high: increasing(self.high) }
    }

    /// The difference; its interval covers all differences of the two intervals.
    pub fn minus(self, other: Self) -> Self {
        Self { value: self.value - other.value, low: self.low - other.high, high: self.high - other.low }
    }
}

/// Resamples of `trials` trials, drawn once for all quantities of a point.
#[derive(Debug)]
pub struct Resampler {
    trials: usize,
    chosen: Vec<u32>,
}

impl Resampler {
    pub fn new(trials: usize) -> Self {
        let mut draw = stream(RESAMPLING_SEED, Purpose::Study, [trials as u64, RESAMPLES as u64]);
        let last = trials.max(1) as u32;
        let chosen = (0..RESAMPLES * trials).map(|_| draw.random_range(0..last)).collect();
        Self { trials, chosen }
    }

    /// A statistic of the trials, which are given by index.
    pub fn interval(&self, statistic: impl Fn(&mut dyn Iterator<Item = usize>) -> f64) -> Estimate {
        let value = statistic(&mut (0..self.trials));
        let mut resampled: Vec<f64> = self
            .chosen
            .chunks_exact(self.trials.max(1))
            .map(|chosen| statistic(&mut chosen.iter().map(|&i| i as usize)))
            .collect();
        resampled.sort_by(f64::total_cmp);
        let at = |share: f64| resampled.get((share * (RESAMPLES - 1) as f64).round() as usize).copied();
        // A heavily skewed percentile interval may not contain the value.
        let low = at(0.025).unwrap_or(value).min(value);
        let high = at(0.975).unwrap_or(value).max(value);
        Estimate { value, low, high }
    }

    pub fn mean(&self, samples: &[f64]) -> Estimate {
        self.interval(|chosen| chosen.map(|i| samples[i]).sum::<f64>() / self.trials as f64)
    }

    /// Ratio of two means of the same trials, in dB.
    pub fn ratio_db(&self, numerators: &[f64], denominators: &[f64]) -> Estimate {
        self.interval(|chosen| {
            let (n, d) = chosen.fold((0.0, 0.0), |(n, d), i| (n + numerators[i], d + denominators[i]));
            db_from_ratio(n / d)
        })
    }

    pub fn median(&self, samples: &[f64]) -> Estimate {
        self.interval(|chosen| middle(chosen.map(|i| samples[i]).collect()))
    }

    /// Ratio of two medians of the same trials, in dB.
    pub fn median_ratio_db(&self, numerators: &[f64], denominators: &[f64]) -> Estimate {
        self.interval(|chosen| {
            let (n, d) = chosen.map(|i| (numerators[i], denominators[i])).unzip();
            db_from_ratio(middle(n) / middle(d))
        })
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

/// A share of `draws`, by Wilson's score interval.
pub fn share(hits: f64, draws: f64) -> Estimate {
    let p = hits / draws;
    let z2 = NORMAL_95 * NORMAL_95;
    let centre = (p + z2 / (2.0 * draws)) / (1.0 + z2 / draws);
    let half = NORMAL_95 / (1.0 + z2 / draws) * (p * (1.0 - p) / draws + z2 / (4.0 * draws * draws)).sqrt();
    Estimate { value: p, low: (centre - half).max(0.0).min(p), high: (centre + half).min(1.0).max(p) }
}

/// Slope of `y` over `x` by least squares, from points with independent errors of the given intervals.
pub fn slope(points: &[(f64, Estimate)]) -> Option<Estimate> {
    let n = points.len() as f64;
    let mean = points.iter().map(|(x, _)| x).sum::<f64>() / n;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean).powi(2)).sum();
    if points.len() < 2 || spread == 0.0 || points.iter().any(|(_, y)| !y.value.is_finite()) {
        return None;
    }
    let value = points.iter().map(|(x, y)| (x - mean) * y.value).sum::<f64>() / spread;
    let deviation = |y: &Estimate| (y.high - y.low) / (2.0 * NORMAL_95);
    let variance = points.iter().map(|(x, y)| ((x - mean) * deviation(y)).powi(2)).sum::<f64>();
    let half = NORMAL_95 * variance.sqrt() / spread;
    Some(Estimate { value, low: value - half, high: value + half })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_distr::StandardNormal;

    #[test]
    fn wilson_matches_its_table() {
        // 0 of 20 and 10 of 20, to three places.
        let none = share(0.0, 20.0);
        assert!((none.high - 0.161).abs() < 1e-3 && none.low == 0.0, "{none:?}");
        let half = share(10.0, 20.0);
        assert!((half.low - 0.299).abs() < 1e-3 && (half.high - 0.701).abs() < 1e-3, "{half:?}");
    }

    #[test]
    fn intervals_hold_the_mean_about_as_often_as_they_say() {
        // 200 intervals over 100 squared normals each. Percentile intervals of such skewed draws hold the mean in 93 %
        // of cases; three binomial deviations either way are 176 to 196.
        let trials = 100;
        let resampler = Resampler::new(trials);
        let held = (0..200)
            .filter(|&run| {
                let mut draw = stream(3, Purpose::Study, [run, 0]);
                let samples: Vec<f64> =
                    (0..trials).map(|_| draw.sample::<f64, _>(StandardNormal).powi(2)).collect();
                let mean = resampler.mean(&samples);
                mean.low <= 1.0 && 1.0 <= mean.high
            })
            .count();
        assert!((176..=196).contains(&held), "{held}");
    }

    #[test]
    fn paired_ratios_are_exact_where_the_ratio_is() {
        let resampler = Resampler::new(50);
        let low: Vec<f64> = (1..=50).map(f64::from).collect();
        let high: Vec<f64> = low.iter().map(|v| v * 10.0).collect();
        let ratio = resampler.ratio_db(&high, &low);
        assert!((ratio.value - 10.0).abs() < 1e-9 && (ratio.high - ratio.low) < 1e-9);
        assert!((resampler.median(&low).value - 25.5).abs() < 1e-12);
        assert!((resampler.median_ratio_db(&high, &low).value - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_line_has_its_slope() {
        let points: Vec<(f64, Estimate)> = (0..5)
            .map(|i| {
                (f64::from(i), Estimate { value: 3.0, low: 2.9, high: 3.1 }.map(|v| v - 2.0 * f64::from(i)))
            })
            .collect();
        let slope = slope(&points).unwrap();
        // Half width: 0.1 / sqrt(sum of (x - mean)^2 = 10).
        assert!(
            (slope.value + 2.0).abs() < 1e-12
                && (slope.high - slope.value - 0.1 / 10f64.sqrt()).abs() < 1e-12
        );
    }
}
