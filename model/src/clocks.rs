//! The offset of every node's clock in every frame: what the echo source knows and estimators do not.
//!
//! `o_l(f) = o_l + d_l t + w_l(t) + step`, `t = f T`. The walk w is Brownian, drawn by Levy's construction (midpoints of
//! dyadic intervals), so that any frame can be asked for by itself in O(log f) and always has the same value.

use rand::RngExt;
use rand_distr::StandardNormal;

use crate::random::{Purpose, stream};
use crate::scenario::{ClockStep, NodeClocks, Scenario};

/// The clocks of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockOffsets {
    clocks: NodeClocks,
    seed: u64,
    /// Offset and rate of every node.
    drawn: Vec<(f64, f64)>,
    /// The step of the scenario, and those that were added.
    steps: Vec<ClockStep>,
}

impl ClockOffsets {
    /// Draws the clocks of the nodes of a valid scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let clocks = scenario.clocks.clone();
        let mut draws = stream(scenario.seed, Purpose::ClockOffset, [0, 0]);
        let mut within = |most: f64| most * draws.random_range(-1.0..=1.0);
        let drawn = scenario
            .irs
            .iter()
            .map(|_| (within(clocks.offset_ns) * 1e-9, within(clocks.drift_ppb) * 1e-9))
            .collect();
        let steps = clocks.step.into_iter().collect();
        Self { clocks, seed: scenario.seed, drawn, steps }
    }

    /// Adds a step of a clock.
    pub fn step(&mut self, step: ClockStep) {
        self.steps.push(step);
    }

    /// Offset of the clock of node `l` in a frame, in seconds; 0 without such a node.
    pub fn offset_s(&self, l: usize, frame: u64) -> f64 {
        let Some((offset_s, rate)) = self.drawn.get(l) else { return 0.0 };
        let time_s = frame as f64 * self.clocks.frame_interval_s;
        let steps = self.steps.iter().filter(|step| step.node == l && frame >= step.frame);
        let stepped_s: f64 = steps.map(|step| step.step_ns * 1e-9).sum();
        offset_s + rate * time_s + self.wander_s(l, frame) + stepped_s
    }

    fn wander_s(&self, l: usize, frame: u64) -> f64 {
        let deviation_s = self.clocks.wander_ns * 1e-9 * self.clocks.frame_interval_s.sqrt();
        if deviation_s == 0.0 { 0.0 } else { deviation_s * self.walk(l, frame) }
    }

    /// A random walk of unit variance per frame.
    fn walk(&self, l: usize, frame: u64) -> f64 {
        if frame == 0 {
            return 0.0;
        }
        // A standard normal number for each dyadic interval, named by its middle.
        let draw = |level: u32, middle: u64| -> f64 {
            let index = (l as u64) << 8 | u64::from(level);
            stream(self.seed, Purpose::ClockWander, [index, middle]).sample(StandardNormal)
        };
        // The value at 1, and then at every power of two.
        let (mut low, mut at_low, mut level) = (1u64, draw(0, 1), 0);
        while frame / 2 >= low {
            at_low += (low as f64).sqrt() * draw(1, 2 * low);
            low *= 2;
            level += 1;
        }
        if frame == low {
            return at_low;
        }
        let mut width = low;
        let mut at_high = at_low + (width as f64).sqrt() * draw(1, low.saturating_mul(2));
        // The middle of a Brownian bridge over `width` frames has the variance width / 4.
        while level > 0 {
            let half = width / 2;
            let middle = low + half;
            let at_middle = 0.5 * (at_low + at_high) + (0.25 * width as f64).sqrt() * draw(2, middle);
            if frame >= middle {
                (low, at_low) = (middle, at_middle);
            } else {
                at_high = at_middle;
            }
            if frame == low {
                break;
            }
            width = half;
            level -= 1;
        }
        at_low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(seed: u64, change: impl Fn(&mut NodeClocks)) -> ClockOffsets {
        let mut scenario = Scenario::default().with_seed(seed);
        change(&mut scenario.clocks);
        ClockOffsets::new(&scenario)
    }

    #[test]
    fn offsets_drift_and_step() {
        let clocks = offsets(1, |c| {
            (c.offset_ns, c.drift_ppb, c.frame_interval_s) = (100.0, 50.0, 0.1);
            c.step = Some(ClockStep { node: 2, frame: 50, step_ns: 20.0 });
        });
        let at = |l, frame| clocks.offset_s(l, frame) * 1e9;
        for l in 0..3 {
            let rate_ppb = at(l, 10) - at(l, 0);
            assert!(at(l, 0).abs() <= 100.0 && rate_ppb.abs() <= 50.0 && rate_ppb != 0.0, "{rate_ppb}");
            let step = if l == 2 { 20.0 } else { 0.0 };
            let before = at(l, 49);
            assert!((at(l, 50) - before - 0.1 * rate_ppb - step).abs() < 1e-6);
        }
        let mut again = clocks.clone();
        again.step(ClockStep { node: 2, frame: 60, step_ns: -5.0 });
        assert!((again.offset_s(2, 60) - clocks.offset_s(2, 60) + 5e-9).abs() < 1e-15);
        assert_eq!(again.offset_s(2, 59), clocks.offset_s(2, 59));
        assert_eq!(clocks.offset_s(3, 0), 0.0);
        assert_eq!(offsets(1, |_| ()).offset_s(0, 1000), 0.0);
    }

    /// Increments of a walk are independent and have the variance of the time between them.
    #[test]
    fn the_wander_is_a_random_walk() {
        let walks = 600;
        for (from, to) in [(0u64, 1u64), (0, 5), (7, 8), (8, 16), (100, 101), (3, 1000)] {
            let (mut sum, mut cross) = (0.0, 0.0);
            for seed in 0..walks {
                let clocks = offsets(seed, |c| (c.wander_ns, c.frame_interval_s) = (1.0, 1.0));
                let change = 1e9 * (clocks.offset_s(1, to) - clocks.offset_s(1, from));
                sum += change * change;
                cross += change * 1e9 * (clocks.offset_s(1, to + 9) - clocks.offset_s(1, to));
            }
            let (expected, walks) = ((to - from) as f64, walks as f64);
            // Four standard deviations of a chi-square variable and of a product.
            assert!((sum / walks / expected - 1.0).abs() < 4.0 * (2.0 / walks).sqrt(), "{from} {to} {sum}");
            assert!((cross / walks).abs() < 4.0 * (9.0 * expected / walks).sqrt(), "{from} {to} {cross}");
        }
    }
}
