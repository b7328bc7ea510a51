//! Unitary reduction of Hermitian matrices to real tridiagonal form, and the back-transformation of vectors.
//!
//! `A = Q T Q^H` with `Q = H_{n-1} ... H_1`, `H_i = I - tau_i u_i u_i^H` acting on the indices below
//! `i`. Row `i` of the packed lower triangle gives `u_i` and is overwritten by it; the leading block
//! that remains is a prefix of the storage. `tau` is complex so that the subdiagonal comes out real
//! (as LAPACK's `zhetd2`); `u` is not normalised, which saves a division per entry.
//!
//! Cost in real multiply-adds: `8/3 n^3` for the reduction, `4 n^2 k` for the back-transformation of `k` vectors.

use std::array;

use super::lanes::{Scalar, triangle_index};
use super::register::{ComplexValues, Complexes, RealValues, Register};

/// A Hermitian matrix `u w^H + w u^H` that is still to be subtracted.
#[derive(Clone, Copy)]
struct RankTwo<'a, R: Register> {
    u: &'a [ComplexValues<R>],
    w: &'a [ComplexValues<R>],
}

/// Reduces the packed lower triangle `matrix` of order `diagonal.len()`.
///
/// Leaves the reflectors in the rows of `matrix` and in `tau`, and `T` in `diagonal` and
/// `subdiagonal` (`subdiagonal[i]` couples `i` and `i + 1`). `scratch` is twice as long. What a
/// reflector does to the block is subtracted in the pass that multiplies the next one by it.
#[inline(always)]
pub(super) fn reduce<R: Register>(
    matrix: &mut [ComplexValues<R>],
    diagonal: &mut [RealValues<R>],
    subdiagonal: &mut [RealValues<R>],
    tau: &mut [ComplexValues<R>],
    scratch: &mut [ComplexValues<R>],
) {
    let (mut before, mut product) = scratch.split_at_mut(diagonal.len());
    for order in (0..diagonal.len()).rev() {
        let (block, rest) = matrix.split_at_mut(triangle_index(order, 0));
        let (row, rest) = rest.split_at_mut(order + 1);
        let first = order + 1 == diagonal.len();
        let pending =
            if first { RankTwo { u: &[], w: &[] } } else { RankTwo { u: &rest[..=order], w: before } };
        if !first {
            subtract_from_row::<R>(row, pending);
        }
        diagonal[order] = row[order].re;
        if order == 0 {
            break;
        }
        let row = &mut row[..order];
        let (coupling, factor) = reflector::<R>(row);
        coupling.store(&mut subdiagonal[order - 1]);
        factor.store(&mut tau[order]);
        if first {
            multiply::<R, false>(block, pending, row, product);
        } else {
            multiply::<R, true>(block, pending, row, product);
        }
        rank_two_factor(row, factor, product);
        (before, product) = (product, before);
    }
}

/// Subtracts from the last row of the block what is pending.
#[inline(always)]
fn subtract_from_row<R: Register>(row: &mut [ComplexValues<R>], RankTwo { u, w }: RankTwo<'_, R>) {
    let last = row.len() - 1;
    let (left, right) = (Complexes::<R>::load(&u[last]), Complexes::<R>::load(&w[last]));
    for ((entry, x), y) in row.iter_mut().zip(u).zip(w) {
        let reduced = Complexes::load(entry).minus_by_conjugate(left, Complexes::load(y));
        reduced.minus_by_conjugate(right, Complexes::load(x)).store(entry);
    }
}

/// Turns a row into the `u` that maps its conjugate onto the last unit vector; returns the real
/// length left there (with sign) and `tau`.
#[inline(always)]
fn reflector<R: Register>(row: &mut [ComplexValues<R>]) -> (R, Complexes<R>) {
    let mut sums = Complexes::<R>::zero();
    for entry in row.iter_mut() {
        let (re, im) = (R::load(&entry.re), -R::load(&entry.im));
        im.store(&mut entry.im);
        sums = Complexes { re: re.mul_add(re, sums.re), im: im.mul_add(im, sums.im) };
    }
    let square = sums.re + sums.im;
    let entry = &mut row[row.len() - 1];
    let last = Complexes::<R>::load(entry);
    let present = square.greater(R::splat(R::Scalar::NEGLIGIBLE_SQUARE));
    let norm = square.sqrt();
    let length = -norm.copysign(last.re);
    // tau = 1 / (length conj(length - last)), the real part of which cannot cancel.
    let re = norm.mul_add(last.re.abs(), square);
    let im = length * last.im;
    let scale = R::select(present, re.mul_add(re, im * im).recip(), R::zero());
    (last.re - length).store(&mut entry.re);
    (R::select(present, length, R::zero()), Complexes { re: re * scale, im: -(im * scale) })
}

