//! The whole chain: measurements in, fix out.
//!
//! Algorithm 3 of the paper with a fourth stage, preceded by a check of observability and followed by
//! fault exclusion, status and protection level. A fix contains the result of every stage on the
//! measurements that were kept.

use std::fmt;

use model::geometry::PlanePoint;
use nalgebra::Matrix2;
use thiserror::Error;

use super::exclusion::{Exclusion, screen};
use super::integrity::Consistency;
use super::likelihood::Likelihood;
use super::maximum_likelihood::MaximumLikelihood;
use super::measurements::Measurements;
use super::observability::{Unobservable, check_constraints};
use super::protection::protection_level_m;
use super::search::{Ambiguity, CoverageArea, SearchResult, search};
use super::segments::{SegmentDelays, stage_one};
use super::three_stage::{ThreeStage, three_stage};
use super::two_stage::{TwoStage, stage_two};

/// Settings of [`locate`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocateSettings {
    /// Where targets are expected; decides between two positions that fit equally well. Default: none.
    pub coverage: Option<CoverageArea>,
    /// Allowed share of fixes without a fault in which one is detected. Default: 5e-4.
    pub false_alarm_probability: f64,
    /// Allowed share of fixes whose error exceeds the protection level. Default: 1e-3.
    pub integrity_risk: f64,
    /// Largest share of the measurements that may be excluded. Default: one half.
    pub most_excluded_share: f64,
}

impl Default for LocateSettings {
    fn default() -> Self {
        Self { coverage: None, false_alarm_probability: 5e-4, integrity_risk: 1e-3, most_excluded_share: 0.5 }
    }
}

/// A setting out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("{name} is {value}: it must lie between {least} and {most}")]
pub struct LocatorSettingsError {
    name: &'static str,
    value: f64,
    least: f64,
    most: f64,
}

impl LocateSettings {
    /// Checks the range of every setting.
    pub fn validate(&self) -> Result<(), LocatorSettingsError> {
        let within = |name, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(LocatorSettingsError { name, value, least, most })
            }
        };
        within("false_alarm_probability", self.false_alarm_probability, 1e-12, 0.5)?;
        within("integrity_risk", self.integrity_risk, 1e-12, 0.5)?;
        within("most_excluded_share", self.most_excluded_share, 0.0, 1.0)?;
        if let Some(area) = self.coverage {
            for (name, min, max) in [
                ("width of the coverage area", area.min_m.x, area.max_m.x),
                ("height of the coverage area", area.min_m.y, area.max_m.y),
            ] {
                within(name, max - min, 0.0, f64::MAX)?;
            }
        }
        Ok(())
    }
}

/// How far a fix can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Consistent, checkable and unique.
    Nominal,
    /// Made from less data than usual, and as good as its covariance says.
    Degraded,
    /// The target may be elsewhere.
    Doubtful,
    /// No fix.
    Unobservable,
}

impl Status {
    /// Status of an outcome of [`locate`].
    pub fn of(outcome: &Result<Fix, Unobservable>) -> Self {
        match outcome {
            Ok(fix) => fix.status(),
            Err(_) => Self::Unobservable,
        }
    }

    /// Status of a fix with these cautions.
    pub fn with_cautions(cautions: &[Caution]) -> Self {
        match cautions {
            [] => Self::Nominal,
            cautions if cautions.iter().any(Caution::is_doubt) => Self::Doubtful,
            _ => Self::Degraded,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nominal => "nominal",
            Self::Degraded => "degraded",
            Self::Doubtful => "doubtful",
            Self::Unobservable => "unobservable",
        })
    }
}

