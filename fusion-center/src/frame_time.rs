//! When frames were taken, on one time axis for the clock filter.
//!
//! Clocks drift from frame to frame by the time between the frames as they were taken, not as their reports arrive: with a drift of
//! 50 ppb, a report that comes 10 ms late is worth 0.5 ns. The stamps of the reports say when a frame was taken. Only
//! differences from one frame to the next are used, and only where they agree with the arrivals within a few seconds, so that a
//! stamp that is wrong, or a clock that was set, does not move the axis.

use std::time::Duration;

/// Largest disagreement of stamps and arrivals about the time between two frames.
const MOST_DISAGREEMENT: Duration = Duration::from_secs(5);

/// The axis. Times are in nanoseconds.
#[derive(Debug, Default)]
pub struct FrameTimeline {
    last: Option<LastFrame>,
}

#[derive(Debug, Clone, Copy)]
struct LastFrame {
    stamp_ns: u64,
    arrival_ns: u64,
    time_ns: i128,
}

impl FrameTimeline {
    /// The time of the next frame in seconds, from the stamps of its reports, zero where a report has none, and from the arrival of
    /// the first of them.
    pub fn next_s(&mut self, mut stamps_ns: Vec<u64>, arrival_ns: u64) -> f64 {
        stamps_ns.retain(|stamp_ns| *stamp_ns > 0);
        stamps_ns.sort_unstable();
        // One wrong stamp among three does not count.
        let stamp_ns = stamps_ns.get(stamps_ns.len() / 2).copied();
        let time_ns = match self.last {
            None => i128::from(arrival_ns),
            Some(last) => {
                let arrived = i128::from(arrival_ns) - i128::from(last.arrival_ns);
                let stamped = stamp_ns.filter(|_| last.stamp_ns > 0);
                let stamped = stamped.map(|stamp_ns| i128::from(stamp_ns) - i128::from(last.stamp_ns));
                let agrees =
                    |stamped: &i128| (stamped - arrived).unsigned_abs() <= MOST_DISAGREEMENT.as_nanos();
                last.time_ns + stamped.filter(agrees).unwrap_or(arrived)
            }
        };
        self.last = Some(LastFrame { stamp_ns: stamp_ns.unwrap_or(0), arrival_ns, time_ns });
        time_ns as f64 * 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Times of frames with these stamps and arrivals, milliseconds after the first.
    fn times_ms(frames: &[(&[u64], u64)]) -> Vec<f64> {
        let mut timeline = FrameTimeline::default();
        let of = |(stamps, arrival): &(&[u64], u64)| {
            timeline.next_s(stamps.iter().map(|stamp| stamp * MS).collect(), arrival * MS) * 1e3
        };
        let times: Vec<f64> = frames.iter().map(of).collect();
        times.iter().map(|time| (time - times[0]).round()).collect()
    }

    #[test]
    fn late_arrivals_do_not_move_frames() {
        let day = 86_400_000;
        let frames: [(&[u64], u64); 4] = [
            (&[day, day], 500),
            (&[day + 20, day + 20], 540),
            (&[day + 40], 560),
            (&[day + 60, day + 60], 1800),
        ];
        assert_eq!(times_ms(&frames), [0.0, 20.0, 40.0, 60.0]);
    }

    #[test]
    fn a_frame_that_closes_late_has_its_own_time() {
        assert_eq!(times_ms(&[(&[1000], 0), (&[1040], 30), (&[1020], 31)]), [0.0, 40.0, 20.0]);
    }

    #[test]
    fn wrong_and_missing_stamps_leave_the_arrivals() {
        let hour = 3_600_000;
        let frames: [(&[u64], u64); 6] = [
            (&[hour], 0),
            // One node of three is wrong.
            (&[5, hour + 20, hour + 20], 25),
            // The clock is set back by half an hour, and goes on.
            (&[hour / 2], 45),
            (&[hour / 2 + 20], 70),
            (&[0, 0], 90),
            (&[hour / 2 + 60], 112),
        ];
        assert_eq!(times_ms(&frames), [0.0, 20.0, 40.0, 60.0, 80.0, 102.0]);
        // Stamps at both ends of their range cannot overflow.
        let mut timeline = FrameTimeline::default();
        for stamp_ns in [u64::MAX, 1, u64::MAX] {
            assert!(timeline.next_s(vec![stamp_ns], u64::MAX).is_finite());
        }
    }
}
