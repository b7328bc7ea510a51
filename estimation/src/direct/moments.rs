//! The likelihood of one path for T targets, from inner products of its atoms, with exact first derivatives.
//!
//! Path (l, k) has the mean `sum_t alpha_t m_t`, `m_t = a_l(p_t) outer r_t`, `r_t = (S_k X_k)^T g_k(p_t) .* exp(-j w
//! (tau(p_t) + o_l))`, with free complex gains alpha. In units of the noise, with the atoms as columns of A and their
//! derivatives as columns of D:
//!
//! - gains `alpha = E^-1 c`, `E = A^H A`, `c = A^H Y`; log-likelihood ratio `J = c^H alpha = ||P_A Y||^2`;
//! - gradient `2 Re (Y - A alpha)^H D_i alpha`, which is exact because the residual is orthogonal to A;
//! - Gauss-Newton information `2 Re (D_i alpha)^H (I - P_A) (D_j alpha)`, the Fisher information at these gains.
//!
//! Atoms and derivatives are sums of products of a vector over the sensors and a vector over the subcarriers, so that every
//! inner product is one of short vectors. What is accumulated here, [`Moments`], is additive over frames in which the
//! gains hold: adding the moments of frames adds them coherently.

use std::ops::Range;

use model::CMatrix;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{DMatrix, DVector};
use num_complex::Complex64;

use super::joint::OthersPath;
use super::layout::{Layout, View};
use crate::ascent::Expansion;
use crate::dense::{assign, factorise, set_zeros, solve_factorised};

/// Less of an atom than this share is rounding.
const LEAST_SHARE: f64 = 1e-9;

/// The targets as the sensors of one node see them.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeSight<'a> {
    spectrum: Option<&'a [Vec<Complex64>]>,
    sensing: &'a [&'a View],
    products: &'a NodeProducts,
}

/// Beamformed data of a node, and inner products of its responses.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeProducts {
    /// Per target: `a^H Y` over all subcarriers; empty where no derivatives are wanted.
    rows: Vec<Vec<Complex64>>,
    /// Inner products of all responses and derivatives, target by target.
    gram: CMatrix,
}

impl<'a> NodeSight<'a> {
    /// `spectrum` has one row for each sensor, over all subcarriers; `sensing` are the views of this node, one for each target. The
    /// memory of `products` is used again.
    pub fn new(
        spectrum: Option<&'a [Vec<Complex64>]>,
        sensing: &'a [&'a View],
        products: &'a mut NodeProducts,
    ) -> Self {
        let NodeProducts { rows, gram } = products;
        let expanded = sensing.iter().filter(|view| view.arrival.len() > 1);
        rows.resize_with(if spectrum.is_some() { expanded.clone().count() } else { 0 }, Vec::new);
        for (row, view) in rows.iter_mut().zip(expanded) {
            beamform(spectrum.unwrap_or_default(), &view.arrival[0], row);
        }
        set_gram(gram, sensing.iter().flat_map(|view| &view.arrival));
        Self { spectrum, sensing, products }
    }
}

/// `a^H Y`.
pub(super) fn beamformed(spectrum: &[Vec<Complex64>], arrival: &[Complex64]) -> Vec<Complex64> {
    let mut sum = Vec::new();
    beamform(spectrum, arrival, &mut sum);
    sum
}

fn beamform(spectrum: &[Vec<Complex64>], arrival: &[Complex64], sum: &mut Vec<Complex64>) {
    sum.clear();
    sum.resize(spectrum.first().map_or(0, Vec::len), Complex64::ZERO);
    for (row, a) in spectrum.iter().zip(arrival) {
        let conjugate = a.conj();
        sum.iter_mut().zip(row).for_each(|(s, y)| *s += y * conjugate);
    }
}

fn set_gram<'a>(gram: &mut CMatrix, vectors: impl Iterator<Item = &'a Vec<Complex64>> + Clone) {
    let count = vectors.clone().count();
    set_zeros(gram, (count, count));
    for (i, a) in vectors.clone().enumerate() {
        for (j, b) in vectors.clone().enumerate().skip(i) {
            let product = inner(a, b);
            gram[(i, j)] = product;
            gram[(j, i)] = product.conj();
        }
    }
}

