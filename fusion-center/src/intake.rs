//! Assembles reports and decides once what becomes of each. Pure: time is passed in.
//!
//! A report that comes again after a broken connection is acknowledged with the fates of its first arrival, and the ledger
//! counts its paths as repeated.

use std::collections::VecDeque;

use proto::convert::{FrameId, Report};

use crate::assembler::{Assembled, Assembler, Member, REMEMBERED_FRAMES};
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
    /// Closed frames that are to be solved, with the reports of them that came afterwards.
    undecided: Vec<(FrameId, Vec<Member<T>>)>,
    /// What was decided about the latest frames.
    decided: VecDeque<(FrameId, Decision)>,
    /// The latest acknowledged fates, by node: a report that comes again is acknowledged in the same way.
    acknowledged: Vec<VecDeque<(FrameId, Fates)>>,
}

impl<T> Intake<T> {
    pub fn new(count: usize, deadline_ns: u64) -> Self {
        Self {
            assembler: Assembler::new(count, deadline_ns),
            undecided: Vec::new(),
            decided: VecDeque::with_capacity(REMEMBERED_FRAMES),
            acknowledged: vec![VecDeque::with_capacity(REMEMBERED_FATES); count],
        }
    }

    /// What a report was acknowledged with, if it was received and decided before.
    pub fn decided_before(&self, node: usize, report: &Report) -> Option<Fates> {
        self.acknowledged(node, report.frame).filter(|_| report.resent)
    }

    /// The latest acknowledgement of a frame to a node.
    fn acknowledged(&self, node: usize, frame: FrameId) -> Option<Fates> {
        self.acknowledged[node].iter().rev().find(|(known, _)| *known == frame).map(|(_, fates)| *fates)
    }

    /// Adds a report to its frame; returns the frames that it completes, or the report as decided if its frame was. A
    /// report of a frame that is being solved is decided with it.
    pub fn offer(
        &mut self,
        node: usize,
        report: Report,
        now_ns: u64,
        acknowledgement: T,
    ) -> Result<Vec<Assembled<T>>, Settlement<T>> {
        let frame = report.frame;
        let member = match self.assembler.offer(node, report, now_ns, acknowledgement) {
            Ok(closed) => return Ok(closed),
            Err(member) => member,
        };
        if let Some((_, later)) = self.undecided.iter_mut().find(|(undecided, _)| *undecided == frame) {
            later.push(member);
            return Ok(Vec::new());
        }
        let decision = self.decided.iter().rev().find(|(decided, _)| *decided == frame);
        let decision = decision.map_or(Decision::Fused, |(_, decision)| *decision);
        Err(self.settle(member, decision))
    }

    /// Notes that a closed frame is to be solved; [`Self::decide`] must follow.
    pub fn to_be_solved(&mut self, frame: FrameId) {
        self.undecided.push((frame, Vec::new()));
    }

    /// Decides about a frame with the reports behind it, and about those that came afterwards.
    pub fn decide(
        &mut self,
        frame: FrameId,
        members: Vec<Member<T>>,
        decision: Decision,
    ) -> Vec<Settlement<T>> {
        let position = self.undecided.iter().position(|(undecided, _)| *undecided == frame);
        let later = position.map(|position| {
            if self.decided.len() == REMEMBERED_FRAMES {
                self.decided.pop_front();
            }
            self.decided.push_back((frame, decision));
            self.undecided.swap_remove(position).1
        });
        let all = members.into_iter().chain(later.into_iter().flatten());
        all.map(|member| self.settle(member, decision)).collect()
    }

