//! What the products at every second point of the grid say about those between them.
//!
//! A spectrum y of a path has the product `z(p) = <g(p), y>` with the unit atom of a point p. Let q_i be the corners of the cell of
//! every second point that contains p, and w_i any numbers: `g(p) = sum w_i g(q_i) + r`, hence by the inequality of Cauchy and Schwarz
//!
//! `|z(p)| <= |sum w_i^* z(q_i)| + ||r|| ||y||`.
//!
//! This holds for every y, be it echo, noise or fault. The w_i that make `||r||` small are those of least squares; both depend on the
//! system alone. `||r||` is some 0.05 in the plane and 0.09 in space (medians of Table I and of the hall): neighbouring atoms are so alike
//! that those of the corners nearly contain the ones between them. The response of the sensors is that of the beam in which a point is, as
//! in the products that are bounded. `sum |w_i| |z(q_i)|` would be cheaper and of no use: the magnitudes of the weights have a sum near 2.
//!
//! Cost: a path is a lane, and a bound takes 4 complex multiplications in the plane and 8 in space, where the product takes one per
//! subcarrier of an IRS.

use nalgebra::{DMatrix, DVector};
use num_complex::Complex64;

use super::coarse::{CoarseGrid, overlap};
use super::moments::inner;
use crate::linalg::register::{Complexes, Register};
use crate::linalg::{ComplexLanes, Instructions, Kernel, LANES, Lanes, dispatch};

/// What is added to the Gram matrix of the corners, whose atoms may be the same. It limits the norm of the weights to 50.
const RIDGE: f64 = 1e-4;
/// What is added to `||r||` because products are rounded to single precision, to some 1e-6 of `||y||` each.
const ROUNDING: f64 = 1e-4;

/// A grid in two levels, and the bounds of the second.
#[derive(Debug, Clone, Default)]
pub(super) struct Interpolation {
    /// Points of the first level: every second one along each axis, and the last.
    pub first: Vec<usize>,
    /// All other points.
    pub rest: Vec<usize>,
    /// Per point of `rest`: places of its corners in `first`.
    corners: Vec<u32>,
    /// Per point of `rest`, corner and group of paths: w.
    weights: Vec<ComplexLanes<f32>>,
    /// Per point of `rest` and group of paths: `||r||`.
    gaps: Vec<Lanes<f32>>,
    corner_count: usize,
    /// Groups of [`LANES`] paths.
    pub groups: usize,
}

impl Interpolation {
    /// Bytes per point that is not of the first level.
    pub fn bytes_per_point(dimensions: usize, paths: usize) -> usize {
        let (corners, lanes) = (1 << dimensions, paths.next_multiple_of(LANES));
        (2 * corners + 1) * lanes * size_of::<f32>() + corners * size_of::<u32>()
    }

    /// The interpolation of a grid whose tables are made.
    pub fn new(grid: &CoarseGrid, irs: usize) -> Self {
        let counts = &grid.places.counts;
        let of_axis = |count: &usize| (0..*count).filter(|i| i % 2 == 0 || i + 1 == *count).collect();
        let levels: Vec<Vec<usize>> = counts.iter().map(of_axis).collect();
        let level_counts: Vec<usize> = levels.iter().map(Vec::len).collect();
        let first: Vec<usize> = lattice(&level_counts)
            .map(|at| place(&at.iter().zip(&levels).map(|(i, level)| level[*i]).collect::<Vec<_>>(), counts))
            .collect();
        let corner_count = 1 << counts.len();
        let groups = (irs * irs).div_ceil(LANES);
        let mut new = Self { first, corner_count, groups, ..Self::default() };
        let cell_counts: Vec<usize> = level_counts.iter().map(|count| (count - 1).max(1)).collect();
        for cell in lattice(&cell_counts) {
            let corners: Vec<usize> = (0..corner_count)
                .map(|code| {
                    let end = |(i, at): (usize, &usize)| (at + (code >> i & 1)).min(level_counts[i] - 1);
                    place(&cell.iter().enumerate().map(end).collect::<Vec<_>>(), &level_counts)
                })
                .collect();
            // A point between two cells belongs to the second.
            let sides: Vec<Vec<usize>> = (0..counts.len())
                .map(|i| {
                    let to = if cell[i] + 1 == cell_counts[i] { counts[i] } else { levels[i][cell[i] + 1] };
                    (levels[i][cell[i]]..to).collect()
                })
                .collect();
            let side_counts: Vec<usize> = sides.iter().map(Vec::len).collect();
            let inside = lattice(&side_counts).filter_map(|at| {
                let at: Vec<usize> = at.iter().zip(&sides).map(|(i, side)| side[*i]).collect();
                let between = at.iter().zip(&levels).any(|(i, level)| level.binary_search(i).is_err());
                between.then(|| place(&at, counts))
            });
            new.add_cell(grid, irs, &corners, &inside.collect::<Vec<usize>>());
        }
        new.in_order()
    }

