//! Clock offsets of the sensing nodes: what is known before a frame, and what the frame says.
//!
//! A normal prior on the K offsets joins the likelihood as one more term, so that position and offsets are estimated together.
//! Internally offsets are in metres of range and relative to a *reference* that has been removed from the evidence: the mean of
//! the prior, or what the search over lags has found. What a frame says about the offsets, its position marginalised,
//! is given in information form, so that a filter can add it to whatever it knows by then.

use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{DMatrix, DVector};

use super::protection::WeightedTerms;
use super::timing::is_too_weak;
use crate::ascent::Expansion;

/// A normal law of the clock offsets of all nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockPrior {
    mean_s: DVector<f64>,
    covariance_s2: DMatrix<f64>,
}

/// Why a law of clock offsets cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "clock offsets of {nodes} nodes: the mean and a symmetric, positive definite covariance of that size are needed, all finite"
)]
pub struct ClockPriorError {
    nodes: usize,
}

impl ClockPrior {
    /// Checks a mean in seconds and a covariance.
    pub fn new(mean_s: DVector<f64>, covariance_s2: DMatrix<f64>) -> Result<Self, ClockPriorError> {
        let nodes = mean_s.len();
        let finite = mean_s.iter().chain(covariance_s2.iter()).all(|value| value.is_finite());
        // Scaled, because the square of a picosecond is far below any tolerance.
        let scaled = (&covariance_s2 + covariance_s2.transpose()) * (0.5 * SPEED_OF_LIGHT_M_S.powi(2));
        if covariance_s2.shape() != (nodes, nodes) || !finite || scaled.cholesky().is_none() {
            return Err(ClockPriorError { nodes });
        }
        Ok(Self { mean_s, covariance_s2 })
    }

    /// Independent offsets about zero with this positive standard deviation.
    pub fn independent(nodes: usize, deviation_s: f64) -> Result<Self, ClockPriorError> {
        let covariance = DMatrix::from_diagonal_element(nodes, nodes, deviation_s * deviation_s);
        Self::new(DVector::zeros(nodes), covariance)
    }

    /// Mean of every offset, seconds.
    pub fn mean_s(&self) -> &DVector<f64> {
        &self.mean_s
    }

    /// Covariance of the offsets, square seconds.
    pub fn covariance_s2(&self) -> &DMatrix<f64> {
        &self.covariance_s2
    }

    /// Standard deviation of the offset of node `l`.
    pub fn deviation_s(&self, l: usize) -> f64 {
        self.covariance_s2[(l, l)].sqrt()
    }

    /// The same law with one offset independent of the others and with this deviation, about the same mean.
    pub fn widened(&self, l: usize, deviation_s: f64) -> Self {
        let mut wider = self.clone();
        wider.covariance_s2.row_mut(l).fill(0.0);
        wider.covariance_s2.column_mut(l).fill(0.0);
        wider.covariance_s2[(l, l)] = deviation_s * deviation_s;
        wider
    }
}

/// What a fix says about the clocks.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockUpdate {
    /// The law that the fix was made with; wider than the one given for nodes whose clock has stepped.
    pub prior: ClockPrior,
    /// The law of the offsets given the frame.
    pub posterior: ClockPrior,
    /// Information of the frame alone on the offsets, with the position unknown, per square second.
    pub information: DMatrix<f64>,
    /// That information times the offsets that the frame alone suggests, per second.
    pub weighted: DVector<f64>,
    /// Nodes whose offset contradicts the prior: their clock has stepped.
    pub stepped: Vec<usize>,
    /// Nodes whose offset is at the edge of the searched window.
    pub at_edge: Vec<usize>,
    /// Nodes whose paths are much weaker than those of the others suggest: they may look for echoes at the wrong time.
    pub weak: Vec<usize>,
}

/// The clocks of a survey.
#[derive(Debug, Clone)]
pub(super) struct SurveyClocks {
    pub prior: ClockPrior,
    /// Offsets that were removed from the evidence.
    pub reference_s: DVector<f64>,
    /// Information of the prior, per square metre.
    information: DMatrix<f64>,
    /// Mean of the prior relative to the reference, metres.
    mean_m: DVector<f64>,
    /// Per grid point, the best offsets relative to the reference; empty where none were searched.
    pub lags_m: Vec<DVector<f64>>,
}