    /// Decides about a report. Paths that came again have the fate of their first arrival, which was in the same frame. A
    /// report that came again before the first was decided is acknowledged like the first, whatever that was: its late or
    /// refused paths are not counted a second time.
    fn settle(&mut self, member: Member<T>, decision: Decision) -> Settlement<T> {
        let Member { frame, node, acknowledgement, mut fates, mut repeated, resent, .. } = member;
        let before = self.acknowledged(node, frame).filter(|_| resent && fates.fused == 0);
        if before.is_some() {
            repeated += fates.total();
            fates = Fates::default();
        }
        let told = before.unwrap_or_else(|| match decision {
            Decision::Fused => Fates { fused: fates.fused + repeated, ..fates },
            Decision::Dropped => Fates { fused: 0, dropped: fates.dropped + fates.fused + repeated, ..fates },
        });
        if decision == Decision::Dropped {
            fates = Fates { fused: 0, dropped: fates.dropped + fates.fused, ..fates };
        }
        let known = &mut self.acknowledged[node];
        if known.len() == REMEMBERED_FATES {
            known.pop_front();
        }
        known.push_back((frame, told));
        Settlement { node, acknowledgement, fates, repeated, told }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use estimation::fusion::Payload;
    use model::CMatrix;

    use super::*;
    use crate::assembler::tests;
    use crate::solve::Kept;

    fn report(frame: u64, resent: bool) -> Report {
        Report { resent, ..tests::report(frame, &[0]) }
    }

    /// The solver reads a matrix where the conversion has put it: nothing on the way clones a payload.
    #[test]
    fn payloads_move_to_the_solver() {
        let matrix = |value: f64| CMatrix::from_element(10, 10, value.into());
        let payloads = |node: usize| {
            [
                Payload::Block { block: matrix(node as f64), block_derivative: matrix(0.5) },
                Payload::Spectrum(matrix(2.5)),
            ]
        };
        let places = |payload: &Payload| match payload {
            Payload::Parameters => Vec::new(),
            Payload::Block { block, block_derivative } => vec![block.as_ptr(), block_derivative.as_ptr()],
            Payload::Spectrum(spectrum) => vec![spectrum.as_ptr()],
        };
        let mut intake = Intake::new(2, 100);
        (0..2).for_each(|node| drop(intake.assembler.set_connected(node, true, 0)));
        let (mut converted, mut closed) = (Vec::new(), Vec::new());
        for node in 0..2 {
            let mut report = tests::report(5, &[0, 1]);
            for ((_, path), payload) in report.paths.iter_mut().zip(payloads(node)) {
                path.payload = payload;
            }
            converted.extend(report.paths.iter().flat_map(|(_, path)| places(&path.payload)));
            closed.extend(intake.offer(node, report, 1, ()).unwrap());
        }
        // As the engine does for the pool.
        let kept = Arc::new(Kept::new(closed.remove(0).blocks));
        let solved: Vec<_> = kept.blocks.present().flat_map(|(_, _, path)| places(&path.payload)).collect();
        assert_eq!((solved.len(), solved), (6, converted));
    }

    /// A report that comes again while its frame waits for a solver is told what becomes of the frame, not before: a frame
    /// that was shed afterwards had been acknowledged as fused.
    #[test]
    fn a_report_that_comes_again_waits_for_the_decision() {
        for (decision, fused, dropped) in [(Decision::Fused, 1, 0), (Decision::Dropped, 0, 1)] {
            let mut intake = Intake::new(1, 100);
            intake.assembler.set_connected(0, true, 0);
            let closed = intake.offer(0, report(5, false), 1, "first").unwrap();
            let assembled = closed.into_iter().next().unwrap();
            intake.to_be_solved(assembled.frame);
            assert!(intake.offer(0, report(5, true), 2, "again").unwrap().is_empty(), "not decided");
            let settled = intake.decide(assembled.frame, assembled.members, decision);
            let told: Vec<_> =
                settled.iter().map(|s| (s.acknowledgement, s.told.fused, s.told.dropped)).collect();
            assert_eq!(told, [("first", fused, dropped), ("again", fused, dropped)]);
            assert_eq!(settled.iter().map(|s| s.repeated).sum::<u64>(), 1);
            assert_eq!(settled.iter().map(|s| s.fates.total()).sum::<u64>(), 1, "counted once");
            // From now on it is told the same.
            let told = intake.decided_before(0, &report(5, true)).unwrap();
            assert_eq!((told.fused, told.dropped), (fused, dropped));
            let twice = intake.offer(0, report(5, false), 3, "twice").unwrap_err();
            assert_eq!((twice.told.duplicate, twice.fates.duplicate), (1, 1));
        }
    }

    /// A late report that comes again before its frame is solved is acknowledged as late, and counted once.
    #[test]
    fn a_late_report_that_comes_again_is_counted_once() {
        for decision in [Decision::Fused, Decision::Dropped] {
            let mut intake = Intake::new(2, 100);
            (0..2).for_each(|node| drop(intake.assembler.set_connected(node, true, 0)));
            let _ = intake.offer(0, report(5, false), 0, "on time").unwrap();
            // Node 1 has come past the frame without a path, so that it is due.
            let _ = intake.offer(1, tests::report(6, &[]), 0, "past").unwrap();
            let assembled = intake.assembler.close_due(100).into_iter().next().unwrap();
            intake.to_be_solved(assembled.frame);
            for (resent, acknowledgement) in [(false, "late"), (true, "again")] {
                let offered = intake.offer(1, report(5, resent), 110, acknowledgement).unwrap();
                assert!(offered.is_empty(), "decided with its frame");
            }
            let settled = intake.decide(assembled.frame, assembled.members, decision);
            let told: Vec<_> = settled.iter().map(|s| (s.acknowledgement, s.told.late)).collect();
            assert_eq!(told, [("on time", 0), ("late", 1), ("again", 1)]);
            let of_node_1 = || settled.iter().filter(|settlement| settlement.node == 1);
            assert_eq!(of_node_1().map(|s| s.fates.total()).sum::<u64>(), 1, "counted once");
            assert_eq!(of_node_1().map(|s| s.repeated).sum::<u64>(), 1);
        }
    }
}
