//! The evidence of a frame with its likelihood on the coarse grid, the first step of every fix from that frame.
//!
//! The search for one target needs the likelihood only where it is high ([`values`](super::values)); several targets, several frames
//! and the display of the likelihood need it everywhere. Either is computed when it is first asked for, and kept.

use std::sync::OnceLock;

use super::clocks::SurveyClocks;
use super::evidence::Evidence;
use super::locate::DirectLocator;
use super::values::Values;

/// The evidence of a frame with its likelihood on the coarse grid, which is computed when it is first needed.
#[derive(Debug, Clone)]
pub struct Survey {
    pub(super) evidence: Evidence,
    /// None where clocks are trusted.
    pub(super) clocks: Option<SurveyClocks>,
    /// Per point: the likelihood with the best lags of the clocks, where lags were searched. It replaces that without lags.
    pub(super) profile: Option<Vec<f64>>,
    /// Points of the grid.
    points: usize,
    pub(super) searched: OnceLock<Values>,
    all: OnceLock<Values>,
}

impl DirectLocator {
    /// The survey of evidence; evidence for another system is ignored.
    pub fn survey(&self, evidence: Evidence) -> Survey {
        let empty = self.evidence();
        let evidence = if evidence.is_like(&empty) { evidence } else { empty };
        Survey {
            evidence,
            clocks: None,
            profile: None,
            points: self.grid.points(),
            searched: OnceLock::new(),
            all: OnceLock::new(),
        }
    }

    /// Whether a survey is one of this system.
    pub(super) fn fits(&self, survey: &Survey) -> bool {
        survey.points == self.grid.points() && survey.evidence.is_like(&self.evidence())
    }

    /// Values where they matter to the search for one target.
    pub(super) fn searched_values<'a>(&self, survey: &'a Survey) -> &'a Values {
        let evidence = &survey.evidence;
        let compute = || self.grid.searched_values(&self.scene, evidence, self.least_loss(evidence));
        survey.all.get().unwrap_or_else(|| survey.searched.get_or_init(compute))
    }

    /// Values everywhere.
    pub(super) fn all_values<'a>(&self, survey: &'a Survey) -> &'a Values {
        survey.all.get_or_init(|| self.grid.values(&self.scene, &survey.evidence))
    }

    /// Per point: the likelihood where it matters to the search for one target, and a bound of it elsewhere.
    pub(super) fn searched_totals<'a>(&self, survey: &'a Survey) -> &'a [f64] {
        survey.profile.as_ref().unwrap_or_else(|| &self.searched_values(survey).total)
    }

    /// Per point: the likelihood.
    pub(super) fn all_totals<'a>(&self, survey: &'a Survey) -> &'a [f64] {
        survey.profile.as_ref().unwrap_or_else(|| &self.all_values(survey).total)
    }

    /// Per point: the likelihood where it is above `least`, and elsewhere something that is not.
    pub(super) fn totals_above<'a>(&self, survey: &'a Survey, least: f64) -> &'a [f64] {
        let known = survey.profile.is_some() || self.searched_values(survey).limit <= least;
        if known { self.searched_totals(survey) } else { self.all_totals(survey) }
    }
}
