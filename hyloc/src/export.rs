//! `hyloc scenario export`: the site of a scenario as arrays, for estimators outside of hyloc.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use anyhow::Context;
use arrays::NpzWriter;
use model::units::SPEED_OF_LIGHT_M_S;
use model::{Aperture, CMatrix, System, Wavefront};
use proto::site::SharedSite;
use serde::Serialize;
use settings::{Layers, load_scenario};
use telemetry::exit::{self, Failure};

use crate::commands::{say, write_file};

/// What `site.json` says. The arrays have the letters of the paper: K IRSs, N elements, M sensors, L subcarriers, D_k streams and
/// n_k subcarriers of IRS k.
#[derive(Debug, Serialize)]
struct SiteDescription {
    hyloc: &'static str,
    /// Hash of the site, as nodes and files of echoes state it.
    site_sha256: String,
    irs: usize,
    elements: usize,
    sensors: usize,
    subcarriers: usize,
    streams: Vec<usize>,
    wavelength_m: f64,
    spacing_m: f64,
    wavefront: Wavefront,
    bandwidth_hz: f64,
    noise_power_w: f64,
    transmit_power_w: f64,
    coherent_frames: u64,
    prior_rcs_median_m2: f64,
    prior_rcs_deviation_db: f64,
    clock_prior_s: f64,
    speed_of_light_m_s: f64,
    base_station_m: [f64; 3],
    coverage_min_m: [f64; 3],
    coverage_max_m: [f64; 3],
    /// The arrays of `site.npz`.
    arrays: Vec<ArrayDescription>,
}

#[derive(Debug, Serialize)]
struct ArrayDescription {
    name: String,
    shape: Vec<usize>,
    unit: &'static str,
    content: String,
}

/// Collects arrays with their descriptions.
struct SiteArrays {
    writer: NpzWriter<Cursor<Vec<u8>>>,
    described: Vec<ArrayDescription>,
}

impl SiteArrays {
    fn describe(&mut self, name: &str, shape: &[usize], unit: &'static str, content: impl Into<String>) {
        let (name, shape) = (name.to_owned(), shape.to_vec());
        self.described.push(ArrayDescription { name, shape, unit, content: content.into() });
    }

    fn reals(
        &mut self,
        name: &str,
        shape: &[usize],
        unit: &'static str,
        content: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
    ) -> std::io::Result<()> {
        self.describe(name, shape, unit, content);
        self.writer.reals(name, shape, values)
    }

    fn matrix(
        &mut self,
        name: &str,
        unit: &'static str,
        content: String,
        matrix: &CMatrix,
    ) -> std::io::Result<()> {
        let shape = [matrix.nrows(), matrix.ncols()];
        self.describe(name, &shape, unit, content);
        self.writer.complex(name, &shape, matrix.transpose().iter().copied())
    }

    fn offsets(&mut self, name: &str, content: String, aperture: Option<Aperture>) -> std::io::Result<()> {
        let offsets_m = aperture.unwrap_or_default().offsets_m;
        let values = offsets_m.iter().flat_map(|offset| [offset.x, offset.y, offset.z]);
        self.reals(name, &[offsets_m.len(), 3], "m", content, values.collect::<Vec<f64>>())
    }

    fn site(&mut self, system: &System) -> std::io::Result<()> {
        let frequencies_hz = (0..system.subcarriers).map(|i| system.frequency_hz(i));
        let content = "baseband frequency of subcarrier i, (i - L/2) W / L";
        self.reals("frequencies_hz", &[system.subcarriers], "Hz", content, frequencies_hz)?;
        for (name, unit, content, value) in [
            ("wavelength_m", "m", "wavelength of the carrier", system.wavelength_m),
            ("bandwidth_hz", "Hz", "bandwidth W", system.bandwidth_hz),
            ("noise_power_w", "W", "variance of the noise per sensor and subcarrier", system.noise_power_w),
            (
                "transmit_power_w",
                "W",
                "transmit power to which the reflected signals belong",
                system.transmit_power_w,
            ),
        ] {
            self.reals(name, &[], unit, content, [value])?;
        }
        for (name, content, value) in [
            ("base_station_m", "position of the base station", system.base_station_m),
            ("coverage_min_m", "least coordinates of a target", system.coverage.min_m.into()),
            ("coverage_max_m", "largest coordinates of a target", system.coverage.max_m.into()),
        ] {
            self.reals(name, &[3], "m", content, value.iter().copied().collect::<Vec<f64>>())?;
        }
        (0..system.irs_count()).try_for_each(|k| self.irs(system, k))
    }

