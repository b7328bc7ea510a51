//! When bytes that enter one direction of a link leave it: pure, seeded, in virtual time.
//!
//! Bytes pass, in this order, a rate limit, a delay with jitter, losses with retransmission, and outages. The order of
//! bytes is kept, as in TCP: delayed bytes delay all later ones.

use std::time::Duration;

use model::random::{Purpose, Stream, index_of, stream};
use rand::RngExt;
use rand_distr::StandardNormal;

use crate::profile::{Direction, Law, SEGMENT_BYTES};

/// Bytes that enter within this time share one draw of the jitter, because queues change slowly.
const REDRAW: Duration = Duration::from_millis(2);

/// Maximum number of consecutive losses of a segment.
const MOST_LOSSES: u32 = 6;

/// One direction of a link. All times count from a common origin.
#[derive(Debug)]
pub struct Wire {
    direction: Direction,
    draws: Stream,
    outages: Outages,
    jitter_s: f64,
    drawn: Option<Duration>,
    line_free: Duration,
    last: Duration,
    /// Segments lost so far.
    pub losses: u64,
}

impl Wire {
    /// The wire of link `name`, upwards or downwards, under `seed`.
    pub fn new(direction: Direction, seed: u64, name: &str, upwards: bool, now: Duration) -> Self {
        let link = index_of(name);
        Self {
            direction,
            draws: stream(seed, Purpose::Backhaul, [link, u64::from(upwards)]),
            outages: Outages::new(&direction, seed, link, now),
            jitter_s: 0.0,
            drawn: None,
            line_free: now,
            last: now,
            losses: 0,
        }
    }

    pub fn direction(&self) -> &Direction {
        &self.direction
    }

    /// Changes the parameters for bytes that enter from now on.
    pub fn change(&mut self, direction: Direction, seed: u64, name: &str, now: Duration) {
        if direction != self.direction {
            self.direction = direction;
            self.drawn = None;
            self.outages = Outages::new(&direction, seed, index_of(name), now);
        }
    }

    /// When bytes that enter at `now` leave; never before earlier ones.
    pub fn release(&mut self, now: Duration, bytes: usize) -> Duration {
        let sent = self.line(now, bytes);
        let delay_s = (self.direction.delay_ms * 1e-3 + self.jitter(now)).max(0.0);
        let stalled_s = self.stall(bytes);
        let due = sent + Duration::from_secs_f64(delay_s + stalled_s);
        self.last = self.outages.after(due.max(self.last));
        self.last
    }

    /// When the last of these bytes has been transmitted.
    fn line(&mut self, now: Duration, bytes: usize) -> Duration {
        self.line_free = self.line_free.max(now);
        if let Some(rate) = self.direction.bytes_per_s() {
            self.line_free += Duration::from_secs_f64(bytes as f64 / rate);
        }
        self.line_free
    }

    fn jitter(&mut self, now: Duration) -> f64 {
        if self.direction.jitter_ms > 0.0 && self.drawn.is_none_or(|drawn| now >= drawn + REDRAW) {
            self.drawn = Some(now);
            self.jitter_s = self.direction.jitter_law.draw(&mut self.draws) * self.direction.jitter_ms * 1e-3;
        }
        if self.direction.jitter_ms > 0.0 { self.jitter_s } else { 0.0 }
    }

    fn stall(&mut self, bytes: usize) -> f64 {
        let loss = self.direction.loss;
        if loss <= 0.0 {
            return 0.0;
        }
        let segments = (bytes as f64 / SEGMENT_BYTES as f64).max(1.0);
        let mut stalled_s = 0.0;
        let mut wait_s = self.direction.retransmit_ms * 1e-3;
        let mut chance = 1.0 - (1.0 - loss).powf(segments);
        for _ in 0..MOST_LOSSES {
            if self.draws.random::<f64>() >= chance {
                break;
            }
            self.losses += 1;
            stalled_s += wait_s;
            wait_s *= 2.0;
            chance = loss;
        }
        stalled_s
    }
}

