//! The entrywise steps of an iteration, written over vector registers: one lane per block.

use super::super::problem::DepartureForm;
use super::Norms;
use super::group::Group;
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
        multiply::<R>(self.group, self.relaxation);
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

/// X^H = (lambda S S^H + 2 rho I)^-1 (lambda S R^H + 2 rho C^H), into the lower left of B.
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
            for (t, sum) in sums.iter().enumerate().take(width) {
                sum.store(&mut group.model[row + first + t]);
            }
            first += width;
        }
    }
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

/// With the new Z in the scratch: U <- U + Z - B^, the residuals, and Z in its place.
#[inline(always)]
fn multiply<R: Register>(group: &mut Group<R::Scalar>, relaxation: f64) {
    let (alpha, rest) = (R::splat(relaxation), R::splat(1.0 - relaxation));
    let order = group.sensors + group.corner;
    let [mut primal, mut dual, mut point_norm, mut multiplier_norm, mut along] = [R::zero(); 5];
    for i in 0..order {
        let row = triangle_index(i, 0);
        for j in 0..=i {
            let (new, model) =
                (Complexes::<R>::load(&group.work[row + j]), Complexes::load(&group.model[row + j]));
            let old = Complexes::<R>::load(&group.point[row + j]);
            let relaxed = model.scaled_plus(alpha, old.scaled(rest));
            let multiplier = Complexes::load(&group.multiplier[row + j]) + new - relaxed;
            multiplier.store(&mut group.multiplier[row + j]);
            new.store(&mut group.point[row + j]);
            // Off-diagonal entries stand for two.
            let twice = R::splat(if i == j { 1.0 } else { 2.0 });
            let gap = new - model;
            primal = gap.energy().mul_add(twice, primal);
            dual = (new - old).energy().mul_add(twice, dual);
            point_norm = new.energy().mul_add(twice, point_norm);
            multiplier_norm = multiplier.energy().mul_add(twice, multiplier_norm);
            along = multiplier.along(gap).mul_add(twice, along);
        }
    }
    along.store(&mut group.infeasibility);
    let used = group.used;
    let total = |sum: R| -> f64 {
        let lanes = sum.to_array();
        (0..LANES).filter(|&lane| used[lane]).map(|lane| lanes[lane].into()).sum()
    };
    group.norms = Norms {
        primal: total(primal),
        dual: total(dual),
        point: total(point_norm),
        multiplier: total(multiplier_norm),
    };
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
