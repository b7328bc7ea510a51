//! How much work waits, and when that is too much. Pure: time is passed in.
//!
//! The fusion center is overloaded while it sheds frames, or while the oldest frame that waits for a solver is older than
//! [`OVERLOAD_AGE_MS`]. That is said when it begins, then at most every [`NOTICE_INTERVAL_MS`] with the counts since,
//! and when it is over.

use serde::Serialize;

/// Age of the oldest waiting frame from which the fusion center counts as overloaded.
pub const OVERLOAD_AGE_MS: u64 = 500;

/// Least time between two notices of one overload.
pub const NOTICE_INTERVAL_MS: u64 = 5000;

/// Frames on their way through the solvers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Load {
    /// Frames that were closed with enough blocks to be solved.
    pub frames_offered: u64,
    /// Of these, shed under overload.
    pub frames_shed: u64,
    /// Frames that wait for a solver now.
    pub frames_waiting: u64,
    /// How long the oldest of them has.
    pub oldest_waiting_ms: u64,
    /// Most that have waited at once.
    pub most_frames_waiting: u64,
    /// Longest that one has.
    pub longest_waiting_ms: u64,
    /// Whether more comes than can be solved.
    pub overloaded: bool,
}

/// What is worth a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadNotice {
    /// Overloaded; so many frames were offered and shed since the last notice.
    Overloaded {
        /// Offered since.
        offered: u64,
        /// Shed since.
        shed: u64,
    },
    /// No longer.
    Recovered,
}

/// Watches the load.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadMonitor {
    load: Load,
    /// Frames that had been shed at the last look.
    seen_shed: u64,
    /// The last notice of this overload: its time, and the load then.
    noticed: Option<(u64, Load)>,
}

impl LoadMonitor {
    /// How things stand.
    pub fn load(&self) -> Load {
        self.load
    }

    /// A frame came that can be solved.
    pub fn offered(&mut self) {
        self.load.frames_offered += 1;
    }

    /// A waiting frame was shed.
    pub fn shed(&mut self) {
        self.load.frames_shed += 1;
    }

    /// So many frames wait; the oldest since `oldest_ns`.
    pub fn observe(&mut self, now_ns: u64, waiting: usize, oldest_ns: Option<u64>) -> Option<LoadNotice> {
        let load = &mut self.load;
        load.frames_waiting = waiting as u64;
        load.oldest_waiting_ms = oldest_ns.map_or(0, |since| now_ns.saturating_sub(since) / 1_000_000);
        load.most_frames_waiting = load.most_frames_waiting.max(load.frames_waiting);
        load.longest_waiting_ms = load.longest_waiting_ms.max(load.oldest_waiting_ms);
        let shedding = load.frames_shed > self.seen_shed;
        self.seen_shed = load.frames_shed;
        // Who has just shed a frame has a full queue: that is over once the queue is empty.
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
        (0..10).for_each(|_| monitor.offered());
        assert_eq!(monitor.observe(1000 * MS, 3, Some(600 * MS)), None, "400 ms are no overload");
        assert_eq!(
            monitor.observe(1200 * MS, 4, Some(600 * MS)),
            Some(LoadNotice::Overloaded { offered: 10, shed: 0 })
        );
        for frame in 0..100 {
            monitor.offered();
            monitor.shed();
            assert_eq!(monitor.observe((1300 + frame) * MS, 8, Some(700 * MS)), None, "once, not per frame");
        }
        assert_eq!(
            monitor.observe(6300 * MS, 8, Some(5000 * MS)),
            Some(LoadNotice::Overloaded { offered: 100, shed: 100 })
        );
        assert!(monitor.load().overloaded);
        assert_eq!(monitor.observe(6400 * MS, 1, Some(6390 * MS)), None, "the queue is not empty yet");
        assert_eq!(monitor.observe(6500 * MS, 0, None), Some(LoadNotice::Recovered));
        assert_eq!(monitor.observe(6600 * MS, 0, None), None);
        let load = monitor.load();
        assert_eq!((load.frames_offered, load.frames_shed, load.overloaded), (110, 100, false));
        assert_eq!((load.most_frames_waiting, load.longest_waiting_ms), (8, 1300));
    }

    #[test]
    fn a_shed_frame_is_overload_however_young_the_rest_is() {
        let mut monitor = LoadMonitor::default();
        monitor.offered();
        monitor.shed();
        assert_eq!(monitor.observe(MS, 2, Some(MS)), Some(LoadNotice::Overloaded { offered: 1, shed: 1 }));
    }
}
