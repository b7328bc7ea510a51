//! Spherical waves against the number of elements and sensors N = M of every IRS, Table I otherwise.
//!
//! The echoes are those of spherical waves. They are located directly with spherical and with plane waves assumed, and compared
//! with the exact bound of the waves as they are. Beside it: the bound of plane waves, which the paper's curves over N are; the
//! share of the energy that plane waves match; and the single IRS of K N elements with either kind of wave.

use estimation::fusion::{FusionSettings, Method};
use model::{Gain, Information, Point, Scenario, Scheme, System, Wavefront};
use num_complex::Complex64;

use super::chain::{self, FrameError};
use super::{Study, column};
use crate::figures::rows::Row;

/// Elements and sensors per IRS.
const COUNTS: [usize; 6] = [6, 10, 14, 20, 28, 40];
const WAVEFRONTS: [Wavefront; 2] = [Wavefront::Spherical, Wavefront::Plane];

/// One scene; lists by the assumed wavefront.
struct NearFieldScene {
    errors: [FrameError; 2],
    bound_m2: [f64; 2],
    single_m2: [f64; 2],
    matched: f64,
}

pub fn against_size(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut rows = study.new_rows();
    for (point, count) in study.points(COUNTS) {
        let scenes = study.point(point, |draw| NearFieldScene::new(count, draw.scenario_seed))?;
        let x = count as f64;
        for (i, wavefront) in WAVEFRONTS.iter().enumerate() {
            let name = wavefront.name();
            let frames: Vec<FrameError> = scenes.iter().map(|scene| scene.errors[i]).collect();
            chain::add(&mut rows, x, &format!("located-{name}"), &frames);
            let bound = column(&scenes, |scene| scene.bound_m2[i]);
            let single = column(&scenes, |scene| scene.single_m2[i]);
            rows.mean(x, &format!("bound-{name}"), "crb_m2", &bound);
            rows.mean(x, &format!("single-irs-{name}"), "crb_m2", &single);
            rows.ratio_db(x, &format!("single-irs-{name}"), "over_hybrid_db", [&single, &bound]);
        }
        rows.mean(x, "plane", "matched_energy_share", &column(&scenes, |scene| scene.matched));
    }
    Ok(rows.into_rows())
}

impl NearFieldScene {
    fn new(count: usize, seed: u64) -> anyhow::Result<Self> {
        let mut scenario = Scenario::default().with_seed(seed);
        (scenario.surface.elements, scenario.surface.sensors) = (count.into(), count.into());
        scenario.signal.wavefront = Wavefront::Spherical;
        let direct = chain::fuser(FusionSettings { method: Method::Direct, ..FusionSettings::default() });
        let believed = |wavefront| {
            let mut scenario = scenario.clone();
            scenario.prior.wavefront = Some(wavefront);
            scenario
        };
        let target_m = model::EchoSource::new(&scenario)?.target_m(0);
        let bound = |scenario: &Scenario| -> anyhow::Result<f64> {
            let information =
                Information::new(&System::new(scenario)?, target_m, scenario.rcs_m2(), Gain::Unknown);
            Ok(information.position_crb_m2(Scheme::Hybrid)?.trace())
        };
        let [spherical, plane] = WAVEFRONTS.map(believed);
        Ok(Self {
            errors: [FrameError::new(&spherical, &direct)?, FrameError::new(&plane, &direct)?],
            bound_m2: [bound(&spherical)?, bound(&plane)?],
            single_m2: [bound(&spherical.clone().single_irs())?, bound(&plane.clone().single_irs())?],
            matched: matched_energy(&System::new(&spherical)?, &System::new(&plane)?, target_m),
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