/// Why a fix is degraded or doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum Caution {
    #[error("faulty measurements were excluded")]
    FaultExcluded,
    #[error("the fault is not certain: another one fits about as well")]
    FaultNotCertain,
    #[error("the measurements contradict each other")]
    Inconsistent,
    #[error("no redundancy: a fault would not show")]
    NotCheckable,
    #[error("no protection level: a single fault could move the fix without bound")]
    Unprotected,
    #[error("two places fit; the coverage area decided")]
    ResolvedByCoverage,
    #[error("other places fit; the likeliest one is given")]
    Ambiguous,
    #[error("the echo is barely above what noise alone gives")]
    BarelyDetected,
    #[error("there may be two targets here that cannot be told apart")]
    Unresolved,
    #[error("the iteration did not settle")]
    NotConverged,
}

impl Caution {
    /// Whether the position itself is in doubt, and not only based on less data.
    pub fn is_doubt(&self) -> bool {
        matches!(
            self,
            Self::Ambiguous
                | Self::FaultNotCertain
                | Self::Inconsistent
                | Self::NotConverged
                | Self::BarelyDetected
                | Self::Unresolved
        )
    }
}

/// Results of the four stages on the measurements that were kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    /// Result of stage 1.
    pub segments: SegmentDelays,
    /// Result of stage 2, where the data determine it.
    pub two_stage: Option<TwoStage>,
    /// Result of stage 3, where the data determine it.
    pub three_stage: Option<ThreeStage>,
    /// Result of stage 4.
    pub maximum_likelihood: MaximumLikelihood,
}

/// A position with its integrity.
#[derive(Debug, Clone, PartialEq)]
pub struct Fix {
    /// Results of the stages.
    pub stages: Stages,
    /// The consistency tests on the measurements that were kept.
    pub consistency: Consistency,
    /// Excluded faults, in the order found.
    pub excluded: Vec<Exclusion>,
    /// Radius that contains the error with probability `1 - integrity_risk`, given one possible
    /// undetected fault; `None` where there is no such radius.
    pub protection_level_m: Option<f64>,
    /// A second position that fits, if there is one.
    pub ambiguity: Option<Ambiguity>,
    /// Why the fix is degraded or doubtful; empty for a nominal one.
    pub cautions: Vec<Caution>,
}

impl Fix {
    /// The position: that of the last stage.
    pub fn position_m(&self) -> PlanePoint {
        self.stages.maximum_likelihood.position_m
    }

    /// Covariance of the position's error.
    pub fn covariance_m2(&self) -> Matrix2<f64> {
        self.stages.maximum_likelihood.covariance_m2
    }

    /// Nominal, degraded or doubtful.
    pub fn status(&self) -> Status {
        Status::with_cautions(&self.cautions)
    }
}

/// Stages 1 to 3.
fn closed_form(likelihood: &Likelihood) -> (SegmentDelays, Option<TwoStage>, Option<ThreeStage>) {
    let segments = stage_one(likelihood);
    let two_stage = stage_two(likelihood, &segments);
    let three_stage = two_stage.as_ref().and_then(three_stage);
    (segments, two_stage, three_stage)
}

/// Locates the target; `settings` are taken as valid.
pub fn locate(measurements: &Measurements, settings: &LocateSettings) -> Result<Fix, Unobservable> {
    let likelihood = Likelihood::new(measurements);
    check_constraints(&likelihood)?;
    let (mut segments, mut two_stage, mut three_stage) = closed_form(&likelihood);
    let mut found = find(&likelihood, three_stage.map(|stage| stage.position_m), settings);

    let screened = screen(&likelihood, found.minimum, settings);
    if !screened.excluded.is_empty() {
        (segments, two_stage, three_stage) = closed_form(&screened.likelihood);
        found = find(&screened.likelihood, Some(screened.minimum.position_m), settings);
    }
    let maximum_likelihood = MaximumLikelihood::checked(&screened.likelihood, &found.minimum)?;

    let consistent = screened.consistency.passes(settings.false_alarm_probability);
    let level_m =
        protection_level_m(&screened.likelihood, &found.minimum, &screened.rivals, settings.integrity_risk);
    let protection_level_m =
        level_m.filter(|_| consistent && found.minimum.converged).map(|level_m| level_m + reach_of(&found));
    let mut fix = Fix {
        stages: Stages { segments, two_stage, three_stage, maximum_likelihood },
        consistency: screened.consistency,
        excluded: screened.excluded,
        protection_level_m,
        ambiguity: found.ambiguity,
        cautions: Vec::new(),
    };
    fix.cautions = cautions(&fix, consistent);
    Ok(fix)
}

