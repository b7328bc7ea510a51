//! What a trial measures, and which rows the outcomes of a point make.
//!
//! The outcomes of a measure are kept as JSON, one per trial, so that the engine, the
//! files of the shards and the merge are the same for all measures. A new one is a file here and a row of [`MEASURES`].

mod angles;
mod backhaul;
mod bounds;
mod clocks;
mod end_to_end;
mod fix;
mod literal;
mod locations;
mod near_field;
mod separation;
mod target_site;
pub mod tracking;

use anyhow::Context;
use model::random::{Purpose, Stream, stream};
use model::{Gain, Information, Point, Scenario, Scheme, System};
use rand::RngExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::chain::FrameChain;
use super::plan::GridPoint;
use super::rows::{PointRows, SweepRow};
use crate::figures::statistics::{Estimate, Resampler, share};

/// The measure of a plan that names none.
pub const FIX: &str = "fix";

/// All measures.
pub static MEASURES: [MeasureKind; 11] = [
    MeasureKind {
        trials: |point| {
            let chain = fix::FixMeasure::new(point)?;
            Ok(Box::new(move |trial| kept(&chain.run(trial)?)))
        },
        gap_interval_db: |outcomes| Ok(fix::gap_interval_db(&typed(outcomes)?)),
        ..MeasureKind::of::<fix::FixMeasure>(FIX)
    },
    MeasureKind::of::<bounds::BoundMeasure>("bounds"),
    MeasureKind::of::<angles::AngleMeasure>("angles"),
    MeasureKind::of::<literal::LiteralMeasure>("literal"),
    MeasureKind::of::<locations::LocationMeasure>("locations"),
    MeasureKind::of::<end_to_end::EndToEndMeasure>("end-to-end"),
    MeasureKind::of::<backhaul::BackhaulMeasure>("backhaul"),
    MeasureKind::of::<near_field::NearFieldMeasure>("near-field"),
    MeasureKind::of::<clocks::ClockMeasure>("clocks"),
    MeasureKind::of::<separation::SeparationMeasure>("separation"),
    MeasureKind::of::<tracking::TrackingMeasure>("tracking"),
];

/// An error above this is gross: more than ten times the bound at Table I.
const GROSS_M: f64 = 1.0;

/// What is measured in a trial.
pub trait Measure: Send + Sync + 'static {
    /// What a trial gives. Numbers must be finite: JSON has no others.
    type Outcome: Serialize + DeserializeOwned;

    /// Keys of its own, beside those of scenarios, that a plan must give, and those that it may give; all of them numbers.
    const NEEDS: &'static [&'static str] = &[];
    const TAKES: &'static [&'static str] = &[];
    /// Trials of a unit of work.
    const UNIT_TRIALS: u64 = 25;

    fn trial(draw: Draw) -> anyhow::Result<Self::Outcome>;

    /// Adds the rows of a point.
    fn rows(point: &GridPoint, outcomes: &[Self::Outcome], rows: &mut PointRows);
}

/// Randomness of one trial, identified by seed, figure, point and trial.
pub struct Draw<'a> {
    pub point: &'a GridPoint,
    pub trial: u64,
    /// The scenario of the point with the seed of the trial: channels, phases, codes, target, noise.
    pub scenario: Scenario,
    /// For quantities that the scenario does not draw.
    pub stream: Stream,
}

impl<'a> Draw<'a> {
    pub fn new(point: &'a GridPoint, trial: u64) -> Self {
        let mut stream = stream(point.scenario.seed, Purpose::Study, [point.address, trial]);
        let scenario = point.scenario.clone().with_seed(stream.random());
        Self { point, trial, scenario, stream }
    }
}

/// The outcome of a trial as it is kept.
pub type KeptOutcome = Box<RawValue>;

fn kept(outcome: &impl Serialize) -> anyhow::Result<KeptOutcome> {
    to_raw_value(outcome).context("an outcome cannot be written as JSON")
}

fn typed<T: DeserializeOwned>(outcomes: &[KeptOutcome]) -> anyhow::Result<Vec<T>> {
    let read = |outcome: &KeptOutcome| serde_json::from_str(outcome.get());
    outcomes.iter().map(read).collect::<Result<_, _>>().context("an outcome is not one of this measure")
}

/// Runs the trials of a point, which may share what is expensive to make.
pub type Trials = Box<dyn Fn(u64) -> anyhow::Result<KeptOutcome> + Send + Sync>;

/// A measure by its name.
pub struct MeasureKind {
    pub name: &'static str,
    pub needs: &'static [&'static str],
    pub takes: &'static [&'static str],
    pub unit_trials: u64,
    pub trials: fn(&GridPoint) -> anyhow::Result<Trials>,
    pub rows: fn(&GridPoint, &[KeptOutcome]) -> anyhow::Result<Vec<SweepRow>>,
    /// The width of the interval by which a point may end early; infinite for other measures than fixes.
    pub gap_interval_db: fn(&[KeptOutcome]) -> anyhow::Result<f64>,
}

impl MeasureKind {
    const fn of<M: Measure>(name: &'static str) -> Self {
        Self {
            name,
            needs: M::NEEDS,
            takes: M::TAKES,
            unit_trials: M::UNIT_TRIALS,
            trials: |point| {
                let point = point.clone();
                Ok(Box::new(move |trial| kept(&M::trial(Draw::new(&point, trial))?)))
            },
            rows: |point, outcomes| {
                let mut rows = PointRows::new(point, outcomes.len());
                M::rows(point, &typed(outcomes)?, &mut rows);
                Ok(rows.into_rows())
            },
            gap_interval_db: |_| Ok(f64::INFINITY),
        }
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

/// How many squared errors are gross.
fn gross_count(squared_m2: &[f64]) -> f64 {
    squared_m2.iter().filter(|&&squared| squared > GROSS_M * GROSS_M).count() as f64
}
