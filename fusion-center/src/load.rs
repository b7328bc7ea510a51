//! Detects overload. Pure: time is passed in.
//!
//! The fusion center is overloaded while it sheds frames, or while the oldest frame that waits for a solver is older than
//! [`OVERLOAD_AGE_MS`]. A notice is given when an overload begins, then at most every `NOTICE_INTERVAL_MS` with the
//! counts since the last, and when it is over.

use serde::Serialize;

/// Age of the oldest waiting frame from which the fusion center counts as overloaded.
pub const OVERLOAD_AGE_MS: u64 = 500;

/// Least time between two notices of one overload.
const NOTICE_INTERVAL_MS: u64 = 5000;

/// Frames on their way through the solvers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Load {
    /// Frames that were closed with enough paths to be solved.
    pub frames_offered: u64,
    /// Of these, shed under overload.
    pub frames_shed: u64,
    /// Frames that wait for a solver now.
    pub frames_waiting: u64,
    /// Age of the oldest of these.
    pub oldest_waiting_ms: u64,
    /// Maximum of `frames_waiting`.
    pub most_frames_waiting: u64,
    /// Maximum of `oldest_waiting_ms`.
    pub longest_waiting_ms: u64,
    pub overloaded: bool,
}

/// A change of the load that is worth logging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadNotice {
    /// Frames offered and shed since the last notice.
    Overloaded {
        offered: u64,
        shed: u64,
    },
    Recovered,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct LoadMonitor {
    pub load: Load,
    /// Frames that had been shed at the last observation.
    seen_shed: u64,
    /// The last notice of this overload: its time, and the load then.
    noticed: Option<(u64, Load)>,
}

impl LoadMonitor {
    /// Updates the load: `waiting` frames wait for a solver, the oldest since `oldest_ns`.
    pub fn observe(&mut self, now_ns: u64, waiting: usize, oldest_ns: Option<u64>) -> Option<LoadNotice> {
        let load = &mut self.load;
        load.frames_waiting = waiting as u64;
        load.oldest_waiting_ms = oldest_ns.map_or(0, |since| now_ns.saturating_sub(since) / 1_000_000);
        load.most_frames_waiting = load.most_frames_waiting.max(load.frames_waiting);
        load.longest_waiting_ms = load.longest_waiting_ms.max(load.oldest_waiting_ms);
        let shedding = load.frames_shed > self.seen_shed;
        self.seen_shed = load.frames_shed;
        // The queue is full when a frame is shed: the overload lasts until it is empty.
        let still = load.overloaded && load.frames_waiting > 0;
        load.overloaded = shedding || still || load.oldest_waiting_ms >= OVERLOAD_AGE_MS;
        self.notice(now_ns)
    }

    fn notice(&mut self, now_ns: u64) -> Option<LoadNotice> {
        if !self.load.overloaded {
            return self.noticed.take().map(|_| LoadNotice::Recovered);
        }
        let before = match self.noticed {
            Some((at_ns, _)) if now_ns.saturating_sub(at_ns) < NOTICE_INTERVAL_MS * 1_000_000 => return None,
            Some((_, before)) => before,
            None => Load::default(),
        };
        self.noticed = Some((now_ns, self.load));
        Some(LoadNotice::Overloaded {
            offered: self.load.frames_offered - before.frames_offered,
            shed: self.load.frames_shed - before.frames_shed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn overload_is_said_when_it_begins_at_a_pace_and_when_it_is_over() {
        let mut monitor = LoadMonitor::default();
        (0..10).for_each(|_| monitor.load.frames_offered += 1);
        assert_eq!(monitor.observe(1000 * MS, 3, Some(600 * MS)), None, "400 ms are no overload");
        assert_eq!(
            monitor.observe(1200 * MS, 4, Some(600 * MS)),
            Some(LoadNotice::Overloaded { offered: 10, shed: 0 })
        );
        for frame in 0..100 {
            monitor.load.frames_offered += 1;
            monitor.load.frames_shed += 1;
            assert_eq!(monitor.observe((1300 + frame) * MS, 8, Some(700 * MS)), None, "once, not per frame");
        }
        assert_eq!(
            monitor.observe(6300 * MS, 8, Some(5000 * MS)),
            Some(LoadNotice::Overloaded { offered: 100, shed: 100 })
        );
        assert!(monitor.load.overloaded);
        assert_eq!(monitor.observe(6400 * MS, 1, Some(6390 * MS)), None, "the queue is not empty yet");
        assert_eq!(monitor.observe(6500 * MS, 0, None), Some(LoadNotice::Recovered));
        assert_eq!(monitor.observe(6600 * MS, 0, None), None);
        let load = monitor.load;
        assert_eq!((load.frames_offered, load.frames_shed, load.overloaded), (110, 100, false));
        assert_eq!((load.most_frames_waiting, load.longest_waiting_ms), (8, 1300));
    }

    #[test]
    fn a_shed_frame_is_overload_however_young_the_rest_is() {
        let mut monitor = LoadMonitor::default();
        monitor.load.frames_offered += 1;
        monitor.load.frames_shed += 1;
        assert_eq!(monitor.observe(MS, 2, Some(MS)), Some(LoadNotice::Overloaded { offered: 1, shed: 1 }));
    }
}
