//! Whether one part of a claim holds, by the whole 95 % interval of what was measured.

use crate::figures::statistics::Estimate;

/// How one part of a claim comes out. Ordered: of several that are all needed, the least counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The interval lies wholly outside the range.
    Fails,
    /// The interval holds an end of the range: the trials do not tell.
    Open,
    /// The interval lies wholly inside the range.
    Holds,
}

impl Part {
    /// Between `least` and `most`.
    pub fn inside(estimate: Estimate, least: f64, most: f64) -> Self {
        if estimate.low >= least && estimate.high <= most {
            Self::Holds
        } else if estimate.low > most || estimate.high < least {
            Self::Fails
        } else {
            Self::Open
        }
    }

    /// At least `limit`.
    pub fn above(estimate: Estimate, limit: f64) -> Self {
        Self::inside(estimate, limit, f64::INFINITY)
    }

    /// At most `limit`.
    pub fn below(estimate: Estimate, limit: f64) -> Self {
        Self::inside(estimate, f64::NEG_INFINITY, limit)
    }

    /// The first is the smaller one: their intervals do not overlap.
    pub fn less(smaller: Estimate, larger: Estimate) -> Self {
        Self::below(smaller.minus(larger), 0.0)
    }

    /// All are needed.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().min().unwrap_or(Self::Holds)
    }

    /// The part that says the opposite.
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
        assert_eq!(Part::inside(estimate(3.2, 4.9), 3.0, 5.0), Part::Holds);
        assert_eq!(Part::inside(estimate(4.2, 5.1), 3.0, 5.0), Part::Open);
        assert_eq!(Part::inside(estimate(2.0, 6.0), 3.0, 5.0), Part::Open);
        assert_eq!(Part::inside(estimate(7.7, 8.5), 3.0, 5.0), Part::Fails);
        assert_eq!(Part::above(estimate(9.9, 10.1), 10.0), Part::Open);
        assert_eq!(Part::less(estimate(1.0, 2.0), estimate(2.5, 3.0)), Part::Holds);
        assert_eq!(Part::less(estimate(1.0, 2.0), estimate(1.9, 3.0)), Part::Open);
        assert_eq!(Part::less(estimate(f64::NAN, f64::NAN), estimate(1.0, 1.0)), Part::Open);
    }

    #[test]
    fn of_parts_that_are_all_needed_the_least_counts() {
        assert_eq!(Part::all([Part::Holds, Part::Open]), Part::Open);
        assert_eq!(Part::all([Part::Holds, Part::Open, Part::Fails]), Part::Fails);
        assert_eq!(Part::Fails.negated(), Part::Holds);
    }
}
