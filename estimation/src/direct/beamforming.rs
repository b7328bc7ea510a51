//! The spectrum of a node in all beams of its sensors: `a^H Y` for every response a, in single precision, [`LANES`] subcarriers at a time.

use num_complex::{Complex32, Complex64};

use super::coarse::SplitRow;
use crate::linalg::register::{Complexes, Register};
use crate::linalg::{ComplexLanes, Instructions, Kernel, LANES, Lanes, dispatch};

/// Beams that are computed together.
const BEAMS_AT_ONCE: usize = 4;

/// `a^H Y` for the rows of Y, which have one length, and some responses a.
pub(super) fn beamformed_rows(rows: &[SplitRow], responses: &[Vec<Complex64>]) -> Vec<SplitRow> {
    // Sensor by sensor, some beams side by side; beams past the last are zero.
    let single = |a: Complex64| Complex32::new(a.re as f32, a.im as f32);
    let side_by_side = |beams: &[Vec<Complex64>], m: usize| -> [Complex32; BEAMS_AT_ONCE] {
        std::array::from_fn(|i| beams.get(i).map_or(Complex32::ZERO, |a| single(a[m])))
    };
    let weights: Vec<[Complex32; BEAMS_AT_ONCE]> = responses
        .chunks(BEAMS_AT_ONCE)
        .flat_map(|beams| (0..rows.len()).map(move |m| side_by_side(beams, m)))
        .collect();
    let length = rows.first().map_or(0, |row| row.0.len());
    let mut beams = vec![(vec![0.0; length], vec![0.0; length]); responses.len()];
    let lanes = |part: &[f32]| {
        let mut lanes = Lanes::ZERO;
        lanes.0[..part.len()].copy_from_slice(part);
        lanes
    };
    for from in (0..length).step_by(LANES) {
        let own = from..(from + LANES).min(length);
        let part =
            |(re, im): &SplitRow| ComplexLanes { re: lanes(&re[own.clone()]), im: lanes(&im[own.clone()]) };
        let rows: Vec<ComplexLanes<f32>> = rows.iter().map(part).collect();
        let sums = dispatch(Instructions::detect(), BeamSums { rows: &rows, weights: &weights });
        for ((re, im), sum) in beams.iter_mut().zip(sums) {
            re[own.clone()].copy_from_slice(&sum.re.0[..own.len()]);
            im[own.clone()].copy_from_slice(&sum.im.0[..own.len()]);
        }
    }
    beams
}

/// The sums of one group of subcarriers.
struct BeamSums<'a> {
    rows: &'a [ComplexLanes<f32>],
    weights: &'a [[Complex32; BEAMS_AT_ONCE]],
}

impl Kernel<f32> for BeamSums<'_> {
    type Output = Vec<ComplexLanes<f32>>;

    #[inline(always)]
    fn run<R: Register<Scalar = f32>>(self) -> Vec<ComplexLanes<f32>> {
        let mut all = vec![ComplexLanes::ZERO; self.weights.len() / self.rows.len() * BEAMS_AT_ONCE];
        let beams = all.as_chunks_mut::<BEAMS_AT_ONCE>().0;
        for (beams, weights) in beams.iter_mut().zip(self.weights.chunks_exact(self.rows.len())) {
            let mut sums = [Complexes::<R>::zero(); BEAMS_AT_ONCE];
            for (row, weights) in self.rows.iter().zip(weights) {
                let row = Complexes::load(row);
                for (sum, a) in sums.iter_mut().zip(weights) {
                    let a = Complexes { re: R::splat(a.re.into()), im: R::splat(a.im.into()) };
                    *sum = sum.plus_conjugate(a, row);
                }
            }
            sums.into_iter().zip(beams).for_each(|(sum, beam)| sum.store(beam));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use model::random::{Purpose, complex_normal, stream};

    use super::super::moments::beamformed;
    use super::*;

    #[test]
    fn beams_are_those_of_plain_sums() {
        let mut draw = stream(1, Purpose::Study, [0, 0]);
        for (sensors, length, count) in [(1, 1, 1), (10, 40, 27), (36, 64, 6), (3, 16, 4)] {
            let mut vectors = |count: usize, length: usize| -> Vec<Vec<Complex64>> {
                (0..count).map(|_| (0..length).map(|_| complex_normal(&mut draw, 1.0)).collect()).collect()
            };
            let (rows, responses) = (vectors(sensors, length), vectors(count, sensors));
            let split = |row: &Vec<Complex64>| -> SplitRow {
                (row.iter().map(|y| y.re as f32).collect(), row.iter().map(|y| y.im as f32).collect())
            };
            let found = beamformed_rows(&rows.iter().map(split).collect::<Vec<_>>(), &responses);
            assert_eq!(found.len(), count);
            for ((re, im), response) in found.iter().zip(&responses) {
                assert_eq!((re.len(), im.len()), (length, length));
                for ((re, im), exact) in re.iter().zip(im).zip(beamformed(&rows, response)) {
                    let found = Complex64::new((*re).into(), (*im).into());
                    assert!((found - exact).norm() < 1e-5 * sensors as f64, "{found} {exact}");
                }
            }
        }
    }
}
