//! Scenes, error variances and seeded draws for the Monte Carlo tests.

use hyloc_estimation::location::{Bearing, CascadeDelay, Measurements};
use model::geometry::{PlanePoint, Point, Pose, at_height, cascade_delay_gradient_s_m, cascade_delay_s};
use model::scenario::IrsPlacement;
use model::units::ratio_from_db;
use model::{Gain, Information, Scenario, System};
use nalgebra::Matrix2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use std::f64::consts::TAU;
use std::sync::{Arc, Mutex};

/// Error variances of one scene: delays row-major over (sensor, reflector), bearings over IRSs.
#[derive(Debug, Clone)]
pub struct Variances {
    pub delay_s2: Vec<f64>,
    pub bearing_rad2: Vec<f64>,
}

/// Scenes of different seeds that the draws are spread over.
const SEEDS: u64 = 40;

/// The exact bound at Table I, gains unknown: of each delay jointly with the angles, of each angle. The scene (channels,
/// phases, codes) changes with the target, over [`SEEDS`] of them.
pub fn table_one_variances(irs: &[Pose], target_m: PlanePoint, power_dbm: f64) -> Variances {
    let seed = (target_m.x.to_bits() ^ target_m.y.to_bits().rotate_left(17)) % SEEDS;
    let system = &systems(irs)[seed as usize];
    let information =
        Information::new(system, at_height(target_m, 0.0), Scenario::default().rcs_m2(), Gain::Unknown);
    // Bounds scale as one over power.
    let scale = ratio_from_db(50.0 - power_dbm);
    let delays = information.delay_crb_s2().expect("the angles are observable");
    let bearings = information.angle_crb_rad2().expect("the angles are observable");
    Variances {
        delay_s2: delays.into_iter().flatten().flatten().map(|v| v * scale).collect(),
        bearing_rad2: bearings.into_iter().map(|v| v * scale).collect(),
    }
}

/// Table I with the IRSs at these poses, at 50 dBm, one system for each seed; built once.
///
/// Built on the calling thread: callers are themselves tasks of the thread pool, and a task that waits
/// for the pool while it holds the lock may be handed another task that waits for the lock.
fn systems(irs: &[Pose]) -> Arc<Vec<System>> {
    type Known = Vec<(Vec<Pose>, Arc<Vec<System>>)>;
    static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().expect("no test panics while it holds the lock");
    if let Some((_, systems)) = known.iter().find(|(poses, _)| poses == irs) {
        return systems.clone();
    }
    let table_one = Scenario::default();
    let mut scenario = table_one.clone();
    scenario.signal.subcarriers = (table_one.signal.subcarriers * irs.len()).div_ceil(3);
    scenario.base_station.antennas = (table_one.base_station.antennas * irs.len()).div_ceil(3);
    scenario.irs = irs.iter().map(|pose| IrsPlacement::facing(pose.position_m.into(), [0.0; 3])).collect();
    let built =
        (0..SEEDS).map(|seed| System::new(&scenario.clone().with_seed(seed)).expect("Table I")).collect();
    known.push((irs.to_vec(), Arc::new(built)));
    known.last().expect("just pushed").1.clone()
}

/// The paper's three IRSs with the first two at `(x, +-50)`, facing the origin.
pub fn table_one_irs(x: f64) -> Vec<Pose> {
    [(x, 50.0), (x, -50.0), (50.0, 0.0)].iter().map(|&(x, y)| facing_origin(x, y)).collect()
}

/// The paper's three IRSs and one more on the far side; beyond four, a ring of 50 m.
pub fn irs(count: usize) -> Vec<Pose> {
    if count <= 4 {
        let mut irs = table_one_irs(10.0);
        irs.push(facing_origin(-40.0, 10.0));
        irs.truncate(count);
        return irs;
    }
    (0..count)
        .map(|k| {
            let angle = TAU * (k as f64 + 0.3) / count as f64 + 0.2 * (k as f64).sin() / count as f64;
            facing_origin(5.0 + 50.0 * angle.cos(), 5.0 + 50.0 * angle.sin())
        })
        .collect()
}

fn facing_origin(x: f64, y: f64) -> Pose {
    Pose::facing(Point::new(x, y, 0.0), Point::zeros())
}

