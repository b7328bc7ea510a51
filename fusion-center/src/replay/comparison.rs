//! Replayed fixes beside those of the recording.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message;
use proto::convert::FrameId;
use proto::v1;

use super::Limited;
use crate::fix::FixRecord;

/// Fixes that may wait for the other one of their frame: the recording contains a fix shortly behind its frame.
const MOST_WAITING: usize = 4096;

/// Compares fixes; cheap to clone.
#[derive(Clone, Default)]
pub struct FixComparison(Arc<Mutex<FixPairs>>);

#[derive(Default)]
struct FixPairs {
    recorded: BTreeMap<FrameId, v1::Fix>,
    replayed: BTreeMap<FrameId, v1::Fix>,
    equal: u64,
    different: Limited,
}

impl FixComparison {
    /// A fix of the recording.
    pub fn recorded(&self, fix: v1::Fix) {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = FrameId { run: fix.run, frame: fix.frame };
        match pairs.replayed.remove(&frame) {
            Some(replayed) => pairs.compare(fix, replayed),
            None => wait(&mut pairs.recorded, frame, fix),
        }
    }

    /// A fix of the replay.
    pub fn replayed(&self, fix: &FixRecord) {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = fix.frame_id();
        match pairs.recorded.remove(&frame) {
            Some(recorded) => pairs.compare(recorded, fix.to_wire()),
            None => wait(&mut pairs.replayed, frame, fix.to_wire()),
        }
    }

    /// The number of equal fixes, and what differs in the others.
    pub fn result(&self) -> (u64, Vec<String>) {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (pairs.equal, std::mem::take(&mut pairs.different).shown())
    }
}

fn wait(waiting: &mut BTreeMap<FrameId, v1::Fix>, frame: FrameId, fix: v1::Fix) {
    waiting.insert(frame, fix);
    if waiting.len() > MOST_WAITING {
        waiting.pop_first();
    }
}

impl FixPairs {
    fn compare(&mut self, recorded: v1::Fix, replayed: v1::Fix) {
        // Unknown values are not numbers, which equal nothing, but have the same bytes.
        let (before, now) = (estimate(recorded), estimate(replayed));
        if before.encode_to_vec() == now.encode_to_vec() {
            self.equal += 1;
            return;
        }
        let v1::Fix { frame, run, .. } = before;
        let what = match describe(&before) == describe(&now) {
            true => "details".to_owned(),
            false => format!("{} instead of {}", describe(&now), describe(&before)),
        };
        self.different.add(format!("frame {frame} of run {run} differs from the recorded fix: {what}"));
    }
}

/// What a fix says about the targets: without times, source and truth.
fn estimate(mut fix: v1::Fix) -> v1::Fix {
    fix.clocks.iter_mut().for_each(|clock| clock.true_offset_s = None);
    v1::Fix {
        time_ns: 0,
        source: String::new(),
        truth: None,
        true_targets: Vec::new(),
        bound_rms_m: None,
        stages: None,
        ..fix
    }
}

fn describe(fix: &v1::Fix) -> String {
    match &fix.position {
        Some(v1::Point { x_m, y_m, z_m }) => format!("{} at ({x_m}, {y_m}, {z_m})", fix.status),
        None => fix.status.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::Source;
    use estimation::fusion::{FixMethod, FrameBlocks, FusedFix};
    use model::Point;
    use nalgebra::DMatrix;

    fn fix(frame: u64, x_m: f64) -> FixRecord {
        let at = Point::new(x_m, 2.0, 0.0);
        let fixes = Ok(vec![FusedFix::new(FixMethod::Direct, at, DMatrix::identity(2, 2))]);
        FixRecord::new(FrameId { run: 7, frame }, &FrameBlocks::new(3), None, &fixes, Source::Replayed)
    }

    #[test]
    fn equal_fixes_are_counted_and_others_are_described() {
        let comparison = FixComparison::default();
        let message =
            |frame, x_m| v1::Fix { time_ns: 5, bound_rms_m: Some(1.0), ..fix(frame, x_m).to_wire() };
        assert!(message(1, 1.0).delay_s.iter().all(|delay| delay.is_nan()), "not numbers");
        comparison.recorded(message(1, 1.0));
        comparison.replayed(&fix(2, 1.0));
        comparison.replayed(&fix(1, 1.0));
        comparison.recorded(message(2, 1.0f64.next_up()));
        comparison.recorded(message(3, 1.0));
        let (equal, different) = comparison.result();
        assert_eq!((equal, different.len()), (1, 1));
        let expected = "frame 2 of run 7 differs from the recorded fix: nominal at (1, 2, 0) instead of nominal at (1.0000000000000002, 2, 0)";
        assert_eq!(different[0].replace("degraded", "nominal"), expected);
    }
}
