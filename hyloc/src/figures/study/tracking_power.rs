//! Three targets that walk, against transmit power: single frames, and tracks that are followed in the signals. Table I otherwise.
//!
//! A run has [`FRAMES`] frames at 20 frames a second, of which the first [`UNSCORED`] are not scored: tracks have to begin. Every
//! frame is located on its own, and the same survey continues the tracks (track-before-detect, default settings, confirmed tracks
//! count). Scores are means over the frames of a run: GOSPA (p = 2, c = 2 m) with its parts, and the share of the targets that have
//! an estimate within the cut-off.
//!
//! The posterior bound is that of the tracker's motion model with the exact information of each target as if it were alone, at its true
//! places; its GOSPA is the root of the sum of the bounds, none missed or false. It bounds the root of the mean square, of
//! which the mean GOSPA of six normal errors is 4 % less.
//!
//! Stone Soup's rows are those that `benchmarks/tracking.py --signals` wrote, for the detections of the same runs (seed 1).

use estimation::direct::FollowSettings;
use model::scenario::Motion;
use model::{Gain, Information, Scenario, Scheme};
use nalgebra::{DMatrix, DVector};
use tracking::scores::Identified;
use tracking::{GospaSettings, MotionModel, PosteriorBound, RunScore, Tracker, TrackerSettings};

use super::target_site::TargetSite;
use super::{Draw, Study, column};
use crate::figures::catalogue::Figure;
use crate::figures::rows::{Row, from_csv};

/// Transmit powers.
pub const POWERS_DBM: [f64; 7] = [33.0, 36.0, 39.0, 40.0, 42.0, 45.0, 50.0];
/// Frames of a run.
pub const FRAMES: u64 = 140;
/// Frames at the start of a run that are not scored.
pub const UNSCORED: u64 = 40;
/// Time between frames.
const INTERVAL_S: f64 = 0.05;
/// Targets of a run.
const TARGETS: usize = 3;
/// Their rms speed: 1.5 m/s.
const SPEED_M_PER_FRAME: f64 = 0.075;
/// Scores of Stone Soup on the detections of the same runs.
const STONE_SOUP: &str = include_str!("stone-soup.csv");

/// One frame of a run. Positions are those along the free coordinates.
#[derive(Debug, Clone)]
pub struct FrameOfRun {
    pub truth_m: Vec<Identified>,
    /// The targets that the frame alone shows, numbered from the strongest.
    pub found_m: Vec<Identified>,
    /// Covariance of all of them, in their order.
    pub covariance_m2: DMatrix<f64>,
    /// The confirmed tracks after the frame.
    pub tracks_m: Vec<Identified>,
}

/// Means over the scored frames of a run.
struct ScoredRun {
    /// Of single frames and of tracks.
    scores: [RunScore; 2],
    bound_m: f64,
}

/// The frames of a run of the figure, with the power of this index.
pub fn run(seed: u64, power: usize, run: u64) -> anyhow::Result<Vec<FrameOfRun>> {
    let draw = Draw::new(seed, Figure::TrackingPower, power, run);
    frames(&site(POWERS_DBM[power], draw.scenario_seed)?)
}

pub fn against_power(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut rows = study.new_rows();
    for (point, power_dbm) in study.points(POWERS_DBM) {
        let runs = study.point(point, |draw| ScoredRun::new(&site(power_dbm, draw.scenario_seed)?))?;
        for (i, scheme) in ["single-frames", "tracks"].iter().enumerate() {
            for (part, metric) in ["gospa_m", "localisation_m2", "missed_m2", "false_m2"].iter().enumerate() {
                rows.mean(power_dbm, scheme, metric, &column(&runs, |run| run.scores[i].means()[part]));
            }
            let shares = column(&runs, |run| target_share(&run.scores[i]));
            rows.mean(power_dbm, scheme, "target_share", &shares);
        }
        rows.mean(power_dbm, "tracks", "switches", &column(&runs, |run| run.scores[1].switches() as f64));
        rows.mean(power_dbm, "posterior-bound", "gospa_m", &column(&runs, |run| run.bound_m));
    }
    let mut rows = rows.into_rows();
    rows.extend(from_csv(STONE_SOUP)?);
    Ok(rows)
}

