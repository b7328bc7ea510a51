//! The entrywise steps of an iteration, written over vector registers: one lane per block.

use super::super::problem::DepartureForm;
use super::group::Group;
use super::stopping::Norms;
use crate::linalg::register::{Complexes, Register};
use crate::linalg::{Kernel, LANES, Scalar, triangle_index};

/// B from the averages and the data, and B^ - U for the projection.
pub struct Before<'a, T> {
    pub group: &'a mut Group<T>,
    pub rho: f64,
    pub relaxation: f64,
}

/// U and Z from the projected point, the residuals, and the sums along diagonals.
pub struct After<'a, T> {
    pub group: &'a mut Group<T>,
    pub rho: f64,
    pub relaxation: f64,
}

/// Only the sums along diagonals.
pub struct SumDiagonals<'a, T> {
    pub group: &'a mut Group<T>,
}

impl<T: Scalar> Kernel<T> for Before<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<R: Register<Scalar = T>>(self) {
        denoise::<R>(self.group, self.rho);
        corners::<R>(self.group, self.rho);
        relax::<R>(self.group, self.relaxation);
    }
}

impl<T: Scalar> Kernel<T> for After<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<R: Register<Scalar = T>>(self) {
        multiply::<R>(self.group, self.rho, self.relaxation);
        sum_diagonals::<R>(self.group);
    }
}

impl<T: Scalar> Kernel<T> for SumDiagonals<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<R: Register<Scalar = T>>(self) {
        sum_diagonals::<R>(self.group);
    }
}

/// Columns of X^H computed together, to reuse each entry of the inverse.
const TILE: usize = 4;

/// X^H = (lambda S S^H + 2 rho I)^-1 (lambda S R^H + 2 rho C^H), into the lower left of B. With Y the right-hand side, the misfit
/// `lambda (||X S - R||^2 - ||R||^2)` is `Re <Y - 2 lambda R S^H - 2 rho X, X>`, without another product of matrices.
#[inline(always)]
fn denoise<R: Register>(group: &mut Group<R::Scalar>, rho: f64) {
    let (sensors, corner) = (group.sensors, group.corner);
    let twice_rho = R::splat(2.0 * rho);
    // The right-hand side, into the scratch.
    for n in 0..corner {
        let row = triangle_index(sensors + n, 0);
        for m in 0..sensors {
            let sum =
                Complexes::<R>::load(&group.point[row + m]) + Complexes::load(&group.multiplier[row + m]);
            let data = Complexes::load(&group.data[n * sensors + m]);
            sum.scaled_plus(twice_rho, data).store(&mut group.work[row + m]);
        }
    }
    let mut fit = R::zero();
    for n in 0..corner {
        let row = triangle_index(sensors + n, 0);
        let inverse = &group.inverse[n * corner..(n + 1) * corner];
        let mut first = 0;
        while first < sensors {
            let width = TILE.min(sensors - first);
            let mut sums = [Complexes::<R>::zero(); TILE];
            for (j, factor) in inverse.iter().enumerate() {
                let factor = Complexes::<R>::load(factor);
                let source = triangle_index(sensors + j, first);
                for (t, sum) in sums.iter_mut().enumerate().take(width) {
                    *sum = sum.plus(factor, Complexes::load(&group.work[source + t]));
                }
            }
            for (t, &sum) in sums.iter().enumerate().take(width) {
                let at = first + t;
                sum.store(&mut group.model[row + at]);
                let data = Complexes::<R>::load(&group.data[n * sensors + at]);
                let slope = Complexes::load(&group.work[row + at]) - data - data - sum.scaled(twice_rho);
                fit = fit + sum.along(slope);
            }
            first += width;
        }
    }
    fit.store(&mut group.fit);
}

/// T(v_l) in the upper left of B and T(u_k), or C - I / (2 rho), in the lower right.
#[inline(always)]
fn corners<R: Register>(group: &mut Group<R::Scalar>, rho: f64) {
    let (sensors, corner) = (group.sensors, group.corner);
    for i in 0..sensors {
        for j in 0..=i {
            group.model[triangle_index(i, j)] = group.arrival[i - j];
        }
    }
    for i in 0..corner {
        let row = triangle_index(sensors + i, sensors);
        for j in 0..=i {
            match group.form {
                DepartureForm::Structured => group.model[row + j] = group.departure[i - j],
                DepartureForm::Free => {
                    let mut sum = Complexes::<R>::load(&group.point[row + j])
                        + Complexes::load(&group.multiplier[row + j]);
                    if i == j {
                        sum.re = sum.re - R::splat(0.5 / rho);
                    }
                    sum.store(&mut group.model[row + j]);
                }
            }
        }
    }
}

