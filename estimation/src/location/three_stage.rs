//! Stage 3: the constraint `s = x^2 + y^2`.
//!
//! Fits `(x, y, x^2 + y^2)` to the three unknowns of stage 2 under their covariance, by
//! Gauss-Newton. The paper solves for `(x^2, y^2)` and takes square roots: that fails at `x = 0`
//! and `y = 0`, may meet a negative square, and its weight matrix `Q_3` scales the errors
//! by `(4 x^2, 4 y^2, s)` where their derivatives are `(2 x, 2 y, 1)`. Cost: some 3 x 3
//! products per step, 3 to 5 steps.

use model::geometry::PlanePoint;
use nalgebra::{Matrix3x2, Vector3};

use super::two_stage::TwoStage;

const MOST_STEPS: usize = 50;
const SETTLED_STEP: f64 = 1e-13;

/// Result of stage 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThreeStage {
    /// Position, metres.
    pub position_m: PlanePoint,
    /// Whether the iteration converged.
    pub converged: bool,
}

/// Refines the result of stage 2; `None` where no finite position results.
pub(super) fn three_stage(two_stage: &TwoStage) -> Option<ThreeStage> {
    let TwoStage { unknowns, information, normalisation, .. } = two_stage;
    let mut position: PlanePoint = unknowns.xy();
    let mut converged = false;
    for _ in 0..MOST_STEPS {
        let fitted = Vector3::new(position.x, position.y, position.norm_squared());
        let jacobian = Matrix3x2::new(1.0, 0.0, 0.0, 1.0, 2.0 * position.x, 2.0 * position.y);
        let weighted = information * jacobian;
        let normal = jacobian.transpose() * weighted;
        let step = normal.cholesky()?.solve(&(weighted.transpose() * (unknowns - fitted)));
        position += step;
        if step.norm() < SETTLED_STEP {
            converged = true;
            break;
        }
    }
    let position_m = normalisation.position_m(position);
    position_m.iter().all(|v| v.is_finite()).then_some(ThreeStage { position_m, converged })
}
