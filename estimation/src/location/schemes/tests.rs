//! The schemes against their own costs and equations, computed in another way.

use super::super::test_scene::{TARGET_M, inexact};
use super::*;

const SCHEMES_IN_TAN_FORM: [LocatorScheme; 5] = [
    LocatorScheme::LeastSquares,
    LocatorScheme::WeightedLeastSquares,
    LocatorScheme::PaperTwoStage,
    LocatorScheme::PaperThreeStage,
    LocatorScheme::PaperLiteral,
];

struct Rows {
    segments: SegmentDelays,
    rows: TanRows,
}

fn rows(deviations: f64) -> Rows {
    let measurements = inexact(deviations);
    let segments = stage_one(&Likelihood::new(&measurements));
    let rows = TanRows::new(&measurements, &segments);
    Rows { segments, rows }
}

impl Rows {
    /// Twice the half gradient of the delay rows' cost, with their covariance inverted as a matrix: `B C B` with
    /// `B = diag(2 c r)`, or the diagonal `c^2 r^2 C` as printed.
    fn delay_gradient(&self, unknowns: &Vector3<f64>, full: bool) -> Vector3<f64> {
        let count = self.segments.nodes.len();
        let range_m: Vec<f64> = self.segments.delay_s.iter().map(|s| s * SPEED_OF_LIGHT_M_S).collect();
        let covariance = DMatrix::from_fn(count, count, |i, j| {
            let entry = self.segments.covariance_s2[(i, j)] * SPEED_OF_LIGHT_M_S.powi(2);
            let entry = entry * range_m[i] * range_m[j];
            if full { 4.0 * entry } else { entry * f64::from(u8::from(i == j)) }
        });
        let weight = covariance.try_inverse().unwrap();
        let nodes = inexact(0.0).irs_position_m().to_vec();
        let row = |k: usize| Vector3::new(-2.0 * nodes[k].x, -2.0 * nodes[k].y, 1.0);
        let residual = DVector::from_fn(count, |k, _| {
            row(k).dot(unknowns) - (range_m[k].powi(2) - nodes[k].norm_squared())
        });
        let weighted = weight * residual;
        (0..count).map(|k| row(k) * weighted[k]).sum()
    }

    /// How far a gradient is from zero, in the unit of what its largest summand would be one metre away.
    fn assert_stationary(&self, what: &str, gradient: Vector3<f64>, information: &Matrix3<f64>) {
        let scale = information.diagonal().map(f64::sqrt);
        let off = gradient.component_div(&scale).norm();
        assert!(off < 1e-6, "{what}: {off} standard deviations from the stationary point");
    }
}

#[test]
fn exact_data_give_the_exact_position_in_every_scheme() {
    for scheme in LocatorScheme::ALL {
        let found = estimate_by_scheme(scheme, &inexact(0.0)).unwrap();
        assert!((found - TARGET_M).norm() < 1e-6, "{}: {found}", scheme.name());
    }
    for scheme in SCHEMES_IN_TAN_FORM {
        let found = estimate_by_scheme(scheme, &inexact(1.0)).unwrap();
        assert!((1e-3..2.0).contains(&(found - TARGET_M).norm()), "{}: {found}", scheme.name());
    }
}

#[test]
fn variances_of_tangents_follow_from_those_of_angles() {
    let measurements = inexact(1.0);
    for (k, row) in rows(1.0).rows.bearing.iter().enumerate() {
        let bearing = measurements.bearing(k).unwrap();
        let step = 1e-6;
        let slope = ((bearing.bearing_rad + step).tan() - (bearing.bearing_rad - step).tan()) / (2.0 * step);
        let variance = bearing.variance_rad2 * slope * slope;
        assert!((row.coefficient_variance / variance - 1.0).abs() < 1e-6);
        let x_m = measurements.irs_position_m()[k].x;
        assert!((row.value_variance / (variance * x_m * x_m) - 1.0).abs() < 1e-6);
    }
}

#[test]
fn weighted_least_squares_is_the_minimum_of_its_cost() {
    let scene = rows(1.0);
    let unknowns = scene.rows.weighted_least_squares(&scene.segments).unwrap();
    let mut gradient = scene.delay_gradient(&unknowns, true);
    let mut information = scene.rows.delay_normal(&scene.segments, true).0;
    for b in &scene.rows.bearing {
        gradient += b.row * ((b.row.dot(&unknowns) - b.value) / b.value_variance);
        information += b.row * b.row.transpose() / b.value_variance;
    }
    scene.assert_stationary("weighted least squares", gradient, &information);
}