/// B^ - U with B^ = alpha B + (1 - alpha) Z.
#[inline(always)]
fn relax<R: Register>(group: &mut Group<R::Scalar>, relaxation: f64) {
    let (alpha, rest) = (R::splat(relaxation), R::splat(1.0 - relaxation));
    for (((work, model), point), multiplier) in
        group.work.iter_mut().zip(&group.model).zip(&group.point).zip(&group.multiplier)
    {
        let less = Complexes::<R>::zero() - Complexes::load(multiplier);
        let relaxed = Complexes::<R>::load(point).scaled_plus(rest, less);
        Complexes::load(model).scaled_plus(alpha, relaxed).store(work);
    }
}

/// With the new Z in the scratch: U <- U + Z - B^, the sums of the stopping rule, and Z in its place.
#[inline(always)]
fn multiply<R: Register>(group: &mut Group<R::Scalar>, rho: f64, relaxation: f64) {
    let (alpha, rest) = (R::splat(relaxation), R::splat(1.0 - relaxation));
    let order = group.sensors + group.corner;
    // Squares of Z - B, d, Z, U and of the steps of Z and U; then <U, Z - B> and the trace of B.
    let mut squares = [R::zero(); 6];
    let [mut along, mut trace] = [R::zero(); 2];
    for i in 0..order {
        let row = triangle_index(i, 0);
        for j in 0..=i {
            let (new, model) =
                (Complexes::<R>::load(&group.work[row + j]), Complexes::load(&group.model[row + j]));
            let (old, before) =
                (Complexes::<R>::load(&group.point[row + j]), Complexes::load(&group.multiplier[row + j]));
            let relaxed = model.scaled_plus(alpha, old.scaled(rest));
            let multiplier = before + new - relaxed;
            multiplier.store(&mut group.multiplier[row + j]);
            new.store(&mut group.point[row + j]);
            // Off-diagonal entries stand for two.
            let twice = R::splat(if i == j { 1.0 } else { 2.0 });
            let (gap, step) = (new - model, multiplier - before);
            let terms = [gap, old - model - step, new, multiplier, new - old, step];
            for (sum, term) in squares.iter_mut().zip(terms) {
                *sum = term.energy().mul_add(twice, *sum);
            }
            along = multiplier.along(gap).mul_add(twice, along);
            if i == j {
                trace = trace + model.re;
            }
        }
    }
    along.store(&mut group.infeasibility);
    let lagrangian = trace + R::splat(2.0 * rho) * along + R::load(&group.fit);
    let weight = group.weight;
    let total = |sum: R| -> f64 {
        let lanes = sum.to_array();
        let used = (0..LANES).filter(|&lane| weight[lane] > 0.0);
        used.map(|lane| weight[lane] * lanes[lane].into()).sum()
    };
    let [primal, dual, point, multiplier, point_step, multiplier_step] = squares.map(total);
    let lagrangian = total(lagrangian);
    group.norms = Norms { primal, dual, point, multiplier, point_step, multiplier_step, lagrangian };
}

/// Sums of Z + U along the subdiagonals of both corners.
#[inline(always)]
fn sum_diagonals<R: Register>(group: &mut Group<R::Scalar>) {
    let structured = group.form == DepartureForm::Structured;
    let corners = [(0, group.sensors, true), (group.sensors, group.corner, structured)];
    for (first, order, wanted) in corners {
        if !wanted {
            continue;
        }
        for offset in 0..order {
            let mut sum = Complexes::<R>::zero();
            for j in first..first + order - offset {
                let at = triangle_index(j + offset, j);
                sum = sum + Complexes::load(&group.point[at]) + Complexes::load(&group.multiplier[at]);
            }
            let sums = if first == 0 { &mut group.arrival_sums } else { &mut group.departure_sums };
            sum.store(&mut sums[offset]);
        }
    }
}
