//! A frame as a list of detections: joint integrated probabilistic data association.
//!
//! Association, existence and position are estimated together (Musicki and Evans 2004): with the marginal probabilities
//! beta of the joint events (module `association`) a track exists after the frame with probability
//!
//! `r+ = sum_j beta_tj + beta_t0 (1 - P_D P_G) r / (1 - P_D P_G r)`,
//!
//! and its position, if it exists, is the mixture of the updates with every detection and of the prediction, of which the
//! first two moments are kept. JIPDA was chosen because its output is one state, one covariance and one existence per
//! identity, with exact association in the small clusters of a hall; LMB and PMBM keep several hypotheses per target, which
//! pays off under long ambiguity only. Two departures from the paper:
//!
//! - Detections of one frame that come from a joint fit have correlated errors. If their joint covariance R is given, the
//!   innovations of an event with tracks t_1.. and detections j_1.. are used together, with covariance
//!   `blockdiag(P_t) + R_jj'`, for its probability and for the update.
//! - A detection that belongs to no track is clutter or a target that no track follows yet, of density
//!   `lambda = clutter + P_D births`. It starts a track with existence `w P_D births / lambda`, where w is the probability
//!   that no track explains it (as in Williams, Marginal multi-Bernoulli filters, IEEE Trans. Aerosp. Electron. Syst. 2015).
//!
//! Cost: every track is compared with every detection, D operations for most; a track keeps its 64 most likely detections.
//! Clusters of tracks that share detections (or whose detections are correlated) are enumerated up to 2000 events with
//! and 20 000 events without cross terms. A cluster with more events is split where only correlation connects it; one that
//! is still too large is solved by belief propagation, without cross terms.

use nalgebra::DMatrix;
use nalgebra::DVector;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::association::{self, Contender, GatedDetection, Marginals};
use crate::cluster::{Joint, MomentSum, connected, normal_log_density};
use crate::error::{TrackingError, require};
use crate::law::{PositionLaw, Predicted, check_covariance, check_mean};
use crate::observation::{Birth, FrameUpdate, Observation, Updated};

/// Detections of one frame at most.
pub const MAX_DETECTIONS: usize = 10_000;
/// Detections of one frame at most if their joint covariance is given.
pub const MAX_JOINT_DETECTIONS: usize = 256;
/// A track keeps so many of the detections in its gate, the most likely.
const MAX_GATED: usize = 64;
/// Joint events that are enumerated, without and with cross terms.
const MAX_EVENTS: usize = 20_000;
const MAX_JOINT_EVENTS: usize = 2_000;
/// Smallest and largest deviation of a detection along an axis, metres.
const DEVIATIONS_M: (f64, f64) = (1e-6, 1e6);
/// Two detections with smaller correlation are independent.
const MIN_CORRELATION: f64 = 1e-6;
/// Two tracks compete for detections if both have this probability of having caused them.
const COMPETES: f64 = 0.1;

/// How targets are detected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetectionModel {
    /// Probability that a target is detected in a frame. Default: 0.9.
    pub detection_probability: f64,
    /// False detections in a frame per square (cubic, in space) metre. Default: 1e-3.
    pub clutter_density: f64,
    /// Targets that no track follows per square (cubic) metre and frame. Default: 1e-6, one in 10 000 frames in a hall
    /// of 100 square metres. A hundred times as many are confirmed about a frame earlier, and so are more false tracks: at
    /// most `frames area P_D births / 19` are expected at a confirmation at 0.95, whatever the clutter.
    pub birth_density: f64,
    /// Probability that a detection of a target is inside the gate of its track. Default: 0.9999.
    pub gate_probability: f64,
}

impl Default for DetectionModel {
    fn default() -> Self {
        Self {
            detection_probability: 0.9,
            clutter_density: 1e-3,
            birth_density: 1e-6,
            gate_probability: 0.9999,
        }
    }
}

