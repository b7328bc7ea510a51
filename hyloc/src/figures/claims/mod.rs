//! Section VI claim by claim: what the paper says, what the rows say, and whether the two agree.
//!
//! A verdict is computed from the rows by the rule beside it, part by part, from whole 95 % intervals ([`RULE`]). A claim
//! that does not hold is a finding: the reason says what the data show instead.

mod angles;
mod bounds;
pub(super) mod data;
mod locations;
mod part;

use std::fmt;

pub use data::ClaimData;
pub use part::Part;

use super::catalogue::Figure;

/// What the verdicts mean, as the report says it.
pub const RULE: &str = "A claim has one part or several: a quantity and its range, under each of the claim's readings. \
    \"Reproduced\": the whole 95 % interval of every part lies inside its range. \"Not reproduced\": that of every part lies \
    wholly outside. \"Partly\": anything between, that is some parts hold and others do not, or an interval holds an end \
    of its range.";

/// How far a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every part holds.
    Reproduced,
    /// Some parts hold, or the trials do not tell.
    Partly,
    /// Every part fails.
    NotReproduced,
    /// The figure that would show it has not been made.
    NotMeasured,
}

impl Verdict {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Self; 4] = [Self::Reproduced, Self::Partly, Self::NotReproduced, Self::NotMeasured];

    /// One verdict from the parts of a claim.
    fn of_parts(parts: &[Part]) -> Self {
        if parts.iter().all(|part| *part == Part::Holds) {
            Self::Reproduced
        } else if parts.iter().all(|part| *part == Part::Fails) {
            Self::NotReproduced
        } else {
            Self::Partly
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
    judge: fn(&ClaimData) -> Option<Finding>,
}

/// What a judge finds.
struct Finding {
    measured: String,
    verdict: Verdict,
    reason: String,
}

/// Every claim of Section VI, judged.
pub fn judged(data: &ClaimData) -> Vec<Claim> {
    let statements = bounds::STATEMENTS.iter().chain(angles::STATEMENTS).chain(locations::STATEMENTS);
    statements.map(|statement| statement.judged(data)).collect()
}

impl Statement {
    fn judged(&self, data: &ClaimData) -> Claim {
        let missing = self.figures.iter().filter(|f| !data.has(**f)).map(|f| f.name());
        let finding = (self.judge)(data).unwrap_or_else(|| Finding {
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
        let claims = judged(&ClaimData::new(Vec::new()));
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
        assert_eq!(Verdict::of_parts(&[Part::Holds, Part::Holds]), Verdict::Reproduced);
        assert_eq!(Verdict::of_parts(&[Part::Holds, Part::Fails]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[Part::Holds, Part::Open]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[Part::Open]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[Part::Open, Part::Fails]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[Part::Fails, Part::Fails]), Verdict::NotReproduced);
    }
}
