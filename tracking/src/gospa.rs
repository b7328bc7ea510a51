//! Distance between the true set of targets and an estimated one: GOSPA with alpha = 2.
//!
//! Rahmathullah, Garcia-Fernandez and Svensson, Generalized optimal sub-pattern assignment metric, FUSION 2017, eq. 7: with
//! order p, cut-off c, and assignments gamma between truth X and estimates Y,
//!
//! `d^p = min over gamma of sum_gamma d(x, y)^p + c^p / 2 (|X| + |Y| - 2 |gamma|)`.
//!
//! The first term is the error of localisation, the second counts missed targets and false estimates, c^p / 2 each. Only
//! alpha = 2 gives this decomposition. A pair at the cut-off or beyond costs as much as a missed and a false one, so that the
//! optimum is that of a rectangular assignment with costs min(d, c)^p. Cost: that of the assignment, n^2 m.

use nalgebra::{DMatrix, DVector};

use crate::assignment::assign;
use crate::error::{TrackingError, require};
use crate::law::check_mean;

/// Members of a set at most.
pub const MAX_SET: usize = 2_000;

/// Order and cut-off of the metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GospaSettings {
    /// Order p, at least 1. Default: 2.
    pub order: f64,
    /// Cut-off c. Default: 2 m.
    pub cutoff_m: f64,
}

impl Default for GospaSettings {
    fn default() -> Self {
        Self { order: 2.0, cutoff_m: 2.0 }
    }
}

/// The distance with its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Gospa {
    /// The distance in metres: the p-th root of the sum of the parts.
    pub total: f64,
    /// Sum of the p-th powers of the distances of assigned pairs.
    pub localisation: f64,
    /// c^p / 2 for every target without an estimate.
    pub missed: f64,
    /// c^p / 2 for every estimate without a target.
    pub false_: f64,
    /// For every target its estimate, if it has one within the cut-off.
    pub assignments: Vec<Option<usize>>,
}

impl Gospa {
    /// Targets without an estimate.
    pub fn missed_count(&self) -> usize {
        self.assignments.iter().filter(|estimate| estimate.is_none()).count()
    }
}

/// GOSPA between the positions of all targets and all estimates.
pub fn gospa(
    truth_m: &[DVector<f64>],
    estimates_m: &[DVector<f64>],
    settings: &GospaSettings,
) -> Result<Gospa, TrackingError> {
    let GospaSettings { order, cutoff_m } = *settings;
    require((1.0..=10.0).contains(&order), "order", order, "between 1 and 10")?;
    require((1e-9..=1e9).contains(&cutoff_m), "cutoff_m", cutoff_m, "between 1e-9 and 1e9")?;
    check_set(truth_m, truth_m, "target")?;
    check_set(estimates_m, if truth_m.is_empty() { estimates_m } else { truth_m }, "estimate")?;

    let cost = |i: usize, j: usize| (&truth_m[i] - &estimates_m[j]).norm().min(cutoff_m).powf(order);
    let mut assignments = vec![None; truth_m.len()];
    if truth_m.len() <= estimates_m.len() {
        let costs = DMatrix::from_fn(truth_m.len(), estimates_m.len(), cost);
        for (target, estimate) in assign(&costs).into_iter().enumerate() {
            assignments[target] = Some(estimate);
        }
    } else {
        let costs = DMatrix::from_fn(estimates_m.len(), truth_m.len(), |j, i| cost(i, j));
        for (estimate, target) in assign(&costs).into_iter().enumerate() {
            assignments[target] = Some(estimate);
        }
    }
    let mut localisation = 0.0;
    for (target, assigned) in assignments.iter_mut().enumerate() {
        *assigned =
            assigned.filter(|&estimate| (&truth_m[target] - &estimates_m[estimate]).norm() < cutoff_m);
        localisation += assigned.map_or(0.0, |estimate| cost(target, estimate));
    }
    let pairs = assignments.iter().flatten().count();
    let penalty = cutoff_m.powf(order) / 2.0;
    let missed = penalty * (truth_m.len() - pairs) as f64;
    let false_ = penalty * (estimates_m.len() - pairs) as f64;
    let total = (localisation + missed + false_).powf(1.0 / order);
    Ok(Gospa { total, localisation, missed, false_, assignments })
}

