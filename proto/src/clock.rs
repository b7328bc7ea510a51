//! The clock of all times on the wire.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch; zero on a clock that is set before it.
pub fn unix_time_ns() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
