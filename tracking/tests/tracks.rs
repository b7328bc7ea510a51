//! Tracks over many frames: identities, existence, births, merging and deaths.

mod support;

use hyloc_tracking::*;
use nalgebra::DVector;
use rand::RngExt;
use support::*;

const STEP_S: f64 = 0.05;

fn identified(tracker: &Tracker) -> Vec<(u64, DVector<f64>)> {
    tracker.confirmed().map(|track| (track.id, track.position_m())).collect()
}

/// 100 runs of 8 s at 20 frames a second: two targets walk towards each other at 1.2 m/s each and pass at 1 m, P_D = 0.9, one
/// false detection per frame in 100 square metres, deviation 0.1 m. No identity switch in any run; if one run in 30
/// had one, 100 runs without would have a chance of 3 %.
#[test]
fn targets_that_pass_at_one_metre_keep_their_identities() {
    let model = DetectionModel { clutter_density: 0.01, ..Default::default() };
    let hall = Hall { half_m: 5.0, deviation_m: 0.1, model };
    let mut rng = seeded(9);
    let (mut switches, mut gospa_m, mut right, mut latencies_s) = (0, 0.0, 0.0, Vec::new());
    const RUNS: usize = 100;
    for _ in 0..RUNS {
        let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
        let mut score = RunScore::new(GospaSettings::default());
        let angle = std::f64::consts::TAU * rng.random::<f64>();
        let (along, across) = (
            DVector::from_vec(vec![angle.cos(), angle.sin()]),
            DVector::from_vec(vec![-angle.sin(), angle.cos()]),
        );
        for frame in 0..160 {
            let time_s = STEP_S * f64::from(frame);
            let way_m = 1.2 * (time_s - 4.0);
            let truth = [&along * way_m + &across * 0.5, &along * -way_m - &across * 0.5];
            tracker.step(time_s, &hall.frame(&mut rng, &truth)).unwrap();
            let truth: Vec<_> = truth.into_iter().enumerate().map(|(id, at)| (id as u64, at)).collect();
            score.frame(time_s, &truth, &identified(&tracker)).unwrap();
        }
        switches += score.switches();
        gospa_m += score.means()[0] / RUNS as f64;
        right += score.count_right_rate() / RUNS as f64;
        for target in score.targets().values() {
            latencies_s.push(target.latency_s().expect("every target is found"));
        }
    }
    let mean_s = latencies_s.iter().sum::<f64>() / latencies_s.len() as f64;
    let latest_s = latencies_s.into_iter().fold(0.0, f64::max);
    println!("switches {switches}, mean GOSPA {gospa_m:.3} m, count right {right:.4}");
    println!("latency {mean_s:.3} s, at most {latest_s:.2} s");
    assert_eq!(switches, 0);
    // Two targets at 0.07 m each, and five frames of 160 without tracks, at 2 m.
    assert!(gospa_m < 0.2, "{gospa_m}");
    assert!(right > 0.96, "{right}");
    // Four detections confirm: three frames, and 0.44 misses on average, are 0.17 s.
    assert!(mean_s < 0.2, "{mean_s}");
    assert!(latest_s <= 0.5, "{latest_s}");
}

/// Ten minutes at 20 frames a second with one false detection per frame in 100 square metres, and no target: no track is
/// confirmed. The expected number is at most frames x area x P_D x birth density / 19 = 0.06 (Ville).
#[test]
fn noise_alone_gives_no_track_in_ten_minutes() {
    let model = DetectionModel { clutter_density: 0.01, ..Default::default() };
    let hall = Hall { half_m: 5.0, deviation_m: 0.1, model };
    let mut rng = seeded(10);
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    let (mut confirmed, mut most) = (0, 0);
    for frame in 0..12_000 {
        let changes = tracker.step(STEP_S * f64::from(frame), &hall.frame(&mut rng, &[])).unwrap();
        confirmed += changes.confirmed.len();
        most = most.max(tracker.tracks().count());
    }
    println!("at most {most} tentative tracks");
    assert_eq!(confirmed, 0);
    assert!(most < 40, "{most}");
}

