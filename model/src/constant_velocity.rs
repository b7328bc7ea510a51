//! The bound of a target of constant velocity that several frames see.
//!
//! Frame f looks at `p + t_f v` and says `I_f` of that place (2 x 2, [`crate::fisher::Information`] at the place where
//! the target then is). The frames are independent given the state (p, v), so that the information on it is
//! `sum_f A_f^T I_f A_f` with `A_f = [1, t_f 1]`, and the bound on p, v being unknown, the upper left block of its
//! inverse. For F frames of equal information one time unit apart and p asked for in the last of them,
//! that is `(4 F - 2) / (F (F + 1))` times the bound of one frame.

use nalgebra::{Matrix2, Matrix4};

use crate::fisher::{Unobservable, inverse};

/// Bound on the position at time zero from frames given as (time, information on the position then). Frames
/// that were all taken then say nothing of the velocity, and need not.
pub fn constant_velocity_crb_m2(frames: &[(f64, Matrix2<f64>)]) -> Result<Matrix2<f64>, Unobservable> {
    // The unit of time is that of the farthest frame, so that both blocks are of one size.
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
