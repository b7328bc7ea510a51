//! `hyloc solve crb`: Fisher information and bounds of given scenes.

use anyhow::{Context, ensure};
use model::fisher::{Gain, Information, Scheme};
use model::system::Irs;
use model::waveform::Waveform;
use model::{CrossSectionPrior, Orientation, Point, Pose, System, SystemParts, Wavefront};
use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};

use super::complex::ComplexRows;
use super::{Problem, limits};

/// Smallest distance between the target and an IRS.
const CLOSEST_M: f64 = 1e-3;

#[derive(Debug, Clone, Deserialize)]
pub struct CrbCase {
    scene: CrbScene,
}

#[derive(Debug, Clone, Deserialize)]
struct CrbScene {
    carrier_wavelength_m: f64,
    spacing_wavelengths: f64,
    bandwidth_hz: f64,
    subcarriers: usize,
    noise_power_w: f64,
    rcs_m2: f64,
    speed_of_light_m_s: f64,
    sensors: usize,
    elements: usize,
    irs: Vec<SceneIrs>,
    target_m: [f64; 2],
}

#[derive(Debug, Clone, Deserialize)]
struct SceneIrs {
    position_m: [f64; 2],
    broadside_rad: f64,
    reflected_signal: ComplexRows,
    subcarrier_index: Vec<usize>,
    codes: ComplexRows,
}

#[derive(Debug, Clone, Serialize)]
pub struct CrbAnswer {
    unknown_gain: Bounds,
    known_gain: Bounds,
}

#[derive(Debug, Clone, Serialize)]
struct Bounds {
    path_fim_aoa_aod_delay: Vec<Vec<[[f64; 3]; 3]>>,
    angle_crb_rad2: Vec<f64>,
    delay_crb_s2: Vec<Vec<f64>>,
    position_crb_m2: PositionBounds,
}

#[derive(Debug, Clone, Serialize)]
struct PositionBounds {
    hybrid: Vec<[f64; 2]>,
    angle: Vec<[f64; 2]>,
    delay: Vec<[f64; 2]>,
}

impl Problem for CrbCase {
    type Settings = ();
    type Answer = CrbAnswer;

    fn solve(&self, _: &()) -> anyhow::Result<CrbAnswer> {
        let system = system(&self.scene)?;
        let target = limits::in_plane(self.scene.target_m);
        Ok(CrbAnswer {
            unknown_gain: bounds(&system, target, self.scene.rcs_m2, Gain::Unknown)?,
            known_gain: bounds(&system, target, self.scene.rcs_m2, Gain::Known)?,
        })
    }
}

fn system(scene: &CrbScene) -> anyhow::Result<System> {
    // The ranges of a scenario, in SI units.
    let ranges = [
        ("carrier_wavelength_m", scene.carrier_wavelength_m, 1e-6, 1e3),
        ("spacing_wavelengths", scene.spacing_wavelengths, 0.01, 10.0),
        ("bandwidth_hz", scene.bandwidth_hz, 1.0, 1e12),
        ("noise_power_w", scene.noise_power_w, 1e-33, 1e7),
        ("rcs_m2", scene.rcs_m2, 1e-10, 1e10),
    ];
    ranges.into_iter().try_for_each(|(name, value, least, most)| limits::within(name, value, least, most))?;
    limits::irs_count("IRSs", scene.irs.len())?;
    limits::position("target_m", scene.target_m)?;
    limits::at_speed_of_light(scene.speed_of_light_m_s)?;
    let irs =
        scene.irs.iter().enumerate().map(|(k, irs)| scene_irs(scene, k, irs)).collect::<Result<_, _>>()?;
    Ok(System::checked(SystemParts {
        wavelength_m: scene.carrier_wavelength_m,
        spacing_wavelengths: scene.spacing_wavelengths,
        wavefront: Wavefront::Plane,
        bandwidth_hz: scene.bandwidth_hz,
        subcarriers: scene.subcarriers,
        noise_power_w: scene.noise_power_w,
        transmit_power_w: 1.0,
        coherent_frames: 1,
        prior: CrossSectionPrior { median_m2: scene.rcs_m2, deviation_db: 0.0 },
        clock_prior_s: 0.0,
        base_station_m: Point::zeros(),
        sensor_grid: scene.sensors.into(),
        element_grid: scene.elements.into(),
        coverage: Default::default(),
        irs,
    })?)
}

fn scene_irs(scene: &CrbScene, k: usize, irs: &SceneIrs) -> anyhow::Result<Irs> {
    let reflected_signal = irs.reflected_signal.matrix(&format!("irs[{k}].reflected_signal"))?;
    let codes = irs.codes.matrix(&format!("irs[{k}].codes"))?;
    let position_m = limits::in_plane(irs.position_m);
    limits::position(&format!("irs[{k}].position_m"), irs.position_m)?;
    limits::within(&format!("irs[{k}].broadside_rad"), irs.broadside_rad, -100.0, 100.0)?;
    let distance_m = (position_m - limits::in_plane(scene.target_m)).norm();
    ensure!(distance_m >= CLOSEST_M, "target_m stands on irs[{k}]: it must be at least {CLOSEST_M} m away");
    Ok(Irs {
        pose: Pose { position_m, orientation: Orientation::level(irs.broadside_rad) },
        reflected_signal,
        waveform: Waveform { subcarriers: irs.subcarrier_index.clone(), codes },
    })
}

fn bounds(system: &System, target: Point, rcs_m2: f64, gain: Gain) -> anyhow::Result<Bounds> {
    let information = Information::new(system, target, rcs_m2, gain);
    let position = |scheme, name: &'static str| -> anyhow::Result<Vec<[f64; 2]>> {
        Ok(rows(&information.position_crb_m2(scheme).context(name)?))
    };
    Ok(Bounds {
        path_fim_aoa_aod_delay: information
            .paths()
            .iter()
            .map(|row| {
                row.iter()
                    .flatten()
                    .map(|f| std::array::from_fn(|i| std::array::from_fn(|j| f[(i, j)])))
                    .collect()
            })
            .collect(),
        angle_crb_rad2: information.angle_crb_rad2().context("angles")?,
        delay_crb_s2: information
            .delay_crb_s2()
            .context("delays")?
            .into_iter()
            .map(|row| row.into_iter().flatten().collect())
            .collect(),
        position_crb_m2: PositionBounds {
            hybrid: position(Scheme::Hybrid, "hybrid position")?,
            angle: position(Scheme::AngleOnly, "position from angles")?,
            delay: position(Scheme::DelayOnly, "position from delays")?,
        },
    })
}

fn rows(matrix: &DMatrix<f64>) -> Vec<[f64; 2]> {
    matrix.row_iter().map(|row| [row[0], row[1]]).collect()
}