impl SurveyClocks {
    /// None where the covariance cannot be inverted.
    pub fn new(prior: ClockPrior, reference_s: DVector<f64>) -> Option<Self> {
        let metric = &prior.covariance_s2 * SPEED_OF_LIGHT_M_S.powi(2);
        let information = metric.cholesky()?.inverse();
        let mean_m = (&prior.mean_s - &reference_s) * SPEED_OF_LIGHT_M_S;
        Some(Self { prior, reference_s, information, mean_m, lags_m: Vec::new() })
    }

    pub fn nodes(&self) -> usize {
        self.mean_m.len()
    }

    /// Offsets at which an ascent from a grid point begins.
    pub fn start_m(&self, point: usize) -> &DVector<f64> {
        self.lags_m.get(point).unwrap_or(&self.mean_m)
    }

    /// Logarithm of the prior density of the offsets at the end of a state, relative to its mode.
    pub fn log_prior(&self, offsets_m: &[f64]) -> f64 {
        let away = DVector::from_row_slice(offsets_m) - &self.mean_m;
        -0.5 * away.dot(&(&self.information * &away))
    }

    /// The prior as a function of a state that ends with the offsets.
    pub fn expansion(&self, state: &DVector<f64>) -> Expansion {
        let (all, nodes) = (state.len(), self.nodes());
        let away = state.rows(all - nodes, nodes) - &self.mean_m;
        let pull = &self.information * &away;
        let mut prior = Expansion::zeros(all);
        prior.value = -0.5 * away.dot(&pull);
        prior.gradient.rows_mut(all - nodes, nodes).copy_from(&-pull);
        prior.information.view_mut((all - nodes, all - nodes), (nodes, nodes)).copy_from(&self.information);
        prior
    }

    /// What the terms of a fix at this state say about the clocks, with the covariance of the state given the prior.
    pub fn update(
        &self,
        state: &DVector<f64>,
        terms: &WeightedTerms,
        covariance: &DMatrix<f64>,
    ) -> Option<ClockUpdate> {
        let (nodes, axes) = (self.nodes(), state.len() - self.nodes());
        let (gradient, information) = terms.likelihood();
        let position = information.view((0, 0), (axes, axes)).into_owned().cholesky()?;
        let coupling = information.view((0, axes), (axes, nodes)).into_owned();
        let explained = position.solve(&coupling);
        let own = information.view((axes, axes), (nodes, nodes)) - coupling.tr_mul(&explained);
        let score = gradient.rows(axes, nodes) - explained.tr_mul(&gradient.rows(0, axes));
        let c = SPEED_OF_LIGHT_M_S;
        let offsets_s = state.rows(axes, nodes) / c + &self.reference_s;
        let information = own * (c * c);
        let weighted = &information * &offsets_s + score * c;
        let covariance_s2 = covariance.view((axes, axes), (nodes, nodes)) / (c * c);
        let covariance_s2 = (&covariance_s2 + covariance_s2.transpose()) * 0.5;
        Some(ClockUpdate {
            prior: self.prior.clone(),
            posterior: ClockPrior::new(offsets_s, covariance_s2).ok()?,
            information,
            weighted,
            stepped: Vec::new(),
            at_edge: Vec::new(),
            weak: (0..nodes).filter(|&l| is_too_weak(&terms.terms, l)).collect(),
        })
    }
}

impl ClockUpdate {
    /// Squared change of the offset of node `l` by the frame, in units of its variance: chi-square with one degree of
    /// freedom where the prior holds.
    pub fn innovation(&self, l: usize) -> f64 {
        let change = self.posterior.mean_s[l] - self.prior.mean_s[l];
        let variance = self.prior.covariance_s2[(l, l)] - self.posterior.covariance_s2[(l, l)];
        // A frame without paths of this node changes nothing.
        if variance > 1e-6 * self.prior.covariance_s2[(l, l)] { change * change / variance } else { 0.0 }
    }
}
