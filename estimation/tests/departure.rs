//! AOD under noise against its own bound: what Algorithm 2 can know of the departure angle, the arrival angles known.
//!
//! The beamformed rows are `r_l = g_l b(theta) + n_l`, with `b = S_k^H a` and noise of variance sigma^2 / M per entry. Over
//! unknown gains, the bound on theta is `sigma^2 / (2 M sum_l |g_l|^2 ||P b'||^2)`, with P the projection away from b
//! (closed form; the gains come from the same scene without noise).

mod support;

use hyloc_estimation::angles::departure::trust_region_departure_rad;
use hyloc_estimation::angles::problem::DepartureForm;
use hyloc_estimation::angles::{AngleSettings, estimate_angles};
use model::array::UniformLinearArray;
use model::{CVector, Scenario};
use support::{GROSS_RAD, Scene, scene};

const SCENES: u64 = 300;

fn beamformed(scene: &Scene, l: usize, k: usize) -> CVector {
    let elements = scene.blocks.sensors();
    let array = UniformLinearArray { elements, spacing_wavelengths: scene.blocks.spacing_wavelengths() };
    let block = scene.blocks.block(l, k).unwrap();
    block.ad_mul(&array.steering(scene.truth_rad[l])).unscale(elements as f64)
}

/// The bound on the AOD of IRS `k`; `clean` is the scene without noise.
fn bound_rad2(scene: &Scene, clean: &Scene, k: usize) -> f64 {
    let signal = scene.blocks.reflected_signal(k).unwrap();
    let spacing_wavelengths = scene.blocks.spacing_wavelengths();
    let array = UniformLinearArray { elements: signal.nrows(), spacing_wavelengths };
    let b = signal.ad_mul(&array.steering(scene.truth_rad[k]));
    let slope = signal.ad_mul(&array.steering_derivative(scene.truth_rad[k]));
    let apart = slope.norm_squared() - b.dotc(&slope).norm_sqr() / b.norm_squared();
    let gains = (0..3).map(|l| beamformed(clean, l, k).norm_squared() / b.norm_squared());
    let sensors = scene.blocks.sensors() as f64;
    scene.blocks.noise_variance() / (2.0 * sensors * gains.sum::<f64>() * apart)
}

/// Scenes of rank case 2 (four paths) with and without noise.
fn scenes(power_dbm: f64) -> impl Iterator<Item = (Scene, Scene)> {
    let mut base = Scenario::default().with_power_dbm(power_dbm);
    base.channel.paths = 4;
    (0..SCENES).map(move |seed| {
        let noisy = base.clone().with_seed(seed);
        let mut quiet = noisy.clone();
        quiet.signal.noise_dbm = -250.0;
        (scene(&noisy), scene(&quiet))
    })
}

/// Errors of 900 angles in units of their bound.
#[derive(Default)]
struct Errors {
    over_bound: Vec<f64>,
    gross: usize,
}

impl Errors {
    /// A missing angle, of a signal that is nearly of rank one, counts as a gross error.
    fn add(&mut self, found: Option<f64>, truth: f64, bound_rad2: f64) {
        let error = found.map_or(f64::INFINITY, |found| found - truth);
        self.over_bound.push(error * error / bound_rad2);
        self.gross += usize::from(error.abs() > GROSS_RAD);
    }

    /// Median of squared error over bound. A chi-square variable of one degree of freedom has 0.455; that of 900 has a
    /// standard deviation of 0.035. A few gross errors, where another angle illuminates almost alike, do not move it.
    fn median(&mut self) -> f64 {
        self.over_bound.sort_by(f64::total_cmp);
        self.over_bound[self.over_bound.len() / 2]
    }

    #[allow(clippy::print_stdout)]
    fn check(mut self, name: &str, above_bound: f64, expected_gross: f64) {
        let (median, n) = (self.median(), self.over_bound.len() as f64);
        let share = self.gross as f64 / n;
        println!("{name:<28} median of squared error over bound {median:.3}, {:.2} % gross", 100.0 * share);
        assert!((median / above_bound - 0.455).abs() < 4.0 * 0.035, "{name}: {median}");
        let limit = expected_gross + 4.0 * (expected_gross * (1.0 - expected_gross) / n).sqrt();
        assert!(share <= limit, "{name}: {share}");
    }
}

/// Algorithm 2 at the true arrival angles, 900 angles at 60 dBm.
#[test]
fn algorithm_2_meets_its_bound() {
    let mut errors = Errors::default();
    for (scene, clean) in scenes(60.0) {
        for k in 0..3 {
            let rows: Vec<CVector> = (0..3).map(|l| beamformed(&scene, l, k)).collect();
            let spacing = scene.blocks.spacing_wavelengths();
            let found = trust_region_departure_rad(scene.blocks.reflected_signal(k).unwrap(), &rows, spacing);
            errors.add(found, scene.truth_rad[k], bound_rad2(&scene, &clean, k));
        }
    }
    errors.check("Algorithm 2", 1.0, 0.009);
}

/// The AOD that the chain reports before the polish, which has to estimate the arrival angles first. From the raw blocks
/// (free form) it meets the bound; from the denoised ones (structured form), which are biased, it is 5.8 dB above it.
#[test]
fn reported_departures_are_as_good_as_their_blocks() {
    let forms = [(DepartureForm::Structured, 3.8, 0.042), (DepartureForm::Free, 1.0, 0.009)];
    for (form, above_bound, gross) in forms {
        let settings = AngleSettings { partial_rank: form, ..AngleSettings::default() };
        let mut errors = Errors::default();
        for (scene, clean) in scenes(60.0) {
            let estimate = estimate_angles(&scene.blocks, &settings).unwrap();
            for (k, irs) in estimate.irs.iter().enumerate() {
                errors.add(irs.departure_rad, scene.truth_rad[k], bound_rad2(&scene, &clean, k));
            }
        }
        errors.check(&format!("reported, {form:?}"), above_bound, gross);
    }
}
