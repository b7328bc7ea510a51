//! The plan of a sweep: a scenario, axes over its keys, the number of trials, and when a point may end early.
//!
//! A plan is resolved once, before anything runs: every point of the grid becomes a checked scenario with checked settings. The
//! identity of a plan is the SHA-256 of all resolved points, so that a changed scenario file is another plan.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use fusion_center::method::MethodSettings;
use model::Scenario;
use proto::convert::PayloadFormat;
use serde::{Deserialize, Serialize};
use settings::ScenarioChoice;
use sha2::{Digest, Sha256};
use telemetry::exit::{self, Failure};

use super::grid::{GridAxis, points};

/// Most points of a grid.
const MOST_POINTS: usize = 100_000;
/// Most trials per point; limits the memory of the resamples.
pub const MOST_TRIALS: u64 = 100_000;

/// A plan as it is written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanFile {
    /// Scenario file, relative to the plan; Table I of the paper without one.
    pub scenario: Option<PathBuf>,
    /// Keys of the scenario that are the same at all points, as `key=value`.
    pub set: Vec<String>,
    /// Trials per point, at most if `gap_interval_db` is given. Default: 200.
    pub trials: Option<u64>,
    /// A point ends when the 95 % interval of its gap is at most this wide.
    pub gap_interval_db: Option<f64>,
    /// The axes; the grid has all combinations of their values.
    pub axis: Vec<GridAxis>,
}

/// One point of the grid.
#[derive(Debug, Clone, Serialize)]
pub struct GridPoint {
    /// The value on every axis, as it was written.
    pub values: Vec<String>,
    pub scenario: Scenario,
    pub method: MethodSettings,
    /// What nodes send.
    #[serde(skip)]
    pub format: PayloadFormat,
    /// The same in words, which count for the identity of the plan.
    pub sent: String,
}

/// A plan whose points are resolved.
#[derive(Debug, Clone)]
pub struct SweepPlan {
    /// Keys of the axes.
    pub axes: Vec<String>,
    pub points: Vec<GridPoint>,
    pub trials: u64,
    pub gap_interval_db: Option<f64>,
    /// SHA-256 of all of the above.
    pub identity: String,
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
        let refused = |reason: String| Failure::new(exit::USAGE, reason);
        let trials = self.trials.unwrap_or(200);
        ensure!(
            (1..=MOST_TRIALS).contains(&trials),
            refused(format!("trials = {trials}: give between 1 and {MOST_TRIALS} trials per point"))
        );
        if let Some(width_db) = self.gap_interval_db {
            let positive = width_db.is_finite() && width_db > 0.0;
            ensure!(positive, refused(format!("gap_interval_db = {width_db}: must be above 0, in dB")));
        }
        let axes: Vec<String> = self.axis.iter().map(|axis| axis.key.clone()).collect();
        if let Some(twice) = axes.iter().enumerate().find(|(i, key)| axes[..*i].contains(key)) {
            return Err(refused(format!("the axis {} is given twice", twice.1)).into());
        }
        let values = self.axis.iter().map(GridAxis::values).collect::<anyhow::Result<Vec<_>>>()?;
        let size = values.iter().try_fold(1usize, |size, axis| size.checked_mul(axis.len()));
        ensure!(
            size.is_some_and(|size| size <= MOST_POINTS),
            refused(format!("the grid has more than {MOST_POINTS} points: use fewer values per axis"))
        );
        let points = points(&values)
            .into_iter()
            .map(|values| self.point(&axes, values))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let whole = serde_json::to_vec(&(&axes, &points, trials, self.gap_interval_db))
            .context("the plan cannot be written as JSON")?;
        let identity = Sha256::digest(whole).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(SweepPlan { axes, points, trials, gap_interval_db: self.gap_interval_db, identity })
    }

    fn point(&self, axes: &[String], values: Vec<String>) -> anyhow::Result<GridPoint> {
        let mut choice = ScenarioChoice {
            file: self.scenario.clone(),
            set: self.set.clone(),
            ..ScenarioChoice::default()
        };
        let mut method = MethodSettings::default();
        let (mut payload, mut precision) = (None, None);
        for (key, value) in axes.iter().zip(&values) {
            let refused =
                |reason: String| Failure::new(exit::USAGE, format!("axis {key}, value {value}: {reason}"));
            let count = || value.parse::<usize>().map_err(|_| refused("must be a count".into()));
            match key.as_str() {
                "method" => method.method = fusion_center::method::method(value).map_err(refused)?,
                "max_targets" => method.max_targets = count()?.max(1),
                "false_alarm_probability" => {
                    let probability = value.parse().ok().filter(|p| (1e-12..=1.0).contains(p));
                    method.false_alarm_probability =
                        probability.ok_or_else(|| refused("must be between 1e-12 and 1".into()))?;
                }
                "payload" => payload = irs_node::options::payload(value).map_err(refused)?,
                "precision" => precision = irs_node::options::precision(value).map_err(refused)?,
                "nodes" => choice.nodes = Some(count()?),
                "targets" => choice.targets = Some(count()?),
                _ => choice.set.push(format!("{key}={value}")),
            }
        }
        let scenario = choice.load()?;
        if scenario.targets.len() > 1 && !axes.iter().any(|key| key == "max_targets") {
            method.max_targets = scenario.targets.len().max(8);
        }
        let site = model::System::new(&scenario).map_err(|error| choice.unusable(error))?;
        let asked = method.payload(&site);
        let format = PayloadFormat {
            kind: payload.unwrap_or(asked.kind),
            precision: precision.unwrap_or(asked.precision),
        };
        let sent = format!("{} {:?}", format.kind.name(), format.precision);
        Ok(GridPoint { values, scenario, method, format, sent })
    }
}