/// Refuses sets that are too large, of another dimension than `like`, or not finite.
fn check_set(set: &[DVector<f64>], like: &[DVector<f64>], what: &'static str) -> Result<(), TrackingError> {
    if set.len() > MAX_SET {
        return Err(TrackingError::TooMany { what: "members of a set", count: set.len(), limit: MAX_SET });
    }
    let expected = like.first().map_or(0, DVector::len);
    for member in set {
        if member.len() != expected {
            return Err(TrackingError::Dimension {
                what,
                found: member.len(),
                expected: expected.to_string(),
            });
        }
        check_mean(what, member)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<DVector<f64>> {
        values.chunks(2).map(DVector::from_column_slice).collect()
    }

    /// The definition: all assignments, also those that leave out more than they must.
    fn brute_force(
        truth: &[DVector<f64>],
        estimates: &[DVector<f64>],
        taken: &mut Vec<bool>,
        p: f64,
        c: f64,
    ) -> f64 {
        let penalty = c.powf(p) / 2.0;
        let Some((first, rest)) = truth.split_first() else {
            return penalty * taken.iter().filter(|taken| !**taken).count() as f64;
        };
        let mut least = penalty + brute_force(rest, estimates, taken, p, c);
        for j in 0..estimates.len() {
            if !taken[j] {
                taken[j] = true;
                let own = (first - &estimates[j]).norm().powf(p);
                least = least.min(own + brute_force(rest, estimates, taken, p, c));
                taken[j] = false;
            }
        }
        least
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(500))]
        #[test]
        fn it_is_the_minimum_over_all_assignments(
            truth in proptest::collection::vec(-3.0_f64..3.0, 0..10),
            estimates in proptest::collection::vec(-3.0_f64..3.0, 0..10),
            order in proptest::sample::select(&[1.0, 1.5, 2.0, 3.0][..]),
            cutoff_m in 0.1_f64..5.0,
        ) {
            let truth = points(&truth[..truth.len() / 2 * 2]);
            let estimates = points(&estimates[..estimates.len() / 2 * 2]);
            let settings = GospaSettings { order, cutoff_m };
            let found = gospa(&truth, &estimates, &settings).unwrap();
            let least = brute_force(&truth, &estimates, &mut vec![false; estimates.len()], order, cutoff_m);
            assert!((found.total.powf(order) - least).abs() < 1e-9 * (1.0 + least), "{found:?} {least}");
            let parts = found.localisation + found.missed + found.false_;
            assert!((found.total.powf(order) - parts).abs() < 1e-9 * (1.0 + parts));
            // A metric is symmetric; missed and false change places.
            let back = gospa(&estimates, &truth, &settings).unwrap();
            assert!((found.total - back.total).abs() < 1e-12 * (1.0 + back.total));
            assert!((found.missed - back.false_).abs() < 1e-9 * (1.0 + back.false_));
        }
    }

    #[test]
    fn sets_without_members_have_a_distance() {
        let settings = GospaSettings::default();
        assert_eq!(gospa(&[], &[], &settings).unwrap().total, 0.0);
        let found = gospa(&points(&[0.0, 0.0, 5.0, 5.0]), &[], &settings).unwrap();
        // Two missed targets at c^2 / 2 = 2 square metres each.
        assert_eq!((found.missed, found.false_, found.total), (4.0, 0.0, 2.0));
        let found = gospa(&[], &points(&[0.0, 0.0]), &settings).unwrap();
        assert_eq!((found.missed, found.false_), (0.0, 2.0));
    }

    #[test]
    fn large_sets_are_assigned() {
        // A shift by 0.1 m along one axis; the optimum is the shift, because rows are 1 m apart.
        let truth: Vec<_> = (0..300).map(|i| DVector::from_vec(vec![f64::from(i), 0.0])).collect();
        let estimates: Vec<_> =
            (0..300).rev().map(|i| DVector::from_vec(vec![f64::from(i) + 0.1, 0.0])).collect();
        let found = gospa(&truth, &estimates, &GospaSettings::default()).unwrap();
        assert!((found.localisation - 3.0).abs() < 1e-9, "{}", found.localisation);
        assert!(found.assignments.iter().enumerate().all(|(i, j)| *j == Some(299 - i)));
    }
}
