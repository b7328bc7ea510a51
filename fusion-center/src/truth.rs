//! Ground truth, for display and error figures only.
//!
//! The simulator tells it over a channel of its own. It is joined to a fix after the fix is made, by the
//! publisher; neither the assembler nor the solver knows this module, which a test checks.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{Gain, Information, Point, Scheme, System};
use nalgebra::Matrix2;
use proto::convert::FrameId;

use crate::fix::{FixRecord, Truth};

/// Frames whose truth is kept until their fix comes.
const REMEMBERED_FRAMES: usize = 8192;

/// How long a fix waits for a truth that is on its way.
const PATIENCE: Duration = Duration::from_millis(500);

/// Truth by frame, bounded: the oldest goes first. Shared, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TruthBook(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    pages: Mutex<Pages>,
    fresh: Condvar,
}

#[derive(Debug, Default)]
struct Pages {
    records: BTreeMap<FrameId, Point>,
    /// Streams that tell the truth now.
    tellers: usize,
    /// The last frame told of.
    latest: Option<FrameId>,
}

/// A stream that tells the truth; ends when it is dropped.
#[derive(Debug)]
pub struct Teller(TruthBook);

impl Teller {
    /// Keeps the truth of a frame.
    pub fn tell(&self, frame: FrameId, position_m: Point) {
        self.0.insert(frame, position_m);
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.pages().tellers -= 1;
        self.0.0.fresh.notify_all();
    }
}

impl TruthBook {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream begins.
    pub fn teller(&self) -> Teller {
        self.pages().tellers += 1;
        Teller(self.clone())
    }

    /// Keeps the truth of a frame.
    pub fn insert(&self, frame: FrameId, position_m: Point) {
        let mut pages = self.pages();
        pages.records.insert(frame, position_m);
        pages.latest = pages.latest.max(Some(frame));
        while pages.records.len() > REMEMBERED_FRAMES {
            pages.records.pop_first();
        }
        drop(pages);
        self.0.fresh.notify_all();
    }

    /// Takes the truth of a frame. It travels on a connection of its own and may be a little behind: while one
    /// tells and has not come as far, it is waited for, briefly. Only the display waits.
    pub fn take(&self, frame: FrameId) -> Option<Point> {
        let behind = |pages: &mut Pages| {
            pages.tellers > 0 && pages.latest < Some(frame) && !pages.records.contains_key(&frame)
        };
        let waited = self.0.fresh.wait_timeout_while(self.pages(), PATIENCE, behind);
        let (mut pages, _) = waited.unwrap_or_else(PoisonError::into_inner);
        pages.records.remove(&frame)
    }
}

/// Compares a fix with the truth, and with what the exact bound allows for the paths that came.
pub fn judge(record: &FixRecord, system: &System, truth_m: Point) -> Truth {
    let information =
        record.missing.iter().fold(
            Information::new(system, truth_m, system.prior.median_m2, Gain::Unknown),
            |all, &(l, k)| all.without(l, k),
        );
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

    #[test]
    fn a_truth_that_is_on_its_way_is_waited_for() {
        let book = TruthBook::default();
        let id = |frame| FrameId { run: 1, frame };
        assert_eq!(book.take(id(0)), None, "nobody tells");
        let teller = book.teller();
        let waiting = std::thread::spawn({
            let book = book.clone();
            move || book.take(id(3))
        });
        teller.tell(id(2), Point::new(2.0, 0.0));
        teller.tell(id(3), Point::new(3.0, 0.0));
        assert_eq!(waiting.join().unwrap(), Some(Point::new(3.0, 0.0)));
        assert_eq!(book.take(id(1)), None, "passed over: it will not come");
    }
}
