//! The comparison schemes of the paper in its tan form, so that figures can show the gain of
//! each correction.
//!
//! | scheme | rows | weights |
//! | --- | --- | --- |
//! | LS | delay and tan rows | none |
//! | WLS | same | `B C B` for delays; `x_k^2 sigma^2 sec^4` for tan rows (the paper's `R_db` alone) |
//! | two-stage, paper | same | total least squares, Eq. for `x_2`, with its misprints corrected |
//! | three-stage, paper | same | then `(x^2, y^2)` and square roots, `Q_3` corrected |
//! | paper-literal | same | everything as printed |
//!
//! Corrected in the paper's own schemes: `e_3^T x_2` picks `s`, where the row's error is
//! multiplied by `x_T` (`e_1`); the variance of `da` carries a factor `x_k^2` that belongs to
//! `db` only; `B_theta` subtracts `da`, where the stationarity condition adds it; the delay
//! rows' variance lacks the 4 of `2 c^2 tau eps`; `Q_3` scales by `(4 x^2, 4 y^2, s)`, where the
//! derivatives are `(2 x, 2 y, 1)`. `paper-literal` keeps all of them; it reads `sigma_k` of the
//! delay rows as that of a distance, the only reading with matching units. A negative square
//! becomes zero. What stays wrong in all of them is the tan form: singular at 90 degrees, and one
//! angle error counted as two.
//!
//! Not on the path of a fix. Cost: as stage 2, up to 100 rounds.

use model::geometry::PlanePoint;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{DMatrix, DVector, Matrix3, Matrix3x2, Vector3};

use super::likelihood::Likelihood;
use super::measurements::Measurements;
use super::segments::{SegmentDelays, stage_one};
use super::three_stage::three_stage;
use super::two_stage::stage_two;

const MOST_ROUNDS: usize = 100;
const SETTLED: f64 = 1e-9;

/// A location scheme of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocatorScheme {
    /// Unweighted least squares in tan form.
    LeastSquares,
    /// Weighted least squares in tan form.
    WeightedLeastSquares,
    /// The paper's second stage, misprints corrected.
    PaperTwoStage,
    /// The paper's third stage on top of it, misprints corrected.
    PaperThreeStage,
    /// The paper's three stages exactly as printed.
    PaperLiteral,
    /// Stage 2 of this module.
    TwoStage,
    /// Stage 3 of this module.
    ThreeStage,
    /// Stage 4 from stage 3.
    MaximumLikelihood,
}

impl LocatorScheme {
    /// Every scheme, in the order of the paper's figures.
    pub const ALL: [Self; 8] = [
        Self::LeastSquares,
        Self::WeightedLeastSquares,
        Self::PaperLiteral,
        Self::PaperTwoStage,
        Self::PaperThreeStage,
        Self::TwoStage,
        Self::ThreeStage,
        Self::MaximumLikelihood,
    ];

    /// Name for tables and command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::LeastSquares => "ls",
            Self::WeightedLeastSquares => "wls",
            Self::PaperLiteral => "paper-literal",
            Self::PaperTwoStage => "paper-two-stage",
            Self::PaperThreeStage => "paper-three-stage",
            Self::TwoStage => "two-stage",
            Self::ThreeStage => "three-stage",
            Self::MaximumLikelihood => "maximum-likelihood",
        }
    }
}

/// The position by one scheme from all measurements, without any check; `None` where the result is not finite.
pub fn estimate_by_scheme(scheme: LocatorScheme, measurements: &Measurements) -> Option<PlanePoint> {
    let likelihood = Likelihood::new(measurements);
    let segments = stage_one(&likelihood);
    let rows = TanRows::new(measurements, &segments);
    let position_m = match scheme {
        LocatorScheme::LeastSquares => rows.least_squares()?.xy(),
        LocatorScheme::WeightedLeastSquares => rows.weighted_least_squares(&segments)?.xy(),
        LocatorScheme::PaperTwoStage => rows.total_least_squares(&segments, &CORRECTED)?.0.xy(),
        LocatorScheme::PaperThreeStage => {
            let (unknowns, information) = rows.total_least_squares(&segments, &CORRECTED)?;
            square_roots(&unknowns, &information, Vector3::new(2.0 * unknowns.x, 2.0 * unknowns.y, 1.0))?
        }
        LocatorScheme::PaperLiteral => {
            let (unknowns, information) = rows.total_least_squares(&segments, &AS_PRINTED)?;
            let squares = unknowns.component_mul(&unknowns);
            square_roots(&unknowns, &information, Vector3::new(4.0 * squares.x, 4.0 * squares.y, unknowns.z))?
        }
        LocatorScheme::TwoStage => stage_two(&likelihood, &segments)?.position_m,
        LocatorScheme::ThreeStage => three_stage(&stage_two(&likelihood, &segments)?)?.position_m,
        LocatorScheme::MaximumLikelihood => {
            likelihood.minimise(three_stage(&stage_two(&likelihood, &segments)?)?.position_m).position_m
        }
    };
    position_m.iter().all(|v| v.is_finite()).then_some(position_m)
}

