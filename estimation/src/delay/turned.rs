//! Products of a spectrum with codes that are turned by a delay: `Y D(tau) C`, D(tau) the phasors `exp(j w tau)` of the
//! subcarriers. With `C = X^H` this is the block, with `j W X^H` its derivative by the delay, with `X^H F` the block after weights
//! `F F^H` of the streams.

use model::CMatrix;
use model::algebra::unit_phasor;
use num_complex::Complex64;

use crate::linalg::register::{Complexes, Register};
use crate::linalg::{ComplexLanes, Kernel, LANES, triangle_index};
use crate::planar;

/// Codes C (n x columns) of the subcarriers with these angular frequencies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TurnedCodes {
    codes: Vec<ComplexLanes<f64>>,
    frequencies_rad_s: Vec<f64>,
}

/// Scratch for products.
#[derive(Debug, Default)]
pub(super) struct TurnScratch {
    phasors: Vec<Complex64>,
    turned: Vec<ComplexLanes<f64>>,
    /// The product.
    pub out: Vec<ComplexLanes<f64>>,
    covariance: Vec<ComplexLanes<f64>>,
}

impl TurnedCodes {
    pub fn new(frequencies_rad_s: &[f64], columns: usize, code: impl Fn(usize, usize) -> Complex64) -> Self {
        let codes = planar::groups(frequencies_rad_s.len(), columns, code);
        Self { codes, frequencies_rad_s: frequencies_rad_s.to_vec() }
    }

    /// `Y D(tau) C`, left in the scratch.
    #[inline(always)]
    fn apply<R: Register<Scalar = f64>>(&self, spectrum: &CMatrix, delay_s: f64, scratch: &mut TurnScratch) {
        let TurnScratch { phasors, turned, out, .. } = scratch;
        let (sensors, subcarriers) = spectrum.shape();
        phasors.clear();
        phasors.extend(self.frequencies_rad_s.iter().map(|w| unit_phasor(w * delay_s)));
        turned.resize(subcarriers, ComplexLanes::ZERO);
        out.resize(sensors * self.codes.len() / subcarriers, ComplexLanes::ZERO);
        for (codes, out) in self.codes.chunks_exact(subcarriers).zip(out.chunks_exact_mut(sensors)) {
            for ((turned, code), phasor) in turned.iter_mut().zip(codes).zip(&*phasors) {
                Complexes::<R>::zero().plus(Complexes::load(code), planar::splat(*phasor)).store(turned);
            }
            planar::product::<R>(spectrum.as_slice(), (1, sensors), turned, out);
        }
    }
}

/// `Y D(tau) C` of one path.
pub(super) struct Turn<'a> {
    pub codes: &'a TurnedCodes,
    pub spectrum: &'a CMatrix,
    pub delay_s: f64,
    pub scratch: &'a mut TurnScratch,
}

impl Kernel<f64> for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn run<R: Register<Scalar = f64>>(self) {
        self.codes.apply::<R>(self.spectrum, self.delay_s, self.scratch);
    }
}

/// The sum of `P P^H` over the paths, M x M, with the product `P = Y D(tau) C` of each.
pub(super) struct Covariance<'a, P> {
    pub sensors: usize,
    pub paths: P,
    pub scratch: &'a mut TurnScratch,
}

impl<'a, P: Iterator<Item = (&'a TurnedCodes, &'a CMatrix, f64)>> Kernel<f64> for Covariance<'_, P> {
    type Output = CMatrix;

    #[inline(always)]
    fn run<R: Register<Scalar = f64>>(self) -> CMatrix {
        let Self { sensors, paths, scratch } = self;
        scratch.covariance.clear();
        scratch.covariance.resize(triangle_index(sensors, 0), ComplexLanes::ZERO);
        for (codes, spectrum, delay_s) in paths {
            codes.apply::<R>(spectrum, delay_s, scratch);
            for rows in scratch.out.chunks_exact(sensors) {
                for (i, row) in rows.iter().enumerate() {
                    let row = Complexes::<R>::load(row);
                    let sums = &mut scratch.covariance[triangle_index(i, 0)..];
                    for (sum, other) in sums.iter_mut().zip(&rows[..=i]) {
                        Complexes::load(sum).plus_conjugate(Complexes::load(other), row).store(sum);
                    }
                }
            }
        }
        let sum = |i, j| {
            (0..LANES)
                .map(|lane| planar::entry(&scratch.covariance, 1, 0, triangle_index(i, j) * LANES + lane))
                .sum::<Complex64>()
        };
        CMatrix::from_fn(sensors, sensors, |i, j| if i >= j { sum(i, j) } else { sum(j, i).conj() })
    }
}
