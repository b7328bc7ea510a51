//! The K^2 blocks of a frame, put together.
//!
//! A frame is closed when every node that is waited for has reported, at the deadline after its first
//! report, or when a later frame is complete: nodes send in order, so what is missing then will not come.
//! Frames are closed in order; a report for a closed frame is late. A node that is not connected is not
//! waited for, nor is one that has missed [`MISSES_UNTIL_SILENT`] deadlines in a row, until it reports again.
//!
//! A frame that fewer than half of the nodes waited for have reported is closed without a fix: so a node
//! that makes up frame numbers spoils no one else's. Pure: time is passed in. Memory is bounded by the
//! credit of the nodes and [`REMEMBERED_FRAMES`].

use std::collections::{BTreeMap, VecDeque};

use estimation::fusion::FrameBlocks;
use proto::convert::{FrameId, Report, Times};

use crate::ledger::Fates;

/// Deadlines in a row after which a connected node is no longer waited for.
pub const MISSES_UNTIL_SILENT: u32 = 3;

/// Closed frames whose blocks are known, to tell a duplicate from a late block.
pub const REMEMBERED_FRAMES: usize = 1024;

/// A node's report within a frame; `T` is where its acknowledgement goes.
#[derive(Debug)]
pub struct Member<T> {
    /// The node.
    pub node: usize,
    /// Where the acknowledgement goes.
    pub reply: T,
    /// Its blocks by fate, should the frame be fused.
    pub fates: Fates,
    /// Blocks that were there already and came again after a broken connection.
    pub repeated: u64,
    /// The node's times; none for a report that added nothing.
    pub times: Option<Times>,
    /// Its bytes on the wire.
    pub bytes: usize,
    /// When it came.
    pub received_ns: u64,
}

/// Why a frame was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// All nodes that were waited for have reported.
    Complete,
    /// The deadline has passed, or a later frame is complete.
    Overdue,
    /// Too few nodes reported it: no fix.
    Minority,
}

/// A closed frame.
#[derive(Debug)]
pub struct Assembled<T> {
    /// The frame.
    pub frame: FrameId,
    /// Its blocks.
    pub blocks: FrameBlocks,
    /// The reports.
    pub members: Vec<Member<T>>,
    /// First report in.
    pub first_ns: u64,
    /// Last report in.
    pub last_ns: u64,
    /// Why it was closed.
    pub closing: Closing,
}

/// What became of a report that belongs to no open frame.
#[derive(Debug)]
pub struct Rejected<T> {
    /// Where the acknowledgement goes.
    pub reply: T,
    /// Its blocks by fate.
    pub fates: Fates,
    /// Blocks that had been fused before and came again after a broken connection.
    pub repeated: u64,
    /// Why.
    pub reason: String,
}

#[derive(Debug)]
struct Open<T> {
    blocks: FrameBlocks,
    members: Vec<Member<T>>,
    reported: Vec<bool>,
    first_ns: u64,
    last_ns: u64,
}

/// Puts frames together.
#[derive(Debug)]
pub struct Assembler<T> {
    count: usize,
    deadline_ns: u64,
    open: BTreeMap<FrameId, Open<T>>,
    closed: VecDeque<(FrameId, Vec<u32>)>,
    last_closed: Option<FrameId>,
    connected: Vec<bool>,
    misses: Vec<u32>,
}

impl<T> Assembler<T> {
    /// Nothing open, nobody connected.
    pub fn new(irs_count: usize, deadline_ns: u64) -> Self {
        Self {
            count: irs_count,
            deadline_ns,
            open: BTreeMap::new(),
            closed: VecDeque::with_capacity(REMEMBERED_FRAMES),
            last_closed: None,
            connected: vec![false; irs_count],
            misses: vec![0; irs_count],
        }
    }

    /// A node came or went; frames that waited for it alone are closed.
    pub fn set_connected(&mut self, node: usize, connected: bool) -> Vec<Assembled<T>> {
        self.connected[node] = connected;
        self.misses[node] = 0;
        self.close_complete()
    }