/// `a^H b` of vectors of the same length.
#[inline]
pub(super) fn inner(a: &[Complex64], b: &[Complex64]) -> Complex64 {
    // Four sums, so that none has to wait for the one before.
    let (mut re, mut im) = ([0.0; 4], [0.0; 4]);
    let (mut fours, mut others) = (a.chunks_exact(4), b.chunks_exact(4));
    for (a, b) in (&mut fours).zip(&mut others) {
        for i in 0..4 {
            re[i] += a[i].re * b[i].re + a[i].im * b[i].im;
            im[i] += a[i].re * b[i].im - a[i].im * b[i].re;
        }
    }
    let rest = fours.remainder().iter().zip(others.remainder());
    let sum = Complex64::new((re[0] + re[1]) + (re[2] + re[3]), (im[0] + im[1]) + (im[2] + im[3]));
    rest.fold(sum, |sum, (a, b)| sum + a.conj() * b)
}

/// Inner products of data, atoms and derivatives of one path. Every target has the same number of parameters: its free
/// coordinates, and then the clock offset of the sensing node if that is unknown.
#[derive(Debug, Clone, Default)]
pub(super) struct Moments {
    /// `c = A^H Y`.
    pub product: DVector<Complex64>,
    /// `E = A^H A`.
    pub gram: CMatrix,
    /// `D^H Y`, target by target.
    pub slopes: DVector<Complex64>,
    /// `A^H D`.
    pub mixed: CMatrix,
    /// `D^H D`.
    pub curvature: CMatrix,
}

/// Memory of [`Moments`], for one path after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct PathMemory {
    phasors: Vec<Complex64>,
    /// Stream vectors of the targets, with delays and offset, each with its derivatives.
    pub streams: Vec<Vec<Complex64>>,
    /// Inner products of `streams`.
    products: CMatrix,
    received: Vec<Complex64>,
    /// Of the atoms: `E`, then its Cholesky factor.
    factor: CMatrix,
    gains: DVector<Complex64>,
    /// `E^-1 A^H D`.
    explained: CMatrix,
}

impl Moments {
    /// The moments of path (l, k) for targets whose views at the reflecting IRS k are given; without spectrum the data count
    /// as zero. `offset` is the phasor `exp(-j w o_l)` on the subcarriers of IRS k where the clock offset of the node is a
    /// parameter.
    pub fn set(
        &mut self,
        layout: &Layout,
        k: usize,
        node: &NodeSight,
        reflecting: &[&View],
        offset: Option<&[Complex64]>,
        memory: &mut PathMemory,
    ) {
        memory.set_streams(layout, k, node.sensing, reflecting, offset);
        self.set_products(layout.range(k), node, memory);
    }

    /// The moments of one target on path (l, k) beside others, which are projected out of its atom and derivatives and are no longer
    /// in the data, and the share of its atom that is left. `across` are the products of the others' responses with the target's.
    pub fn set_beside(
        &mut self,
        layout: &Layout,
        node: &NodeSight,
        reflecting: &View,
        across: &[Vec<Complex64>],
        others: &OthersPath,
        memory: &mut PathMemory,
    ) -> f64 {
        self.set(layout, others.k, node, &[reflecting], None, memory);
        if across.is_empty() {
            return 1.0;
        }
        let streams = &memory.streams;
        let mut along = CMatrix::zeros(across.len(), streams.len());
        for (t, (across, stream)) in across.iter().zip(&others.streams).enumerate() {
            let value = inner(stream, &streams[0]);
            along[(t, 0)] = across[0] * value;
            for i in 1..streams.len() {
                along[(t, i)] = across[0] * inner(stream, &streams[i]) + across[i] * value;
            }
        }
        let whole = self.gram[(0, 0)].re;
        let taken = &others.whitening * along;
        let common = |i: usize, j: usize| taken.column(i).dotc(&taken.column(j));
        let left = (1.0 - common(0, 0).re / whole).max(0.0);
        // Of an atom of which only rounding is left there is nothing.
        self.gram[(0, 0)] = Complex64::from(if left > LEAST_SHARE { left * whole } else { 0.0 });
        for j in 0..self.slopes.len() {
            self.mixed[(0, j)] -= common(0, 1 + j);
            for i in 0..self.slopes.len() {
                self.curvature[(i, j)] -= common(1 + i, 1 + j);
            }
        }
        left
    }