/// The same with targets expected 1000 times as often: false tracks are confirmed, but no more often than the model says.
/// Ville's bound is 12 000 x 100 x 0.9e-3 / 19 = 57 in ten minutes; the count may not exceed it by more than 3 deviations.
#[test]
fn false_tracks_are_as_rare_as_their_existence_says() {
    let model = DetectionModel { clutter_density: 0.01, birth_density: 1e-3, ..Default::default() };
    let hall = Hall { half_m: 5.0, deviation_m: 0.1, model };
    let mut rng = seeded(11);
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    let mut confirmed = 0;
    for frame in 0..12_000 {
        confirmed +=
            tracker.step(STEP_S * f64::from(frame), &hall.frame(&mut rng, &[])).unwrap().confirmed.len();
    }
    let bound = 12_000_f64 * 100.0 * 0.9e-3 / 19.0;
    println!("{confirmed} confirmed, bound {bound:.0}");
    assert!((confirmed as f64) < bound + 3.0 * bound.sqrt(), "{confirmed} {bound}");
    // An existence that never rises would pass as well.
    assert!(confirmed > 0);
}

/// 3000 runs in which a first detection is that of a target with the probability that its birth states, P_D = 0.7; existence
/// after 3 further frames against what is true. The sum of (existence - truth) has mean zero and variance sum r (1 - r); a
/// missing gate probability, or clutter counted twice, is off by tens of deviations.
#[test]
fn existence_is_calibrated() {
    let model = DetectionModel {
        detection_probability: 0.7,
        clutter_density: 0.3,
        birth_density: 1e-30,
        gate_probability: 0.99,
    };
    // Targets do not end within the runs.
    let motion = MotionModel { survival_per_s: 1.0, birth_speed_m_s: 0.5, ..Default::default() };
    let mut settings = TrackerSettings { motion, ..Default::default() };
    settings.delete_existence = 0.0;
    let hall = Hall { half_m: 4.0, deviation_m: 0.2, model };
    let start = 0.3;
    let mut rng = seeded(12);
    // Bins of existence: sum of existence, of truth, and of the variance.
    let mut bins = [[0.0; 3]; 5];
    for _ in 0..3000 {
        let mut tracker = Tracker::new(2, settings).unwrap();
        let law = PositionLaw::isotropic(&[0.0, 0.0], 0.2).unwrap();
        tracker.step(0.0, &Found(law.clone(), start)).unwrap();
        let exists = rng.random::<f64>() < start;
        let mut state = DVector::from_fn(4, |row, _| if row < 2 { 0.2 } else { 0.5 } * normal(&mut rng));
        for frame in 1..=3 {
            state = walk(&mut rng, &motion, &state, 0.2);
            let target = state.rows(0, 2).into_owned();
            let targets: &[DVector<f64>] = if exists { &[target] } else { &[] };
            // The births of these frames would take detections from the track: they are left out.
            let observation = WithoutBirths(hall.frame(&mut rng, targets));
            tracker.step(0.2 * f64::from(frame), &observation).unwrap();
        }
        let existence = tracker.tracks().next().map_or(0.0, |track| track.existence);
        let bin = &mut bins[((existence * 5.0) as usize).min(4)];
        bin[0] += existence;
        bin[1] += f64::from(u8::from(exists));
        bin[2] += existence * (1.0 - existence);
    }
    for [stated, true_, variance] in bins {
        println!("stated {stated:.1}, true {true_}, deviation {:.1}", variance.sqrt());
    }
    let off: f64 = bins.iter().map(|[stated, true_, variance]| (stated - true_).powi(2) / variance).sum();
    // Chi-square with 5 degrees of freedom: 20.5 at 0.1 %.
    assert!(off < 20.5, "{off}");
}

/// A first detection of known existence.
struct Found(PositionLaw, f64);

impl Observation for Found {
    fn update(&self, predicted: &[Predicted]) -> FrameUpdate {
        let births = vec![Birth { law: self.0.clone(), existence: self.1 }];
        FrameUpdate { tracks: predicted.iter().map(Updated::unchanged).collect(), births }
    }
}

/// Detections that start no tracks.
struct WithoutBirths(Detections);

