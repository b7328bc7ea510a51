//! The log-likelihood ratio of a point, term by term, with its derivatives.
//!
//! Spectrum: `J = |m^H Y|^2 / (||m||^2 sigma^2)`, see [`super::moments`]. Block: see [`super::block`]. Delays and bearings: a
//! normal law with a share of gross errors, uniform over the window.
//!
//! Where clocks are not trusted, the state is the free coordinates and the offsets of all nodes; a term depends on that of its
//! sensing node.
//!
//! Gradients are exact for all of them. The information of a spectrum or block is that of its atom at the energy J; that of
//! a delay or bearing is its inverse variance, weighted with the probability that it is no gross error.

use std::f64::consts::TAU;

use model::Point;
use model::geometry::wrap_angle;
use model::units::SPEED_OF_LIGHT_M_S;
use num_complex::Complex64;

use super::block::{BlockRows, expand_block};
use super::evidence::{Evidence, NodeEvidence, PathEvidence};
use super::layout::View;
use super::moments::{Moments, NodeProducts, NodeSight, PathMemory};
use super::scene::{IrsView, Scene};
use crate::ascent::Expansion;

/// Assumed share of gross errors among delays and bearings.
const GROSS_SHARE: f64 = 0.05;

/// One term of the log-likelihood ratio at a point or state of the target: a path or a bearing.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub sensor: usize,
    /// The number of IRSs for a bearing.
    pub reflector: usize,
    /// The log-likelihood ratio, and its derivatives where these were asked for.
    pub expansion: Expansion,
    /// Inner products of a spectrum: those of several frames can be added coherently.
    pub moments: Option<Moments>,
    /// SNR at unit cross-section of a path whose gain is fitted: of a spectrum or a block.
    pub unit_snr: Option<f64>,
}

impl Term {
    /// The log-likelihood ratio.
    pub fn value(&self) -> f64 {
        self.expansion.value
    }
}

/// The log-likelihood ratio of all terms.
pub(super) fn total(terms: &[Term]) -> f64 {
    terms.iter().map(Term::value).sum()
}

/// The part of [`total`] that comes from spectra.
pub(super) fn spectral_total(terms: &[Term]) -> f64 {
    terms.iter().filter(|term| term.moments.is_some()).map(Term::value).sum()
}

/// The sum of all terms with its derivatives.
pub(super) fn total_expansion(terms: &[Term], parameters: usize) -> Expansion {
    let mut total = Expansion::zeros(parameters);
    terms.iter().for_each(|term| total += &term.expansion);
    total
}

/// A possible target.
#[derive(Debug, Clone, Copy)]
pub(super) struct TargetState<'a> {
    pub position_m: Point,
    /// Clock offset of every node in metres of range; empty where clocks are trusted.
    pub offsets_m: &'a [f64],
}

impl From<Point> for TargetState<'_> {
    fn from(position_m: Point) -> Self {
        Self { position_m, offsets_m: &[] }
    }
}

/// One term with derivatives with respect to its own parameters, if any: the free coordinates, and the offset of its node where
/// clocks are not trusted.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalTerm<'a> {
    pub sensor: usize,
    /// The number of IRSs for a bearing.
    pub reflector: usize,
    pub expansion: &'a Expansion,
    /// Places of the parameters in the state.
    pub places: &'a [usize],
    pub moments: Option<&'a Moments>,
    pub unit_snr: Option<f64>,
}

/// Largest number of parameters of a term: three coordinates and an offset.
const MOST_PARAMETERS: usize = 4;

/// Memory in which terms are computed. At one state after the other, all with or all without derivatives, nothing is allocated.
#[derive(Debug, Clone, Default)]
pub(super) struct TermMemory {
    views: Vec<View>,
    /// `exp(-j w o_l)` on all subcarriers.
    turn: Vec<Complex64>,
    node: NodeProducts,
    path: PathMemory,
    moments: Moments,
    block: BlockRows,
    expansion: Expansion,
}

