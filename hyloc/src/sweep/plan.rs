//! The plan of a sweep: a scenario, axes over its keys, the number of trials, what is measured, and when a point may end early.
//!
//! A plan is resolved once, before anything runs: every point of the grid becomes a checked scenario with checked settings. The
//! identity of a plan is the SHA-256 of all resolved points, so that a changed scenario file is another plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use fusion_center::method::MethodSettings;
use model::Scenario;
use proto::convert::PayloadFormat;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use telemetry::exit::{self, Failure};

use super::grid::{GridAxis, combinations};
use super::measure::{FIX, MEASURES, MeasureKind};
use super::settings::PointSettings;
use crate::figures::catalogue::Figure;

/// Most points of a grid.
const MOST_POINTS: usize = 100_000;
/// Most trials per point; limits the memory of the resamples.
const MOST_TRIALS: u64 = 100_000;
/// Name of the axis of the curves.
const CURVE: &str = "curve";

/// A plan as it is written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanFile {
    /// Figure of the report that the plan makes, and its caption.
    pub figure: Option<String>,
    pub caption: String,
    /// What a trial measures. Default: fix.
    pub measure: Option<String>,
    /// Scenario file, relative to the plan; Table I of the paper without one.
    pub scenario: Option<PathBuf>,
    /// Keys that are the same at all points, as `key=value`.
    pub set: Vec<String>,
    /// Trials per point, at most if `gap_interval_db` is given. Default: 200.
    pub trials: Option<u64>,
    /// Trials per point of `hyloc figures --quick`.
    pub quick_trials: Option<u64>,
    /// A point ends when the 95 % interval of its gap is at most this wide.
    pub gap_interval_db: Option<f64>,
    /// Whether all points have the same scenes, if scenes are drawn per trial.
    pub same_scenes: bool,
    /// The axes; the grid has all combinations of their values.
    pub axis: Vec<GridAxis>,
    /// Curves with axes of their own, whose points come one after the other.
    pub curve: Vec<PlanCurve>,
}

/// One of several curves of a plan.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanCurve {
    pub name: String,
    /// Keys that are the same at all points of the curve, as `key=value`.
    pub set: Vec<String>,
    /// The axes of the curve, beside those of the plan.
    pub axis: Vec<GridAxis>,
}

/// One point of the grid.
#[derive(Debug, Clone, Serialize)]
pub struct GridPoint {
    pub index: usize,
    /// The name of its curve, if there are several.
    pub curve: String,
    /// The value on every axis, as it was written; empty on axes of other curves.
    pub values: Vec<String>,
    /// The value on the first axis of its curve or of the plan; not a number if it has none.
    pub x: f64,
    /// Identifies its random streams, of all figures and points.
    pub address: u64,
    pub scenario: Scenario,
    pub method: MethodSettings,
    /// What nodes send.
    #[serde(skip)]
    pub format: PayloadFormat,
    /// The same in words, which count for the identity of the plan.
    pub sent: String,
    /// Settings of the measure.
    options: BTreeMap<String, f64>,
}

impl GridPoint {
    /// A setting of the measure.
    pub fn option(&self, key: &str) -> Option<f64> {
        self.options.get(key).copied()
    }
}

/// A plan whose points are resolved.
pub struct SweepPlan {
    pub figure: Option<Figure>,
    pub measure: &'static MeasureKind,
    /// Keys of the axes.
    pub axes: Vec<String>,
    pub points: Vec<GridPoint>,
    pub trials: u64,
    pub gap_interval_db: Option<f64>,
    /// SHA-256 of all of the above.
    pub identity: String,
}

impl SweepPlan {
    /// The figure, or `sweep`.
    pub fn name(&self) -> &'static str {
        self.figure.map_or("sweep", Figure::name)
    }
}

fn refused(reason: String) -> Failure {
    Failure::new(exit::USAGE, reason)
}

