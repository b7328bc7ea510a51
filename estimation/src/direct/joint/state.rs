//! The likelihood as a function of the joint state.

use model::Point;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::DVector;
use num_complex::Complex64;

use super::super::evidence::{Evidence, PathEvidence};
use super::super::layout::{Layout, View};
use super::super::moments::{Moments, NodeProducts, NodeSight, PathMemory};
use crate::ascent::Expansion;

/// Spectra of several targets, with or without unknown clock offsets.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct JointLikelihood<'a> {
    pub layout: &'a Layout,
    pub evidence: &'a Evidence,
    /// Whether clock offsets are part of the state.
    pub offsets: bool,
}

/// The sensing nodes with their targets' views, at one state.
pub(in super::super) struct Sight {
    /// Per target, per IRS.
    pub views: Vec<Vec<View>>,
    /// Per node: `exp(-j w o_l)` on all subcarriers, where offsets are part of the state.
    pub turns: Vec<Option<Vec<Complex64>>>,
}

impl JointLikelihood<'_> {
    pub fn dimensions(&self) -> usize {
        self.layout.axes().len()
    }

    pub fn nodes(&self) -> usize {
        self.layout.irs().len()
    }

    /// Nodes that sense something.
    pub fn sensing(&self) -> impl Iterator<Item = (usize, &[Vec<Complex64>])> {
        self.evidence.nodes.iter().enumerate().filter_map(|(l, node)| {
            let used = node.paths.contains(&PathEvidence::Spectrum);
            node.spectrum.as_deref().filter(|_| used).map(|rows| (l, rows))
        })
    }

    /// Paths from which node `l` has a spectrum.
    pub fn paths(&self, l: usize) -> impl Iterator<Item = usize> {
        let paths = self.evidence.nodes[l].paths.iter().enumerate();
        paths.filter(|(_, path)| **path == PathEvidence::Spectrum).map(|(k, _)| k)
    }

    /// Number of targets of a state.
    pub fn targets(&self, state: &DVector<f64>) -> usize {
        (state.len() - self.offset_count()) / self.dimensions()
    }

    /// Offsets of a state: one per node.
    pub fn offset_count(&self) -> usize {
        if self.offsets { self.nodes() } else { 0 }
    }

    pub fn positions_m(&self, state: &DVector<f64>) -> Vec<Point> {
        let dimensions = self.dimensions();
        let coordinates = state.as_slice()[..self.targets(state) * dimensions].chunks(dimensions);
        coordinates.map(|own| self.layout.position_m(own)).collect()
    }

    /// A state without one of its targets.
    pub fn without(&self, state: &DVector<f64>, target: usize) -> DVector<f64> {
        state.clone().remove_rows(target * self.dimensions(), self.dimensions())
    }

    /// A state with one target more, after the others.
    pub fn with(&self, state: &DVector<f64>, target: &DVector<f64>) -> DVector<f64> {
        let (coordinates, offsets_m) = state.as_slice().split_at(self.targets(state) * self.dimensions());
        let all = coordinates.iter().chain(target.iter()).chain(offsets_m).copied();
        DVector::from_iterator(state.len() + target.len(), all)
    }

    /// Clock offset of node `l` in metres of range.
    pub fn offset_m(&self, state: &DVector<f64>, l: usize) -> f64 {
        if self.offsets { state[state.len() - self.nodes() + l] } else { 0.0 }
    }

    pub fn sight(&self, state: &DVector<f64>, expand: bool) -> Sight {
        let views = self.positions_m(state).iter().map(|p| self.layout.views(p, expand)).collect();
        let turn = |l: usize| {
            let delay_s = self.offset_m(state, l) / SPEED_OF_LIGHT_M_S;
            self.offsets.then(|| self.layout.phasors(-delay_s))
        };
        Sight { views, turns: (0..self.nodes()).map(turn).collect() }
    }

    /// Value, gradient and information at a state.
    pub fn expand(&self, state: &DVector<f64>) -> Expansion {
        let sight = self.sight(state, true);
        let (targets, dimensions) = (sight.views.len(), self.dimensions());
        let (mut total, mut own) = (Expansion::zeros(state.len()), Expansion::default());
        for (l, rows) in self.sensing() {
            let mut places = Vec::with_capacity(targets * (dimensions + 1));
            for t in 0..targets {
                places.extend((0..dimensions).map(|i| t * dimensions + i));
                places.extend(self.offsets.then_some(targets * dimensions + l));
            }
            self.each_moment(&sight, l, rows, |_, moments, memory| {
                moments.expand(memory, &mut own);
                total.add(&own, &places);
            });
        }
        // The offset of a node without spectra stays where it is.
        for l in (0..self.offset_count()).filter(|&l| self.paths(l).next().is_none()) {
            total.information[(targets * dimensions + l, targets * dimensions + l)] = 1.0;
        }
        total
    }

    /// Calls `take` with the moments of every path that node `l` senses, and with memory to expand them.
    pub fn each_moment(
        &self,
        sight: &Sight,
        l: usize,
        rows: &[Vec<Complex64>],
        mut take: impl FnMut(usize, &Moments, &mut PathMemory),
    ) {
        let sensing: Vec<&View> = sight.views.iter().map(|views| &views[l]).collect();
        let (mut products, mut memory) = (NodeProducts::default(), PathMemory::default());
        let node = NodeSight::new(Some(rows), &sensing, &mut products);
        let mut moments = Moments::default();
        for k in self.paths(l) {
            let reflecting: Vec<&View> = sight.views.iter().map(|views| &views[k]).collect();
            let turn = sight.turns[l].as_ref().map(|turn| &turn[self.layout.range(k)]);
            moments.set(self.layout, k, &node, &reflecting, turn, &mut memory);
            take(k, &moments, &mut memory);
        }
    }
}
