//! The relay measures itself before it is used: a delay that it cannot keep, or a rate that it cannot reach, is
//! refused instead of pretended.
//!
//! Bytes go through the same code and real sockets, with chance switched off. Whatever else the machine does
//! only makes a relay look worse, so a few rounds are made and one good one shows that it can.

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

const ROUNDS: usize = 5;
const PROBES: usize = 15;
const PROBE_BYTES: usize = 64;
const PROBE_GAP: Duration = Duration::from_millis(4);
/// The rate is measured over this time.
const RATE_S: f64 = 0.25;
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
    let delay_ms = best(|| delay_ms(steady), steady.delay_ms, allowed_ms).await?;
    if (delay_ms - steady.delay_ms).abs() > allowed_ms {
        return Err(Refusal::Delay { asked: steady.delay_ms, found: delay_ms });
    }
    let asked = steady.rate_mbit_s;
    if asked == 0.0 {
        return Ok(Measured { delay_ms, rate_mbit_s: None });
    }
    let rate = best(|| rate_mbit_s(steady), asked, asked * RATE_SHARE).await?;
    if (rate - asked).abs() > asked * RATE_SHARE {
        return Err(Refusal::Rate { asked, found: rate });
    }
    Ok(Measured { delay_ms, rate_mbit_s: Some(rate) })
}

/// The first value within `allowed` of `asked`, or the nearest.
async fn best<F>(once: impl Fn() -> F, asked: f64, allowed: f64) -> std::io::Result<f64>
where
    F: Future<Output = std::io::Result<f64>>,
{
    let mut nearest = f64::INFINITY;
    for _ in 0..ROUNDS {
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
    let (began, mut bytes, mut reads) = (Instant::now(), 0, 0);
    while began.elapsed().as_secs_f64() < RATE_S || reads < 24 {
        match sink.read(&mut buffer).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            more => bytes += more,
        }
        reads += 1;
    }
    let rate = bytes as f64 * 8e-6 / began.elapsed().as_secs_f64();
    send.abort();
    Ok(rate)
}

/// Two sockets with the lane between them.
async fn through(steady: &Direction) -> std::io::Result<(TcpStream, TcpStream)> {
    let wire = Wire::new(*steady, 0, "measure", true, Duration::ZERO);
    let lane = Arc::new(Lane::new(wire, Instant::now(), Instruments::new(&Metrics::new(), "up")));
    let ((source, entrance), (exit, sink)) = tokio::try_join!(pair(), pair())?;
    tokio::spawn(async move {
        let ((from, _keep), (_hold, to)) = (entrance.into_split(), exit.into_split());
        // Ends with the sockets of the measurement.
        let _ = lane.carry(from, to).await;
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