    fn irs(&mut self, system: &System, k: usize) -> std::io::Result<()> {
        let irs = &system.irs[k];
        let (pose, waveform) = (&irs.pose, &irs.waveform);
        let name = |what: &str| format!("{what}_{k}");
        let content = format!("S_k of IRS {k}, elements x streams: what it radiates, stream by stream");
        self.matrix(&name("reflected_signal"), "sqrt(W)", content, &irs.reflected_signal)?;
        let content = format!("X_k of IRS {k}, streams x its subcarriers, with orthonormal rows");
        self.matrix(&name("codes"), "1", content, &waveform.codes)?;
        let shape = [waveform.subcarriers.len()];
        let content = format!("subcarriers of IRS {k}, ascending; no other IRS uses them");
        self.describe(&name("subcarriers"), &shape, "index", content);
        self.writer.integers(&name("subcarriers"), &shape, waveform.subcarriers.iter().map(|i| *i as u64))?;
        let position_m = pose.position_m.iter().copied().collect::<Vec<f64>>();
        self.reals(&name("position_m"), &[3], "m", format!("centre of IRS {k}"), position_m)?;
        let axes = pose.orientation.axes();
        let content =
            format!("unit vectors of IRS {k} as columns: along its columns, along its rows, boresight");
        self.reals(
            &name("axes"),
            &[3, 3],
            "1",
            content,
            axes.transpose().iter().copied().collect::<Vec<f64>>(),
        )?;
        let content = format!(
            "offsets q of the elements of IRS {k} from its centre, as they enter exp(+j 2 pi q.u / lambda)"
        );
        self.offsets(&name("element_offsets_m"), content, system.element_aperture(k))?;
        let content = format!("offsets q of the sensors of IRS {k} from its centre, in the same way");
        self.offsets(&name("sensor_offsets_m"), content, system.sensor_aperture(k))?;
        let delay_s = pose.distance_m(system.base_station_m) / SPEED_OF_LIGHT_M_S;
        let content = format!("delay from the base station to IRS {k}, which echo frames do not contain");
        self.reals(&name("base_station_delay_s"), &[], "s", content, [delay_s])
    }
}

/// Writes `site.npz` and `site.json` into a directory, which is made if needed.
pub fn export(file: Option<PathBuf>, overrides: Vec<String>, directory: &Path) -> anyhow::Result<()> {
    let scenario = load_scenario(&Layers { file, overrides, environment: None })?;
    let built = System::new(&scenario).context(Failure::new(exit::DATA, "the scenario cannot be built"))?;
    let site = SharedSite::new(built).context(Failure::new(exit::DATA, "the site cannot be described"))?;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut arrays = SiteArrays { writer: NpzWriter::new(Cursor::new(Vec::new())), described: Vec::new() };
    arrays.site(&site.system)?;
    let SiteArrays { writer, described } = arrays;
    let (npz, json) = (directory.join("site.npz"), directory.join("site.json"));
    write_file(&npz, &writer.finish()?.into_inner())?;
    let text = serde_json::to_string_pretty(&description(&site, described))?;
    write_file(&json, format!("{text}\n").as_bytes())?;
    say(&format!("{}\n{}", npz.display(), json.display()));
    Ok(())
}

fn description(site: &SharedSite, arrays: Vec<ArrayDescription>) -> SiteDescription {
    let system = &site.system;
    SiteDescription {
        hyloc: env!("CARGO_PKG_VERSION"),
        site_sha256: site.sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
        irs: system.irs_count(),
        elements: system.elements(),
        sensors: system.sensors(),
        subcarriers: system.subcarriers,
        streams: system.irs.iter().map(|irs| irs.reflected_signal.ncols()).collect(),
        wavelength_m: system.wavelength_m,
        spacing_m: system.spacing_m(),
        wavefront: system.wavefront,
        bandwidth_hz: system.bandwidth_hz,
        noise_power_w: system.noise_power_w,
        transmit_power_w: system.transmit_power_w,
        coherent_frames: system.coherent_frames,
        prior_rcs_median_m2: system.prior.median_m2,
        prior_rcs_deviation_db: system.prior.deviation_db,
        clock_prior_s: system.clock_prior_s,
        speed_of_light_m_s: SPEED_OF_LIGHT_M_S,
        base_station_m: system.base_station_m.into(),
        coverage_min_m: system.coverage.min_m,
        coverage_max_m: system.coverage.max_m,
        arrays,
    }
}
