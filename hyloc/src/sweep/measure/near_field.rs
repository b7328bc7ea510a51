//! Near field: spherical waves, located with spherical and with plane waves assumed.
//!
//! The echoes are those of the waves of the scenario, which the plan makes spherical. They are located directly and compared
//! with the exact bound of the waves as they are. Beside it: the bound of plane waves, which the paper's curves over N are; the
//! share of the energy that plane waves match; and the single IRS of K N elements with either kind of wave.

use estimation::fusion::Fuser;
use model::{Point, Scenario, System, Wavefront};
use num_complex::Complex64;

use super::end_to_end::{FrameError, add_errors, direct, ideal_bounds_m2, located};
use super::{
    Deserialize, Draw, FrameChain, GridPoint, Measure, PointRows, Serialize, column, position_bounds_m2,
};

const WAVEFRONTS: [Wavefront; 2] = [Wavefront::Spherical, Wavefront::Plane];

/// What an assumed wavefront makes of a scene.
#[derive(Debug, Serialize, Deserialize)]
pub struct AssumedWaves {
    error: FrameError,
    bound_m2: f64,
    /// Bound of the single IRS of K N elements.
    single_m2: f64,
}

/// One scene, by the assumed wavefront.
#[derive(Debug, Serialize, Deserialize)]
pub struct NearFieldScene {
    assumed: [AssumedWaves; 2],
    /// Share of the energy that plane waves match.
    matched: f64,
}

pub struct NearFieldMeasure;

impl Measure for NearFieldMeasure {
    type Outcome = NearFieldScene;

    fn trial(draw: Draw) -> anyhow::Result<NearFieldScene> {
        let believed = WAVEFRONTS.map(|wavefront| {
            let mut scenario = draw.scenario.clone();
            scenario.prior.wavefront = Some(wavefront);
            scenario
        });
        let assumed = [AssumedWaves::new(&believed[0])?, AssumedWaves::new(&believed[1])?];
        let target_m = model::EchoSource::new(&believed[0])?.target_m(0);
        let matched = matched_energy(&System::new(&believed[0])?, &System::new(&believed[1])?, target_m);
        Ok(NearFieldScene { assumed, matched })
    }

    fn rows(_point: &GridPoint, scenes: &[NearFieldScene], rows: &mut PointRows) {
        for (i, wavefront) in WAVEFRONTS.iter().enumerate() {
            let name = wavefront.name();
            add_errors(rows, &format!("located-{name}"), scenes.iter().map(|scene| scene.assumed[i].error));
            let bound = column(scenes, |scene| scene.assumed[i].bound_m2);
            let single = column(scenes, |scene| scene.assumed[i].single_m2);
            rows.mean(&format!("bound-{name}"), "crb_m2", &bound);
            rows.mean(&format!("single-irs-{name}"), "crb_m2", &single);
            rows.ratio_db(&format!("single-irs-{name}"), "over_hybrid_db", [&single, &bound]);
        }
        rows.mean("plane", "matched_energy_share", &column(scenes, |scene| scene.matched));
    }
}

impl AssumedWaves {
    /// The scenario says which wavefront is assumed; the echoes are those of the waves as they are.
    fn new(scenario: &Scenario) -> anyhow::Result<Self> {
        let chain = FrameChain::new(scenario)?;
        let target_m = chain.source.target_m(0);
        let frame = chain.frame(0, None)?;
        let position_m = located(chain.system(), &Fuser::new(chain.system().clone(), direct())?, &frame);
        let bound = |system: &System| anyhow::Ok(position_bounds_m2(system, target_m, scenario.rcs_m2())?[0]);
        Ok(Self {
            error: FrameError::new(position_m, target_m, ideal_bounds_m2(scenario, target_m)?[0]),
            bound_m2: bound(chain.system())?,
            single_m2: bound(&System::new(&scenario.clone().single_irs())?)?,
        })
    }
}

/// Share of the energy of all paths that plane waves match: `sum |m_p^H m|^2 / ||m_p||^2` over `sum ||m||^2`.
fn matched_energy(spherical: &System, plane: &System, target_m: Point) -> f64 {
    let responses = |system: &System, l: usize| {
        let relative_m = target_m - system.irs[l].pose.position_m;
        system.sensor_aperture(l).unwrap_or_default().response(&system.carrier(), &relative_m)
    };
    let count = spherical.irs_count();
    let sensed = |l: usize| -> f64 {
        let (a, b) = (responses(spherical, l), responses(plane, l));
        b.dotc(&a).norm_sqr() / (b.norm_squared() * a.norm_squared())
    };
    let arrivals: Vec<f64> = (0..count).map(sensed).collect();
    let (mut matched, mut whole) = (0.0, 0.0);
    for (l, k) in (0..count).flat_map(|l| (0..count).map(move |k| (l, k))) {
        let (Some(a), Some(b)) = (spherical.illumination(k, target_m), plane.illumination(k, target_m))
        else {
            continue;
        };
        let gain = spherical.echo_gain(l, k, target_m, 1.0).unwrap_or(0.0).powi(2);
        let product: Complex64 = b.dotc(&a);
        matched += gain * arrivals[l] * product.norm_sqr() / b.norm_squared();
        whole += gain * a.norm_squared();
    }
    matched / whole
}
