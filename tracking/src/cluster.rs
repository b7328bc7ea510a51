//! Arithmetic of one cluster of tracks: densities, updates with several detections at once, moments of mixtures.
//!
//! For the tracks t_1.. and detections j_1.. of an event, with stacked innovation nu, prior `P = blockdiag(P_t)` and
//! measurement covariance `R = (R_jj')`: `S = P + R`, density `N(nu; 0, S)`, posterior means `p + P S^-1 nu` and posterior
//! covariances, the diagonal blocks of `P S^-1 R`, which does not cancel where R is much smaller than P. Moments of mixtures are
//! taken about the predicted mean, so that far from the origin nothing cancels either.

use nalgebra::{DMatrix, DVector};

use crate::association::{self, AssociationEvent, Contender, Marginals};
use crate::law::{MAX_DIMENSION, PositionLaw};

/// Events of smaller probability do not count for moments.
const NEGLIGIBLE: f64 = 1e-16;

/// Squared distance of a detection from a predicted track, and the logarithm of its density there; none if it is
/// further away along an axis than the gate, or of another dimension.
pub(crate) fn normal_log_density(
    detection: &PositionLaw,
    track: &PositionLaw,
    gate: f64,
) -> Option<(f64, f64)> {
    let d = track.dimension();
    if detection.dimension() != d {
        return None;
    }
    let (own, other) = (detection.covariance_m2(), track.covariance_m2());
    let mut innovation = [0.0; MAX_DIMENSION];
    for axis in 0..d {
        innovation[axis] = detection.mean_m()[axis] - track.mean_m()[axis];
        if innovation[axis].powi(2) > gate * (own[(axis, axis)] + other[(axis, axis)]) {
            return None;
        }
    }
    // Cholesky factor row by row, and the innovation solved with it on the way.
    let mut factor = [[0.0; MAX_DIMENSION]; MAX_DIMENSION];
    let (mut distance2, mut log_determinant) = (0.0, 0.0);
    for i in 0..d {
        for j in 0..=i {
            let product: f64 = factor[i].iter().zip(&factor[j]).take(j).map(|(a, b)| a * b).sum();
            let sum = own[(i, j)] + other[(i, j)] - product;
            if i == j && (sum.is_nan() || sum <= 0.0) {
                return None;
            }
            factor[i][j] = if i == j { sum.sqrt() } else { sum / factor[j][j] };
        }
        for k in 0..i {
            innovation[i] -= factor[i][k] * innovation[k];
        }
        innovation[i] /= factor[i][i];
        distance2 += innovation[i].powi(2);
        log_determinant += 2.0 * factor[i][i].ln();
    }
    let log_density = -0.5 * (distance2 + log_determinant + d as f64 * std::f64::consts::TAU.ln());
    Some((distance2, log_density))
}

/// First and second moments of weighted updates about the predicted mean.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MomentSum {
    weight: f64,
    first: DVector<f64>,
    second: DMatrix<f64>,
}

impl MomentSum {
    fn new(dimension: usize) -> Self {
        let (first, second) = (DVector::zeros(dimension), DMatrix::zeros(dimension, dimension));
        Self { weight: 0.0, first, second }
    }

    fn add(&mut self, weight: f64, shift_m: &DVector<f64>, covariance_m2: &DMatrix<f64>) {
        self.weight += weight;
        self.first.axpy(weight, shift_m, 1.0);
        self.second += (covariance_m2 + shift_m * shift_m.transpose()) * weight;
    }

    /// The law of the mixture with the prediction, which has this weight.
    pub(crate) fn law(&self, prior: &PositionLaw, missed: f64) -> Option<PositionLaw> {
        let mut sum = self.clone();
        sum.add(missed, &DVector::zeros(prior.dimension()), prior.covariance_m2());
        if sum.weight.is_nan() || sum.weight <= 0.0 {
            return None;
        }
        let shift_m = sum.first / sum.weight;
        let covariance_m2 = sum.second / sum.weight - &shift_m * shift_m.transpose();
        PositionLaw::new(prior.mean_m() + shift_m, covariance_m2).ok()
    }
}

/// Detections with their covariances, joint if they have cross terms.
pub(crate) struct Joint<'a> {
    pub laws: &'a [PositionLaw],
    pub joint_m2: Option<&'a DMatrix<f64>>,
}

/// The update of several tracks with a detection each.
struct StackedUpdate {
    log_density: f64,
    shifts_m: DVector<f64>,
    covariance_m2: DMatrix<f64>,
}