    /// The points in the order in which their atoms are in memory.
    fn in_order(mut self) -> Self {
        let mut order: Vec<usize> = (0..self.rest.len()).collect();
        order.sort_unstable_by_key(|&place| self.rest[place]);
        let (count, groups) = (self.corner_count, self.groups);
        self.corners = rows_in_order(&self.corners, count, &order);
        self.weights = rows_in_order(&self.weights, count * groups, &order);
        self.gaps = rows_in_order(&self.gaps, groups, &order);
        self.rest.sort_unstable();
        self
    }

    /// Adds the points between some corners.
    fn add_cell(&mut self, grid: &CoarseGrid, irs: usize, corners: &[usize], inside: &[usize]) {
        let (count, groups, from) = (corners.len(), self.groups, self.rest.len());
        let points: Vec<usize> = corners.iter().map(|corner| self.first[*corner]).collect();
        for &point in inside {
            self.rest.push(point);
            self.corners.extend(corners.iter().map(|&corner| corner as u32));
        }
        self.weights.resize(self.rest.len() * count * groups, ComplexLanes::ZERO);
        self.gaps.resize(self.rest.len() * groups, Lanes::ZERO);
        for l in 0..irs {
            let response = |point: usize| &grid.responses(l)[grid.beam_of(l, point)];
            let shared = |to: usize| -> Vec<Complex64> {
                points.iter().map(|&from| inner(response(from), response(to))).collect()
            };
            let of_corners: Vec<Vec<Complex64>> = points.iter().map(|&point| shared(point)).collect();
            let of_inside: Vec<Vec<Complex64>> = inside.iter().map(|&point| shared(point)).collect();
            for k in 0..irs {
                let (group, lane) = ((l * irs + k) / LANES, (l * irs + k) % LANES);
                let product = |i: usize, to: usize| overlap(grid.part(points[i], l, k), grid.part(to, l, k));
                let mut gram = DMatrix::zeros(count, count);
                for (i, j) in (0..count).flat_map(|j| (0..=j).map(move |i| (i, j))) {
                    gram[(i, j)] = of_corners[j][i] * product(i, points[j]);
                    gram[(j, i)] = gram[(i, j)].conj();
                }
                let ridge = DMatrix::from_diagonal_element(count, count, Complex64::from(RIDGE));
                let factor = (&gram + ridge).cholesky();
                for (i, &point) in inside.iter().enumerate() {
                    let along = DVector::from_fn(count, |j, _| of_inside[i][j] * product(j, point));
                    let own = grid.part(point, l, k);
                    let energy = response(point).len() as f64 * overlap(own, own).re;
                    // The bound holds for any weights.
                    let weights =
                        factor.as_ref().map_or(DVector::zeros(count), |factor| factor.solve(&along));
                    let left = energy - 2.0 * weights.dotc(&along).re + weights.dotc(&(&gram * &weights)).re;
                    self.gaps[(from + i) * groups + group].0[lane] = (left.max(0.0).sqrt() + ROUNDING) as f32;
                    for (corner, weight) in weights.iter().enumerate() {
                        let at = &mut self.weights[((from + i) * count + corner) * groups + group];
                        (at.re.0[lane], at.im.0[lane]) = (weight.re as f32, weight.im as f32);
                    }
                }
            }
        }
    }

    /// Per point of `rest` and group of paths: the largest squares that products can have. `products` holds those at the points of
    /// `first`, `norms` the `||y||` of all paths.
    pub fn bounds(&self, products: &[ComplexLanes<f32>], norms: &[Lanes<f32>]) -> Vec<Lanes<f32>> {
        let mut squares = vec![Lanes::ZERO; self.gaps.len()];
        dispatch(
            Instructions::detect(),
            ProductBounds { interpolation: self, products, norms, squares: &mut squares },
        );
        squares
    }
}

/// See [`Interpolation::bounds`].
struct ProductBounds<'a> {
    interpolation: &'a Interpolation,
    products: &'a [ComplexLanes<f32>],
    norms: &'a [Lanes<f32>],
    squares: &'a mut [Lanes<f32>],
}

impl Kernel<f32> for ProductBounds<'_> {
    type Output = ();

    #[inline(always)]
    fn run<R: Register<Scalar = f32>>(self) {
        let Interpolation { corners, weights, gaps, corner_count, groups, .. } = self.interpolation;
        let points = corners.chunks_exact(*corner_count).zip(weights.chunks_exact(corner_count * groups));
        let gaps = gaps.chunks_exact(*groups).zip(self.squares.chunks_exact_mut(*groups));
        for ((corners, weights), (gaps, squares)) in points.zip(gaps) {
            for group in 0..*groups {
                let mut sum = Complexes::<R>::zero();
                for (&corner, weights) in corners.iter().zip(weights.chunks_exact(*groups)) {
                    let product = Complexes::load(&self.products[corner as usize * groups + group]);
                    sum = sum.plus_conjugate(Complexes::load(&weights[group]), product);
                }
                let most = R::load(&gaps[group]).mul_add(R::load(&self.norms[group]), sum.energy().sqrt());
                (most * most).store(&mut squares[group]);
            }
        }
    }
}

