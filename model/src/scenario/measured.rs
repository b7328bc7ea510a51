//! Reflected signals and codes that were measured, instead of drawn by the channel model.
//!
//! A scenario names the file; whoever loads the scenario reads it and hands the arrays over ([`MeasuredSignals::with_irs`]), since
//! this crate reads no files. What is measured at one transmit power is scaled to that of the scenario: S_k is proportional to the
//! amplitude that the base station sends.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Scenario;
use super::validate::{Check, ScenarioError};
use crate::algebra::CMatrix;
use crate::waveform::Waveform;

/// What was measured at one IRS.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredIrs {
    /// S_k, N x D_k, sqrt(W), at the transmit power of the measurement.
    pub reflected_signal: CMatrix,
    /// Subcarriers and codes X_k.
    pub waveform: Waveform,
}

/// Measured signals of all IRSs. In a scenario file this is the path of their file.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredSignals {
    /// The file, as the scenario names it.
    pub file: String,
    irs: Vec<MeasuredIrs>,
    transmit_power_w: f64,
}

impl MeasuredSignals {
    /// The signals of a file, measured at this transmit power. They are checked with the site that they belong to.
    pub fn with_irs(file: String, irs: Vec<MeasuredIrs>, transmit_power_w: f64) -> Self {
        Self { file, irs, transmit_power_w }
    }

    /// S_k and the waveform of every IRS at the power of a scenario.
    pub(crate) fn at_power(&self, transmit_power_w: f64) -> (Vec<CMatrix>, Vec<Waveform>) {
        let amplitude = (transmit_power_w / self.transmit_power_w).sqrt();
        // The power of a scenario comes from decibels: rounding must not change what was measured.
        let is_same = (amplitude - 1.0).abs() < 1e-12;
        let scaled = |signal: &CMatrix| if is_same { signal.clone() } else { signal.scale(amplitude) };
        self.irs.iter().map(|irs| (scaled(&irs.reflected_signal), irs.waveform.clone())).unzip()
    }

    /// Checks that the signals were read, that there is one for every IRS, and that nothing in the scenario needs the channel
    /// model behind them.
    pub(super) fn validate(&self, scenario: &Scenario) -> Check {
        let refuse = |rule: String| Err(ScenarioError::new("measured", &self.file, rule));
        let (found, expected) = (self.irs.len(), scenario.irs.len());
        if found == 0 {
            return refuse("the file has not been read".into());
        }
        if found != expected {
            return refuse(format!("has signals of {found} IRSs, the scenario has {expected}"));
        }
        if !(self.transmit_power_w > 0.0 && self.transmit_power_w.is_finite()) {
            return refuse("transmit_power_w must be above zero".into());
        }
        let imperfections = &scenario.imperfections;
        let conflict = |key: &str, value: String| {
            let rule = "needs the channel model, which measured signals replace: leave out one of the two";
            Err(ScenarioError::new(format!("imperfections.{key}"), value, rule))
        };
        if imperfections.channel_error > 0.0 {
            return conflict("channel_error", imperfections.channel_error.to_string());
        }
        if imperfections.second_order_reflections {
            return conflict("second_order_reflections", "true".into());
        }
        Ok(())
    }
}

impl Serialize for MeasuredSignals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.file.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MeasuredSignals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::with_irs(String::deserialize(deserializer)?, Vec::new(), 1.0))
    }
}
