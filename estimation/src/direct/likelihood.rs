//! The log-likelihood ratio of a point, term by term.
//!
//! Spectrum: `J = |z|^2`, `z = m^H Y / (||m|| sigma)`. Block R with derivative R' at tau_0: with `z = a^H R b /
//! (sqrt(M) ||b|| sigma)`, its derivative z' and the illumination's centre w and width B, the peak is
//! `|z|^2 exp(B^2 (e^2 - (d - e)^2))`, `d = tau(x) - tau_0`, `e = Re(z^* (z' - j w z)) / (B^2 |z|^2)`: value
//! and slope at tau_0 are exact, the curvature is that of a known spectrum, and far from tau_0 the block carries no
//! information. Delays and bearings: a normal law with a share of gross errors, uniform over the window.

use std::f64::consts::TAU;

use model::geometry::wrap_angle;
use model::units::SPEED_OF_LIGHT_M_S;
use model::{CMatrix, Point};
use num_complex::Complex64;

use super::evidence::{Evidence, NodeEvidence, PathEvidence};
use super::scene::{IrsView, Scene};

/// Assumed share of gross errors among delays and bearings.
const GROSS_SHARE: f64 = 0.05;
/// Largest distance of the peak of a block from the delay of its expansion, in units of 1 / B.
const FARTHEST_PEAK: f64 = 1.0;

/// One term of the log-likelihood ratio at a point or state of the target: a path or a bearing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    pub sensor: usize,
    /// The number of IRSs for a bearing.
    pub reflector: usize,
    /// The log-likelihood ratio.
    pub value: f64,
    /// `z` of a spectrum, where `|z|^2` is the value: such terms of several frames can be added coherently.
    pub amplitude: Option<Complex64>,
    /// `||b_k||`.
    pub strength: f64,
    /// SNR at unit cross-section of a path whose gain is fitted: of a spectrum or a block.
    pub unit_snr: Option<f64>,
}

/// The log-likelihood ratio of all terms.
pub(super) fn total(terms: &[Term]) -> f64 {
    terms.iter().map(|term| term.value).sum()
}

/// The part of [`total`] that comes from spectra.
pub(super) fn spectral_total(terms: &[Term]) -> f64 {
    terms.iter().filter(|term| term.amplitude.is_some()).map(|term| term.value).sum()
}

/// The terms of the evidence at a point, row by row; the bearing of a node follows its paths.
pub(super) fn terms(scene: &Scene, evidence: &Evidence, point: Point) -> Vec<Term> {
    let views = scene.views(point);
    let mut terms = Vec::with_capacity(views.len() * (views.len() + 1));
    for (l, node) in evidence.nodes.iter().enumerate() {
        let row = node.spectrum.as_ref().map(|rows| turned_row(rows, &views[l]));
        let plain = |reflector: usize, value: f64| Term {
            sensor: l,
            reflector,
            value,
            amplitude: None,
            strength: 0.0,
            unit_snr: None,
        };
        for (k, path) in node.paths.iter().enumerate() {
            let fitted = |value: f64, amplitude: Option<Complex64>| Term {
                amplitude,
                strength: views[k].strength,
                unit_snr: Some(scene.unit_snr(&views[l], &views[k])),
                ..plain(k, value)
            };
            terms.extend(match (path, &row) {
                (PathEvidence::Spectrum, Some(row)) => {
                    let own = &row[scene.range(k)];
                    let z: Complex64 = own.iter().zip(&views[k].template).map(|(y, t)| y * t).sum();
                    Some(fitted(z.norm_sqr(), Some(z)))
                }
                (PathEvidence::Block(expansion), _) => {
                    let arrival = &views[l].arrival;
                    let [row, derivative] = [&expansion.block, &expansion.block_derivative]
                        .map(|matrix| block_row(matrix, arrival));
                    let offset_s = cascade_delay_s(&views[l], &views[k]) - expansion.delay_s;
                    Some(fitted(block_term(&row, &derivative, &views[k], offset_s), None))
                }
                _ => delay_term(path, &views[l], &views[k]).map(|value| plain(k, value)),
            });
        }
        terms.extend(bearing_term(node, &views[l]).map(|value| plain(views.len(), value)));
    }
    terms
}

/// Delay from one IRS over the point to another.
pub(super) fn cascade_delay_s(sensor: &IrsView, reflector: &IrsView) -> f64 {
    (sensor.distance_m + reflector.distance_m) / SPEED_OF_LIGHT_M_S
}

/// `a^H Y / sqrt(M)` with the delay from the target to the sensors taken out.
fn turned_row(rows: &[Vec<Complex64>], view: &IrsView) -> Vec<Complex64> {
    let mut sum = beamformed(rows, &view.arrival);
    sum.iter_mut().zip(&view.phasors).for_each(|(s, p)| *s *= p);
    sum
}

/// `a^H Y / sqrt(M)`.
pub(super) fn beamformed(rows: &[Vec<Complex64>], arrival: &[Complex64]) -> Vec<Complex64> {
    let mut sum = vec![Complex64::ZERO; rows.first().map_or(0, Vec::len)];
    for (row, a) in rows.iter().zip(arrival) {
        sum.iter_mut().zip(row).for_each(|(s, y)| *s += y * a);
    }
    sum
}

/// `a^H R / sqrt(M)`.
pub(super) fn block_row(matrix: &CMatrix, arrival: &[Complex64]) -> Vec<Complex64> {
    let sum = |c: usize| matrix.column(c).iter().zip(arrival).map(|(r, a)| r * a).sum();
    (0..matrix.ncols()).map(sum).collect()
}

/// Term of a block from its beamformed rows, `d` seconds from the delay of its expansion.
pub(super) fn block_term(row: &[Complex64], derivative: &[Complex64], view: &IrsView, d: f64) -> f64 {
    let lit =
        |row: &[Complex64]| -> Complex64 { row.iter().zip(view.light.iter()).map(|(r, b)| r * b).sum() };
    let (z, turned) = (lit(row), lit(derivative));
    let (energy, width) = (z.norm_sqr(), view.width_rad_s);
    if energy == 0.0 || width == 0.0 {
        return energy;
    }
    let slope = (z.conj() * (turned - Complex64::new(0.0, view.centre_rad_s) * z)).re / energy;
    let (peak, here) = ((slope / width).clamp(-FARTHEST_PEAK, FARTHEST_PEAK), width * d);
    energy * (peak.powi(2) - (here - peak).powi(2)).exp()
}

/// `ln(p + (1 - p) w N(e; 0, v))`: the ratio to a value that is uniform over the window w.
fn gross_or_normal(error: f64, variance: f64, window: f64) -> f64 {
    let ratio = window / (TAU * variance).sqrt() * (-0.5 * error.powi(2) / variance).exp();
    (GROSS_SHARE + (1.0 - GROSS_SHARE) * ratio).ln()
}

/// Term of a node's bearing.
pub(super) fn bearing_term(node: &NodeEvidence, view: &IrsView) -> Option<f64> {
    let (bearing, window_rad) = node.counted_bearing()?;
    let error = wrap_angle(view.bearing_rad - bearing.bearing_rad);
    Some(gross_or_normal(error, bearing.variance_rad2, window_rad))
}

/// Term of a delay.
pub(super) fn delay_term(path: &PathEvidence, sensor: &IrsView, reflector: &IrsView) -> Option<f64> {
    let PathEvidence::Delay { delay, window_s } = path else { return None };
    let error_s = cascade_delay_s(sensor, reflector) - delay.delay_s;
    Some(gross_or_normal(error_s, delay.variance_s2, *window_s))
}
