//! The likelihood of one target more on the coarse grid, given others, from tables that are made once per frame and target.
//!
//! With the unit atom m of a grid point, the atoms of the others as columns of A and W of [`joint`](super::joint), a path adds
//! `|m^H Y - u^H v|^2 / (1 - |u|^2)`, `u = W A^H m`, `v = W A^H Y`. The products `m^H Y` and `A^H m` are tabulated, in single
//! precision as the survey is: a table costs as much as a survey without its beams, and the map of any subset of the
//! tabulated targets T^2 multiplications per point and path.

use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::DVector;
use num_complex::{Complex32, Complex64};

use super::joint::{JointLikelihood, LEAST_LEFT, OthersNode};
use super::locate::DirectLocator;
use super::moments::inner;
use super::survey::Survey;

/// Largest number of targets whose tables are kept.
const MOST_TABLES: usize = 32;
/// A table is used for a target that has moved by so little that its likelihood changes by less than this: far less than what a
/// further target needs.
const LEAST_CHANGE: f64 = 1.0;

/// Real and imaginary parts of the products, per path and point, row by row.
type ProductTable = (Vec<f32>, Vec<f32>);

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
        let tables: Vec<&ProductTable> = used.iter().map(|&place| &self.targets[place].1).collect();
        let points = self.locator.grid.points();
        let irs = self.locator.scene.irs_count();
        let mut values = vec![0f32; points];
        let mut sums = ResidualSums::new(points);
        for node in others {
            for path in node.paths.iter().filter(|path| !path.is_singular()) {
                let place = node.l * irs + path.k;
                match &self.data {
                    Some((_, table)) => sums.begin(part(table, place, points)),
                    None => {
                        let products = &self.locator.all_values(self.survey).products;
                        sums.begin_with(products[place..].iter().step_by(irs * irs));
                    }
                }
                for (i, explained) in path.explained.iter().enumerate() {
                    sums.along.0.fill(0.0);
                    sums.along.1.fill(0.0);
                    for (j, table) in tables[..=i].iter().enumerate() {
                        add_scaled(
                            &mut sums.along,
                            part(table, place, points),
                            single(path.whitening[(i, j)]),
                        );
                    }
                    sums.take(single(*explained));
                }
                sums.add_to(&mut values);
            }
        }
        values.into_iter().map(f64::from).collect()
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
        let (irs, points) = (self.locator.scene.irs_count(), self.locator.grid.points());
        let mut table = (vec![0.0; points * irs * irs], vec![0.0; points * irs * irs]);
        for (l, _) in self.likelihood.sensing() {
            let used: Vec<usize> = self.likelihood.paths(l).collect();
            each(l, &used, &mut |point, k, product| {
                let at = (l * irs + k) * points + point;
                (table.0[at], table.1[at]) = (product.re, product.im);
            });
        }
        table
    }
}

fn single(value: Complex64) -> Complex32 {
    Complex32::new(value.re as f32, value.im as f32)
}

/// The products of one path.
fn part(table: &ProductTable, path: usize, points: usize) -> (&[f32], &[f32]) {
    let own = path * points..(path + 1) * points;
    (&table.0[own.clone()], &table.1[own])
}

/// `sums += values * factor`.
fn add_scaled(sums: &mut ProductTable, (re, im): (&[f32], &[f32]), factor: Complex32) {
    let sums = sums.0.iter_mut().zip(&mut sums.1);
    for ((sum_re, sum_im), (re, im)) in sums.zip(re.iter().zip(im)) {
        *sum_re += factor.re * re - factor.im * im;
        *sum_im += factor.re * im + factor.im * re;
    }
}

/// The sums of one path at all points.
struct ResidualSums {
    /// `m^H Y` less what the others explain of it.
    residual: ProductTable,
    /// Share of the atom that is left.
    left: Vec<f32>,
    /// One component of u.
    along: ProductTable,
}

impl ResidualSums {
    fn new(points: usize) -> Self {
        let zeros = || vec![0.0; points];
        Self { residual: (zeros(), zeros()), left: zeros(), along: (zeros(), zeros()) }
    }

    fn begin(&mut self, (re, im): (&[f32], &[f32])) {
        self.residual.0.copy_from_slice(re);
        self.residual.1.copy_from_slice(im);
        self.left.fill(1.0);
    }

    fn begin_with<'a>(&mut self, products: impl Iterator<Item = &'a Complex32>) {
        let residual = self.residual.0.iter_mut().zip(&mut self.residual.1);
        residual.zip(products).for_each(|((re, im), product)| (*re, *im) = (product.re, product.im));
        self.left.fill(1.0);
    }

    /// Takes out what the present component of u explains.
    fn take(&mut self, explained: Complex32) {
        let residual = self.residual.0.iter_mut().zip(&mut self.residual.1).zip(&mut self.left);
        for (((re, im), left), (u_re, u_im)) in residual.zip(self.along.0.iter().zip(&self.along.1)) {
            *re -= u_re * explained.re + u_im * explained.im;
            *im -= u_re * explained.im - u_im * explained.re;
            *left -= u_re * u_re + u_im * u_im;
        }
    }

    fn add_to(&self, values: &mut [f32]) {
        let residual = self.residual.0.iter().zip(&self.residual.1).zip(&self.left);
        for (value, ((re, im), left)) in values.iter_mut().zip(residual) {
            let energy = (re * re + im * im) / left;
            *value += if *left > LEAST_LEFT as f32 { energy } else { 0.0 };
        }
    }
}
