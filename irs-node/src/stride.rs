//! Which frames the fusion center asks for: all, or under overload every m-th. Pure: time is passed in.

use std::time::{Duration, Instant};

/// How long a request is followed: it is renewed with every acknowledgement, and all frames are reported again after it.
const VALID: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, Default)]
pub struct Stride {
    /// The stride, and when it was asked for.
    asked: Option<(u64, Instant)>,
}

impl Stride {
    /// The fusion center has asked for every `stride`-th frame; 0 and 1 mean all.
    pub fn ask(&mut self, stride: u32, now: Instant) {
        self.asked = (stride > 1).then_some((u64::from(stride), now));
    }

    /// Whether the report of this number, counted from the start of the run, is asked for.
    pub fn includes(&self, number: u64, now: Instant) -> bool {
        self.asked.is_none_or(|(stride, asked)| {
            number.is_multiple_of(stride) || now.saturating_duration_since(asked) > VALID
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_asked_for_until_the_request_expires() {
        let now = Instant::now();
        let mut stride = Stride::default();
        let asked =
            |stride: &Stride, at| -> Vec<u64> { (0..10).filter(|n| stride.includes(*n, at)).collect() };
        assert_eq!(asked(&stride, now).len(), 10);
        stride.ask(4, now);
        assert_eq!(asked(&stride, now + VALID), [0, 4, 8]);
        assert_eq!(asked(&stride, now + VALID + Duration::from_millis(1)).len(), 10);
        for all in [0, 1] {
            stride.ask(all, now);
            assert_eq!(asked(&stride, now).len(), 10);
        }
    }
}
