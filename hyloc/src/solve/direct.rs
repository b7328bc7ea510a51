//! `hyloc solve direct`: positions, and clock offsets where they are unknown, from the spectra of all paths. A spectrum that
//! is `null` is missing.

use anyhow::{Context, ensure};
use estimation::direct::{Clocks, Evidence, JointSettings, Layout, LayoutIrs, locate_jointly};
use model::{Aperture, Carrier, Point, Wavefront};
use serde::{Deserialize, Serialize};

use super::complex::ComplexRows;
use super::{Problem, ensure_square, limits};

/// Half width of the searched clock offsets if a case states none.
const OFFSET_WINDOW_S: f64 = 2e-7;

/// One scene; rows of the table of spectra are sensing panels, columns reflecting ones.
#[derive(Debug, Clone, Deserialize)]
pub struct DirectCase {
    #[serde(default)]
    wavefront: Wavefront,
    wavelength_m: f64,
    noise_power_w: f64,
    #[serde(default = "limits::speed_of_light")]
    speed_of_light_m_s: f64,
    coverage: CaseCoverage,
    #[serde(default = "one")]
    targets: usize,
    #[serde(default)]
    clocks: CaseClocks,
    offset_window_s: Option<f64>,
    panels: Vec<CasePanel>,
    spectra: Vec<Vec<Option<ComplexRows>>>,
}

fn one() -> usize {
    1
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CaseClocks {
    #[default]
    Known,
    Unknown,
}

/// Corners of the searched volume; two coordinates mean height zero.
#[derive(Debug, Clone, Deserialize)]
struct CaseCoverage {
    min_m: Vec<f64>,
    max_m: Vec<f64>,
}

/// A panel: centre, offsets of reflecting elements and sensors, S_k (N x D), X_k (D x n).
#[derive(Debug, Clone, Deserialize)]
struct CasePanel {
    centre_m: Vec<f64>,
    reflect_m: Vec<Vec<f64>>,
    sense_m: Vec<Vec<f64>>,
    signal: ComplexRows,
    codes: ComplexRows,
    frequencies_hz: Vec<f64>,
}

/// Positions sorted by coordinates; the covariance is over the coordinates along which the coverage has an extent, target by
/// target. Offsets are `null` where clocks are known.
#[derive(Debug, Clone, Serialize)]
pub struct DirectAnswer {
    positions_m: Vec<[f64; 3]>,
    covariance: Vec<Vec<f64>>,
    offsets_s: Option<Vec<Option<f64>>>,
    offset_std_s: Option<Vec<Option<f64>>>,
    log_likelihood: f64,
}

impl Problem for DirectCase {
    type Settings = ();
    type Answer = DirectAnswer;

    fn solve(&self, _: &()) -> anyhow::Result<DirectAnswer> {
        limits::at_speed_of_light(self.speed_of_light_m_s)?;
        let noise_power_w = self.noise_power_w;
        ensure!(
            noise_power_w.is_finite() && noise_power_w > 0.0,
            "noise_power_w = {noise_power_w}: must be positive and finite"
        );
        let settings = self.settings()?;
        let layout = self.layout(&settings)?;
        let evidence = self.evidence(&layout)?;
        let fix = locate_jointly(&layout, &evidence, &settings)?;
        let unknown = !fix.offsets_s.is_empty();
        let list = |part: fn((f64, f64)) -> f64| {
            unknown.then(|| fix.offsets_s.iter().map(|offset| offset.map(part)).collect())
        };
        Ok(DirectAnswer {
            positions_m: fix.positions_m.iter().map(|p| [p.x, p.y, p.z]).collect(),
            covariance: fix.covariance_m2.row_iter().map(|row| row.iter().copied().collect()).collect(),
            offsets_s: list(|(offset_s, _)| offset_s),
            offset_std_s: list(|(_, deviation_s)| deviation_s),
            log_likelihood: fix.log_likelihood,
        })
    }
}

impl DirectCase {
    fn settings(&self) -> anyhow::Result<JointSettings> {
        let min_m = space_point("coverage.min_m", &self.coverage.min_m)?;
        let max_m = space_point("coverage.max_m", &self.coverage.max_m)?;
        for (axis, name) in ["x", "y", "z"].into_iter().enumerate() {
            ensure!(
                min_m[axis] <= max_m[axis],
                "coverage: min_m is above max_m along {name} ({} and {})",
                min_m[axis],
                max_m[axis]
            );
        }
        let window_s = self.offset_window_s.unwrap_or(OFFSET_WINDOW_S);
        let clocks = match self.clocks {
            CaseClocks::Known => Clocks::Known,
            CaseClocks::Unknown => Clocks::Unknown { window_s },
        };
        Ok(JointSettings { targets: self.targets, clocks, min_m, max_m })
    }

    fn layout(&self, settings: &JointSettings) -> anyhow::Result<Layout> {
        let irs = self.panels.iter().enumerate().map(|(k, panel)| panel.irs(k));
        let carrier = Carrier { wavelength_m: self.wavelength_m, wavefront: self.wavefront };
        let axes = (0..3).filter(|&axis| settings.max_m[axis] > settings.min_m[axis]).collect();
        Ok(Layout::new(carrier, irs.collect::<anyhow::Result<_>>()?, axes, settings.min_m)?)
    }

    fn evidence(&self, layout: &Layout) -> anyhow::Result<Evidence> {
        ensure_square("spectra", &self.spectra, self.panels.len())?;
        let mut evidence = Evidence::of_layout(layout);
        for (l, row) in self.spectra.iter().enumerate() {
            for (k, spectrum) in row.iter().enumerate().filter_map(|(k, s)| s.as_ref().map(|s| (k, s))) {
                let spectrum = spectrum.matrix(&format!("spectra[{l}][{k}]"))?;
                evidence
                    .spectrum(l, k, &spectrum, self.noise_power_w)
                    .with_context(|| format!("spectra[{l}][{k}]"))?;
            }
        }
        Ok(evidence)
    }
}

impl CasePanel {
    fn irs(&self, k: usize) -> anyhow::Result<LayoutIrs> {
        let aperture = |name: &str, offsets: &[Vec<f64>]| -> anyhow::Result<Aperture> {
            let each = offsets.iter().enumerate();
            let offsets_m = each.map(|(m, offset)| space_point(&format!("panels[{k}].{name}[{m}]"), offset));
            Ok(Aperture { offsets_m: offsets_m.collect::<anyhow::Result<_>>()? })
        };
        Ok(LayoutIrs {
            centre_m: space_point(&format!("panels[{k}].centre_m"), &self.centre_m)?,
            sensors: aperture("sense_m", &self.sense_m)?,
            elements: aperture("reflect_m", &self.reflect_m)?,
            reflected_signal: self.signal.matrix(&format!("panels[{k}].signal"))?,
            codes: self.codes.matrix(&format!("panels[{k}].codes"))?,
            frequencies_hz: self.frequencies_hz.clone(),
        })
    }
}

/// Two or three coordinates; two mean height zero.
fn space_point(name: &str, coordinates: &[f64]) -> anyhow::Result<Point> {
    let count = coordinates.len();
    ensure!((2..=3).contains(&count), "{name}: {count} coordinates, expected 2 or 3");
    ensure!(coordinates.iter().all(|v| v.is_finite()), "{name}: a coordinate is not finite");
    Ok(Point::new(coordinates[0], coordinates[1], coordinates.get(2).copied().unwrap_or(0.0)))
}