    /// The moments of targets with the streams in `memory`, on the subcarriers `own`.
    fn set_products(&mut self, own: Range<usize>, node: &NodeSight, memory: &mut PathMemory) {
        let PathMemory { streams, products, received, .. } = memory;
        let NodeSight { sensing, products: NodeProducts { rows, gram }, .. } = *node;
        set_gram(products, streams.iter());
        let (targets, axes) = (sensing.len(), sensing.first().map_or(0, |view| view.arrival.len() - 1));
        let parameters = streams.len() / targets.max(1) - 1;
        // Places of the responses and streams of target t: value first, then derivatives.
        let arrival = |t: usize, i: usize| t * (1 + axes) + i;
        let stream = |t: usize, i: usize| t * (1 + parameters) + i;
        let count = targets * parameters;
        set_zeros(&mut self.product, (targets, 1));
        set_zeros(&mut self.gram, (targets, targets));
        set_zeros(&mut self.slopes, (count, 1));
        set_zeros(&mut self.mixed, (targets, count));
        set_zeros(&mut self.curvature, (count, count));
        if let Some(spectrum) = node.spectrum {
            for t in 0..targets {
                let value = &streams[stream(t, 0)];
                // What every sensor has received of this stream.
                received.clear();
                received.extend(spectrum.iter().map(|row| inner(value, &row[own.clone()])));
                let arrivals = &sensing[t].arrival;
                self.product[t] = inner(&arrivals[0], received);
                for i in 0..parameters {
                    let mut slope = inner(&streams[stream(t, 1 + i)], &rows[t][own.clone()]);
                    if i < axes {
                        slope += inner(&arrivals[1 + i], received);
                    }
                    self.slopes[t * parameters + i] = slope;
                }
            }
        }
        for s in 0..targets {
            for t in 0..targets {
                let a = |i: usize, j: usize| gram[(arrival(s, i), arrival(t, j))];
                let r = |i: usize, j: usize| products[(stream(s, i), stream(t, j))];
                let (across, along) = (a(0, 0), r(0, 0));
                self.gram[(s, t)] = across * along;
                for j in 1..=parameters {
                    let column = t * parameters + j - 1;
                    let mut mixed = across * r(0, j);
                    if j <= axes {
                        mixed += a(0, j) * along;
                    }
                    self.mixed[(s, column)] = mixed;
                    // The rest is Hermitian.
                    for i in (1..=parameters).take_while(|&i| s < t || (s == t && i <= j)) {
                        let row = s * parameters + i - 1;
                        let mut curvature = across * r(i, j);
                        if j <= axes {
                            curvature += a(0, j) * r(i, 0);
                        }
                        if i <= axes {
                            curvature += a(i, 0) * r(0, j);
                        }
                        if i <= axes && j <= axes {
                            curvature += a(i, j) * along;
                        }
                        self.curvature[(row, column)] = curvature;
                        self.curvature[(column, row)] = curvature.conj();
                    }
                }
            }
        }
    }

    /// Value, gradient and information with the gains fitted. Zero where the atoms are not independent.
    pub fn expand(&self, memory: &mut PathMemory, into: &mut Expansion) {
        let (targets, count) = (self.product.len(), self.slopes.len());
        into.set_zeros(count);
        let PathMemory { factor, gains, explained, .. } = memory;
        assign(factor, &self.gram);
        if !factorise(factor) {
            return;
        }
        assign(gains, &self.product);
        assign(explained, &self.mixed);
        solve_factorised(factor, gains);
        solve_factorised(factor, explained);
        into.value = self.product.dotc(gains).re;
        let gain = |column: usize| gains[column * targets / count];
        for j in 0..count {
            let fitted: Complex64 = (0..targets).map(|s| gains[s].conj() * self.mixed[(s, j)]).sum();
            into.gradient[j] = 2.0 * (gain(j) * (self.slopes[j].conj() - fitted)).re;
            for i in 0..count {
                let along: Complex64 =
                    (0..targets).map(|s| self.mixed[(s, i)].conj() * explained[(s, j)]).sum();
                let curvature = self.curvature[(i, j)] - along;
                into.information[(i, j)] = 2.0 * (gain(i).conj() * gain(j) * curvature).re;
            }
        }
    }

