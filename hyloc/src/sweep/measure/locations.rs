//! Position from delays and angles whose errors are drawn from their bounds (Section VI-C), as the paper does.
//!
//! Errors are independent, with the variance that the exact bound gives to each delay jointly with the angles and to each
//! angle. Three bounds are given for comparison: `exact` and `paper` are those of the echoes; `same-data` is that of the
//! drawn measurements, the lower limit of every estimator that uses only these.

use estimation::location::{Bearing, CascadeDelay, LocatorScheme, Measurements, estimate_by_scheme};
use model::geometry::{cascade_delay_gradient_s_m, cascade_delay_s};
use model::{Gain, Information, Point, Scheme, System};
use nalgebra::Matrix2;
use rand::RngExt;
use rand_distr::StandardNormal;

use super::{Deserialize, Draw, GridPoint, Measure, PointRows, Serialize, column};

/// Steps of the paper's chain whose gain is measured: (scheme, its predecessor).
const STEPS: [(LocatorScheme, LocatorScheme); 5] = [
    (LocatorScheme::WeightedLeastSquares, LocatorScheme::LeastSquares),
    (LocatorScheme::PaperTwoStage, LocatorScheme::WeightedLeastSquares),
    (LocatorScheme::TwoStage, LocatorScheme::WeightedLeastSquares),
    (LocatorScheme::PaperThreeStage, LocatorScheme::PaperTwoStage),
    (LocatorScheme::ThreeStage, LocatorScheme::TwoStage),
];

/// One target: squared error per scheme and the three bounds.
#[derive(Debug, Serialize, Deserialize)]
pub struct LocatorErrors {
    squared_m2: [f64; LocatorScheme::ALL.len()],
    exact_m2: f64,
    paper_m2: f64,
    /// None where the drawn measurements do not determine the position.
    same_data_m2: Option<f64>,
}

/// Every location scheme on the same measurements.
pub struct LocationMeasure;

impl Measure for LocationMeasure {
    type Outcome = LocatorErrors;

    fn trial(mut draw: Draw) -> anyhow::Result<LocatorErrors> {
        let scenario = draw.scenario.clone();
        let system = System::new(&scenario)?;
        let target_m = scenario.coverage.at(draw.stream.random(), draw.stream.random());
        let exact = Information::new(&system, target_m, scenario.rcs_m2(), Gain::Unknown);
        let paper = Information::new(&system, target_m, scenario.rcs_m2(), Gain::Known);
        let (measurements, same_data) = drawn_measurements(&system, target_m, &exact, &mut draw)?;
        // If a scheme has no finite solution, its estimate is the centre of the area.
        let position =
            |scheme| estimate_by_scheme(scheme, &measurements).unwrap_or(scenario.coverage.centre().xy());
        Ok(LocatorErrors {
            squared_m2: LocatorScheme::ALL.map(|scheme| (position(scheme) - target_m.xy()).norm_squared()),
            exact_m2: exact.position_crb_m2(Scheme::Hybrid)?.trace(),
            paper_m2: paper.position_crb_m2(Scheme::Hybrid)?.trace(),
            same_data_m2: same_data.try_inverse().map(|bound| bound.trace()),
        })
    }

    fn rows(_point: &GridPoint, targets: &[LocatorErrors], rows: &mut PointRows) {
        let exact = column(targets, |target| target.exact_m2);
        let same_data = column(targets, |target| target.same_data_m2.unwrap_or(f64::INFINITY));
        rows.mean("exact-bound", "crb_m2", &exact);
        rows.mean("paper-bound", "crb_m2", &column(targets, |target| target.paper_m2));
        rows.mean("same-data-bound", "crb_m2", &same_data);
        let squared = |scheme: LocatorScheme| {
            let index = LocatorScheme::ALL.iter().position(|s| *s == scheme).unwrap_or(0);
            column(targets, |target| target.squared_m2[index])
        };
        for scheme in LocatorScheme::ALL {
            let errors = squared(scheme);
            rows.mean(scheme.name(), "mse_m2", &errors);
            rows.ratio_db(scheme.name(), "gap_exact_db", [&errors, &exact]);
            rows.ratio_db(scheme.name(), "gap_same_data_db", [&errors, &same_data]);
        }
        for (scheme, before) in STEPS {
            let metric = format!("gain_over_{}_db", before.name());
            rows.ratio_db(scheme.name(), &metric, [&squared(before), &squared(scheme)]);
        }
    }
}

/// Measurements with Gaussian errors of the bound's variance, and their Fisher information.
fn drawn_measurements(
    system: &System,
    target_m: Point,
    bounds: &Information,
    draw: &mut Draw,
) -> anyhow::Result<(Measurements, Matrix2<f64>)> {
    let mut information = Matrix2::zeros();
    let mut noise = |variance: f64| variance.sqrt() * draw.stream.sample::<f64, _>(StandardNormal);
    let mut delays = Vec::new();
    for (l, row) in bounds.delay_crb_s2()?.into_iter().enumerate() {
        for (k, variance_s2) in row.into_iter().enumerate() {
            let (sensor, reflector) = (&system.irs[l].pose, &system.irs[k].pose);
            delays.push(variance_s2.map(|variance_s2| {
                let gradient = cascade_delay_gradient_s_m(sensor, reflector, target_m).xy();
                information += gradient * gradient.transpose() / variance_s2;
                let delay_s = cascade_delay_s(sensor, reflector, target_m) + noise(variance_s2);
                CascadeDelay { delay_s, variance_s2 }
            }));
        }
    }
    let mut bearings = Vec::new();
    for (irs, variance_rad2) in system.irs.iter().zip(bounds.angle_crb_rad2()?) {
        let gradient = irs.pose.bearing_gradient_rad_m(target_m).xy();
        information += gradient * gradient.transpose() / variance_rad2;
        let bearing_rad = irs.pose.bearing_rad(target_m) + noise(variance_rad2);
        bearings.push(Some(Bearing { bearing_rad, variance_rad2 }));
    }
    let positions = system.irs.iter().map(|irs| irs.pose.position_m.xy()).collect();
    Ok((Measurements::new(positions, delays, bearings)?, information))
}
