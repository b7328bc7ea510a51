//! Stage 1: segment delays from cascade delays.
//!
//! Weighted least squares of `tau_lk = tau_l + tau_k` (the paper's first equation of
//! Section V), with two departures. Any subset of the paths may be used: segments that the subset
//! does not determine are left out, which does not change the others, as they share no path. And
//! the covariance is computed: it is not diagonal, as each cascade delay depends on two segments.
//!
//! Cost: `O(K^2)` to gather the normal matrix, `O(K^3 / 6)` to factor it.

use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{DMatrix, DVector};

use super::likelihood::Likelihood;
use super::observability::SegmentGraph;

/// Delays IRS-target, for the IRSs where the cascade delays determine them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SegmentDelays {
    /// Indices of the IRSs, ascending; the other fields have this order.
    pub nodes: Vec<usize>,
    /// Delay between IRS and target.
    pub delay_s: Vec<f64>,
    /// Covariance of the errors of `delay_s`.
    pub covariance_s2: DMatrix<f64>,
    /// Inverse covariance of the segment ranges, 1/m^2: the normal matrix.
    pub(super) information_m2: DMatrix<f64>,
}

/// Stage 1 from all cascade delays in use.
pub(super) fn stage_one(likelihood: &Likelihood) -> SegmentDelays {
    let nodes = SegmentGraph::new(likelihood).determined;
    let count = nodes.len();
    let mut information_m2 = DMatrix::zeros(count, count);
    let mut sums = DVector::zeros(count);
    for (i, &l) in nodes.iter().enumerate() {
        for (j, &k) in nodes.iter().enumerate() {
            let path = likelihood.path(l, k);
            let (weight, range_m) = (likelihood.range_weight[path], likelihood.range_m[path]);
            if weight > 0.0 {
                information_m2[(i, i)] += weight;
                information_m2[(j, j)] += weight;
                information_m2[(i, j)] += weight;
                information_m2[(j, i)] += weight;
                sums[i] += weight * range_m;
                sums[j] += weight * range_m;
            }
        }
    }
    let Some(factor) = information_m2.clone().cholesky() else {
        return SegmentDelays::default();
    };
    let range_m = factor.solve(&sums);
    SegmentDelays {
        nodes,
        delay_s: range_m.iter().map(|range_m| range_m / SPEED_OF_LIGHT_M_S).collect(),
        covariance_s2: factor.inverse() / (SPEED_OF_LIGHT_M_S * SPEED_OF_LIGHT_M_S),
        information_m2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::measurements::{CascadeDelay, Measurements};
    use model::geometry::PlanePoint;

    fn with_paths(paths: &[(usize, usize, f64)]) -> SegmentDelays {
        let mut delays = vec![None; 9];
        for &(l, k, delay_s) in paths {
            delays[l * 3 + k] = Some(CascadeDelay { delay_s, variance_s2: 1e-18 });
        }
        let measurements = Measurements::new(vec![PlanePoint::zeros(); 3], delays, vec![None; 3]).unwrap();
        stage_one(&Likelihood::new(&measurements))
    }

    #[test]
    fn a_triangle_without_loops_is_enough() {
        let segments = with_paths(&[(0, 1, 3e-7), (1, 2, 5e-7), (2, 0, 4e-7)]);
        for (node, expected) in [1e-7, 2e-7, 3e-7].into_iter().enumerate() {
            assert!((segments.delay_s[node] - expected).abs() < 1e-18);
            // Half the sum of three delays of equal variance, signs (+, +, -).
            assert!((segments.covariance_s2[(node, node)] / 0.75e-18 - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_is_not_determined_is_left_out() {
        let segments = with_paths(&[(0, 0, 2e-7), (1, 2, 5e-7), (2, 1, 5e-7)]);
        assert_eq!(segments.nodes, vec![0]);
        assert!((segments.delay_s[0] - 1e-7).abs() < 1e-18);
    }
}
