//! The likelihood and its maximum on random scenes: lines in a plane and panels in space, both wavefronts, one to three
//! targets, clocks known and unknown.

use std::f64::consts::TAU;

use model::algebra::unit_phasor;
use model::random::{Purpose, Stream, complex_normal, stream};
use model::units::SPEED_OF_LIGHT_M_S;
use model::{Aperture, CMatrix, Carrier, ElementGrid, Orientation, Point, Wavefront};
use nalgebra::{DVector, linalg::QR};
use num_complex::Complex64;
use proptest::prelude::*;

use super::super::evidence::Evidence;
use super::super::layout::{Layout, LayoutIrs};
use super::map::{Lags, inside};
use super::state::JointLikelihood;
use super::{Clocks, JointError, JointSettings, locate_jointly};

struct Scene {
    layout: Layout,
    evidence: Evidence,
    settings: JointSettings,
    /// The true state.
    truth: DVector<f64>,
}

impl Scene {
    fn likelihood(&self) -> JointLikelihood<'_> {
        let offsets = self.settings.clocks != Clocks::Known;
        JointLikelihood { layout: &self.layout, evidence: &self.evidence, offsets }
    }
}

fn random(seed: u64) -> Stream {
    stream(seed, Purpose::Noise, [0, 0])
}

fn normal(random: &mut Stream) -> Complex64 {
    complex_normal(random, 1.0)
}

/// Uniform between zero and one: the squared modulus of a normal variable is exponential.
fn uniform(random: &mut Stream) -> f64 {
    1.0 - (-normal(random).norm_sqr()).exp()
}

fn irs(random: &mut Stream, centre_m: Point, aim_m: Point, space: bool, k: usize) -> LayoutIrs {
    let orientation = Orientation::towards(centre_m, aim_m);
    let (grids, spacing_m, streams, subcarriers, bandwidth_hz) =
        if space { ([[4, 4], [4, 3]], 0.043, 4, 12, 100e6) } else { ([[8, 1], [8, 1]], 0.3, 5, 16, 50e6) };
    let [elements, sensors] =
        grids.map(|[columns, rows]| Aperture::grid(ElementGrid { columns, rows }, spacing_m, &orientation));
    let gaussian = CMatrix::from_fn(subcarriers, streams, |_, _| normal(random));
    let total = 4 * subcarriers;
    LayoutIrs {
        centre_m,
        reflected_signal: CMatrix::from_fn(elements.len(), streams, |_, _| normal(random)),
        sensors,
        elements,
        codes: QR::new(gaussian).q().adjoint(),
        frequencies_hz: (0..subcarriers)
            .map(|i| (4 * i + (k + i) % 4) as f64 * bandwidth_hz / total as f64 - bandwidth_hz / 2.0)
            .collect(),
    }
}

/// A scene whose paths have this SNR for each target; no noise where it is not finite.
fn scene(seed: u64, space: bool, wavefront: Wavefront, targets: usize, clocks: bool, snr: f64) -> Scene {
    let random = &mut random(seed);
    let (centres, min_m, max_m) = if space {
        let corners = [[0.0, 0.0, 4.0], [20.0, 0.0, 4.5], [20.0, 15.0, 3.5], [0.0, 15.0, 5.0]];
        (corners.to_vec(), Point::new(2.0, 2.0, 0.0), Point::new(18.0, 13.0, 3.0))
    } else {
        let around = [[10.0, 50.0, 0.0], [10.0, -50.0, 0.0], [50.0, 0.0, 0.0]];
        (around.to_vec(), Point::zeros(), Point::new(10.0, 10.0, 0.0))
    };
    let middle_m = (min_m + max_m) / 2.0;
    let parts = centres.iter().enumerate();
    let parts = parts.map(|(k, centre)| irs(random, Point::from(*centre), middle_m, space, k)).collect();
    let wavelength_m = if space { 0.0857 } else { 0.3 };
    let axes: Vec<usize> = if space { vec![0, 1, 2] } else { vec![0, 1] };
    let layout = Layout::new(Carrier { wavelength_m, wavefront }, parts, axes.clone(), min_m).unwrap();
    let count = layout.irs().len();
    // Far enough apart to be resolved.
    let mut positions_m: Vec<Point> = Vec::new();
    while positions_m.len() < targets {
        let place = Point::from_fn(|axis, _| min_m[axis] + uniform(random) * (max_m[axis] - min_m[axis]));
        if positions_m.iter().all(|other| (place - other).xy().norm() > 3.5) {
            positions_m.push(place);
        }
    }
    positions_m.sort_by(|a, b| a.x.total_cmp(&b.x));
    let offsets_s: Vec<f64> =
        (0..count).map(|_| if clocks { 2e-7 * uniform(random) - 1e-7 } else { 0.0 }).collect();
    let mut evidence = Evidence::of_layout(&layout);
    let views: Vec<_> = positions_m.iter().map(|position_m| layout.views(position_m, false)).collect();
    for l in 0..count {
        for k in 0..count {
            let (own, sensors) = (layout.range(k), layout.irs()[l].sensors.len());
            let mut spectrum = CMatrix::zeros(sensors, own.len());
            for seen in &views {
                let content: Vec<Complex64> = own
                    .clone()
                    .enumerate()
                    .map(|(i, f)| {
                        let turn = unit_phasor(-layout.frequencies_rad_s()[f] * offsets_s[l]);
                        seen[k].streams[0][i] * seen[l].phasors[f] * seen[k].phasors[f] * turn
                    })
                    .collect();
                let energy = content.iter().map(Complex64::norm_sqr).sum::<f64>() * sensors as f64;
                let gain = unit_phasor(TAU * uniform(random))
                    * (if snr.is_finite() { snr } else { 100.0 } / energy).sqrt();
                spectrum +=
                    CMatrix::from_fn(sensors, own.len(), |m, i| gain * seen[l].arrival[0][m] * content[i]);
            }
            if snr.is_finite() {
                spectrum.iter_mut().for_each(|y| *y += normal(random));
            }
            evidence.spectrum(l, k, &spectrum, 1.0).unwrap();
        }
    }
    let clocks = if clocks { Clocks::Unknown { window_s: 1.1e-7 } } else { Clocks::Known };
    let coordinates = positions_m.iter().flat_map(|p| axes.iter().map(|&axis| p[axis]));
    let offsets_m = offsets_s.iter().map(|o| o * SPEED_OF_LIGHT_M_S).filter(|_| clocks != Clocks::Known);
    let truth = DVector::from_vec(coordinates.chain(offsets_m).collect());
    Scene { layout, evidence, settings: JointSettings { targets, clocks, min_m, max_m }, truth }
}

