//! Responses of an array to many points, of which those that are nearly the same are one beam.
//!
//! A response depends on the sines of the direction along columns and rows of the panel and, for spherical waves, on the
//! curvature 1/d of the wave. All three are rounded to steps that lose little of the energy: with b beams per beamwidth
//! `1 / (n s)` a sine is off by at most `1 / (2 b)` beamwidths, which loses `(pi / (2 b))^2 / 3` of it (1.3 % at b = 8, 5 % at
//! b = 4); a step of the curvature loses 1 %.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use model::{ElementGrid, Point, System, Wavefront};
use num_complex::Complex64;

/// Curvatures of neighbouring beams differ by this over `k R^2`, R half the diagonal of the panel: the deviation of the phase
/// over the panel is at most 0.1.
const CURVATURE_STEP: f64 = 1.34;

/// The beams of the sensors of one node.
#[derive(Debug, Clone)]
pub(crate) struct Beams {
    /// Response of the sensors, for every beam.
    pub responses: Vec<Vec<Complex64>>,
    /// A point that the beam points to, relative to the node.
    pub relative_m: Vec<Point>,
    /// Beam of every point, in the order given.
    pub of_point: Vec<u32>,
}

impl Beams {
    /// Beams of node `l` towards all `points_m`, with this many per beamwidth. Empty if there is no such node.
    pub fn new(system: &System, l: usize, points_m: impl Iterator<Item = Point>, per_beamwidth: f64) -> Self {
        let mut beams = Self { responses: Vec::new(), relative_m: Vec::new(), of_point: Vec::new() };
        let (Some(irs), Some(aperture)) = (system.irs.get(l), system.sensor_aperture(l)) else {
            return beams;
        };
        let axes = irs.pose.orientation.axes();
        let steps = steps(system, per_beamwidth);
        let seen: Vec<[f64; 3]> = points_m
            .map(|point_m| {
                let u = axes.tr_mul(&irs.pose.direction(point_m));
                // Behind the panel a line array sees the mirror image; a panel faces its coverage area.
                let all = [u.x, u.y, irs.pose.distance_m(point_m).recip()];
                std::array::from_fn(|i| if steps[i] > 0.0 { all[i] } else { 0.0 })
            })
            .collect();
        let lowest: [f64; 3] =
            std::array::from_fn(|i| seen.iter().map(|at| at[i]).fold(f64::INFINITY, f64::min));
        let mut known: BTreeMap<[i64; 3], u32> = BTreeMap::new();
        for at in seen {
            let place: [i64; 3] = std::array::from_fn(|i| {
                if steps[i] > 0.0 { ((at[i] - lowest[i]) / steps[i]).round() as i64 } else { 0 }
            });
            let next = beams.responses.len() as u32;
            let index = *known.entry(place).or_insert(next);
            if index == next {
                let [along, up, curvature] = std::array::from_fn(|i| lowest[i] + place[i] as f64 * steps[i]);
                let forward = (1.0 - along * along - up * up).max(0.0).sqrt();
                let distance_m = if steps[2] > 0.0 { 1.0 / curvature } else { 1.0 };
                let relative_m = axes * Point::new(along, up, forward) * distance_m;
                let response = aperture.response(&system.carrier(), &relative_m);
                beams.responses.push(response.iter().copied().collect());
                beams.relative_m.push(relative_m);
            }
            beams.of_point.push(index);
        }
        beams
    }
}

/// Steps of the sines and of the curvature; zero for what the response does not depend on.
fn steps(system: &System, per_beamwidth: f64) -> [f64; 3] {
    let ElementGrid { columns, rows } = system.sensor_grid;
    let sine = |count: usize| match count {
        1 => 0.0,
        _ => 1.0 / (count as f64 * system.spacing_wavelengths * per_beamwidth),
    };
    let radius_m = 0.5 * system.sensor_grid.diagonal() * system.spacing_m();
    let curved = system.wavefront == Wavefront::Spherical && radius_m > 0.0;
    let curvature =
        if curved { CURVATURE_STEP * system.wavelength_m / (TAU * radius_m.powi(2)) } else { 0.0 };
    [sine(columns), sine(rows), curvature]
}

#[cfg(test)]
mod tests {
    use model::Scenario;

    use super::*;

    /// What the rounding of a beam loses of the energy of any point, for lines and panels, plane and spherical waves.
    #[test]
    fn beams_lose_little() {
        for (sensors, wavefront, per_beamwidth, most) in [
            ([10, 1], Wavefront::Plane, 8.0, 0.014),
            ([40, 1], Wavefront::Spherical, 8.0, 0.035),
            ([8, 6], Wavefront::Plane, 4.0, 0.11),
            ([8, 6], Wavefront::Spherical, 4.0, 0.13),
        ] {
            let mut scenario = Scenario::default();
            scenario.surface.sensors = ElementGrid { columns: sensors[0], rows: sensors[1] };
            scenario.signal.wavefront = wavefront;
            scenario.coverage.max_m[2] = 6.0;
            let system = System::new(&scenario).unwrap();
            let points: Vec<Point> = (0..400)
                .map(|i| {
                    let part = |step: f64| (f64::from(i) * step).fract();
                    system.coverage.at_height(part(0.618_034), part(0.754_878), part(0.569_840))
                })
                .collect();
            let beams = Beams::new(&system, 1, points.iter().copied(), per_beamwidth);
            assert!(beams.responses.len() < points.len(), "{} beams", beams.responses.len());
            let aperture = system.sensor_aperture(1).unwrap();
            for (point_m, beam) in points.iter().zip(&beams.of_point) {
                let exact = aperture.response(&system.carrier(), &(point_m - system.irs[1].pose.position_m));
                let product: Complex64 =
                    exact.iter().zip(&beams.responses[*beam as usize]).map(|(a, b)| a.conj() * b).sum();
                let lost = 1.0 - product.norm_sqr() / (exact.len() as f64).powi(2);
                assert!(lost < most, "{sensors:?} {wavefront:?}: {lost}");
            }
        }
    }
}