/// The terms of the evidence at a state, with derivatives if `expand` says so.
pub(super) fn terms(
    scene: &Scene,
    evidence: &Evidence,
    state: TargetState,
    expand: bool,
    memory: &mut TermMemory,
) -> Vec<Term> {
    let count = scene.irs_count();
    let parameters = if expand { scene.layout().axes().len() + state.offsets_m.len() } else { 0 };
    let mut terms = Vec::with_capacity(count * (count + 1));
    each_term(scene, evidence, state, expand, memory, |term| {
        let mut expansion = Expansion::zeros(parameters);
        expansion.add(term.expansion, term.places);
        let LocalTerm { sensor, reflector, moments, unit_snr, .. } = term;
        terms.push(Term { sensor, reflector, expansion, moments: moments.cloned(), unit_snr });
    });
    terms
}

/// Calls `take` with the terms of the evidence at a state, row by row, with derivatives if `expand` says so; the bearing of a
/// node follows its paths.
pub(super) fn each_term(
    scene: &Scene,
    evidence: &Evidence,
    TargetState { position_m, offsets_m }: TargetState,
    expand: bool,
    memory: &mut TermMemory,
    mut take: impl FnMut(LocalTerm),
) {
    let TermMemory { views, turn, node: products, path: path_memory, moments, block: rows, expansion } =
        memory;
    scene.look(position_m, expand, views);
    let (layout, count) = (scene.layout(), views.len());
    let axes = layout.axes().len();
    for (l, node) in evidence.nodes.iter().enumerate() {
        let sensing = [&views[l]];
        let sight = NodeSight::new(node.spectrum.as_deref(), &sensing, products);
        let offset_s = offsets_m.get(l).map(|offset_m| offset_m / SPEED_OF_LIGHT_M_S);
        if let Some(offset_s) = offset_s {
            layout.set_phasors(turn, -offset_s);
        }
        let mut places: [usize; MOST_PARAMETERS] = std::array::from_fn(|i| i);
        places[axes] = axes + l;
        let parameters = if expand { axes + usize::from(offset_s.is_some()) } else { 0 };
        let places = &places[..parameters];
        let turn = offset_s.map(|_| &turn[..]);
        for (k, path) in node.paths.iter().enumerate() {
            let both = [&views[l], &views[k]];
            let turn = turn.map(|turn| &turn[scene.range(k)]);
            // The delay of the path by the clock of its node, and its gradient.
            let delay_s = cascade_delay_s(views[l].distance_m, views[k].distance_m) + offset_s.unwrap_or(0.0);
            let slopes_s: [f64; MOST_PARAMETERS] =
                std::array::from_fn(
                    |i| {
                        if i < axes { delay_slope(both, i) } else { 1.0 / SPEED_OF_LIGHT_M_S }
                    },
                );
            let slopes_s = &slopes_s[..parameters];
            if matches!(path, PathEvidence::Spectrum) || (expand && matches!(path, PathEvidence::Block(_))) {
                moments.set(layout, k, &sight, &both[1..], turn, path_memory);
            }
            match path {
                PathEvidence::Spectrum => moments.expand(path_memory, expansion),
                PathEvidence::Block(block) => {
                    expansion.set_zeros(parameters);
                    if expand {
                        moments.set_roughness(&mut expansion.information);
                    }
                    expand_block(layout, k, block, both, (delay_s, slopes_s), rows, expansion);
                }
                PathEvidence::Delay { delay, window_s } => {
                    let error_s = delay_s - delay.delay_s;
                    expand_gross_or_normal(error_s, delay.variance_s2, *window_s, slopes_s, expansion);
                }
                PathEvidence::Missing => continue,
            }
            let unit_snr = match path {
                PathEvidence::Spectrum | PathEvidence::Block(_) => {
                    Some(scene.unit_snr(views[k].strength(), views[l].distance_m, views[k].distance_m))
                }
                _ => None,
            };
            let moments = matches!(path, PathEvidence::Spectrum).then_some(&*moments);
            take(LocalTerm { sensor: l, reflector: k, expansion, places, moments, unit_snr });
        }
        if let Some((bearing, window_rad)) = node.counted_bearing() {
            let pose = &scene.system().irs[l].pose;
            let error = wrap_angle(pose.bearing_rad(position_m) - bearing.bearing_rad);
            let gradient = pose.bearing_gradient_rad_m(position_m);
            // The bearing does not depend on the clock.
            let mut slopes = [0.0; MOST_PARAMETERS];
            slopes.iter_mut().zip(layout.axes()).for_each(|(slope, &axis)| *slope = gradient[axis]);
            let slopes = &slopes[..parameters];
            expand_gross_or_normal(error, bearing.variance_rad2, window_rad, slopes, expansion);
            take(LocalTerm { sensor: l, reflector: count, expansion, places, moments: None, unit_snr: None });
        }
    }
}

