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
use nalgebra::DVector;

use super::block::block_expansion;
use super::evidence::{Evidence, NodeEvidence, PathEvidence};
use super::layout::View;
use super::moments::{Moments, NodeSight};
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
    for Term { expansion, .. } in terms {
        total.value += expansion.value;
        total.gradient += &expansion.gradient;
        total.information += &expansion.information;
    }
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

/// The terms of the evidence at a state, row by row, with derivatives if `expand` says so; the bearing of a node follows its
/// paths. Buffers of `views` are reused.
pub(super) fn terms(
    scene: &Scene,
    evidence: &Evidence,
    TargetState { position_m, offsets_m }: TargetState,
    expand: bool,
    views: &mut Vec<View>,
) -> Vec<Term> {
    scene.look(position_m, expand, views);
    let (count, axes) = (views.len(), scene.layout().axes().len());
    let mut terms = Vec::with_capacity(count * (count + 1));
    for (l, node) in evidence.nodes.iter().enumerate() {
        let sight = NodeSight::new(node.spectrum.as_deref(), vec![&views[l]]);
        let offset_s = offsets_m.get(l).map(|offset_m| offset_m / SPEED_OF_LIGHT_M_S);
        let turn = offset_s.map(|offset_s| scene.layout().phasors(-offset_s));
        let moments = |k: usize| {
            let turn = turn.as_ref().map(|turn| &turn[scene.range(k)]);
            Moments::new(scene.layout(), k, &sight, &[&views[k]], turn)
        };
        // The delay of a path by the clock of its node, and its gradient.
        let delay = |k: usize| {
            let delay_s = cascade_delay_s(views[l].distance_m, views[k].distance_m);
            let slopes = delay_slopes(&views[l], &views[k], expand);
            let by_offset = offset_s.filter(|_| expand).map(|_| 1.0 / SPEED_OF_LIGHT_M_S);
            (delay_s + offset_s.unwrap_or(0.0), slopes.chain(by_offset).collect::<Vec<f64>>())
        };
        // A term knows the coordinates and the offset of its own node.
        let placed = |expansion: Expansion| {
            if offset_s.is_none() || !expand {
                return expansion;
            }
            let mut whole = Expansion::zeros(axes + count);
            let places: Vec<usize> = (0..axes).chain([axes + l]).take(expansion.gradient.len()).collect();
            whole.add(&expansion, &places);
            whole
        };
        for (k, path) in node.paths.iter().enumerate() {
            let unit_snr =
                || Some(scene.unit_snr(views[k].strength(), views[l].distance_m, views[k].distance_m));
            let term = |expansion, moments, unit_snr| {
                Some(Term { sensor: l, reflector: k, expansion: placed(expansion), moments, unit_snr })
            };
            terms.extend(match path {
                PathEvidence::Spectrum => {
                    let moments = moments(k);
                    term(moments.expansion(), Some(moments), unit_snr())
                }
                PathEvidence::Block(block) => {
                    let roughness = expand.then(|| moments(k).roughness());
                    let (delay_s, slopes_s) = delay(k);
                    let both = [&views[l], &views[k]];
                    term(
                        block_expansion(scene, k, block, both, (delay_s, &slopes_s), roughness),
                        None,
                        unit_snr(),
                    )
                }
                PathEvidence::Delay { delay: found, window_s } => {
                    let (delay_s, slopes_s) = delay(k);
                    let error_s = delay_s - found.delay_s;
                    term(
                        gross_or_normal_expansion(error_s, found.variance_s2, *window_s, &slopes_s),
                        None,
                        None,
                    )
                }
                PathEvidence::Missing => None,
            });
        }
        terms.extend(node.counted_bearing().map(|(bearing, window_rad)| {
            let pose = &scene.system().irs[l].pose;
            let error = wrap_angle(pose.bearing_rad(position_m) - bearing.bearing_rad);
            let gradient = pose.bearing_gradient_rad_m(position_m);
            let slopes = scene.layout().axes().iter().filter(|_| expand).map(|&axis| gradient[axis]);
            let slopes: Vec<f64> = slopes.collect();
            let expansion =
                placed(gross_or_normal_expansion(error, bearing.variance_rad2, window_rad, &slopes));
            Term { sensor: l, reflector: count, expansion, moments: None, unit_snr: None }
        }));
    }
    terms
}

/// Delay over two distances.
pub(super) fn cascade_delay_s(sensor_m: f64, reflector_m: f64) -> f64 {
    (sensor_m + reflector_m) / SPEED_OF_LIGHT_M_S
}

/// Gradient of the cascade delay; empty without derivatives.
fn delay_slopes(sensor: &View, reflector: &View, expand: bool) -> impl Iterator<Item = f64> {
    let both = sensor.direction.iter().zip(&reflector.direction);
    both.filter(move |_| expand).map(|(a, b)| (a + b) / SPEED_OF_LIGHT_M_S)
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
fn gross_or_normal_expansion(error: f64, variance: f64, window: f64, slopes: &[f64]) -> Expansion {
    let ratio = normal_ratio(error, variance, window);
    let weight = ratio / (GROSS_SHARE + ratio) / variance;
    let slopes = DVector::from_row_slice(slopes);
    Expansion {
        value: gross_or_normal(error, variance, window),
        information: &slopes * slopes.transpose() * weight,
        gradient: slopes * (-weight * error),
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
        for (l, sensor) in views.iter().enumerate() {
            let sight = NodeSight::new(None, vec![sensor]);
            for (k, reflector) in views.iter().enumerate() {
                let moments = Moments::new(layout, k, &sight, &[reflector], None);
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
                terms(&locator.scene, &evidence, state, expand, &mut Vec::new())
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
            let terms = terms(&locator.scene, &survey.evidence, fix.position_m.into(), true, &mut Vec::new());
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
        let expansion = gross_or_normal_expansion(0.0, variance, window, &[3.0]);
        let share = normal(0.0) / (GROSS_SHARE + normal(0.0));
        assert!((expansion.information[0] - share * 9.0 / variance).abs() < 1e-9);
    }
}
