//! A quantile of a sample with its 95 % interval from order statistics, which assumes nothing about the distribution.

use crate::figures::statistics::Estimate;

/// Probability left out at each end of the interval.
const TAIL: f64 = 0.025;

/// The quantile at `share` of the samples. An end of the interval is infinite where there are too few samples for it.
///
/// The number of samples below the true quantile is binomial, B; `X_(r) <= q < X_(s)` with at least 95 % if
/// `P(B < r) <= 2.5 %` and `P(B >= s) <= 2.5 %`.
pub fn quantile(samples: &[f64], share: f64) -> Option<Estimate> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let value = *sorted.get(((share * count as f64).ceil() as usize).clamp(1, count.max(1)) - 1)?;
    let (mut log_term, mut below) = (count as f64 * (1.0 - share).ln(), 0.0);
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    for (i, sample) in sorted.iter().enumerate() {
        // P(B <= i); the sample is X_(i + 1).
        below += log_term.exp();
        if below <= TAIL {
            low = *sample;
        }
        if below >= 1.0 - TAIL {
            high = *sample;
            break;
        }
        log_term += ((count - i) as f64 / (i + 1) as f64 * share / (1.0 - share)).ln();
    }
    Some(Estimate { value, low: low.min(value), high: high.max(value) })
}

#[cfg(test)]
mod tests {
    use model::random::{Purpose, stream};
    use rand::RngExt;

    use super::*;

    /// n = 100 and the median: order statistics 40 and 61 (tables of the sign test); n = 400, 95 %: 371 or 372, and 389.
    #[test]
    fn ranks_match_tables() {
        let ranks = |count: u32, share: f64| {
            let found = quantile(&(1..=count).map(f64::from).collect::<Vec<_>>(), share).unwrap();
            (found.low, found.value, found.high)
        };
        assert_eq!(ranks(100, 0.5), (40.0, 50.0, 61.0));
        let (low, value, high) = ranks(400, 0.95);
        assert!(
            (370.0..=372.0).contains(&low) && value == 380.0 && (388.0..=390.0).contains(&high),
            "{low} {high}"
        );
        // Fewer than 72 samples have no upper end for the 95 % quantile.
        assert!(ranks(71, 0.95).2.is_infinite() && ranks(72, 0.95).2 == 72.0);
        assert_eq!(quantile(&[], 0.95), None);
    }

    /// 1000 samples of 100 uniform draws: the interval holds the true quantile in at least 95 % of cases, less three deviations.
    #[test]
    fn intervals_hold_the_quantile() {
        let held = (0..1000)
            .filter(|&run| {
                let mut draws = stream(5, Purpose::Study, [run, 1]);
                let samples: Vec<f64> = (0..100).map(|_| draws.random()).collect();
                let found = quantile(&samples, 0.9).unwrap();
                found.low <= 0.9 && 0.9 <= found.high
            })
            .count();
        assert!((930..=990).contains(&held), "{held}");
    }
}
