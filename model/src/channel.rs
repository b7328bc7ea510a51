//! BS-IRS channels and the gain of the echo.
//!
//! Eq. (1): `H_k = sum_r alpha_kr a(phi_kr, N) a(theta_kr, N_t)^H`. The paper gives no gain for this hop; here it is
//! that of free space, `lambda / (4 pi d)`, split over the R_k paths with complex Gaussian coefficients of variance `1 / R_k`.
//! Eq. (3): `|alpha_lk| = sqrt(lambda^2 kappa / (64 pi^3 d_k^2 d_l^2))`, times an unknown phase.

use std::f64::consts::{FRAC_PI_2, PI, TAU};

use rand::RngExt;
use rand::seq::SliceRandom;

use crate::algebra::{CMatrix, CVector, unit_phasor};
use crate::array::UniformLinearArray;
use crate::geometry::{Orientation, Point, Pose};
use crate::panel::ElementGrid;
use crate::random::{Purpose, complex_normal, stream};
use crate::scenario::{PathAngles, Scenario, ScenarioError};

/// The true BS-IRS channels of a scenario, which is validated, N x N_t each.
pub fn base_station_channels(scenario: &Scenario) -> Result<Vec<CMatrix>, ScenarioError> {
    scenario.validate()?;
    Ok((0..scenario.irs.len()).map(|k| base_station_channel(scenario, k)).collect())
}

fn base_station_channel(scenario: &Scenario, k: usize) -> CMatrix {
    let spacing_wavelengths = scenario.signal.spacing_wavelengths;
    let grid = scenario.surface.elements;
    let base = UniformLinearArray { elements: scenario.base_station.antennas, spacing_wavelengths };
    let count = scenario.paths(k) as f64;
    let distance_m = scenario.pose(k).distance_m(scenario.base_station.position());
    let free_space = free_space_gain(scenario.signal.wavelength_m, distance_m);
    let mut gains = stream(scenario.seed, Purpose::ChannelGains, [k as u64, 0]);
    let mut channel = CMatrix::zeros(grid.count(), base.elements);
    for (r, (arrival, departure)) in path_sines(scenario, k).into_iter().enumerate() {
        let scattered = complex_normal(&mut gains, 1.0 / count);
        let steady = unit_phasor(gains.random_range(0.0..TAU)) / count.sqrt();
        let gain = match scenario.path_angles(k) {
            PathAngles::DftGrid => steady,
            PathAngles::LineOfSight if r == 0 => steady,
            PathAngles::LineOfSight | PathAngles::Random => scattered,
        };
        let incident = incident_wave(grid, spacing_wavelengths, arrival);
        channel += (incident * base.steering_at_sine(departure).adjoint()) * (gain * free_space);
    }
    channel
}

/// Response of a panel to a plane wave, from the sines of its direction along columns and rows, elements row by row from
/// a corner: Eq. (2) for each of the two.
fn incident_wave(grid: ElementGrid, spacing_wavelengths: f64, [along, up]: [f64; 2]) -> CVector {
    let [along, up] = [along, up].map(|sine| TAU * spacing_wavelengths * sine);
    CVector::from_fn(grid.count(), |i, _| {
        let (column, row) = (i % grid.columns, i / grid.columns);
        unit_phasor(along * column as f64 + up * row as f64)
    })
}

/// Directions of every path: sines along columns and rows at the IRS, and the sine at the BS.
fn path_sines(scenario: &Scenario, k: usize) -> Vec<([f64; 2], f64)> {
    let (count, grid) = (scenario.paths(k), scenario.surface.elements);
    let mut angles = stream(scenario.seed, Purpose::ChannelAngles, [k as u64, 0]);
    let mut elevations = stream(scenario.seed, Purpose::ChannelAngles, [k as u64, 1]);
    let mut random: Vec<([f64; 2], f64)> = (0..count)
        .map(|_| {
            let (arrival, departure): (f64, f64) =
                (angles.random_range(-FRAC_PI_2..FRAC_PI_2), angles.random_range(-FRAC_PI_2..FRAC_PI_2));
            let elevation = if grid.is_line() { 0.0 } else { elevations.random_range(-FRAC_PI_2..FRAC_PI_2) };
            ([elevation.cos() * arrival.sin(), elevation.sin()], departure.sin())
        })
        .collect();
    match scenario.path_angles(k) {
        PathAngles::Random => random,
        PathAngles::LineOfSight => {
            random[0] = line_of_sight(scenario, k);
            random
        }
        PathAngles::DftGrid => {
            let first = (0..k).map(|j| scenario.paths(j)).sum::<usize>();
            let bins = shuffled_base_bins(scenario);
            let spacing = scenario.signal.spacing_wavelengths;
            (0..count)
                .map(|r| {
                    let along = grid_sine(r % grid.columns, grid.columns, spacing);
                    let up = grid_sine(r / grid.columns % grid.rows, grid.rows, spacing);
                    let bin = bins[(first + r) % bins.len()];
                    ([along, up], grid_sine(bin, scenario.base_station.antennas, spacing))
                })
                .collect()
        }
    }
}

fn line_of_sight(scenario: &Scenario, k: usize) -> ([f64; 2], f64) {
    let (base, pose) = (scenario.base_station.position(), scenario.pose(k));
    let (at_irs, axes) = (pose.direction(base), pose.orientation.axes());
    let broadside = Orientation::level(scenario.base_station.broadside_deg.to_radians());
    let departure = -at_irs.dot(&broadside.axes().column(0));
    ([at_irs.dot(&axes.column(0)), at_irs.dot(&axes.column(1))], departure)
}

/// DFT bins of the BS array in an order that all IRSs share, so that none is used twice.
fn shuffled_base_bins(scenario: &Scenario) -> Vec<usize> {
    let mut bins: Vec<usize> = (0..scenario.base_station.antennas).collect();
    bins.shuffle(&mut stream(scenario.seed, Purpose::ChannelAngles, [u64::MAX, 0]));
    bins
}

/// Sine at which the steering vector of `elements` equals DFT column `bin`.
fn grid_sine(bin: usize, elements: usize, spacing_wavelengths: f64) -> f64 {
    let cycles = bin as f64 / elements as f64;
    let centred = if cycles >= 0.5 { cycles - 1.0 } else { cycles };
    (centred / spacing_wavelengths).clamp(-1.0, 1.0)
}

/// Free-space amplitude gain over `distance_m`.
pub(crate) fn free_space_gain(wavelength_m: f64, distance_m: f64) -> f64 {
    wavelength_m / (4.0 * PI * distance_m)
}

/// |alpha_lk| of Eq. (3).
pub(crate) fn echo_gain(
    wavelength_m: f64,
    rcs_m2: f64,
    sensor: &Pose,
    reflector: &Pose,
    target_m: Point,
) -> f64 {
    let (d_l, d_k) = (sensor.distance_m(target_m), reflector.distance_m(target_m));
    (wavelength_m.powi(2) * rcs_m2 / (64.0 * PI.powi(3))).sqrt() / (d_k * d_l)
}
