//! The highest maximum of the likelihood: ascents from the peaks of the coarse grid, in memory that is kept.

use nalgebra::DVector;

use super::{DirectLocator, Missed, Survey};
use crate::ascent::{Ascent, Summit};
use crate::direct::clocks::SurveyClocks;
use crate::direct::evidence::Evidence;
use crate::direct::likelihood::{TermMemory, each_term, spectral_total};

/// Largest number of grid peaks from which an ascent starts.
const MOST_CLIMBS: usize = 6;
/// Ascents also start from grid peaks that are lower than the highest by up to this log-likelihood ratio.
pub(in crate::direct) const NEARLY_AS_HIGH: f64 = 4.6;
/// Least number of complex degrees of freedom on which the noise power is measured again.
const LEAST_FREEDOM: f64 = 100.0;
/// Smallest plausible ratio of the noise power to the one that the nodes reported.
const LEAST_NOISE: f64 = 0.5;

/// Memory of a search.
#[derive(Debug, Clone, Default)]
pub(super) struct SearchMemory {
    ascent: Ascent,
    /// Of terms without derivatives.
    pub values: TermMemory,
    /// Of terms with derivatives.
    pub expansions: TermMemory,
}

/// The highest maximum of the likelihood with the ratio of [`noise_factor`].
pub(super) struct Candidate {
    pub summit: Summit,
    pub noise_factor: f64,
}

impl DirectLocator {
    /// The highest maximum of the likelihood.
    pub(super) fn search(&self, survey: &Survey) -> Result<Candidate, Missed> {
        let Survey { evidence, clocks, .. } = survey;
        if evidence.terms() == 0 {
            return Err(Missed::NoEvidence);
        }
        let peaks = self.grid.places.peaks(self.searched_totals(survey));
        let top = peaks.first().map_or(0.0, |peak| peak.1);
        let least = self.grid.least_peak(top);
        let offsets = clocks.as_ref().map_or(0, SurveyClocks::nodes);
        let longest = DVector::repeat(self.grid.places.dimensions() + offsets, self.longest_step_m());
        let mut summits: Vec<Summit> = peaks
            .iter()
            .take(MOST_CLIMBS)
            .filter(|peak| peak.1 >= least)
            .map(|peak| {
                let mut at = self.start(peak.0, clocks.as_ref());
                let value = self.climb(evidence, clocks.as_ref(), &mut at, &longest);
                Summit { at, value }
            })
            .collect();
        // A peak outside the area is used only where there is none inside.
        let rank = |summit: &Summit| (self.searched(&summit.at), summit.value);
        summits.sort_by(|a, b| {
            let ((a_inside, a_value), (b_inside, b_value)) = (rank(a), rank(b));
            b_inside.cmp(&a_inside).then(b_value.total_cmp(&a_value))
        });
        let summit = summits.into_iter().next().ok_or(Missed::Unobservable)?;
        let (energy, entries) = evidence.spectral_energy();
        // The coordinates are real unknowns besides the gains.
        let freedom = entries as f64 - evidence.spectra() as f64 - 0.5 * summit.at.len() as f64;
        let explained = spectral_total(&self.terms(evidence, self.state(&summit.at)));
        Ok(Candidate { summit, noise_factor: noise_factor(energy - explained, freedom) })
    }

    /// Climbs from a state to a maximum of the likelihood, with the prior of the clocks, and says how high that is.
    pub(super) fn climb(
        &self,
        evidence: &Evidence,
        clocks: Option<&SurveyClocks>,
        at: &mut DVector<f64>,
        longest: &DVector<f64>,
    ) -> f64 {
        self.memory.with(|SearchMemory { ascent, expansions, .. }| {
            ascent.climb(0.0, at, longest, |at, total| {
                total.set_zeros(at.len());
                each_term(&self.scene, evidence, self.state(at), true, expansions, |term| {
                    total.add(term.expansion, term.places);
                });
                if let Some(clocks) = clocks {
                    clocks.add_to(total, at);
                }
            })
        })
    }
}

/// Ratio of the residual noise power of a fix to the one that the nodes reported, from the residual energy of the spectra and
/// its degrees of freedom.
///
/// A node measures its noise on the residual of its own fit, which is the best of many and so leaves a little less than the
/// noise; with a threshold in the far tail this causes several times too many false alarms. The fit of the position is the
/// best of a few.
pub(in crate::direct) fn noise_factor(residual: f64, freedom: f64) -> f64 {
    if freedom < LEAST_FREEDOM { 1.0 } else { (residual / freedom).max(LEAST_NOISE) }
}