impl Observation for WithoutBirths {
    fn update(&self, predicted: &[Predicted]) -> FrameUpdate {
        FrameUpdate { births: Vec::new(), ..self.0.update(predicted) }
    }
}

fn at(places_m: &[[f64; 2]]) -> Detections {
    let laws = places_m.iter().map(|place_m| PositionLaw::isotropic(place_m, 0.1).unwrap()).collect();
    Detections::new(laws, DetectionModel::default()).unwrap()
}

#[test]
fn a_track_is_confirmed_coasts_and_ends_and_its_identity_is_not_used_again() {
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    let mut frame = 0;
    let mut step = |tracker: &mut Tracker, places_m: &[[f64; 2]]| {
        frame += 1;
        tracker.step(STEP_S * f64::from(frame), &at(places_m)).unwrap()
    };
    let confirmed: Vec<bool> =
        (0..6).map(|_| !step(&mut tracker, &[[1.0, 1.0]]).confirmed.is_empty()).collect();
    assert_eq!(confirmed.iter().filter(|confirmed| **confirmed).count(), 1);
    assert!(confirmed[..3].contains(&true), "{confirmed:?}");
    let id = tracker.confirmed().next().unwrap().id;
    step(&mut tracker, &[]);
    let track = tracker.confirmed().next().unwrap();
    assert!(track.coasting && track.id == id && track.existence < 0.9999);
    let mut ended = Vec::new();
    for _ in 0..20 {
        ended.extend(step(&mut tracker, &[]).ended);
    }
    assert!(ended.iter().any(|end| end.id == id && end.cause == EndCause::Existence), "{ended:?}");
    assert_eq!(tracker.tracks().count(), 0);
    for _ in 0..4 {
        step(&mut tracker, &[[1.0, 1.0]]);
    }
    assert!(tracker.tracks().all(|track| track.id > id));
}

#[test]
fn a_track_that_frames_cannot_see_ends_by_its_age() {
    // P_D is tiny: a miss says nothing, so that only the limit of coasting ends a track.
    let model = DetectionModel { detection_probability: 1e-6, birth_density: 1e3, ..Default::default() };
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    let law = PositionLaw::isotropic(&[0.0, 0.0], 0.1).unwrap();
    tracker.step(0.0, &Found(law, 0.99)).unwrap();
    let nothing = Detections::new(Vec::new(), model).unwrap();
    for frame in 1..=20 {
        tracker.step(0.1 * f64::from(frame), &nothing).unwrap();
        assert_eq!(tracker.tracks().count(), 1, "{frame}");
    }
    let changes = tracker.step(2.15, &nothing).unwrap();
    assert_eq!(changes.ended, [EndedTrack { id: 1, cause: EndCause::Coasting, confirmed: true }]);
}

/// Two targets walk into one place and go on together: their tracks become one after half a second, and it says so.
#[test]
fn tracks_that_share_their_detections_become_one() {
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    let (mut shared_s, mut ended) = (None, Vec::new());
    for frame in 0..120 {
        let time_s = STEP_S * f64::from(frame);
        let apart_m = (2.0 - time_s).max(0.0);
        let frame =
            if apart_m > 0.2 { at(&[[0.0, 0.0], [apart_m, 0.0]]) } else { at(&[[apart_m / 2.0, 0.0]]) };
        ended.extend(tracker.step(time_s, &frame).unwrap().ended.into_iter().filter(|end| end.confirmed));
        if tracker.confirmed().any(|track| track.merged_with.is_some()) {
            shared_s.get_or_insert(time_s);
        }
    }
    println!("shared from {shared_s:?}, {ended:?}");
    assert!(shared_s.is_some_and(|shared_s| (1.75..2.3).contains(&shared_s)), "{shared_s:?}");
    assert_eq!(tracker.confirmed().count(), 1);
    let track = tracker.confirmed().next().unwrap();
    assert!(track.existence > 0.99 && track.merged_with.is_none());
    let merged = EndCause::MergedInto(track.id);
    assert!(ended.iter().any(|end| end.cause == merged && track.absorbed == Some(end.id)), "{ended:?}");
}