/// Rows of one length in another order.
fn rows_in_order<T: Clone>(rows: &[T], length: usize, order: &[usize]) -> Vec<T> {
    order.iter().flat_map(|&row| rows[row * length..(row + 1) * length].iter().cloned()).collect()
}

/// All index tuples of a lattice, the first index fastest.
fn lattice(counts: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..counts.iter().product()).map(|mut code: usize| {
        let digit = |count: &usize| {
            let digit = code % count;
            code /= count;
            digit
        };
        counts.iter().map(digit).collect()
    })
}

/// Where an index tuple is in that order.
fn place(at: &[usize], counts: &[usize]) -> usize {
    at.iter().zip(counts).rev().fold(0, |place, (i, count)| place * count + i)
}

#[cfg(test)]
mod tests {
    use super::super::test_scene::TestScene;
    use super::*;

    /// `g` of path (l, k) at a point, over sensors and subcarriers.
    fn atom(grid: &CoarseGrid, point: usize, l: usize, k: usize) -> DVector<Complex64> {
        let (re, im) = grid.part(point, l, k);
        let weights = || re.iter().zip(im).map(|(re, im)| Complex64::new((*re).into(), -f64::from(*im)));
        let response = &grid.responses(l)[grid.beam_of(l, point)];
        let all: Vec<Complex64> = response.iter().flat_map(|a| weights().map(move |w| a * w)).collect();
        DVector::from_vec(all)
    }

    /// Every point is either of the first level or between corners that are at most two steps apart.
    #[test]
    fn every_point_is_on_one_level() {
        for scene in [TestScene::new(50.0), TestScene::hall()] {
            let (grid, between) = (&scene.locator.grid, &scene.locator.grid.interpolation);
            let mut all: Vec<usize> = between.first.iter().chain(&between.rest).copied().collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..grid.points()));
            for (place, &point) in between.rest.iter().enumerate() {
                let at = grid.places.coordinates(point);
                for &corner in &between.corners[place * between.corner_count..][..between.corner_count] {
                    let away = grid.places.coordinates(between.first[corner as usize]) - &at;
                    let steps = away.iter().zip(&grid.places.step).map(|(away, step)| (away / step).abs());
                    assert!(steps.fold(0.0, f64::max) < 2.01);
                }
            }
        }
    }

    /// For the spectrum for which a bound is worst it is hardly larger than the product, and the product never larger.
    #[test]
    fn bounds_hold_and_are_sharp() {
        for (scene, step) in [(TestScene::new(50.0), 3), (TestScene::hall(), 97)] {
            let (grid, between) = (&scene.locator.grid, &scene.locator.grid.interpolation);
            let irs = scene.source.system().irs_count();
            for (place, l, k) in (0..between.rest.len()).step_by(step).map(|i| (i, i % irs, i / irs % irs)) {
                let (group, lane) = ((l * irs + k) / LANES, (l * irs + k) % LANES);
                let corners = &between.corners[place * between.corner_count..][..between.corner_count];
                let atoms = corners.iter().map(|&corner| atom(grid, between.first[corner as usize], l, k));
                let atoms: Vec<DVector<Complex64>> = atoms.collect();
                let here = atom(grid, between.rest[place], l, k);
                let mut worst = here.clone();
                for (i, atom) in atoms.iter().enumerate() {
                    let weight = &between.weights[(place * corners.len() + i) * between.groups + group];
                    worst -= atom * Complex64::new(weight.re.0[lane].into(), weight.im.0[lane].into());
                }
                for (y, sharp) in [(&worst, true), (&(&worst + &here * Complex64::new(0.3, 0.4)), false)] {
                    let mut products = vec![ComplexLanes::ZERO; between.first.len() * between.groups];
                    for (&corner, atom) in corners.iter().zip(&atoms) {
                        let (at, z) = (&mut products[corner as usize * between.groups + group], atom.dotc(y));
                        (at.re.0[lane], at.im.0[lane]) = (z.re as f32, z.im as f32);
                    }
                    let mut norms = vec![Lanes::ZERO; between.groups];
                    norms[group].0[lane] = y.norm() as f32;
                    let bound = between.bounds(&products, &norms)[place * between.groups + group].0[lane];
                    let ratio = f64::from(bound).sqrt() / here.dotc(y).norm();
                    assert!(ratio >= 1.0 && (!sharp || ratio < 1.2), "{ratio} at {place}");
                }
            }
        }
    }
}
