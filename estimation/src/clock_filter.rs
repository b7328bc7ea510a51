//! Offsets and rates of all clocks over the frames of a run: a Kalman filter in information form.
//!
//! The state is the offset and the rate of every node's clock. Between frames offsets follow their rates, and both walk at
//! random: white noise of the frequency adds `q^2 t` to the variance of an offset, a walk of the frequency `w^2 t` to that of a
//! rate. A frame adds what it says about the offsets with its position marginalised ([`ClockUpdate`]), as information I
//! and information vector eta, which may be singular: with the predicted covariance P and H the choice of the offsets,
//!
//! `P+ = P - P H^T (1 + I P_oo)^-1 I H P`, `x+ = x + P H^T (1 + I P_oo)^-1 (eta - I x_o)`.
//!
//! The prediction is the prior of the next fix. It may be older than the frames that were added meanwhile: what a frame
//! says does not contain its prior, so that the order of solving does not matter.

use nalgebra::{DMatrix, DVector};

use crate::direct::{ClockPrior, ClockUpdate};

/// What is assumed about the clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockFilterSettings {
    /// Standard deviation of an offset before anything is received.
    pub offset_s: f64,
    /// Standard deviation of a rate, seconds per second. Default: 100 parts per billion.
    pub rate: f64,
    /// Random walk of an offset: its standard deviation after one second. Default: 0.02 ns.
    pub wander_s: f64,
    /// Random walk of a rate: its standard deviation after one second. Default: 0.02 parts per billion.
    pub rate_wander: f64,
}

impl ClockFilterSettings {
    /// The defaults with this standard deviation of the offsets.
    pub fn new(offset_s: f64) -> Self {
        Self { offset_s, rate: 100e-9, wander_s: 0.02e-9, rate_wander: 0.02e-9 }
    }
}

/// The clock of a node as the filter knows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockEstimate {
    /// Offset, seconds.
    pub offset_s: f64,
    /// Standard deviation of the offset.
    pub deviation_s: f64,
    /// Rate, seconds per second.
    pub rate: f64,
}

/// A clock is forgotten after so many successive frames in which the paths of its node are too weak.
const WEAK_FRAMES: u32 = 10;
/// Nanoseconds: the unit of the state, so that its covariance is well scaled.
const NS: f64 = 1e-9;

/// Offsets and rates of all clocks.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockFilter {
    settings: ClockFilterSettings,
    nodes: usize,
    /// Offsets in nanoseconds, then rates in nanoseconds per second.
    state: DVector<f64>,
    covariance: DMatrix<f64>,
    /// Time of the state; none before the first frame.
    time_s: Option<f64>,
    /// Successive frames in which the paths of a node were too weak.
    weak: Vec<u32>,
}

impl ClockFilter {
    /// The filter of so many nodes before anything is received.
    pub fn new(nodes: usize, settings: ClockFilterSettings) -> Self {
        let mut covariance = DMatrix::zeros(2 * nodes, 2 * nodes);
        for l in 0..nodes {
            covariance[(l, l)] = (settings.offset_s / NS).powi(2);
            covariance[(nodes + l, nodes + l)] = (settings.rate / NS).powi(2);
        }
        let (state, weak) = (DVector::zeros(2 * nodes), vec![0; nodes]);
        Self { settings, nodes, state, covariance, time_s: None, weak }
    }

    /// What is assumed about the clocks.
    pub fn settings(&self) -> &ClockFilterSettings {
        &self.settings
    }

    /// The clock of a node; none without such a node.
    pub fn estimate(&self, l: usize) -> Option<ClockEstimate> {
        (l < self.nodes).then(|| ClockEstimate {
            offset_s: self.state[l] * NS,
            deviation_s: self.covariance[(l, l)].sqrt() * NS,
            rate: self.state[self.nodes + l] * NS,
        })
    }

    /// The law of the offsets at a time; none if it is degenerate.
    pub fn prior(&self, time_s: f64) -> Option<ClockPrior> {
        let (state, covariance) = self.predicted(time_s);
        let covariance = covariance.view((0, 0), (self.nodes, self.nodes)) * (NS * NS);
        ClockPrior::new(state.rows(0, self.nodes) * NS, covariance).ok()
    }