/// The maximum of the likelihood: near `start_m` where the data have only one maximum, otherwise
/// the best of the scene.
fn find(likelihood: &Likelihood, start_m: Option<PlanePoint>, settings: &LocateSettings) -> SearchResult {
    match start_m {
        Some(start_m) if likelihood.bearing_count() >= 2 => {
            let minimum = likelihood.minimise(start_m);
            if minimum.converged {
                SearchResult { minimum, ambiguity: None }
            } else {
                search(likelihood, Some(start_m), settings.coverage.as_ref())
            }
        }
        _ => search(likelihood, start_m, settings.coverage.as_ref()),
    }
}

/// Distance to an alternative that the coverage area does not rule out, otherwise zero.
fn reach_of(found: &SearchResult) -> f64 {
    match found.ambiguity {
        Some(Ambiguity { alternative_m, resolved_by_coverage: false }) => {
            (alternative_m - found.minimum.position_m).norm()
        }
        _ => 0.0,
    }
}

fn cautions(fix: &Fix, consistent: bool) -> Vec<Caution> {
    let ambiguous = fix.ambiguity.map(|ambiguity| ambiguity.resolved_by_coverage);
    [
        (!fix.excluded.is_empty(), Caution::FaultExcluded),
        (fix.excluded.iter().any(|exclusion| exclusion.rivalled), Caution::FaultNotCertain),
        (!consistent, Caution::Inconsistent),
        (fix.consistency.redundancy == 0, Caution::NotCheckable),
        (fix.protection_level_m.is_none(), Caution::Unprotected),
        (ambiguous == Some(true), Caution::ResolvedByCoverage),
        (ambiguous == Some(false), Caution::Ambiguous),
        (!fix.stages.maximum_likelihood.converged, Caution::NotConverged),
    ]
    .into_iter()
    .filter_map(|(applies, caution)| applies.then_some(caution))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_scene::{TARGET_M, exact, inexact};
    use super::*;

    #[test]
    fn a_coverage_area_has_a_size_wherever_it_is() {
        let settings = |min_m, max_m| LocateSettings {
            coverage: Some(CoverageArea { min_m, max_m }),
            ..LocateSettings::default()
        };
        assert!(settings(PlanePoint::new(-30.0, -20.0), PlanePoint::new(-10.0, -10.0)).validate().is_ok());
        let refused =
            settings(PlanePoint::new(10.0, 20.0), PlanePoint::new(30.0, 10.0)).validate().unwrap_err();
        assert_eq!((refused.name, refused.value), ("height of the coverage area", -10.0));
    }

    #[test]
    fn the_reach_is_the_way_to_what_is_not_ruled_out() {
        let minimum = exact().minimise(TARGET_M);
        let alternative_m = TARGET_M + PlanePoint::new(3.0, 4.0);
        for (ambiguity, expected_m) in [
            (None, 0.0),
            (Some(Ambiguity { alternative_m, resolved_by_coverage: true }), 0.0),
            (Some(Ambiguity { alternative_m, resolved_by_coverage: false }), 5.0),
        ] {
            assert!((reach_of(&SearchResult { minimum, ambiguity }) - expected_m).abs() < 1e-6);
        }
    }

    #[test]
    fn a_clean_fix_has_no_caution() {
        let fix = locate(&inexact(0.5), &LocateSettings::default()).unwrap();
        assert_eq!((fix.status(), fix.cautions), (Status::Nominal, vec![]));
    }
}
