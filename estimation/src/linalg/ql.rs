//! Eigenvalues and eigenvectors of real symmetric tridiagonal matrices, several side by side.
//!
//! The implicitly shifted QL method (Bowdler, Martin, Reinsch, Wilkinson 1968; EISPACK `imtql2`) with
//! Wilkinson's shift. Each lane works on its own lowest unreduced block; a sweep runs over the union
//! of the lanes' blocks and is the identity in a lane outside its own. A lane that is done waits.
//!
//! Cost: near 2.3 sweeps per eigenvalue, about `7 n^3` operations. A rotation waits for a division by
//! what the one before it left; the vectors are turned meanwhile.

use std::ops::Range;

use super::lanes::{LANES, Lanes, Scalar};
use super::register::{RealValues, Register};

/// A coupling below so many units of rounding (of a matrix scaled to entries near 1) is dropped. The projection is
/// nonexpansive, so dropping changes it by at most `sqrt(2 n)` times as much.
const NEGLIGIBLE: f64 = 4.0;

/// Sweeps per eigenvalue after which the iteration gives up (as LAPACK's `dsteqr`).
const SWEEPS_PER_VALUE: usize = 30;

/// The lowest block of each lane that is not yet diagonal, `first..=last`, and its first bulge.
struct SpectrumBlocks<R> {
    first: R,
    last: R,
    start: R,
    /// The smallest `first` and the largest `last` of all lanes, equal if all are done.
    bottom: usize,
    top: usize,
}

/// Replaces `diagonal` by the eigenvalues (in no order) and fills `vectors` with the eigenvectors,
/// one after the other, lane by lane. `subdiagonal` has the length of `diagonal`; its last is unused.
#[inline(always)]
pub(super) fn decompose<R: Register>(
    diagonal: &mut [RealValues<R>],
    subdiagonal: &mut [RealValues<R>],
    vectors: &mut [RealValues<R>],
) {
    let order = diagonal.len();
    set_identity(vectors, order);
    let mut bottom = 0;
    for sweep in 1..=SWEEPS_PER_VALUE * order {
        let blocks = find_blocks::<R>(diagonal, subdiagonal, bottom);
        if blocks.bottom == blocks.top {
            break;
        }
        bottom = blocks.bottom;
        run_sweep(&blocks, sweep, diagonal, subdiagonal, vectors);
    }
}

#[inline(always)]
fn set_identity<T: Scalar>(vectors: &mut [Lanes<T>], order: usize) {
    vectors.fill(Lanes::ZERO);
    for entry in vectors.iter_mut().step_by(order + 1) {
        *entry = Lanes([T::ONE; LANES]);
    }
}

/// Finds each lane's block at or above `bottom`; none, with `last = 0`, for a lane that is done.
#[inline(always)]
fn find_blocks<R: Register>(
    diagonal: &[RealValues<R>],
    subdiagonal: &[RealValues<R>],
    bottom: usize,
) -> SpectrumBlocks<R> {
    let end = diagonal.len() - 1;
    let mut split = R::splat(end as f64);
    let (mut first, mut last) = (split, R::zero());
    let mut corner = R::load(&diagonal[end]);
    let mut above = corner;
    let [mut low, mut next, mut square, mut far] = [R::zero(); 4];
    let mut lowest = end;
    for i in (bottom..end).rev() {
        let (value, coupling) = (R::load(&diagonal[i]), R::load(&subdiagonal[i]));
        let alive = coupling.abs().greater(R::splat(NEGLIGIBLE * R::Scalar::EPSILON));
        let here = R::splat(i as f64);
        split = R::select(alive, split, here);
        corner = R::select(alive, corner, value);
        first = R::select(alive, here, first);
        last = R::select(alive, split, last);
        low = R::select(alive, value, low);
        next = R::select(alive, above, next);
        square = R::select(alive, coupling * coupling, square);
        far = R::select(alive, corner, far);
        lowest = if R::any(alive) { i } else { lowest };
        above = value;
    }
    let mut top = end;
    while top > lowest && !R::any(last.greater(R::splat(top as f64 - 0.5))) {
        top -= 1;
    }
    // Wilkinson: the eigenvalue of the leading 2 x 2 that is nearer to `low`.
    let half = (next - low) * R::splat(0.5);
    let length = half.mul_add(half, square);
    let root = length * length.recip_and_recip_sqrt().1;
    let start = (far - low) + (root - half.abs()).copysign(half);
    SpectrumBlocks { first, last, start, bottom: lowest, top }
}

/// A plane rotation of two neighbouring vectors in every lane.
#[derive(Clone, Copy)]
struct Rotation<R> {
    cosine: R,
    sine: R,
}

impl<R: Register> Rotation<R> {
    #[inline(always)]
    fn apply(self, low: R, high: R) -> (R, R) {
        let turned = self.sine.neg_mul_add(high, self.cosine * low);
        (turned, self.sine.mul_add(low, self.cosine * high))
    }
}

/// The chase of the bulge through a sweep, from the top down.
struct Chase<'a, R> {
    blocks: &'a SpectrumBlocks<R>,
    /// The last rotation, and the square of its sine; all one before a lane's block starts.
    sine: R,
    cosine: R,
    sine_square: R,
    bulge: R,
    /// What the diagonal and the coupling above become if nothing more is done to them.
    above: R,
    beyond: R,
}

impl<'a, R: Register> Chase<'a, R> {
    #[inline(always)]
    fn new(blocks: &'a SpectrumBlocks<R>, above: &RealValues<R>, beyond: &RealValues<R>) -> Self {
        let one = R::splat(1.0);
        let (above, beyond) = (R::load(above), R::load(beyond));
        Self { blocks, sine: one, cosine: one, sine_square: one, bulge: blocks.start, above, beyond }
    }

