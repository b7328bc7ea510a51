//! Scenes for Monte Carlo: blocks at the true delays, and what an estimator's errors are compared with.
#![allow(dead_code)]

use hyloc_estimation::Blocks;
use model::geometry::cascade_delay_s;
use model::{CMatrix, EchoSource, Gain, Information, Point, Scenario, System};

/// One scene with its blocks.
pub struct Scene {
    pub system: System,
    pub target: Point,
    pub blocks: Blocks,
    /// True local angles.
    pub truth_rad: Vec<f64>,
    /// Exact bound on the angles.
    pub bound_rad2: Vec<f64>,
}

/// R_lk at a given delay from a received frame.
pub fn block_at(system: &System, frame: &CMatrix, k: usize, delay_s: f64) -> CMatrix {
    let waveform = &system.irs[k].waveform;
    let phasors = system.delay_phasors(k, delay_s).unwrap();
    let mut block = CMatrix::zeros(system.sensors(), waveform.codes.nrows());
    for (i, &subcarrier) in waveform.subcarriers.iter().enumerate() {
        block += frame.column(subcarrier) * phasors[i].conj() * waveform.codes.column(i).adjoint();
    }
    block
}

/// The scene of `scenario` with blocks at the true delays.
pub fn scene(scenario: &Scenario) -> Scene {
    let source = EchoSource::new(scenario).unwrap();
    let system = source.system().clone();
    let target = source.target_m(0);
    let count = system.irs_count();
    let table = (0..count)
        .map(|l| {
            let frame = source.frame(l, 0, target);
            let delay = |k: usize| cascade_delay_s(&system.irs[l].pose, &system.irs[k].pose, target);
            (0..count).map(|k| Some(block_at(&system, &frame, k, delay(k)))).collect()
        })
        .collect();
    let blocks = Blocks::of_system(&system, system.noise_power_w, table).unwrap();
    let information = Information::new(&system, target, source.rcs_m2(), Gain::Unknown);
    Scene {
        truth_rad: system.irs.iter().map(|irs| irs.pose.local_angle_rad(target)).collect(),
        bound_rad2: information.angle_crb_rad2().unwrap(),
        target,
        blocks,
        system,
    }
}

/// Errors of an estimator over scenes, against the bound.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    squared: f64,
    bound: f64,
    gross: usize,
    count: usize,
    normalised: f64,
}

/// Errors above this are gross.
pub const GROSS_RAD: f64 = 0.1;

impl Tally {
    /// One angle; a missing estimate is a gross error of the whole sector.
    pub fn add(&mut self, estimate: Option<f64>, truth: f64, bound: f64, variance: Option<f64>) {
        let error = estimate.map_or(0.5, |e| e - truth);
        self.squared += error * error;
        self.bound += bound;
        self.gross += usize::from(error.abs() > GROSS_RAD);
        self.count += 1;
        self.normalised += variance.map_or(0.0, |v| error * error / v);
    }

    /// All angles of a scene.
    pub fn add_scene(&mut self, estimates: &[Option<f64>], variances: &[Option<f64>], scene: &Scene) {
        for (i, &truth) in scene.truth_rad.iter().enumerate() {
            self.add(estimates[i], truth, scene.bound_rad2[i], variances.get(i).copied().flatten());
        }
    }

    /// Mean squared error over mean bound, dB.
    pub fn gap_db(&self) -> f64 {
        10.0 * (self.squared / self.bound).log10()
    }

    /// Share of gross errors.
    pub fn gross_share(&self) -> f64 {
        self.gross as f64 / self.count as f64
    }

    /// Mean of squared error over reported variance.
    pub fn normalised(&self) -> f64 {
        self.normalised / self.count as f64
    }
}
