//! Whether a rate is sustainable, as a pure function of one run.
//!
//! A rate is sustainable if every frame was complete and latency is stationary. A backlog is detected in three ways:
//!
//! 1. *Growth.* The trend of total latency over the run, a Theil-Sen slope (the median of the slopes between all pairs
//!    of group medians) with the 95 % interval of Kendall's statistic. A slope that is significantly positive and
//!    amounts to more than half a frame interval over the run is a growing queue.
//! 2. *Waiting.* A full queue no longer grows, and its frames wait for a constant time. The median frame may therefore
//!    wait at most one frame interval, on its way to the node and for a solver, without the processing itself.
//! 3. *The end.* A robust trend misses a late backlog: the median wait of the last tenth has the same limit.

/// Groups of consecutive frames whose medians the trend is fitted to.
const GROUPS: usize = 120;

/// Quantile of the normal distribution for an interval of 95 %.
const NORMAL_95: f64 = 1.96;

/// Tolerated growth over the run, in frame intervals.
const SLACK_INTERVALS: f64 = 0.5;

/// Maximum median wait, in frame intervals.
const MOST_WAIT_INTERVALS: f64 = 1.0;

/// One frame of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Intended send time, from any origin.
    pub intended_s: f64,
    /// Time from then to the fix.
    pub total_ms: f64,
    /// Time waiting for a node or a solver.
    pub wait_ms: f64,
    pub solve_ms: f64,
}

/// Statistics of a run by which its rate is judged.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Judgement {
    /// Trend of the total latency, with its 95 % interval.
    pub slope_ms_per_s: f64,
    pub slope_low: f64,
    pub slope_high: f64,
    pub wait_p50_ms: f64,
    /// Median wait in the last tenth of the run.
    pub end_wait_p50_ms: f64,
    /// Share of the solvers' time in use.
    pub utilisation: f64,
}

impl Judgement {
    /// `samples` are the frames of one run in order, without the warm-up; `workers` frames are solved in parallel.
    pub fn new(samples: &[Sample], rate_hz: f64, workers: usize) -> Self {
        let (slope_ms_per_s, slope_low, slope_high) = trend(samples);
        let wait = |samples: &[Sample]| median(samples.iter().map(|sample| sample.wait_ms).collect());
        let last = samples.len() - samples.len().div_ceil(10);
        let solve_ms = samples.iter().map(|sample| sample.solve_ms).sum::<f64>() / samples.len() as f64;
        Self {
            slope_ms_per_s,
            slope_low,
            slope_high,
            wait_p50_ms: wait(samples),
            end_wait_p50_ms: wait(&samples[last..]),
            utilisation: rate_hz * solve_ms * 1e-3 / workers as f64,
        }
    }

    /// Why the rate is not sustainable over `span_s` seconds; none if it is.
    pub fn objection(&self, rate_hz: f64, span_s: f64) -> Option<String> {
        let interval_ms = 1e3 / rate_hz;
        let growth_ms = self.slope_ms_per_s * span_s;
        if self.slope_low > 0.0 && growth_ms > SLACK_INTERVALS * interval_ms {
            return Some(format!(
                "latency grows by {:.2} ms/s ({:.2} to {:.2}), {growth_ms:.0} ms over the run: a queue builds up",
                self.slope_ms_per_s, self.slope_low, self.slope_high
            ));
        }
        let most_ms = MOST_WAIT_INTERVALS * interval_ms;
        let late = |what: &str, wait_ms: f64| {
            (wait_ms > most_ms).then(|| {
                format!(
                    "{what} wait {wait_ms:.1} ms at the median, more than a frame interval of {most_ms:.1} ms"
                )
            })
        };
        late("frames", self.wait_p50_ms).or_else(|| late("the last frames", self.end_wait_p50_ms))
    }

    pub fn in_words(&self) -> String {
        format!(
            "slope {:.2} ms/s ({:.2} to {:.2}), median wait {:.2} ms, nothing shed, utilisation {:.2}",
            self.slope_ms_per_s, self.slope_low, self.slope_high, self.wait_p50_ms, self.utilisation
        )
    }
}

