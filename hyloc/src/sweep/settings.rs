//! The settings of one point: keys of scenarios, of the fusion center and the nodes, and of the measure, as `key=value`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::ensure;
use estimation::fusion::PayloadKind;
use fusion_center::method::MethodSettings;
use model::Scenario;
use proto::convert::PayloadFormat;
use proto::samples::Precision;
use settings::ScenarioChoice;
use telemetry::exit::{self, Failure};

use super::measure::MeasureKind;

/// What was set so far.
#[derive(Default)]
pub struct PointSettings {
    /// Keys that the measure needs, and all that it has.
    needs: &'static [&'static str],
    own: Vec<&'static str>,
    choice: ScenarioChoice,
    method: MethodSettings,
    /// Whether the limit of targets was set.
    limited: bool,
    payload: Option<PayloadKind>,
    precision: Option<Precision>,
    /// IRSs on a ring, even if the scenario has as many elsewhere.
    ring: Option<usize>,
    pub options: BTreeMap<String, f64>,
}

impl PointSettings {
    pub fn new(measure: &MeasureKind, scenario: Option<PathBuf>) -> Self {
        let choice = ScenarioChoice { file: scenario, ..ScenarioChoice::default() };
        Self { needs: measure.needs, own: [measure.needs, measure.takes].concat(), choice, ..Self::default() }
    }

    /// Sets a key; the last value counts.
    pub fn set(&mut self, pair: &str) -> anyhow::Result<()> {
        let refused = |reason: String| Failure::new(exit::USAGE, format!("{pair}: {reason}"));
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (key.trim(), value.trim());
        let count = || value.parse::<usize>().map_err(|_| refused("must be a count".into()));
        let number = || {
            let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| refused("must be a number".into()))
        };
        match key {
            "method" => self.method.method = fusion_center::method::method(value).map_err(refused)?,
            "max_targets" => (self.method.max_targets, self.limited) = (count()?.max(1), true),
            "false_alarm_probability" => {
                let probability = value.parse().ok().filter(|p| (1e-12..=1.0).contains(p));
                self.method.false_alarm_probability =
                    probability.ok_or_else(|| refused("must be between 1e-12 and 1".into()))?;
            }
            "payload" => self.payload = irs_node::options::payload(value).map_err(refused)?,
            "precision" => self.precision = irs_node::options::precision(value).map_err(refused)?,
            "nodes" => self.choice.nodes = Some(count()?),
            "ring" => self.ring = Some(count()?),
            "targets" => self.choice.targets = Some(count()?),
            // Relative error of the channel estimate behind zero-forcing.
            "channel_error_db" => {
                let amplitude = 10f64.powf(number()? / 20.0);
                self.choice.set.push(format!("imperfections.channel_error={amplitude}"));
            }
            // Standard deviation of offsets that are uniform within plus or minus the root of three deviations.
            "clock_deviation_ns" => {
                self.choice.set.push(format!("clocks.offset_ns={}", number()? * 3f64.sqrt()));
            }
            _ if self.own.contains(&key) => drop(self.options.insert(key.into(), number()?)),
            _ => self.choice.set.push(pair.into()),
        }
        Ok(())
    }

    /// The scenario, the settings of the fusion center, and what nodes send.
    pub fn resolve(&mut self) -> anyhow::Result<(Scenario, MethodSettings, PayloadFormat)> {
        for key in self.needs {
            let reason = format!("the measure needs {key}: make it an axis, or set it");
            ensure!(self.options.contains_key(*key), Failure::new(exit::USAGE, reason));
        }
        let mut scenario = self.choice.load()?;
        if let Some(count) = self.ring {
            scenario =
                model::scenario::ring(&scenario, count).map_err(|error| self.choice.unusable(error))?;
        }
        if scenario.targets.len() > 1 && !self.limited {
            self.method.max_targets = scenario.targets.len().max(8);
        }
        let site = model::System::new(&scenario).map_err(|error| self.choice.unusable(error))?;
        let asked = self.method.payload(&site);
        let format = PayloadFormat {
            kind: self.payload.unwrap_or(asked.kind),
            precision: self.precision.unwrap_or(asked.precision),
        };
        Ok((scenario, self.method, format))
    }
}