/// Delay over two distances.
pub(super) fn cascade_delay_s(sensor_m: f64, reflector_m: f64) -> f64 {
    (sensor_m + reflector_m) / SPEED_OF_LIGHT_M_S
}

/// Derivative of the cascade delay with respect to a free coordinate, from the views of sensing and reflecting IRS.
fn delay_slope([sensor, reflector]: [&View; 2], i: usize) -> f64 {
    (sensor.direction[i] + reflector.direction[i]) / SPEED_OF_LIGHT_M_S
}

/// Ratio of a normal law to one that is uniform over the window w, with its share: `(1 - p) w N(e; 0, v)`.
fn normal_ratio(error: f64, variance: f64, window: f64) -> f64 {
    (1.0 - GROSS_SHARE) * window / (TAU * variance).sqrt() * (-0.5 * error.powi(2) / variance).exp()
}

/// `ln(p + (1 - p) w N(e; 0, v))`: the ratio to a value that is uniform over the window w.
fn gross_or_normal(error: f64, variance: f64, window: f64) -> f64 {
    (GROSS_SHARE + normal_ratio(error, variance, window)).ln()
}

/// [`gross_or_normal`] with derivatives, from those of the error.
fn expand_gross_or_normal(error: f64, variance: f64, window: f64, slopes: &[f64], into: &mut Expansion) {
    let ratio = normal_ratio(error, variance, window);
    let weight = ratio / (GROSS_SHARE + ratio) / variance;
    into.set_zeros(slopes.len());
    into.value = gross_or_normal(error, variance, window);
    for (i, slope) in slopes.iter().enumerate() {
        into.gradient[i] = -weight * error * slope;
        slopes.iter().enumerate().for_each(|(j, other)| into.information[(i, j)] = weight * slope * other);
    }
}

/// Term of a node's bearing.
pub(super) fn bearing_term(node: &NodeEvidence, view: &IrsView) -> Option<f64> {
    let (bearing, window_rad) = node.counted_bearing()?;
    let error = wrap_angle(view.bearing_rad - bearing.bearing_rad);
    Some(gross_or_normal(error, bearing.variance_rad2, window_rad))
}

/// Term of a delay, from which the offset of a clock is removed.
pub(super) fn delay_term(
    path: &PathEvidence,
    sensor: &IrsView,
    reflector: &IrsView,
    offset_s: f64,
) -> Option<f64> {
    let PathEvidence::Delay { delay, window_s } = path else { return None };
    let error_s = cascade_delay_s(sensor.distance_m, reflector.distance_m) + offset_s - delay.delay_s;
    Some(gross_or_normal(error_s, delay.variance_s2, *window_s))
}

#[cfg(test)]
mod tests {
    use model::algebra::unit_phasor;
    use model::random::{Purpose, complex_normal, stream};
    use model::{
        Aperture, CMatrix, ElementGrid, Gain, Information, Orientation, Scenario, Scheme, System, Wavefront,
    };
    use nalgebra::DMatrix;
    use proptest::prelude::*;

