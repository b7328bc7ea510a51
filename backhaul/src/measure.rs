//! Self-measurement of the relay before a plan is applied: a delay or rate that this machine cannot keep is refused.
//!
//! Bytes pass through the same code and real sockets, without jitter, losses and outages. Other load on the machine
//! makes bytes late, never early; therefore several rounds are made, of which one that meets the plan is enough, and a
//! rate is measured between the least late arrivals of a round (`line_rate`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::lane::{Lane, LaneMetrics};
use crate::profile::Direction;
use crate::wire::Wire;

/// Tolerance of a delay: the larger of this share of it and `DELAY_MS`.
const DELAY_SHARE: f64 = 0.05;
const DELAY_MS: f64 = 0.5;
/// Tolerance of a rate, as a share of it.
const RATE_SHARE: f64 = 0.03;

const DELAY_ROUNDS: usize = 16;
const RATE_ROUNDS: usize = 6;
const PROBES: usize = 21;
const PROBE_BYTES: usize = 64;
const PROBE_GAP: Duration = Duration::from_millis(4);
/// Minimum duration and number of arrivals of a rate measurement.
const RATE_S: f64 = 0.25;
const RATE_ARRIVALS: usize = 32;
const LONGEST: Duration = Duration::from_secs(60);

/// Whether a plan is applied only after a measurement shows that this machine keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    Measured,
    Unmeasured,
}

/// The measured steady part of a direction: median delay, and payload rate if the rate is limited.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct MeasuredDirection {
    pub delay_ms: f64,
    pub rate_mbit_s: Option<f64>,
}

/// Why a direction is refused; `found` is the value of the best round.
#[derive(Debug, thiserror::Error)]
pub enum PlanRefused {
    #[error(
        "a delay of {asked} ms is asked for, {found:.2} ms is what this machine does: it is too slow or too busy"
    )]
    Delay { asked: f64, found: f64 },
    #[error(
        "{asked} Mbit/s is asked for, {found:.1} Mbit/s is what this machine does: ask for less, or for no limit (0)"
    )]
    Rate { asked: f64, found: f64 },
    #[error("the relay cannot measure itself: {0}")]
    Io(#[from] std::io::Error),
    #[error("the relay cannot measure itself: no end after {} s", LONGEST.as_secs())]
    Time,
}

/// Measures the steady part of a direction and refuses it if a tolerance is exceeded.
pub async fn measure(direction: &Direction) -> Result<MeasuredDirection, PlanRefused> {
    direction.judge(found(direction).await?)
}

/// Measures the steady part of a direction.
pub async fn found(direction: &Direction) -> Result<MeasuredDirection, PlanRefused> {
    let steady = direction.steady();
    Ok(tokio::time::timeout(LONGEST, rounds(&steady)).await.map_err(|_| PlanRefused::Time)??)
}

impl Direction {
    fn allowed_ms(&self) -> f64 {
        (self.delay_ms * DELAY_SHARE).max(DELAY_MS)
    }

    /// Checks a measurement against the tolerances.
    fn judge(&self, found: MeasuredDirection) -> Result<MeasuredDirection, PlanRefused> {
        let (asked_ms, asked) = (self.delay_ms, self.rate_mbit_s);
        if (found.delay_ms - asked_ms).abs() > self.allowed_ms() {
            return Err(PlanRefused::Delay { asked: asked_ms, found: found.delay_ms });
        }
        match found.rate_mbit_s {
            Some(rate) if (rate - asked).abs() > asked * RATE_SHARE => {
                Err(PlanRefused::Rate { asked, found: rate })
            }
            _ => Ok(found),
        }
    }
}

async fn rounds(steady: &Direction) -> std::io::Result<MeasuredDirection> {
    let delay_ms = best(DELAY_ROUNDS, || delay_ms(steady), steady.delay_ms, steady.allowed_ms()).await?;
    let asked = steady.rate_mbit_s;
    let rate_mbit_s = match asked {
        0.0 => None,
        _ => Some(best(RATE_ROUNDS, || rate_mbit_s(steady), asked, asked * RATE_SHARE).await?),
    };
    Ok(MeasuredDirection { delay_ms, rate_mbit_s })
}

/// The first value within `allowed` of `asked`, otherwise the nearest.
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

/// Median delay of small messages, without their transmission time.
async fn delay_ms(steady: &Direction) -> std::io::Result<f64> {
    let times_ms = times_ms(steady, PROBES, PROBE_GAP).await?;
    let line_s = steady.bytes_per_s().map_or(0.0, |rate| PROBE_BYTES as f64 / rate);
    Ok(times_ms[PROBES / 2] - line_s * 1e3)
}

