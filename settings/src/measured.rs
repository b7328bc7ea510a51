//! Measured signals of a scenario, from an archive of numpy arrays: what `hyloc scenario export` writes, or another program.
//!
//! | array | shape | content |
//! | --- | --- | --- |
//! | `frequencies_hz` | L | baseband frequencies of the subcarriers, `(i - L/2) W / L` |
//! | `transmit_power_w` | one number | transmit power at which the signals were measured |
//! | `reflected_signal_K` | N x D_K | S_K of IRS K, sqrt(W) |
//! | `codes_K` | D_K x n_K | X_K, with orthonormal rows |
//! | `subcarriers_K` | n_K | the subcarriers of IRS K, ascending |

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use arrays::{ArrayError, NpyArray, NpzArchive};
use model::scenario::{MeasuredIrs, MeasuredSignals};
use model::waveform::{Waveform, subcarrier_frequency_hz};
use model::{CMatrix, MOST_IRS, Scenario};

use crate::SettingsError;

/// Largest array: 4096 elements or subcarriers times as many streams.
const MOST_ENTRIES: usize = 4096 * 4096;

/// Largest deviation of a frequency from its place on the grid, as a share of the spacing.
const OFF_GRID: f64 = 1e-6;

/// Reads the measured signals of a scenario, if it names a file, which is relative to that of the scenario. Number and bandwidth of the
/// subcarriers become those of the file.
pub(crate) fn read_measured(
    scenario: &mut Scenario,
    scenario_file: Option<&Path>,
) -> Result<(), SettingsError> {
    let Some(named) = scenario.measured.as_ref().map(|measured| PathBuf::from(&measured.file)) else {
        return Ok(());
    };
    let folder = scenario_file.and_then(Path::parent).unwrap_or(Path::new(""));
    let path = std::path::absolute(folder.join(named)).unwrap_or_else(|_| folder.to_path_buf());
    let unreadable = |source| SettingsError::File { path: path.clone(), source };
    let file = File::open(&path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(SettingsError::content(&path, "no file"));
    }
    let mut archive = NpzArchive::open(BufReader::new(file)).map_err(|error| told(&path, error))?;
    let mut reader = SignalReader { path: &path, archive: &mut archive };
    let (bandwidth_hz, subcarriers) = reader.grid(scenario)?;
    (scenario.signal.bandwidth_hz, scenario.signal.subcarriers) = (bandwidth_hz, subcarriers);
    let transmit_power_w = reader.number("transmit_power_w")?;
    let count =
        (0..=MOST_IRS).take_while(|k| reader.archive.contains(&format!("reflected_signal_{k}"))).count();
    if count == 0 {
        return Err(told(&path, ArrayError::Missing { name: "reflected_signal_0".into() }));
    }
    let irs = (0..count).map(|k| reader.irs(k)).collect::<Result<Vec<_>, _>>()?;
    let measured = MeasuredSignals::with_irs(path.display().to_string(), irs, transmit_power_w);
    scenario.measured = Some(measured);
    Ok(())
}

fn told(path: &Path, error: ArrayError) -> SettingsError {
    match error {
        ArrayError::Io(source) => SettingsError::File { path: path.to_path_buf(), source },
        other => SettingsError::content(path, other),
    }
}

struct SignalReader<'a> {
    path: &'a Path,
    archive: &'a mut NpzArchive<BufReader<File>>,
}

impl SignalReader<'_> {
    fn refuse<T>(&self, reason: String) -> Result<T, SettingsError> {
        Err(SettingsError::content(self.path, reason))
    }

    fn reals(&mut self, name: &str) -> Result<NpyArray<f64>, SettingsError> {
        let read = self.archive.array(name).and_then(|array| array.reals(MOST_ENTRIES));
        read.map_err(|error| told(self.path, error))
    }

    fn number(&mut self, name: &str) -> Result<f64, SettingsError> {
        let array = self.reals(name)?;
        match array.values[..] {
            [value] if value > 0.0 && value.is_finite() => Ok(value),
            [value] => self.refuse(format!("{name} = {value}: must be a number above zero")),
            _ => self.refuse(format!("{name}.shape = {}: must be a single number", array.shown())),
        }
    }

    /// Bandwidth and number of the subcarriers. The bandwidth of the scenario stays where it is the same.
    fn grid(&mut self, scenario: &Scenario) -> Result<(f64, usize), SettingsError> {
        let frequencies = self.reals("frequencies_hz")?;
        let (values, count) = (&frequencies.values, frequencies.values.len());
        if frequencies.shape.len() != 1 || count < 2 {
            return self.refuse(format!(
                "frequencies_hz.shape = {}: must be (L,) with L of at least 2",
                frequencies.shown()
            ));
        }
        let stated_hz = scenario.signal.bandwidth_hz;
        let measured_hz = (values[count - 1] - values[0]) * count as f64 / (count - 1) as f64;
        let is_stated = (measured_hz - stated_hz).abs() <= 1e-9 * stated_hz;
        let bandwidth_hz = if is_stated { stated_hz } else { measured_hz };
        let spacing_hz = bandwidth_hz / count as f64;
        for (i, value) in values.iter().enumerate() {
            let expected_hz = subcarrier_frequency_hz(i, count, bandwidth_hz);
            let off_hz = (value - expected_hz).abs();
            if off_hz.is_nan() || off_hz > OFF_GRID * spacing_hz || spacing_hz <= 0.0 {
                return self.refuse(format!(
                    "frequencies_hz[{i}] = {value}: must be (i - L/2) W / L, here {expected_hz} for L = {count} and \
                     W = {bandwidth_hz} Hz"
                ));
            }
        }
        Ok((bandwidth_hz, count))
    }

    fn matrix(&mut self, name: &str) -> Result<CMatrix, SettingsError> {
        let read = self.archive.array(name).and_then(|array| array.complex(MOST_ENTRIES));
        let array = read.map_err(|error| told(self.path, error))?;
        let [rows, columns] = array.shape[..] else {
            return self.refuse(format!("{name}.shape = {}: must have two dimensions", array.shown()));
        };
        if let Some(at) =
            array.values.iter().position(|value| !(value.re.is_finite() && value.im.is_finite()))
        {
            return self.refuse(format!("{name}[{}, {}]: must be finite", at / columns, at % columns));
        }
        Ok(CMatrix::from_row_slice(rows, columns, &array.values))
    }

    fn irs(&mut self, k: usize) -> Result<MeasuredIrs, SettingsError> {
        let name = format!("subcarriers_{k}");
        let read = self.archive.array(&name).and_then(|array| array.integers(MOST_ENTRIES));
        let subcarriers = read.map_err(|error| told(self.path, error))?;
        if subcarriers.shape.len() != 1 {
            return self.refuse(format!("{name}.shape = {}: must have one dimension", subcarriers.shown()));
        }
        let index = |value: &u64| usize::try_from(*value).unwrap_or(usize::MAX);
        let subcarriers = subcarriers.values.iter().map(index).collect();
        let reflected_signal = self.matrix(&format!("reflected_signal_{k}"))?;
        let codes = self.matrix(&format!("codes_{k}"))?;
        Ok(MeasuredIrs { reflected_signal, waveform: Waveform { subcarriers, codes } })
    }
}
