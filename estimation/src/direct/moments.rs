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

/// Less of an atom than this share is rounding.
const LEAST_SHARE: f64 = 1e-9;

/// The targets as the sensors of one node see them: beamformed data, and inner products of the responses.
#[derive(Debug, Clone)]
pub(super) struct NodeSight<'a> {
    spectrum: Option<&'a [Vec<Complex64>]>,
    sensing: Vec<&'a View>,
    /// Per target: `a^H Y` over all subcarriers; empty where no derivatives are wanted.
    rows: Vec<Vec<Complex64>>,
    /// Inner products of all responses and derivatives, target by target.
    gram: CMatrix,
}

impl<'a> NodeSight<'a> {
    /// `spectrum` has one row for each sensor, over all subcarriers; `sensing` are the views of this node, one for each target.
    pub fn new(spectrum: Option<&'a [Vec<Complex64>]>, sensing: Vec<&'a View>) -> Self {
        let expanded = |view: &&&View| view.arrival.len() > 1;
        let rows = spectrum.map_or(Vec::new(), |spectrum| {
            sensing.iter().filter(expanded).map(|view| beamformed(spectrum, &view.arrival[0])).collect()
        });
        let responses: Vec<&Vec<Complex64>> = sensing.iter().flat_map(|view| &view.arrival).collect();
        let gram = gram(&responses);
        Self { spectrum, sensing, rows, gram }
    }
}

/// `a^H Y`.
pub(super) fn beamformed(spectrum: &[Vec<Complex64>], arrival: &[Complex64]) -> Vec<Complex64> {
    let mut sum = vec![Complex64::ZERO; spectrum.first().map_or(0, Vec::len)];
    for (row, a) in spectrum.iter().zip(arrival) {
        let conjugate = a.conj();
        sum.iter_mut().zip(row).for_each(|(s, y)| *s += y * conjugate);
    }
    sum
}

fn gram<V: AsRef<[Complex64]>>(vectors: &[V]) -> CMatrix {
    let mut gram = CMatrix::zeros(vectors.len(), vectors.len());
    for (i, a) in vectors.iter().enumerate() {
        for (j, b) in vectors.iter().enumerate().skip(i) {
            let product = inner(a.as_ref(), b.as_ref());
            gram[(i, j)] = product;
            gram[(j, i)] = product.conj();
        }
    }
    gram
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
#[derive(Debug, Clone)]
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
    /// Stream vectors of the targets, with delays and offset.
    pub streams: Vec<Vec<Complex64>>,
}

impl Moments {
    /// The moments of path (l, k) for targets whose views at the reflecting IRS k are given; without spectrum the data count
    /// as zero. `offset` is the phasor `exp(-j w o_l)` on the subcarriers of IRS k where the clock offset of the node is a
    /// parameter.
    pub fn new(
        layout: &Layout,
        k: usize,
        node: &NodeSight,
        reflecting: &[&View],
        offset: Option<&[Complex64]>,
    ) -> Self {
        Self::of_streams(layout.range(k), node, turned_streams(layout, k, &node.sensing, reflecting, offset))
    }

    /// The moments of one target on path (l, k) beside others, which are projected out of its atom and derivatives and are no longer
    /// in the data, and the share of its atom that is left. `across` are the products of the others' responses with the target's.
    pub fn beside(
        layout: &Layout,
        node: &NodeSight,
        reflecting: &View,
        across: &[Vec<Complex64>],
        others: &OthersPath,
    ) -> (Self, f64) {
        let streams = turned_streams(layout, others.k, &node.sensing, &[reflecting], None);
        let mut along = CMatrix::zeros(across.len(), streams.len());
        for (t, (across, stream)) in across.iter().zip(&others.streams).enumerate() {
            let value = inner(stream, &streams[0]);
            along[(t, 0)] = across[0] * value;
            for i in 1..streams.len() {
                along[(t, i)] = across[0] * inner(stream, &streams[i]) + across[i] * value;
            }
        }
        let mut moments = Self::of_streams(layout.range(others.k), node, streams);
        let whole = moments.gram[(0, 0)].re;
        if across.is_empty() {
            return (moments, 1.0);
        }
        let taken = &others.whitening * along;
        let common = |i: usize, j: usize| taken.column(i).dotc(&taken.column(j));
        let left = (1.0 - common(0, 0).re / whole).max(0.0);
        // Of an atom of which only rounding is left there is nothing.
        moments.gram[(0, 0)] = Complex64::from(if left > LEAST_SHARE { left * whole } else { 0.0 });
        for j in 0..moments.slopes.len() {
            moments.mixed[(0, j)] -= common(0, 1 + j);
            for i in 0..moments.slopes.len() {
                moments.curvature[(i, j)] -= common(1 + i, 1 + j);
            }
        }
        (moments, left)
    }

