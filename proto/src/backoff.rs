//! Exponential backoff with jitter, so that many clients do not retry in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Waits from 50 ms, doubled each time up to 1 s, each shortened by up to a half at random.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: SHORTEST }
    }
}

impl Backoff {
    pub fn new() -> Self {
        Self::default()
    }

    /// Time to wait before the next attempt.
    fn delay(&mut self) -> Duration {
        let longest = self.next;
        self.next = (self.next * 2).min(LONGEST);
        // Uniform in [0, 1).
        let fraction = (random_u64() >> 11) as f64 / (1u64 << 53) as f64;
        longest.mul_f64(0.5 + 0.5 * fraction)
    }

    pub async fn wait(&mut self) {
        tokio::time::sleep(self.delay()).await;
    }

    /// Call after a successful attempt: the next wait is the shortest again.
    pub fn reset(&mut self) {
        self.next = SHORTEST;
    }
}

/// A random number, on which only timing may depend.
fn random_u64() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_second_and_start_over() {
        let mut backoff = Backoff::new();
        for longest_ms in [50, 100, 200, 400, 800, 1000, 1000] {
            let longest = Duration::from_millis(longest_ms);
            let delay = backoff.delay();
            assert!(delay >= longest / 2 && delay <= longest, "{delay:?} of {longest:?}");
        }
        backoff.reset();
        assert!(backoff.delay() <= SHORTEST);
    }
}
