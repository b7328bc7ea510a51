//! The likelihood on the grid: everywhere, or where it matters to the search for one target.
//!
//! The search needs the likelihood only where it is nearly as high as the highest, and of every path and every node only its highest
//! value. So the first level of the grid is computed, and of the other points those that may matter by their bounds
//! ([`interpolation`](super::interpolation)): a point whose likelihood may exceed the limit below, all paths of a node that may be higher
//! there than anywhere before, and a path that may be. What is left out is proven not to matter, so that peaks above the limit and those
//! highest values that can make a path or node disagree are those of the whole grid to the last bit; where the likelihood was not
//! computed, its bound is stated. Table I at 40, 50 and 60 dBm: 43, 31 and 29 % of the products, of which the first level is 27 %; a
//! hall in space: 43 %. At 30 dBm it is all of them.
//!
//! Blocks are computed everywhere: their likelihood as a function of the delay is so wide that it vanishes only at 2 % of the points
//! of Table I. Delays and bearings cost nothing.

use num_complex::{Complex32, Complex64};

use super::block::block_term;
use super::coarse::{CoarseGrid, SplitRow};
use super::evidence::{Evidence, NodeEvidence, PathEvidence};
use super::likelihood::{bearing_term, cascade_delay_s, delay_term};
use super::locate::{NEARLY_AS_HIGH, NEGLIGIBLE};
use super::posterior::Hypotheses;
use super::scene::Scene;
use crate::linalg::{ComplexLanes, LANES, Lanes};

/// The posterior is also exact down to this log-likelihood ratio to the highest value: [`NEGLIGIBLE`] with noise that is stronger by a
/// tenth than reported.
const NEGLIGIBLE_ON_GRID: f64 = 1.1 * NEGLIGIBLE;

/// Values on the grid.
#[derive(Debug, Clone)]
pub(super) struct Values {
    /// Per point. Where it is at most `limit` it may be larger than the likelihood.
    pub total: Vec<f64>,
    /// No likelihood above this is missing; minus infinity where all are there.
    pub limit: f64,
    /// Per path, row by row: its highest value on the grid.
    pub highest: Vec<f64>,
    /// Per sensing node: the highest value of its paths together.
    pub highest_sensor: Vec<f64>,
    /// Per point and path, row by row: product of the spectrum with the unit atom of the point, whose square is the value; zero
    /// for a path that delivers none. Empty where not all were computed.
    pub products: Vec<Complex32>,
    /// How many products were computed.
    pub computed: usize,
}

/// What a node delivers.
struct NodeTerms {
    /// Its spectrum in all beams; empty without one.
    spectra: Vec<SplitRow>,
    /// Paths that deliver a spectrum.
    used: Vec<usize>,
    /// Per point: all other terms; empty where there are none.
    others: Vec<f64>,
}

impl NodeTerms {
    fn others(&self, point: usize) -> f64 {
        self.others.get(point).copied().unwrap_or(0.0)
    }
}

/// Values that are being computed.
struct Filling<'a> {
    grid: &'a CoarseGrid,
    nodes: Vec<NodeTerms>,
    values: Values,
    /// Per path: the last product.
    latest: Vec<ComplexLanes<f32>>,
}

impl CoarseGrid {
    /// The likelihood on the whole grid.
    pub fn values(&self, scene: &Scene, evidence: &Evidence) -> Values {
        let mut filling = Filling::new(self, scene, evidence);
        let paths = scene.irs_count().pow(2);
        filling.values.products.resize(self.points() * paths, Complex32::ZERO);
        filling.visit_all();
        filling.values
    }

    /// The likelihood where it matters to the search for one target. A highest value of a path or node is too low only where it
    /// is at most `least_highest`.
    pub fn searched_values(&self, scene: &Scene, evidence: &Evidence, least_highest: f64) -> Values {
        let mut filling = Filling::new(self, scene, evidence);
        if evidence.spectra() > 0 {
            filling.search(&norms(scene, evidence), least_highest);
        } else {
            filling.visit_all();
        }
        filling.values
    }

    /// A peak of the grid that is lower than this belongs neither to the highest peak nor to one that is nearly as high, where the
    /// highest value on the grid is `top`.
    pub fn least_peak(&self, top: f64) -> f64 {
        top - self.loss * top.abs() - NEARLY_AS_HIGH
    }