    /// The moments of targets with these streams, each with its derivatives, on the subcarriers `own`.
    fn of_streams(own: Range<usize>, node: &NodeSight, streams: Vec<Vec<Complex64>>) -> Self {
        let sensing = &node.sensing;
        let products = gram(&streams);
        let (targets, axes) = (sensing.len(), sensing.first().map_or(0, |view| view.arrival.len() - 1));
        let parameters = streams.len() / targets.max(1) - 1;
        // Places of the responses and streams of target t: value first, then derivatives.
        let arrival = |t: usize, i: usize| t * (1 + axes) + i;
        let stream = |t: usize, i: usize| t * (1 + parameters) + i;
        let count = targets * parameters;
        let mut moments = Self {
            product: DVector::zeros(targets),
            gram: CMatrix::zeros(targets, targets),
            slopes: DVector::zeros(count),
            mixed: CMatrix::zeros(targets, count),
            curvature: CMatrix::zeros(count, count),
            streams: Vec::new(),
        };
        if let Some(spectrum) = node.spectrum {
            for t in 0..targets {
                let value = &streams[stream(t, 0)];
                // What every sensor has received of this stream.
                let received: Vec<Complex64> =
                    spectrum.iter().map(|row| inner(value, &row[own.clone()])).collect();
                let arrivals = &sensing[t].arrival;
                moments.product[t] = inner(&arrivals[0], &received);
                for i in 0..parameters {
                    let mut slope = inner(&streams[stream(t, 1 + i)], &node.rows[t][own.clone()]);
                    if i < axes {
                        slope += inner(&arrivals[1 + i], &received);
                    }
                    moments.slopes[t * parameters + i] = slope;
                }
            }
        }
        for s in 0..targets {
            for t in 0..targets {
                let a = |i: usize, j: usize| node.gram[(arrival(s, i), arrival(t, j))];
                let r = |i: usize, j: usize| products[(stream(s, i), stream(t, j))];
                let (across, along) = (a(0, 0), r(0, 0));
                moments.gram[(s, t)] = across * along;
                for j in 1..=parameters {
                    let column = t * parameters + j - 1;
                    let mut mixed = across * r(0, j);
                    if j <= axes {
                        mixed += a(0, j) * along;
                    }
                    moments.mixed[(s, column)] = mixed;
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
                        moments.curvature[(row, column)] = curvature;
                        moments.curvature[(column, row)] = curvature.conj();
                    }
                }
            }
        }
        moments.streams = streams.into_iter().step_by(1 + parameters).collect();
        moments
    }

    /// Value, gradient and information with the gains fitted. Zero where the atoms are not independent.
    pub fn expansion(&self) -> Expansion {
        let (targets, count) = (self.product.len(), self.slopes.len());
        let parameters = count / targets;
        let Some(factor) = self.gram.clone().cholesky() else { return Expansion::zeros(count) };
        let gains = factor.solve(&self.product);
        let explained = factor.solve(&self.mixed);
        let gain = |column: usize| gains[column / parameters];
        let gradient = DVector::from_fn(count, |j, _| {
            let fitted: Complex64 = (0..targets).map(|s| gains[s].conj() * self.mixed[(s, j)]).sum();
            2.0 * (gain(j) * (self.slopes[j].conj() - fitted)).re
        });
        let information = DMatrix::from_fn(count, count, |i, j| {
            let along: Complex64 = (0..targets).map(|s| self.mixed[(s, i)].conj() * explained[(s, j)]).sum();
            2.0 * (gain(i).conj() * gain(j) * (self.curvature[(i, j)] - along)).re
        });
        Expansion { value: self.product.dotc(&gains).re, gradient, information }
    }
}

impl Moments {
    /// Whether the gain of one target is fitted: its energy per unit gain.
    pub fn energy(&self) -> f64 {
        self.gram[(0, 0)].re
    }

    /// `Re D^H (I - P_A) D / ||m||^2` of one target: the information per unit of log-likelihood ratio, halved.
    pub fn roughness(&self) -> DMatrix<f64> {
        let (count, energy) = (self.slopes.len(), self.energy().max(f64::MIN_POSITIVE));
        DMatrix::from_fn(count, count, |i, j| {
            let along = self.mixed[(0, i)].conj() * self.mixed[(0, j)] / energy;
            (self.curvature[(i, j)] - along).re / energy
        })
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
            streams: Vec::new(),
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

/// Per target: stream vector with delay and offset, and its derivatives with respect to coordinates and offset.
fn turned_streams(
    layout: &Layout,
    k: usize,
    sensing: &[&View],
    reflecting: &[&View],
    offset: Option<&[Complex64]>,
) -> Vec<Vec<Complex64>> {
    let own = layout.range(k);
    let frequencies = &layout.frequencies_rad_s()[own.clone()];
    let mut all = Vec::with_capacity(sensing.len() * (2 + layout.axes().len()));
    for (sensor, reflector) in sensing.iter().zip(reflecting) {
        let mut phasors: Vec<Complex64> = sensor.phasors[own.clone()]
            .iter()
            .zip(&reflector.phasors[own.clone()])
            .map(|(a, b)| a * b)
            .collect();
        if let Some(offset) = offset {
            phasors.iter_mut().zip(offset).for_each(|(phasor, offset)| *phasor *= offset);
        }
        let value: Vec<Complex64> =
            reflector.streams[0].iter().zip(&phasors).map(|(r, phasor)| r * phasor).collect();
        let delayed = |slope_s: f64| {
            value.iter().zip(frequencies).map(move |(v, w)| v * Complex64::new(0.0, -w * slope_s))
        };
        let derivatives: Vec<Vec<Complex64>> = reflector.streams[1..]
            .iter()
            .enumerate()
            .map(|(i, stream)| {
                let slope_s = (sensor.direction[i] + reflector.direction[i]) / SPEED_OF_LIGHT_M_S;
                let own = stream.iter().zip(&phasors).map(|(r, phasor)| r * phasor);
                own.zip(delayed(slope_s)).map(|(own, delayed)| own + delayed).collect()
            })
            .collect();
        // The offset in metres, so that all parameters have the same scale.
        let by_offset =
            offset.filter(|_| !derivatives.is_empty()).map(|_| delayed(1.0 / SPEED_OF_LIGHT_M_S).collect());
        all.push(value);
        all.extend(derivatives);
        all.extend(by_offset);
    }
    all
}
