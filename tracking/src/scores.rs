//! Figures of a run whose truth is known: GOSPA over the frames, right counts, identity switches, latency.
//!
//! Every frame is assigned by the optimum of GOSPA. A target has switched its identity if its track is another one
//! than the last track that it had, with any gap between; its latency is the time from its first frame to the first frame in
//! which it has a track.

use std::collections::BTreeMap;

use nalgebra::DVector;

use crate::error::TrackingError;
use crate::gospa::{Gospa, GospaSettings, gospa};

/// A position with an identity: of a target or of a track.
pub type Identified = (u64, DVector<f64>);

/// What happened to one target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetHistory {
    /// Time of its first frame.
    pub first_s: f64,
    /// Time of the first frame in which it has a track.
    pub found_s: Option<f64>,
    /// Its last track.
    pub track: Option<u64>,
    /// How often it got another track.
    pub switches: usize,
}

impl TargetHistory {
    /// Time until it has a track.
    pub fn latency_s(&self) -> Option<f64> {
        self.found_s.map(|found_s| found_s - self.first_s)
    }
}

/// Figures of a run, frame by frame.
#[derive(Debug, Clone, PartialEq)]
pub struct RunScore {
    settings: GospaSettings,
    frames: usize,
    /// Sums over the frames: distance, and the parts.
    sums: [f64; 4],
    counts_right: usize,
    targets: BTreeMap<u64, TargetHistory>,
}

impl RunScore {
    /// A run before its first frame.
    pub fn new(settings: GospaSettings) -> Self {
        Self { settings, frames: 0, sums: [0.0; 4], counts_right: 0, targets: BTreeMap::new() }
    }

    /// Takes a frame in and returns its distance.
    pub fn frame(
        &mut self,
        time_s: f64,
        truth_m: &[Identified],
        tracks_m: &[Identified],
    ) -> Result<Gospa, TrackingError> {
        let positions =
            |set: &[Identified]| set.iter().map(|(_, position)| position.clone()).collect::<Vec<_>>();
        let found = gospa(&positions(truth_m), &positions(tracks_m), &self.settings)?;
        self.frames += 1;
        self.counts_right += usize::from(truth_m.len() == tracks_m.len());
        let parts = [found.total, found.localisation, found.missed, found.false_];
        self.sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        for ((id, _), assigned) in truth_m.iter().zip(&found.assignments) {
            let begun = TargetHistory { first_s: time_s, found_s: None, track: None, switches: 0 };
            let history = self.targets.entry(*id).or_insert(begun);
            let Some(track) = assigned.map(|index| tracks_m[index].0) else { continue };
            history.found_s.get_or_insert(time_s);
            history.switches += usize::from(history.track.is_some_and(|before| before != track));
            history.track = Some(track);
        }
        Ok(found)
    }

    /// The settings of its GOSPA.
    pub fn settings(&self) -> &GospaSettings {
        &self.settings
    }

    /// Frames so far.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Mean over the frames: distance in metres, and the parts localisation, missed and false as p-th powers.
    pub fn means(&self) -> [f64; 4] {
        self.sums.map(|sum| if self.frames == 0 { 0.0 } else { sum / self.frames as f64 })
    }

    /// Share of the frames with as many tracks as targets.
    pub fn count_right_rate(&self) -> f64 {
        if self.frames == 0 { 0.0 } else { self.counts_right as f64 / self.frames as f64 }
    }

    /// Identity switches of all targets.
    pub fn switches(&self) -> usize {
        self.targets.values().map(|history| history.switches).sum()
    }

    /// Every target with what happened to it.
    pub fn targets(&self) -> &BTreeMap<u64, TargetHistory> {
        &self.targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_and_latency_are_counted() {
        let at = |id: u64, x: f64| (id, DVector::from_vec(vec![x, 0.0]));
        let mut score = RunScore::new(GospaSettings::default());
        let truth = [at(7, 0.0), at(8, 10.0)];
        let frames: [&[Identified]; 5] = [
            &[at(1, 0.1)],
            &[at(1, 0.1), at(2, 10.0)],
            &[at(2, 0.1), at(1, 10.0)],
            &[at(2, 0.0)],
            &[at(2, 0.0), at(3, 10.0), at(4, 20.0)],
        ];
        for (index, tracks) in frames.iter().enumerate() {
            score.frame(index as f64, &truth, tracks).unwrap();
        }
        // Both change places once; the second target is lost, and found again by a third track.
        assert_eq!(score.switches(), 3);
        assert_eq!(score.targets()[&7].latency_s(), Some(0.0));
        assert_eq!(score.targets()[&8].latency_s(), Some(1.0));
        assert_eq!(score.count_right_rate(), 2.0 / 5.0);
        // Two frames with a missed target and one with a false track, 2 square metres each.
        let [_, _, missed, false_] = score.means();
        assert!((missed - 4.0 / 5.0).abs() < 1e-12 && (false_ - 2.0 / 5.0).abs() < 1e-12);
    }
}
