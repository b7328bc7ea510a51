//! Several targets of one frame of spectra, and tracks followed in it: medians of alternating runs on one core.
//!
//! Bound at K = 3 with three targets: three tables of a target over the grid cost as much as three surveys without their beams,
//! 4 Mflop; an evaluation of the joint likelihood 0.5 Mflop, of which some ten are needed; five ascents of one target beside
//! others 5 Mflop.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use hyloc_estimation::direct::{DirectLocator, DirectSettings, Evidence, FollowSettings};
use model::scenario::ring;
use model::{EchoSource, Point, Scenario};
use tracking::{Tracker, TrackerSettings};

const PLACES_M: [[f64; 2]; 5] = [[2.0, 7.5], [6.5, 2.5], [7.5, 8.0], [3.5, 3.0], [5.2, 5.4]];
const INTERVAL_S: f64 = 0.05;

struct Site {
    source: EchoSource,
    locator: DirectLocator,
}

impl Site {
    fn new(count: usize) -> Self {
        let paper = Scenario::default();
        let scenario =
            if count == 3 { paper } else { ring(&paper, count).expect("a ring of this size exists") };
        let source = EchoSource::new(&scenario).expect("the scenario is valid");
        let locator = DirectLocator::new(source.system(), DirectSettings::default()).expect("a small area");
        Self { source, locator }
    }

    /// The first `targets` places, which drift.
    fn evidence(&self, frame: u64, targets: usize) -> Evidence {
        let system = self.source.system();
        let mut evidence = self.locator.evidence();
        for l in 0..system.irs_count() {
            let mut echoes = self.source.noise(l, frame);
            for (t, place) in PLACES_M.iter().take(targets).enumerate() {
                let own = frame + 1_000_000 * (1 + t as u64);
                let drift = 0.05 * frame as f64 * if t % 2 == 0 { 1.0 } else { -1.0 };
                let target_m = Point::new(place[0] + 0.3 * drift, place[1] - 0.2 * drift, 0.0);
                echoes += self.source.frame(l, own, target_m) - self.source.noise(l, own);
            }
            for (k, irs) in system.irs.iter().enumerate() {
                let spectrum = echoes.select_columns(&irs.waveform.subcarriers);
                evidence.spectrum(l, k, &spectrum, system.noise_power_w).expect("it fits");
            }
        }
        evidence
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * std::env::var("Q").map_or(50, |q| q.parse().unwrap()) / 100]
}

/// Milliseconds.
fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let result = run();
    (begin.elapsed().as_secs_f64() * 1e3, result)
}

fn main() {
    // A single case for a profiler: IRSs, targets, frames.
    let given: Vec<u64> = std::env::args().skip(1).filter_map(|given| given.parse().ok()).collect();
    let cases = match given[..] {
        [count, most, frames] => vec![(count as usize, most as usize, frames)],
        _ => vec![(3, 3, 60), (8, 5, 24)],
    };
    for (count, most, frames) in cases {
        let site = Site::new(count);
        let (mut one, mut follow, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let mut several = vec![Vec::new(); most + 1];
        let mut found = vec![0; most + 1];
        let mut tracker = Tracker::new(2, TrackerSettings::default()).expect("valid settings");
        for frame in 0..frames {
            let alone = site.evidence(frame, 1);
            one.push(timed(|| site.locator.locate(&site.locator.survey(alone))).0);
            for (targets, times) in several.iter_mut().enumerate() {
                let evidence = site.evidence(frame, targets);
                let (time, list) = timed(|| site.locator.locate_several(&site.locator.survey(evidence), 10));
                times.push(time);
                found[targets] += usize::from(list.is_ok_and(|list| list.targets.len() == targets));
            }
            let survey = site.locator.survey(site.evidence(frame, most));
            let observed = site.locator.followed(&survey, FollowSettings::default()).expect("it fits");
            let (time, _) = timed(|| tracker.step(frame as f64 * INTERVAL_S, &observed));
            // The first frames have no tracks yet.
            if frame >= 8 {
                follow.push(time);
                steps.push(tracker.tracks().count() as f64);
            }
        }
        println!("K = {count}: survey and one fix {:.2} ms", median(one));
        for (targets, times) in several.into_iter().enumerate() {
            let right = found[targets];
            println!("  survey and {targets} targets {:.2} ms, {right} of {frames} right", median(times));
        }
        let tracks = tracker.confirmed().count();
        println!("  step with {tracks} confirmed of {} tracks {:.2} ms", median(steps), median(follow));
    }
}
