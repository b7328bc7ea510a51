//! Log lines that a peer can provoke are limited: every place in the code has a token bucket, and the number of lines that it
//! suppressed is logged with its next line, or on its own once the flood is over.
//!
//! ```
//! hyloc_telemetry::warn_limited!(node = 3, reason = "not finite", "report refused");
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines that a place may write at once.
pub const BURST: u32 = 10;

/// Time in which a place may write one further line.
pub const REFILL: Duration = Duration::from_secs(1);

/// How often suppressed lines are reported when no further line reports them.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Largest number of characters of a peer's text in a log line.
const MAX_CHARACTERS: usize = 200;

/// A token bucket; the time is passed in.
#[derive(Debug)]
struct TokenBucket {
    tokens: u32,
    /// When the bucket was last refilled; none before the first line.
    refilled: Option<Instant>,
    suppressed: u64,
}

impl TokenBucket {
    const fn new() -> Self {
        Self { tokens: BURST, refilled: None, suppressed: 0 }
    }

    /// Whether a line may be written now, with the number of lines suppressed before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let refilled = *self.refilled.get_or_insert(now);
        let periods = now.saturating_duration_since(refilled).as_nanos() / REFILL.as_nanos();
        if periods > 0 {
            let periods = u32::try_from(periods).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(periods).min(BURST);
            self.refilled = Some(refilled.checked_add(REFILL.saturating_mul(periods)).unwrap_or(now));
        }
        if self.tokens == 0 {
            self.suppressed += 1;
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// A place in the code that writes log lines; a static of the macros below.
#[derive(Debug)]
pub struct LogSite {
    file: &'static str,
    line: u32,
    bucket: Mutex<TokenBucket>,
}

/// The places that have suppressed lines.
static SUPPRESSING: Mutex<Vec<&'static LogSite>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogSite {
    pub const fn new(file: &'static str, line: u32) -> Self {
        Self { file, line, bucket: Mutex::new(TokenBucket::new()) }
    }

    /// Whether a line may be written now: none if not, else the number of lines suppressed before it, if any.
    pub fn admit(&'static self) -> Option<Option<u64>> {
        let mut bucket = lock(&self.bucket);
        let admitted = bucket.admit(Instant::now());
        if admitted.is_none() && bucket.suppressed == 1 {
            lock(&SUPPRESSING).push(self);
        }
        admitted.map(|suppressed| (suppressed > 0).then_some(suppressed))
    }
}

/// Logs how many lines were suppressed and not reported since.
pub fn report_suppressed() {
    let sites = std::mem::take(&mut *lock(&SUPPRESSING));
    for site in sites {
        let suppressed = std::mem::take(&mut lock(&site.bucket).suppressed);
        if suppressed > 0 {
            tracing::warn!(suppressed, file = site.file, line = site.line, "log lines were suppressed");
        }
    }
}

/// Reports suppressed lines until the task ends.
pub(crate) async fn report_periodically() {
    loop {
        tokio::time::sleep(REPORT_INTERVAL).await;
        report_suppressed();
    }
}

/// The beginning of a text that a peer sent, for a log line.
pub fn clipped(text: &str) -> String {
    let mut clipped: String = text.chars().take(MAX_CHARACTERS).collect();
    if clipped.len() < text.len() {
        clipped.push('…');
    }
    clipped
}

/// `tracing::warn!`, at most a burst of ten lines and then one per second.
#[macro_export]
macro_rules! warn_limited {
    ($($line:tt)+) => { $crate::log_limited!(warn, $($line)+) };
}

/// `tracing::info!`, at most a burst of ten lines and then one per second.
#[macro_export]
macro_rules! info_limited {
    ($($line:tt)+) => { $crate::log_limited!(info, $($line)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! log_limited {
    ($level:ident, $($line:tt)+) => {{
        static SITE: $crate::log_limit::LogSite = $crate::log_limit::LogSite::new(file!(), line!());
        if let Some(suppressed) = SITE.admit() {
            ::tracing::$level!(suppressed, $($line)+);
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million lines in ten seconds: ten at once, then one per second; every other line is counted once.
    #[test]
    fn a_flood_is_ten_lines_and_then_one_per_second() {
        let (mut bucket, begun) = (TokenBucket::new(), Instant::now());
        let mut written = Vec::new();
        let mut suppressed = 0;
        for i in 0..1_000_000u64 {
            let at = Duration::from_micros(10 * i);
            if let Some(count) = bucket.admit(begun + at) {
                written.push(at.as_secs());
                suppressed += count;
            }
        }
        assert_eq!(written, [vec![0; 10], (1..10).collect()].concat());
        assert_eq!(suppressed + bucket.suppressed + written.len() as u64, 1_000_000);
        // After a pause the bucket is full again, and the first line reports the rest.
        let later = begun + Duration::from_secs(3600);
        assert!(bucket.admit(later).is_some_and(|count| count > 0));
        assert_eq!((1..20).filter(|_| bucket.admit(later) == Some(0)).count(), BURST as usize - 1);
        // A clock that steps back neither panics nor refills.
        assert_eq!(bucket.admit(begun), None);
    }

    #[test]
    fn suppressed_lines_are_reported_once() {
        static SITE: LogSite = LogSite::new("here.rs", 1);
        let written = (0..100).filter(|_| SITE.admit().is_some()).count();
        assert!((BURST as usize..BURST as usize + 3).contains(&written), "{written}");
        assert!(lock(&SUPPRESSING).iter().any(|site| std::ptr::eq(*site, &SITE)));
        report_suppressed();
        assert_eq!(lock(&SITE.bucket).suppressed, 0);
        assert!(!lock(&SUPPRESSING).iter().any(|site| std::ptr::eq(*site, &SITE)));
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(clipped("node-3"), "node-3");
        assert_eq!(clipped(&"ä".repeat(1000)).chars().count(), MAX_CHARACTERS + 1);
    }
}
