//! The relay measures itself before it is used: a delay that it cannot keep, or a rate that it cannot reach, is
//! refused instead of pretended.
//!
//! Bytes go through the same code and real sockets, with chance switched off. Whatever else the machine does
//! makes bytes late, never early; so a few rounds are made, one good one shows that the relay can, and a rate is
//! taken between the least late arrivals of a round (`line_rate`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::lane::{Instruments, Lane};
use crate::profile::Direction;
use crate::wire::Wire;

/// A delay must be met to this share, or to this time.
pub const DELAY_SHARE: f64 = 0.05;
/// See [`DELAY_SHARE`].
pub const DELAY_MS: f64 = 0.5;
/// A rate must be met to this share.
pub const RATE_SHARE: f64 = 0.03;

const DELAY_ROUNDS: usize = 16;
const RATE_ROUNDS: usize = 6;
const PROBES: usize = 21;
const PROBE_BYTES: usize = 64;
const PROBE_GAP: Duration = Duration::from_millis(4);
/// The rate is measured over this time and these arrivals, at least.
const RATE_S: f64 = 0.25;
const RATE_ARRIVALS: usize = 32;
const LONGEST: Duration = Duration::from_secs(60);

/// What a direction was measured to do.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Measured {
    /// Median time on the way.
    pub delay_ms: f64,
    /// Payload rate; none without a limit.
    pub rate_mbit_s: Option<f64>,
}

/// Why a direction is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The delay is not kept.
    #[error(
        "a delay of {asked} ms is asked for, {found:.2} ms is what this machine does: it is too slow or too busy"
    )]
    Delay {
        /// Asked for.
        asked: f64,
        /// Found, in the best round.
        found: f64,
    },
    /// The rate is not reached.
    #[error(
        "{asked} Mbit/s is asked for, {found:.1} Mbit/s is what this machine does: ask for less, or for no limit (0)"
    )]
    Rate {
        /// Asked for.
        asked: f64,
        /// Found, in the best round.
        found: f64,
    },
    /// The measurement failed.
    #[error("the relay cannot measure itself: {0}")]
    Io(#[from] std::io::Error),
    /// The measurement did not end.
    #[error("the relay cannot measure itself: no end after {} s", LONGEST.as_secs())]
    Time,
}

/// Measures what does not depend on chance, and refuses what is not met.
pub async fn measure(direction: &Direction) -> Result<Measured, Refusal> {
    let steady = direction.steady();
    tokio::time::timeout(LONGEST, rounds(&steady)).await.map_err(|_| Refusal::Time)?
}

async fn rounds(steady: &Direction) -> Result<Measured, Refusal> {
    let allowed_ms = (steady.delay_ms * DELAY_SHARE).max(DELAY_MS);
    let delay_ms = best(DELAY_ROUNDS, || delay_ms(steady), steady.delay_ms, allowed_ms).await?;
    if (delay_ms - steady.delay_ms).abs() > allowed_ms {
        return Err(Refusal::Delay { asked: steady.delay_ms, found: delay_ms });
    }
    let asked = steady.rate_mbit_s;
    if asked == 0.0 {
        return Ok(Measured { delay_ms, rate_mbit_s: None });
    }
    let rate = best(RATE_ROUNDS, || rate_mbit_s(steady), asked, asked * RATE_SHARE).await?;
    if (rate - asked).abs() > asked * RATE_SHARE {
        return Err(Refusal::Rate { asked, found: rate });
    }
    Ok(Measured { delay_ms, rate_mbit_s: Some(rate) })
}

/// The first value within `allowed` of `asked`, or the nearest.
async fn best<F>(rounds: usize, once: impl Fn() -> F, asked: f64, allowed: f64) -> std::io::Result<f64>
where
    F: Future<Output = std::io::Result<f64>>,
{
    let mut nearest = f64::INFINITY;
    for _ in 0..rounds {
        let found = once().await?;
        if (found - asked).abs() < (nearest - asked).abs() {
            nearest = found;
        }
        if (nearest - asked).abs() <= allowed {
            break;
        }
    }
    Ok(nearest)
}

/// Median time on the way of small messages, less their own time on the line.
async fn delay_ms(steady: &Direction) -> std::io::Result<f64> {
    let (mut source, mut sink) = through(steady).await?;
    let send = async {
        let mut sent = Vec::with_capacity(PROBES);
        for _ in 0..PROBES {
            sent.push(Instant::now());
            source.write_all(&[0; PROBE_BYTES]).await?;
            tokio::time::sleep(PROBE_GAP).await;
        }
        std::io::Result::Ok(sent)
    };
    let receive = async {
        let mut received = Vec::with_capacity(PROBES);
        let mut probe = [0; PROBE_BYTES];
        for _ in 0..PROBES {
            sink.read_exact(&mut probe).await?;
            received.push(Instant::now());
        }
        std::io::Result::Ok(received)
    };
    let (sent, received) = tokio::try_join!(send, receive)?;
    let line_s = steady.bytes_per_s().map_or(0.0, |rate| PROBE_BYTES as f64 / rate);
    let mut times: Vec<f64> =
        sent.iter().zip(received).map(|(sent, received)| (received - *sent).as_secs_f64() - line_s).collect();
    times.sort_by(f64::total_cmp);
    Ok(times[PROBES / 2] * 1e3)
}

