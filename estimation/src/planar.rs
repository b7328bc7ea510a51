//! Small complex matrices with real and imaginary parts apart, [`LANES`] columns side by side.
//!
//! A group of columns is a slice of [`ComplexLanes`], one element per row: every step of a product is then one operation for all
//! columns of the group. Unused columns of the last group are zero.

use num_complex::Complex64;

use crate::linalg::register::{Complexes, Register};
use crate::linalg::{ComplexLanes, LANES, Lanes};

/// A complex number for each lane.
#[inline(always)]
pub(crate) fn lanes(mut number: impl FnMut(usize) -> Complex64) -> ComplexLanes<f64> {
    let mut all = ComplexLanes { re: Lanes::ZERO, im: Lanes::ZERO };
    for lane in 0..LANES {
        let number = number(lane);
        (all.re.0[lane], all.im.0[lane]) = (number.re, number.im);
    }
    all
}

/// A matrix by its entries, group after group.
pub(crate) fn groups(
    rows: usize,
    columns: usize,
    entry: impl Fn(usize, usize) -> Complex64,
) -> Vec<ComplexLanes<f64>> {
    let used = |row, column| if column < columns { entry(row, column) } else { Complex64::ZERO };
    let firsts = (0..columns).step_by(LANES);
    firsts
        .flat_map(|first| (0..rows).map(move |row| (row, first)))
        .map(|(row, first)| lanes(|lane| used(row, first + lane)))
        .collect()
}

/// Entry of a matrix of this many rows.
pub(crate) fn entry(groups: &[ComplexLanes<f64>], rows: usize, row: usize, column: usize) -> Complex64 {
    let (all, lane) = (&groups[column / LANES * rows + row], column % LANES);
    Complex64::new(all.re.0[lane], all.im.0[lane])
}

/// A complex number in all lanes.
#[inline(always)]
pub(crate) fn splat<R: Register<Scalar = f64>>(number: Complex64) -> Complexes<R> {
    Complexes { re: R::splat(number.re), im: R::splat(number.im) }
}

/// `A B` for one group of columns of B, where entry (i, j) of A is at `i * strides.0 + j * strides.1`.
#[inline(always)]
pub(crate) fn product<R: Register<Scalar = f64>>(
    a: &[Complex64],
    strides: (usize, usize),
    b: &[ComplexLanes<f64>],
    out: &mut [ComplexLanes<f64>],
) {
    if R::MANY { product_by::<R, 4>(a, strides, b, out) } else { product_by::<R, 2>(a, strides, b, out) }
}

/// The same, `ROWS` of them at a time: as many as there are registers for.
#[inline(always)]
fn product_by<R: Register<Scalar = f64>, const ROWS: usize>(
    a: &[Complex64],
    strides: (usize, usize),
    b: &[ComplexLanes<f64>],
    out: &mut [ComplexLanes<f64>],
) {
    let (blocks, rest) = out.as_chunks_mut();
    let done = blocks.len() * ROWS;
    for (block, out) in blocks.iter_mut().enumerate() {
        product_rows::<R, ROWS>(&a[block * ROWS * strides.0..], strides, b, out);
    }
    for (row, out) in rest.iter_mut().enumerate() {
        product_rows::<R, 1>(&a[(done + row) * strides.0..], strides, b, std::array::from_mut(out));
    }
}

#[inline(always)]
fn product_rows<R: Register<Scalar = f64>, const ROWS: usize>(
    a: &[Complex64],
    (down, right): (usize, usize),
    b: &[ComplexLanes<f64>],
    out: &mut [ComplexLanes<f64>; ROWS],
) {
    let mut sums = [Complexes::<R>::zero(); ROWS];
    for (j, b) in b.iter().enumerate() {
        let b = Complexes::<R>::load(b);
        for (row, sum) in sums.iter_mut().enumerate() {
            *sum = sum.plus(b, splat(a[row * down + j * right]));
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        sum.store(out);
    }
}

#[cfg(test)]
mod tests {
    use model::CMatrix;
    use model::random::{Purpose, complex_normal, stream};

    use super::*;
    use crate::linalg::{Instructions, Kernel, dispatch};

    struct Product<'a>(&'a CMatrix, &'a [ComplexLanes<f64>], &'a mut [ComplexLanes<f64>]);

    impl Kernel<f64> for Product<'_> {
        type Output = ();

        #[inline(always)]
        fn run<R: Register<Scalar = f64>>(self) {
            let Self(a, b, out) = self;
            let (rows, inner) = a.shape();
            for (b, out) in b.chunks_exact(inner).zip(out.chunks_exact_mut(rows)) {
                product::<R>(a.as_slice(), (1, rows), b, out);
            }
        }
    }

    #[test]
    fn products_are_those_of_plain_matrices() {
        let mut draw = stream(1, Purpose::Study, [0, 0]);
        for (rows, inner, columns) in [(1, 1, 1), (10, 33, 20), (7, 5, 8), (3, 0, 2)] {
            let mut matrix = |r, c| CMatrix::from_fn(r, c, |_, _| complex_normal(&mut draw, 1.0));
            let (a, b) = (matrix(rows, inner), matrix(inner, columns));
            let planar = groups(inner, columns, |i, j| b[(i, j)]);
            for instructions in [Instructions::Baseline, Instructions::Avx2, Instructions::Avx512] {
                let mut out = vec![lanes(|_| Complex64::ONE); rows * columns.div_ceil(LANES)];
                if instructions.is_available() && inner > 0 {
                    dispatch(instructions, Product(&a, &planar, &mut out));
                    let found = CMatrix::from_fn(rows, columns, |i, j| entry(&out, rows, i, j));
                    assert!((found - &a * &b).norm() < 1e-13 * a.norm() * b.norm());
                }
            }
        }
    }
}
