//! The map of one further target over a grid, given the targets found so far.
//!
//! The present targets are projected out of the data and of every candidate atom, and the energy is divided by what is left
//! of the atom. Without present targets and with unknown clocks, the offset of each node is maximised on its own.

use std::ops::Range;

use model::Point;
use model::algebra::unit_phasor;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{Cholesky, DVector};
use num_complex::Complex64;

use super::super::grid::RegularGrid;
use super::super::layout::View;
use super::super::moments::{beamformed, inner};
use super::others::OthersNode;
use super::state::JointLikelihood;

/// A path is left out at candidates of which less than this share is left.
pub(in super::super) const LEAST_LEFT: f64 = 0.05;

/// Clock offsets that are tried, with their phasors `exp(+j w o)` on all subcarriers.
#[derive(Debug, Clone)]
pub(in super::super) struct Lags {
    pub offsets_m: Vec<f64>,
    phasors: Vec<Vec<Complex64>>,
}

impl Lags {
    pub fn new(frequencies_rad_s: &[f64], window_s: f64, step_s: f64) -> Self {
        let count = (window_s / step_s).ceil().max(1.0) as i64;
        let times = (-count..=count).map(|i| window_s * i as f64 / count as f64);
        let phasors = |time_s: f64| frequencies_rad_s.iter().map(|w| unit_phasor(w * time_s)).collect();
        Self {
            phasors: times.clone().map(phasors).collect(),
            offsets_m: times.map(|time_s| time_s * SPEED_OF_LIGHT_M_S).collect(),
        }
    }

    /// The offset that maximises `energy` of the phasors, and that energy.
    pub fn best(&self, mut energy: impl FnMut(&[Complex64]) -> f64) -> (f64, f64) {
        let each =
            self.offsets_m.iter().zip(&self.phasors).map(|(offset, phasors)| (*offset, energy(phasors)));
        each.fold((0.0, f64::NEG_INFINITY), |best, tried| if tried.1 > best.1 { tried } else { best })
    }
}

/// Value of the map at every grid point; `offsets_m[point]` are the offsets of all nodes where they are searched.
pub(in super::super) struct Map {
    pub values: Vec<f64>,
    pub offsets_m: Vec<Vec<f64>>,
}

impl JointLikelihood<'_> {
    /// The map given the targets of `state`, which may have none. `lags` are searched where the state has no target.
    pub fn map(&self, grid: &RegularGrid, state: &DVector<f64>, lags: Option<&Lags>) -> Map {
        let nodes = self.others(state);
        let lags = lags.filter(|_| self.targets(state) == 0);
        let mut views = vec![View::default(); self.nodes()];
        let mut map = Map { values: Vec::with_capacity(grid.points()), offsets_m: Vec::new() };
        for point in 0..grid.points() {
            let position_m = self.layout.position_m(&grid.coordinates(point));
            self.layout.look_all(&position_m, false, &mut views);
            let mut offsets_m = vec![0.0; self.nodes()];
            let mut value = 0.0;
            for node in &nodes {
                let products = self.products(node, &views);
                match lags {
                    None => value += products.iter().map(|path| path.energy(|s| s.iter().sum())).sum::<f64>(),
                    Some(lags) => {
                        let (offset_m, energy) = lags.best(|phasors| {
                            let turned = |path: &Product| {
                                let own = &phasors[path.range.clone()];
                                path.energy(|s| s.iter().zip(own).map(|(s, p)| s * p).sum())
                            };
                            products.iter().map(turned).sum()
                        });
                        value += energy;
                        offsets_m[node.l] = offset_m;
                    }
                }
            }
            // At the centre of an IRS there is no likelihood.
            map.values.push(if value.is_finite() { value } else { f64::NEG_INFINITY });
            if lags.is_some() {
                map.offsets_m.push(offsets_m);
            }
        }
        map
    }

    /// Per path of a node: the products whose sum is the inner product of candidate and residual, and what is left of it.
    fn products(&self, node: &OthersNode, views: &[View]) -> Vec<Product> {
        let sensor = &views[node.l];
        let row = beamformed(&node.rows, &sensor.arrival[0]);
        let across: Vec<Complex64> = node.arrivals.iter().map(|a| inner(a, &sensor.arrival[0])).collect();
        let each = node.paths.iter().map(|path| {
            let (range, reflector) = (self.layout.range(path.k), &views[path.k]);
            let stream: Vec<Complex64> = reflector.streams[0]
                .iter()
                .zip(&sensor.phasors[range.clone()])
                .zip(&reflector.phasors[range.clone()])
                .map(|((r, a), b)| r * a * b)
                .collect();
            let strength: f64 = stream.iter().map(Complex64::norm_sqr).sum();
            let whole = strength * sensor.arrival[0].len() as f64;
            let along = path.streams.iter().zip(&across).map(|(s, a)| a * inner(s, &stream));
            let along = DVector::from_iterator(across.len(), along);
            let left = whole - (&path.whitening * along).norm_squared();
            let left = if left > LEAST_LEFT * whole { left } else { f64::INFINITY };
            let values = stream.iter().zip(&row[range.clone()]).map(|(s, y)| s.conj() * y).collect();
            Product { values, left, range }
        });
        each.collect()
    }

    /// The best offset of every node for the targets of a state.
    pub fn retimed(&self, state: &DVector<f64>, lags: &Lags) -> DVector<f64> {
        let mut state = state.clone();
        let first = state.len() - self.offset_count();
        for l in 0..self.offset_count() {
            state[first + l] = 0.0;
        }
        let sight = self.sight(&state, false);
        for (l, rows) in self.sensing() {
            let mut paths = Vec::new();
            let beams: Vec<Vec<Complex64>> =
                sight.views.iter().map(|views| beamformed(rows, &views[l].arrival[0])).collect();
            self.each_moment(&sight, l, rows, |k, moments, memory| {
                let range: Range<usize> = self.layout.range(k);
                let products: Vec<Vec<Complex64>> = memory
                    .streams
                    .iter()
                    .zip(&beams)
                    .map(|(s, row)| s.iter().zip(&row[range.clone()]).map(|(s, y)| s.conj() * y).collect())
                    .collect();
                paths.extend(moments.gram.clone().cholesky().map(|factor| (factor, products, range)));
            });
            let (offset_m, _) = lags.best(|phasors| {
                let energy =
                    |(factor, products, range): &(Cholesky<_, _>, Vec<Vec<Complex64>>, Range<usize>)| {
                        let own = &phasors[range.clone()];
                        let sums = products
                            .iter()
                            .map(|values| values.iter().zip(own).map(|(v, p)| v * p).sum::<Complex64>());
                        let product = DVector::from_iterator(products.len(), sums);
                        product.dotc(&factor.solve(&product)).re
                    };
                paths.iter().map(energy).sum()
            });
            state[first + l] = offset_m;
        }
        state
    }
}

/// Products of a candidate's conjugate stream with the beamformed residual of a path.
struct Product {
    values: Vec<Complex64>,
    left: f64,
    range: Range<usize>,
}

impl Product {
    fn energy(&self, sum: impl FnOnce(&[Complex64]) -> Complex64) -> f64 {
        sum(&self.values).norm_sqr() / self.left
    }
}

/// Whether a point lies in a box.
pub(super) fn inside(point: &Point, min_m: &Point, max_m: &Point) -> bool {
    (0..3).all(|axis| (min_m[axis]..=max_m[axis]).contains(&point[axis]))
}
