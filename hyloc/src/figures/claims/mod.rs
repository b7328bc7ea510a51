//! Section VI claim by claim: what the paper says, what the rows say, and whether the two agree.
//!
//! A verdict is computed from the rows by the rule beside it. A claim that does not hold is a finding: the reason
//! says what the data show instead.

mod angles;
mod bounds;
mod evidence;
mod locations;

use std::fmt;

pub use evidence::Evidence;

use super::catalogue::Figure;

/// How far a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Reproduced,
    /// It holds in part, or under one of its readings.
    Partly,
    /// It does not hold.
    NotReproduced,
    /// The figure that would show it has not been made.
    NotMeasured,
}

impl Verdict {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Self; 4] = [Self::Reproduced, Self::Partly, Self::NotReproduced, Self::NotMeasured];

    /// One verdict from the parts of a claim.
    fn of_parts(parts: &[bool]) -> Self {
        match parts.iter().filter(|held| **held).count() {
            held if held == parts.len() => Self::Reproduced,
            0 => Self::NotReproduced,
            _ => Self::Partly,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::Partly => "partly",
            Self::NotReproduced => "not reproduced",
            Self::NotMeasured => "not measured",
        })
    }
}

/// A judged claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Short name.
    pub id: &'static str,
    /// Figures that show it.
    pub figures: &'static [Figure],
    /// What the paper says.
    pub paper: &'static str,
    /// What was measured, with its interval.
    pub measured: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
}

/// A claim before it is judged.
struct Statement {
    id: &'static str,
    figures: &'static [Figure],
    paper: &'static str,
    judge: fn(&Evidence) -> Option<Finding>,
}

/// What a judge finds.
struct Finding {
    measured: String,
    verdict: Verdict,
    reason: String,
}

/// Every claim of Section VI, judged.
pub fn judged(evidence: &Evidence) -> Vec<Claim> {
    let statements = bounds::STATEMENTS.iter().chain(angles::STATEMENTS).chain(locations::STATEMENTS);
    statements.map(|statement| statement.judged(evidence)).collect()
}

impl Statement {
    fn judged(&self, evidence: &Evidence) -> Claim {
        let missing = self.figures.iter().filter(|f| !evidence.has(**f)).map(|f| f.name());
        let finding = (self.judge)(evidence).unwrap_or_else(|| Finding {
            measured: "-".into(),
            verdict: Verdict::NotMeasured,
            reason: format!("not in this directory: {}", missing.collect::<Vec<_>>().join(", ")),
        });
        let Finding { measured, verdict, reason } = finding;
        Claim { id: self.id, figures: self.figures, paper: self.paper, measured, verdict, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured_means_no_verdict() {
        let claims = judged(&Evidence::new(Vec::new()));
        assert!(
            claims
                .iter()
                .all(|c| c.verdict == Verdict::NotMeasured && c.reason.contains("not in this directory"))
        );
        let mut ids: Vec<_> = claims.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), claims.len());
    }

    #[test]
    fn a_verdict_needs_every_part() {
        assert_eq!(Verdict::of_parts(&[true, true]), Verdict::Reproduced);
        assert_eq!(Verdict::of_parts(&[true, false]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[false, false]), Verdict::NotReproduced);
    }
}
