//! Random numbers: one seed, an independent stream per purpose.
//!
//! The ChaCha key of a stream consists of seed, purpose and two indices, so that streams can be opened in any order, by
//! any process or thread, and never overlap.

use num_complex::Complex64;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Generator of every stream.
pub type Stream = ChaCha8Rng;

/// What a stream of random numbers is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Angles of the BS-IRS paths (index: IRS).
    ChannelAngles = 1,
    /// Gains of the BS-IRS paths (index: IRS).
    ChannelGains = 2,
    /// Phases of the reflecting elements (index: IRS).
    IrsPhases = 3,
    /// Assignment of subcarriers to IRSs.
    Subcarriers = 4,
    /// Codes on the subcarriers (index: IRS).
    Codes = 5,
    /// Position of a target (indices: coherent interval, target).
    Target = 6,
    /// Receiver noise (indices: node, frame).
    Noise = 7,
    /// Unknown phase per path (indices: coherent interval, path of a target).
    PathPhase = 8,
    /// Error of the channel estimate behind zero-forcing (index: IRS).
    ChannelError = 9,
    /// Offset and rate of the clock of every node.
    ClockOffset = 10,
    /// Radar cross-section per path (indices: coherent interval, path of a target).
    CrossSection = 11,
    /// Tests and studies.
    Study = 12,
    /// The backhaul emulator (indices: link; direction, or 2 for outages).
    Backhaul = 13,
    /// Wander of the clock of a node (indices: node and kind of interval, middle of the interval).
    ClockWander = 14,
    /// Control points of a random walk (indices: leg, target).
    Walk = 15,
}

/// The stream of a seed, a purpose and two indices.
pub fn stream(seed: u64, purpose: Purpose, indices: [u64; 2]) -> Stream {
    let mut key = [0u8; 32];
    for (word, bytes) in [seed, purpose as u64, indices[0], indices[1]].iter().zip(key.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}

/// Index of a name: FNV-1a of 64 bits.
pub fn index_of(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A sample of the circular complex normal distribution with this variance.
pub fn complex_normal(stream: &mut Stream, variance: f64) -> Complex64 {
    let deviation = (variance / 2.0).sqrt();
    let (re, im): (f64, f64) = (stream.sample(StandardNormal), stream.sample(StandardNormal));
    Complex64::new(re * deviation, im * deviation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_reproducible_and_distinct() {
        let draw = |seed, purpose, indices| stream(seed, purpose, indices).random::<u64>();
        assert_eq!(draw(1, Purpose::Noise, [2, 3]), draw(1, Purpose::Noise, [2, 3]));
        let addresses = [
            (1, Purpose::Noise, [2, 3]),
            (2, Purpose::Noise, [2, 3]),
            (1, Purpose::Codes, [2, 3]),
            (1, Purpose::Noise, [3, 2]),
            (1, Purpose::Noise, [2, 4]),
        ];
        let mut drawn: Vec<u64> = addresses.iter().map(|&(s, p, i)| draw(s, p, i)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), addresses.len());
    }

    #[test]
    fn complex_normal_has_its_variance() {
        let mut s = stream(7, Purpose::Study, [0, 0]);
        let n = 20_000;
        let power: f64 = (0..n).map(|_| complex_normal(&mut s, 3.0).norm_sqr()).sum::<f64>() / n as f64;
        // |z|^2 is exponential: standard deviation of the mean is 3 / sqrt(n) = 0.021.
        assert!((power - 3.0).abs() < 4.0 * 0.0212, "{power}");
    }
}