/// Share of the targets with an estimate.
fn target_share(score: &RunScore) -> f64 {
    let cost_m2 = score.settings().cutoff_m.powi(2) / 2.0;
    1.0 - score.means()[2] / (cost_m2 * TARGETS as f64)
}

fn site(power_dbm: f64, seed: u64) -> anyhow::Result<TargetSite> {
    let mut scenario = Scenario::default().with_power_dbm(power_dbm).with_seed(seed).with_targets(TARGETS);
    for target in &mut scenario.targets {
        target.motion = Motion::Walk { speed_m_per_frame: SPEED_M_PER_FRAME };
    }
    TargetSite::new(&scenario)
}

fn frames(site: &TargetSite) -> anyhow::Result<Vec<FrameOfRun>> {
    let axes = site.source.system().axes().len();
    let mut tracker = Tracker::new(axes, TrackerSettings::default())?;
    let mut frames = Vec::with_capacity(FRAMES as usize);
    for frame in 0..FRAMES {
        let targets = site.source.targets(frame);
        let survey = site.survey(frame, &targets)?;
        let observed = site.locator.followed(&survey, FollowSettings::default());
        let observed = observed.ok_or_else(|| anyhow::anyhow!("a frame has no spectra"))?;
        tracker.step(frame as f64 * INTERVAL_S, &observed)?;
        let (found, covariance_m2) = site.located(&survey);
        let numbered = found.iter().zip(0..);
        frames.push(FrameOfRun {
            truth_m: targets.iter().map(|t| (t.identity as u64, site.free_m(t.position_m))).collect(),
            found_m: numbered.map(|(target, number)| (number, site.free_m(target.position_m))).collect(),
            covariance_m2,
            tracks_m: tracker.confirmed().map(|track| (track.id, track.position_m())).collect(),
        });
    }
    Ok(frames)
}

/// The root mean square error of all targets together at the posterior bound, mean over the scored frames.
fn bound_m(site: &TargetSite) -> anyhow::Result<f64> {
    let (system, motion) = (site.source.system(), MotionModel::default());
    let axes = system.axes().len();
    let place_m2 = system.coverage.extents_m().into_iter().map(|extent_m| extent_m.powi(2) / 12.0);
    let initial = place_m2.chain(vec![motion.birth_speed_m_s.powi(2); axes]);
    let initial = DMatrix::from_diagonal(&DVector::from_iterator(2 * axes, initial));
    let mut bounds = vec![PosteriorBound::new(motion, initial)?; TARGETS];
    let mut sum_m = 0.0;
    for frame in 0..FRAMES {
        let mut squared_m2 = 0.0;
        for (bound, target) in bounds.iter_mut().zip(site.source.targets(frame)) {
            let exact = Information::new(system, target.position_m, target.rcs_m2, Gain::Unknown);
            bound.step(INTERVAL_S, &exact.position_information(Scheme::Hybrid))?;
            squared_m2 += bound.position_m().powi(2);
        }
        sum_m += if frame >= UNSCORED { squared_m2.sqrt() } else { 0.0 };
    }
    Ok(sum_m / (FRAMES - UNSCORED) as f64)
}

impl ScoredRun {
    fn new(site: &TargetSite) -> anyhow::Result<Self> {
        let mut single = RunScore::new(GospaSettings::default());
        let mut tracks = single.clone();
        for (frame, shown) in frames(site)?.iter().enumerate().skip(UNSCORED as usize) {
            let time_s = frame as f64 * INTERVAL_S;
            single.frame(time_s, &shown.truth_m, &shown.found_m)?;
            tracks.frame(time_s, &shown.truth_m, &shown.tracks_m)?;
        }
        Ok(Self { scores: [single, tracks], bound_m: bound_m(site)? })
    }
}
