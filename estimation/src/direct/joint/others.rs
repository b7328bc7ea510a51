//! One target beside others that stay where they are.
//!
//! With the atoms of the others as columns of A, `E = A^H A = L L^H` and `W = L^-1`, the projector onto what they leave is
//! `I - A W^H W A^H`. It is applied to the data once; then the likelihood of one target more is that of a single target whose
//! atom and derivatives have lost their products with A ([`Moments::set_beside`]). What the likelihood loses without one of the targets
//! is `|alpha_t|^2 / (E^-1)_tt`, its gain alpha fitted together with the others.

use model::{CMatrix, Point};
use nalgebra::DVector;
use num_complex::Complex64;

use super::super::layout::View;
use super::super::moments::{Moments, NodeProducts, NodeSight, PathMemory, inner};
use super::state::JointLikelihood;
use crate::ascent::Expansion;

/// Some targets, seen on one path.
pub(in super::super) struct OthersPath {
    pub k: usize,
    /// Stream vectors of the targets with their delays, without the offset of the clock.
    pub streams: Vec<Vec<Complex64>>,
    /// W, zero where their atoms are not independent.
    pub whitening: CMatrix,
    /// `W A^H Y`.
    pub explained: DVector<Complex64>,
}

/// Some targets, seen at one node, and the data without them.
pub(in super::super) struct OthersNode {
    pub l: usize,
    /// The data that the targets leave, the offset of the clock removed.
    pub rows: Vec<Vec<Complex64>>,
    /// Responses of the sensors to the targets.
    pub arrivals: Vec<Vec<Complex64>>,
    pub paths: Vec<OthersPath>,
}

impl OthersPath {
    /// Whether the atoms of the targets are not independent: the path then says nothing about a further one.
    pub fn is_singular(&self) -> bool {
        self.whitening.get((0, 0)).is_some_and(|first| first.re == 0.0)
    }
}

impl JointLikelihood<'_> {
    /// The targets of a state, which may have none, node by node.
    pub fn others(&self, state: &DVector<f64>) -> Vec<OthersNode> {
        let sight = self.sight(state, false);
        let count = sight.views.len();
        let each = self.sensing().map(|(l, rows)| {
            let mut left = rows.to_vec();
            if let Some(turn) = &sight.turns[l] {
                for row in &mut left {
                    row.iter_mut().zip(turn).for_each(|(y, turn)| *y *= turn.conj());
                }
            }
            let sensing: Vec<&View> = sight.views.iter().map(|views| &views[l]).collect();
            let arrivals: Vec<Vec<Complex64>> = sensing.iter().map(|view| view.arrival[0].clone()).collect();
            if count == 0 {
                let path = |k: usize| OthersPath {
                    k,
                    streams: Vec::new(),
                    whitening: CMatrix::zeros(0, 0),
                    explained: DVector::zeros(0),
                };
                return OthersNode { l, rows: left, arrivals, paths: self.paths(l).map(path).collect() };
            }
            let whole = left.clone();
            let mut products = NodeProducts::default();
            let node = NodeSight::new(Some(&whole), &sensing, &mut products);
            let path = |k: usize| {
                let reflecting: Vec<&View> = sight.views.iter().map(|views| &views[k]).collect();
                let (mut moments, mut memory) = (Moments::default(), PathMemory::default());
                moments.set(self.layout, k, &node, &reflecting, None, &mut memory);
                let (Moments { gram, product, .. }, streams) = (moments, memory.streams);
                let factor = gram.cholesky().map(|factor| factor.unpack());
                let whitening = factor
                    .and_then(|lower| lower.solve_lower_triangular(&CMatrix::identity(count, count)))
                    .unwrap_or_else(|| CMatrix::zeros(count, count));
                let explained = &whitening * product;
                let gains = whitening.ad_mul(&explained);
                for ((arrival, stream), gain) in arrivals.iter().zip(&streams).zip(gains.iter()) {
                    for (row, a) in left.iter_mut().zip(arrival) {
                        let factor = gain * a;
                        let own = row[self.layout.range(k)].iter_mut().zip(stream);
                        own.for_each(|(y, s)| *y -= factor * s);
                    }
                }
                OthersPath { k, streams, whitening, explained }
            };
            let paths = self.paths(l).map(path).collect();
            OthersNode { l, rows: left, arrivals, paths }
        });
        each.collect()
    }

    /// Calls `take` with (l, k, moments and memory to expand them, share of the atom that is left) of every path for a target beside others, seen with
    /// these views.
    pub fn each_beside(
        &self,
        others: &[OthersNode],
        views: &[View],
        mut take: impl FnMut(usize, usize, (&Moments, &mut PathMemory), f64),
    ) {
        let (mut products, mut memory) = (NodeProducts::default(), PathMemory::default());
        let mut moments = Moments::default();
        for node in others {
            let sensor = &views[node.l];
            let sensing = [sensor];
            let sight = NodeSight::new(Some(&node.rows), &sensing, &mut products);
            let responses =
                |own: &Vec<Complex64>| sensor.arrival.iter().map(|arrival| inner(own, arrival)).collect();
            let across: Vec<Vec<Complex64>> = node.arrivals.iter().map(responses).collect();
            for path in node.paths.iter().filter(|path| !path.is_singular()) {
                let reflecting = &views[path.k];
                let left = moments.set_beside(self.layout, &sight, reflecting, &across, path, &mut memory);
                take(node.l, path.k, (&moments, &mut memory), left);
            }
        }
    }

    /// Value, gradient and information of one target beside others.
    pub fn expand_beside(&self, others: &[OthersNode], position_m: &Point) -> Expansion {
        let views = self.layout.views(position_m, true);
        let (mut total, mut own) = (Expansion::zeros(self.dimensions()), Expansion::default());
        self.each_beside(others, &views, |_, _, (moments, memory), _| {
            moments.expand(memory, &mut own);
            total += &own;
        });
        total
    }
}

/// What the likelihood loses without each of some targets, the others staying where they are.
pub(in super::super) fn losses(nodes: &[OthersNode]) -> Vec<f64> {
    let count = nodes.first().map_or(0, |node| node.arrivals.len());
    let mut losses = vec![0.0; count];
    for path in nodes.iter().flat_map(|node| &node.paths) {
        let gains = path.whitening.ad_mul(&path.explained);
        for (t, loss) in losses.iter_mut().enumerate() {
            let inverse = path.whitening.column(t).norm_squared();
            *loss += if inverse > 0.0 { gains[t].norm_sqr() / inverse } else { 0.0 };
        }
    }
    losses
}