fn wavefronts() -> impl Strategy<Value = Wavefront> {
    prop_oneof![Just(Wavefront::Plane), Just(Wavefront::Spherical)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Away from the maximum, with noise.
    #[test]
    fn gradients_match_differences(
        seed in 0u64..10_000, space in any::<bool>(), wavefront in wavefronts(), targets in 1usize..4, clocks in any::<bool>(),
    ) {
        let scene = scene(seed, space, wavefront, targets, clocks, 30.0);
        let likelihood = scene.likelihood();
        let random = &mut random(seed);
        let state = scene.truth.map(|v| v + 0.8 * uniform(random) - 0.4);
        let here = likelihood.expand(&state);
        let h = 2e-4;
        for i in 0..state.len() {
            let at = |steps: f64| {
                let mut moved = state.clone();
                moved[i] += steps * h;
                likelihood.expand(&moved).value
            };
            let difference = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h);
            let scale = here.value;
            prop_assert!((difference - here.gradient[i]).abs() < 1e-6 * scale, "{i}: {difference} {}", here.gradient[i]);
        }
    }

    /// Without noise Gauss-Newton leaves nothing out: the information at the truth is minus the derivative of the gradient.
    #[test]
    fn information_is_the_curvature_without_noise(
        seed in 0u64..10_000, space in any::<bool>(), wavefront in wavefronts(), targets in 1usize..4, clocks in any::<bool>(),
    ) {
        let scene = scene(seed, space, wavefront, targets, clocks, f64::INFINITY);
        let likelihood = scene.likelihood();
        let here = likelihood.expand(&scene.truth);
        prop_assert!(here.gradient.norm() < 1e-6 * here.value);
        let (h, scale) = (2e-4, here.information.amax());
        for i in 0..scene.truth.len() {
            let at = |steps: f64| {
                let mut moved = scene.truth.clone();
                moved[i] += steps * h;
                likelihood.expand(&moved).gradient
            };
            let difference = ((at(1.0) - at(-1.0)) * 8.0 - (at(2.0) - at(-2.0))) / (-12.0 * h);
            let error = (difference - here.information.column(i)).amax();
            prop_assert!(error < 1e-6 * scale, "{i}: {error} of {scale}");
        }
    }
}

/// 16 scenes of all kinds at 15 dB per path: the maximum is at least as high as the truth, and its errors agree with its
/// covariance.
#[test]
fn the_search_finds_the_targets() {
    let mut kinds = Vec::new();
    for space in [false, true] {
        for wavefront in [Wavefront::Plane, Wavefront::Spherical] {
            for (targets, clocks) in [(1, false), (1, true), (2, false), (2, true)] {
                kinds.push((space, wavefront, targets, clocks));
            }
        }
    }
    let (mut sum, mut freedom) = (0.0, 0);
    for (seed, (space, wavefront, targets, clocks)) in kinds.into_iter().enumerate() {
        let scene = scene(seed as u64, space, wavefront, targets, clocks, 32.0);
        let fix = locate_jointly(&scene.layout, &scene.evidence, &scene.settings).unwrap();
        let name = format!("space {space}, {wavefront:?}, {targets} targets, clocks {clocks}");
        assert!(fix.log_likelihood >= scene.likelihood().expand(&scene.truth).value, "{name}");
        let axes = scene.layout.axes();
        let found = fix.positions_m.iter().flat_map(|p| axes.iter().map(|&axis| p[axis]));
        let count = targets * axes.len();
        let error = DVector::from_iterator(count, found) - scene.truth.rows(0, count);
        let nees = error.dot(&fix.covariance_m2.clone().cholesky().unwrap().solve(&error));
        assert!(nees < 10.0 * count as f64, "{name}: NEES {nees} of {count}, error {error}");
        for (l, offset) in fix.offsets_s.iter().enumerate() {
            let (offset_s, deviation_s) = offset.unwrap();
            let error_s = offset_s - scene.truth[count + l] / SPEED_OF_LIGHT_M_S;
            assert!(error_s.abs() < 6.0 * deviation_s, "{name}: clock {l}");
        }
        sum += nees;
        freedom += count;
    }
    // Chi-square with 60 degrees of freedom: 99.9 % band.
    assert_eq!(freedom, 60);
    assert!((31.0..103.0).contains(&sum), "{sum}");
}