    /// Forgets the clock of a node, which has begun anew.
    pub fn restart(&mut self, l: usize) {
        if l < self.nodes {
            self.forget(self.nodes + l, self.settings.rate);
            self.forget(l, self.settings.offset_s);
            (self.state[l], self.state[self.nodes + l], self.weak[l]) = (0.0, 0.0, 0);
        }
    }

    /// Adds what a frame at this time says.
    pub fn update(&mut self, time_s: f64, frame: &ClockUpdate) {
        let nodes = self.nodes;
        if frame.information.shape() != (nodes, nodes) || frame.weighted.len() != nodes {
            return;
        }
        (self.state, self.covariance) = self.predicted(time_s);
        self.time_s = Some(self.time_s.map_or(time_s, |last_s| last_s.max(time_s)));
        for &l in frame.stepped.iter().filter(|l| **l < nodes) {
            self.forget(l, self.settings.offset_s);
        }
        let information = &frame.information * (NS * NS);
        let own = self.covariance.view((0, 0), (nodes, nodes)).into_owned();
        let all = self.covariance.columns(0, nodes).into_owned();
        let Some(gain) = (DMatrix::identity(nodes, nodes) + &information * own).try_inverse() else { return };
        let innovation = &frame.weighted * NS - &information * self.state.rows(0, nodes);
        self.state += &all * (&gain * innovation);
        self.covariance -= &all * (gain * information) * all.transpose();
        self.covariance = (&self.covariance + self.covariance.transpose()) * 0.5;
        for l in 0..nodes {
            self.weak[l] = if frame.weak.contains(&l) { self.weak[l] + 1 } else { 0 };
            // A node that looks for echoes at the wrong time would never find them.
            if self.weak[l] >= WEAK_FRAMES {
                self.restart(l);
            }
        }
    }

    /// Makes an entry of the state independent of the others and as uncertain as this.
    fn forget(&mut self, entry: usize, deviation: f64) {
        self.covariance.row_mut(entry).fill(0.0);
        self.covariance.column_mut(entry).fill(0.0);
        self.covariance[(entry, entry)] = (deviation / NS).powi(2);
    }

