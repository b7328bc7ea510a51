//! The distributions of every named profile, in virtual time: wires are pure and use neither clock nor socket.
//! How well a machine keeps them is measured by `hyloc backhaul measure` and not asserted anywhere.

use std::time::Duration;

use hyloc_backhaul::profile::{Direction, Law, NAMES, SEGMENT_BYTES, named};
use hyloc_backhaul::wire::{Outages, Wire};

const SEED: u64 = 3;

/// Every direction of every profile: name, whether upwards, parameters.
fn directions() -> impl Iterator<Item = (&'static str, bool, Direction)> {
    NAMES.into_iter().flat_map(|name| {
        let (up, down) = named(name).unwrap();
        [(name, true, up), (name, false, down)]
    })
}

fn wire(direction: Direction, name: &str, upwards: bool) -> Wire {
    Wire::new(direction, SEED, name, upwards, Duration::ZERO)
}

/// Cumulative distribution of a law of standard deviation one.
fn below(law: Law, x: f64) -> f64 {
    match law {
        Law::Normal => 0.5 * (1.0 + erf(x / 2f64.sqrt())),
        Law::Uniform => (0.5 + x / (2.0 * 3f64.sqrt())).clamp(0.0, 1.0),
        Law::Exponential => 1.0 - (-x.max(0.0)).exp(),
        Law::Pareto => 1.0 - (1.0 + x.max(0.0) * 3f64.sqrt() / 2.0).powi(-3),
    }
}

/// Series of the error function; accurate to 1e-9 within six standard deviations.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

/// Delay and jitter: the delays of 20 000 messages, one per second, follow the profile's law. The Kolmogorov-Smirnov
/// distance stays below 1.95 / sqrt(20 000) = 0.0138, which the true law exceeds once in 1000; a standard deviation that
/// is 5 % off, or a delay that is off by 4 % of it, exceeds it.
#[test]
fn delay_and_jitter_follow_the_law() {
    const MESSAGES: u32 = 20_000;
    for (name, upwards, direction) in directions() {
        let quiet = Direction { loss: 0.0, outage_every_s: 0.0, rate_mbit_s: 0.0, ..direction };
        let mut wire = wire(quiet, name, upwards);
        let spent = |index: u32| {
            let now = Duration::from_secs(u64::from(index));
            (wire.release(now, 64) - now).as_secs_f64() * 1e3
        };
        let mut times: Vec<f64> = (0..MESSAGES).map(spent).collect();
        if direction.jitter_ms == 0.0 {
            assert!(times.iter().all(|time| (time - direction.delay_ms).abs() < 1e-6), "{name}");
            continue;
        }
        times.sort_by(f64::total_cmp);
        let n = f64::from(MESSAGES);
        let distance = (0..MESSAGES).zip(&times).map(|(index, time)| {
            let law = below(direction.jitter_law, (time - direction.delay_ms) / direction.jitter_ms);
            (law - f64::from(index) / n).abs().max((law - f64::from(index + 1) / n).abs())
        });
        let distance = distance.fold(0.0, f64::max);
        assert!(distance < 1.95 / n.sqrt(), "{name}, upwards {upwards}: {distance}");
    }
}

/// Rate: 1000 segments that enter at once leave one by one, each one transmission time after the previous one.
#[test]
fn the_rate_is_exact() {
    for (name, upwards, direction) in directions() {
        let mut wire = wire(direction.steady(), name, upwards);
        let per_segment_s = direction.bytes_per_s().map_or(0.0, |rate| SEGMENT_BYTES as f64 / rate);
        for index in 1..=1000 {
            let left_s = wire.release(Duration::ZERO, SEGMENT_BYTES).as_secs_f64();
            let due_s = direction.delay_ms * 1e-3 + f64::from(index) * per_segment_s;
            assert!((left_s - due_s).abs() < 2e-6, "{name}, upwards {upwards}: {left_s} s, not {due_s} s");
        }
    }
}