    /// When the next frame is due, if one is open.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.open.values().map(|open| open.first_ns.saturating_add(self.deadline_ns)).min()
    }

    /// Blocks that wait in open frames.
    pub fn open_frames(&self) -> usize {
        self.open.len()
    }

    /// Takes a report: frames that it completes, or its rejection.
    pub fn offer(
        &mut self,
        node: usize,
        report: Report,
        now_ns: u64,
        reply: T,
    ) -> Result<Vec<Assembled<T>>, Rejected<T>> {
        let Report { frame, node: said, bytes, paths, refused, times, resent, .. } = report;
        let refused = refused.len() as u64;
        if self.is_closed(frame) {
            return Err(self.reject(node, frame, &paths_of(&paths), refused, resent, reply));
        }
        self.misses[node] = 0;
        let count = self.count;
        let open = self.open.entry(frame).or_insert_with(|| Open {
            blocks: FrameBlocks::new(count),
            members: Vec::with_capacity(count),
            reported: vec![false; count],
            first_ns: now_ns,
            last_ns: now_ns,
        });
        let mut fates = Fates { dropped: refused, ..Fates::default() };
        let mut repeated = 0;
        for (k, path) in paths {
            if open.blocks.path(node, k).is_none() {
                open.blocks.insert(node, k, said, path);
                fates.fused += 1;
            } else if resent {
                repeated += 1;
            } else {
                fates.duplicate += 1;
            }
        }
        let times = (fates.fused > 0).then_some(times);
        open.members.push(Member { node, reply, fates, repeated, times, bytes, received_ns: now_ns });
        open.reported[node] |= fates.fused > 0;
        open.last_ns = now_ns;
        Ok(self.close_complete())
    }

    /// Closes what is due.
    pub fn close_due(&mut self, now_ns: u64) -> Vec<Assembled<T>> {
        let due = |open: &Open<T>| open.first_ns.saturating_add(self.deadline_ns) <= now_ns;
        let Some(last_due) = self.open.iter().filter(|(_, open)| due(open)).map(|(id, _)| *id).next_back()
        else {
            return Vec::new();
        };
        // A minority's frame, due or not, closes no one else's.
        let mut closed = Vec::new();
        let ids: Vec<FrameId> = self.open.range(..=last_due).map(|(id, _)| *id).collect();
        let ahead =
            ids.iter().rev().find(|id| self.has_quorum(&self.open[id]) && due(&self.open[id])).copied();
        let ripe: Vec<FrameId> =
            ids.into_iter().filter(|id| Some(*id) <= ahead || due(&self.open[id])).collect();
        for id in ripe {
            closed.push(self.close(id));
        }
        closed
    }

    /// Closes everything, for the end.
    pub fn close_all(&mut self) -> Vec<Assembled<T>> {
        let ids: Vec<FrameId> = self.open.keys().copied().collect();
        ids.into_iter().map(|id| self.close(id)).collect()
    }

    fn waits_for(&self, node: usize) -> bool {
        self.connected[node] && self.misses[node] < MISSES_UNTIL_SILENT
    }

    fn is_complete(&self, open: &Open<T>) -> bool {
        open.reported.contains(&true) && (0..self.count).all(|l| open.reported[l] || !self.waits_for(l))
    }

    fn has_quorum(&self, open: &Open<T>) -> bool {
        let reported = open.reported.iter().filter(|r| **r).count();
        let waited_for = (0..self.count).filter(|l| self.waits_for(*l)).count();
        reported > 0 && 2 * reported >= waited_for
    }

    /// Closes the latest complete frame and all before it.
    fn close_complete(&mut self) -> Vec<Assembled<T>> {
        let complete = self.open.iter().rev().find(|(_, open)| self.is_complete(open)).map(|(id, _)| *id);
        let Some(complete) = complete else { return Vec::new() };
        let ids: Vec<FrameId> = self.open.range(..=complete).map(|(id, _)| *id).collect();
        ids.into_iter().map(|id| self.close(id)).collect()
    }

    fn close(&mut self, frame: FrameId) -> Assembled<T> {
        let open = self.open.remove(&frame).expect("an open frame");
        let closing = if self.is_complete(&open) {
            Closing::Complete
        } else if self.has_quorum(&open) {
            Closing::Overdue
        } else {
            Closing::Minority
        };
        if closing != Closing::Minority {
            for l in (0..self.count).filter(|l| self.connected[*l] && !open.reported[*l]) {
                self.misses[l] = self.misses[l].saturating_add(1);
            }
            self.last_closed = self.last_closed.max(Some(frame));
            if self.closed.len() == REMEMBERED_FRAMES {
                self.closed.pop_front();
            }
            self.closed.push_back((frame, bits(&open.blocks)));
        }
        let Open { blocks, members, first_ns, last_ns, .. } = open;
        Assembled { frame, blocks, members, first_ns, last_ns, closing }
    }

    fn is_closed(&self, frame: FrameId) -> bool {
        self.last_closed.is_some_and(|last| frame <= last)
    }

    fn reject(
        &self,
        node: usize,
        frame: FrameId,
        paths: &[usize],
        refused: u64,
        resent: bool,
        reply: T,
    ) -> Rejected<T> {
        let known = self.closed.iter().rev().find(|(id, _)| *id == frame).map_or(0, |(_, bits)| bits[node]);
        let again = paths.iter().filter(|k| known & (1 << **k) != 0).count() as u64;
        let late = paths.len() as u64 - again;
        let (repeated, duplicate) = if resent { (again, 0) } else { (0, again) };
        Rejected {
            reply,
            fates: Fates { late, duplicate, dropped: refused, fused: 0 },
            repeated,
            reason: format!("frame {} is closed", frame.frame),
        }
    }
}

