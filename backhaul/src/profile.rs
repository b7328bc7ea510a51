//! Parameters of one direction of a link, and named profiles.
//!
//! Parameters are per direction. The profiles represent kinds of links between radio sites and a data centre with
//! typical round numbers; they are labels for tables, not a claim about any particular network. A relay on a small
//! machine can keep all rates.

use serde::{Deserialize, Serialize};

/// Bytes of one TCP segment, the unit of losses.
pub const SEGMENT_BYTES: usize = 1448;

/// Distribution of the jitter; `jitter_ms` is its standard deviation under every law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Law {
    /// Around the delay.
    #[default]
    Normal,
    /// Around the delay, between two limits.
    Uniform,
    /// In addition to the delay: a queue with random arrivals.
    Exponential,
    /// In addition to the delay, with a heavy tail (Lomax of shape 3).
    Pareto,
}

/// Parameters of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Direction {
    pub delay_ms: f64,
    /// Standard deviation of the delay.
    pub jitter_ms: f64,
    pub jitter_law: Law,
    /// Payload rate; 0 means no limit.
    pub rate_mbit_s: f64,
    /// Bytes in transit or queued at which the sender is blocked.
    pub buffer_kib: usize,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// Time until a lost segment is retransmitted, which delays all later bytes; doubles with each repeated loss.
    pub retransmit_ms: f64,
    /// Mean time between outages; 0 means no outages.
    pub outage_every_s: f64,
    /// Duration of an outage; bytes sent during it arrive after it.
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

/// A parameter is outside its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{key} = {value}: must be {allowed}")]
pub struct Impossible {
    key: &'static str,
    value: f64,
    allowed: &'static str,
}

impl Direction {
    /// Checks every parameter; a jitter that would need truncation at zero is refused.
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

    /// The same direction without jitter, losses and outages.
    pub fn steady(&self) -> Self {
        Self { jitter_ms: 0.0, loss: 0.0, outage_every_s: 0.0, outage_s: 0.0, ..*self }
    }

    /// Payload bytes per second; none means no limit.
    pub fn bytes_per_s(&self) -> Option<f64> {
        (self.rate_mbit_s > 0.0).then_some(self.rate_mbit_s * 1e6 / 8.0)
    }
}

pub const NAMES: [&str; 6] = ["clear", "fibre", "microwave", "5g-fronthaul", "congested", "flaky"];

/// The profile of this name: direction towards the fusion center, and back.
pub fn named(name: &str) -> Option<(Direction, Direction)> {
    let both = |direction: Direction| Some((direction, direction));
    match name {
        // No impairment.
        "clear" => both(Direction::default()),
        // About 150 km of fibre and a few switches.
        "fibre" => both(Direction {
            delay_ms: 1.0,
            jitter_ms: 0.05,
            jitter_law: Law::Normal,
            rate_mbit_s: 500.0,
            ..Direction::default()
        }),
        // Two radio hops; fading occasionally loses a segment.
        "microwave" => both(Direction {
            delay_ms: 3.0,
            jitter_ms: 0.5,
            jitter_law: Law::Uniform,
            rate_mbit_s: 200.0,
            loss: 1e-5,
            retransmit_ms: 20.0,
            ..Direction::default()
        }),
        // Switched Ethernet from a radio unit: short delay, high rate, almost no queueing.
        "5g-fronthaul" => both(Direction {
            delay_ms: 0.25,
            jitter_ms: 0.02,
            jitter_law: Law::Exponential,
            rate_mbit_s: 800.0,
            ..Direction::default()
        }),
        // A shared line at peak load: slow uplink, long queues with a heavy tail.
        "congested" => {
            let up = Direction {
                delay_ms: 20.0,
                jitter_ms: 8.0,
                jitter_law: Law::Pareto,
                rate_mbit_s: 40.0,
                buffer_kib: 512,
                loss: 2e-4,
                retransmit_ms: 80.0,
                ..Direction::default()
            };
            Some((up, Direction { jitter_ms: 4.0, rate_mbit_s: 100.0, loss: 1e-4, ..up }))
        }
        // Frequent losses and outages.
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
