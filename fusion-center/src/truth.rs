//! Ground truth, for display and error figures only.
//!
//! The simulator tells it over a channel of its own. It is joined to a fix after the fix is made, by the
//! publisher; neither the assembler nor the solver knows this module, which a test checks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::{Gain, Information, Point, Scheme, System};
use nalgebra::Matrix2;
use proto::convert::FrameId;

use crate::fix::{FixRecord, Truth};

/// Frames whose truth is kept until their fix comes.
const REMEMBERED_FRAMES: usize = 8192;

/// Truth by frame, bounded: the oldest goes first.
#[derive(Debug, Clone, Default)]
pub struct TruthBook(Arc<Mutex<BTreeMap<FrameId, Point>>>);

impl TruthBook {
    /// Keeps the truth of a frame.
    pub fn insert(&self, frame: FrameId, position_m: Point) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.insert(frame, position_m);
        while book.len() > REMEMBERED_FRAMES {
            book.pop_first();
        }
    }

    /// Takes the truth of a frame.
    pub fn take(&self, frame: FrameId) -> Option<Point> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&frame)
    }
}

/// Compares a fix with the truth, and with what the exact bound allows for the paths that came.
pub fn judge(record: &FixRecord, system: &System, truth_m: Point) -> Truth {
    let information = record
        .missing
        .iter()
        .fold(Information::new(system, truth_m, Gain::Unknown), |all, &(l, k)| all.without(l, k));
    let bound = information.position_crb_m2(Scheme::Hybrid).ok();
    let error = record.position_m.map(|position_m| Point::from(position_m) - truth_m);
    let nees = error.zip(record.covariance_m2).and_then(|(error, [xx, xy, yy])| {
        let covariance = Matrix2::new(xx, xy, xy, yy);
        Some(error.dot(&covariance.cholesky()?.solve(&error)))
    });
    Truth {
        position_m: truth_m.into(),
        error_m: error.map(|error| error.norm()),
        bound_rms_m: bound.map(|bound| bound.trace().sqrt()),
        bound_m2: bound.map(|bound| [bound.m11, bound.m12, bound.m22]),
        nees,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_is_bounded_and_gives_once() {
        let book = TruthBook::default();
        let id = |frame| FrameId { run: 1, frame };
        for frame in 0..REMEMBERED_FRAMES as u64 + 10 {
            book.insert(id(frame), Point::new(frame as f64, 0.0));
        }
        assert_eq!(book.take(id(9)), None);
        assert_eq!(book.take(id(10)), Some(Point::new(10.0, 0.0)));
        assert_eq!(book.take(id(10)), None);
    }
}
