//! The bound on the positions of several targets whose echoes overlap.
//!
//! The mean of path (l, k) is `sum_t alpha_t g(x_t)`, `g(x)` the Kronecker product of the responses of the sensors and of the
//! streams to a target at x, and all gains alpha_t of all paths are unknown. The information on all positions is
//! `(2 / sigma^2) Re(D^H P D)`, summed over the paths: D holds the derivatives `alpha_t dg/dx_t`, and P projects onto the
//! complement of all `g(x_t)`. A path in which these depend on each other linearly, so that its gains cannot be told apart, counts
//! as missing. Cost per path: O(T^2 M n_k).

use std::f64::consts::TAU;

use nalgebra::DMatrix;
use num_complex::Complex64;

use super::{SingularInformation, free_derivatives, inverse};
use crate::algebra::{CMatrix, CVector};
use crate::geometry::{Point, cascade_delay_gradient_s_m, cascade_delay_s};
use crate::system::System;

/// Share of the norm of a response that must be left beside the others.
const INDEPENDENT: f64 = 1e-7;

/// Bound on the free coordinates of the positions of `targets`, in their order, each given with its gains alpha_lk (K x K).
/// `frames(l, k)` is the number of frames with constant gains that path (l, k) averages, 0 if it is missing.
pub fn joint_crb_m2(
    system: &System,
    targets: &[(Point, CMatrix)],
    frames: impl Fn(usize, usize) -> f64,
) -> Result<DMatrix<f64>, SingularInformation> {
    let (count, size) = (system.irs_count(), system.axes().len() * targets.len());
    let mut total = DMatrix::zeros(size, size);
    for (l, k) in (0..count).flat_map(|l| (0..count).map(move |k| (l, k))) {
        let scale = 2.0 * frames(l, k) / system.noise_power_w;
        if let Some(derivatives) = (scale > 0.0).then(|| derivatives(system, l, k, targets)).flatten() {
            total += derivatives.ad_mul(&derivatives).map(|product| product.re * scale);
        }
    }
    inverse(total)
}

/// `P D` of path (l, k), M n_k rows; none if the path says nothing.
fn derivatives(system: &System, l: usize, k: usize, targets: &[(Point, CMatrix)]) -> Option<CMatrix> {
    let mut basis: Vec<CVector> = Vec::with_capacity(targets.len());
    let mut all = Vec::with_capacity(targets.len() * system.axes().len());
    for (target_m, gains) in targets {
        let gain = *gains.get((l, k))?;
        let (mean, derivatives) = response(system, l, k, *target_m)?;
        let rest = beside(&basis, mean.clone());
        let norm = rest.norm();
        // False for what is not a number, too.
        (norm > INDEPENDENT * mean.norm()).then_some(())?;
        basis.push(rest.unscale(norm));
        all.extend(derivatives.into_iter().map(|derivative| derivative * gain));
    }
    let projected: Vec<CVector> = all.into_iter().map(|derivative| beside(&basis, derivative)).collect();
    (!projected.is_empty()).then(|| CMatrix::from_columns(&projected))
}

/// `vector` without its components along an orthonormal basis.
fn beside(basis: &[CVector], mut vector: CVector) -> CVector {
    // The second pass removes the rounding errors of the first.
    for direction in basis.iter().chain(basis) {
        let along = direction.dotc(&vector);
        vector.axpy(-along, direction, Complex64::ONE);
    }
    vector
}