    /// Log-likelihood ratio at some points, one value for each hypothesis per point. The prior of the hypotheses is not
    /// included, so that frames can be added.
    pub fn log_likelihoods(
        &self,
        scene: &Scene,
        evidence: &Evidence,
        hypotheses: &Hypotheses,
        points: &[usize],
    ) -> Vec<f64> {
        let count = hypotheses.count();
        let mut sums = vec![0.0; count * points.len()];
        let mut places = vec![None; self.points()];
        points.iter().enumerate().for_each(|(place, &point)| places[point] = Some(place));
        for (l, node) in evidence.nodes.iter().enumerate() {
            let mut take = |point: usize, k: usize, value: f64| {
                let Some(place) = places[point] else { return };
                let views = self.views(point);
                let fitted = node.paths.get(k).is_some_and(PathEvidence::has_gain);
                let unit_snr = fitted
                    .then(|| scene.unit_snr(views[k].strength, views[l].distance_m, views[k].distance_m));
                hypotheses.add(&mut sums[place * count..(place + 1) * count], value, unit_snr);
            };
            let (spectra, used) = (self.beamed(scene, l, node), delivered(node));
            for (&point, k) in points.iter().flat_map(|point| used.iter().map(move |k| (point, *k))) {
                let product = self.product(&spectra[self.beam_of(l, point)], point, l, k);
                take(point, k, f64::from(product.norm_sqr()));
            }
            self.each_other(l, node, &mut take);
        }
        sums
    }

    /// Calls `take` with (point, k, value) for every point and term of node `l` but spectra; a bearing comes as k = K.
    fn each_other(&self, l: usize, node: &NodeEvidence, take: &mut impl FnMut(usize, usize, f64)) {
        for (k, path) in node.paths.iter().enumerate() {
            let PathEvidence::Block(expansion) = path else { continue };
            let products = self.block_products(l, k, expansion);
            for point in 0..self.points() {
                let (views, [z, turned]) = (self.views(point), products.at(point));
                let offset_s = cascade_delay_s(views[l].distance_m, views[k].distance_m) - expansion.delay_s;
                take(point, k, block_term(z, turned, views[k].width_rad_s, offset_s));
            }
        }
        let has_bearing = node.counted_bearing().is_some();
        if !has_bearing && !node.paths.iter().any(|path| matches!(path, PathEvidence::Delay { .. })) {
            return;
        }
        for point in 0..self.points() {
            let views = self.views(point);
            for (k, path) in node.paths.iter().enumerate() {
                if let Some(value) = delay_term(path, &views[l], &views[k], 0.0) {
                    take(point, k, value);
                }
            }
            if let Some(value) = bearing_term(node, &views[l]) {
                take(point, views.len(), value);
            }
        }
    }
}

impl<'a> Filling<'a> {
    /// With all terms but those of spectra.
    fn new(grid: &'a CoarseGrid, scene: &Scene, evidence: &Evidence) -> Self {
        let irs = scene.irs_count();
        let mut highest = vec![f64::NEG_INFINITY; irs * irs];
        let mut nodes = Vec::with_capacity(irs);
        for (l, node) in evidence.nodes.iter().enumerate() {
            let any =
                node.paths.iter().any(|path| !matches!(path, PathEvidence::Spectrum | PathEvidence::Missing));
            let mut others = vec![0.0; if any { grid.points() } else { 0 }];
            grid.each_other(l, node, &mut |point, k, value| {
                others[point] += value;
                if k < irs {
                    highest[l * irs + k] = highest[l * irs + k].max(value);
                }
            });
            let spectra = grid.beamed(scene, l, node);
            nodes.push(NodeTerms { spectra, used: delivered(node), others });
        }
        let values = Values {
            total: vec![0.0; grid.points()],
            limit: f64::NEG_INFINITY,
            highest,
            highest_sensor: vec![f64::NEG_INFINITY; irs],
            products: Vec::new(),
            computed: 0,
        };
        Self { grid, nodes, values, latest: vec![ComplexLanes::ZERO; grid.interpolation.groups] }
    }

    fn visit_all(&mut self) {
        (0..self.grid.points()).for_each(|point| self.visit(point));
    }

    /// Computes everything at a point.
    fn visit(&mut self, point: usize) {
        self.values.total[point] = (0..self.nodes.len()).map(|l| self.visit_node(point, l)).sum();
    }

    /// Computes the terms of a node at a point.
    fn visit_node(&mut self, point: usize, l: usize) -> f64 {
        let mut own = self.nodes[l].others(point);
        for place in 0..self.nodes[l].used.len() {
            own += self.visit_path(point, l, self.nodes[l].used[place]);
        }
        let highest = &mut self.values.highest_sensor[l];
        *highest = highest.max(own);
        own
    }

