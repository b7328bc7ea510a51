//! What one direction of a link does to bytes, and the profiles that have a name.
//!
//! Numbers are of one direction. The five profiles stand for kinds of links between radio sites and a data
//! centre, with round numbers inside what such links show; they are a common language for tables, not a
//! claim about any one network. All rates are ones that a relay on a small machine can hold.

use serde::{Deserialize, Serialize};

/// Bytes of one segment: what a loss costs.
pub const SEGMENT_BYTES: usize = 1448;

/// How jitter is distributed; `jitter_ms` is its standard deviation under every law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Law {
    /// About the delay, bell-shaped.
    #[default]
    Normal,
    /// About the delay, between two limits.
    Uniform,
    /// On top of the delay: a queue with random arrivals.
    Exponential,
    /// On top of the delay, with a heavy tail (Lomax of shape 3).
    Pareto,
}

/// What one direction of a link does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Direction {
    /// Time on the way.
    pub delay_ms: f64,
    /// Standard deviation of that time.
    pub jitter_ms: f64,
    /// Law of the jitter.
    pub jitter_law: Law,
    /// Payload bits per second, in millions; 0 means no limit.
    pub rate_mbit_s: f64,
    /// Bytes that may be on the way or wait; then the sender is held back.
    pub buffer_kib: usize,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// How long a lost segment, and all behind it, waits to be sent again; doubles if it is lost again.
    pub retransmit_ms: f64,
    /// Mean time between outages; 0 means that there are none.
    pub outage_every_s: f64,
    /// Length of an outage: nothing arrives in it, what was sent arrives after it.
    pub outage_s: f64,
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            delay_ms: 0.0,
            jitter_ms: 0.0,
            jitter_law: Law::Normal,
            rate_mbit_s: 0.0,
            buffer_kib: 4096,
            loss: 0.0,
            retransmit_ms: 200.0,
            outage_every_s: 0.0,
            outage_s: 0.0,
        }
    }
}

/// Why a direction cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{key} = {value}: must be {allowed}")]
pub struct Impossible {
    key: &'static str,
    value: f64,
    allowed: &'static str,
}

impl Direction {
    /// Checks every number; a jitter that would have to be cut off at zero is refused.
    pub fn validate(&self) -> Result<(), Impossible> {
        let within = |key, value: f64, least: f64, most: f64, allowed| {
            let fits = (least..=most).contains(&value);
            fits.then_some(()).ok_or(Impossible { key, value, allowed })
        };
        within("delay_ms", self.delay_ms, 0.0, 10_000.0, "0 to 10000")?;
        let (widest, allowed) = match self.jitter_law {
            Law::Normal => (self.delay_ms / 3.0, "at most a third of delay_ms under the normal law"),
            Law::Uniform => (self.delay_ms / 3f64.sqrt(), "at most delay_ms / 1.74 under the uniform law"),
            Law::Exponential | Law::Pareto => (10_000.0, "0 to 10000"),
        };
        within("jitter_ms", self.jitter_ms, 0.0, widest, allowed)?;
        let slowest = if self.rate_mbit_s == 0.0 { 0.0 } else { 0.1 };
        within("rate_mbit_s", self.rate_mbit_s, slowest, 100_000.0, "0 (no limit) or 0.1 to 100000")?;
        within("buffer_kib", self.buffer_kib as f64, 16.0, 65_536.0, "16 to 65536")?;
        within("loss", self.loss, 0.0, 0.5, "0 to 0.5")?;
        within("retransmit_ms", self.retransmit_ms, 1.0, 60_000.0, "1 to 60000")?;
        within("outage_every_s", self.outage_every_s, 0.0, 86_400.0, "0 to 86400")?;
        within("outage_s", self.outage_s, 0.0, 3600.0, "0 to 3600")
    }

    /// The part that does not depend on chance.
    pub fn steady(&self) -> Self {
        Self { jitter_ms: 0.0, loss: 0.0, outage_every_s: 0.0, outage_s: 0.0, ..*self }
    }