impl Law {
    /// Median and interquartile range at standard deviation one.
    pub fn median_and_range(self) -> (f64, f64) {
        let lomax = |p: f64| 2.0 / 3f64.sqrt() * ((1.0 - p).powf(-1.0 / 3.0) - 1.0);
        match self {
            Self::Normal => (0.0, 1.348_979_500_392_163),
            Self::Uniform => (0.0, 3f64.sqrt()),
            Self::Exponential => (2f64.ln(), 3f64.ln()),
            Self::Pareto => (lomax(0.5), lomax(0.75) - lomax(0.25)),
        }
    }

    /// A draw with standard deviation one.
    pub fn draw(self, draws: &mut Stream) -> f64 {
        let mut uniform = || draws.random::<f64>();
        match self {
            Self::Uniform => 3f64.sqrt() * (2.0 * uniform() - 1.0),
            Self::Exponential => -(1.0 - uniform()).ln(),
            // Lomax of shape 3 and scale s: standard deviation s sqrt(3) / 2.
            Self::Pareto => 2.0 / 3f64.sqrt() * ((1.0 - uniform()).powf(-1.0 / 3.0) - 1.0),
            Self::Normal => draws.sample(StandardNormal),
        }
    }
}

/// Successive outages of a link. Both directions have the same ones if their parameters are equal, because the random
/// stream depends only on the link.
#[derive(Debug)]
pub struct Outages {
    draws: Stream,
    every_s: f64,
    length: Duration,
    begins: Duration,
}

impl Outages {
    fn new(direction: &Direction, seed: u64, link: u64, now: Duration) -> Self {
        let mut outages = Self {
            draws: stream(seed, Purpose::Backhaul, [link, 2]),
            every_s: direction.outage_every_s,
            length: Duration::from_secs_f64(direction.outage_s),
            begins: now,
        };
        outages.begins = now + outages.gap();
        outages
    }

    /// The outages of link `name` from time zero on.
    pub fn of(direction: &Direction, seed: u64, name: &str) -> Self {
        Self::new(direction, seed, index_of(name), Duration::ZERO)
    }

    fn gap(&mut self) -> Duration {
        Duration::from_secs_f64(Law::Exponential.draw(&mut self.draws) * self.every_s)
    }

    /// `time`, or the end of the outage that contains it. Successive times must not decrease.
    fn after(&mut self, time: Duration) -> Duration {
        if self.every_s <= 0.0 || self.length.is_zero() {
            return time;
        }
        while time >= self.begins + self.length {
            self.begins = self.begins + self.length + self.gap();
        }
        if time >= self.begins { self.begins + self.length } else { time }
    }
}

impl Iterator for Outages {
    type Item = (Duration, Duration);

    fn next(&mut self) -> Option<Self::Item> {
        let window = (self.begins, self.begins + self.length);
        self.begins = window.1 + self.gap();
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 8;

    fn wire(direction: Direction) -> Wire {
        Wire::new(direction, SEED, "west", true, Duration::ZERO)
    }

    fn ms(value: f64) -> Duration {
        Duration::from_secs_f64(value * 1e-3)
    }

    /// Delays in ms of `count` messages that are too far apart to affect each other.
    fn times(direction: Direction, count: u32, bytes: usize) -> Vec<f64> {
        let mut wire = wire(direction);
        let spent = |index| {
            let now = Duration::from_secs(index);
            (wire.release(now, bytes) - now).as_secs_f64() * 1e3
        };
        (0..u64::from(count)).map(spent).collect()
    }

    fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
    }

    /// 20 000 draws: the mean is known to 0.7 % of the deviation, the deviation to 0.5 % (normal), 1.4 %
    /// (exponential); the fourth moment of the Pareto law does not exist, therefore its median is checked as well.
    #[test]
    fn jitter_follows_its_law() {
        let base = Direction { delay_ms: 40.0, jitter_ms: 10.0, ..Direction::default() };
        let cases = [
            (Law::Normal, 40.0, 40.0, 0.03),
            (Law::Uniform, 40.0, 40.0, 0.03),
            (Law::Exponential, 50.0, 40.0 + 10.0 * 2f64.ln(), 0.05),
            (Law::Pareto, 40.0 + 10.0 / 3f64.sqrt(), 40.0 + 20.0 / 3f64.sqrt() * (2f64.cbrt() - 1.0), 0.2),
        ];
        for (law, mean, median, tolerance) in cases {
            let mut values = times(Direction { jitter_law: law, ..base }, 20_000, 100);
            let (found, deviation) = mean_and_deviation(&values);
            values.sort_by(f64::total_cmp);
            assert!((found - mean).abs() < 0.3, "{law:?}: mean {found}, expected {mean}");
            assert!((values[10_000] - median).abs() < 0.4, "{law:?}: median {}", values[10_000]);
            assert!((deviation / 10.0 - 1.0).abs() < tolerance, "{law:?}: deviation {deviation}");
            assert!(values[0] >= 0.0);
        }
    }

