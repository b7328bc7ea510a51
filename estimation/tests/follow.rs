//! Tracks followed in the signals themselves, at powers at which single frames detect some targets only. Table I, 20 frames a
//! second, targets that walk.
#![allow(clippy::print_stdout)]

use hyloc_estimation::direct::{
    ClockPrior, DirectLocator, DirectSettings, Evidence, FollowSettings, FollowedFrame, Survey,
};
use model::random::{Purpose, Stream, stream};
use model::{EchoSource, Point, Scenario};
use rand::RngExt;
use rayon::prelude::*;
use tracking::{Tracker, TrackerSettings};

const INTERVAL_S: f64 = 0.05;
const SPEED_M_S: f64 = 1.5;
/// A track within this distance of the target is its track.
const NEAR_M: f64 = 2.0;

/// Targets that walk at a constant speed and turn smoothly, away from the walls.
struct Walkers {
    random: Stream,
    places: Vec<(Point, f64)>,
}

impl Walkers {
    fn new(seed: u64, count: usize) -> Self {
        let mut random = stream(seed, Purpose::Study, [21, count as u64]);
        let mut uniform = |from: f64, to: f64| from + (to - from) * random.random::<f64>();
        let places = (0..count)
            .map(|_| {
                (Point::new(uniform(2.0, 8.0), uniform(2.0, 8.0), 0.0), uniform(0.0, std::f64::consts::TAU))
            })
            .collect();
        Self { random, places }
    }

    fn step(&mut self) -> Vec<Point> {
        for (place, heading) in &mut self.places {
            let inwards = Point::new(5.0, 5.0, 0.0) - *place;
            let (toward, far) = (inwards.y.atan2(inwards.x), inwards.norm() > 3.0);
            let off = (toward - *heading + std::f64::consts::PI).rem_euclid(std::f64::consts::TAU)
                - std::f64::consts::PI;
            let turn = if far { off.clamp(-0.5, 0.5) } else { 0.5 * self.random.random::<f64>() - 0.25 };
            *heading += turn * INTERVAL_S;
            *place += Point::new(heading.cos(), heading.sin(), 0.0) * (SPEED_M_S * INTERVAL_S);
        }
        self.places.iter().map(|(place, _)| *place).collect()
    }
}

/// A site with its locator.
struct Site {
    source: EchoSource,
    locator: DirectLocator,
}

impl Site {
    fn new(seed: u64, power_dbm: f64) -> Self {
        let source = EchoSource::new(&Scenario::default().with_power_dbm(power_dbm).with_seed(seed)).unwrap();
        let locator = DirectLocator::new(source.system(), DirectSettings::default()).unwrap();
        Self { source, locator }
    }

    fn survey(&self, frame: u64, targets_m: &[Point]) -> Survey {
        self.locator.survey(self.evidence(frame, targets_m))
    }

    /// A frame with these targets, whose gains are drawn anew in every frame.
    fn evidence(&self, frame: u64, targets_m: &[Point]) -> Evidence {
        let system = self.source.system();
        let mut evidence = self.locator.evidence();
        for l in 0..system.irs_count() {
            let mut echoes = self.source.noise(l, frame);
            for (t, target_m) in targets_m.iter().enumerate() {
                let own = frame + 1_000_000 * (1 + t as u64);
                echoes += self.source.frame(l, own, *target_m) - self.source.noise(l, own);
            }
            for (k, irs) in system.irs.iter().enumerate() {
                let spectrum = echoes.select_columns(&irs.waveform.subcarriers);
                evidence.spectrum(l, k, &spectrum, system.noise_power_w).unwrap();
            }
        }
        evidence
    }
}

/// Of the frames of a run after the first 40.
#[derive(Debug, Default)]
struct Followed {
    frames: f64,
    /// With a fix of the frame alone that is near the target.
    fixes: f64,
    /// With as many confirmed tracks as targets, each near one.
    right: f64,
    /// Confirmed tracks that are near no target.
    false_tracks: f64,
    nees: f64,
    tracks: f64,
}

impl Followed {
    fn run(seed: u64, power_dbm: f64, targets: usize, frames: u64) -> Self {
        let (site, mut walkers) = (Site::new(seed, power_dbm), Walkers::new(seed, targets));
        let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
        let mut sums = Self::default();
        for frame in 0..frames {
            let targets_m = walkers.step();
            let survey = site.survey(frame, &targets_m);
            let observed = site.locator.followed(&survey, FollowSettings::default()).unwrap();
            tracker.step(frame as f64 * INTERVAL_S, &observed).unwrap();
            if frame >= 40 {
                let fix = site.locator.locate(&survey);
                sums.frames += 1.0;
                sums.fixes += share(fix.is_ok_and(|fix| nearest(fix.position_m, &targets_m) < 1.0));
                sums.judge(&tracker, &targets_m);
            }
        }
        sums
    }

    fn judge(&mut self, tracker: &Tracker, targets_m: &[Point]) {
        let mut near = 0;
        for track in tracker.confirmed() {
            let position = track.position_m();
            let place = Point::new(position[0], position[1], 0.0);
            if nearest(place, targets_m) > NEAR_M {
                self.false_tracks += 1.0;
                continue;
            }
            near += 1;
            let squared = |target: &Point| {
                let error = (place - target).xy();
                let error = nalgebra::DVector::from_row_slice(error.as_slice());
                error.dot(&track.position_covariance_m2().cholesky().unwrap().solve(&error))
            };
            self.nees += targets_m.iter().map(squared).fold(f64::INFINITY, f64::min);
            self.tracks += 1.0;
        }
        self.right += share(near == targets_m.len() && tracker.confirmed().count() == near);
    }

