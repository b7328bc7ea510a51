//! The clocks: one for times on the wire, which may be set, and one for decisions, which may not.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch; zero on a clock that is set before it. For time stamps: it jumps when it is set.
pub fn unix_time_ns() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_add_signed(test_offset_ns())
}

/// Variable with the seconds by which the clock of a process under test is wrong, in builds with debug assertions. No other way
/// sets the clock of one process: a time namespace shifts the monotonic clocks alone.
pub const TEST_OFFSET: &str = "HYLOC_TEST_CLOCK_OFFSET_S";

#[cfg(debug_assertions)]
fn test_offset_ns() -> i64 {
    static OFFSET_NS: OnceLock<i64> = OnceLock::new();
    let read = || std::env::var(TEST_OFFSET).ok()?.parse::<i64>().ok();
    *OFFSET_NS.get_or_init(|| read().unwrap_or(0).saturating_mul(1_000_000_000))
}

/// The clock of a release build cannot be altered.
#[cfg(not(debug_assertions))]
const fn test_offset_ns() -> i64 {
    0
}

/// Nanoseconds since the first call in this process. For deadlines and leases: a clock that is set an hour back must not
/// hold up a frame for an hour.
pub fn steady_time_ns() -> u64 {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGUN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A time of [`steady_time_ns`] as the present setting of the clock would stamp it.
pub fn stamped_ns(steady_ns: u64) -> u64 {
    unix_time_ns().saturating_sub(steady_time_ns().saturating_sub(steady_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_time_is_stamped_with_the_time_of_day() {
        let (before_ns, steady_ns) = (unix_time_ns(), steady_time_ns());
        assert!(steady_time_ns() >= steady_ns);
        let stamped_ns = stamped_ns(steady_ns);
        // Generous: another thread may run between the two readings.
        assert!(stamped_ns.abs_diff(before_ns) < 10_000_000_000, "{stamped_ns} {before_ns}");
    }
}
