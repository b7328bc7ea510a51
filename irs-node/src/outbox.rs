//! The queue of reports from the matched filter to the fusion center, with the fates of their paths. No socket, no clock.
//!
//! A report stays here until the fusion center acknowledges it with the fates of its paths, and is sent again after a
//! reconnect. The queue is bounded: when full, the oldest report is dropped and counted. Counts belong to one
//! instance of the fusion center; with another one they restart and what is not decided is sent as new.

use std::collections::VecDeque;

use proto::convert::FrameId;
use proto::v1;
use serde::Serialize;

/// Largest credit that is used.
const LARGEST_CREDIT: u32 = 4096;

/// Paths by fate; `sent = fused + late + duplicate + dropped + in_flight` at all times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Paths that are sent again are counted once.
    pub sent: u64,
    pub fused: u64,
    pub late: u64,
    pub duplicate: u64,
    /// Dropped by the fusion center.
    pub dropped: u64,
    /// Never sent.
    pub dropped_at_node: u64,
    /// Sent, not decided yet.
    pub in_flight: u64,
}

/// A report that was sent and is not acknowledged yet.
#[derive(Debug, Clone)]
struct UnderWay {
    report: v1::FrameReport,
    /// Whether it was sent on the present connection.
    on_the_wire: bool,
}

#[derive(Debug, Clone)]
pub struct Outbox {
    capacity: usize,
    credit: usize,
    instance: Option<String>,
    waiting: VecDeque<v1::FrameReport>,
    /// In the order of sending.
    under_way: Vec<UnderWay>,
    totals: Totals,
}

impl Outbox {
    /// An empty queue in which at most `capacity` reports wait.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            credit: 0,
            instance: None,
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Queues a report; returns the number of paths of the oldest report if that had to be dropped.
    pub fn push(&mut self, report: v1::FrameReport) -> u64 {
        self.waiting.push_back(report);
        if self.waiting.len() <= self.capacity {
            return 0;
        }
        self.waiting.pop_front().map_or(0, |oldest| self.discard(&oldest))
    }

    /// Counts a report that is not sent as dropped; returns the number of its paths.
    pub fn discard(&mut self, report: &v1::FrameReport) -> u64 {
        let dropped = paths(report);
        self.totals.dropped_at_node += dropped;
        dropped
    }

    /// Counts paths that were never made into a report as dropped.
    pub fn leave_out(&mut self, paths: u64) {
        self.totals.dropped_at_node += paths;
    }

    /// The node has registered: counts continue with the same instance and restart with another.
    pub fn registered(&mut self, instance: &str, credit: u32) {
        if self.instance.as_deref() != Some(instance) {
            self.instance = Some(instance.into());
            let undecided = std::mem::take(&mut self.under_way);
            for under_way in undecided.into_iter().rev() {
                self.waiting.push_front(v1::FrameReport { resent: false, ..under_way.report });
            }
            self.totals = Totals::default();
        }
        self.credit = allowed(credit);
    }

    /// The connection broke: what is not decided will be sent again on the next one.
    pub fn disconnected(&mut self) {
        for under_way in &mut self.under_way {
            under_way.on_the_wire = false;
        }
        self.credit = 0;
    }

    /// The next report to send, oldest first, if the credit allows one.
    pub fn take_next(&mut self) -> Option<v1::FrameReport> {
        if self.credit == 0 {
            return None;
        }
        if let Some(again) = self.under_way.iter_mut().find(|under_way| !under_way.on_the_wire) {
            again.on_the_wire = true;
            again.report.resent = true;
            return Some(again.report.clone());
        }
        if self.under_way.len() >= self.credit {
            return None;
        }
        let mut report = self.waiting.pop_front()?;
        let count = paths(&report);
        self.totals.sent += count;
        self.totals.in_flight += count;
        report.blocks_sent = self.totals.sent;
        report.blocks_dropped = self.totals.dropped_at_node;
        if let Some(other) = self.decided(id(&report)) {
            // Two reports of one frame share one acknowledgement.
            let lost = paths(&other);
            self.totals.in_flight -= lost;
            self.totals.dropped += lost;
        }
        self.under_way.push(UnderWay { report: report.clone(), on_the_wire: true });
        Some(report)
    }

    /// Removes the report of a frame from those under way.
    fn decided(&mut self, frame: FrameId) -> Option<v1::FrameReport> {
        let position = self.under_way.iter().position(|under_way| id(&under_way.report) == frame)?;
        Some(self.under_way.remove(position).report)
    }

    /// Records the acknowledgement of a report and returns the report; none if it is not under way.
    pub fn acknowledge(&mut self, decision: &v1::Acknowledgement) -> Option<v1::FrameReport> {
        if decision.credit > 0 {
            self.credit = allowed(decision.credit);
        }
        let report = self.decided(FrameId { run: decision.run, frame: decision.frame })?;
        let count = paths(&report);
        let mut left = count;
        let mut take = |claimed: u32| {
            let taken = left.min(u64::from(claimed));
            left -= taken;
            taken
        };
        self.totals.fused += take(decision.fused);
        self.totals.late += take(decision.late);
        self.totals.duplicate += take(decision.duplicate);
        // Paths that the acknowledgement does not mention were not fused.
        self.totals.dropped += take(u32::MAX);
        self.totals.in_flight -= count;
        Some(report)
    }