    /// Rotates the indices `i` and `i + 1` of the tridiagonal matrices.
    ///
    /// What the next rotation waits for is taken from the squared length of what is rotated, not
    /// from the rotation, which keeps the square root off the path from one to the next.
    #[inline(always)]
    fn step(
        &mut self,
        i: usize,
        diagonal: &mut [RealValues<R>],
        subdiagonal: &mut [RealValues<R>],
    ) -> Rotation<R> {
        let (zero, one) = (R::zero(), R::splat(1.0));
        let SpectrumBlocks { first, last, .. } = *self.blocks;
        let index = i as f64;
        let active = R::both(last.greater(R::splat(index)), R::splat(index + 0.5).greater(first));
        let inner = R::both(active, last.greater(R::splat(index + 1.0)));
        let ending = R::both(active, first.greater(R::splat(index - 0.5)));
        let (value, coupling) = (R::load(&diagonal[i]), R::load(&subdiagonal[i]));
        let (far, near, bulge) = (self.sine * coupling, self.cosine * coupling, self.bulge);
        let far_square = self.sine_square * (coupling * coupling);
        let square = bulge.mul_add(bulge, far_square);
        let turning = R::both(active, square.greater(R::splat(R::Scalar::TINY)));
        let (inverse, root) = square.recip_and_recip_sqrt();
        let root = R::select(turning, root, zero);
        let rotation = Rotation { cosine: R::select(turning, bulge * root, one), sine: far * root };
        R::select(inner, square * root, R::select(active, zero, self.beyond)).store(&mut subdiagonal[i + 1]);
        let difference = value - self.above;
        let twice = near + near;
        let shift = rotation.sine * difference.mul_add(rotation.sine, rotation.cosine * twice);
        (self.above + shift).store(&mut diagonal[i + 1]);
        self.above = value - shift;
        let product = bulge * difference.mul_add(far, bulge * twice);
        let chased = R::select(turning, product.mul_add(inverse, -near), near);
        self.beyond = R::select(ending, chased, coupling);
        self.bulge = R::select(active, chased, bulge);
        self.sine = R::select(active, rotation.sine, one);
        self.sine_square = R::select(active, R::select(turning, far_square * inverse, zero), one);
        self.cosine = rotation.cosine;
        rotation
    }
}

/// One QL sweep in every lane; `sweep` counts from one.
///
/// The vectors are turned two rotations behind, by two at a time: that work has its operands at hand
/// and fills the time the next rotations wait for their divisions.
#[inline(always)]
fn run_sweep<R: Register>(
    blocks: &SpectrumBlocks<R>,
    sweep: usize,
    diagonal: &mut [RealValues<R>],
    subdiagonal: &mut [RealValues<R>],
    vectors: &mut [RealValues<R>],
) {
    let order = diagonal.len();
    let (bottom, mut index) = (blocks.bottom, blocks.top);
    let mut chase = Chase::new(blocks, &diagonal[index], &subdiagonal[index]);
    let mut waiting = None;
    while index >= bottom + 2 {
        index -= 2;
        let upper = chase.step(index + 1, diagonal, subdiagonal);
        if let Some((column, pair)) = waiting {
            let first = first_row(column, sweep);
            rotate_three(vectors, order, column, first..(first + order) / 2, pair);
        }
        let lower = chase.step(index, diagonal, subdiagonal);
        if let Some((column, pair)) = waiting {
            let first = first_row(column, sweep);
            rotate_three(vectors, order, column, (first + order) / 2..order, pair);
        }
        waiting = Some((index, [upper, lower]));
    }
    if let Some((column, pair)) = waiting {
        rotate_three(vectors, order, column, first_row(column, sweep)..order, pair);
    }
    if index > bottom {
        let rotation = chase.step(bottom, diagonal, subdiagonal);
        rotate_two(vectors, order, bottom, first_row(bottom, sweep), rotation);
    }
    chase.above.store(&mut diagonal[bottom]);
    chase.beyond.store(&mut subdiagonal[bottom]);
}

/// The vectors start as the identity: in this sweep, rows before this one of vector `column` and of
/// those after it are still zero.
#[inline(always)]
fn first_row(column: usize, sweep: usize) -> usize {
    (column + 1).saturating_sub(sweep)
}

/// Turns the vectors `column` and `column + 1`.
#[inline(always)]
fn rotate_two<R: Register>(
    vectors: &mut [RealValues<R>],
    order: usize,
    column: usize,
    row: usize,
    by: Rotation<R>,
) {
    let (left, right) = vectors[column * order..(column + 2) * order].split_at_mut(order);
    for (x, y) in left[row..].iter_mut().zip(&mut right[row..]) {
        let (low, high) = by.apply(R::load(x), R::load(y));
        low.store(x);
        high.store(y);
    }
}

/// Turns the vectors `column + 1` and `column + 2`, then `column` and `column + 1`.
#[inline(always)]
fn rotate_three<R: Register>(
    vectors: &mut [RealValues<R>],
    order: usize,
    column: usize,
    rows: Range<usize>,
    [upper, lower]: [Rotation<R>; 2],
) {
    let (left, rest) = vectors[column * order..(column + 3) * order].split_at_mut(order);
    let (middle, right) = rest.split_at_mut(order);
    let pairs = left[rows.clone()].iter_mut().zip(&mut middle[rows.clone()]);
    for ((x, y), z) in pairs.zip(&mut right[rows]) {
        let (between, high) = upper.apply(R::load(y), R::load(z));
        let (low, between) = lower.apply(R::load(x), between);
        low.store(x);
        between.store(y);
        high.store(z);
    }
}
