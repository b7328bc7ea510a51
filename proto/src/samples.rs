//! Matrices as bytes: floating point, or quantised to a few bits per real with subtractive dither.
//!
//! A quantised matrix is its step (single precision) and one level of b bits per real number, column by column, real
//! part first. Before rounding, a pseudo-random dither, uniform over one step, is added; the receiver draws the same
//! dither and subtracts it. The error is then uniform over one step and independent of the signal, whatever the
//! signal: noise of known power, which the receiver adds to the noise power that it weights by. The step is the
//! candidate with the least error, clipping included; the measured power of the error is sent with the matrix.

use bytes::{BufMut, Bytes, BytesMut};
use model::CMatrix;
use num_complex::Complex64;

/// Precision of the real numbers of a matrix: floating point, or quantised (`Q`) to a number of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    F64,
    /// Half the bytes; rounding is 100 dB below the signal.
    #[default]
    F32,
    Q16,
    Q8,
    Q4,
    Q2,
}

impl Precision {
    /// All of them, finest first.
    pub const ALL: [Self; 6] = [Self::F64, Self::F32, Self::Q16, Self::Q8, Self::Q4, Self::Q2];

    /// Its name in settings, and the bits of a real number.
    fn name_and_bits(self) -> (&'static str, u32) {
        match self {
            Self::F64 => ("f64", 64),
            Self::F32 => ("f32", 32),
            Self::Q16 => ("q16", 16),
            Self::Q8 => ("q8", 8),
            Self::Q4 => ("q4", 4),
            Self::Q2 => ("q2", 2),
        }
    }

    pub fn name(self) -> &'static str {
        self.name_and_bits().0
    }

    pub fn bits_per_real(self) -> u32 {
        self.name_and_bits().1
    }

    /// Bits of a quantised real number; none in floating point.
    fn quantised_bits(self) -> Option<u32> {
        (!matches!(self, Self::F64 | Self::F32)).then(|| self.bits_per_real())
    }

    /// Bytes of a matrix with this many complex entries.
    pub fn bytes(self, entries: usize) -> usize {
        let step = self.quantised_bits().map_or(0, |_| STEP_BYTES);
        step + (2 * entries * self.bits_per_real() as usize).div_ceil(8)
    }
}

/// Bytes of the step in front of quantised levels.
const STEP_BYTES: usize = 4;
/// Candidate steps, relative to the one that clips nothing.
const FINER: [f64; 6] = [1.0, 0.75, 0.6, 0.45, 0.35, 0.25];

/// Identifies a matrix, so that sender and receiver draw the same dither.
#[derive(Debug, Clone, Copy)]
pub struct DitherKey(pub [u64; 4]);

#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    pub bytes: Bytes,
    /// Mean squared error per complex entry; zero for floating point.
    pub error_power: f64,
}

/// A matrix as bytes, column-major, little-endian.
pub fn pack(matrix: &CMatrix, precision: Precision, key: DitherKey) -> Packed {
    let Some(bits) = precision.quantised_bits() else {
        let mut out = BytesMut::with_capacity(precision.bytes(matrix.len()));
        for real in matrix.iter().flat_map(|value| [value.re, value.im]) {
            match precision {
                Precision::F64 => out.put_f64_le(real),
                _ => out.put_f32_le(real as f32),
            }
        }
        return Packed { bytes: out.freeze(), error_power: 0.0 };
    };
    let reals: Vec<f64> = matrix.iter().flat_map(|value| [value.re, value.im]).collect();
    let dither = dither(key, reals.len());
    let largest = reals.iter().fold(0.0, |most: f64, real| most.max(real.abs()));
    let widest = largest / (f64::from(1u32 << (bits - 1)) - 0.5);
    let steps: &[f64] = if bits > 8 { &FINER[..1] } else { &FINER };
    let (mut best, mut error) = (0f32, f64::INFINITY);
    for step in steps.iter().map(|share| (widest * share) as f32) {
        let errors = reals.iter().zip(&dither).map(|(real, dither)| {
            (value(level(*real, *dither, step, bits), *dither, step, bits) - real).powi(2)
        });
        let sum: f64 = errors.sum();
        if sum < error {
            (best, error) = (step, sum);
        }
    }
    let mut out = BytesMut::with_capacity(precision.bytes(matrix.len()));
    out.put_f32_le(best);
    let (mut word, mut filled) = (0u32, 0);
    for (real, dither) in reals.iter().zip(&dither) {
        word |= level(*real, *dither, best, bits) << filled;
        filled += bits;
        while filled >= 8 {
            out.put_u8(word as u8);
            (word, filled) = (word >> 8, filled - 8);
        }
    }
    if filled > 0 {
        out.put_u8(word as u8);
    }
    Packed { bytes: out.freeze(), error_power: 2.0 * error / reals.len().max(1) as f64 }
}