/// `product = block u` for a packed lower triangle, from which `pending` is subtracted first if
/// `SUBTRACT`. Two rows at a time.
#[inline(always)]
fn multiply<R: Register, const SUBTRACT: bool>(
    block: &mut [ComplexValues<R>],
    pending: RankTwo<'_, R>,
    u: &[ComplexValues<R>],
    product: &mut [ComplexValues<R>],
) {
    let mut rest = block;
    let mut row = 0;
    while R::MANY && row + 1 < u.len() {
        let (here, after) = rest.split_at_mut(2 * row + 3);
        let (upper, lower) = here.split_at_mut(row + 1);
        multiply_rows::<R, SUBTRACT, 2>([upper, lower], pending, u, product);
        rest = after;
        row += 2;
    }
    while row < u.len() {
        let (here, after) = rest.split_at_mut(row + 1);
        if SUBTRACT && !R::MANY {
            subtract_from_row::<R>(here, pending);
            multiply_rows::<R, false, 1>([here], pending, u, product);
        } else {
            multiply_rows::<R, SUBTRACT, 1>([here], pending, u, product);
        }
        rest = after;
        row += 1;
    }
}

/// The part of [`multiply`] that `COUNT` neighbouring rows and the columns above them give.
#[inline(always)]
fn multiply_rows<R: Register, const SUBTRACT: bool, const COUNT: usize>(
    rows: [&mut [ComplexValues<R>]; COUNT],
    pending: RankTwo<'_, R>,
    u: &[ComplexValues<R>],
    product: &mut [ComplexValues<R>],
) {
    let row = rows[0].len() - 1;
    let factor: [Complexes<R>; COUNT] = array::from_fn(|k| Complexes::load(&u[row + k]));
    let mut left = [Complexes::<R>::zero(); COUNT];
    let mut right = left;
    if SUBTRACT {
        left = array::from_fn(|k| Complexes::load(&pending.u[row + k]));
        right = array::from_fn(|k| Complexes::load(&pending.w[row + k]));
    }
    let mut straight = [Complexes::<R>::zero(); COUNT];
    let mut crossed = straight;
    let (done, open) = product.split_at_mut(row);
    let halves = rows.map(|entries| entries.split_at_mut(row));
    let common = if SUBTRACT { row } else { 0 };
    let (old_u, old_w) = (&pending.u[..common], &pending.w[..common]);
    for (c, (x, entry)) in u.iter().zip(done.iter_mut()).enumerate() {
        let x = Complexes::<R>::load(x);
        let mut sum = Complexes::<R>::load(entry);
        for k in 0..COUNT {
            let place = &mut halves[k].0[c];
            let mut a = Complexes::<R>::load(place);
            if SUBTRACT {
                a = a.minus_by_conjugate(left[k], Complexes::load(&old_w[c]));
                a = a.minus_by_conjugate(right[k], Complexes::load(&old_u[c]));
                a.store(place);
            }
            straight[k].re = a.re.mul_add(x.re, straight[k].re);
            straight[k].im = a.re.mul_add(x.im, straight[k].im);
            crossed[k].re = a.im.neg_mul_add(x.im, crossed[k].re);
            crossed[k].im = a.im.mul_add(x.re, crossed[k].im);
            sum = sum.plus_conjugate(a, factor[k]);
        }
        sum.store(entry);
    }
    // The triangle at the diagonal.
    for k in 0..COUNT {
        straight[k] = Complexes { re: straight[k].re + crossed[k].re, im: straight[k].im + crossed[k].im };
        for j in 0..=k {
            let place = &mut halves[k].1[j];
            let mut a = Complexes::<R>::load(place);
            if SUBTRACT {
                a = a.minus_by_conjugate(left[k], right[j]).minus_by_conjugate(right[k], left[j]);
                a.store(place);
            }
            if j == k {
                a.im = R::zero();
            } else {
                straight[j] = straight[j].plus_conjugate(a, factor[k]);
            }
            straight[k] = straight[k].plus(a, factor[j]);
        }
    }
    for k in 0..COUNT {
        straight[k].store(&mut open[k]);
    }
}

