//! The bound on the position of a target with constant velocity from several frames.
//!
//! Frame f observes the position `p + t_f v` with information `I_f` ([`crate::fisher::Information`] at the
//! position of the target at that time). The frames are independent given the state (p, v), so that the information on it
//! is `sum_f A_f^T I_f A_f` with `A_f = [1, t_f 1]`, and the bound on p with v unknown is the upper left block of its
//! inverse. For F frames of equal information one time unit apart and p at the time of the last frame,
//! that is `(4 F - 2) / (F (F + 1))` times the bound of one frame.

use nalgebra::DMatrix;

use crate::fisher::{SingularInformation, inverse};

/// Bound on the position at time zero, in square metres, from frames given as (time, information on the position at that
/// time). If all frames are at time zero, the velocity does not matter.
pub fn constant_velocity_crb_m2(frames: &[(f64, DMatrix<f64>)]) -> Result<DMatrix<f64>, SingularInformation> {
    let axes = frames.first().ok_or(SingularInformation)?.1.nrows();
    // The largest time is the unit of time, so that both blocks have the same scale.
    let unit = frames.iter().fold(0.0, |most: f64, (time, _)| most.max(time.abs()));
    if unit == 0.0 {
        return inverse(frames.iter().map(|(_, information)| information).sum());
    }
    let mut total = DMatrix::zeros(2 * axes, 2 * axes);
    for (time, information) in frames.iter().filter(|(_, information)| information.nrows() == axes) {
        let t = time / unit;
        for (row, column, factor) in [(0, 0, 1.0), (0, axes, t), (axes, 0, t), (axes, axes, t * t)] {
            let mut block = total.view_mut((row, column), (axes, axes));
            block += information * factor;
        }
    }
    Ok(inverse(total)?.view((0, 0), (axes, axes)).into_owned())
}
