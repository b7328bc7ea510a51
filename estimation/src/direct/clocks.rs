//! Clock offsets of the sensing nodes: what is known before a frame, and what the frame says.
//!
//! A normal prior on the K offsets joins the likelihood as one more term, so that position and offsets are estimated together.
//! Internally offsets are in metres of range and relative to a *reference* that has been removed from the evidence: the mean of
//! the prior, or what the search over lags has found. What a frame says about the offsets, its position marginalised,
//! is given in information form, so that a filter can add it to whatever it knows by then.

use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{DMatrix, DVector};

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
    /// Information of the frame alone on the offsets, with the positions unknown, per square second.
    pub information: DMatrix<f64>,
    /// That information times the offsets that the frame alone suggests, per second.
    pub weighted: DVector<f64>,
    /// Nodes whose offset contradicts the prior: their clock has stepped.
    pub stepped: Vec<usize>,
    /// Nodes whose offset is at the edge of the searched window.
    pub at_edge: Vec<usize>,
    /// Nodes whose paths are much weaker than those of the others suggest: they may look for echoes at the wrong time. Judged for
    /// a single target only.
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
        let mut prior = Expansion::zeros(state.len());
        self.add_to(&mut prior, state);
        prior
    }

    /// Adds the prior at a state that ends with the offsets.
    pub fn add_to(&self, total: &mut Expansion, state: &DVector<f64>) {
        let first = state.len() - self.nodes();
        let away = |i: usize| state[first + i] - self.mean_m[i];
        for i in 0..self.nodes() {
            let pull: f64 = (0..self.nodes()).map(|j| self.information[(i, j)] * away(j)).sum();
            total.value -= 0.5 * away(i) * pull;
            total.gradient[first + i] -= pull;
            for j in 0..self.nodes() {
                total.information[(first + i, first + j)] += self.information[(i, j)];
            }
        }
    }

    /// What a likelihood with this gradient and information at a state says about the clocks, with the covariance of the state
    /// given the prior. The state is the coordinates of any number of targets, and then the offsets.
    pub fn update(
        &self,
        state: &DVector<f64>,
        (gradient, information): (&DVector<f64>, &DMatrix<f64>),
        covariance: &DMatrix<f64>,
    ) -> Option<ClockUpdate> {
        let (nodes, axes) = (self.nodes(), state.len() - self.nodes());
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
            weak: Vec::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix<const N: usize>(rows: [[f64; N]; N]) -> DMatrix<f64> {
        DMatrix::from_fn(N, N, |i, j| rows[i][j])
    }

    #[test]
    fn a_widened_offset_is_independent() {
        let law = ClockPrior::new(
            DVector::from_row_slice(&[1e-9, 2e-9, 3e-9]),
            matrix([[4.0, 1.0, 0.5], [1.0, 5.0, 0.3], [0.5, 0.3, 6.0]]) * 1e-18,
        );
        let wider = law.unwrap().widened(1, 7e-9);
        assert_eq!(wider.mean_s().as_slice(), [1e-9, 2e-9, 3e-9]);
        let expected = matrix([[4.0, 0.0, 0.5], [0.0, 49.0, 0.0], [0.5, 0.0, 6.0]]) * 1e-18;
        assert!((wider.covariance_s2() - expected).amax() < 1e-30);
    }

    #[test]
    fn laws_without_a_covariance_are_refused() {
        let law = |covariance: DMatrix<f64>| ClockPrior::new(DVector::zeros(2), covariance * 1e-18);
        assert!(law(matrix([[1.0, 0.5], [0.5, 1.0]])).is_ok());
        for bad in [[[1.0, 2.0], [2.0, 1.0]], [[f64::NAN, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]] {
            assert_eq!(law(matrix(bad)), Err(ClockPriorError { nodes: 2 }));
        }
        assert!(law(DMatrix::identity(3, 3)).is_err());
    }

    fn clocks() -> SurveyClocks {
        let covariance_m2 = matrix([[4.0, 1.0], [1.0, 9.0]]);
        let (mean_m, reference_m) =
            (DVector::from_row_slice(&[10.0, -3.0]), DVector::from_row_slice(&[9.0, -5.0]));
        let c = SPEED_OF_LIGHT_M_S;
        let prior = ClockPrior::new(mean_m / c, covariance_m2 / (c * c)).unwrap();
        SurveyClocks::new(prior, reference_m / c).unwrap()
    }

    /// Relative to the reference the mean is (1, 2) metres.
    #[test]
    fn the_prior_is_a_normal_law_in_metres() {
        let clocks = clocks();
        let away = DVector::from_row_slice(&[0.5, -1.0]);
        let state = DVector::from_row_slice(&[6.0, 7.0, 1.5, 1.0]);
        let information = matrix([[4.0, 1.0], [1.0, 9.0]]).try_inverse().unwrap();
        let log_density = -0.5 * away.dot(&(&information * &away));
        assert!((clocks.log_prior(&state.as_slice()[2..]) - log_density).abs() < 1e-9);
        let here = clocks.expansion(&state);
        assert!((here.value - log_density).abs() < 1e-9);
        let zero = DMatrix::zeros(2, 2);
        assert!((here.information.view((2, 2), (2, 2)) - &information).amax() < 1e-9);
        assert!(
            here.information.view((0, 0), (2, 2)) == zero && here.information.view((0, 2), (2, 2)) == zero
        );
        assert!((here.gradient.rows(2, 2) + information * away).amax() < 1e-9);
        assert_eq!(here.gradient.rows(0, 2), DVector::zeros(2));
        assert!((clocks.start_m(0) - DVector::from_row_slice(&[1.0, 2.0])).amax() < 1e-9);
    }

    /// A quadratic log-likelihood says its own maximum about the offsets, wherever it is expanded.
    #[test]
    fn an_update_is_what_the_likelihood_says_about_the_offsets() {
        let clocks = clocks();
        let curvature = matrix([[5.0, 1.0, 0.5], [1.0, 4.0, 0.2], [0.5, 0.2, 3.0]]);
        let maximum = DVector::from_row_slice(&[2.0, 0.7, 1.1]);
        let state = DVector::from_row_slice(&[2.3, 0.2, 1.9]);
        let gradient = &curvature * (&maximum - &state);
        let whole = &curvature + clocks.expansion(&state).information;
        let covariance = whole.cholesky().unwrap().inverse();
        let update = clocks.update(&state, (&gradient, &curvature), &covariance).unwrap();
        // Marginal covariance of the offsets, inverted.
        let marginal = curvature.try_inverse().unwrap().view((1, 1), (2, 2)).into_owned();
        let information = marginal.try_inverse().unwrap();
        let c = SPEED_OF_LIGHT_M_S;
        assert!((&update.information / (c * c) - &information).amax() < 1e-9);
        let offsets_m = update.information.clone().cholesky().unwrap().solve(&update.weighted) * c;
        assert!((offsets_m - DVector::from_row_slice(&[0.7 + 9.0, 1.1 - 5.0])).amax() < 1e-9);
        let posterior = &update.posterior;
        assert!((posterior.mean_s() * c - DVector::from_row_slice(&[0.2 + 9.0, 1.9 - 5.0])).amax() < 1e-9);
        assert!((posterior.covariance_s2() * (c * c) - covariance.view((1, 1), (2, 2))).amax() < 1e-9);
        // The change relative to the prior's mean, in units of what the variance has lost.
        let (change, lost) = (9.2 - 10.0, 4.0 - covariance[(1, 1)]);
        assert!((update.innovation(0) * lost / (change * change) - 1.0).abs() < 1e-9);
        let unchanged = ClockUpdate { posterior: update.prior.clone(), ..update };
        assert_eq!(unchanged.innovation(0), 0.0);
    }
}