/// The matrix of this shape; none if the number of bytes does not match.
pub fn unpack(
    bytes: &[u8],
    (rows, columns): (usize, usize),
    precision: Precision,
    key: DitherKey,
) -> Option<CMatrix> {
    let entries = rows * columns;
    if bytes.len() != precision.bytes(entries) {
        return None;
    }
    // Entry by entry into the matrix, whose memory is all that is allocated.
    Some(match precision.quantised_bits() {
        None if precision == Precision::F64 => {
            let real = |b: &[u8; 8]| f64::from_le_bytes(*b);
            CMatrix::from_iterator(rows, columns, pairs(bytes, real))
        }
        None => {
            let real = |b: &[u8; 4]| f64::from(f32::from_le_bytes(*b));
            CMatrix::from_iterator(rows, columns, pairs(bytes, real))
        }
        Some(bits) => {
            let (step, levels) = bytes.split_at(STEP_BYTES);
            let step = step.try_into().map_or(f32::NAN, f32::from_le_bytes);
            let level = |i: usize| {
                let bit = i * bits as usize;
                let word = u32::from(levels[bit / 8])
                    | levels.get(bit / 8 + 1).map_or(0, |next| u32::from(*next) << 8);
                word >> (bit % 8) & ((1 << bits) - 1)
            };
            let mut dither = Dither::new(key);
            let mut real = |i: usize| value(level(i), dither.next(), step, bits);
            let entry = |i: usize| Complex64::new(real(2 * i), real(2 * i + 1));
            CMatrix::from_iterator(rows, columns, (0..entries).map(entry))
        }
    })
}

/// Complex numbers from real ones of `N` bytes each.
fn pairs<const N: usize>(bytes: &[u8], real: impl Fn(&[u8; N]) -> f64) -> impl Iterator<Item = Complex64> {
    bytes.as_chunks().0.as_chunks().0.iter().map(move |[re, im]| Complex64::new(real(re), real(im)))
}

/// Level of a real number: 0 to 2^bits - 1.
fn level(real: f64, dither: f64, step: f32, bits: u32) -> u32 {
    if step <= 0.0 {
        return 0;
    }
    let half = f64::from(1u32 << (bits - 1));
    let shifted = (real / f64::from(step) + dither).floor() + half;
    shifted.clamp(0.0, 2.0 * half - 1.0) as u32
}

/// The real number that a level stands for.
fn value(level: u32, dither: f64, step: f32, bits: u32) -> f64 {
    let half = f64::from(1u32 << (bits - 1));
    (f64::from(level) - half + 0.5 - dither) * f64::from(step)
}

/// Pseudo-random numbers, uniform in [-1/2, 1/2), in units of the step.
struct Dither(u64);

impl Dither {
    fn new(key: DitherKey) -> Self {
        Self(key.0.iter().fold(0, |state, part| mixed(state ^ part).wrapping_add(GOLDEN)))
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        // The upper 53 bits.
        (mixed(self.0) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }
}

/// The first of them.
fn dither(key: DitherKey, count: usize) -> Vec<f64> {
    let mut dither = Dither::new(key);
    (0..count).map(|_| dither.next()).collect()
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    const KEY: DitherKey = DitherKey([1, 2, 3, 4]);

    /// Something like noise, from the dither of another key.
    fn matrix(rows: usize, columns: usize) -> CMatrix {
        let draws = dither(DitherKey([9, 9, 9, 9]), 24 * rows * columns);
        // Twelve uniform draws sum to unit variance.
        let normal = |i: usize| draws[12 * i..12 * (i + 1)].iter().sum::<f64>() * 1e-6;
        CMatrix::from_fn(rows, columns, |i, j| {
            let at = 2 * (j * rows + i);
            Complex64::new(normal(at), normal(at + 1))
        })
    }

    #[test]
    fn fewer_bits_cost_what_they_say() {
        let matrix = matrix(10, 33);
        let power = matrix.norm_squared() / matrix.len() as f64;
        // Error over signal, dB; 6 dB a bit, less what clipping a normal law costs.
        for (precision, most_db) in [
            (Precision::F64, -300.0),
            (Precision::F32, -140.0),
            (Precision::Q16, -84.0),
            (Precision::Q8, -38.0),
            (Precision::Q4, -17.0),
            (Precision::Q2, -6.5),
        ] {
            let packed = pack(&matrix, precision, KEY);
            assert_eq!(packed.bytes.len(), precision.bytes(matrix.len()));
            let back = unpack(&packed.bytes, (10, 33), precision, KEY).expect("as packed");
            let error = (&back - &matrix).norm_squared() / matrix.len() as f64;
            let db = 10.0 * (error / power).max(1e-40).log10();
            assert!(db <= most_db, "{}: {db:.1} dB", precision.name());
            let said = packed.error_power;
            assert!(precision.quantised_bits().is_none() || (error / said - 1.0).abs() < 1e-6);
            let name: StrDeserializer<'_, Error> = precision.name().into_deserializer();
            assert_eq!(Precision::deserialize(name), Ok(precision), "the same name in settings");
        }
    }

    /// The error is white and does not know the signal: a constant comes back right on average.
    #[test]
    fn the_error_is_independent_of_the_signal() {
        let constant = CMatrix::from_element(50, 200, Complex64::new(0.3, -0.1));
        let packed = pack(&constant, Precision::Q2, KEY);
        let back = unpack(&packed.bytes, (50, 200), Precision::Q2, KEY).unwrap();
        let mean = back.sum() / back.len() as f64;
        assert!((mean - Complex64::new(0.3, -0.1)).norm() < 0.01, "{mean}");
    }

    #[test]
    fn odd_cases_pack_too() {
        let zero = CMatrix::zeros(3, 3);
        for precision in Precision::ALL {
            let packed = pack(&zero, precision, KEY);
            let back = unpack(&packed.bytes, (3, 3), precision, KEY).unwrap();
            assert!(back.norm() == 0.0 && packed.error_power == 0.0, "{}", precision.name());
            assert!(unpack(&packed.bytes[1..], (3, 3), precision, KEY).is_none());
        }
    }
}