/// With its misprints corrected, the iteration ends where the cost of the total least squares is stationary: errors of
/// coefficient and right side are independent, `(a x - b)^2 / (x_T^2 var a + var b)`.
#[test]
fn total_least_squares_is_stationary_in_its_cost() {
    let scene = rows(1.0);
    let (unknowns, information) = scene.rows.total_least_squares(&scene.segments, &CORRECTED).unwrap();
    let cost = |unknowns: &Vector3<f64>| {
        let term = |b: &TanRow| {
            let variance = unknowns.x.powi(2) * b.coefficient_variance + b.value_variance;
            (b.row.dot(unknowns) - b.value).powi(2) / variance
        };
        scene.rows.bearing.iter().map(term).sum::<f64>()
    };
    let step = 1e-5;
    let slope = |axis: usize| {
        let mut side = Vector3::zeros();
        side[axis] = step;
        (cost(&(unknowns + side)) - cost(&(unknowns - side))) / (4.0 * step)
    };
    let gradient = scene.delay_gradient(&unknowns, true) + Vector3::new(slope(0), slope(1), slope(2));
    let mut expected = scene.rows.delay_normal(&scene.segments, true).0;
    for b in &scene.rows.bearing {
        let variance = unknowns.x.powi(2) * b.coefficient_variance + b.value_variance;
        expected += b.row * b.row.transpose() / variance;
    }
    assert!((information - expected).norm() < 1e-6 * expected.norm());
    let scale = expected.diagonal().map(f64::sqrt);
    let off = gradient.component_div(&scale).norm();
    assert!(off < 1e-4, "{off} standard deviations from the stationary point");
}

/// As printed: the error is multiplied by `s`, both variances have the factor `x_k^2`, the correction is
/// subtracted, and the delay rows have a diagonal covariance.
#[test]
fn the_printed_iteration_ends_at_its_own_fixed_point() {
    let scene = rows(1.0);
    let (unknowns, _) = scene.rows.total_least_squares(&scene.segments, &AS_PRINTED).unwrap();
    let mut gradient = scene.delay_gradient(&unknowns, false);
    for b in &scene.rows.bearing {
        let residual = b.row.dot(&unknowns) - b.value;
        let weight = 1.0 / ((unknowns.z.powi(2) + 1.0) * b.value_variance);
        let correction = -unknowns.z * b.value_variance * weight * residual;
        gradient += (b.row - Vector3::new(correction, 0.0, 0.0)) * (weight * residual);
    }
    let information = scene.rows.delay_normal(&scene.segments, false).0;
    scene.assert_stationary("as printed", gradient, &information);
}

/// The last step is weighted least squares of `(x^2, y^2)` under the covariance `D cov D`, here with the covariance
/// inverted as a matrix; the literal variant scales by `(4 x^2, 4 y^2, s)`.
#[test]
fn square_roots_weigh_by_the_covariance_of_the_squares() {
    let scene = rows(1.0);
    for (reading, scheme) in
        [(CORRECTED, LocatorScheme::PaperThreeStage), (AS_PRINTED, LocatorScheme::PaperLiteral)]
    {
        let (unknowns, information) = scene.rows.total_least_squares(&scene.segments, &reading).unwrap();
        let squares = unknowns.component_mul(&unknowns);
        let scale = match scheme {
            LocatorScheme::PaperLiteral => Vector3::new(4.0 * squares.x, 4.0 * squares.y, unknowns.z),
            _ => Vector3::new(2.0 * unknowns.x, 2.0 * unknowns.y, 1.0),
        };
        let scale = Matrix3::from_diagonal(&scale);
        let covariance = scale * information.try_inverse().unwrap() * scale;
        let weight = covariance.try_inverse().unwrap();
        let found = estimate_by_scheme(scheme, &inexact(1.0)).unwrap();
        let fitted = found.component_mul(&found);
        let residual =
            Vector3::new(fitted.x - squares.x, fitted.y - squares.y, fitted.x + fitted.y - unknowns.z);
        let a = Matrix3x2::new(1.0, 0.0, 0.0, 1.0, 1.0, 1.0);
        let gradient = a.transpose() * weight * residual;
        let normal = a.transpose() * weight * a;
        let off = gradient.component_div(&normal.diagonal().map(f64::sqrt)).norm();
        assert!(off < 1e-4, "{}: {off}", scheme.name());
        assert_eq!((found.x.signum(), found.y.signum()), (unknowns.x.signum(), unknowns.y.signum()));
    }
    // A negative square becomes zero, and signs are kept.
    let found = square_roots(&Vector3::new(-3.0, 1e-3, 4.0), &Matrix3::identity(), Vector3::repeat(1.0));
    assert!(found.is_some_and(|found| found.x < 0.0 && found.y == 0.0), "{found:?}");
}

#[test]
fn fewer_than_three_rows_are_not_enough() {
    let mut scene = rows(0.0);
    scene.rows.delay.truncate(1);
    scene.rows.bearing.truncate(1);
    assert_eq!(scene.rows.least_squares(), None);
    scene.rows.bearing = rows(0.0).rows.bearing;
    scene.rows.bearing.truncate(2);
    let unknowns = scene.rows.least_squares().unwrap();
    assert!((unknowns.xy() - TARGET_M).norm() < 1e-6 && (unknowns.z - 25.0).abs() < 1e-4);
    scene.rows.bearing[0].value = f64::NAN;
    assert_eq!(scene.rows.least_squares(), None);
}
