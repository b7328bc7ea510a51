//! The claims of Section VI: what the paper says, what was measured, and whether they agree.
//!
//! The function of a claim documents its criterion; verdicts follow from whole 95 % intervals of the rows ([`RULE`]). If a
//! claim does not hold, its reason says what the data show instead.

mod angles;
mod bounds;
pub(super) mod data;
mod locations;
mod part;

use std::fmt;

pub use data::ClaimData;
pub use part::PartVerdict;

use super::catalogue::Figure;

/// Meaning of the verdicts, as printed in the report.
pub const RULE: &str = "A claim has one part or several: a quantity and its range, under each of the claim's readings. \
    \"Reproduced\": the whole 95 % interval of every part lies inside its range. \"Not reproduced\": that of every part lies \
    wholly outside. \"Partly\": anything between, that is some parts hold and others do not, or an interval holds an end \
    of its range.";

/// Verdict on a claim; `NotMeasured` means that a figure is missing. See [`RULE`] for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Reproduced,
    Partly,
    NotReproduced,
    NotMeasured,
}

impl Verdict {
    /// All verdicts, in the order in which they are counted.
    pub const ALL: [Self; 4] = [Self::Reproduced, Self::Partly, Self::NotReproduced, Self::NotMeasured];

    fn of_parts(parts: &[PartVerdict]) -> Self {
        if parts.iter().all(|part| *part == PartVerdict::Holds) {
            Self::Reproduced
        } else if parts.iter().all(|part| *part == PartVerdict::Fails) {
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
    pub id: &'static str,
    /// The figures that show it.
    pub figures: &'static [Figure],
    /// What the paper says.
    pub paper: &'static str,
    /// The measured quantities with their intervals.
    pub measured: String,
    pub verdict: Verdict,
    pub reason: String,
}

/// A statement of the paper: id, text, and its judge, which returns none if data are missing.
type Statement = (&'static str, &'static str, fn(&ClaimData) -> Option<Finding>);

/// Statements with the figures that show them.
type Statements = (&'static [Figure], &'static [Statement]);

struct Finding {
    measured: String,
    verdict: Verdict,
    reason: String,
}

fn finding(measured: impl Into<String>, parts: &[PartVerdict], reason: impl Into<String>) -> Option<Finding> {
    let verdict = Verdict::of_parts(parts);
    Some(Finding { measured: measured.into(), verdict, reason: reason.into() })
}

/// All claims of Section VI with their verdicts.
pub fn judged(data: &ClaimData) -> Vec<Claim> {
    let all = bounds::STATEMENTS.iter().chain(angles::STATEMENTS).chain(locations::STATEMENTS);
    let statements = all.flat_map(|&(figures, list)| list.iter().map(move |statement| (figures, statement)));
    let judged = |(figures, &(id, paper, judge)): (&'static [Figure], &Statement)| {
        let missing = figures.iter().filter(|f| !data.has(**f)).map(|f| f.name());
        let Finding { measured, verdict, reason } = judge(data).unwrap_or_else(|| Finding {
            measured: "-".into(),
            verdict: Verdict::NotMeasured,
            reason: format!("not in this directory: {}", missing.collect::<Vec<_>>().join(", ")),
        });
        Claim { id, figures, paper, measured, verdict, reason }
    };
    statements.map(judged).collect()
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
        assert_eq!(Verdict::of_parts(&[PartVerdict::Holds, PartVerdict::Holds]), Verdict::Reproduced);
        assert_eq!(Verdict::of_parts(&[PartVerdict::Holds, PartVerdict::Fails]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[PartVerdict::Holds, PartVerdict::Open]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[PartVerdict::Open]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[PartVerdict::Open, PartVerdict::Fails]), Verdict::Partly);
        assert_eq!(Verdict::of_parts(&[PartVerdict::Fails, PartVerdict::Fails]), Verdict::NotReproduced);
    }
}