/// Noisy readings of one target, editable before they become measurements.
#[derive(Debug, Clone)]
pub struct Draw {
    pub irs: Vec<Pose>,
    pub target_m: PlanePoint,
    pub variances: Variances,
    pub delay_s: Vec<Option<f64>>,
    pub bearing_rad: Vec<Option<f64>>,
}

impl Draw {
    pub fn new(irs: &[Pose], target_m: PlanePoint, power_dbm: f64, rng: &mut ChaCha8Rng) -> Self {
        let count = irs.len();
        let variances = table_one_variances(irs, target_m, power_dbm);
        let mut noise = |variance: f64| variance.sqrt() * rng.sample::<f64, _>(StandardNormal);
        let delay_s = (0..count * count)
            .map(|path| {
                let exact_s =
                    cascade_delay_s(&irs[path / count], &irs[path % count], at_height(target_m, 0.0));
                Some(exact_s + noise(variances.delay_s2[path]))
            })
            .collect();
        let bearing_rad = (0..count)
            .map(|node| {
                Some(irs[node].bearing_rad(at_height(target_m, 0.0)) + noise(variances.bearing_rad2[node]))
            })
            .collect();
        Self { irs: irs.to_vec(), target_m, variances, delay_s, bearing_rad }
    }

    pub fn measurements(&self) -> Measurements {
        let delays = self.delay_s.iter().zip(&self.variances.delay_s2);
        let bearings = self.bearing_rad.iter().zip(&self.variances.bearing_rad2);
        Measurements::new(
            self.irs.iter().map(|pose| pose.position_m.xy()).collect(),
            delays.map(|(d, v)| d.map(|delay_s| CascadeDelay { delay_s, variance_s2: *v })).collect(),
            bearings.map(|(b, v)| b.map(|bearing_rad| Bearing { bearing_rad, variance_rad2: *v })).collect(),
        )
        .expect("drawn values are finite")
    }

    /// The bound `(J^T C^-1 J)^-1` of the readings that are there, at the true position.
    pub fn bound_m2(&self) -> Matrix2<f64> {
        let count = self.irs.len();
        let target_m = at_height(self.target_m, 0.0);
        let mut information = Matrix2::zeros();
        for path in (0..count * count).filter(|path| self.delay_s[*path].is_some()) {
            let (sensor, reflector) = (&self.irs[path / count], &self.irs[path % count]);
            let gradient = cascade_delay_gradient_s_m(sensor, reflector, target_m).xy();
            information += gradient * gradient.transpose() / self.variances.delay_s2[path];
        }
        for node in (0..count).filter(|node| self.bearing_rad[*node].is_some()) {
            let gradient = self.irs[node].bearing_gradient_rad_m(target_m).xy();
            information += gradient * gradient.transpose() / self.variances.bearing_rad2[node];
        }
        information.try_inverse().expect("observable")
    }

    pub fn bias_delay(&mut self, sensor: usize, reflector: usize, bias_s: f64) {
        if let Some(delay_s) = &mut self.delay_s[sensor * self.irs.len() + reflector] {
            *delay_s += bias_s;
        }
    }

    pub fn delay_deviation_s(&self, sensor: usize, reflector: usize) -> f64 {
        self.variances.delay_s2[sensor * self.irs.len() + reflector].sqrt()
    }

    /// Takes a random third of the paths away.
    pub fn lose_a_third(&mut self, rng: &mut ChaCha8Rng) {
        let paths = self.delay_s.len();
        let mut left = paths / 3;
        while left > 0 {
            let path = rng.random_range(0..paths);
            left -= usize::from(self.delay_s[path].take().is_some());
        }
    }
}

/// A target in the paper's area, 0..10 m by 0..10 m.
pub fn random_target(rng: &mut ChaCha8Rng) -> PlanePoint {
    PlanePoint::new(rng.random_range(0.0..10.0), rng.random_range(0.0..10.0))
}

/// Runs `trial` with one random stream per trial: the outcome does not depend on threads.
pub fn monte_carlo<T: Send>(seed: u64, trials: u64, trial: impl Fn(&mut ChaCha8Rng) -> T + Sync) -> Vec<T> {
    (0..trials)
        .into_par_iter()
        .map(|index| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(index);
            trial(&mut rng)
        })
        .collect()
}
