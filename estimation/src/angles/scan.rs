//! The likelihood of one angle on the grid, all other angles fixed: [`LANES`] angles at a time, in single precision.
//!
//! With the paths of IRS i projected on the steering vectors at their other ends, the part of f(theta) (see
//! [`super::likelihood`]) that depends on theta_i is
//!
//! ```text
//! sum over sensed x |a^H x|^2 + sum over reflected y |b^H y|^2 + |a^H R_ii b|^2,   b of unit norm.
//! ```
//!
//! The vectors are scaled to entries near one. Cost: (K - 1)(M + D) + M D products per angle.

use num_complex::{Complex32, Complex64};

use crate::linalg::register::{Complexes, Register};
use crate::linalg::{ComplexLanes, Instructions, Kernel, LANES, Lanes, dispatch};

/// The projected paths of an IRS.
#[derive(Debug, Default)]
pub struct Projected {
    /// One after the other, M entries each.
    pub sensed: Vec<Complex32>,
    /// One after the other, D entries each.
    pub reflected: Vec<Complex32>,
    /// R_ii, column by column; empty if it is missing.
    pub own: Vec<Complex32>,
}

/// Largest value of the sum over a grid, with its index.
pub fn highest(
    paths: &Projected,
    arrivals: &[ComplexLanes<f32>],
    departures: &[ComplexLanes<f32>],
    sensors: usize,
    streams: usize,
    points: usize,
) -> (f64, usize) {
    let groups = arrivals.chunks_exact(sensors).zip(departures.chunks_exact(streams)).enumerate();
    let (instructions, mut best) = (Instructions::detect(), (f64::NEG_INFINITY, 0));
    for (group, (arrival, departure)) in groups {
        let values = dispatch(instructions, AngleGroup { paths, arrival, departure });
        for (lane, &value) in values.0.iter().take(points - group * LANES).enumerate() {
            if f64::from(value) > best.0 {
                best = (value.into(), group * LANES + lane);
            }
        }
    }
    best
}

/// The sum at the angles of one group of lanes.
struct AngleGroup<'a> {
    paths: &'a Projected,
    arrival: &'a [ComplexLanes<f32>],
    departure: &'a [ComplexLanes<f32>],
}

impl Kernel<f32> for AngleGroup<'_> {
    type Output = Lanes<f32>;

    #[inline(always)]
    fn run<R: Register<Scalar = f32>>(self) -> Lanes<f32> {
        let Self { paths, arrival, departure } = self;
        let mut value = R::zero();
        for (vectors, steering) in [(&paths.sensed, arrival), (&paths.reflected, departure)] {
            for vector in vectors.chunks_exact(steering.len()) {
                value = value + Complexes::<R>::inner(steering, vector).energy();
            }
        }
        if !paths.own.is_empty() {
            let mut sum = Complexes::<R>::zero();
            for (column, b) in paths.own.chunks_exact(arrival.len()).zip(departure) {
                sum = sum.plus(Complexes::<R>::inner(arrival, column), Complexes::load(b));
            }
            value = value + sum.energy();
        }
        let mut values = Lanes::ZERO;
        value.store(&mut values);
        values
    }
}

/// A number in single precision.
pub fn single(value: Complex64) -> Complex32 {
    Complex32::new(value.re as f32, value.im as f32)
}