/// Interpretation of the total least squares of stage 2.
struct StageReading {
    /// Component of `x_2` that multiplies the coefficient error.
    picked: usize,
    /// Whether the coefficient error's variance carries `x_k^2`.
    scaled_coefficient: bool,
    /// Sign of `da` in `B_theta`.
    sign: f64,
    /// Whether the delay rows have covariance `B C B`, or `diag(c^2 tau^2 sigma^2)`.
    full_delay_covariance: bool,
}

const CORRECTED: StageReading =
    StageReading { picked: 0, scaled_coefficient: false, sign: 1.0, full_delay_covariance: true };
const AS_PRINTED: StageReading =
    StageReading { picked: 2, scaled_coefficient: true, sign: -1.0, full_delay_covariance: false };

/// One bearing row `(tan b, -1, 0) = x_k tan b - y_k`.
struct TanRow {
    row: Vector3<f64>,
    value: f64,
    /// `sigma^2 sec^4 b`: variance of the coefficient.
    coefficient_variance: f64,
    /// `x_k^2 sigma^2 sec^4 b`: variance of the right side.
    value_variance: f64,
}

struct TanRows {
    delay: Vec<(Vector3<f64>, f64)>,
    range_m: Vec<f64>,
    bearing: Vec<TanRow>,
}

impl TanRows {
    fn new(measurements: &Measurements, segments: &SegmentDelays) -> Self {
        let nodes = measurements.irs_position_m();
        let range_m: Vec<f64> = segments.delay_s.iter().map(|delay_s| SPEED_OF_LIGHT_M_S * delay_s).collect();
        let delay = segments
            .nodes
            .iter()
            .zip(&range_m)
            .map(|(&k, r)| {
                (Vector3::new(-2.0 * nodes[k].x, -2.0 * nodes[k].y, 1.0), r * r - nodes[k].norm_squared())
            })
            .collect();
        let bearing = nodes
            .iter()
            .enumerate()
            .filter_map(|(k, node)| {
                let bearing = measurements.bearing(k)?;
                let tan = bearing.bearing_rad.tan();
                let coefficient_variance = bearing.variance_rad2 * (1.0 + tan * tan).powi(2);
                Some(TanRow {
                    row: Vector3::new(tan, -1.0, 0.0),
                    value: node.x * tan - node.y,
                    coefficient_variance,
                    value_variance: node.x * node.x * coefficient_variance,
                })
            })
            .collect();
        Self { delay, range_m, bearing }
    }

    /// `x_LS`, by pseudo-inverse.
    fn least_squares(&self) -> Option<Vector3<f64>> {
        let bearing = self.bearing.iter().map(|b| (b.row, b.value));
        let rows: Vec<_> = self.delay.iter().copied().chain(bearing).collect();
        if rows.len() < 3 || rows.iter().any(|(row, value)| !(row.norm() + value.abs()).is_finite()) {
            return None;
        }
        let matrix = DMatrix::from_fn(rows.len(), 3, |i, j| rows[i].0[j]);
        let right = DVector::from_fn(rows.len(), |i, _| rows[i].1);
        let decomposition = matrix.try_svd(true, true, f64::EPSILON, 10_000)?;
        let smallest = 1e-14 * decomposition.singular_values.max();
        let solution = decomposition.solve(&right, smallest).ok()?;
        Some(Vector3::new(solution[0], solution[1], solution[2]))
    }

