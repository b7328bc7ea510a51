//! Statistics of several targets: GOSPA with its parts of fixes and of tracks, identity switches, errors beside the joint bound.
//!
//! They are those of the latest run.

use model::units::db_from_ratio;
use nalgebra::DVector;
use serde::Serialize;
use tracking::scores::Identified;
use tracking::{GospaSettings, RunScore};

use crate::fix::FixRecord;
use crate::place::{FixPlace, symmetric};
use crate::targets::JudgedTarget;

/// How well a list of positions shows the targets that are there, over the frames of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SetFigures {
    /// Mean GOSPA (p = 2, c = 2 m, alpha = 2).
    pub gospa_m: f64,
    /// Rms distance between targets and what is assigned to them; none if nothing is.
    pub localisation_m: Option<f64>,
    /// Share of the targets that are missed.
    pub missed_rate: f64,
    /// Share of what is listed that is no target.
    pub false_rate: f64,
    /// Share of the frames with as many entries as targets.
    pub count_right_rate: f64,
}

/// Figures of several targets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TargetFigures {
    /// Frames whose truth is known.
    pub frames: u64,
    /// Of the tracks; none if no fix has any.
    #[serde(flatten)]
    pub tracks: Option<SetFigures>,
    /// How often a target got another track.
    pub switches: usize,
    /// Mean normalised squared error of the positions of tracks: the number of free coordinates for a consistent covariance.
    pub track_nees: Option<f64>,
    /// Of single frames.
    pub fixes: SetFigures,
    /// Ratio of the mean squared error of fixes to the mean joint bound of their targets, in frames with the right number.
    pub gap_db: Option<f64>,
    /// Mean normalised squared error of these fixes.
    pub nees: Option<f64>,
}

/// Sums over the frames of a run.
#[derive(Debug, Clone)]
struct SetScore {
    run: RunScore,
    listed: u64,
}

impl SetScore {
    fn new() -> Self {
        Self { run: RunScore::new(GospaSettings::default()), listed: 0 }
    }

    fn frame(&mut self, time: f64, truth: &[Identified], found: &[Identified]) {
        if self.run.frame(time, truth, found).is_ok() {
            self.listed += found.len() as u64;
        }
    }

    fn figures(&self, targets: u64) -> SetFigures {
        let GospaSettings { order, cutoff_m } = *self.run.settings();
        let frames = self.run.frames() as f64;
        let [gospa_m, localisation, missed, false_] = self.run.means();
        // Every missed target and every false entry costs this much.
        let count = |part: f64| 2.0 * frames * part / cutoff_m.powf(order);
        let share = |count: f64, of: u64| if of == 0 { 0.0 } else { count / of as f64 };
        let assigned = targets as f64 - count(missed);
        SetFigures {
            gospa_m,
            localisation_m: (assigned > 0.5).then(|| (frames * localisation / assigned).powf(order.recip())),
            missed_rate: share(count(missed), targets),
            false_rate: share(count(false_), self.listed),
            count_right_rate: self.run.count_right_rate(),
        }
    }
}

/// Statistics of several targets.
#[derive(Debug, Clone)]
pub struct TargetStatistics {
    run: u64,
    frames: u64,
    /// True targets, over all frames.
    targets: u64,
    tracks: SetScore,
    /// Whether targets are followed.
    tracked: bool,
    fixes: SetScore,
    error_m2: f64,
    bound_m2: f64,
    judged: u64,
    /// Sums and numbers of values.
    nees: (f64, u64),
    track_nees: (f64, u64),
}

impl TargetStatistics {
    /// Statistics of a run before its first frame.
    pub fn new(run: u64) -> Self {
        let (tracks, fixes) = (SetScore::new(), SetScore::new());
        let (frames, targets, judged) = (0, 0, 0);
        let (error_m2, bound_m2, nees, track_nees) = (0.0, 0.0, (0.0, 0), (0.0, 0));
        let tracked = false;
        Self { run, frames, targets, tracks, tracked, fixes, error_m2, bound_m2, judged, nees, track_nees }
    }

    /// Whether these are the statistics of the run of a fix.
    pub fn is_of(&self, fix: &FixRecord) -> bool {
        self.run == fix.run
    }

    /// Adds a frame with these targets.
    pub fn record(&mut self, fix: &FixRecord, truth: &[JudgedTarget]) {
        self.frames += 1;
        self.targets += truth.len() as u64;
        let identified =
            |identity: u64, place: &FixPlace| (identity, DVector::from_row_slice(place.point().as_slice()));
        let targets: Vec<_> =
            truth.iter().map(|target| identified(target.identity, &target.position_m)).collect();
        let fixes = fix.targets.iter().enumerate();
        let fixes: Vec<_> = fixes.map(|(i, target)| identified(i as u64, &target.position_m)).collect();
        let tracks: Vec<_> =
            fix.tracks().iter().map(|track| identified(track.identity, &track.position_m)).collect();
        self.tracked |= fix.tracks.is_some();
        self.tracks.frame(fix.frame as f64, &targets, &tracks);
        self.fixes.frame(fix.frame as f64, &targets, &fixes);
        // A frame with a wrong number of targets is an error of its own, and counted as such.
        for target in truth.iter().filter(|_| truth.len() == fix.targets.len()) {
            if let Some((error_m, bound_m)) = target.error_m.zip(target.bound_rms_m) {
                self.error_m2 += error_m.powi(2);
                self.bound_m2 += bound_m.powi(2);
                self.judged += 1;
            }
            if let Some(nees) = target.nees {
                self.nees = (self.nees.0 + nees, self.nees.1 + 1);
            }
        }
        for nees in truth.iter().filter_map(|target| track_nees(fix, target)) {
            self.track_nees = (self.track_nees.0 + nees, self.track_nees.1 + 1);
        }
    }

