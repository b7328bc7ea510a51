//! What becomes of every report: assembled, and decided once. Pure: time is passed in.
//!
//! A report that comes again after a broken connection is acknowledged with the fates of its first arrival, and the ledger
//! counts its paths as repeated.

use std::collections::VecDeque;

use proto::convert::{FrameId, Report};

use crate::assembler::{Assembled, Assembler, Member};
use crate::ledger::Fates;

/// Acknowledged fates per node that are remembered for reports that come again; more than a node's credit.
const REMEMBERED_FATES: usize = 512;

/// What was decided about the frame of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Its paths are in a fix, or came too late for it.
    Fused,
    /// Its paths are in no fix.
    Dropped,
}

/// The decided report of a node: `fates` and `repeated` are for the ledger, `told` is what the node is told.
#[derive(Debug)]
pub struct Settlement<T> {
    pub node: usize,
    pub acknowledgement: T,
    pub fates: Fates,
    pub repeated: u64,
    pub told: Fates,
}

#[derive(Debug)]
pub struct Intake<T> {
    pub assembler: Assembler<T>,
    /// The latest acknowledged fates, by node: a report that comes again is acknowledged in the same way.
    acknowledged: Vec<VecDeque<(FrameId, Fates)>>,
}

impl<T> Intake<T> {
    pub fn new(count: usize, deadline_ns: u64) -> Self {
        Self {
            assembler: Assembler::new(count, deadline_ns),
            acknowledged: vec![VecDeque::with_capacity(REMEMBERED_FATES); count],
        }
    }

    /// What a report was acknowledged with, if it was received and decided before.
    pub fn decided_before(&self, node: usize, report: &Report) -> Option<Fates> {
        let mut known = self.acknowledged[node].iter().rev();
        known.find(|(known, _)| *known == report.frame).map(|(_, fates)| *fates).filter(|_| report.resent)
    }

    /// Adds a report to its frame; returns the frames that it completes, or the report if its frame is closed.
    pub fn offer(
        &mut self,
        node: usize,
        report: Report,
        now_ns: u64,
        acknowledgement: T,
    ) -> Result<Vec<Assembled<T>>, Member<T>> {
        self.assembler.offer(node, report, now_ns, acknowledgement)
    }

    /// Decides about a report. Paths that came again have the fate of their first arrival, which was in the same frame.
    pub fn settle(&mut self, member: Member<T>, decision: Decision) -> Settlement<T> {
        let Member { frame, node, acknowledgement, mut fates, repeated, .. } = member;
        let mut told = fates;
        match decision {
            Decision::Fused => told.fused += repeated,
            Decision::Dropped => {
                fates = Fates { fused: 0, dropped: fates.dropped + fates.fused, ..fates };
                told = Fates { dropped: fates.dropped + repeated, ..fates };
            }
        }
        let known = &mut self.acknowledged[node];
        if known.len() == REMEMBERED_FATES {
            known.pop_front();
        }
        known.push_back((frame, told));
        Settlement { node, acknowledgement, fates, repeated, told }
    }
}
