//! The likelihood of one target more on the coarse grid, given others, from tables that are made once per frame and target.
//!
//! With the unit atom m of a grid point, the atoms of the others as columns of A and W of [`OthersPath`], a path adds
//! `|m^H Y - u^H v|^2 / (1 - |u|^2)`, `u = W A^H m`, `v = W A^H Y`. The products `m^H Y` and `A^H m` are tabulated, in single
//! precision as the survey is: a table costs as much as a survey without its beams, and the map of any subset of the
//! tabulated targets T^2 multiplications per point and path.

use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::DVector;
use num_complex::{Complex32, Complex64};

use super::joint::{JointLikelihood, LEAST_LEFT, OthersNode, OthersPath};
use super::locate::{DirectLocator, Survey};
use super::moments::inner;

/// Largest number of targets whose tables are kept.
const MOST_TABLES: usize = 32;
/// A table is used for a target that has moved by so little that its likelihood changes by less than this.
const LEAST_CHANGE: f64 = 0.1;

/// Per point and path, row by row.
type ProductTable = Vec<Complex32>;

/// The maps of a frame.
#[derive(Debug)]
pub(super) struct ResidualMaps<'a> {
    locator: &'a DirectLocator,
    survey: &'a Survey,
    likelihood: JointLikelihood<'a>,
    /// Offsets of the clocks in metres of range, and the products of the atoms with data from which these are removed.
    data: Option<(Vec<f64>, ProductTable)>,
    /// Coordinates of targets, and the products of their atoms with those of the grid.
    targets: Vec<(Vec<f64>, ProductTable)>,
}

impl<'a> ResidualMaps<'a> {
    pub fn new(locator: &'a DirectLocator, survey: &'a Survey, likelihood: JointLikelihood<'a>) -> Self {
        Self { locator, survey, likelihood, data: None, targets: Vec::new() }
    }

    /// The map given the targets of a state, of which there is at least one; `others` are the same. `sharpness` is the largest
    /// information on the position of one of them, per square metre.
    pub fn map(&mut self, state: &DVector<f64>, others: &[OthersNode], sharpness: f64) -> Vec<f64> {
        let (targets, axes) = (self.likelihood.targets(state), self.likelihood.dimensions());
        let (coordinates, offsets_m) = state.as_slice().split_at(targets * axes);
        if offsets_m.is_empty() {
            self.data = None;
        } else if self.data.as_ref().is_none_or(|(known_m, _)| known_m != offsets_m) {
            self.data = Some((offsets_m.to_vec(), self.data_table(offsets_m)));
        }
        if self.targets.len() + targets > MOST_TABLES {
            self.targets.clear();
        }
        let mut used = Vec::with_capacity(targets);
        for at in coordinates.chunks(axes) {
            let moved_m2 = |known: &[f64]| known.iter().zip(at).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            let near = |(known, _): &(Vec<f64>, ProductTable)| moved_m2(known) * sharpness < LEAST_CHANGE;
            // The latest is the nearest.
            let place = self.targets.iter().rposition(near);
            used.push(place.unwrap_or_else(|| {
                self.targets.push((at.to_vec(), self.target_table(at)));
                self.targets.len() - 1
            }));
        }
        let tables: Vec<&[Complex32]> = used.iter().map(|&place| self.targets[place].1.as_slice()).collect();
        let data = self.data.as_ref().map_or(&self.survey.values.products, |(_, table)| table);
        let irs = self.locator.scene.irs_count();
        let weights = |node: &OthersNode| {
            let of_node = node.paths.iter().filter(|path| !path.is_singular());
            of_node.map(|path| (node.l * irs + path.k, PathWeights::new(path))).collect::<Vec<_>>()
        };
        let paths: Vec<(usize, PathWeights)> = others.iter().flat_map(weights).collect();
        let mut products = vec![Complex32::ZERO; targets];
        let value = |point: usize| {
            let mut sum = 0.0;
            for (path, weights) in &paths {
                let at = point * irs * irs + path;
                products.iter_mut().zip(&tables).for_each(|(product, table)| *product = table[at]);
                sum += weights.value(data[at], &products);
            }
            f64::from(sum)
        };
        (0..self.locator.grid.points()).map(value).collect()
    }

    /// Products with data from which offsets are removed.
    fn data_table(&self, offsets_m: &[f64]) -> ProductTable {
        let (grid, scene) = (&self.locator.grid, &self.locator.scene);
        self.table(|l, used, take| {
            let turn = scene.layout().phasors(offsets_m[l] / SPEED_OF_LIGHT_M_S);
            let untimed = |row: &Vec<Complex64>| row.iter().zip(&turn).map(|(y, turn)| y * turn).collect();
            let rows = self.survey.evidence.nodes[l].spectrum.iter().flatten();
            let rows: Vec<Vec<Complex64>> = rows.map(untimed).collect();
            let beamed = grid.beamed_spectra(scene, l, &rows);
            grid.each_product(l, used, |beam| &beamed[beam], take);
        })
    }

    /// Products with the atom of a target.
    fn target_table(&self, at: &[f64]) -> ProductTable {
        let (grid, scene) = (&self.locator.grid, &self.locator.scene);
        let views = scene.layout().views(&scene.layout().position_m(at), false);
        self.table(|l, used, take| {
            // Per beam: what the sensors have in common.
            let shared = |beam: &Vec<Complex64>| single(inner(&views[l].arrival[0], beam));
            let shared: Vec<Complex32> = grid.responses(l).iter().map(shared).collect();
            let streams = views.iter().enumerate().flat_map(|(k, view)| {
                let own = scene.range(k);
                let phasors = views[l].phasors[own.clone()].iter().zip(&view.phasors[own]);
                view.streams[0].iter().zip(phasors).map(|(stream, (a, b))| stream * a * b)
            });
            let row = grid.split(scene, &streams.collect::<Vec<Complex64>>());
            grid.each_product(
                l,
                used,
                |_| &row,
                |point, k, product| {
                    take(point, k, shared[grid.beam_of(l, point)] * product.conj());
                },
            );
        })
    }

    /// A table whose entries `each` gives for (node, its paths) by calls with (point, k, product).
    fn table(&self, each: impl Fn(usize, &[usize], &mut dyn FnMut(usize, usize, Complex32))) -> ProductTable {
        let irs = self.locator.scene.irs_count();
        let mut table = vec![Complex32::ZERO; self.locator.grid.points() * irs * irs];
        for (l, _) in self.likelihood.sensing() {
            let used: Vec<usize> = self.likelihood.paths(l).collect();
            each(l, &used, &mut |point, k, product| table[(point * irs + l) * irs + k] = product);
        }
        table
    }
}

fn single(value: Complex64) -> Complex32 {
    Complex32::new(value.re as f32, value.im as f32)
}

/// What turns the products of a path into its value, in single precision.
struct PathWeights {
    /// Rows of the lower triangle of W.
    whitening: Vec<Complex32>,
    explained: Vec<Complex32>,
}

impl PathWeights {
    fn new(path: &OthersPath) -> Self {
        let count = path.explained.len();
        let triangle = (0..count).flat_map(|i| (0..=i).map(move |j| (i, j)));
        Self {
            whitening: triangle.map(|place| single(path.whitening[place])).collect(),
            explained: path.explained.iter().copied().map(single).collect(),
        }
    }

    #[inline]
    fn value(&self, data: Complex32, products: &[Complex32]) -> f32 {
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