/// Payload rate of a stream without end, from the first bytes that arrive on.
async fn rate_mbit_s(steady: &Direction) -> std::io::Result<f64> {
    let (mut source, mut sink) = through(steady).await?;
    let send = tokio::spawn(async move {
        let block = vec![0; 32_768];
        while source.write_all(&block).await.is_ok() {}
    });
    let mut buffer = vec![0; 65_536];
    sink.read_exact(&mut buffer[..1]).await?;
    let (began, mut bytes, mut arrivals) = (Instant::now(), 0, Vec::new());
    while began.elapsed().as_secs_f64() < RATE_S || arrivals.len() < RATE_ARRIVALS {
        match sink.read(&mut buffer).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            more => bytes += more,
        }
        arrivals.push((began.elapsed().as_secs_f64(), bytes as f64));
    }
    send.abort();
    Ok(line_rate(&arrivals, steady.rate_mbit_s * 1e6 / 8.0) * 8e-6)
}

/// Rate of a line in bytes a second, from when how many bytes had arrived; `asked` is what it should be.
///
/// A stall of the machine makes bytes late, and the line catches up behind it. How late an arrival is against
/// the rate asked for therefore has a floor that is the line's own: level if it holds its rate, rising if it is
/// slower, falling if it is faster. The rate is that between the lowest points of the first and the last quarter.
fn line_rate(arrivals: &[(f64, f64)], asked: f64) -> f64 {
    let late_s = |&(time_s, bytes): &(f64, f64)| time_s - bytes / asked;
    let lowest = |part: &[(f64, f64)]| {
        part.iter().copied().min_by(|a, b| late_s(a).total_cmp(&late_s(b))).unwrap_or_default()
    };
    let quarter = arrivals.len() / 4;
    let (first, last) = (lowest(&arrivals[..quarter]), lowest(&arrivals[arrivals.len() - quarter..]));
    (last.1 - first.1) / (last.0 - first.0)
}

/// Two sockets with the lane between them.
async fn through(steady: &Direction) -> std::io::Result<(TcpStream, TcpStream)> {
    let wire = Wire::new(*steady, 0, "measure", true, Duration::ZERO);
    let lane = Arc::new(Lane::new(wire, Instant::now(), Instruments::new(&Metrics::new(), "up")));
    let ((source, mut entrance), (mut exit, sink)) = tokio::try_join!(pair(), pair())?;
    tokio::spawn(async move {
        // Ends with the sockets of the measurement.
        let _ = lane.carry(entrance.split().0, exit.split().1).await;
    });
    Ok((source, sink))
}

async fn pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (near, (far, _)) = tokio::try_join!(TcpStream::connect(address), listener.accept())?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrivals of a line of `rate` bytes a second, 1000 bytes each, of which `late_s` tells how late they are.
    fn arrivals(rate: f64, late_s: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let arrival = |index: u32| {
            let bytes = 1000.0 * f64::from(index);
            (bytes / rate + late_s(bytes / rate), bytes)
        };
        (1..=400).map(arrival).collect()
    }

    #[test]
    fn stalls_do_not_change_the_rate_of_a_line_and_a_slow_line_shows() {
        let rate = 1e6;
        // 40 of every 60 ms stalled, at the beginning and at the end too: all that was held up comes at once.
        let stalls = |time_s: f64| (0.04 - (time_s + 0.03) % 0.06).max(0.0);
        let found = |rate, late: &dyn Fn(f64) -> f64| line_rate(&arrivals(rate, late), 1e6);
        for (real, late, tolerance) in [
            (rate, &(|_| 0.0) as &dyn Fn(f64) -> f64, 1e-9),
            (rate, &stalls, 1e-3),
            (0.96 * rate, &stalls, 1e-3),
            (1.04 * rate, &stalls, 1e-3),
        ] {
            let found = found(real, late);
            assert!((found / real - 1.0).abs() <= tolerance, "{found}, not {real}");
        }
        // One that falls behind by 1 ms in 20 is 5 % slow.
        let behind = found(rate, &|time_s| time_s / 20.0 + stalls(time_s));
        assert!((behind / rate - 1.0 / 1.05).abs() < 2e-3, "{behind}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_possible_is_met() {
        let direction = Direction { delay_ms: 12.0, rate_mbit_s: 20.0, ..Direction::default() };
        let measured = measure(&direction).await.unwrap();
        println!("{measured:?}");
        assert!((measured.delay_ms - 12.0).abs() <= 0.6, "{measured:?}");
        assert!((measured.rate_mbit_s.unwrap() / 20.0 - 1.0).abs() <= 0.03, "{measured:?}");
        assert_eq!(measure(&Direction::default()).await.unwrap().rate_mbit_s, None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_impossible_is_refused_with_figures() {
        let direction = Direction { rate_mbit_s: 100_000.0, ..Direction::default() };
        let refusal = measure(&direction).await.unwrap_err();
        println!("{refusal}");
        assert!(matches!(refusal, Refusal::Rate { asked, found } if asked == 100_000.0 && found < 97_000.0));
    }
}
