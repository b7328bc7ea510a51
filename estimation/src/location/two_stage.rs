//! Stage 2: a linear system in `(x, y, s)`, `s = x^2 + y^2` taken as free.
//!
//! Delay rows `(-2 x_k, -2 y_k, 1) = c^2 tau_k^2 - |p_k|^2` with noise `2 c^2 tau_k eps`, as in
//! the paper, under the full covariance of stage 1. Departures:
//! - Bearing rows are `(sin b, -cos b, 0) = sin b x_k - cos b y_k` with noise `d_k eps`. The paper's
//!   tan rows are singular at 90 degrees, where two of its own three IRSs stand.
//! - The paper's total least squares treats the errors of coefficient and right side as
//!   independent, though they are one and the same angle error. Weights
//!   `1 / (d_k^2 sigma^2)`, with `d_k` from the last fix until it settles, are right: the weights
//!   vary with `d_k` slowly, so a handful of rounds reach 1e-10.
//! - Coordinates are centred on the IRSs and scaled to their spread. The result does not depend
//!   on this (`s` changes by a linear map), but its rounding error does.
//!
//! Cost: `O(K^2)` once for the delay rows, `O(K)` per round.

use model::geometry::PlanePoint;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{Matrix3, Vector3};

use super::likelihood::Likelihood;
use super::segments::SegmentDelays;

const MOST_ROUNDS: usize = 50;
const SETTLED_SHARE: f64 = 1e-11;
/// Segments count as at least this long in the weight of a row.
const SHORTEST_SEGMENT_M: f64 = 0.1;
/// Smallest share of a pivot for which the three unknowns are determined.
const SMALLEST_PIVOT_SHARE: f64 = 1e-10;

/// Result of stage 2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoStage {
    /// First two unknowns, x and y.
    pub position_m: PlanePoint,
    /// Third unknown, s, relative to the origin of coordinates.
    pub square_m2: f64,
    /// Unknowns in normalised coordinates.
    pub(super) unknowns: Vector3<f64>,
    /// Inverse covariance of `unknowns`.
    pub(super) information: Matrix3<f64>,
    pub(super) normalisation: Normalisation,
}

/// Centre and length by which coordinates are shifted and scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Normalisation {
    pub centre_m: PlanePoint,
    pub length_m: f64,
}

impl Normalisation {
    fn around(nodes: &[PlanePoint], reach_m: f64) -> Self {
        let centre_m = nodes.iter().sum::<PlanePoint>() / nodes.len() as f64;
        let spread_m = nodes.iter().map(|p| (p - centre_m).norm()).fold(reach_m, f64::max);
        Self { centre_m, length_m: spread_m.max(1.0) }
    }

    fn scaled(&self, position_m: PlanePoint) -> PlanePoint {
        (position_m - self.centre_m) / self.length_m
    }

    pub fn position_m(&self, scaled: PlanePoint) -> PlanePoint {
        self.centre_m + scaled * self.length_m
    }
}

/// Normal matrix and right side of the rows gathered so far.
#[derive(Clone, Copy)]
struct NormalEquations {
    matrix: Matrix3<f64>,
    right: Vector3<f64>,
}

impl NormalEquations {
    fn add(&mut self, row: Vector3<f64>, value: f64, weight: f64) {
        self.matrix += row * row.transpose() * weight;
        self.right += row * (value * weight);
    }

    fn solve(&self) -> Option<Vector3<f64>> {
        let factor = self.matrix.cholesky()?;
        let lower = factor.l_dirty();
        let told_apart =
            (0..3).all(|i| lower[(i, i)] * lower[(i, i)] > SMALLEST_PIVOT_SHARE * self.matrix[(i, i)]);
        told_apart.then(|| factor.solve(&self.right))
    }
}

/// Stage 2 from the segment delays of stage 1 and all bearings; `None` where they do not
/// determine the three unknowns.
pub(super) fn stage_two(likelihood: &Likelihood, segments: &SegmentDelays) -> Option<TwoStage> {
    let range_m = |index: usize| SPEED_OF_LIGHT_M_S * segments.delay_s[index];
    let reach_m = (0..segments.nodes.len()).map(range_m).fold(0.0, f64::max);
    let normalisation = Normalisation::around(&likelihood.nodes, reach_m);
    let nodes: Vec<PlanePoint> = likelihood.nodes.iter().map(|p| normalisation.scaled(*p)).collect();

    let delay_rows = delay_rows(&nodes, segments, normalisation.length_m);
    let mut distance: Vec<f64> = vec![1.0; nodes.len()];
    for (index, &node) in segments.nodes.iter().enumerate() {
        distance[node] = range_m(index).max(SHORTEST_SEGMENT_M) / normalisation.length_m;
    }
    let mut unknowns = Vector3::zeros();
    let mut information = Matrix3::zeros();
    for _ in 0..MOST_ROUNDS {
        let mut equations = delay_rows;
        for (node, position) in nodes.iter().enumerate() {
            let weight = likelihood.bearing_weight[node];
            if weight > 0.0 {
                let (cos, sin) = (likelihood.bearing_direction[node].x, likelihood.bearing_direction[node].y);
                let value = sin * position.x - cos * position.y;
                equations.add(
                    Vector3::new(sin, -cos, 0.0),
                    value,
                    weight / (distance[node] * distance[node]),
                );
            }
        }
        unknowns = equations.solve()?;
        information = equations.matrix;
        let mut largest_change = 0f64;
        for (node, position) in nodes.iter().enumerate() {
            let settled = (unknowns.xy() - position).norm().max(SHORTEST_SEGMENT_M / normalisation.length_m);
            largest_change = largest_change.max((settled - distance[node]).abs());
            distance[node] = settled;
        }
        if largest_change < SETTLED_SHARE {
            break;
        }
    }
    let position_m = normalisation.position_m(unknowns.xy());
    let offset_m = unknowns.xy() * normalisation.length_m;
    let square_m2 = normalisation.length_m * normalisation.length_m * unknowns.z
        + normalisation.centre_m.norm_squared()
        + 2.0 * normalisation.centre_m.dot(&offset_m);
    let finite = square_m2.is_finite() && position_m.iter().all(|v| v.is_finite());
    finite.then_some(TwoStage { position_m, square_m2, unknowns, information, normalisation })
}

/// The delay rows under `B C B`, `B = diag(2 c^2 tau)`: with the normal matrix of stage 1
/// as `C^-1` no inverse is needed.
fn delay_rows(nodes: &[PlanePoint], segments: &SegmentDelays, length_m: f64) -> NormalEquations {
    let count = segments.nodes.len();
    let rows: Vec<(Vector3<f64>, f64)> = (0..count)
        .map(|index| {
            let position = nodes[segments.nodes[index]];
            let range_m = SPEED_OF_LIGHT_M_S * segments.delay_s[index];
            let range = range_m / length_m;
            let scale = 0.5 * length_m / range_m.max(SHORTEST_SEGMENT_M);
            let row = Vector3::new(-2.0 * position.x, -2.0 * position.y, 1.0);
            (row * scale, (range * range - position.norm_squared()) * scale)
        })
        .collect();
    let mut equations = NormalEquations { matrix: Matrix3::zeros(), right: Vector3::zeros() };
    for i in 0..count {
        for j in 0..count {
            let weight = segments.information_m2[(i, j)] * length_m * length_m;
            equations.matrix += rows[i].0 * rows[j].0.transpose() * weight;
            equations.right += rows[i].0 * (rows[j].1 * weight);
        }
    }
    equations
}