    /// State and covariance at a time; times before the last are that time.
    fn predicted(&self, time_s: f64) -> (DVector<f64>, DMatrix<f64>) {
        let nodes = self.nodes;
        let elapsed_s = self.time_s.map_or(0.0, |last_s| (time_s - last_s).max(0.0));
        let mut state = self.state.clone();
        (0..nodes).for_each(|l| state[l] += self.state[nodes + l] * elapsed_s);
        let mut carry = DMatrix::identity(2 * nodes, 2 * nodes);
        (0..nodes).for_each(|l| carry[(l, nodes + l)] = elapsed_s);
        let mut covariance = &carry * &self.covariance * carry.transpose();
        let (q, w) = (self.settings.wander_s / NS, self.settings.rate_wander / NS);
        for l in 0..nodes {
            let r = nodes + l;
            // The integral of a random walk.
            covariance[(l, l)] += q * q * elapsed_s + w * w * elapsed_s.powi(3) / 3.0;
            covariance[(l, r)] += w * w * elapsed_s.powi(2) / 2.0;
            covariance[(r, l)] += w * w * elapsed_s.powi(2) / 2.0;
            covariance[(r, r)] += w * w * elapsed_s;
        }
        (state, covariance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::random::{Purpose, complex_normal, stream};

    /// A frame that says the offsets of these clocks to within `deviation_s` each, with the error that comes with it.
    fn told(offsets_s: &DVector<f64>, deviation_s: f64, draw: &mut impl FnMut() -> f64) -> ClockUpdate {
        let nodes = offsets_s.len();
        let information = DMatrix::from_diagonal_element(nodes, nodes, deviation_s.powi(-2));
        let found = offsets_s.map(|offset_s| offset_s + deviation_s * draw());
        let prior = ClockPrior::independent(nodes, 1e-7).unwrap();
        ClockUpdate {
            posterior: prior.clone(),
            prior,
            weighted: &information * found,
            information,
            stepped: Vec::new(),
            at_edge: Vec::new(),
            weak: Vec::new(),
        }
    }

    fn normal(seed: u64) -> impl FnMut() -> f64 {
        let mut draws = stream(seed, Purpose::Study, [3, 0]);
        move || complex_normal(&mut draws, 2.0).re
    }

    /// 400 runs of 100 frames with offset and rate drawn from the prior: the squared error is that of the covariance.
    #[test]
    fn errors_have_the_covariance_of_the_filter() {
        let settings =
            ClockFilterSettings { wander_s: 0.0, rate_wander: 0.0, ..ClockFilterSettings::new(1e-7) };
        let (mut nees, runs) = (0.0, 400);
        for seed in 0..runs {
            let mut draw = normal(seed);
            let (offset_s, rate) = (1e-7 * draw(), 1e-7 * draw());
            let mut filter = ClockFilter::new(1, settings);
            for frame in 0..100 {
                let time_s = 5.0 + 0.02 * f64::from(frame);
                let truth = DVector::from_element(1, offset_s + rate * (time_s - 5.0));
                filter.update(time_s, &told(&truth, 1e-9, &mut draw));
            }
            let found = filter.estimate(0).unwrap();
            let error_s = found.offset_s - (offset_s + rate * 0.02 * 99.0);
            nees += (error_s / found.deviation_s).powi(2) / runs as f64;
            // Offset and rate from 100 frames: (4 F - 2) / (F (F + 1)) of the variance of one.
            assert!((found.deviation_s / 1e-9 / (398f64 / 10_100.0).sqrt() - 1.0).abs() < 0.02, "{found:?}");
            assert!((found.rate - rate).abs() < 5.0 * 1e-9 / 0.58 / 10.0, "{} {rate}", found.rate);
        }
        assert!((nees - 1.0).abs() < 3.0 * (2.0 / runs as f64).sqrt(), "{nees}");
    }

    /// A step is forgotten about for its node alone, and a restart forgets the rate as well.
    #[test]
    fn a_step_costs_the_others_nothing() {
        let mut filter = ClockFilter::new(3, ClockFilterSettings::new(1e-7));
        let mut draw = normal(1);
        let truth = DVector::from_row_slice(&[50e-9, -80e-9, 20e-9]);
        for frame in 0..50 {
            filter.update(0.02 * f64::from(frame), &told(&truth, 1e-9, &mut draw));
        }
        let before: Vec<ClockEstimate> = (0..3).map(|l| filter.estimate(l).unwrap()).collect();
        let mut after = truth.clone();
        after[1] += 20e-9;
        let stepped = ClockUpdate { stepped: vec![1], ..told(&after, 1e-9, &mut draw) };
        filter.update(1.0, &stepped);
        let error_s = |filter: &ClockFilter, l: usize, truth: &DVector<f64>| {
            (filter.estimate(l).unwrap().offset_s - truth[l]).abs()
        };
        for (l, before) in before.iter().enumerate() {
            let now = filter.estimate(l).unwrap();
            assert!(error_s(&filter, l, &after) < 4.0 * now.deviation_s, "{l}: {now:?}");
            let widened = now.deviation_s > 2.0 * before.deviation_s;
            assert_eq!(widened, l == 1, "{now:?}");
        }
        filter.restart(0);
        let anew = filter.estimate(0).unwrap();
        assert!((anew.deviation_s / 1e-7 - 1.0).abs() < 1e-9 && anew.rate == 0.0);
        assert!(filter.estimate(2).unwrap().deviation_s < 1e-9 && filter.estimate(3).is_none());
        let prior = filter.prior(1.0).unwrap();
        assert!(prior.covariance_s2()[(0, 2)] == 0.0 && (prior.deviation_s(0) / 1e-7 - 1.0).abs() < 1e-9);
    }
}