impl DetectionModel {
    /// Refuses what is out of range.
    pub fn validate(&self) -> Result<(), TrackingError> {
        let detection = self.detection_probability;
        let possible = (1e-9..=1.0).contains(&detection);
        require(possible, "detection_probability", detection, "between 1e-9 and 1")?;
        let clutter = self.clutter_density;
        require((0.0..=1e9).contains(&clutter), "clutter_density", clutter, "between 0 and 1e9")?;
        let birth = self.birth_density;
        require((1e-30..=1e9).contains(&birth), "birth_density", birth, "between 1e-30 and 1e9")?;
        let gate = self.gate_probability;
        require((0.5..=1.0 - 1e-12).contains(&gate), "gate_probability", gate, "between 0.5 and 1 - 1e-12")
    }

    /// Density of detections that belong to no track.
    fn unexplained_density(&self) -> f64 {
        self.clutter_density + self.detection_probability * self.birth_density
    }
}

/// The detections of one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Detections {
    model: DetectionModel,
    laws: Vec<PositionLaw>,
    /// Joint covariance of all detections, if it has cross terms.
    joint_m2: Option<DMatrix<f64>>,
    /// Largest squared distance of a detection in the gate.
    gate: f64,
}

impl Detections {
    /// Detections with independent errors; none is a valid frame.
    pub fn new(laws: Vec<PositionLaw>, model: DetectionModel) -> Result<Self, TrackingError> {
        model.validate()?;
        let count = laws.len();
        if count > MAX_DETECTIONS {
            return Err(TrackingError::TooMany { what: "detections", count, limit: MAX_DETECTIONS });
        }
        let dimension = laws.first().map_or(1, PositionLaw::dimension);
        for law in &laws {
            let found = law.dimension();
            if found != dimension {
                let (what, expected) = ("detection", dimension.to_string());
                return Err(TrackingError::Dimension { what, found, expected });
            }
            check_covariance("detection", law.covariance_m2(), dimension, DEVIATIONS_M)?;
        }
        let law = ChiSquared::new(dimension as f64);
        let gate = law.map_or(f64::INFINITY, |law| law.inverse_cdf(model.gate_probability));
        Ok(Self { model, laws, joint_m2: None, gate })
    }

    /// Detections with this joint covariance of all their coordinates, in the order of the detections.
    pub fn with_joint_covariance(
        means_m: Vec<DVector<f64>>,
        joint_m2: DMatrix<f64>,
        model: DetectionModel,
    ) -> Result<Self, TrackingError> {
        let count = means_m.len();
        if count > MAX_JOINT_DETECTIONS {
            let what = "detections with a joint covariance";
            return Err(TrackingError::TooMany { what, count, limit: MAX_JOINT_DETECTIONS });
        }
        let d = means_m.first().map_or(0, DVector::len);
        for mean_m in &means_m {
            check_mean("detection", mean_m)?;
        }
        check_covariance("joint covariance of detections", &joint_m2, count * d, DEVIATIONS_M)?;
        let block = |(j, mean_m): (usize, DVector<f64>)| {
            PositionLaw::new(mean_m, joint_m2.view((j * d, j * d), (d, d)).into_owned())
        };
        let laws = means_m.into_iter().enumerate().map(block).collect::<Result<Vec<_>, _>>()?;
        let symmetric_m2 = (&joint_m2 + joint_m2.transpose()) / 2.0;
        Ok(Self { joint_m2: (count > 1).then_some(symmetric_m2), ..Self::new(laws, model)? })
    }

    /// The detections.
    pub fn laws(&self) -> &[PositionLaw] {
        &self.laws
    }

    /// The model of detection.
    pub fn model(&self) -> &DetectionModel {
        &self.model
    }

    /// A track with the detections in its gate, the most likely first.
    fn contender(&self, track: &Predicted) -> Contender {
        let model = &self.model;
        let inside = model.detection_probability * model.gate_probability;
        let scale_log =
            (model.detection_probability * track.existence).ln() - model.unexplained_density().ln();
        let mut gated: Vec<GatedDetection> = Vec::new();
        for (detection, law) in self.laws.iter().enumerate() {
            if let Some((distance2, log_density)) = normal_log_density(law, &track.law, self.gate)
                && distance2 <= self.gate
            {
                gated.push(GatedDetection { detection, log_weight: scale_log + log_density, log_density });
            }
        }
        gated.sort_by(|a, b| b.log_density.total_cmp(&a.log_density));
        gated.truncate(MAX_GATED);
        Contender { missed_log: (1.0 - inside * track.existence).ln(), gated }
    }