#[test]
fn frames_out_of_order_are_refused_and_change_nothing() {
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    for frame in 0..5 {
        tracker.step(f64::from(frame) * STEP_S, &at(&[[0.0, 0.0]])).unwrap();
    }
    let predicted = tracker.predict(0.25).unwrap();
    assert!(predicted.iter().map(|(id, _)| *id).eq(tracker.tracks().map(|track| track.id)));
    assert!(tracker.predict(0.2).is_err());
    let before: Vec<Track> = tracker.tracks().cloned().collect();
    for time_s in [0.1, 0.2, f64::NAN, f64::INFINITY, -1.0] {
        assert!(tracker.step(time_s, &at(&[[0.0, 0.0]])).is_err(), "{time_s}");
    }
    let other =
        Detections::new(vec![PositionLaw::isotropic(&[0.0; 3], 0.1).unwrap()], DetectionModel::default());
    let refused = tracker.step(0.3, &other.unwrap());
    assert!(matches!(refused, Err(TrackingError::Dimension { .. })), "{refused:?}");
    assert_eq!(tracker.tracks().cloned().collect::<Vec<_>>(), before);
    assert_eq!(tracker.time_s(), Some(0.2));
    // A gap of a year is no error: the tracks have ended.
    tracker.step(3e7, &at(&[[0.0, 0.0]])).unwrap();
    assert_eq!(tracker.confirmed().count(), 0);
}

/// The same run with the detections of every frame in another order, and twice in the same order.
#[test]
fn the_order_of_detections_does_not_matter() {
    let model = DetectionModel { clutter_density: 0.05, ..Default::default() };
    let hall = Hall { half_m: 5.0, deviation_m: 0.1, model };
    let run = |reverse: bool| {
        let mut rng = seeded(13);
        let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
        for frame in 0..100 {
            let target = DVector::from_vec(vec![0.05 * f64::from(frame) - 2.5, 1.0]);
            let mut laws = hall.detect(&mut rng, &[target]);
            if reverse {
                laws.reverse();
            }
            tracker.step(STEP_S * f64::from(frame), &Detections::new(laws, model).unwrap()).unwrap();
        }
        tracker.tracks().cloned().collect::<Vec<_>>()
    };
    let (once, again, reversed) = (run(false), run(false), run(true));
    assert_eq!(once, again);
    assert_eq!(once.len(), reversed.len());
    for (a, b) in once.iter().zip(&reversed) {
        assert!(a.id == b.id && a.status == b.status && (&a.state - &b.state).amax() < 1e-9);
    }
}

/// Frames that say nothing: existence falls by survival alone, 0.99 per second, whatever the steps are.
#[test]
fn existence_falls_by_survival_and_status_has_hysteresis() {
    struct Says(Option<f64>);
    impl Observation for Says {
        fn update(&self, predicted: &[Predicted]) -> FrameUpdate {
            let say = |track: &Predicted| Updated {
                existence: self.0.unwrap_or(track.existence),
                detected: true,
                ..Updated::unchanged(track)
            };
            FrameUpdate { tracks: predicted.iter().map(say).collect(), births: Vec::new() }
        }
    }
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    tracker.step(0.0, &Found(PositionLaw::isotropic(&[0.0, 0.0], 0.1).unwrap(), 0.9)).unwrap();
    for time_s in [0.5, 0.6, 1.7, 2.0] {
        tracker.step(time_s, &Says(None)).unwrap();
    }
    assert!((tracker.tracks().next().unwrap().existence - 0.9 * 0.99_f64.powi(2)).abs() < 1e-12);
    // Confirmed from 0.95 on, until it is below 0.5, and then not before 0.95 again.
    let steps = [(0.94, false), (0.96, true), (0.6, true), (0.49, false), (0.94, false), (0.95, true)];
    for (index, (existence, confirmed)) in steps.into_iter().enumerate() {
        tracker.step(3.0 + index as f64, &Says(Some(existence))).unwrap();
        assert_eq!(tracker.confirmed().count(), usize::from(confirmed), "{index}");
    }
    let changes = tracker.step(10.0, &Says(Some(0.9e-6))).unwrap();
    assert_eq!(changes.ended, [EndedTrack { id: 1, cause: EndCause::Existence, confirmed: true }]);
}

