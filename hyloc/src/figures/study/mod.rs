//! Monte Carlo: every figure's numbers, trial by trial, on all cores.
//!
//! The randomness of a trial is a stream addressed by (seed, figure, point, trial). Trials run in any order on any
//! number of threads; their outcomes are collected in trial order and only then summed.

mod angles;
mod backhaul;
mod bounds;
mod chain;
mod literal;
mod locations;

use indicatif::ProgressBar;
use model::random::{Purpose, Stream, stream};
use rand::RngExt;
use rayon::prelude::*;

use super::catalogue::Figure;
use super::rows::Row;
use super::statistics::Estimate;

/// One figure's Monte Carlo.
pub struct Study<'a> {
    /// Which figure.
    pub figure: Figure,
    /// Seed of the run.
    pub seed: u64,
    /// Trials per point.
    pub trials: u64,
    /// Advanced by one per trial.
    pub progress: &'a ProgressBar,
}

/// What is random in one trial.
pub struct Draw {
    /// Seed of the trial's scenario: channels, phases, codes, target, noise.
    pub scenario_seed: u64,
    /// For what the scenario does not draw.
    pub stream: Stream,
}

impl Study<'_> {
    /// The rows of the figure.
    pub fn rows(&self) -> anyhow::Result<Vec<Row>> {
        match self.figure {
            Figure::CrbElements => bounds::against_elements(self),
            Figure::CrbSensors => bounds::against_sensors(self),
            Figure::CrbCoverage => bounds::against_radius(self),
            Figure::CrbIrsCount => bounds::against_irs_count(self),
            Figure::AnglePower => angles::against_power(self),
            Figure::AnglePowerFullRank => angles::against_power_full_rank(self),
            Figure::LiteralSweep => literal::sweep(self),
            Figure::LocationPower => locations::against_power(self),
            Figure::LocationDistance => locations::against_distance(self),
            Figure::EndToEndPower => chain::against_power(self),
            Figure::Imperfections => chain::under_imperfections(self),
            Figure::BackhaulAccuracy => backhaul::against_bytes(self),
        }
    }

    /// Outcomes of all trials of a point, in trial order.
    fn point<T: Send>(
        &self,
        point: usize,
        trial: impl Fn(Draw) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let address = (self.figure.key() << 32) | point as u64;
        (0..self.trials)
            .into_par_iter()
            .map(|index| {
                let mut stream = stream(self.seed, Purpose::Study, [address, index]);
                let outcome = trial(Draw { scenario_seed: stream.random(), stream });
                self.progress.inc(1);
                outcome
            })
            .collect()
    }
}

/// Points on the horizontal axis of a figure, all its curves together.
pub fn point_count(figure: Figure) -> usize {
    match figure {
        Figure::CrbElements | Figure::CrbSensors => bounds::COUNTS.len(),
        Figure::CrbCoverage => bounds::RADII_M.len(),
        Figure::CrbIrsCount => bounds::IRS_COUNTS.len(),
        Figure::AnglePower | Figure::AnglePowerFullRank => angles::POWERS_DBM.len(),
        Figure::LiteralSweep => literal::point_count(),
        Figure::LocationPower => locations::POWERS_DBM.len(),
        Figure::LocationDistance => locations::DISTANCES_M.len(),
        Figure::EndToEndPower => chain::POWERS_DBM.len(),
        Figure::Imperfections => chain::imperfect_points().len(),
        Figure::BackhaulAccuracy => backhaul::POWERS_DBM.len(),
    }
}

/// A number that is not drawn.
fn exactly(value: f64) -> Estimate {
    Estimate { value, low: value, high: value }
}

/// One quantity of all trials.
fn column<T>(outcomes: &[T], pick: impl Fn(&T) -> f64) -> Vec<f64> {
    outcomes.iter().map(pick).collect()
}