/// `g` of path (l, k), sensors by subcarriers in one column, with its derivatives with respect to the free coordinates.
fn response(system: &System, l: usize, k: usize, target_m: Point) -> Option<(CVector, Vec<CVector>)> {
    let (sensor, reflector) = (system.irs.get(l)?, system.irs.get(k)?);
    let expansion = |aperture: crate::Aperture, from_m: Point| {
        free_derivatives(system, aperture.expansion(&system.carrier(), &(target_m - from_m)))
    };
    let (arrival, arrivals) = expansion(system.sensor_aperture(l)?, sensor.pose.position_m);
    let (departure, departures) = expansion(system.element_aperture(k)?, reflector.pose.position_m);
    let phasors = system.delay_phasors(k, cascade_delay_s(&sensor.pose, &reflector.pose, target_m))?;
    let spectrum = |elements: &CVector| {
        let content = reflector.reflected_signal.tr_mul(elements);
        reflector.waveform.codes.tr_mul(&content).component_mul(&CVector::from_column_slice(&phasors))
    };
    let streams = spectrum(&departure);
    let slopes_s_m = cascade_delay_gradient_s_m(&sensor.pose, &reflector.pose, target_m);
    let by_delay = CVector::from_fn(streams.len(), |i, _| {
        let frequency = system.frequency_hz(reflector.waveform.subcarriers[i]);
        streams[i] * Complex64::new(0.0, -TAU * frequency)
    });
    let derivatives =
        system.axes().iter().zip(arrivals).zip(departures).map(|((&axis, arrives), departs)| {
            let slope = spectrum(&departs) + &by_delay * Complex64::from(slopes_s_m[axis]);
            streams.kronecker(&arrives) + slope.kronecker(&arrival)
        });
    Some((streams.kronecker(&arrival), derivatives.collect()))
}

#[cfg(test)]
mod tests {
    use super::super::{Gain, Information, Scheme};
    use super::*;
    use crate::panel::Wavefront;
    use crate::{EchoSource, Scenario, TrueTarget};

    /// Table I with two targets, once as it is and once with spherical waves, panels and heights.
    fn scenes() -> [Scenario; 2] {
        let plane = Scenario::default().with_targets(2);
        let mut space = plane.clone();
        space.signal.wavefront = Wavefront::Spherical;
        (space.surface.sensors.columns, space.surface.sensors.rows) = (4, 3);
        space.coverage.max_m[2] = 3.0;
        space.irs[0].position_m[2] = 4.0;
        [plane, space]
    }

    fn bound(source: &EchoSource, targets: &[TrueTarget]) -> Result<DMatrix<f64>, SingularInformation> {
        let targets: Vec<_> = targets.iter().map(|t| (t.position_m, source.gains(0, t))).collect();
        joint_crb_m2(source.system(), &targets, |_, _| 1.0)
    }

    #[test]
    fn the_bound_of_one_target_is_that_of_the_information() {
        for scenario in scenes() {
            let source = EchoSource::new(&scenario).unwrap();
            for target in source.targets(7) {
                let joint = bound(&source, &[target]).unwrap();
                let (at, rcs_m2) = (target.position_m, target.rcs_m2);
                let alone = Information::new(source.system(), at, rcs_m2, Gain::Unknown);
                let alone = alone.without(0, 1).averaged(2, 4.0).position_crb_m2(Scheme::Hybrid).unwrap();
                let frames = |l, k| match (l, k) {
                    (0, 1) => 0.0,
                    (2, _) => 4.0,
                    _ => 1.0,
                };
                let partial =
                    joint_crb_m2(source.system(), &[(at, source.gains(0, &target))], frames).unwrap();
                assert!((&partial - &alone).norm() < 1e-6 * alone.norm(), "{partial} {alone}");
                let whole = Information::new(source.system(), at, rcs_m2, Gain::Unknown);
                let whole = whole.position_crb_m2(Scheme::Hybrid).unwrap();
                assert!((&joint - &whole).norm() < 1e-6 * whole.norm(), "{joint} {whole}");
            }
        }
    }

    /// The entries of what node l received that belong to IRS k, as one column.
    fn part(source: &EchoSource, l: usize, k: usize, targets: &[TrueTarget]) -> CVector {
        let echo = source.frame_of(l, 0, targets) - source.noise(l, 0);
        let subcarriers = &source.system().irs[k].waveform.subcarriers;
        CVector::from_iterator(
            echo.nrows() * subcarriers.len(),
            subcarriers.iter().flat_map(|&i| echo.column(i).iter().copied().collect::<Vec<_>>()),
        )
    }

