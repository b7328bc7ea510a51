//! The likelihood of one target more on the coarse grid, given others, from tables that are made once per frame and target.
//!
//! With the unit atom m of a grid point, the atoms of the others as columns of A and W of [`OthersPath`], a path adds
//! `|m^H Y - u^H v|^2 / (1 - |u|^2)`, `u = W A^H m`, `v = W A^H Y`. The products `m^H Y` and `A^H m` are tabulated, in single
//! precision as the survey is: a table costs as much as a survey without its beams, and the map of any subset of the
//! tabulated targets T^2 multiplications per point and path.

use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::DVector;
use num_complex::{Complex32, Complex64};

use super::coarse::split;
use super::joint::{JointLikelihood, LEAST_LEFT, OthersNode};
use super::locate::DirectLocator;
use super::moments::inner;

/// Largest number of targets whose tables are kept.
const MOST_TABLES: usize = 32;

/// Per point and path, in the order of nodes and of their paths.
type ProductTable = Vec<Complex32>;

/// The maps of a frame.
#[derive(Debug)]
pub(super) struct ResidualMaps<'a> {
    locator: &'a DirectLocator,
    likelihood: JointLikelihood<'a>,
    paths: usize,
    /// Offsets of the clocks in metres of range, and the products of the atoms with data from which these are removed.
    data: Option<(Vec<f64>, ProductTable)>,
    /// Coordinates of targets, and the products of their atoms with those of the grid.
    targets: Vec<(Vec<f64>, ProductTable)>,
}

impl<'a> ResidualMaps<'a> {
    pub fn new(locator: &'a DirectLocator, likelihood: JointLikelihood<'a>) -> Self {
        let paths = likelihood.sensing().map(|(l, _)| likelihood.paths(l).count()).sum();
        Self { locator, likelihood, paths, data: None, targets: Vec::new() }
    }

    /// The map given the targets of a state, of which there is at least one; `others` are the same.
    pub fn map(&mut self, state: &DVector<f64>, others: &[OthersNode]) -> Vec<f64> {
        let (targets, axes) = (self.likelihood.targets(state), self.likelihood.dimensions());
        let (coordinates, offsets_m) = state.as_slice().split_at(targets * axes);
        if self.data.as_ref().is_none_or(|(known_m, _)| known_m != offsets_m) {
            self.data = Some((offsets_m.to_vec(), self.data_table(offsets_m)));
        }
        if self.targets.len() + targets > MOST_TABLES {
            self.targets.clear();
        }
        let place =
            |known: &[(Vec<f64>, ProductTable)], at: &[f64]| known.iter().position(|known| known.0 == at);
        let mut used = Vec::with_capacity(targets);
        for at in coordinates.chunks(axes) {
            used.push(place(&self.targets, at).unwrap_or_else(|| {
                self.targets.push((at.to_vec(), self.target_table(at)));
                self.targets.len() - 1
            }));
        }
        let tables: Vec<&[Complex32]> = used.iter().map(|&place| self.targets[place].1.as_slice()).collect();
        let data = self.data.as_ref().map_or(&[][..], |(_, table)| table.as_slice());
        let paths: Vec<PathWeights> =
            others.iter().flat_map(|node| &node.paths).map(PathWeights::new).collect();
        let mut products = vec![Complex32::ZERO; targets];
        let value = |point: usize| {
            let mut sum = 0.0;
            for (path, weights) in paths.iter().enumerate() {
                let at = point * self.paths + path;
                products.iter_mut().zip(&tables).for_each(|(product, table)| *product = table[at]);
                sum += weights.value(data[at], &products);
            }
            f64::from(sum)
        };
        (0..self.locator.grid.points()).map(value).collect()
    }

    fn data_table(&self, offsets_m: &[f64]) -> ProductTable {
        let (grid, scene) = (&self.locator.grid, &self.locator.scene);
        let mut table = vec![Complex32::ZERO; grid.points() * self.paths];
        let mut first = 0;
        for (l, rows) in self.likelihood.sensing() {
            let used: Vec<usize> = self.likelihood.paths(l).collect();
            let beamed = match offsets_m.get(l) {
                None => grid.beamed_spectra(l, rows),
                Some(offset_m) => {
                    let turn = scene.layout().phasors(offset_m / SPEED_OF_LIGHT_M_S);
                    let untimed =
                        |row: &Vec<Complex64>| row.iter().zip(&turn).map(|(y, turn)| y * turn).collect();
                    let rows: Vec<Vec<Complex64>> = rows.iter().map(untimed).collect();
                    grid.beamed_spectra(l, &rows)
                }
            };
            grid.each_product(
                scene,
                l,
                &used,
                |beam| &beamed[beam],
                |point, place, product| {
                    table[point * self.paths + first + place] = product;
                },
            );
            first += used.len();
        }
        table
    }

    fn target_table(&self, at: &[f64]) -> ProductTable {
        let (grid, scene) = (&self.locator.grid, &self.locator.scene);
        let views = scene.layout().views(&scene.layout().position_m(at), false);
        let mut table = vec![Complex32::ZERO; grid.points() * self.paths];
        let mut first = 0;
        for (l, _) in self.likelihood.sensing() {
            let used: Vec<usize> = self.likelihood.paths(l).collect();
            // Per beam: what the sensors have in common.
            let shared = |beam: &Vec<Complex64>| {
                let product = inner(&views[l].arrival[0], beam);
                Complex32::new(product.re as f32, product.im as f32)
            };
            let shared: Vec<Complex32> = grid.responses(l).iter().map(shared).collect();
            let streams = views.iter().enumerate().flat_map(|(k, view)| {
                let own = scene.range(k);
                let phasors = views[l].phasors[own.clone()].iter().zip(&view.phasors[own]);
                view.streams[0].iter().zip(phasors).map(|(stream, (a, b))| stream * a * b)
            });
            let row = split(&streams.collect::<Vec<Complex64>>());
            grid.each_product(
                scene,
                l,
                &used,
                |_| &row,
                |point, place, product| {
                    table[point * self.paths + first + place] =
                        shared[grid.beam_of(l, point)] * product.conj();
                },
            );
            first += used.len();
        }
        table
    }
}

/// What turns the products of a path into its value, in single precision.
struct PathWeights {
    /// Rows of the lower triangle of W.
    whitening: Vec<Complex32>,
    explained: Vec<Complex32>,
    singular: bool,
}

impl PathWeights {
    fn new(path: &super::joint::OthersPath) -> Self {
        let single = |value: Complex64| Complex32::new(value.re as f32, value.im as f32);
        let count = path.explained.len();
        let triangle = (0..count).flat_map(|i| (0..=i).map(move |j| (i, j)));
        Self {
            whitening: triangle.map(|place| single(path.whitening[place])).collect(),
            explained: path.explained.iter().copied().map(single).collect(),
            singular: path.is_singular(),
        }
    }

    #[inline]
    fn value(&self, data: Complex32, products: &[Complex32]) -> f32 {
        if self.singular {
            return 0.0;
        }
        let (mut residual, mut left, mut first) = (data, 1.0, 0);
        for (i, explained) in self.explained.iter().enumerate() {
            let row = &self.whitening[first..=first + i];
            let u: Complex32 = row.iter().zip(products).map(|(w, product)| w * product).sum();
            residual -= u.conj() * explained;
            left -= u.norm_sqr();
            first += i + 1;
        }
        if left > LEAST_LEFT as f32 { residual.norm_sqr() / left } else { 0.0 }
    }
}
