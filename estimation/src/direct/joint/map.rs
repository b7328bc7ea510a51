//! The map of one further target over a grid, given the targets found so far.
//!
//! The present targets are projected out of the data and of every candidate atom, and the energy is divided by what is left
//! of the atom. Without present targets and with unknown clocks, the offset of each node is maximised on its own.

use std::ops::Range;

use model::Point;
use model::algebra::unit_phasor;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{Cholesky, DVector, Dyn};
use num_complex::Complex64;

use super::super::grid::RegularGrid;
use super::super::layout::View;
use super::super::moments::{Moments, beamformed, inner};
use super::state::JointLikelihood;

/// A path is left out at candidates of which less than this share is left.
const LEAST_LEFT: f64 = 0.05;

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

/// The targets found so far, seen on one path.
pub(in super::super) struct PresentPath {
    pub k: usize,
    pub factor: Option<Cholesky<Complex64, Dyn>>,
    /// Stream vectors of the targets, with delays and offset.
    pub streams: Vec<Vec<Complex64>>,
}

/// The targets found so far, seen at one node, and the data without them.
pub(in super::super) struct PresentNode {
    pub l: usize,
    pub rows: Vec<Vec<Complex64>>,
    pub arrivals: Vec<Vec<Complex64>>,
    pub paths: Vec<PresentPath>,
    /// `exp(-j w o_l)` on all subcarriers, where offsets are part of the state and there are targets.
    pub turn: Option<Vec<Complex64>>,
}

/// Value of the map at every grid point; `offsets_m[point]` are the offsets of all nodes where they are searched.
pub(in super::super) struct Map {
    pub values: Vec<f64>,
    pub offsets_m: Vec<Vec<f64>>,
}

impl JointLikelihood<'_> {
    /// The map given the targets of `state`, which may have none. `lags` are searched where the state has no target.
    pub fn map(&self, grid: &RegularGrid, state: &DVector<f64>, lags: Option<&Lags>) -> Map {
        let nodes = self.present(state);
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
    fn products(&self, node: &PresentNode, views: &[View]) -> Vec<Product> {
        let sensor = &views[node.l];
        let row = beamformed(&node.rows, &sensor.arrival[0]);
        let across: Vec<Complex64> = node.arrivals.iter().map(|a| inner(a, &sensor.arrival[0])).collect();
        let each = node.paths.iter().map(|path| {
            let (range, reflector) = (self.layout.range(path.k), &views[path.k]);
            let mut stream: Vec<Complex64> = reflector.streams[0]
                .iter()
                .zip(&sensor.phasors[range.clone()])
                .zip(&reflector.phasors[range.clone()])
                .map(|((r, a), b)| r * a * b)
                .collect();
            if let Some(turn) = &node.turn {
                stream.iter_mut().zip(&turn[range.clone()]).for_each(|(s, t)| *s *= t);
            }
            let strength: f64 = stream.iter().map(Complex64::norm_sqr).sum();
            let whole = strength * sensor.arrival[0].len() as f64;
            let taken = path.factor.as_ref().map_or(0.0, |factor| {
                let along = path.streams.iter().zip(&across).map(|(s, a)| a * inner(s, &stream));
                let along = DVector::from_iterator(across.len(), along);
                along.dotc(&factor.solve(&along)).re
            });
            let left = whole - taken;
            let left = if left > LEAST_LEFT * whole { left } else { f64::INFINITY };
            let values = stream.iter().zip(&row[range.clone()]).map(|(s, y)| s.conj() * y).collect();
            Product { values, left, range }
        });
        each.collect()
    }

    /// The nodes with the data that the targets of a state leave.
    pub fn present(&self, state: &DVector<f64>) -> Vec<PresentNode> {
        let sight = self.sight(state, false);
        let has_targets = !sight.views.is_empty();
        let each = self.sensing().map(|(l, rows)| {
            let mut left = rows.to_vec();
            let arrivals: Vec<Vec<Complex64>> =
                sight.views.iter().map(|views| views[l].arrival[0].clone()).collect();
            let mut paths = Vec::new();
            if has_targets {
                self.each_value(&sight, l, rows, |k, streams, gram, product| {
                    let factor = gram.cholesky();
                    if let Some(gains) = factor.as_ref().map(|factor| factor.solve(&product)) {
                        for ((arrival, stream), gain) in arrivals.iter().zip(&streams).zip(gains.iter()) {
                            for (row, a) in left.iter_mut().zip(arrival) {
                                let own = row[self.layout.range(k)].iter_mut().zip(stream);
                                own.for_each(|(y, s)| *y -= gain * a * s);
                            }
                        }
                    }
                    paths.push(PresentPath { k, factor, streams });
                });
            } else {
                paths.extend(self.paths(l).map(|k| PresentPath { k, factor: None, streams: Vec::new() }));
            }
            let turn = sight.turns[l].clone().filter(|_| has_targets);
            PresentNode { l, rows: left, arrivals, paths, turn }
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
            self.each_value(&sight, l, rows, |k, streams, gram, _| {
                let range: Range<usize> = self.layout.range(k);
                let products: Vec<Vec<Complex64>> = streams
                    .iter()
                    .zip(&beams)
                    .map(|(s, row)| s.iter().zip(&row[range.clone()]).map(|(s, y)| s.conj() * y).collect())
                    .collect();
                paths.extend(gram.cholesky().map(|factor| (factor, products, range)));
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

    /// Calls `take` with (k, stream vectors, Gram matrix, products with the data) of every path that node `l` senses.
    fn each_value(
        &self,
        sight: &super::state::Sight,
        l: usize,
        rows: &[Vec<Complex64>],
        mut take: impl FnMut(usize, Vec<Vec<Complex64>>, model::CMatrix, DVector<Complex64>),
    ) {
        self.each_moment(sight, l, rows, |k, moments| {
            let Moments { gram, product, streams, .. } = moments;
            take(k, streams, gram, product);
        });
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