    pub fn figures(&self) -> TargetFigures {
        let mean = |(sum, count): (f64, u64)| (count > 0).then(|| sum / count as f64);
        TargetFigures {
            frames: self.frames,
            tracks: self.tracked.then(|| self.tracks.figures(self.targets)),
            switches: self.tracks.run.switches(),
            track_nees: mean(self.track_nees),
            fixes: self.fixes.figures(self.targets),
            gap_db: (self.judged > 0).then(|| db_from_ratio(self.error_m2 / self.bound_m2)),
            nees: mean(self.nees),
        }
    }
}

/// Normalised squared error of the position of the track of a target.
fn track_nees(fix: &FixRecord, target: &JudgedTarget) -> Option<f64> {
    let track = fix.tracks().iter().find(|track| Some(track.identity) == target.track)?;
    let whole = symmetric(&track.covariance)?;
    let axes = whole.nrows() / 2;
    let covariance_m2 = whole.view((0, 0), (axes, axes)).into_owned();
    model::Score::new(track.position_m.point(), &covariance_m2, target.position_m.point()).nees
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::Source;
    use crate::place::Axes;
    use crate::targets::{FixTarget, FixTrack};
    use estimation::fusion::FrameBlocks;
    use model::Point;

    fn place(x_m: f64) -> FixPlace {
        FixPlace::new(Point::new(x_m, 0.0, 0.0), Axes::Xy)
    }

    fn track(identity: u64, x_m: f64) -> FixTrack {
        let mut covariance = vec![0.0; 10];
        [0, 4, 7, 9].into_iter().for_each(|i| covariance[i] = 0.01);
        FixTrack {
            identity,
            position_m: place(x_m),
            velocity_m_s: place(0.0),
            covariance,
            existence: 1.0,
            coasting: false,
            merged_with: None,
            doubtful_identity: false,
            age_s: 1.0,
        }
    }

    /// Two frames of two targets 10 m apart. The first has both tracks, 0.1 m off, and one fix; in the second one track is missing, another
    /// has its target, and a fix shows nothing.
    #[test]
    fn figures_of_a_run_by_hand() {
        let none = Err(estimation::location::Unobservable::NoMeasurements.into());
        let record = FixRecord::new(Default::default(), &FrameBlocks::new(3), None, &none, Source::Simulated);
        let fix = |x_m: f64| FixTarget {
            position_m: place(x_m),
            covariance_m2: vec![0.01, 0.0, 0.01],
            false_alarm_probability: None,
            unresolved: false,
        };
        let target = |identity: u64, x_m: f64, track: Option<u64>, error_m: Option<f64>| JudgedTarget {
            identity,
            position_m: place(x_m),
            bound_rms_m: Some(0.1),
            fix: error_m.map(|_| 0),
            error_m,
            nees: error_m.map(|error_m| (error_m / 0.1).powi(2)),
            track,
        };
        let mut statistics = TargetStatistics::new(1);
        let (tracks, targets) = (Some(vec![track(1, 0.1), track(2, 9.9)]), vec![fix(0.1)]);
        let first = FixRecord { tracks, targets, ..record.clone() };
        statistics.record(&first, &[target(7, 0.0, Some(1), Some(0.1)), target(8, 10.0, Some(2), None)]);
        let (tracks, targets) = (Some(vec![track(3, 10.0)]), vec![fix(-0.1), fix(5.0)]);
        let second = FixRecord { tracks, targets, ..record };
        statistics.record(&second, &[target(7, 0.0, None, Some(0.1)), target(8, 10.0, Some(3), None)]);
        let TargetFigures { frames, tracks, switches, track_nees, fixes, gap_db, nees } =
            statistics.figures();
        let tracks = tracks.unwrap();
        assert_eq!((frames, switches), (2, 1));
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
        // sqrt(0.02) in the first frame, sqrt(c^2 / 2) in the second.
        close(tracks.gospa_m, (0.02f64.sqrt() + 2f64.sqrt()) / 2.0);
        close(tracks.localisation_m.unwrap(), (0.02f64 / 3.0).sqrt());
        close(tracks.missed_rate, 0.25);
        close(tracks.false_rate, 0.0);
        close(tracks.count_right_rate, 0.5);
        close(track_nees.unwrap(), 2.0 / 3.0);
        close(fixes.missed_rate, 0.5);
        close(fixes.false_rate, 1.0 / 3.0);
        close(fixes.count_right_rate, 0.5);
        close(gap_db.unwrap(), 0.0);
        close(nees.unwrap(), 1.0);
    }
}
