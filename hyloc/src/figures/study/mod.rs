//! Monte Carlo simulations of all figures, on all cores.
//!
//! The random stream of a trial is identified by (seed, figure, point, trial). Trials run in any order on any number of
//! threads; their results are collected in trial order and only then summed.

mod angles;
mod backhaul;
mod bounds;
pub mod chain;
mod clocks;
mod literal;
mod locations;
mod near_field;
mod separation;
mod target_site;
pub mod tracking_power;

use indicatif::ProgressBar;
use model::random::{Purpose, Stream, stream};
use model::{Gain, Information, Point, Scheme, System};
use rand::RngExt;
use rayon::prelude::*;

use super::catalogue::Figure;
use super::rows::{FigureRows, Row};

/// The Monte Carlo simulation of one figure; `trials` is per point.
pub struct Study<'a> {
    pub figure: Figure,
    pub seed: u64,
    pub trials: u64,
    /// Advanced by one per trial; the study sets its length.
    pub progress: &'a ProgressBar,
}

/// Randomness of one trial.
pub struct Draw {
    /// Seed of the trial's scenario: channels, phases, codes, target, noise.
    pub scenario_seed: u64,
    /// For quantities that the scenario does not draw.
    pub stream: Stream,
}

impl Study<'_> {
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
            Figure::NearField => near_field::against_size(self),
            Figure::Clocks => clocks::against_offset(self),
            Figure::Separation => separation::against_distance(self),
            Figure::TrackingPower => tracking_power::against_power(self),
        }
    }

    fn new_rows(&self) -> FigureRows {
        FigureRows::new(self.figure, self.trials)
    }

    /// Numbers the points of the x axis, of all curves together, and sets the length of the progress bar.
    fn points<P>(
        &self,
        points: impl IntoIterator<Item = P, IntoIter: ExactSizeIterator>,
    ) -> impl Iterator<Item = (usize, P)> {
        let points = points.into_iter();
        self.progress.set_length(self.trials * points.len() as u64);
        points.enumerate()
    }

    /// Results of all trials of a point, in trial order.
    fn point<T: Send>(
        &self,
        point: usize,
        trial: impl Fn(Draw) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        (0..self.trials)
            .into_par_iter()
            .map(|index| {
                let result = trial(Draw::new(self.seed, self.figure, point, index));
                self.progress.inc(1);
                result
            })
            .collect()
    }
}

impl Draw {
    fn new(seed: u64, figure: Figure, point: usize, trial: u64) -> Self {
        let address = ((figure as u64) << 32) | point as u64;
        let mut stream = stream(seed, Purpose::Study, [address, trial]);
        Self { scenario_seed: stream.random(), stream }
    }
}

/// Exact bound and paper's bound on the position by the hybrid scheme (traces, m^2).
fn position_bounds_m2(system: &System, target_m: Point, rcs_m2: f64) -> anyhow::Result<[f64; 2]> {
    let bound = |gain| -> anyhow::Result<f64> {
        Ok(Information::new(system, target_m, rcs_m2, gain).position_crb_m2(Scheme::Hybrid)?.trace())
    };
    Ok([bound(Gain::Unknown)?, bound(Gain::Known)?])
}

/// One quantity of all trials.
fn column<T>(trials: &[T], pick: impl Fn(&T) -> f64) -> Vec<f64> {
    trials.iter().map(pick).collect()
}
