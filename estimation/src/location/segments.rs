//! Stage 1: segment delays from cascade delays.
//!
//! Weighted least squares of `tau_lk = tau_l + tau_k` (the paper's first equation of
//! Section V), with two departures. Any subset of the paths will do: segments that the subset
//! does not determine are left out, and since they share no path with the others this
//! changes nothing for those. And the covariance comes along: it is not diagonal, as each cascade
//! delay feeds two segments.
//!
//! Cost: `O(K^2)` to gather the normal matrix, `O(K^3 / 6)` to factor it.

use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{DMatrix, DVector};

use super::likelihood::Likelihood;
use super::measurements::Measurements;
use super::observability::SegmentGraph;

/// Delays IRS-target, for the IRSs where the cascade delays determine them.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentDelays {
    /// The IRSs, ascending; the order of all that follows.
    pub nodes: Vec<usize>,
    /// Segment delays.
    pub delay_s: Vec<f64>,
    /// Covariance of their errors.
    pub covariance_s2: DMatrix<f64>,
    /// Weighted sum of squared residuals of the cascade delays used.
    pub cost: f64,
    /// Degrees of freedom of `cost` where the errors are Gaussian.
    pub redundancy: usize,
    /// Inverse covariance of the segment ranges, 1/m^2: the normal matrix.
    pub(super) information_m2: DMatrix<f64>,
}

impl SegmentDelays {
    /// The delay between `node` and the target, where it is determined.
    pub fn delay_s(&self, node: usize) -> Option<f64> {
        self.nodes.binary_search(&node).ok().map(|index| self.delay_s[index])
    }
}

/// Stage 1 from every cascade delay there is.
pub fn segment_delays(measurements: &Measurements) -> SegmentDelays {
    stage_one(&Likelihood::new(measurements))
}

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
        return SegmentDelays::none();
    };
    let range_m = factor.solve(&sums);
    let (cost, paths) = residuals(likelihood, &nodes, &range_m);
    SegmentDelays {
        nodes,
        delay_s: range_m.iter().map(|range_m| range_m / SPEED_OF_LIGHT_M_S).collect(),
        covariance_s2: factor.inverse() / (SPEED_OF_LIGHT_M_S * SPEED_OF_LIGHT_M_S),
        cost,
        redundancy: paths - count,
        information_m2,
    }
}

/// Weighted sum of squared residuals, and the number of paths in it.
fn residuals(likelihood: &Likelihood, nodes: &[usize], segment_m: &DVector<f64>) -> (f64, usize) {
    let mut cost = 0.0;
    let mut paths = 0;
    for (i, &l) in nodes.iter().enumerate() {
        for (j, &k) in nodes.iter().enumerate() {
            let path = likelihood.path(l, k);
            let residual_m = likelihood.range_m[path] - segment_m[i] - segment_m[j];
            cost += likelihood.range_weight[path] * residual_m * residual_m;
            paths += usize::from(likelihood.range_weight[path] > 0.0);
        }
    }
    (cost, paths)
}

impl SegmentDelays {
    fn none() -> Self {
        Self {
            nodes: Vec::new(),
            delay_s: Vec::new(),
            covariance_s2: DMatrix::zeros(0, 0),
            cost: 0.0,
            redundancy: 0,
            information_m2: DMatrix::zeros(0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::measurements::CascadeDelay;
    use model::geometry::Point;

    fn with_paths(paths: &[(usize, usize, f64)]) -> SegmentDelays {
        let mut delays = vec![None; 9];
        for &(l, k, delay_s) in paths {
            delays[l * 3 + k] = Some(CascadeDelay { delay_s, variance_s2: 1e-18 });
        }
        segment_delays(&Measurements::new(vec![Point::zeros(); 3], delays, vec![None; 3]).unwrap())
    }

    #[test]
    fn a_triangle_without_loops_is_enough() {
        let segments = with_paths(&[(0, 1, 3e-7), (1, 2, 5e-7), (2, 0, 4e-7)]);
        for (node, expected) in [1e-7, 2e-7, 3e-7].into_iter().enumerate() {
            assert!((segments.delay_s(node).unwrap() - expected).abs() < 1e-18);
            // Half the sum of three delays of equal variance, signs (+, +, -).
            assert!((segments.covariance_s2[(node, node)] / 0.75e-18 - 1.0).abs() < 1e-9);
        }
        assert_eq!(segments.redundancy, 0);
    }

    #[test]
    fn what_is_not_determined_is_left_out() {
        let segments = with_paths(&[(0, 0, 2e-7), (1, 2, 5e-7), (2, 1, 5e-7)]);
        assert_eq!(segments.nodes, vec![0]);
        assert_eq!(segments.delay_s(1), None);
        assert!((segments.delay_s(0).unwrap() - 1e-7).abs() < 1e-18);
    }

    #[test]
    fn cost_is_the_weighted_residual() {
        // Two equal-variance readings of one sum, 2 ns apart: residuals of 1 sigma each.
        let segments = with_paths(&[(0, 0, 2e-7), (0, 1, 3e-7), (1, 0, 3.02e-7)]);
        assert_eq!(segments.redundancy, 1);
        assert!((segments.cost - 2.0).abs() < 1e-4, "{}", segments.cost);
    }
}