    fn weighted_least_squares(&self, segments: &SegmentDelays) -> Option<Vector3<f64>> {
        let (mut matrix, mut right) = self.delay_normal(segments, true);
        for b in &self.bearing {
            matrix += b.row * b.row.transpose() / b.value_variance;
            right += b.row * (b.value / b.value_variance);
        }
        finite(matrix.lu().solve(&right)?)
    }

    /// The iteration for `x_2` from `x_LS`, and the inverse covariance of its answer.
    fn total_least_squares(
        &self,
        segments: &SegmentDelays,
        reading: &StageReading,
    ) -> Option<(Vector3<f64>, Matrix3<f64>)> {
        let mut unknowns = self.least_squares()?;
        let (delay_matrix, delay_right) = self.delay_normal(segments, reading.full_delay_covariance);
        let mut information = delay_matrix;
        for _ in 0..MOST_ROUNDS {
            let picked = unknowns[reading.picked];
            let (mut matrix, mut right) = (delay_matrix, delay_right);
            information = delay_matrix;
            for b in &self.bearing {
                let coefficient =
                    if reading.scaled_coefficient { b.value_variance } else { b.coefficient_variance };
                let weight = 1.0 / (picked * picked * coefficient + b.value_variance);
                // da = -e^T x_2 R_da lambda / 2, lambda = 2 weight (A x_2 - b).
                let error = -picked * coefficient * weight * (b.row.dot(&unknowns) - b.value);
                let shifted = b.row + Vector3::new(reading.sign * error, 0.0, 0.0);
                matrix += shifted * b.row.transpose() * weight;
                right += shifted * (b.value * weight);
                information += b.row * b.row.transpose() * weight;
            }
            let next = finite(matrix.lu().solve(&right)?)?;
            let change = (next - unknowns).norm();
            unknowns = next;
            if change < SETTLED {
                break;
            }
        }
        Some((unknowns, information))
    }

    /// `A_tau^T R^-1 A_tau` and `A_tau^T R^-1 b_tau`.
    fn delay_normal(&self, segments: &SegmentDelays, full: bool) -> (Matrix3<f64>, Vector3<f64>) {
        let (mut matrix, mut right) = (Matrix3::zeros(), Vector3::zeros());
        let square = SPEED_OF_LIGHT_M_S * SPEED_OF_LIGHT_M_S;
        for i in 0..self.delay.len() {
            for j in 0..self.delay.len() {
                let weight = match (full, i == j) {
                    (true, _) => segments.information_m2[(i, j)] / (4.0 * self.range_m[i] * self.range_m[j]),
                    (false, true) => {
                        1.0 / (self.range_m[i].powi(2) * square * segments.covariance_s2[(i, i)])
                    }
                    (false, false) => 0.0,
                };
                matrix += self.delay[i].0 * self.delay[j].0.transpose() * weight;
                right += self.delay[i].0 * (self.delay[j].1 * weight);
            }
        }
        (matrix, right)
    }
}

/// The paper's third stage: `(x^2, y^2)` from `(x_2^2, y_2^2, s)` under
/// `Q_3 = D cov(x_2) D`, `D = diag(scale)`, then square roots with the signs of stage 2.
fn square_roots(
    unknowns: &Vector3<f64>,
    information: &Matrix3<f64>,
    scale: Vector3<f64>,
) -> Option<PlanePoint> {
    let inverse = Matrix3::from_diagonal(&scale.map(|v| 1.0 / v));
    let weight = inverse * information * inverse;
    let a = Matrix3x2::new(1.0, 0.0, 0.0, 1.0, 1.0, 1.0);
    let b = Vector3::new(unknowns.x * unknowns.x, unknowns.y * unknowns.y, unknowns.z);
    let squares = (a.transpose() * weight * a).lu().solve(&(a.transpose() * weight * b))?;
    let root = |square: f64, sign: f64| square.max(0.0).sqrt().copysign(sign);
    squares
        .iter()
        .all(|v| v.is_finite())
        .then(|| PlanePoint::new(root(squares.x, unknowns.x), root(squares.y, unknowns.y)))
}

fn finite(vector: Vector3<f64>) -> Option<Vector3<f64>> {
    vector.iter().all(|v| v.is_finite()).then_some(vector)
}

#[cfg(test)]
mod tests;
