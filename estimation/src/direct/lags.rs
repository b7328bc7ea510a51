//! The search over the offsets of one clock, at every point of the coarse grid.
//!
//! The terms of a node at a point are functions of the offset o that is removed from its clock. That of a path whose spectrum is
//! known is `|sum_n u_n exp(j w_n o)|^2`, u the products of the beamformed spectrum with the conjugate atom of the point: for all
//! lags and many points together a product of real matrices in single precision. A block has a peak of known width, outside of
//! which it adds nothing.

use nalgebra::DMatrix;

use super::block::{block_reach, block_term};
use super::coarse::{CoarseGrid, SplitRow};
use super::evidence::{NodeEvidence, PathEvidence};
use super::likelihood::{bearing_term, cascade_delay_s, delay_term};
use super::scene::Scene;

/// Points whose values are computed together: they stay in the cache.
const POINTS_AT_ONCE: usize = 64;

/// A lag with the logarithm of its prior density.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lag {
    pub offset_s: f64,
    pub log_prior: f64,
}

/// The values of some points over all lags, point by point.
struct LagValues<'a> {
    lags: &'a [Lag],
    values: Vec<f32>,
}

impl LagValues<'_> {
    fn of_point(&mut self, place: usize) -> &mut [f32] {
        let count = self.lags.len();
        &mut self.values[place * count..(place + 1) * count]
    }
}

impl CoarseGrid {
    /// Per point: the largest sum of the terms of node `l` and of the prior over these lags, which ascend, and the lag where it
    /// is, in seconds.
    pub fn best_lags(&self, scene: &Scene, l: usize, node: &NodeEvidence, lags: &[Lag]) -> Vec<(f64, f64)> {
        let beamed = self.beamed(scene, l, node);
        let block_products = |(k, path): (usize, &PathEvidence)| match path {
            PathEvidence::Block(expansion) => Some(self.block_products(l, k, expansion)),
            _ => None,
        };
        let products: Vec<_> = node.paths.iter().enumerate().map(block_products).collect();
        let turns: Vec<DMatrix<f32>> = (0..scene.irs_count()).map(|k| turns(scene, k, lags, node)).collect();
        let priors: Vec<f32> = lags.iter().map(|lag| lag.log_prior as f32).collect();
        let mut best = Vec::with_capacity(self.points());
        for first in (0..self.points()).step_by(POINTS_AT_ONCE) {
            let points = first..(first + POINTS_AT_ONCE).min(self.points());
            let mut all = LagValues { lags, values: priors.repeat(points.len()) };
            for (k, path) in node.paths.iter().enumerate() {
                match path {
                    PathEvidence::Missing => {}
                    PathEvidence::Spectrum => {
                        self.add_spectrum(scene, [l, k], &beamed, &turns[k], points.clone(), &mut all);
                    }
                    PathEvidence::Block(expansion) => {
                        let products = products[k].as_ref();
                        for (place, point) in points.clone().enumerate() {
                            let views = self.views(point);
                            let Some([z, turned]) = products.map(|products| products.at(point)) else {
                                continue;
                            };
                            let (sensor_m, reflector_m) = (views[l].distance_m, views[k].distance_m);
                            let at_s = cascade_delay_s(sensor_m, reflector_m) - expansion.delay_s;
                            let width = views[k].width_rad_s;
                            let within = block_reach(width);
                            let from = lags.partition_point(|lag| at_s + lag.offset_s < -within);
                            let to = lags.partition_point(|lag| at_s + lag.offset_s <= within);
                            let values = all.of_point(place);
                            for (value, lag) in values[from..to].iter_mut().zip(&lags[from..to]) {
                                *value += block_term(z, turned, width, at_s + lag.offset_s) as f32;
                            }
                        }
                    }
                    PathEvidence::Delay { .. } => {
                        for (place, point) in points.clone().enumerate() {
                            let views = self.views(point);
                            for (value, lag) in all.of_point(place).iter_mut().zip(lags) {
                                let term = delay_term(path, &views[l], &views[k], lag.offset_s);
                                *value += term.unwrap_or(0.0) as f32;
                            }
                        }
                    }
                }
            }
            for (place, point) in points.enumerate() {
                // A bearing does not depend on the clock.
                let bearing = bearing_term(node, &self.views(point)[l]).unwrap_or(0.0);
                let values = all.of_point(place).iter().zip(lags);
                let highest = values.max_by(|a, b| a.0.total_cmp(b.0));
                let (value, offset_s) = highest.map_or((0.0, 0.0), |(value, lag)| (*value, lag.offset_s));
                best.push((f64::from(value) + bearing, offset_s));
            }
        }
        best
    }