    use super::super::layout::{Layout, LayoutIrs};
    use super::super::{DirectLocator, DirectSettings};
    use super::*;
    use crate::delay::DelayEstimator;
    use crate::location::{Bearing, CascadeDelay};

    /// What the nodes of a system receive from a target somewhere in the area, for a seed.
    fn received(scene: &Scene, seed: u64) -> Vec<CMatrix> {
        let (system, random) = (scene.system(), &mut stream(seed, Purpose::Noise, [0, 0]));
        // The squared modulus of a normal variable is exponential.
        let mut uniform = || 1.0 - (-complex_normal(random, 1.0).norm_sqr()).exp();
        let point = system.coverage.at(uniform(), uniform());
        let phases: Vec<f64> = (0..9).map(|_| TAU * uniform()).collect();
        let views = scene.layout().views(&point, false);
        let node = |l: usize| {
            let mut frame = CMatrix::from_fn(system.sensors(), system.subcarriers, |_, _| {
                complex_normal(random, system.noise_power_w)
            });
            for (k, irs) in system.irs.iter().enumerate() {
                let gain = system.echo_gain(l, k, point, 5.0).unwrap() * unit_phasor(phases[3 * l + k]);
                for ((f, &subcarrier), content) in
                    scene.range(k).zip(&irs.waveform.subcarriers).zip(&views[k].streams[0])
                {
                    let symbol = gain * content * views[l].phasors[f] * views[k].phasors[f];
                    let column = frame.column_mut(subcarrier).into_iter().zip(&views[l].arrival[0]);
                    column.for_each(|(y, a)| *y += symbol * a);
                }
            }
            frame
        };
        (0..3).map(node).collect()
    }

    /// A frame as evidence; paths deliver spectra, blocks, delays, or all of them in turn.
    fn evidence(locator: &DirectLocator, seed: u64, payload: usize) -> Evidence {
        let mut evidence = locator.evidence();
        let system = locator.system();
        for (l, frame) in received(&locator.scene, seed).iter().enumerate() {
            let node = DelayEstimator::new(system, l).unwrap();
            let report = node.estimate(frame).unwrap();
            for (k, path) in report.paths.iter().enumerate() {
                match if payload < 3 { payload } else { (l + k) % 3 } {
                    0 => evidence.spectrum(l, k, &path.spectrum, report.noise_power_w),
                    1 => evidence.block(l, k, &path.expansion(), report.noise_power_w),
                    _ => {
                        let delay =
                            CascadeDelay { delay_s: path.delay_s, variance_s2: path.delay_variance_s2 };
                        evidence.delay(l, k, delay, node.window(k).unwrap().width_s())
                    }
                }
                .unwrap();
            }
            if let Some(arrival) = report.arrival {
                let bearing_rad = arrival.bearing_rad + system.irs[l].pose.broadside_rad();
                evidence.bearing(l, Bearing { bearing_rad, ..arrival }, 0.5).unwrap();
            }
        }
        evidence
    }

    fn locator(seed: u64, wavefront: Wavefront) -> DirectLocator {
        let mut scenario = Scenario::default().with_seed(seed);
        scenario.signal.wavefront = wavefront;
        DirectLocator::new(&System::new(&scenario).unwrap(), DirectSettings::default()).unwrap()
    }