    /// Whether two detections have cross terms.
    fn correlated(&self, i: usize, j: usize) -> bool {
        let Some(joint_m2) = &self.joint_m2 else { return false };
        let d = self.laws[i].dimension();
        let term = |a: usize, b: usize| {
            joint_m2[(a, b)].abs() > MIN_CORRELATION * (joint_m2[(a, a)] * joint_m2[(b, b)]).sqrt()
        };
        (0..d).any(|a| (0..d).any(|b| term(i * d + a, j * d + b)))
    }

    /// Tracks that must be considered together.
    fn clusters(
        &self,
        tracks: &[usize],
        contenders: &[Contender],
        with_correlation: bool,
    ) -> Vec<Vec<usize>> {
        let mut holders: Vec<Vec<usize>> = vec![Vec::new(); self.laws.len()];
        for (index, &track) in tracks.iter().enumerate() {
            for gated in &contenders[track].gated {
                holders[gated.detection].push(index);
            }
        }
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for holders in &holders {
            pairs.extend(holders.windows(2).map(|pair| (pair[0], pair[1])));
        }
        if with_correlation && self.joint_m2.is_some() {
            let held: Vec<usize> = (0..holders.len()).filter(|&j| !holders[j].is_empty()).collect();
            for (index, &i) in held.iter().enumerate() {
                let partners = held[..index].iter().filter(|&&j| self.correlated(i, j));
                pairs.extend(partners.map(|&j| (holders[i][0], holders[j][0])));
            }
        }
        connected(tracks.len(), &pairs)
            .into_iter()
            .map(|cluster| cluster.into_iter().map(|index| tracks[index]).collect())
            .collect()
    }

    /// Marginals and moments of the tracks of a cluster.
    fn resolve(&self, tracks: &[usize], frame: &FrameContext, believed: &mut [Option<Believed>]) {
        let contenders: Vec<&Contender> = tracks.iter().map(|&track| &frame.contenders[track]).collect();
        let joint = Joint { laws: &self.laws, joint_m2: self.joint_m2.as_ref() };
        let mut held: Vec<usize> =
            contenders.iter().flat_map(|track| &track.gated).map(|gated| gated.detection).collect();
        held.sort_unstable();
        held.dedup();
        let correlated = tracks.len() > 1
            && held
                .iter()
                .enumerate()
                .any(|(index, &i)| held[..index].iter().any(|&j| self.correlated(i, j)));
        if correlated {
            let priors: Vec<&PositionLaw> = tracks.iter().map(|&track| &frame.predicted[track].law).collect();
            if let Some(events) = association::enumerate(&contenders, MAX_JOINT_EVENTS) {
                let (marginals, sums) = joint.update(&priors, &contenders, events);
                for ((&track, marginals), sum) in tracks.iter().zip(marginals).zip(sums) {
                    believed[track] = Some(Believed { marginals, sum });
                }
                return;
            }
            let parts = self.clusters(tracks, frame.contenders, false);
            if parts.len() > 1 {
                return parts.iter().for_each(|part| self.resolve(part, frame, believed));
            }
        }
        let marginals = match association::enumerate(&contenders, MAX_EVENTS) {
            Some(events) => association::marginals(&contenders, &events, &association::normalise(&events)),
            None => association::propagate(&contenders),
        };
        for ((&track, contender), marginals) in tracks.iter().zip(contenders).zip(marginals) {
            let sum = joint.mixture(&frame.predicted[track].law, contender, &marginals);
            believed[track] = Some(Believed { marginals, sum });
        }
    }
}

/// A frame while it is worked on.
struct FrameContext<'a> {
    predicted: &'a [Predicted],
    contenders: &'a [Contender],
}

/// What the association says about a track.
struct Believed {
    marginals: Marginals,
    /// Moments of the updates with detections.
    sum: MomentSum,
}