impl PlanFile {
    /// Reads a plan; the scenario is relative to it.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut plan: Self = toml::from_str(&text).map_err(|error| {
            let reason = error.to_string().trim().replace('\n', " ");
            Failure::new(exit::DATA, format!("{}: {reason}", path.display()))
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        plan.scenario = plan.scenario.map(|scenario| folder.join(scenario));
        Ok(plan)
    }

    /// Checks the plan and resolves its points.
    pub fn resolve(&self) -> anyhow::Result<SweepPlan> {
        let (measure, trials) = (self.measure()?, self.trials.unwrap_or(200));
        let figure = self.figure.as_deref().map(Figure::named).transpose()?;
        if let Some(figure) = figure.filter(|figure| figure.plan().measure != self.measure) {
            let own = figure.plan().measure()?.name;
            bail!(refused(format!("the figure {figure} has the measure {own}, not {}", measure.name)));
        }
        let reason =
            format!("--trials {trials}, or trials = {trials} in a plan: give between 1 and {MOST_TRIALS}");
        ensure!((1..=MOST_TRIALS).contains(&trials), refused(reason));
        if let Some(width_db) = self.gap_interval_db {
            let positive = width_db.is_finite() && width_db > 0.0;
            ensure!(positive, refused(format!("gap_interval_db = {width_db}: must be above 0, in dB")));
            let reason = format!("gap_interval_db: the measure {} has no such gap", measure.name);
            ensure!(measure.name == FIX, refused(reason));
        }
        let none = [PlanCurve::default()];
        let curves = if self.curve.is_empty() { &none[..] } else { &self.curve };
        let mut axes: Vec<String> = self.curve.first().map(|_| CURVE.into()).into_iter().collect();
        for axis in self.axis.iter().chain(curves.iter().flat_map(|curve| &curve.axis)) {
            if !axes.contains(&axis.key) {
                axes.push(axis.key.clone());
            }
        }
        let mut points = Vec::new();
        for curve in curves {
            let own: Vec<&GridAxis> = self.axis.iter().chain(&curve.axis).collect();
            let twice = |(i, axis): &(usize, &&GridAxis)| own[..*i].iter().any(|other| other.key == axis.key);
            if let Some((_, axis)) = own.iter().enumerate().find(twice) {
                bail!(refused(format!("the axis {} is given twice", axis.key)));
            }
            let values = own.iter().map(|axis| axis.values()).collect::<anyhow::Result<Vec<_>>>()?;
            let size = values.iter().try_fold(1usize, |size, axis| size.checked_mul(axis.len()));
            let reason = format!("the grid has more than {MOST_POINTS} points: use fewer values per axis");
            ensure!(size.is_some_and(|size| points.len() + size <= MOST_POINTS), refused(reason));
            for values in combinations(&values) {
                let index = points.len();
                let number = if self.same_scenes { 0 } else { index as u64 };
                let address = figure.map_or(0, |figure| figure as u64) << 32 | number;
                let own: Vec<_> = own.iter().copied().zip(values).collect();
                points.push(GridPoint { index, address, ..self.point(measure, &axes, curve, &own)? });
            }
        }
        let whole = serde_json::to_vec(&(measure.name, &axes, &points, trials, self.gap_interval_db))
            .context("the plan cannot be written as JSON")?;
        let identity = Sha256::digest(whole).iter().map(|byte| format!("{byte:02x}")).collect();
        let gap_interval_db = self.gap_interval_db;
        Ok(SweepPlan { figure, measure, axes, points, trials, gap_interval_db, identity })
    }

    fn measure(&self) -> anyhow::Result<&'static MeasureKind> {
        let name = self.measure.as_deref().unwrap_or(FIX);
        let unknown = || {
            let names: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
            refused(format!("there is no measure `{name}`; there are {}", names.join(", ")))
        };
        Ok(MEASURES.iter().find(|measure| measure.name == name).ok_or_else(unknown)?)
    }

    /// A point by its values on the axes of its curve.
    fn point(
        &self,
        measure: &MeasureKind,
        axes: &[String],
        curve: &PlanCurve,
        own: &[(&GridAxis, String)],
    ) -> anyhow::Result<GridPoint> {
        let mut settings = PointSettings::new(measure, self.scenario.clone());
        let swept = own.iter().flat_map(|(axis, value)| axis.settings(value));
        for pair in self.set.iter().chain(&curve.set).cloned().chain(swept) {
            settings.set(&pair)?;
        }
        let value = |key: &str| own.iter().find(|(axis, _)| axis.key == key).map(|(_, value)| value.clone());
        let named =
            |key: &String| if key == CURVE { curve.name.clone() } else { value(key).unwrap_or_default() };
        let first = curve.axis.first().or(self.axis.first()).and_then(|axis| value(&axis.key)?.parse().ok());
        let (scenario, method, format) = settings.resolve()?;
        Ok(GridPoint {
            index: 0,
            curve: curve.name.clone(),
            values: axes.iter().map(named).collect(),
            x: first.unwrap_or(f64::NAN),
            address: 0,
            scenario,
            method,
            format,
            sent: format!("{} {:?}", format.kind.name(), format.precision),
            options: settings.options,
        })
    }
}