    /// Drops the reports that wait; returns the number of their paths.
    pub fn give_up_waiting(&mut self) -> u64 {
        let dropped = self.waiting.drain(..).map(|report| paths(&report)).sum();
        self.totals.dropped_at_node += dropped;
        dropped
    }

    /// Drops all reports: they belong to an earlier assignment.
    pub fn clear(&mut self) {
        self.give_up_waiting();
        self.totals.dropped += self.totals.in_flight;
        self.totals.in_flight = 0;
        self.under_way.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Reports that wait or are under way.
    pub fn undecided(&self) -> usize {
        self.waiting.len() + self.under_way.len()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }
}

/// Number of paths.
fn paths(report: &v1::FrameReport) -> u64 {
    report.blocks.len() as u64
}

fn id(report: &v1::FrameReport) -> FrameId {
    FrameId { run: report.run, frame: report.frame }
}

fn allowed(credit: u32) -> usize {
    credit.clamp(1, LARGEST_CREDIT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(frame: u64) -> v1::FrameReport {
        v1::FrameReport { frame, blocks: vec![v1::Block::default(); 3], ..v1::FrameReport::default() }
    }

    fn fused(frame: u64) -> v1::Acknowledgement {
        v1::Acknowledgement { frame, fused: 3, credit: 2, ..v1::Acknowledgement::default() }
    }

    fn balanced(outbox: &Outbox) -> Totals {
        let t = outbox.totals();
        assert_eq!(t.sent, t.fused + t.late + t.duplicate + t.dropped + t.in_flight, "{t:?}");
        t
    }

    fn frames(outbox: &mut Outbox) -> Vec<u64> {
        std::iter::from_fn(|| outbox.take_next()).map(|report| report.frame).collect()
    }

    fn with_two_under_way() -> Outbox {
        let mut outbox = Outbox::new(2);
        outbox.registered("first", 2);
        for frame in 0..4 {
            outbox.push(report(frame));
            if frame == 1 {
                assert_eq!(frames(&mut outbox), [0, 1]);
            }
        }
        outbox
    }

    #[test]
    fn credit_bounds_what_is_under_way_and_the_oldest_is_dropped() {
        let mut outbox = with_two_under_way();
        assert!(outbox.take_next().is_none());
        assert_eq!(outbox.push(report(4)), 3);
        assert_eq!(outbox.waiting(), 2);
        assert_eq!(outbox.acknowledge(&fused(1)).unwrap().frame, 1);
        let sent = outbox.take_next().unwrap();
        assert_eq!((sent.frame, sent.blocks_sent, sent.blocks_dropped), (3, 9, 3));
        // A report that is too large to be sent is dropped and told of in the next one.
        assert_eq!(outbox.discard(&report(5)), 3);
        let totals = balanced(&outbox);
        assert_eq!((totals.sent, totals.fused, totals.dropped_at_node, totals.in_flight), (9, 3, 6, 6));
    }

    #[test]
    fn a_reconnect_sends_the_undecided_again_and_counts_them_once() {
        let mut outbox = with_two_under_way();
        outbox.disconnected();
        assert!(outbox.take_next().is_none());
        outbox.registered("first", 4);
        let again: Vec<(u64, u64, bool)> =
            std::iter::from_fn(|| outbox.take_next()).map(|r| (r.frame, r.blocks_sent, r.resent)).collect();
        assert_eq!(again, [(0, 3, true), (1, 6, true), (2, 9, false), (3, 12, false)]);
        assert_eq!(balanced(&outbox).sent, 12);
    }

    #[test]
    fn another_instance_counts_anew() {
        let mut outbox = with_two_under_way();
        outbox.acknowledge(&fused(0));
        outbox.disconnected();
        outbox.registered("second", 64);
        let again: Vec<(u64, u64, bool)> =
            std::iter::from_fn(|| outbox.take_next()).map(|r| (r.frame, r.blocks_sent, r.resent)).collect();
        assert_eq!(again, [(1, 3, false), (2, 6, false), (3, 9, false)]);
        assert_eq!(balanced(&outbox), Totals { sent: 9, in_flight: 9, ..Totals::default() });
    }

    #[test]
    fn decisions_come_in_any_order_once_and_are_never_more_than_was_sent() {
        let mut outbox = with_two_under_way();
        assert!(outbox.acknowledge(&fused(7)).is_none());
        let mixed = v1::Acknowledgement { frame: 1, fused: 1, late: 1, credit: 9, ..fused(1) };
        outbox.acknowledge(&mixed);
        assert!(outbox.acknowledge(&mixed).is_none());
        let absurd = v1::Acknowledgement { frame: 0, fused: 99, late: 99, ..fused(0) };
        outbox.acknowledge(&absurd);
        let totals = balanced(&outbox);
        assert_eq!((totals.fused, totals.late, totals.dropped, totals.in_flight), (4, 1, 1, 0));
        assert_eq!(frames(&mut outbox), [2, 3]);
    }

    #[test]
    fn what_is_given_up_is_counted() {
        let mut outbox = with_two_under_way();
        assert_eq!(outbox.give_up_waiting(), 6);
        assert!(!outbox.is_empty());
        outbox.clear();
        assert!(outbox.is_empty());
        let totals = balanced(&outbox);
        assert_eq!((totals.dropped, totals.dropped_at_node), (6, 6));
    }

    #[test]
    fn a_frame_that_comes_twice_keeps_the_books_straight() {
        let mut outbox = Outbox::new(4);
        outbox.registered("first", 4);
        outbox.push(report(5));
        outbox.push(report(5));
        assert_eq!(frames(&mut outbox), [5, 5]);
        outbox.acknowledge(&fused(5));
        assert!(outbox.acknowledge(&fused(5)).is_none());
        assert!(outbox.is_empty());
        assert_eq!(balanced(&outbox).in_flight, 0);
    }

    #[test]
    fn credit_is_at_least_one_and_at_most_what_is_made_use_of() {
        assert_eq!([0, 1, 2, 4096, 4097, u32::MAX].map(allowed), [1, 1, 2, 4096, 4096, 4096]);
        let mut outbox = Outbox::new(4);
        (0..4).for_each(|frame| {
            outbox.push(report(frame));
        });
        outbox.registered("first", 0);
        assert_eq!(frames(&mut outbox), [0]);
    }

    /// What was sent again to one instance comes to the next for the first time.
    #[test]
    fn another_instance_has_not_seen_what_was_sent_again() {
        let mut outbox = with_two_under_way();
        outbox.disconnected();
        outbox.registered("first", 2);
        assert!(std::iter::from_fn(|| outbox.take_next()).all(|report| report.resent));
        outbox.disconnected();
        outbox.registered("second", 2);
        assert!(std::iter::from_fn(|| outbox.take_next()).all(|report| !report.resent));
    }

    #[test]
    fn a_decision_without_credit_leaves_it_as_it_was() {
        let mut outbox = with_two_under_way();
        outbox.acknowledge(&v1::Acknowledgement { credit: 0, ..fused(0) });
        assert_eq!(frames(&mut outbox), [2], "one of two places is free");
        outbox.acknowledge(&v1::Acknowledgement { credit: 1, ..fused(1) });
        assert_eq!(frames(&mut outbox), [0; 0], "frame 2 has the only place");
    }

    #[test]
    fn one_report_waits_at_least() {
        let mut outbox = Outbox::new(0);
        assert_eq!((outbox.push(report(0)), outbox.push(report(1)), outbox.waiting()), (0, 3, 1));
    }

    /// Reports are sent again in the order of the first time, whichever run has the greater identity.
    #[test]
    fn a_new_run_with_a_smaller_identity_is_sent_again_last() {
        let mut outbox = Outbox::new(4);
        outbox.registered("first", 4);
        for (run, frame) in [(900, 7), (5, 0), (5, 1)] {
            outbox.push(v1::FrameReport { run, ..report(frame) });
        }
        assert_eq!(frames(&mut outbox), [7, 0, 1]);
        outbox.disconnected();
        outbox.registered("first", 4);
        assert_eq!(frames(&mut outbox), [7, 0, 1]);
    }

    /// Frames of another run are other frames.
    #[test]
    fn runs_are_told_apart() {
        let mut outbox = Outbox::new(4);
        outbox.registered("first", 4);
        for run in [1, 2] {
            outbox.push(v1::FrameReport { run, ..report(5) });
        }
        assert_eq!(frames(&mut outbox), [5, 5]);
        assert!(outbox.acknowledge(&v1::Acknowledgement { run: 3, ..fused(5) }).is_none());
        assert_eq!(outbox.acknowledge(&v1::Acknowledgement { run: 2, ..fused(5) }).unwrap().run, 2);
        assert_eq!(balanced(&outbox).in_flight, 3);
    }

    #[test]
    fn it_is_empty_when_nothing_waits_and_all_is_decided() {
        let mut outbox = Outbox::new(4);
        assert!(outbox.is_empty());
        outbox.push(report(0));
        assert!(!outbox.is_empty(), "one waits");
        outbox.registered("first", 4);
        assert_eq!(frames(&mut outbox), [0]);
        assert!(!outbox.is_empty(), "one is under way");
        outbox.push(report(1));
        assert_eq!(outbox.undecided(), 2);
        outbox.give_up_waiting();
        outbox.acknowledge(&v1::Acknowledgement { fused: 0, duplicate: 2, ..fused(0) });
        assert!(outbox.is_empty());
        let totals = balanced(&outbox);
        assert_eq!((totals.duplicate, totals.dropped, totals.fused), (2, 1, 0));
    }
}