impl Observation for Detections {
    fn update(&self, predicted: &[Predicted]) -> FrameUpdate {
        let contenders: Vec<Contender> = predicted.iter().map(|track| self.contender(track)).collect();
        let frame = FrameContext { predicted, contenders: &contenders };
        let all: Vec<usize> = (0..predicted.len()).collect();
        let mut believed: Vec<Option<Believed>> = predicted.iter().map(|_| None).collect();
        for cluster in self.clusters(&all, &contenders, true) {
            self.resolve(&cluster, &frame, &mut believed);
        }
        let believed: Vec<Believed> = believed.into_iter().flatten().collect();
        let model = &self.model;
        let inside = model.detection_probability * model.gate_probability;
        // Probabilities that a track exists and is missed, and that it is seen.
        let missed: Vec<f64> = predicted
            .iter()
            .zip(&believed)
            .map(|(prior, believed)| {
                let share = (1.0 - inside) * prior.existence / (1.0 - inside * prior.existence);
                believed.marginals.missed * share
            })
            .collect();
        let seen: Vec<f64> = believed.iter().map(|believed| believed.marginals.gated.iter().sum()).collect();
        let existences: Vec<f64> = missed.iter().zip(&seen).map(|(a, b)| (a + b).clamp(0.0, 1.0)).collect();
        let claims = Claims::new(self.laws.len(), &contenders, &believed, existences);
        let tracks = predicted.iter().zip(&believed).enumerate().map(|(track, (prior, believed))| Updated {
            law: believed.sum.law(&prior.law, missed[track]).unwrap_or_else(|| prior.law.clone()),
            existence: claims.existences[track],
            detected: seen[track] > missed[track],
            merged_with: claims.merged_with(track),
            doubtful_identity: claims.overlap(track) >= COMPETES,
        });
        let tracks = tracks.collect();
        let new = model.detection_probability * model.birth_density / model.unexplained_density();
        let births = self.laws.iter().zip(&claims.of_detections).map(|(law, claims)| {
            let explained: f64 = claims.iter().map(|(_, probability)| probability).sum();
            Birth { law: law.clone(), existence: new * (1.0 - explained).clamp(0.0, 1.0) }
        });
        FrameUpdate { tracks, births: births.collect() }
    }
}

/// Who claims which detection, with which probability.
struct Claims {
    /// The tracks that may have caused a detection, the most probable first.
    of_detections: Vec<Vec<(usize, f64)>>,
    /// The detections that a track may have caused.
    of_tracks: Vec<Vec<(usize, f64)>>,
    /// Probability that a track exists.
    existences: Vec<f64>,
}

impl Claims {
    fn new(detections: usize, contenders: &[Contender], believed: &[Believed], existences: Vec<f64>) -> Self {
        let mut of_detections: Vec<Vec<(usize, f64)>> = vec![Vec::new(); detections];
        let mut of_tracks: Vec<Vec<(usize, f64)>> = Vec::with_capacity(contenders.len());
        for (track, (contender, believed)) in contenders.iter().zip(believed).enumerate() {
            let gated = contender.gated.iter().map(|gated| gated.detection);
            let claims: Vec<_> = gated.zip(believed.marginals.gated.iter().copied()).collect();
            for &(detection, probability) in &claims {
                of_detections[detection].push((track, probability));
            }
            of_tracks.push(claims);
        }
        for claims in &mut of_detections {
            claims.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        }
        Self { of_detections, of_tracks, existences }
    }

    /// The strongest other claim to a detection.
    fn rival(&self, track: usize, detection: usize) -> Option<(usize, f64)> {
        self.of_detections[detection].iter().copied().find(|&(other, _)| other != track)
    }

    /// How much of what the track claims another track claims as well.
    fn overlap(&self, track: usize) -> f64 {
        let shared = |&(detection, own): &(usize, f64)| {
            self.rival(track, detection).map_or(0.0, |(_, other)| own.min(other))
        };
        self.of_tracks[track].iter().map(shared).sum()
    }

    /// The detection that a track has caused if it exists, if there is no second one.
    fn only_detection(&self, track: usize) -> Option<usize> {
        let enough = COMPETES * self.existences[track];
        let mut claimed = self.of_tracks[track].iter().filter(|(_, probability)| *probability >= enough);
        let first = claimed.next().map(|&(detection, _)| detection);
        first.filter(|_| claimed.next().is_none())
    }

    /// The track that has probably caused the only detection of this one, for which it is the only one too.
    fn merged_with(&self, track: usize) -> Option<usize> {
        let detection = self.only_detection(track)?;
        let (other, probability) = self.rival(track, detection)?;
        (probability >= COMPETES && self.only_detection(other) == Some(detection)).then_some(other)
    }
}