#[test]
fn impossible_problems_are_refused() {
    let scene = scene(1, false, Wavefront::Plane, 1, false, 30.0);
    let solve = |settings: JointSettings| locate_jointly(&scene.layout, &scene.evidence, &settings);
    let settings = scene.settings;
    let nothing = Evidence::of_layout(&scene.layout);
    assert_eq!(locate_jointly(&scene.layout, &nothing, &settings), Err(JointError::NoEvidence));
    assert!(matches!(solve(JointSettings { targets: 0, ..settings }), Err(JointError::Targets { .. })));
    assert!(matches!(solve(JointSettings { targets: 1000, ..settings }), Err(JointError::Targets { .. })));
    let around =
        JointSettings { max_m: Point::new(60.0, 10.0, 0.0), min_m: Point::new(0.0, -10.0, 0.0), ..settings };
    assert_eq!(solve(around), Err(JointError::Inside { k: 2 }));
    assert_eq!(solve(JointSettings { max_m: settings.min_m, ..settings }), Err(JointError::Volume));
    let clocks = Clocks::Unknown { window_s: -1.0 };
    assert_eq!(solve(JointSettings { clocks, ..settings }), Err(JointError::Window { window_s: -1.0 }));
}

/// Without noise every target and clock is found exactly, also on the edge of the volume.
#[test]
fn without_noise_the_truth_is_found() {
    for (targets, clocks) in [(1, false), (1, true), (2, false)] {
        let scene = scene(5, false, Wavefront::Plane, targets, clocks, f64::INFINITY);
        let fix = locate_jointly(&scene.layout, &scene.evidence, &scene.settings).unwrap();
        let name = format!("{targets} targets, clocks {clocks}");
        for (t, position_m) in fix.positions_m.iter().enumerate() {
            let error_m = (position_m.xy() - scene.truth.fixed_rows::<2>(2 * t)).norm();
            assert!(error_m < 1e-4, "{name}: {error_m}");
        }
        assert_eq!(fix.offsets_s.len(), if clocks { 3 } else { 0 });
        for (l, offset) in fix.offsets_s.iter().enumerate() {
            let (offset_s, deviation_s) = offset.unwrap();
            let error_m = offset_s * SPEED_OF_LIGHT_M_S - scene.truth[2 * targets + l];
            assert!(error_m.abs() < 1e-4, "{name}, clock {l}: {error_m}");
            // Nine paths of an SNR of 100: decimetres.
            assert!((0.01..1.0).contains(&(deviation_s * SPEED_OF_LIGHT_M_S)), "{name}: {deviation_s}");
        }
        // The volume ends at the target; what is just past the edge is still accepted.
        let first_m = scene.layout.position_m(scene.truth.rows(0, 2).iter());
        let narrower = JointSettings { max_m: first_m + Point::new(-0.01, -0.01, 0.0), ..scene.settings };
        if targets == 1 {
            let fix = locate_jointly(&scene.layout, &scene.evidence, &narrower).unwrap();
            assert!((fix.positions_m[0] - first_m).norm() < 1e-4, "{name}: {}", fix.positions_m[0]);
        }
    }
}

#[test]
fn a_box_holds_what_is_inside() {
    let (min_m, max_m) = (Point::new(0.0, 1.0, 2.0), Point::new(4.0, 5.0, 2.0));
    assert!(inside(&Point::new(0.0, 5.0, 2.0), &min_m, &max_m));
    for outside in [[-0.1, 3.0, 2.0], [4.1, 3.0, 2.0], [2.0, 0.9, 2.0], [2.0, 5.1, 2.0], [2.0, 3.0, 2.1]] {
        assert!(!inside(&Point::from(outside), &min_m, &max_m), "{outside:?}");
    }
}

/// Where the target is known, the best offset of every clock is the lag next to the true one.
#[test]
fn clocks_are_searched_again_where_the_target_is_known() {
    let scene = scene(5, false, Wavefront::Plane, 1, true, f64::INFINITY);
    let lags = Lags::new(scene.layout.frequencies_rad_s(), 1.1e-7, 2e-9);
    let mut state = scene.truth.clone();
    state.rows_mut(2, 3).fill(7.0);
    let found = scene.likelihood().retimed(&state, &lags);
    assert_eq!(found.rows(0, 2), scene.truth.rows(0, 2));
    // Half of two nanoseconds, in metres.
    assert!((found - scene.truth).amax() < 0.31);
}
