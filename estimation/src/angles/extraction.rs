//! Extraction of angles from the solution of the joint problem.
//!
//! - *Eigenvector*, as in the paper: the principal eigenvector of T(v_l) is taken for the steering vector.
//! - *Denoised blocks*: the AOA maximises `sum_k ||a(theta)^H X_lk S_k||^2`, the AOD `sum_l |a_l^H X_lk S_k b|^2 / ||b||^2`, b = S_k^H a(theta).
//!
//! Both give AOA and AOD separately; the polish ([`super::likelihood`]) ties them.

use std::f64::consts::TAU;

use model::CMatrix;
use num_complex::Complex64;

use super::problem::{JointProblem, JointSolution};
use crate::blocks::Blocks;
use crate::harmonic::HarmonicSeries;

/// Grid points of the search per element.
const POINTS_PER_ELEMENT: f64 = 8.0;

/// Angle of the principal eigenvector of the Hermitian Toeplitz matrix with this first row.
pub fn principal_angle_rad(first_row: &[Complex64], spacing_wavelengths: f64) -> Option<f64> {
    let order = first_row.len();
    if order < 2 || !is_spacing(spacing_wavelengths) || first_row.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let toeplitz = CMatrix::from_fn(order, order, |i, j| match j.checked_sub(i) {
        Some(lag) => first_row[lag],
        None => first_row[i - j].conj(),
    });
    let eigen = toeplitz.symmetric_eigen();
    let vector = eigen.eigenvectors.column(eigen.eigenvalues.imax());
    let turn: Complex64 = (1..order).map(|m| vector[m - 1].conj() * vector[m]).sum();
    let sine = turn.arg() / (TAU * spacing_wavelengths);
    (turn.norm() != 0.0 && sine.abs() <= 1.0).then(|| sine.asin())
}

/// theta_i as the weighted mean of its AOA and its AOD, or whichever is known. The paper asks for a "weighted combination"
/// and prints no weights; these are the energies of the blocks that each is estimated from, which it uses as confidence (e_lk).
pub fn combined_rad(
    blocks: &Blocks,
    i: usize,
    arrival_rad: Option<f64>,
    departure_rad: Option<f64>,
) -> Option<f64> {
    let energy = |of_irs: &dyn Fn(usize, usize) -> bool| -> f64 {
        let chosen = blocks.present().filter(|(l, k, _)| of_irs(*l, *k));
        chosen.map(|(_, _, block)| block.norm_squared()).sum()
    };
    let (sensed, reflected) = (energy(&|l, _| l == i), energy(&|_, k| k == i));
    match (arrival_rad, departure_rad) {
        (Some(arrival), Some(departure)) if sensed + reflected > 0.0 => {
            Some((sensed * arrival + reflected * departure) / (sensed + reflected))
        }
        (arrival, departure) => arrival.or(departure),
    }
}

/// AOA of IRS `l` from the denoised blocks that it senses; none if it senses none, or if the solution is of another problem.
pub fn denoised_arrival_rad(
    problem: &JointProblem,
    solution: &JointSolution,
    l: usize,
    spacing_wavelengths: f64,
) -> Option<f64> {
    problem.validate().ok()?;
    is_spacing(spacing_wavelengths).then_some(())?;
    checked_arrival_rad(problem, solution, l, spacing_wavelengths)
}

/// [`denoised_arrival_rad`] of a valid problem.
pub(super) fn checked_arrival_rad(
    problem: &JointProblem,
    solution: &JointSolution,
    l: usize,
    spacing_wavelengths: f64,
) -> Option<f64> {
    let mut form = CMatrix::zeros(problem.sensors, problem.sensors);
    for (path, x) in problem.paths.iter().zip(&solution.denoised).filter(|(path, _)| path.l == l) {
        let signal = &problem.departures[path.k].signal;
        if x.shape() != (problem.sensors, signal.nrows()) {
            return None;
        }
        let fit = x * signal;
        form += &fit * fit.adjoint();
    }
    strongest_direction_rad(&form, spacing_wavelengths)
}

fn is_spacing(spacing_wavelengths: f64) -> bool {
    spacing_wavelengths.is_finite() && spacing_wavelengths > 0.0
}

/// Angle that maximises `a(theta)^H C a(theta)` over the unambiguous sector; none where C is zero.
fn strongest_direction_rad(form: &CMatrix, spacing_wavelengths: f64) -> Option<f64> {
    let series = HarmonicSeries::of_hermitian(form, TAU * spacing_wavelengths);
    let edge = (0.5 / spacing_wavelengths).min(1.0);
    let peak =
        series.maximum(-edge, edge, 1.0 / (POINTS_PER_ELEMENT * spacing_wavelengths * form.nrows() as f64));
    (peak.value > 0.0 && peak.value.is_finite()).then(|| peak.at.clamp(-1.0, 1.0).asin())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::array::UniformLinearArray;

    #[test]
    fn a_single_direction_is_read_off_both_ways() {
        for spacing_wavelengths in [0.5, 1.0] {
            let array = UniformLinearArray { elements: 10, spacing_wavelengths };
            for i in -40..=40 {
                let theta = (0.49 / spacing_wavelengths * f64::from(i) / 40.0).asin();
                let a = array.steering(theta);
                let found = strongest_direction_rad(&(&a * a.adjoint()), spacing_wavelengths).unwrap();
                assert!((found - theta).abs() < 1e-9, "{found} for {theta}");
                let first_row: Vec<Complex64> = a.iter().map(|v| v.conj()).collect();
                let found = principal_angle_rad(&first_row, spacing_wavelengths).unwrap();
                assert!((found - theta).abs() < 1e-9, "{found} for {theta}");
            }
        }
    }

    #[test]
    fn nothing_has_no_direction() {
        assert_eq!(strongest_direction_rad(&CMatrix::zeros(4, 4), 1.0), None);
        assert_eq!(principal_angle_rad(&[Complex64::new(f64::NAN, 0.0); 3], 1.0), None);
        assert_eq!(principal_angle_rad(&[Complex64::new(1.0, 0.0); 3], -1.0), None);
    }
}
