//! Which frames the nodes are asked to report under overload. Pure: time is passed in.
//!
//! A frame that will be shed costs every node its matched filter and the backhaul its bytes, and on one machine the processor
//! time that the solvers lack. When frames come at m times the rate that the solvers can hold, the nodes are therefore asked
//! to report only those whose number is a multiple of m: the same frames at every node, so that frames stay complete.
//! m is rounded down, so that the solvers never wait for frames; frames in excess are shed. The request is part
//! of every acknowledgement and expires at the node, so that all frames come again soon after the overload.

use proto::convert::FrameId;

/// Least time over which the rate of frames is measured.
const WINDOW_NS: u64 = 1_000_000_000;

/// Largest stride.
const MOST: u64 = 1000;

#[derive(Debug)]
pub struct Thinning {
    workers: usize,
    /// A frame that was offered, and when: the rate is measured from it.
    since: Option<(FrameId, u64)>,
    rate_hz: f64,
    /// Mean time of a solve; none before the first.
    solve_ns: Option<f64>,
}

impl Thinning {
    pub fn new(workers: usize) -> Self {
        Self { workers, since: None, rate_hz: 0.0, solve_ns: None }
    }

    /// A frame was closed with enough paths to be solved. Its number tells how many frames there were since an earlier
    /// one, whether or not they were reported.
    pub fn offered(&mut self, frame: FrameId, now_ns: u64) {
        let Some((first, since_ns)) = self.since.filter(|(first, _)| first.run == frame.run) else {
            (self.since, self.rate_hz) = (Some((frame, now_ns)), 0.0);
            return;
        };
        let elapsed_ns = now_ns.saturating_sub(since_ns);
        if elapsed_ns >= WINDOW_NS {
            self.rate_hz = frame.frame.saturating_sub(first.frame) as f64 / (elapsed_ns as f64 * 1e-9);
            self.since = Some((frame, now_ns));
        }
    }

    /// A solve has taken this long.
    pub fn solved(&mut self, took_ns: u64) {
        let took_ns = took_ns as f64;
        self.solve_ns = Some(self.solve_ns.map_or(took_ns, |mean_ns| mean_ns + (took_ns - mean_ns) / 8.0));
    }

    /// Nodes are asked to report the frames whose number is a multiple of this.
    pub fn stride(&self) -> u32 {
        let Some(solve_ns) = self.solve_ns else { return 1 };
        let capacity_hz = self.workers as f64 * 1e9 / solve_ns.max(1.0);
        ((self.rate_hz / capacity_hz) as u64).clamp(1, MOST) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn id(run: u64, frame: u64) -> FrameId {
        FrameId { run, frame }
    }

    #[test]
    fn the_stride_is_the_overload_rounded_down() {
        let mut thinning = Thinning::new(2);
        assert_eq!(thinning.stride(), 1, "nothing is known");
        // Two solvers of 100 ms hold 20 frames a second.
        thinning.solved(S / 10);
        thinning.offered(id(1, 0), 0);
        for (frame, now_s, stride) in [(50, 1, 2), (250, 2, 10), (260, 3, 1), (479, 4, 10), (500, 5, 1)] {
            thinning.offered(id(1, frame), now_s * S);
            assert_eq!(thinning.stride(), stride, "frame {frame}");
        }
        // Within a second nothing changes, and another run begins a new measurement.
        thinning.offered(id(1, 99_999), 5 * S + S / 2);
        assert_eq!(thinning.stride(), 1);
        thinning.offered(id(1, 99_999), 6 * S);
        assert_eq!(thinning.stride(), 1000);
        thinning.offered(id(2, 5), 6 * S);
        assert_eq!(thinning.stride(), 1);
    }

    #[test]
    fn a_slower_machine_gets_fewer_frames() {
        let mut thinning = Thinning::new(1);
        thinning.offered(id(1, 0), 0);
        thinning.offered(id(1, 100), S);
        thinning.solved(S / 100);
        assert_eq!(thinning.stride(), 1);
        (0..50).for_each(|_| thinning.solved(S / 10));
        assert_eq!(thinning.stride(), 9, "just below a tenth");
    }
}
