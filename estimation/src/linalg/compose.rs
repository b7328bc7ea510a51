//! From a group to scaled matrices, and from eigenvectors to the projected group.

use std::array;

use super::lanes::{LANES, Lanes, Scalar, triangle_index};
use super::register::{ComplexValues, Complexes, RealValues, Register};

/// Copies a group, scaled by powers of two to entries near one. Returns what undoes the scaling, and
/// a zero that is NaN in lanes with an entry that is not finite.
#[inline(always)]
pub(super) fn load_scaled<R: Register>(
    group: &[ComplexValues<R>],
    matrix: &mut [ComplexValues<R>],
) -> (R, R) {
    let mut largest = R::zero();
    let mut flaw = R::zero();
    for entry in group {
        let (re, im) = (R::load(&entry.re), R::load(&entry.im));
        largest = re.abs().max(im.abs().max(largest));
        flaw = re.mul_add(R::zero(), im.mul_add(R::zero(), flaw));
    }
    let scale = R::load(&Lanes(largest.to_array().map(Scalar::inverse_power_of_two)));
    for (to, from) in matrix.iter_mut().zip(group) {
        Complexes::load(from).scaled(scale).store(to);
    }
    (scale.recip(), flaw)
}

/// Which eigenvalues the projection is built from.
pub(super) struct Side<T> {
    /// The number of eigenvalues, of the lane with the most.
    pub(super) width: usize,
    /// One where the negative eigenvalues are taken, and the given matrix is kept; else zero.
    pub(super) keep: Lanes<T>,
    /// The number of positive eigenvalues.
    pub(super) positive: [usize; LANES],
    /// Their sum.
    pub(super) trace: Lanes<T>,
}

/// Picks the positive or the negative eigenvalues, of which there are fewer: their places in `chosen`,
/// the roots of their magnitudes in `roots`; zeros fill up.
#[inline(always)]
pub(super) fn choose_side<T: Scalar>(
    values: &[Lanes<T>],
    chosen: &mut [[usize; LANES]],
    roots: &mut [Lanes<T>],
) -> Side<T> {
    let mut side = Side { width: 0, keep: Lanes::ZERO, positive: [0; LANES], trace: Lanes::ZERO };
    chosen.fill([0; LANES]);
    roots.fill(Lanes::ZERO);
    for lane in 0..LANES {
        choose_in_lane(lane, values, chosen, roots, &mut side);
    }
    side
}

#[inline(always)]
fn choose_in_lane<T: Scalar>(
    lane: usize,
    values: &[Lanes<T>],
    chosen: &mut [[usize; LANES]],
    roots: &mut [Lanes<T>],
    side: &mut Side<T>,
) {
    let negligible = values.len() as f64 * T::EPSILON;
    let (mut positive, mut negative, mut trace) = (0, 0, 0.0);
    for value in values {
        let value: f64 = value.0[lane].into();
        positive += usize::from(value > negligible);
        negative += usize::from(value < -negligible);
        trace += if value > negligible { value } else { 0.0 };
    }
    let keeps = negative < positive;
    let sign = if keeps { -1.0 } else { 1.0 };
    let mut taken = 0;
    for (place, value) in values.iter().enumerate() {
        let value = sign * value.0[lane].into();
        if value > negligible {
            chosen[taken][lane] = place;
            roots[taken].0[lane] = T::rounded(value.sqrt());
            taken += 1;
        }
    }
    side.width = side.width.max(taken);
    side.keep.0[lane] = if keeps { T::ONE } else { T::ZERO };
    side.positive[lane] = positive;
    side.trace.0[lane] = T::rounded(trace);
}

/// Collects the chosen vectors times their roots as the columns of `factor`, stored row by row.
#[inline(always)]
pub(super) fn gather<R: Register>(
    vectors: &[RealValues<R>],
    chosen: &[[usize; LANES]],
    roots: &[RealValues<R>],
    factor: &mut [ComplexValues<R>],
) {
    let width = chosen.len();
    for (column, (places, root)) in chosen.iter().zip(roots).enumerate() {
        let order = factor.len() / width;
        let sources: [&[RealValues<R>]; LANES] =
            array::from_fn(|lane| &vectors[places[lane] * order..][..order]);
        let root = R::load(root);
        for row in 0..order {
            let entry = Lanes(array::from_fn(|lane| sources[lane][row].0[lane]));
            let scaled = Complexes { re: R::load(&entry) * root, im: R::zero() };
            scaled.store(&mut factor[row * width + column]);
        }
    }
}

/// The result: `factor factor^H`, scaled back, plus the given matrix where it is kept.
pub(super) struct Composition<'a, R: Register> {
    pub(super) factor: &'a [ComplexValues<R>],
    pub(super) width: usize,
    pub(super) keep: R::Mask,
    pub(super) unscale: R,
    pub(super) flaw: R,
}

impl<R: Register> Composition<'_, R> {
    /// Replaces the given group by the result, in tiles of two by two entries.
    #[inline(always)]
    pub(super) fn store(&self, order: usize, group: &mut [ComplexValues<R>]) {
        for row in (0..order - 1).step_by(2) {
            for column in (0..row).step_by(2) {
                self.store_tile::<2, 2>(row, column, group);
            }
            self.store_tile::<1, 1>(row, row, group);
            self.store_tile::<1, 2>(row + 1, row, group);
        }
        if order % 2 == 1 {
            for column in (0..order - 1).step_by(2) {
                self.store_tile::<1, 2>(order - 1, column, group);
            }
            self.store_tile::<1, 1>(order - 1, order - 1, group);
        }
    }

    #[inline(always)]
    fn store_tile<const ROWS: usize, const COLUMNS: usize>(
        &self,
        row: usize,
        column: usize,
        group: &mut [ComplexValues<R>],
    ) {
        let line = |index: usize| &self.factor[index * self.width..][..self.width];
        let left: [&[ComplexValues<R>]; ROWS] = array::from_fn(|i| line(row + i));
        let right: [&[ComplexValues<R>]; COLUMNS] = array::from_fn(|j| line(column + j));
        let mut sums = [[Complexes::<R>::zero(); COLUMNS]; ROWS];
        for t in 0..self.width {
            let y: [Complexes<R>; COLUMNS] = array::from_fn(|j| Complexes::load(&right[j][t]));
            for i in 0..ROWS {
                let x = Complexes::load(&left[i][t]);
                for j in 0..COLUMNS {
                    sums[i][j] = sums[i][j].plus_conjugate(y[j], x);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let place = triangle_index(row + i, column);
            for (sum, out) in sums.iter().zip(&mut group[place..place + COLUMNS]) {
                self.compose(*sum, Complexes::load(out)).store(out);
            }
        }
    }

    /// The flaw of a sound lane, a positive zero, also turns negative zeros positive, so that the
    /// zeros which fill up a lane leave no trace.
    #[inline(always)]
    fn compose(&self, sum: Complexes<R>, given: Complexes<R>) -> Complexes<R> {
        let part =
            |sum: R, given: R| R::select(self.keep, given, R::zero()) + sum.mul_add(self.unscale, self.flaw);
        Complexes { re: part(sum.re, given.re), im: part(sum.im, given.im) }
    }
}
