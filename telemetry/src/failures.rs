//! When to log an attempt that keeps failing: at once, then repeatedly at growing intervals.
//!
//! A client that retries every second should neither write a line per attempt nor write only one line.
//! This is a state machine with the time passed in; the caller writes the log line.

use std::time::{Duration, Instant};

/// Pause after the first report; doubled after every further one.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause: with attempts a few seconds apart, a failure is reported at least once a minute.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Consecutive failures of an operation that is retried.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    streak: Option<Streak>,
}

#[derive(Debug, Clone)]
struct Streak {
    begun: Instant,
    attempts: u64,
    reason: String,
    reported: Instant,
    pause: Duration,
}

/// What a log line should contain in addition to the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// Number of consecutive failed attempts, including this one.
    pub attempts: u64,
    /// Time since the first of them.
    failing_for: Duration,
}

impl Notice {
    /// Time since the first failure, rounded to 0.1 s for log lines.
    pub fn failing_for_s(&self) -> f64 {
        (self.failing_for.as_secs_f64() * 10.0).round() / 10.0
    }
}

impl Failures {
    /// Records a failed attempt; returns a notice if it should be reported now. The first failure is reported, then one
    /// after every pause; a new reason waits for the shortest pause only.
    pub fn failed(&mut self, now: Instant, reason: &str) -> Option<Notice> {
        let Some(streak) = &mut self.streak else {
            let reason = reason.to_owned();
            self.streak =
                Some(Streak { begun: now, attempts: 1, reason, reported: now, pause: SHORTEST_PAUSE });
            return Some(Notice { attempts: 1, failing_for: Duration::ZERO });
        };
        streak.attempts = streak.attempts.saturating_add(1);
        let silent = now.saturating_duration_since(streak.reported);
        let due = if streak.reason == reason { streak.pause } else { SHORTEST_PAUSE };
        if silent < due {
            return None;
        }
        streak.pause = (streak.pause * 2).min(LONGEST_PAUSE);
        streak.reported = now;
        streak.reason = reason.to_owned();
        Some(streak.notice(now))
    }

    /// Whether the last attempt failed.
    pub fn failing(&self) -> bool {
        self.streak.is_some()
    }

    /// Records a successful attempt, which ends the consecutive failures; returns a notice of them, if there were any.
    pub fn succeeded(&mut self, now: Instant) -> Option<Notice> {
        self.streak.take().map(|streak| streak.notice(now))
    }
}

impl Streak {
    fn notice(&self, now: Instant) -> Notice {
        Notice { attempts: self.attempts, failing_for: now.saturating_duration_since(self.begun) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds at which a failure is reported that occurs every `period_s`, over `total_s`.
    fn reported(failures: &mut Failures, period_s: f64, total_s: f64) -> Vec<(f64, u64)> {
        let begun = Instant::now();
        let attempts = (total_s / period_s) as u64;
        let times = (0..attempts).map(|i| i as f64 * period_s);
        times
            .filter_map(|at_s| {
                let notice = failures.failed(begun + Duration::from_secs_f64(at_s), "no such host")?;
                assert!((notice.failing_for.as_secs_f64() - at_s).abs() < 1e-6);
                Some((at_s, notice.attempts))
            })
            .collect()
    }

    #[test]
    fn a_failure_is_reported_at_once_and_again_at_growing_pauses() {
        let reported = reported(&mut Failures::default(), 0.5, 100.0);
        let expected =
            [(0.0, 1), (1.0, 3), (3.0, 7), (7.0, 15), (15.0, 31), (31.0, 63), (61.0, 123), (91.0, 183)];
        assert_eq!(reported, expected);
    }

    #[test]
    fn it_is_never_silent_for_a_minute_and_never_a_line_per_attempt() {
        for period_s in [0.05, 0.7, 1.0, 2.9, 10.0] {
            let hour = reported(&mut Failures::default(), period_s, 3600.0);
            let pauses = hour.windows(2).map(|pair| pair[1].0 - pair[0].0);
            assert!(pauses.fold(0.0, f64::max) < 60.0, "attempts every {period_s} s");
            assert!(hour.len() < 130, "{} lines in an hour, attempts every {period_s} s", hour.len());
        }
    }

    #[test]
    fn another_reason_is_told_soon_but_two_that_alternate_do_not_flood() {
        let mut failures = Failures::default();
        let begun = Instant::now();
        let at = |s: f64| begun + Duration::from_secs_f64(s);
        assert!(failures.failed(at(0.0), "no such host").is_some());
        assert!(failures.failed(at(1.0), "no such host").is_some());
        assert!(failures.failed(at(2.1), "no such host").is_none(), "the pause has grown to two seconds");
        assert_eq!(failures.failed(at(2.2), "refused").unwrap().attempts, 4);
        assert!(failures.failed(at(2.3), "no such host").is_none());
        assert!(failures.failed(at(2.4), "refused").is_none());
    }

    #[test]
    fn after_a_success_the_first_failure_is_reported_at_once() {
        let mut failures = Failures::default();
        let begun = Instant::now();
        assert_eq!(failures.succeeded(begun), None);
        for s in 0..5 {
            failures.failed(begun + Duration::from_secs(s), "refused");
        }
        let before = failures.succeeded(begun + Duration::from_secs(9)).unwrap();
        assert_eq!(before, Notice { attempts: 5, failing_for: Duration::from_secs(9) });
        assert_eq!(failures.failed(begun + Duration::from_secs(9), "refused").unwrap().attempts, 1);
    }
}
