//! Targets that walk: single frames, and tracks that are followed in the signals.
//!
//! A run has [`FRAMES`] frames at 20 frames a second, of which the first [`UNSCORED`] are not scored: tracks have to begin. Every
//! frame is located on its own, and the same survey continues the tracks (track-before-detect, default settings, confirmed tracks
//! count). Scores are means over the frames of a run: GOSPA (p = 2, c = 2 m) with its parts, and the share of the targets that have
//! an estimate within the cut-off.
//!
//! The posterior bound is that of the tracker's motion model with the exact information of each target as if it were alone, at its true
//! places; its GOSPA is the root of the sum of the bounds, none missed or false. It bounds the root of the mean square, of
//! which the mean GOSPA of six normal errors is 4 % less.

use estimation::direct::FollowSettings;
use model::scenario::Motion;
use model::{Gain, Information, Scenario, Scheme};
use nalgebra::{DMatrix, DVector};
use tracking::scores::Identified;
use tracking::{GospaSettings, MotionModel, PosteriorBound, RunScore, Tracker, TrackerSettings};

use super::target_site::TargetSite;
use super::{Deserialize, Draw, GridPoint, Measure, PointRows, Serialize, column};
use crate::figures::catalogue::Figure;

/// Frames of a run.
pub const FRAMES: u64 = 140;
/// Frames at the start of a run that are not scored.
pub const UNSCORED: u64 = 40;
/// Time between frames.
const INTERVAL_S: f64 = 0.05;
/// Rms speed of the targets: 1.5 m/s.
const SPEED_M_PER_FRAME: f64 = 0.075;
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
#[derive(Debug, Serialize, Deserialize)]
pub struct ScoredRun {
    /// GOSPA and its parts, of single frames and of tracks.
    means: [[f64; 4]; 2],
    /// Switches of the tracks.
    switches: usize,
    bound_m: f64,
}

pub struct TrackingMeasure;

impl Measure for TrackingMeasure {
    type Outcome = ScoredRun;
    /// A run takes seconds.
    const UNIT_TRIALS: u64 = 1;

    fn trial(draw: Draw) -> anyhow::Result<ScoredRun> {
        let site = site(draw.scenario)?;
        let mut scores = [(); 2].map(|()| RunScore::new(GospaSettings::default()));
        for (frame, shown) in frames(&site)?.iter().enumerate().skip(UNSCORED as usize) {
            let time_s = frame as f64 * INTERVAL_S;
            for (score, estimates) in scores.iter_mut().zip([&shown.found_m, &shown.tracks_m]) {
                score.frame(time_s, &shown.truth_m, estimates)?;
            }
        }
        let means = [scores[0].means(), scores[1].means()];
        Ok(ScoredRun { means, switches: scores[1].switches(), bound_m: bound_m(&site)? })
    }

    fn rows(point: &GridPoint, runs: &[ScoredRun], rows: &mut PointRows) {
        // What is missed if no target has an estimate.
        let all_m2 = GospaSettings::default().cutoff_m.powi(2) / 2.0 * point.scenario.targets.len() as f64;
        for (i, scheme) in ["single-frames", "tracks"].iter().enumerate() {
            for (part, metric) in ["gospa_m", "localisation_m2", "missed_m2", "false_m2"].iter().enumerate() {
                rows.mean(scheme, metric, &column(runs, |run| run.means[i][part]));
            }
            rows.mean(scheme, "target_share", &column(runs, |run| 1.0 - run.means[i][2] / all_m2));
        }
        rows.mean("tracks", "switches", &column(runs, |run| run.switches as f64));
        rows.mean("posterior-bound", "gospa_m", &column(runs, |run| run.bound_m));
    }
}

/// Targets that walk, as many as the scenario has.
fn site(mut scenario: Scenario) -> anyhow::Result<TargetSite> {
    for target in &mut scenario.targets {
        target.motion = Motion::Walk { speed_m_per_frame: SPEED_M_PER_FRAME };
    }
    TargetSite::new(&scenario)
}

/// The points of the figure `tracking-power`; x is the transmit power in dBm.
pub fn points(seed: u64) -> anyhow::Result<Vec<GridPoint>> {
    let mut plan = Figure::TrackingPower.plan().clone();
    plan.set.push(format!("seed={seed}"));
    Ok(plan.resolve()?.points)
}

/// The frames of a run at a point of the figure.
pub fn run(point: &GridPoint, run: u64) -> anyhow::Result<Vec<FrameOfRun>> {
    frames(&site(Draw::new(point, run).scenario)?)
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
    let mut bounds = vec![PosteriorBound::new(motion, initial)?; site.source.targets(0).len()];
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