    /// Information on the position at unit cross-section, from the moments of a layout.
    fn information(scene: &Scene, layout: &Layout, point: Point) -> DMatrix<f64> {
        let views = layout.views(&point, true);
        let axes = layout.axes().len();
        let mut sum = DMatrix::zeros(axes, axes);
        let (mut products, mut memory) = (NodeProducts::default(), PathMemory::default());
        let mut moments = Moments::default();
        for (l, sensor) in views.iter().enumerate() {
            let sensing = [sensor];
            let sight = NodeSight::new(None, &sensing, &mut products);
            for (k, reflector) in views.iter().enumerate() {
                moments.set(layout, k, &sight, &[reflector], None, &mut memory);
                let snr = scene.unit_snr(reflector.strength(), views[l].distance_m, views[k].distance_m);
                sum += moments.roughness() * (2.0 * snr);
            }
        }
        sum
    }

    /// Panels in space have the Fisher information of the model, too.
    #[test]
    fn moments_of_panels_have_the_fisher_information() {
        for wavefront in [Wavefront::Plane, Wavefront::Spherical] {
            let scene = panels(3, wavefront).scene;
            let point = scene.system().coverage.at_height(0.3, 0.65, 0.4);
            let found = information(&scene, scene.layout(), point);
            let exact = Information::new(scene.system(), point, 1.0, Gain::Unknown);
            let exact = exact.position_information(Scheme::Hybrid);
            assert_eq!(exact.nrows(), 3);
            assert!((&found - &exact).norm() < 1e-9 * exact.norm(), "{wavefront:?}: {found} {exact}");
        }
    }

    /// The moments have the exact Fisher information, for both wavefronts; for plane waves it does not matter whether phases
    /// refer to the end of an array or to its centre.
    #[test]
    fn moments_have_the_fisher_information() {
        for wavefront in [Wavefront::Plane, Wavefront::Spherical] {
            let mut scenario = Scenario::default();
            scenario.signal.wavefront = wavefront;
            let system = System::new(&scenario).unwrap();
            let (scene, point) = (Scene::new(&system), Point::new(3.0, 6.5, 0.0));
            let found = information(&scene, scene.layout(), point);
            let exact =
                Information::new(&system, point, 1.0, Gain::Unknown).position_information(Scheme::Hybrid);
            assert!((&found - &exact).norm() < 1e-9 * exact.norm(), "{wavefront:?}: {found} {exact}");
            let spacing_m = system.spacing_wavelengths * system.wavelength_m;
            let centred = scene.layout().irs().iter().zip(&system.irs).map(|(irs, placed)| {
                let azimuth_rad = placed.pose.broadside_rad();
                let line = Aperture::grid(10.into(), spacing_m, &Orientation::level(azimuth_rad));
                LayoutIrs { sensors: line.clone(), elements: line.mirrored(), ..irs.clone() }
            });
            let centred =
                Layout::new(system.carrier(), centred.collect(), vec![0, 1], Point::zeros()).unwrap();
            let found = information(&scene, &centred, point);
            assert!(
                (&found - &exact).norm() < 1e-9 * exact.norm(),
                "{wavefront:?}, centred: {found} {exact}"
            );
        }
    }

