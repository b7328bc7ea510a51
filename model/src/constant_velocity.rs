//! The bound on the position of a target with constant velocity from several frames.
//!
//! Frame f observes the position `p + t_f v` with information `I_f` (2 x 2, [`crate::fisher::Information`] at the
//! position of the target at that time). The frames are independent given the state (p, v), so that the information on it
//! is `sum_f A_f^T I_f A_f` with `A_f = [1, t_f 1]`, and the bound on p with v unknown is the upper left block of its
//! inverse. For F frames of equal information one time unit apart and p at the time of the last frame,
//! that is `(4 F - 2) / (F (F + 1))` times the bound of one frame.

use nalgebra::{Matrix2, Matrix4};

use crate::fisher::{SingularInformation, inverse};

/// Bound on the position at time zero, in square metres, from frames given as (time, information on the position at that
/// time). If all frames are at time zero, the velocity does not matter.
pub fn constant_velocity_crb_m2(frames: &[(f64, Matrix2<f64>)]) -> Result<Matrix2<f64>, SingularInformation> {
    // The largest time is the unit of time, so that both blocks have the same scale.
    let unit = frames.iter().fold(0.0, |most: f64, (time, _)| most.max(time.abs()));
    if unit == 0.0 {
        return inverse(frames.iter().map(|(_, information)| information).sum());
    }
    let total = frames.iter().fold(Matrix4::zeros(), |mut total, (time, information)| {
        let t = time / unit;
        let mut add = |row: usize, column: usize, factor: f64| {
            let mut block = total.fixed_view_mut::<2, 2>(row, column);
            block += information * factor;
        };
        add(0, 0, 1.0);
        add(0, 2, t);
        add(2, 0, t);
        add(2, 2, t * t);
        total
    });
    Ok(inverse(total)?.fixed_view::<2, 2>(0, 0).into_owned())
}