/// Loss: the number of losses among 400 000 segments is that of the profile, within 4 sigma of a Poisson law.
#[test]
fn losses_are_as_frequent_as_said() {
    const SEGMENTS: u32 = 400_000;
    for (name, upwards, direction) in directions() {
        let mut wire = wire(direction, name, upwards);
        let mut now = Duration::ZERO;
        for _ in 0..SEGMENTS {
            now = wire.release(now, SEGMENT_BYTES);
        }
        let expected = f64::from(SEGMENTS) * direction.loss;
        let off = (wire.losses as f64 - expected).abs();
        assert!(off <= 4.0 * expected.sqrt(), "{name}, upwards {upwards}: {} lost", wire.losses);
    }
}

/// A loss delays its segment, and all later ones, by the retransmission time, plus twice and four times that if it is
/// lost again; nothing else delays it. With one segment per minute none waits for another.
#[test]
fn a_loss_stalls_by_the_time_to_send_again() {
    for (name, upwards, direction) in directions().filter(|(.., direction)| direction.loss > 0.0) {
        let lossy = Direction { loss: 0.05, ..direction.steady() };
        let lossy = Direction { retransmit_ms: direction.retransmit_ms, ..lossy };
        let mut wire = wire(lossy, name, upwards);
        let line_ms = lossy.bytes_per_s().map_or(0.0, |rate| SEGMENT_BYTES as f64 / rate * 1e3);
        let mut counts = [0_u32; 3];
        for minute in 0..20_000 {
            let now = Duration::from_secs(60 * minute);
            let spent_ms = (wire.release(now, SEGMENT_BYTES) - now).as_secs_f64() * 1e3;
            let stalls = (spent_ms - lossy.delay_ms - line_ms) / lossy.retransmit_ms;
            // 1 + 2 + 4 + ... = 2^n - 1 after n losses in a row.
            let losses = (stalls + 1.0).log2();
            assert!((losses - losses.round()).abs() < 1e-3, "{name}: stalled by {stalls} times");
            if let Some(count) = counts.get_mut(losses.round() as usize) {
                *count += 1;
            }
        }
        // 950 once and 47.5 twice are expected of 20 000; 4 sigma.
        assert!(counts[1].abs_diff(950) < 4 * 30, "{name}, upwards {upwards}: {counts:?}");
        assert!((20..=75).contains(&counts[2]), "{name}, upwards {upwards}: {counts:?}");
    }
}

/// Order: with all impairments, bytes that enter later never leave earlier, for any size and pace.
#[test]
fn the_order_of_bytes_is_kept() {
    for (name, upwards, direction) in directions() {
        let mut wire = wire(direction, name, upwards);
        let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
        for index in 0..50_000_u64 {
            // Bursts and pauses of a fixed pattern.
            now += Duration::from_micros(index * 7919 % 3000);
            let left = wire.release(now, 1 + (index * 104_729 % 20_000) as usize);
            assert!(left >= last && left >= now, "{name}, upwards {upwards}: message {index}");
            last = left;
        }
    }
}

/// Outages: both directions of the flaky profile have the same outages, which follow from the seed; bytes due in one
/// leave at its end. The mean of 400 gaps is known to 5 %, the limit is 4 sigma.
#[test]
fn outages_come_when_the_seed_says() {
    let (up, down) = named("flaky").unwrap();
    let windows: Vec<_> = Outages::of(&up, SEED, "flaky").take(401).collect();
    for (upwards, direction) in [(true, up), (false, down)] {
        let quiet = Direction { jitter_ms: 0.0, loss: 0.0, ..direction };
        let mut wire = wire(quiet, "flaky", upwards);
        let on_the_way = Duration::from_secs_f64(quiet.delay_ms * 1e-3 + 64.0 / quiet.bytes_per_s().unwrap());
        for index in 0..200_000 {
            let now = Duration::from_millis(10 * index);
            let left = wire.release(now, 64);
            let due = now + on_the_way;
            let expected = windows.iter().find(|(begins, ends)| (*begins..*ends).contains(&due));
            assert_eq!(left, expected.map_or(due, |(_, ends)| *ends), "upwards {upwards}: {now:?}");
        }
    }
    let gaps = windows.windows(2).map(|pair| (pair[1].0 - pair[0].1).as_secs_f64());
    let mean_s = gaps.sum::<f64>() / 400.0;
    assert!((mean_s / up.outage_every_s - 1.0).abs() < 0.2, "{mean_s} s between outages");
    assert!(windows.iter().all(|(begins, ends)| *ends - *begins == Duration::from_secs_f64(up.outage_s)));
}