    /// Computes the term of a path with a spectrum at a point.
    fn visit_path(&mut self, point: usize, l: usize, k: usize) -> f64 {
        let path = l * self.nodes.len() + k;
        let product = self.grid.product(&self.nodes[l].spectra[self.grid.beam_of(l, point)], point, l, k);
        if let Some(kept) = self.values.products.get_mut(point * self.nodes.len().pow(2) + path) {
            *kept = product;
        }
        let latest = &mut self.latest[path / LANES];
        (latest.re.0[path % LANES], latest.im.0[path % LANES]) = (product.re, product.im);
        self.values.computed += 1;
        let value = f64::from(product.norm_sqr());
        let highest = &mut self.values.highest[path];
        *highest = highest.max(value);
        value
    }

    /// Computes the first level, and what may matter of the rest; `norms` are those of the spectra of all paths.
    fn search(&mut self, norms: &[Lanes<f32>], least_highest: f64) {
        let (between, irs) = (&self.grid.interpolation, self.nodes.len());
        let mut products = Vec::with_capacity(between.first.len() * between.groups);
        let mut top = f64::NEG_INFINITY;
        for &point in &between.first {
            self.visit(point);
            top = top.max(self.values.total[point]);
            products.extend_from_slice(&self.latest);
        }
        let bounds = between.bounds(&products, norms);
        // No path of a node has a lower highest value.
        let lowest = |l: usize| {
            let highest = self.nodes[l].used.iter().map(|k| self.values.highest[l * irs + k]);
            highest.fold(f64::INFINITY, f64::min).max(least_highest)
        };
        let lowest: Vec<f64> = (0..irs).map(lowest).collect();
        let (mut row, mut most_of_node) = (Vec::with_capacity(norms.len() * LANES), vec![0.0; irs]);
        for (bounds, &point) in bounds.chunks_exact(between.groups).zip(&between.rest) {
            row.clear();
            bounds.iter().for_each(|lanes| row.extend_from_slice(&lanes.0));
            let own = row.chunks_exact(irs);
            for ((most, own), node) in most_of_node.iter_mut().zip(own).zip(&self.nodes) {
                *most = node.others(point) + f64::from(own.iter().sum::<f32>());
            }
            let most = most_of_node.iter().sum();
            if may_exceed(most, self.limit(top)) {
                self.visit(point);
                top = top.max(self.values.total[point]);
                continue;
            }
            self.values.total[point] = most;
            for (l, most) in most_of_node.iter().enumerate() {
                // Other terms may be negative.
                let others = self.nodes[l].others(point);
                let least = if self.nodes[l].others.is_empty() { least_highest } else { f64::NEG_INFINITY };
                if may_exceed(*most, self.values.highest_sensor[l].max(least)) {
                    self.visit_node(point, l);
                } else if may_exceed(most - others, lowest[l]) {
                    self.visit_paths(point, l, &row[l * irs..(l + 1) * irs], least_highest);
                }
            }
        }
        self.values.limit = self.limit(top);
    }

    /// Computes the paths of a node that may be higher at a point than anywhere before, by their bounds.
    fn visit_paths(&mut self, point: usize, l: usize, bounds: &[f32], least_highest: f64) {
        for place in 0..self.nodes[l].used.len() {
            let k = self.nodes[l].used[place];
            let highest = self.values.highest[l * bounds.len() + k];
            if may_exceed(bounds[k].into(), highest.max(least_highest)) {
                self.visit_path(point, l, k);
            }
        }
    }

    /// What is at most this does not matter where the highest value is `top` or higher.
    fn limit(&self, top: f64) -> f64 {
        self.grid.least_peak(top).min(top - NEGLIGIBLE_ON_GRID)
    }
}

/// Whether a value may be above another, given its bound, which is not a number where numbers overflowed.
fn may_exceed(bound: f64, value: f64) -> bool {
    bound > value || bound.is_nan()
}

/// Paths of a node that deliver a spectrum.
fn delivered(node: &NodeEvidence) -> Vec<usize> {
    (0..node.paths.len()).filter(|&k| node.paths[k] == PathEvidence::Spectrum).collect()
}

/// Norms of the spectra of all paths; zero for a path that delivers none.
fn norms(scene: &Scene, evidence: &Evidence) -> Vec<Lanes<f32>> {
    let irs = scene.irs_count();
    let mut norms = vec![Lanes::ZERO; (irs * irs).div_ceil(LANES)];
    for (l, node) in evidence.nodes.iter().enumerate() {
        for k in delivered(node) {
            let rows = node.spectrum.iter().flatten();
            let energy: f64 = rows.flat_map(|row| &row[scene.range(k)]).map(Complex64::norm_sqr).sum();
            norms[(l * irs + k) / LANES].0[(l * irs + k) % LANES] = energy.sqrt() as f32;
        }
    }
    norms
}

#[cfg(test)]
mod tests;
