//! The order of the simulator's runs.
//!
//! A run is named by a random identity, which says nothing about time: a simulator whose clock was set back begins a new
//! run like any other. Runs are ordered by their first appearance in a report. Appearing gives a run no
//! authority: the frames of a new run wait until a majority of the nodes has reported it ([`crate::progress`]).
//!
//! Memory is bounded: when too many runs are known, the oldest that is not in use is forgotten.

use proto::convert::FrameId;

/// Runs that are remembered; more than are in use at any time.
pub const MOST_RUNS: usize = 2 * model::MOST_IRS + 32;

/// A frame in the order of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the run by first appearance.
    pub epoch: u64,
    pub frame: u64,
}

#[derive(Debug, Default)]
pub struct Runs {
    /// Identity and epoch, by epoch.
    known: Vec<(u64, u64)>,
    epochs: u64,
}

impl Runs {
    /// The position of a frame; its run becomes the latest one if it is not known. `in_use` tells which epochs must not be
    /// forgotten.
    pub fn position(&mut self, frame: FrameId, in_use: impl Fn(u64) -> bool) -> Position {
        let FrameId { run, frame } = frame;
        if let Some((_, epoch)) = self.known.iter().rev().find(|(known, _)| *known == run) {
            return Position { epoch: *epoch, frame };
        }
        if self.known.len() >= MOST_RUNS {
            let oldest = self.known.iter().position(|(_, epoch)| !in_use(*epoch)).unwrap_or(0);
            self.known.remove(oldest);
        }
        self.epochs += 1;
        self.known.push((run, self.epochs));
        Position { epoch: self.epochs, frame }
    }

    /// The identity of a run.
    pub fn identity(&self, epoch: u64) -> Option<u64> {
        self.known.iter().find(|(_, known)| *known == epoch).map(|(run, _)| *run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(run: u64, frame: u64) -> FrameId {
        FrameId { run, frame }
    }

    #[test]
    fn runs_are_ordered_by_appearance_whatever_their_identity() {
        let mut runs = Runs::default();
        let mut position = |run, frame| runs.position(id(run, frame), |_| false);
        let first = position(900, 7);
        let second = position(3, 0);
        assert!(second > first && position(900, 8) > first && position(900, 8) < second);
        assert_eq!((runs.identity(first.epoch), runs.identity(second.epoch)), (Some(900), Some(3)));
    }

    #[test]
    fn invented_runs_are_forgotten_and_those_in_use_are_not() {
        let mut runs = Runs::default();
        let honest = runs.position(id(77, 0), |_| false);
        for run in 1000..2000 {
            runs.position(id(run, 0), |epoch| epoch == honest.epoch);
        }
        assert_eq!(runs.known.len(), MOST_RUNS);
        assert_eq!(runs.position(id(77, 0), |_| false), honest);
        assert!(runs.position(id(1000, 0), |_| false) > runs.position(id(1999, 0), |_| false), "forgotten");
    }
}