fn paths_of<P>(paths: &[(usize, P)]) -> Vec<usize> {
    paths.iter().map(|(k, _)| *k).collect()
}

// One bit of the mask per reflecting IRS.
const _: () = assert!(model::MOST_IRS <= u32::BITS as usize, "a block's mask has no room for every IRS");

/// Which blocks each node delivered, one bit per reflecting IRS.
fn bits(blocks: &FrameBlocks) -> Vec<u32> {
    let mut bits = vec![0; blocks.irs_count()];
    for (l, k, _) in blocks.present() {
        bits[l] |= 1 << k;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use estimation::fusion::{NodeReport, PathBlock, Payload};

    fn report(frame: u64, paths: &[usize]) -> Report {
        let path = PathBlock {
            delay_s: 1e-7,
            delay_variance_s2: 1.0,
            snr: 1.0,
            payload: Payload::Parameters,
            quantisation_power_w: 0.0,
        };
        Report {
            frame: FrameId { run: 1, frame },
            node: NodeReport { noise_power_w: 1.0, arrival: None, averaged_frames: 1 },
            bytes: 100,
            paths: paths.iter().map(|k| (*k, path.clone())).collect(),
            refused: Vec::new(),
            times: Times::default(),
            blocks_sent: 0,
            blocks_dropped: 0,
            resent: false,
        }
    }

    fn three() -> Assembler<()> {
        let mut assembler = Assembler::new(3, 100);
        (0..3).for_each(|l| assert!(assembler.set_connected(l, true).is_empty()));
        assembler
    }

    const ALL: &[usize] = &[0, 1, 2];

    fn frames(assembled: &[Assembled<()>]) -> Vec<(u64, Closing)> {
        assembled.iter().map(|a| (a.frame.frame, a.closing)).collect()
    }

    #[test]
    fn a_frame_closes_with_its_last_node_whatever_the_order() {
        let mut assembler = three();
        for l in [2, 0] {
            assert!(assembler.offer(l, report(4, ALL), 10, ()).unwrap().is_empty());
        }
        let closed = assembler.offer(1, report(4, ALL), 30, ()).unwrap();
        assert_eq!(frames(&closed), [(4, Closing::Complete)]);
        assert_eq!((closed[0].first_ns, closed[0].last_ns), (10, 30));
        assert_eq!(closed[0].blocks.present().count(), 9);
    }

    #[test]
    fn the_deadline_closes_with_what_is_there() {
        let mut assembler = three();
        assembler.offer(0, report(0, ALL), 10, ()).unwrap();
        assembler.offer(1, report(0, ALL), 20, ()).unwrap();
        assert_eq!(assembler.next_deadline_ns(), Some(110));
        assert!(assembler.close_due(109).is_empty());
        assert_eq!(frames(&assembler.close_due(110)), [(0, Closing::Overdue)]);
        let late = assembler.offer(2, report(0, ALL), 120, ()).unwrap_err();
        assert_eq!(late.fates, Fates { late: 3, ..Fates::default() });
        let twice = assembler.offer(1, report(0, &[0, 1]), 120, ()).unwrap_err();
        assert_eq!(twice.fates, Fates { duplicate: 2, ..Fates::default() });
        let again = assembler.offer(1, Report { resent: true, ..report(0, ALL) }, 120, ()).unwrap_err();
        assert_eq!((again.fates.total(), again.repeated), (0, 3));
    }

    #[test]
    fn a_node_that_goes_is_not_waited_for() {
        let mut assembler = three();
        assembler.offer(0, report(0, ALL), 10, ()).unwrap();
        assembler.offer(1, report(0, ALL), 20, ()).unwrap();
        assert_eq!(frames(&assembler.set_connected(2, false)), [(0, Closing::Complete)]);
        assembler.offer(0, report(1, ALL), 30, ()).unwrap();
        assert_eq!(frames(&assembler.offer(1, report(1, ALL), 31, ()).unwrap()), [(1, Closing::Complete)]);
    }

    #[test]
    fn a_silent_node_is_not_waited_for_until_it_speaks() {
        let mut assembler = three();
        for frame in 0..3 {
            assembler.offer(0, report(frame, ALL), 1000 * frame, ()).unwrap();
            assembler.offer(1, report(frame, ALL), 1000 * frame, ()).unwrap();
            assert_eq!(frames(&assembler.close_due(1000 * frame + 100)), [(frame, Closing::Overdue)]);
        }
        assembler.offer(0, report(3, ALL), 5000, ()).unwrap();
        assert_eq!(frames(&assembler.offer(1, report(3, ALL), 5001, ()).unwrap()), [(3, Closing::Complete)]);
        assembler.offer(2, report(4, ALL), 6000, ()).unwrap();
        assembler.offer(0, report(4, ALL), 6000, ()).unwrap();
        assert_eq!(assembler.open_frames(), 1, "all three are waited for again");
    }

    #[test]
    fn a_complete_frame_closes_those_before_it_in_order() {
        let mut assembler = three();
        assembler.offer(0, report(0, ALL), 0, ()).unwrap();
        assembler.offer(1, report(0, ALL), 0, ()).unwrap();
        for l in 0..2 {
            assembler.offer(l, report(1, ALL), 1, ()).unwrap();
        }
        let closed = assembler.offer(2, report(1, ALL), 2, ()).unwrap();
        assert_eq!(frames(&closed), [(0, Closing::Overdue), (1, Closing::Complete)]);
    }

    #[test]
    fn made_up_frame_numbers_spoil_no_other() {
        let mut assembler = three();
        assembler.offer(2, report(u64::MAX, ALL), 0, ()).unwrap();
        assembler.offer(0, report(7, ALL), 90, ()).unwrap();
        assert_eq!(frames(&assembler.close_due(100)), [(u64::MAX, Closing::Minority)]);
        assembler.offer(1, report(7, ALL), 100, ()).unwrap();
        assert_eq!(frames(&assembler.offer(2, report(7, ALL), 101, ()).unwrap()), [(7, Closing::Complete)]);
    }

    #[test]
    fn a_new_run_begins_at_zero() {
        let mut assembler = three();
        for l in 0..3 {
            let _ = assembler.offer(l, report(9, ALL), 0, ()).unwrap();
        }
        let next = Report { frame: FrameId { run: 2, frame: 0 }, ..report(0, ALL) };
        assert!(assembler.offer(0, next, 1, ()).is_ok());
        assert!(assembler.offer(0, report(3, ALL), 1, ()).is_err(), "the old run is over");
    }

    #[test]
    fn a_block_that_comes_twice_counts_once() {
        let mut assembler = three();
        assembler.offer(0, report(0, ALL), 0, ()).unwrap();
        assembler.offer(0, report(0, &[1]), 1, ()).unwrap();
        let closed = assembler.close_all();
        let fates: Vec<Fates> = closed[0].members.iter().map(|member| member.fates).collect();
        assert_eq!((fates[0].fused, fates[1].duplicate), (3, 1));
    }
}
