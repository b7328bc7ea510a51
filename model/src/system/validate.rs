//! Validation of a system, whether from a scenario or from the wire.

use std::f64::consts::TAU;

use super::{Irs, SystemParts};
use crate::algebra::CMatrix;
use crate::geometry::Orientation;
use crate::scenario::ScenarioError;
use crate::scenario::validate::{Check, count, extents, grid, irs_count, place, show, within};

/// Tolerance of the orthonormality of the codes' rows.
const ORTHONORMAL: f64 = 1e-6;

impl SystemParts {
    pub(super) fn validate(&self) -> Check {
        within("wavelength_m", self.wavelength_m, 1e-6, 1e3)?;
        within("spacing_wavelengths", self.spacing_wavelengths, 0.01, 10.0)?;
        within("bandwidth_hz", self.bandwidth_hz, 1.0, 1e12)?;
        within("noise_power_w", self.noise_power_w, 1e-33, 1e7)?;
        within("transmit_power_w", self.transmit_power_w, 1e-3, 1e7)?;
        within("prior.median_m2", self.prior.median_m2, 1e-10, 1e10)?;
        within("prior.deviation_db", self.prior.deviation_db, 0.0, 30.0)?;
        within("clock_prior_s", self.clock_prior_s, 0.0, 1e-3)?;
        count("subcarriers", self.subcarriers)?;
        grid("sensors", self.sensor_grid)?;
        grid("elements", self.element_grid)?;
        if self.coherent_frames == 0 {
            return Err(ScenarioError::new("coherent_frames", 0, "must be at least 1"));
        }
        self.validate_places()?;
        let mut owner = vec![None; self.subcarriers];
        for (k, irs) in self.irs.iter().enumerate() {
            self.validate_irs(k, irs)?;
            self.validate_subcarriers(k, irs, &mut owner)?;
        }
        Ok(())
    }

    fn validate_places(&self) -> Check {
        place("base_station_m", self.base_station_m.into())?;
        place("coverage.min_m", self.coverage.min_m)?;
        place("coverage.max_m", self.coverage.max_m)?;
        extents(&self.coverage)?;
        irs_count(self.irs.len())
    }

    fn validate_irs(&self, k: usize, irs: &Irs) -> Check {
        let key = |name: &str| format!("irs[{k}].{name}");
        place(&key("position_m"), irs.pose.position_m.into())?;
        let Orientation { azimuth_rad, elevation_rad, roll_rad } = irs.pose.orientation;
        for (name, angle) in
            [("azimuth_rad", azimuth_rad), ("elevation_rad", elevation_rad), ("roll_rad", roll_rad)]
        {
            within(&key(name), angle, -TAU, TAU)?;
        }
        if self.irs[..k].iter().any(|other| other.pose.position_m == irs.pose.position_m) {
            let shown = show(irs.pose.position_m.into());
            return Err(ScenarioError::new(key("position_m"), shown, "is where another IRS already stands"));
        }
        let streams = irs.reflected_signal.ncols();
        shape(&key("reflected_signal"), &irs.reflected_signal, (self.element_grid.count(), streams.max(1)))?;
        shape(&key("codes"), &irs.waveform.codes, (streams, irs.waveform.subcarriers.len()))?;
        energy(&key("reflected_signal"), &irs.reflected_signal)?;
        energy(&key("codes"), &irs.waveform.codes)?;
        let product = &irs.waveform.codes * irs.waveform.codes.adjoint();
        let error = (product - CMatrix::identity(streams, streams)).camax();
        if error > ORTHONORMAL {
            return Err(ScenarioError::new(key("codes"), error, "rows must be orthonormal"));
        }
        Ok(())
    }

    fn validate_subcarriers(&self, k: usize, irs: &Irs, owner: &mut [Option<usize>]) -> Check {
        for (i, &subcarrier) in irs.waveform.subcarriers.iter().enumerate() {
            let refuse = |rule: String| {
                Err(ScenarioError::new(format!("irs[{k}].subcarriers[{i}]"), subcarrier, rule))
            };
            match owner.get_mut(subcarrier) {
                None => return refuse(format!("must be below {}", self.subcarriers)),
                Some(Some(other)) => return refuse(format!("is owned by irs[{other}] already")),
                Some(free) => *free = Some(k),
            }
            if i > 0 && irs.waveform.subcarriers[i - 1] > subcarrier {
                return refuse("must be in ascending order".into());
            }
        }
        Ok(())
    }
}

fn shape(key: &str, matrix: &CMatrix, expected: (usize, usize)) -> Check {
    if matrix.shape() == expected {
        return Ok(());
    }
    let (rows, columns) = matrix.shape();
    let rule = format!("must be {} x {}", expected.0, expected.1);
    Err(ScenarioError::new(key, format!("{rows} x {columns}"), rule))
}

/// Checks that all entries are finite and that the fourth power of their norm stays within the range of a double.
fn energy(key: &str, matrix: &CMatrix) -> Check {
    if matrix.iter().any(|value| !(value.re.is_finite() && value.im.is_finite())) {
        return Err(ScenarioError::new(key, "a value", "every entry must be finite"));
    }
    within(&format!("{key} (energy)"), matrix.norm_squared(), 1e-60, 1e60)
}
