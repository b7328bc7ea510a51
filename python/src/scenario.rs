//! A scenario with its site and its echo source.

use std::path::PathBuf;
use std::sync::Arc;

use hyloc::{DetectionConditions, summarise_scenario};
use model::{EchoSource, Scenario, System};
use pyo3::prelude::*;
use settings::{Layers, SettingsError, changed_scenario, load_scenario, scenario_of_text};

use crate::errors::{ErrorKind, of_settings};
use crate::site::SiteHandle;
use crate::work::detached;

/// A checked scenario.
#[pyclass(name = "ScenarioHandle", module = "hyloc._hyloc", frozen)]
pub struct ScenarioHandle {
    pub scenario: Scenario,
    pub source: Arc<EchoSource>,
    pub system: Arc<System>,
}

impl ScenarioHandle {
    fn new(py: Python<'_>, scenario: Result<Scenario, SettingsError>) -> PyResult<Self> {
        let scenario = scenario.map_err(|error| of_settings(&error, ErrorKind::Scenario))?;
        let built = detached(py, |_| EchoSource::new(&scenario))?;
        let source = built
            .map_err(|error| ErrorKind::Scenario.error(format!("the scenario cannot be built: {error}")))?;
        Ok(Self { system: Arc::new(source.system().clone()), source: Arc::new(source), scenario })
    }
}

#[pymethods]
impl ScenarioHandle {
    /// Table I of the paper.
    #[staticmethod]
    fn table_one(py: Python<'_>) -> PyResult<Self> {
        Self::new(py, Ok(Scenario::default()))
    }

    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let layers = Layers { environment: Some(Default::default()), ..Layers::from_file(path) };
        Self::new(py, load_scenario(&layers))
    }

    #[staticmethod]
    fn from_toml(py: Python<'_>, text: &str) -> PyResult<Self> {
        Self::new(py, scenario_of_text(text))
    }

    /// The scenario with `key=value` pairs applied.
    fn changed(&self, py: Python<'_>, pairs: Vec<String>) -> PyResult<Self> {
        Self::new(py, changed_scenario(&self.scenario, pairs))
    }

    fn to_toml(&self) -> PyResult<String> {
        toml::to_string(&self.scenario).map_err(|error| ErrorKind::Internal.error(error))
    }

    /// The answer of `hyloc scenario check --json`.
    fn check(&self, py: Python<'_>, frames_per_fix: u64) -> PyResult<String> {
        let conditions = DetectionConditions { frames_per_fix, ..DetectionConditions::default() };
        let summary = detached(py, |_| {
            let summary =
                summarise_scenario(&self.scenario, conditions).map_err(|error| format!("{error:#}"))?;
            serde_json::to_string(&summary).map_err(|error| error.to_string())
        })?;
        summary.map_err(|reason| ErrorKind::Scenario.error(reason))
    }

    #[getter]
    fn site(&self) -> SiteHandle {
        SiteHandle { system: self.system.clone() }
    }

    #[getter]
    fn target_count(&self) -> usize {
        self.scenario.targets.len()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.scenario.seed
    }

    #[getter]
    fn power_dbm(&self) -> f64 {
        self.scenario.base_station.power_dbm
    }

    #[getter]
    fn rcs_m2(&self) -> f64 {
        self.scenario.rcs_m2()
    }
}