impl Joint<'_> {
    /// The update of an event, in which every pair is a track's prior and a detection.
    fn stacked(&self, pairs: &[(&PositionLaw, usize)]) -> Option<StackedUpdate> {
        let d = pairs.first()?.0.dimension();
        let size = pairs.len() * d;
        let (mut prior, mut noise) = (DMatrix::zeros(size, size), DMatrix::zeros(size, size));
        let mut innovation = DVector::zeros(size);
        for (a, &(law, detection)) in pairs.iter().enumerate() {
            prior.view_mut((a * d, a * d), (d, d)).copy_from(law.covariance_m2());
            innovation.rows_mut(a * d, d).copy_from(&(self.laws[detection].mean_m() - law.mean_m()));
            for (b, &(_, other)) in pairs.iter().enumerate() {
                let mut block = noise.view_mut((a * d, b * d), (d, d));
                match self.joint_m2 {
                    Some(joint_m2) => block.copy_from(&joint_m2.view((detection * d, other * d), (d, d))),
                    None if a == b => block.copy_from(self.laws[detection].covariance_m2()),
                    None => {}
                }
            }
        }
        let factor = (&prior + &noise).cholesky()?;
        let solved = factor.solve(&innovation);
        let log_determinant: f64 =
            2.0 * factor.l_dirty().diagonal().iter().map(|pivot| pivot.ln()).sum::<f64>();
        let exponent = innovation.dot(&solved) + log_determinant + size as f64 * std::f64::consts::TAU.ln();
        let covariance_m2 = &prior * factor.solve(&noise);
        Some(StackedUpdate { log_density: -0.5 * exponent, shifts_m: prior * solved, covariance_m2 })
    }

    /// Moments of the updates of one track with each of its gated detections.
    pub(crate) fn mixture(&self, prior: &PositionLaw, track: &Contender, marginals: &Marginals) -> MomentSum {
        let mut sum = MomentSum::new(prior.dimension());
        for (gated, &probability) in track.gated.iter().zip(&marginals.gated) {
            if probability > NEGLIGIBLE
                && let Some(update) = self.stacked(&[(prior, gated.detection)])
            {
                sum.add(probability, &update.shifts_m, &symmetric(&update.covariance_m2));
            }
        }
        sum
    }

    /// Marginals and moments of the tracks over events whose detections are used together.
    pub(crate) fn update(
        &self,
        priors: &[&PositionLaw],
        tracks: &[&Contender],
        mut events: Vec<AssociationEvent>,
    ) -> (Vec<Marginals>, Vec<MomentSum>) {
        for event in &mut events {
            let (pairs, independent_log) = assigned(priors, tracks, event);
            if pairs.len() > 1 {
                let joint_log = self.stacked(&pairs).map_or(f64::NEG_INFINITY, |update| update.log_density);
                event.log_weight += joint_log - independent_log;
            }
        }
        let probabilities = association::normalise(&events);
        let mut sums: Vec<MomentSum> = priors.iter().map(|prior| MomentSum::new(prior.dimension())).collect();
        for (event, &probability) in events.iter().zip(&probabilities) {
            let (pairs, _) = assigned(priors, tracks, event);
            let Some(update) = self.stacked(&pairs).filter(|_| probability > NEGLIGIBLE) else { continue };
            let detected = event.choice.iter().enumerate().filter(|(_, choice)| choice.is_some());
            for (position, (track, _)) in detected.enumerate() {
                let d = priors[track].dimension();
                let shift_m = update.shifts_m.rows(position * d, d).into_owned();
                let block = update.covariance_m2.view((position * d, position * d), (d, d)).into_owned();
                sums[track].add(probability, &shift_m, &symmetric(&block));
            }
        }
        (association::marginals(tracks, &events, &probabilities), sums)
    }
}

/// The tracks of an event that have a detection, with it, and the sum of the logarithms of their densities.
fn assigned<'a>(
    priors: &[&'a PositionLaw],
    tracks: &[&Contender],
    event: &AssociationEvent,
) -> (Vec<(&'a PositionLaw, usize)>, f64) {
    let mut pairs = Vec::new();
    let mut log_density = 0.0;
    for ((prior, track), choice) in priors.iter().zip(tracks).zip(&event.choice) {
        if let Some(index) = choice {
            pairs.push((*prior, track.gated[*index].detection));
            log_density += track.gated[*index].log_density;
        }
    }
    (pairs, log_density)
}

fn symmetric(matrix: &DMatrix<f64>) -> DMatrix<f64> {
    (matrix + matrix.transpose()) / 2.0
}

/// The connected components of so many nodes with these edges, each in ascending order.
pub(crate) fn connected(nodes: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut parent: Vec<usize> = (0..nodes).collect();
    fn root(parent: &mut [usize], mut node: usize) -> usize {
        while parent[node] != node {
            parent[node] = parent[parent[node]];
            node = parent[node];
        }
        node
    }
    for &(a, b) in edges {
        let (a, b) = (root(&mut parent, a), root(&mut parent, b));
        parent[a.max(b)] = a.min(b);
    }
    let mut components: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for node in 0..nodes {
        let root = root(&mut parent, node);
        components[root].push(node);
    }
    components.retain(|component| !component.is_empty());
    components
}
