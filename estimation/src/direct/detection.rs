//! Is there a target at all? The highest value of the likelihood on noise alone.
//!
//! On noise every path's J is exponential at any one point, so that 2 J of P paths is chi-square with 2 P
//! degrees of freedom, a smooth field over the plane. The probability that its maximum over a rectangle
//! exceeds u is, where it is small, the expected Euler characteristic of the set above u (Worsley 1994),
//! `rho_0 + (w s_x + h s_y) rho_1 + A s rho_2`, with the roughness matrix `Lambda` of the field, `s_x, s_y` the
//! roots of its diagonal and `s` that of its determinant:
//!
//! - `rho_0 = P(chi2 > u)`,
//! - `rho_1 = q sqrt(u) / sqrt(2 pi)`, `rho_2 = q (u - (2 P - 1)) / (2 pi)`,
//!   `q = u^(P - 1) exp(-u / 2) / (2^(P - 1) Gamma(P))`.
//!
//! Delays and bearings are likelihood ratios of fixed laws, with nothing fitted: their exponential has the mean one on noise, so that
//! by Markov's inequality they multiply the probability by `e^-t` and add no degree of freedom.
//!
//! `Lambda` is the curvature of `1 - |m(x)^H m(x + d)|^2` for unit templates, averaged over the paths.

use std::f64::consts::TAU;

use model::{Point, System};
use nalgebra::Matrix2;
use num_complex::Complex64;

use super::scene::{Scene, View};
use crate::location::chi_square_survival;

/// Points per side at which the roughness is taken.
const POINTS: usize = 3;
/// Distance over which templates are compared.
const STEP_M: f64 = 0.05;

/// Size of the searched rectangle in units of the field's own scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Extent {
    /// `w s_x + h s_y`.
    edge: f64,
    /// `A s`.
    area: f64,
}

impl Extent {
    /// Of the rectangle from `min_m` to `max_m`.
    pub fn new(scene: &Scene, min_m: Point, max_m: Point) -> Self {
        let size = max_m - min_m;
        let (mut edge, mut area) = (0.0, 0.0);
        let fraction = |i: usize| (i as f64 + 0.5) / POINTS as f64;
        for (i, j) in (0..POINTS).flat_map(|i| (0..POINTS).map(move |j| (i, j))) {
            let point = min_m + Point::new(fraction(i) * size.x, fraction(j) * size.y);
            let roughness = roughness(scene, point);
            edge += size.x * roughness.m11.sqrt() + size.y * roughness.m22.sqrt();
            area += size.x * size.y * roughness.determinant().max(0.0).sqrt();
        }
        let count = (POINTS * POINTS) as f64;
        Self { edge: edge / count, area: area / count }
    }

    /// Probability that noise alone reaches `log_likelihood` somewhere, with the gains of this many paths
    /// fitted.
    pub fn false_alarm_probability(&self, log_likelihood: f64, gains: usize) -> f64 {
        let (u, paths) = (2.0 * log_likelihood, gains as f64);
        if gains == 0 {
            let cells = 1.0 + self.edge + self.area;
            return (cells * (-log_likelihood).exp()).min(1.0);
        }
        // Below the mean of the field there is no rare event to speak of.
        if u <= 2.0 * paths {
            return 1.0;
        }
        let ln_factorial: f64 = (1..gains).map(|i| (i as f64).ln()).sum();
        let q = ((paths - 1.0) * log_likelihood.ln() - log_likelihood - ln_factorial).exp();
        let edge = self.edge * q * (u / TAU).sqrt();
        let area = self.area * q * (u - (2.0 * paths - 1.0)) / TAU;
        (chi_square_survival(u, 2 * gains) + edge + area).clamp(0.0, 1.0)
    }
}

/// `Lambda` at a point, per square metre.
fn roughness(scene: &Scene, point: Point) -> Matrix2<f64> {
    let here = scene.views(point);
    let loss = |step: Point| {
        let there = scene.views(point + step);
        let count = scene.irs_count();
        let paths = (0..count).flat_map(|l| (0..count).map(move |k| (l, k)));
        let sum: f64 = paths.map(|(l, k)| 1.0 - likeness(scene, &here, &there, l, k)).sum();
        sum / (count * count) as f64 / STEP_M.powi(2)
    };
    let (x, y) = (Point::new(STEP_M, 0.0), Point::new(0.0, STEP_M));
    // Averaged over both directions: the third order drops out.
    let even = |step: Point| 0.5 * (loss(step) + loss(-step));
    let (xx, yy, both) = (even(x), even(y), even(x + y));
    let xy = 0.5 * (both - xx - yy);
    Matrix2::new(xx, xy, xy, yy)
}

/// `|m^H m'|^2` of the unit templates of path (l, k) at two points.
fn likeness(scene: &Scene, here: &[View], there: &[View], l: usize, k: usize) -> f64 {
    let inner = |a: &mut dyn Iterator<Item = (Complex64, Complex64)>| -> Complex64 {
        a.map(|(a, b)| a.conj() * b).sum()
    };
    let arrival = inner(&mut here[l].arrival.iter().copied().zip(there[l].arrival.iter().copied()));
    let own = scene.range(k);
    let turned = |views: &[View]| -> Vec<Complex64> {
        views[l].phasors[own.clone()].iter().zip(&views[k].template).map(|(p, t)| p * t).collect()
    };
    let spectrum = inner(&mut turned(here).into_iter().zip(turned(there)));
    (arrival * spectrum).norm_sqr()
}

/// Distance at which two points can be told apart: a delay sample along the path, a beam across it.
pub(super) fn resolution_m(system: &System) -> f64 {
    let delay_m = model::units::SPEED_OF_LIGHT_M_S / (2.0 * system.bandwidth_hz);
    let size = Point::from(system.coverage.max_m) - Point::from(system.coverage.min_m);
    let beam = 1.0 / (system.sensors.max(system.elements) as f64 * system.spacing_wavelengths);
    let nearest_m = system
        .irs
        .iter()
        .map(|irs| irs.pose.distance_m(system.coverage.centre()))
        .fold(f64::INFINITY, f64::min)
        .max(0.5 * size.norm());
    delay_m.min(beam * nearest_m)
}