/// Turns `product = A u` into the `w` of `H^H A H = A - u w^H - w u^H`.
#[inline(always)]
fn rank_two_factor<R: Register>(u: &[ComplexValues<R>], tau: Complexes<R>, product: &mut [ComplexValues<R>]) {
    let mut sums = Complexes::<R>::zero();
    for (x, y) in u.iter().zip(product.iter()) {
        let (x, y) = (Complexes::<R>::load(x), Complexes::<R>::load(y));
        sums = Complexes { re: x.re.mul_add(y.re, sums.re), im: x.im.mul_add(y.im, sums.im) };
    }
    let square = tau.re.mul_add(tau.re, tau.im * tau.im);
    let share = (sums.re + sums.im) * (square * R::splat(-0.5));
    for (x, entry) in u.iter().zip(product.iter_mut()) {
        Complexes::load(x).scaled(share).plus(tau, Complexes::load(entry)).store(entry);
    }
}

/// `vectors = Q vectors`, rows of `width` numbers each, with `Q` as left by [`reduce`].
#[inline(always)]
pub(super) fn back_transform<R: Register>(
    matrix: &[ComplexValues<R>],
    tau: &[ComplexValues<R>],
    vectors: &mut [ComplexValues<R>],
    width: usize,
) {
    let mut column = 0;
    while column < width {
        // Parts of at most four columns, as equal as can be.
        let parts = (width - column).div_ceil(4);
        let count = (width - column).div_ceil(parts);
        match count {
            1 => reflect_columns::<R, 1>(matrix, tau, vectors, width, column),
            2 => reflect_columns::<R, 2>(matrix, tau, vectors, width, column),
            3 => reflect_columns::<R, 3>(matrix, tau, vectors, width, column),
            _ => reflect_columns::<R, 4>(matrix, tau, vectors, width, column),
        }
        column += count;
    }
}

/// Applies all reflectors to `COUNT` neighbouring columns. One pass subtracts a reflector and takes
/// the inner products with the next.
#[inline(always)]
fn reflect_columns<R: Register, const COUNT: usize>(
    matrix: &[ComplexValues<R>],
    tau: &[ComplexValues<R>],
    vectors: &mut [ComplexValues<R>],
    width: usize,
    column: usize,
) {
    let mut shares = [Complexes::<R>::zero(); COUNT];
    let mut row_of = 0;
    for order in 0..tau.len() {
        // The reflector of this order, whose shares are known, and the next one.
        let here = &matrix[triangle_index(order, 0)..][..order];
        let ahead =
            if order + 1 < tau.len() { &matrix[triangle_index(order + 1, 0)..][..order + 1] } else { here };
        let mut inner = [Complexes::<R>::zero(); COUNT];
        for ((u, next), row) in here.iter().zip(ahead).zip(vectors.chunks_exact_mut(width)) {
            let (u, next) = (Complexes::load(u), Complexes::load(next));
            let row = &mut row[column..column + COUNT];
            for k in 0..COUNT {
                let entry = Complexes::load(&row[k]).minus(u, shares[k]);
                entry.store(&mut row[k]);
                inner[k] = inner[k].plus_conjugate(next, entry);
            }
        }
        if order + 1 == tau.len() {
            break;
        }
        let (next, factor) = (Complexes::load(&ahead[order]), Complexes::load(&tau[order + 1]));
        let row = &vectors[row_of + column..][..COUNT];
        for k in 0..COUNT {
            let sum = inner[k].plus_conjugate(next, Complexes::load(&row[k]));
            shares[k] = Complexes::zero().plus(factor, sum);
        }
        row_of += width;
    }
}