/// Theil-Sen slope in milliseconds per second with its 95 % interval.
fn trend(samples: &[Sample]) -> (f64, f64, f64) {
    let group = samples.len().div_ceil(GROUPS).max(1);
    let points: Vec<(f64, f64)> = samples
        .chunks(group)
        .map(|chunk| {
            let middle = chunk.iter().map(|sample| sample.intended_s).sum::<f64>() / chunk.len() as f64;
            (middle, median(chunk.iter().map(|sample| sample.total_ms).collect()))
        })
        .collect();
    let mut slopes: Vec<f64> = Vec::with_capacity(points.len() * points.len() / 2);
    for (i, a) in points.iter().enumerate() {
        slopes.extend(points[..i].iter().filter(|b| a.0 > b.0).map(|b| (a.1 - b.1) / (a.0 - b.0)));
    }
    slopes.sort_by(f64::total_cmp);
    let (count, pairs) = (points.len() as f64, slopes.len() as f64);
    // Standard deviation of Kendall's statistic under no trend.
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    let at = |rank: f64| slopes.get(rank.clamp(0.0, pairs - 1.0) as usize).copied().unwrap_or(0.0);
    let reach = NORMAL_95 * deviation;
    (at(pairs / 2.0), at((pairs - reach) / 2.0), at((pairs + reach) / 2.0))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    use model::random::{Purpose, complex_normal, stream};

    const RATE_HZ: f64 = 20.0;

    /// Frames through one solver whose work is Gaussian around `solve_ms` by 20 %, with room for `room` to wait: the
    /// oldest is shed beyond that. `stall` adds work to one frame.
    fn queue(frames: u64, solve_ms: f64, room: usize, stall: Option<(u64, f64)>) -> Vec<Sample> {
        let mut draws = stream(11, Purpose::Noise, [frames, solve_ms as u64]);
        let interval_ms = 1e3 / RATE_HZ;
        let (mut free_ms, mut waiting, mut samples) = (0.0f64, VecDeque::new(), Vec::new());
        for frame in 0..frames {
            let due_ms = frame as f64 * interval_ms;
            let extra = stall.filter(|(at, _)| *at == frame).map_or(0.0, |(_, extra)| extra);
            let spread = 0.2 * 2f64.sqrt() * complex_normal(&mut draws, 1.0).re;
            waiting.push_back((due_ms, solve_ms * (1.0 + spread).max(0.1) + extra));
            // Whoever can start before the next frame is due; all of them after the last.
            let next_ms = if frame + 1 == frames { f64::INFINITY } else { due_ms + interval_ms };
            while let Some(&(due, work)) = waiting.front().filter(|(due, _)| free_ms.max(*due) < next_ms) {
                let begin = free_ms.max(due);
                free_ms = begin + work;
                let (total_ms, wait_ms) = (free_ms - due, begin - due);
                samples.push(Sample { intended_s: due * 1e-3, total_ms, wait_ms, solve_ms: work });
                waiting.pop_front();
            }
            if waiting.len() > room {
                waiting.pop_front();
            }
        }
        samples
    }

    fn judged(samples: &[Sample]) -> (Judgement, Option<String>) {
        let judgement = Judgement::new(samples, RATE_HZ, 1);
        let span_s = samples.last().unwrap().intended_s - samples[0].intended_s;
        (judgement, judgement.objection(RATE_HZ, span_s))
    }

    #[test]
    fn a_rate_below_capacity_holds() {
        for frames in [40, 80, 200, 2000] {
            for solve_ms in [5.0, 20.0, 35.0] {
                let (judgement, objection) = judged(&queue(frames, solve_ms, 64, None));
                assert_eq!(objection, None, "{frames} {solve_ms} {judgement:?}");
                assert!((judgement.utilisation / (solve_ms / 50.0) - 1.0).abs() < 0.1, "{judgement:?}");
            }
        }
    }

    #[test]
    fn a_growing_backlog_does_not_hold() {
        for (frames, solve_ms) in [(80, 60.0), (200, 54.0), (2000, 51.5)] {
            let (judgement, objection) = judged(&queue(frames, solve_ms, 4096, None));
            assert!(objection.is_some_and(|reason| reason.contains("grows")), "{frames} {judgement:?}");
        }
    }

    /// A full queue: every frame waits 64 others' work, latency is flat, and what is shed is not in the samples.
    #[test]
    fn a_saturated_backlog_does_not_hold() {
        let samples = queue(2000, 100.0, 64, None);
        let (judgement, objection) = judged(&samples[500..]);
        assert!(judgement.slope_ms_per_s.abs() < 5.0, "flat: {judgement:?}");
        assert!(objection.is_some_and(|reason| reason.contains("frames wait")), "{judgement:?}");
    }

    /// A backlog that begins in the last eighth is no trend, but is there at the end.
    #[test]
    fn a_backlog_at_the_end_does_not_hold() {
        let (judgement, objection) = judged(&queue(400, 30.0, 4096, Some((350, 4000.0))));
        assert!(objection.is_some(), "{judgement:?}");
        assert!(judgement.wait_p50_ms < 50.0);
    }

    /// One stall of a second in the middle is charged to the frames that it delays, and drains.
    #[test]
    fn a_stall_that_drains_does_no_harm() {
        let (judgement, objection) = judged(&queue(400, 20.0, 4096, Some((100, 1000.0))));
        assert_eq!(objection, None, "{judgement:?}");
    }

    /// A line of 3 ms/s in noise of known scale: the slope is found within its own interval.
    #[test]
    fn the_slope_of_a_line_is_found() {
        let mut draws = stream(5, Purpose::Noise, [0, 0]);
        let line: Vec<Sample> = (0..400)
            .map(|frame| {
                let intended_s = f64::from(frame) / RATE_HZ;
                let total_ms = 10.0 + 3.0 * intended_s + complex_normal(&mut draws, 8.0).re;
                Sample { intended_s, total_ms, wait_ms: 0.0, solve_ms: 10.0 }
            })
            .collect();
        let judgement = Judgement::new(&line, RATE_HZ, 1);
        assert!(judgement.slope_low < 3.0 && 3.0 < judgement.slope_high, "{judgement:?}");
        assert!(judgement.slope_high - judgement.slope_low < 0.5, "{judgement:?}");
    }
}