    /// Three panels around a volume, for a seed.
    fn panels(seed: u64, wavefront: Wavefront) -> DirectLocator {
        let mut scenario = Scenario::default().with_seed(seed).with_power_dbm(60.0);
        scenario.signal.wavefront = wavefront;
        scenario.surface.elements = ElementGrid { columns: 3, rows: 4 };
        scenario.surface.sensors = ElementGrid { columns: 4, rows: 2 };
        scenario.coverage.max_m[2] = 6.0;
        for (irs, height_m) in scenario.irs.iter_mut().zip([8.0, -3.0, 12.0]) {
            (irs.position_m[2], irs.facing_m, irs.roll_deg) = (height_m, None, Some(height_m));
        }
        DirectLocator::new(&System::new(&scenario).unwrap(), DirectSettings::default()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Every kind of payload, term by term, anywhere in the area: lines in the plane and panels in space, plane and
        /// spherical waves, clocks trusted or not.
        #[test]
        fn gradients_match_differences(
            seed in 0u64..1000, payload in 0usize..4, u in 0.0..1.0f64, v in 0.0..1.0f64, w in 0.0..1.0f64,
            spherical in any::<bool>(), space in any::<bool>(), timed in any::<bool>(),
        ) {
            let wavefront = if spherical { Wavefront::Spherical } else { Wavefront::Plane };
            let locator = if space { panels(seed, wavefront) } else { locator(seed, wavefront) };
            let evidence = evidence(&locator, seed, payload);
            let (axes, h) = (locator.system().axes().len(), 2e-4);
            let at = |state: &[f64], expand: bool| {
                let position_m = locator.scene.layout().position_m(&state[..axes]);
                let state = TargetState { position_m, offsets_m: &state[axes..] };
                terms(&locator.scene, &evidence, state, expand, &mut TermMemory::default())
            };
            let point = locator.scene.layout().coordinates(&locator.system().coverage.at_height(u, v, w));
            let offsets_m = [1.3, -2.1, 0.4].into_iter().filter(|_| timed);
            let state: Vec<f64> = point.iter().copied().chain(offsets_m).collect();
            let here = at(&state, true);
            for i in 0..state.len() {
                let stepped = |steps: f64| {
                    let mut state = state.clone();
                    state[i] += steps * h;
                    at(&state, false)
                };
                let values = [-2.0, -1.0, 1.0, 2.0].map(stepped);
                for (t, term) in here.iter().enumerate() {
                    let v: Vec<f64> = values.iter().map(|terms| terms[t].value()).collect();
                    let difference = (8.0 * (v[2] - v[1]) - (v[3] - v[0])) / (12.0 * h);
                    let slope = term.expansion.gradient[i];
                    let scale = 1.0 + term.value().abs() + slope.abs();
                    prop_assert!((difference - slope).abs() < 1e-6 * scale, "term {t}: {difference} {slope}");
                }
            }
        }
    }

    /// What is left of the ascent at a fix is a fraction of a micrometre.
    #[test]
    fn a_fix_is_the_maximum() {
        let mut fixes = 0;
        for (seed, payload) in (0..40).flat_map(|seed| [(seed, 0), (seed, 1)]) {
            let locator = locator(seed, Wavefront::Plane);
            let survey = locator.survey(evidence(&locator, seed, payload));
            let Ok(fix) = locator.locate(&survey) else { continue };
            if !fix.excluded.is_empty() {
                continue;
            }
            let terms = terms(
                &locator.scene,
                &survey.evidence,
                fix.position_m.into(),
                true,
                &mut TermMemory::default(),
            );
            let here = total_expansion(&terms, 2);
            let step = here.information.cholesky().unwrap().solve(&here.gradient);
            assert!(step.norm() < 3e-7, "seed {seed}, payload {payload}: {}", step.norm());
            fixes += 1;
        }
        assert!(fixes >= 76, "{fixes} of 80");
    }

    /// The law of a delay or bearing is one over its window, and its tails are those of gross errors.
    #[test]
    fn gross_or_normal_errors_are_a_law() {
        let (variance, window, steps) = (0.04, 6.0, 6000);
        let density = |i: i32| {
            let error = window * ((f64::from(i) + 0.5) / f64::from(steps) - 0.5);
            gross_or_normal(error, variance, window).exp() / f64::from(steps)
        };
        assert!(((0..steps).map(density).sum::<f64>() - 1.0).abs() < 1e-6);
        assert!((gross_or_normal(2.9, variance, window).exp() - GROSS_SHARE).abs() < 1e-9);
        let normal = |error: f64| normal_ratio(error, variance, window);
        assert!((normal(0.2) / normal(0.0) - (-0.5f64).exp()).abs() < 1e-12);
        let mut expansion = Expansion::default();
        expand_gross_or_normal(0.0, variance, window, &[3.0], &mut expansion);
        let share = normal(0.0) / (GROSS_SHARE + normal(0.0));
        assert!((expansion.information[0] - share * 9.0 / variance).abs() < 1e-9);
    }
}