#[test]
fn a_birth_takes_the_place_of_the_least_probable_tentative_track() {
    let settings = TrackerSettings { max_tracks: 2, ..Default::default() };
    let mut tracker = Tracker::new(2, settings).unwrap();
    let law = |x: f64| PositionLaw::isotropic(&[x, 0.0], 0.1).unwrap();
    tracker.step(0.0, &Found(law(0.0), 0.3)).unwrap();
    tracker.step(0.1, &Found(law(5.0), 0.97)).unwrap();
    let changes = tracker.step(0.2, &Found(law(9.0), 0.2)).unwrap();
    assert_eq!((changes.born.len(), changes.dropped_births), (0, 1));
    let changes = tracker.step(0.3, &Found(law(9.0), 0.4)).unwrap();
    assert_eq!(changes.ended, [EndedTrack { id: 1, cause: EndCause::Crowded, confirmed: false }]);
    assert_eq!(tracker.tracks().map(|track| track.id).collect::<Vec<_>>(), [2, 3]);
}

/// A target that may have started two tentative tracks has one after the first frame that shows both at one detection,
/// which exists with the probability that either does.
#[test]
fn two_beginnings_of_one_track_become_one_at_once() {
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    let law = |x: f64| PositionLaw::isotropic(&[x, 0.0], 0.1).unwrap();
    tracker.step(0.0, &Found(law(0.0), 0.3)).unwrap();
    tracker.step(0.05, &Found(law(0.02), 0.3)).unwrap();
    let (_, predicted): (Vec<u64>, Vec<Predicted>) = tracker.predict(0.1).unwrap().into_iter().unzip();
    let either = at(&[[0.01, 0.0]]).update(&predicted).tracks;
    let either = 1.0 - either.iter().map(|track| 1.0 - track.existence).product::<f64>();
    let changes = tracker.step(0.1, &at(&[[0.01, 0.0]])).unwrap();
    assert_eq!(changes.ended.len(), 1, "{changes:?}");
    assert!(matches!(changes.ended[0].cause, EndCause::MergedInto(1 | 2)));
    let track = tracker.tracks().next().unwrap();
    assert!((track.existence - either).abs() < 1e-12 && track.absorbed == Some(changes.ended[0].id));
}

/// Two confirmed tracks that every second frame shows in one place, and the others not at all, are one after 0.5 s and not
/// before; a frame that shows them apart starts the time anew.
#[test]
fn misses_do_not_interrupt_a_merger_and_a_frame_apart_does() {
    struct Pair {
        shared: bool,
        detected: bool,
    }
    impl Observation for Pair {
        fn update(&self, predicted: &[Predicted]) -> FrameUpdate {
            let say = |(index, track): (usize, &Predicted)| Updated {
                existence: 0.99,
                detected: self.detected,
                merged_with: (self.shared && predicted.len() == 2).then_some(1 - index),
                ..Updated::unchanged(track)
            };
            FrameUpdate { tracks: predicted.iter().enumerate().map(say).collect(), births: Vec::new() }
        }
    }
    for apart_frame in [None, Some(4)] {
        let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
        let law = PositionLaw::isotropic(&[0.0, 0.0], 0.1).unwrap();
        tracker.step(0.0, &Found(law.clone(), 0.99)).unwrap();
        tracker.step(0.01, &Found(law, 0.99)).unwrap();
        let mut merged = None;
        for frame in 0..20 {
            let shared = frame % 2 == 0 && apart_frame != Some(frame);
            let detected = shared || apart_frame == Some(frame);
            let changes = tracker.step(0.1 + 0.0625 * f64::from(frame), &Pair { shared, detected }).unwrap();
            if changes.ended == [EndedTrack { id: 2, cause: EndCause::MergedInto(1), confirmed: true }] {
                merged = Some(frame);
            }
        }
        // Shared from frame 0, or from frame 6 on; 8 frames are half a second.
        assert_eq!(merged, Some(if apart_frame.is_none() { 8 } else { 14 }));
    }
}