    /// The mean of two targets and its derivatives are those of noiseless echoes. A gain changes with the distance, too, which adds
    /// a multiple of the response.
    #[test]
    fn means_and_derivatives_are_those_of_echoes() {
        for scenario in scenes() {
            let source = EchoSource::new(&scenario).unwrap();
            let (system, targets) = (source.system(), source.targets(0));
            for (l, k) in [(0, 0), (1, 2), (2, 1)] {
                let mut mean = CVector::zeros(part(&source, l, k, &targets).len());
                for (t, target) in targets.iter().enumerate() {
                    let gain = |target: &TrueTarget| source.gains(0, target)[(l, k)];
                    let (g, derivatives) = response(system, l, k, target.position_m).unwrap();
                    mean += &g * gain(target);
                    for (derivative, &axis) in derivatives.iter().zip(system.axes()) {
                        let step_m = 1e-4;
                        let [ahead, behind] = [step_m, -step_m].map(|step_m| {
                            let mut moved = targets.clone();
                            moved[t].position_m[axis] += step_m;
                            (part(&source, l, k, &moved), gain(&moved[t]))
                        });
                        let half = Complex64::from(0.5 / step_m);
                        let found = (ahead.0 - behind.0) * half;
                        let expected = derivative * gain(target) + &g * ((ahead.1 - behind.1) * half);
                        let error = (&found - &expected).norm() / expected.norm();
                        assert!(error < 1e-6, "path ({l}, {k}), target {t}, axis {axis}: {error}");
                    }
                }
                let error = (part(&source, l, k, &targets) - &mean).norm() / mean.norm();
                assert!(error < 1e-9, "path ({l}, {k}): {error}");
            }
        }
    }

    /// A second target never helps, and harms more the closer it is; at the same place they cannot be told apart.
    #[test]
    fn a_second_target_raises_the_bound() {
        for scenario in scenes() {
            let source = EchoSource::new(&scenario).unwrap();
            let [first, second] = source.targets(0)[..] else { panic!("two targets") };
            let alone = bound(&source, &[first]).unwrap();
            let axes = alone.nrows();
            let mut before = f64::INFINITY;
            for distance_m in [0.3, 3.0] {
                let away = (second.position_m - first.position_m).normalize() * distance_m;
                let pair = [first, TrueTarget { position_m: first.position_m + away, ..second }];
                let joint = bound(&source, &pair).unwrap();
                let own = joint.view((0, 0), (axes, axes)).into_owned();
                let least = (&own - &alone).symmetric_eigenvalues().min();
                assert!(least > -1e-9 * alone.norm(), "{distance_m} m: {least}");
                assert!(
                    own.trace() > 1.0001 * alone.trace() && own.trace() < before,
                    "{distance_m} m: {own}"
                );
                before = own.trace();
            }
            let same = TrueTarget { position_m: first.position_m, ..second };
            assert_eq!(bound(&source, &[first, same]), Err(SingularInformation));
        }
    }

    #[test]
    fn bad_input_is_no_panic() {
        let source = EchoSource::new(&scenes()[0]).unwrap();
        let target = source.targets(0)[0];
        let system = source.system();
        let gains = source.gains(0, &target);
        assert!(joint_crb_m2(system, &[], |_, _| 1.0).is_ok_and(|bound| bound.is_empty()));
        for (at, gains, frames) in [
            (target.position_m, CMatrix::zeros(0, 0), 1.0),
            (target.position_m, gains.clone(), f64::NAN),
            (target.position_m, gains.clone(), 0.0),
            (Point::new(f64::NAN, 0.0, 0.0), gains.clone(), 1.0),
            (system.irs[0].pose.position_m, gains * Complex64::from(f64::INFINITY), 1.0),
        ] {
            assert!(joint_crb_m2(system, &[(at, gains)], |_, _| frames).is_err());
        }
    }
}