    #[test]
    fn the_line_holds_its_rate_and_order() {
        let mut wire = wire(Direction {
            delay_ms: 5.0,
            jitter_ms: 10.0,
            jitter_law: Law::Exponential,
            rate_mbit_s: 8.0,
            ..Direction::default()
        });
        let out: Vec<Duration> =
            (0..2000).map(|index| wire.release(ms(f64::from(index) * 0.5), 1000)).collect();
        assert!(out.is_sorted());
        // 2000 messages of 1 ms each, all offered within one second.
        let last_ms = out[1999].as_secs_f64() * 1e3;
        assert!((2005.0..2110.0).contains(&last_ms), "{last_ms}");
        let idle = wire.release(Duration::from_secs(60), 1000) - Duration::from_secs(60);
        assert!(idle < ms(200.0), "an idle line has nothing to catch up on: {idle:?}");
    }

    /// Loss of 1 % over 20 000 segments: 200 expected, standard deviation 14.
    #[test]
    fn losses_stall_by_the_time_to_send_again() {
        let direction = Direction { delay_ms: 5.0, loss: 0.01, retransmit_ms: 200.0, ..Direction::default() };
        let values = times(direction, 20_000, SEGMENT_BYTES);
        let stalled = values.iter().filter(|value| **value > 100.0).count();
        assert!((140..=260).contains(&stalled), "{stalled} stalls");
        assert!(values.iter().all(|v| (v - 5.0).abs() < 1e-6 || (v - 205.0).abs() < 1e-6 || *v > 604.0));
        // Ten segments at once are lost about ten times as often.
        let many = times(direction, 2_000, 10 * SEGMENT_BYTES).iter().filter(|value| **value > 100.0).count();
        assert!((140..=250).contains(&many), "{many} stalls");
    }

    #[test]
    fn nothing_arrives_in_an_outage_and_all_of_it_after() {
        let direction = Direction { outage_every_s: 4.0, outage_s: 1.0, ..Direction::default() };
        let windows: Vec<_> = Outages::of(&direction, SEED, "west").take(200).collect();
        let mut wire = wire(direction);
        for index in 0..100_000 {
            let now = ms(f64::from(index) * 5.0);
            let out = wire.release(now, 100);
            match windows.iter().find(|(begins, ends)| (*begins..*ends).contains(&now)) {
                Some((_, ends)) => assert_eq!(out, *ends),
                None => assert_eq!(out, now),
            }
        }
        let gaps: Vec<f64> = windows.windows(2).map(|pair| (pair[1].0 - pair[0].1).as_secs_f64()).collect();
        let (mean, _) = mean_and_deviation(&gaps);
        // 199 exponential gaps: the mean is known to 7 %.
        assert!((mean / 4.0 - 1.0).abs() < 0.21, "{mean} s between outages");
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let (up, _) = crate::profile::named("flaky").unwrap();
        assert_eq!(times(up, 500, 3000), times(up, 500, 3000));
        let mut other = Wire::new(up, SEED + 1, "west", true, Duration::ZERO);
        let mut down = Wire::new(up, SEED, "west", false, Duration::ZERO);
        let mut this = wire(up);
        assert_ne!(this.release(Duration::ZERO, 1), other.release(Duration::ZERO, 1));
        assert_ne!(this.release(ms(50.0), 1), down.release(ms(50.0), 1));
    }

    #[test]
    fn a_change_keeps_the_order() {
        let mut wire = wire(Direction { delay_ms: 500.0, ..Direction::default() });
        let slow = wire.release(ms(0.0), 10);
        wire.change(Direction::default(), SEED, "west", ms(1.0));
        assert_eq!(wire.release(ms(2.0), 10), slow);
        assert_eq!(wire.release(ms(600.0), 10), ms(600.0));
    }
}