    /// Runs of several seeds together.
    fn all(power_dbm: f64, targets: usize, frames: u64, seeds: u64) -> Self {
        let runs = (0..seeds).into_par_iter().map(|seed| Self::run(seed, power_dbm, targets, frames));
        let all = runs.reduce(Self::default, |a, b| Self {
            frames: a.frames + b.frames,
            fixes: a.fixes + b.fixes,
            right: a.right + b.right,
            false_tracks: a.false_tracks + b.false_tracks,
            nees: a.nees + b.nees,
            tracks: a.tracks + b.tracks,
        });
        println!(
            "{power_dbm} dBm, {targets} targets: {:.1} % of the frames have a fix, {:.1} % the right tracks, NEES {:.2}, {} false",
            100.0 * all.fixes / all.frames,
            100.0 * all.right / all.frames,
            all.nees / f64::max(all.tracks, 1.0),
            all.false_tracks
        );
        all
    }
}

fn share(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn nearest(place: Point, targets_m: &[Point]) -> f64 {
    targets_m.iter().map(|target| (target - place).norm()).fold(f64::INFINITY, f64::min)
}

/// At 36 dBm three frames of four have a fix, at 33 dBm one of four; the track holds in nearly all of them. Errors of a track hold on
/// for some frames, so that 640 of them scatter by 0.3 about a mean NEES of 2.
#[test]
fn a_target_is_followed_below_the_threshold_of_single_frames() {
    for (power_dbm, least, most_fixes) in [(36.0, 0.98, 0.9), (33.0, 0.9, 0.5)] {
        let all = Followed::all(power_dbm, 1, 200, 4);
        assert!(all.right >= least * all.frames && all.fixes <= most_fixes * all.frames, "{all:?}");
        assert!(all.false_tracks == 0.0, "{all:?}");
        let nees = all.nees / all.tracks;
        assert!((1.2..3.5).contains(&nees), "{nees}");
    }
}

/// A target that walks out of the area at 45 dBm: its track ends at the edge of the searched area, which is half a resolution
/// (1.5 m) and a step past the area itself. What is seen of a target beyond may still look like one inside.
#[test]
fn a_target_that_walks_out_ends_its_track() {
    let site = Site::new(1, 45.0);
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    let (mut first, mut last_m) = (None, 0.0);
    for frame in 0..110u64 {
        let target_m = Point::new(6.0 + SPEED_M_S * INTERVAL_S * frame as f64, 5.0, 0.0);
        let survey = site.survey(frame, &[target_m]);
        let observed = site.locator.followed(&survey, FollowSettings::default()).unwrap();
        tracker.step(frame as f64 * INTERVAL_S, &observed).unwrap();
        let confirmed: Vec<u64> = tracker.confirmed().map(|track| track.id).collect();
        let id = *first.get_or_insert_with(|| confirmed[0]);
        if confirmed.contains(&id) {
            last_m = target_m.x;
        }
        assert!(target_m.x > 11.0 || confirmed == [id], "frame {frame}: {confirmed:?}");
    }
    println!("a target that walks out is followed up to {last_m:.2} m");
    assert!((11.0..13.5).contains(&last_m), "{last_m}");
}

/// A frame may be followed on another thread than the one that has surveyed it.
#[test]
fn frames_are_followed_on_any_thread() {
    fn shared<T: Send + Sync>() {}
    shared::<Survey>();
    shared::<FollowedFrame<'static>>();
}

/// Clocks off by up to 20 ns: with the offsets removed the frame is that of exact clocks; with unknown clocks it is refused.
#[test]
fn known_offsets_are_removed() {
    let site = Site::new(2, 45.0);
    let exact = site.survey(0, &[Point::new(3.0, 6.0, 0.0)]);
    let offsets_s = [20e-9, -7e-9, 3e-9];
    let locator = &site.locator;
    let late = locator.with_offsets_removed(&exact, &offsets_s.map(|offset_s| -offset_s)).unwrap();
    let found = locator.locate(&locator.with_offsets_removed(&late, &offsets_s).unwrap()).unwrap();
    let expected = locator.locate(&exact).unwrap();
    assert!((found.position_m - expected.position_m).norm() < 1e-6);
    let shifted =
        locator.locate(&late).map_or(f64::INFINITY, |fix| (fix.position_m - expected.position_m).norm());
    assert!(shifted > 0.3, "{shifted}");
    let prior = ClockPrior::independent(3, 1e-8).unwrap();
    let unknown = locator.survey_with_clocks(site.evidence(0, &[Point::new(3.0, 6.0, 0.0)]), prior);
    assert!(locator.followed(&unknown, FollowSettings::default()).is_none());
    let known = locator.with_offsets_removed(&unknown, &[0.0; 3]).unwrap();
    assert!(locator.followed(&known, FollowSettings::default()).is_some());
    let found = locator.locate(&known).unwrap();
    assert!((found.position_m - expected.position_m).norm() < 1e-6);
    assert!(locator.with_offsets_removed(&exact, &offsets_s[..2]).is_none());
    assert!(locator.with_offsets_removed(&exact, &[f64::NAN; 3]).is_none());
}

#[test]
fn three_targets_have_three_tracks() {
    let all = Followed::all(45.0, 3, 140, 3);
    assert!(all.right >= 0.95 * all.frames && all.false_tracks <= 0.01 * all.frames, "{all:?}");
}

/// One minute of noise alone. `FRAMES=12000` in the environment makes it ten.
#[test]
fn noise_makes_no_track() {
    let frames = std::env::var("FRAMES").ok().and_then(|frames| frames.parse().ok()).unwrap_or(1200);
    let all = Followed::all(36.0, 0, frames, 1);
    assert_eq!(all.false_tracks, 0.0, "{all:?}");
}