    /// [`Self::expand`] into memory of its own.
    pub fn expansion(&self) -> Expansion {
        let mut expansion = Expansion::default();
        self.expand(&mut PathMemory::default(), &mut expansion);
        expansion
    }
}

impl Moments {
    /// Whether the gain of one target is fitted: its energy per unit gain.
    pub fn energy(&self) -> f64 {
        self.gram[(0, 0)].re
    }

    /// `Re D^H (I - P_A) D / ||m||^2` of one target: the information per unit of log-likelihood ratio, halved.
    pub fn set_roughness(&self, roughness: &mut DMatrix<f64>) {
        let (count, energy) = (self.slopes.len(), self.energy().max(f64::MIN_POSITIVE));
        set_zeros(roughness, (count, count));
        for j in 0..count {
            for i in 0..count {
                let along = self.mixed[(0, i)].conj() * self.mixed[(0, j)] / energy;
                roughness[(i, j)] = (self.curvature[(i, j)] - along).re / energy;
            }
        }
    }

    /// [`Self::set_roughness`] into memory of its own.
    pub fn roughness(&self) -> DMatrix<f64> {
        let mut roughness = DMatrix::default();
        self.set_roughness(&mut roughness);
        roughness
    }

    /// The moments of one target with respect to a state of which its parameters are the linear function `map`.
    pub fn mapped(&self, map: &DMatrix<f64>) -> Self {
        let map = map.map(Complex64::from);
        Self {
            product: self.product.clone(),
            gram: self.gram.clone(),
            slopes: map.tr_mul(&self.slopes),
            mixed: &self.mixed * &map,
            curvature: map.tr_mul(&self.curvature) * &map,
        }
    }

    /// Adds the moments of a frame with the same gains and parameters.
    pub fn add(&mut self, frame: &Self) {
        self.product += &frame.product;
        self.gram += &frame.gram;
        self.slopes += &frame.slopes;
        self.mixed += &frame.mixed;
        self.curvature += &frame.curvature;
    }
}

impl PathMemory {
    /// Per target: stream vector with delay and offset, and its derivatives with respect to coordinates and offset.
    fn set_streams(
        &mut self,
        layout: &Layout,
        k: usize,
        sensing: &[&View],
        reflecting: &[&View],
        offset: Option<&[Complex64]>,
    ) {
        let own = layout.range(k);
        let frequencies = &layout.frequencies_rad_s()[own.clone()];
        let given = reflecting.first().map_or(1, |view| view.streams.len());
        let each = given + usize::from(given > 1 && offset.is_some());
        self.streams.resize_with(sensing.len() * each, Vec::new);
        let targets = sensing.iter().zip(reflecting).zip(self.streams.chunks_exact_mut(each));
        for ((sensor, reflector), streams) in targets {
            let phasors = &mut self.phasors;
            let both = sensor.phasors[own.clone()].iter().zip(&reflector.phasors[own.clone()]);
            refill(phasors, both.map(|(a, b)| a * b));
            if let Some(offset) = offset {
                phasors.iter_mut().zip(offset).for_each(|(phasor, offset)| *phasor *= offset);
            }
            let Some((value, derivatives)) = streams.split_first_mut() else { continue };
            refill(value, reflector.streams[0].iter().zip(&*phasors).map(|(r, phasor)| r * phasor));
            let delayed = |slope_s: f64| {
                value.iter().zip(frequencies).map(move |(v, w)| v * Complex64::new(0.0, -w * slope_s))
            };
            let (by_place, by_offset) = derivatives.split_at_mut(given - 1);
            for ((i, stream), derivative) in reflector.streams[1..].iter().enumerate().zip(by_place) {
                let slope_s = (sensor.direction[i] + reflector.direction[i]) / SPEED_OF_LIGHT_M_S;
                let turned = stream.iter().zip(&*phasors).map(|(r, phasor)| r * phasor);
                refill(derivative, turned.zip(delayed(slope_s)).map(|(turned, delayed)| turned + delayed));
            }
            // The offset in metres, so that all parameters have the same scale.
            for derivative in by_offset {
                refill(derivative, delayed(1.0 / SPEED_OF_LIGHT_M_S));
            }
        }
    }
}

fn refill(list: &mut Vec<Complex64>, values: impl Iterator<Item = Complex64>) {
    list.clear();
    list.extend(values);
}
