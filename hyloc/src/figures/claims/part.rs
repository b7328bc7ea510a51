//! Verdict on one part of a claim, by the whole 95 % interval of the measured quantity.

use crate::figures::statistics::Estimate;

/// Verdict on one part of a claim, ordered so that the verdict on several required parts is their minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartVerdict {
    /// The interval lies outside the range.
    Fails,
    /// The interval contains an end of the range.
    Open,
    /// The interval lies inside the range.
    Holds,
}

impl PartVerdict {
    pub fn inside(estimate: Estimate, least: f64, most: f64) -> Self {
        if estimate.low >= least && estimate.high <= most {
            Self::Holds
        } else if estimate.low > most || estimate.high < least {
            Self::Fails
        } else {
            Self::Open
        }
    }

    pub fn above(estimate: Estimate, limit: f64) -> Self {
        Self::inside(estimate, limit, f64::INFINITY)
    }

    pub fn below(estimate: Estimate, limit: f64) -> Self {
        Self::inside(estimate, f64::NEG_INFINITY, limit)
    }

    /// Whether the first is smaller: the intervals must not overlap.
    pub fn less(smaller: Estimate, larger: Estimate) -> Self {
        Self::below(smaller.minus(larger), 0.0)
    }

    /// The verdict on several required parts.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().min().unwrap_or(Self::Holds)
    }

    /// The verdict on the opposite statement.
    pub fn negated(self) -> Self {
        match self {
            Self::Fails => Self::Holds,
            Self::Open => Self::Open,
            Self::Holds => Self::Fails,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(low: f64, high: f64) -> Estimate {
        Estimate { value: (low + high) / 2.0, low, high }
    }

    #[test]
    fn overlap_is_not_enough() {
        assert_eq!(PartVerdict::inside(estimate(3.2, 4.9), 3.0, 5.0), PartVerdict::Holds);
        assert_eq!(PartVerdict::inside(estimate(4.2, 5.1), 3.0, 5.0), PartVerdict::Open);
        assert_eq!(PartVerdict::inside(estimate(2.0, 6.0), 3.0, 5.0), PartVerdict::Open);
        assert_eq!(PartVerdict::inside(estimate(7.7, 8.5), 3.0, 5.0), PartVerdict::Fails);
        assert_eq!(PartVerdict::above(estimate(9.9, 10.1), 10.0), PartVerdict::Open);
        assert_eq!(PartVerdict::less(estimate(1.0, 2.0), estimate(2.5, 3.0)), PartVerdict::Holds);
        assert_eq!(PartVerdict::less(estimate(1.0, 2.0), estimate(1.9, 3.0)), PartVerdict::Open);
        assert_eq!(PartVerdict::less(estimate(f64::NAN, f64::NAN), estimate(1.0, 1.0)), PartVerdict::Open);
    }

    #[test]
    fn of_parts_that_are_all_needed_the_least_counts() {
        assert_eq!(PartVerdict::all([PartVerdict::Holds, PartVerdict::Open]), PartVerdict::Open);
        assert_eq!(
            PartVerdict::all([PartVerdict::Holds, PartVerdict::Open, PartVerdict::Fails]),
            PartVerdict::Fails
        );
        assert_eq!(PartVerdict::Fails.negated(), PartVerdict::Holds);
    }
}