    /// Adds the energies of a path that delivers its spectrum.
    fn add_spectrum(
        &self,
        scene: &Scene,
        [l, k]: [usize; 2],
        beamed: &[SplitRow],
        turns: &DMatrix<f32>,
        points: std::ops::Range<usize>,
        all: &mut LagValues,
    ) {
        let own = scene.range(k);
        let mut products = DMatrix::<f32>::zeros(2 * own.len(), points.len());
        for (mut column, point) in products.column_iter_mut().zip(points) {
            let (re, im) = &beamed[self.beam_of(l, point)];
            let (w_re, w_im) = self.atom(point, l);
            for (i, n) in self.slot(k).take(own.len()).enumerate() {
                column[i] = re[n] * w_re[n] - im[n] * w_im[n];
                column[own.len() + i] = re[n] * w_im[n] + im[n] * w_re[n];
            }
        }
        let sums = turns * products;
        let count = all.lags.len();
        for (place, column) in sums.column_iter().enumerate() {
            let (re, im) = column.as_slice().split_at(count);
            for ((value, re), im) in all.of_point(place).iter_mut().zip(re).zip(im) {
                *value += re * re + im * im;
            }
        }
    }
}

/// What turns real and imaginary parts of products over the subcarriers of IRS `k` into real and imaginary parts of their sums at
/// every lag; empty where the path delivers no spectrum.
fn turns(scene: &Scene, k: usize, lags: &[Lag], node: &NodeEvidence) -> DMatrix<f32> {
    if node.paths[k] != PathEvidence::Spectrum {
        return DMatrix::zeros(0, 0);
    }
    let (own, count) = (scene.range(k), lags.len());
    let mut turns = DMatrix::zeros(2 * count, 2 * own.len());
    for (row, lag) in lags.iter().enumerate() {
        for (column, phasor) in scene.layout().phasors(lag.offset_s)[own.clone()].iter().enumerate() {
            let (re, im) = (phasor.re as f32, phasor.im as f32);
            turns[(row, column)] = re;
            turns[(row, own.len() + column)] = -im;
            turns[(count + row, column)] = im;
            turns[(count + row, own.len() + column)] = re;
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::super::test_scene::{KINDS, TARGET_M, TestScene};
    use super::*;

    /// The best lag is the one at which the evidence, shifted by it, has the highest value on the grid.
    #[test]
    fn best_lags_are_those_of_shifted_evidence() {
        let scene = TestScene::new(50.0);
        let (grid, known) = (&scene.locator.grid, &scene.locator.scene);
        let lag = |i: i32| Lag { offset_s: 4e-9 * f64::from(i), log_prior: -0.2 * f64::from(i * i) };
        let lags: Vec<Lag> = (-3..7).map(lag).collect();
        for kind in KINDS {
            let evidence = scene.evidence(0, TARGET_M, |_, _| kind);
            for (l, node) in evidence.nodes.iter().enumerate() {
                let mut alone = scene.locator.evidence();
                let mut expected = vec![(f64::NEG_INFINITY, 0.0); grid.points()];
                for lag in &lags {
                    alone.nodes[l] = node.clone();
                    alone.nodes[l].retime(lag.offset_s, &known.layout().phasors(lag.offset_s));
                    for (best, value) in expected.iter_mut().zip(grid.values(known, &alone).total) {
                        let sum = value + lag.log_prior;
                        *best = if sum > best.0 { (sum, lag.offset_s) } else { *best };
                    }
                }
                let found = grid.best_lags(known, l, node, &lags);
                let mut agreeing = 0;
                for (found, expected) in found.iter().zip(&expected) {
                    // In single precision.
                    assert!((found.0 - expected.0).abs() < 1e-4 * (1.0 + expected.0.abs()), "{kind:?}, {l}");
                    agreeing += usize::from(found.1 == expected.1);
                }
                assert!(agreeing as f64 > 0.99 * grid.points() as f64, "{kind:?}, {l}: {agreeing}");
            }
        }
    }
}