    /// Payload bytes per second; none means no limit.
    pub fn bytes_per_s(&self) -> Option<f64> {
        (self.rate_mbit_s > 0.0).then_some(self.rate_mbit_s * 1e6 / 8.0)
    }
}

/// Names of the profiles.
pub const NAMES: [&str; 6] = ["clear", "fibre", "microwave", "5g-fronthaul", "congested", "flaky"];

/// The profile of that name: towards the fusion center, and back.
pub fn named(name: &str) -> Option<(Direction, Direction)> {
    let both = |direction: Direction| Some((direction, direction));
    match name {
        // Nothing but the relay itself.
        "clear" => both(Direction::default()),
        // Some 150 km of glass and a few switches.
        "fibre" => both(Direction {
            delay_ms: 1.0,
            jitter_ms: 0.05,
            jitter_law: Law::Normal,
            rate_mbit_s: 500.0,
            ..Direction::default()
        }),
        // Two radio hops; a fade costs a segment now and then.
        "microwave" => both(Direction {
            delay_ms: 3.0,
            jitter_ms: 0.5,
            jitter_law: Law::Uniform,
            rate_mbit_s: 200.0,
            loss: 1e-5,
            retransmit_ms: 20.0,
            ..Direction::default()
        }),
        // Switched Ethernet from a radio unit: short, wide, hardly any queue.
        "5g-fronthaul" => both(Direction {
            delay_ms: 0.25,
            jitter_ms: 0.02,
            jitter_law: Law::Exponential,
            rate_mbit_s: 800.0,
            ..Direction::default()
        }),
        // A shared line at rush hour: the way up is narrow, queues are long and have a heavy tail.
        "congested" => Some((
            Direction {
                delay_ms: 20.0,
                jitter_ms: 8.0,
                jitter_law: Law::Pareto,
                rate_mbit_s: 40.0,
                buffer_kib: 512,
                loss: 2e-4,
                retransmit_ms: 80.0,
                ..Direction::default()
            },
            Direction {
                delay_ms: 20.0,
                jitter_ms: 4.0,
                jitter_law: Law::Pareto,
                rate_mbit_s: 100.0,
                buffer_kib: 512,
                loss: 1e-4,
                retransmit_ms: 80.0,
                ..Direction::default()
            },
        )),
        // Works most of the time.
        "flaky" => both(Direction {
            delay_ms: 8.0,
            jitter_ms: 2.0,
            jitter_law: Law::Normal,
            rate_mbit_s: 100.0,
            loss: 1e-3,
            retransmit_ms: 200.0,
            outage_every_s: 8.0,
            outage_s: 1.0,
            ..Direction::default()
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_possible_profile() {
        for name in NAMES {
            let (up, down) = named(name).unwrap();
            assert_eq!((up.validate(), down.validate()), (Ok(()), Ok(())), "{name}");
        }
        assert!(named("satellite").is_none());
    }

    #[test]
    fn what_would_have_to_be_cut_off_is_refused() {
        let refused = |direction: Direction| direction.validate().unwrap_err().to_string();
        let base = Direction { delay_ms: 3.0, ..Direction::default() };
        assert_eq!(
            refused(Direction { jitter_ms: 1.5, ..base }),
            "jitter_ms = 1.5: must be at most a third of delay_ms under the normal law"
        );
        assert!(refused(Direction { jitter_ms: 2.0, jitter_law: Law::Uniform, ..base }).contains("uniform"));
        assert!(Direction { jitter_ms: 9.0, jitter_law: Law::Pareto, ..base }.validate().is_ok());
        assert!(refused(Direction { loss: f64::NAN, ..base }).starts_with("loss = NaN"));
        assert!(refused(Direction { rate_mbit_s: 0.01, ..base }).starts_with("rate_mbit_s = 0.01"));
    }
}
