//! Generates frames ahead of time on a separate thread and releases them when they are due.
//!
//! Open loop: frame n is due at the start plus n periods, whatever happened to the frames before it. A frame that
//! is late is sent late, which is measured, but does not shift later frames.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{EchoSource, TrueTarget};
use proto::clock::unix_time_ns;
use proto::convert::FrameId;
use proto::echo::EchoFrame;
use proto::echo::file::stamp_ns;
use proto::v1::TruthRecord;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::control::{Course, Situation};
use crate::truth;

/// Longest sleep between two checks of the stop signal.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The echoes of one frame for all nodes.
#[derive(Debug, Clone)]
pub(crate) struct DueFrame {
    pub truth: TruthRecord,
    /// By node.
    pub echoes: Vec<EchoFrame>,
    /// Time since it was due.
    pub late: Duration,
}

/// When frames are due, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    start: Instant,
    start_ns: u64,
    rate_hz: f64,
}

impl Schedule {
    /// Frame 0 is due after the time that it takes to generate it.
    pub fn starting_now(rate_hz: f64) -> Self {
        let lead = Duration::from_millis(5);
        let start_ns = unix_time_ns().saturating_add(lead.as_nanos() as u64);
        Self { start: Instant::now() + lead, start_ns, rate_hz }
    }

    fn offset(&self, frame: u64) -> Duration {
        Duration::from_nanos(stamp_ns(0, frame, self.rate_hz))
    }

    fn due(&self, frame: u64) -> Instant {
        self.start + self.offset(frame)
    }

    fn due_ns(&self, frame: u64) -> u64 {
        stamp_ns(self.start_ns, frame, self.rate_hz)
    }
}

/// Generates and releases frames until there are `frames`, the receiver is dropped, or `stop`. Blocks its thread.
pub(crate) fn release(
    mut source: Arc<EchoSource>,
    course: &Course,
    run: u64,
    frames: Option<u64>,
    schedule: Schedule,
    out: &mpsc::Sender<DueFrame>,
    stop: &CancellationToken,
) {
    let mut situation = course.situation();
    for frame in 0..frames.unwrap_or(u64::MAX) {
        if course.turns_at(frame) {
            situation = course.situation();
            for step in course.take_steps(frame) {
                Arc::make_mut(&mut source).step_clock(step);
            }
        }
        let mut due = make(&source, FrameId { run, frame }, &situation, schedule);
        if !sleep_until(schedule.due(frame), stop) {
            return;
        }
        due.late = schedule.due(frame).elapsed();
        if out.blocking_send(due).is_err() {
            return;
        }
    }
}

fn make(source: &EchoSource, id: FrameId, situation: &Situation, schedule: Schedule) -> DueFrame {
    let targets = situation.targets(source, id.frame);
    DueFrame {
        truth: truth::record(source, id, &targets, situation.movements.len() == 1),
        echoes: echoes(source, id, &targets, schedule.due_ns(id.frame)),
        late: Duration::ZERO,
    }
}

/// The echoes of a frame by node.
pub(crate) fn echoes(
    source: &EchoSource,
    id: FrameId,
    targets: &[TrueTarget],
    due_ns: u64,
) -> Vec<EchoFrame> {
    let echo = |l: usize| EchoFrame::new(id, l as u32, due_ns, &source.frame_of(l, id.frame, targets));
    (0..source.system().irs_count()).map(echo).collect()
}

/// Returns false if stopped before `due`.
fn sleep_until(due: Instant, stop: &CancellationToken) -> bool {
    while !stop.is_cancelled() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STOP_CHECK_INTERVAL));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_do_not_drift() {
        let schedule = Schedule { start: Instant::now(), start_ns: 1_000, rate_hz: 3.0 };
        let day = 3 * 86_400;
        assert_eq!(schedule.due_ns(day), 86_400_000_001_000);
        assert_eq!(schedule.due(day) - schedule.start, schedule.offset(day));
        assert_eq!(schedule.due_ns(0), 1_000);
    }
}