/// Sorted delays of small messages that are sent `gap` apart.
pub async fn times_ms(direction: &Direction, probes: usize, gap: Duration) -> std::io::Result<Vec<f64>> {
    let (mut source, mut sink) = through(direction).await?;
    let send = async {
        let mut sent = Vec::with_capacity(probes);
        for _ in 0..probes {
            sent.push(Instant::now());
            source.write_all(&[0; PROBE_BYTES]).await?;
            tokio::time::sleep(gap).await;
        }
        std::io::Result::Ok(sent)
    };
    let receive = async {
        let mut received = Vec::with_capacity(probes);
        let mut probe = [0; PROBE_BYTES];
        for _ in 0..probes {
            sink.read_exact(&mut probe).await?;
            received.push(Instant::now());
        }
        std::io::Result::Ok(received)
    };
    let (sent, received) = tokio::try_join!(send, receive)?;
    let delays = sent.iter().zip(received).map(|(sent, received)| (received - *sent).as_secs_f64() * 1e3);
    let mut times_ms: Vec<f64> = delays.collect();
    times_ms.sort_by(f64::total_cmp);
    Ok(times_ms)
}

/// Payload rate of a continuous stream, measured from the first arrival on.
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

/// Rate of a line in bytes per second from arrivals (time in s, bytes so far); `asked` is the nominal rate.
///
/// A stall of the machine makes bytes late, and the line catches up after it. The lateness of arrivals relative to the
/// nominal rate therefore has a lower envelope that belongs to the line: constant if it keeps the rate, rising if it is
/// slower, falling if it is faster. The rate is taken between the minima of the first and the last quarter.
fn line_rate(arrivals: &[(f64, f64)], asked: f64) -> f64 {
    let late_s = |&(time_s, bytes): &(f64, f64)| time_s - bytes / asked;
    let lowest = |part: &[(f64, f64)]| {
        part.iter().copied().min_by(|a, b| late_s(a).total_cmp(&late_s(b))).unwrap_or_default()
    };
    let quarter = arrivals.len() / 4;
    let (first, last) = (lowest(&arrivals[..quarter]), lowest(&arrivals[arrivals.len() - quarter..]));
    (last.1 - first.1) / (last.0 - first.0)
}

/// Two sockets, connected through a lane.
async fn through(steady: &Direction) -> std::io::Result<(TcpStream, TcpStream)> {
    let wire = Wire::new(*steady, 0, "measure", true, Duration::ZERO);
    let lane = Arc::new(Lane::new(wire, Instant::now(), LaneMetrics::new(&Metrics::new(), "up")));
    let ((source, mut entrance), (mut exit, sink)) = tokio::try_join!(pair(), pair())?;
    tokio::spawn(async move {
        // Fails when the measurement closes its sockets.
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

    /// Arrivals of 1000 bytes each over a line of `rate` bytes per second; `late_s` is their lateness by due time.
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
        // Stalled for 40 of every 60 ms, also at the start and the end; delayed bytes arrive at once.
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
        // A line that falls behind by 1 ms in 20 ms is 5 % slow.
        let behind = found(rate, &|time_s| time_s / 20.0 + stalls(time_s));
        assert!((behind / rate - 1.0 / 1.05).abs() < 2e-3, "{behind}");
    }

    /// Tolerances: 5 % or 0.5 ms of a delay, 3 % of a rate.
    #[test]
    fn what_is_not_met_is_refused_with_figures() {
        let asked = Direction { delay_ms: 20.0, rate_mbit_s: 100.0, ..Direction::default() };
        let judge = |delay_ms, rate| asked.judge(MeasuredDirection { delay_ms, rate_mbit_s: rate });
        for (delay_ms, rate) in [(20.0, 100.0), (20.99, 97.01), (19.01, 102.99)] {
            assert!(judge(delay_ms, Some(rate)).is_ok(), "{delay_ms} ms, {rate} Mbit/s");
        }
        assert!(judge(20.0, None).is_ok());
        let said = |delay_ms, rate| judge(delay_ms, Some(rate)).unwrap_err().to_string();
        assert!(said(21.01, 100.0).starts_with("a delay of 20 ms is asked for, 21.01 ms is what"));
        assert!(said(18.99, 100.0).starts_with("a delay of 20 ms is asked for, 18.99 ms is what"));
        assert!(said(20.0, 96.9).starts_with("100 Mbit/s is asked for, 96.9 Mbit/s is what"));
        assert!(said(20.0, 103.1).starts_with("100 Mbit/s is asked for, 103.1 Mbit/s is what"));
        let near = Direction::default();
        assert!(near.judge(MeasuredDirection { delay_ms: 0.49, rate_mbit_s: None }).is_ok());
        assert!(near.judge(MeasuredDirection { delay_ms: 0.51, rate_mbit_s: None }).is_err());
    }
}
