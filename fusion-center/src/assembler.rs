//! Assembles the K^2 paths of each frame.
//!
//! A frame is closed when every node that is waited for has reported, at the deadline after a majority has
//! reached it ([`crate::progress`]), or when a later frame is complete: nodes send in order, so that what is missing
//! then will not come. Frames are closed in order; a report for a closed frame is late. A node that is not
//! connected is not waited for, nor is one that has missed [`MISSES_UNTIL_SILENT`] deadlines in a row, until
//! it reports again.
//!
//! No node closes frames that the others have not reached: a frame beyond the reach of the majority waits. If
//! it is more than [`crate::progress::MOST_AHEAD`] frames beyond, or in another run, and no majority has reached
//! such numbers by its deadline, it is refused. A frame that fewer than half of the nodes waited for have
//! reported is closed without a fix. A node that invents frame numbers therefore does not affect the frames of others.
//! What was closed stays closed as long as a majority stands by it: once those that caused it have left or are outvoted,
//! and the others have been behind it for [`MISSES_UNTIL_SILENT`] deadlines, it is withdrawn. A path that was fused is never
//! fused again.
//!
//! Pure: time is passed in. Memory is bounded by the credit of the nodes and [`REMEMBERED_FRAMES`].

use std::collections::{BTreeMap, VecDeque};

use estimation::fusion::FrameBlocks;
use proto::convert::{FrameId, Report, Times};

use crate::ledger::Fates;
use crate::progress::{Progress, is_far};
use crate::queue::AGE_DEADLINES;
use crate::runs::{Position, Runs};

/// Deadlines in a row after which a connected node is no longer waited for.
pub const MISSES_UNTIL_SILENT: u32 = 3;

/// Closed frames whose paths are remembered, to distinguish duplicate paths from late ones.
pub const REMEMBERED_FRAMES: usize = 1024;

/// Deadlines for which a frame waits for a majority to reach it; longer than a node takes to become silent.
const MOST_DEADLINES: u64 = 20;

/// A node's report within a frame; `T` is its pending acknowledgement.
#[derive(Debug)]
pub struct Member<T> {
    pub frame: FrameId,
    pub node: usize,
    pub acknowledgement: T,
    /// Fates of its paths if the frame is fused.
    pub fates: Fates,
    /// Paths that were received before and came again after a broken connection.
    pub repeated: u64,
    /// Whether the node has sent the report before, on a connection that broke.
    pub resent: bool,
    /// None for a report that added no path.
    pub times: Option<Times>,
    /// Size on the wire.
    pub bytes: usize,
    pub received_ns: u64,
}

impl<T> Member<T> {
    /// Counts a path that was received before.
    fn count_again(&mut self, resent: bool) {
        let count = if resent { &mut self.repeated } else { &mut self.fates.duplicate };
        *count += 1;
    }
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
    /// It is too far ahead of what a majority of the nodes has reached: no fix.
    Ahead,
}

/// A closed frame.
#[derive(Debug)]
pub struct Assembled<T> {
    pub frame: FrameId,
    pub blocks: FrameBlocks,
    pub members: Vec<Member<T>>,
    /// Arrival of the first report.
    pub first_ns: u64,
    /// Arrival of the last report.
    pub last_ns: u64,
    pub closing: Closing,
}

#[derive(Debug)]
struct Open<T> {
    frame: FrameId,
    blocks: FrameBlocks,
    members: Vec<Member<T>>,
    reported: Vec<bool>,
    first_ns: u64,
    last_ns: u64,
    /// When a majority had reached it.
    reached_ns: Option<u64>,
}

#[derive(Debug)]
pub struct Assembler<T> {
    count: usize,
    deadline_ns: u64,
    runs: Runs,
    open: BTreeMap<Position, Open<T>>,
    closed: VecDeque<(Position, Vec<u32>)>,
    last_closed: Option<Position>,
    /// Since when a majority has been behind what was closed.
    contradicted_ns: Option<u64>,
    progress: Progress,
    reach: Option<Position>,
    /// A run on which the nodes are split.
    contested: Option<u64>,
    misses: Vec<u32>,
}

impl<T> Assembler<T> {
    pub fn new(irs_count: usize, deadline_ns: u64) -> Self {
        Self {
            count: irs_count,
            deadline_ns,
            runs: Runs::default(),
            open: BTreeMap::new(),
            closed: VecDeque::with_capacity(REMEMBERED_FRAMES),
            last_closed: None,
            contradicted_ns: None,
            progress: Progress::new(irs_count, deadline_ns),
            reach: None,
            contested: None,
            misses: vec![0; irs_count],
        }
    }

    /// A node has connected or disconnected; returns the frames that waited only for it.
    pub fn set_connected(&mut self, node: usize, connected: bool, now_ns: u64) -> Vec<Assembled<T>> {
        self.progress.set_connected(node, connected, now_ns);
        self.misses[node] = 0;
        self.observe(now_ns);
        self.close_complete()
    }

    /// When [`Self::close_due`] may next have a frame to close.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let due = self.open.iter().filter_map(|(id, open)| self.due_ns(*id, open)).min();
        let waits = self.open.values().any(|open| open.reached_ns.is_none());
        let silence = self.progress.next_silence_ns().filter(|_| waits);
        due.into_iter().chain(silence).min()
    }

    /// When a frame is due: a deadline after a majority has reached it, or after its first report if it is too far ahead. One of a
    /// contested run is due when its fix would be too old and the others go on in their run: it uses up the credit that its node
    /// needs to reach that run. Others wait for a majority as long as a node may become silent, and up to a bound if none will.
    fn due_ns(&self, frame: Position, open: &Open<T>) -> Option<u64> {
        let (from_ns, deadlines) = match open.reached_ns {
            Some(reached_ns) => (reached_ns, 1),
            None if self.is_far(frame) => (open.first_ns, 1),
            None if self.is_left_alone(frame, open) => (open.first_ns, AGE_DEADLINES),
            None if self.progress.next_silence_ns().is_some() => return None,
            None => (open.first_ns, MOST_DEADLINES),
        };
        Some(from_ns.saturating_add(self.deadline_ns.saturating_mul(deadlines)))
    }

    /// Whether the nodes that have not reached a contested run make progress elsewhere, so that none of them will become silent.
    fn is_left_alone(&self, frame: Position, open: &Open<T>) -> bool {
        let old_ns = open.first_ns.saturating_add(self.deadline_ns.saturating_mul(AGE_DEADLINES));
        self.contested == Some(frame.epoch) && self.progress.elsewhere_ns(frame.epoch) >= Some(old_ns)
    }

    /// Updates the reach of the majority; frames within it may be closed from now on. As long as no majority stands by what was
    /// closed, reports before it are late and open no frame: who has not reported as much is waited for all the same, or a
    /// node that says nothing would keep the others from being a majority.
    fn observe(&mut self, now_ns: u64) {
        let open = self.open.keys().next_back().copied();
        let contradicted = self.reach < self.last_closed;
        self.progress.observe(open.max(self.progress.furthest().filter(|_| contradicted)), now_ns);
        (self.reach, self.contested) = (self.progress.reach(), self.progress.contested());
        let Some(reach) = self.reach else { return };
        for (_, open) in self.open.range_mut(..=reach) {
            open.reached_ns.get_or_insert(now_ns);
        }
    }

    /// The run that a majority of the nodes reports; none before the first.
    pub fn run(&self) -> Option<u64> {
        self.reach.and_then(|reach| self.runs.identity(reach.epoch))
    }

    /// Whether a frame is too far ahead to wait for a majority.
    fn is_far(&self, frame: Position) -> bool {
        is_far(frame, self.reach) && self.contested != Some(frame.epoch)
    }

    pub fn open_frames(&self) -> usize {
        self.open.len()
    }

    /// Adds a report to its frame. Returns the frames that it completes, or the report if its frame is closed.
    pub fn offer(
        &mut self,
        node: usize,
        report: Report,
        now_ns: u64,
        acknowledgement: T,
    ) -> Result<Vec<Assembled<T>>, Member<T>> {
        let Report { frame: id, node: said, bytes, paths, refused, times, resent, .. } = report;
        let frame = self.position(id);
        let fates = Fates { dropped: refused.len() as u64, ..Fates::default() };
        let mut member = Member {
            frame: id,
            node,
            acknowledgement,
            fates,
            repeated: 0,
            resent,
            times: None,
            bytes,
            received_ns: now_ns,
        };
        self.progress.spoke(node, now_ns);
        // Old frames are no progress, as long as a majority stands by what was closed and the node stays in its run.
        if self.reach < self.last_closed
            || Some(frame) > self.last_closed
            || self.progress.is_in_other_run(node, frame.epoch)
        {
            self.progress.advance(node, frame, now_ns);
        }
        self.observe(now_ns);
        self.withdraw_if_contradicted(now_ns);
        if self.is_closed(frame) {
            let known = self.known(frame).map_or(0, |bits| bits[node]);
            for (k, _) in paths {
                if known & (1 << k) == 0 {
                    member.fates.late += 1;
                } else {
                    member.count_again(resent);
                }
            }
            return Err(member);
        }
        self.misses[node] = 0;
        let count = self.count;
        let open = self.open.entry(frame).or_insert_with(|| Open {
            frame: id,
            blocks: FrameBlocks::new(count),
            members: Vec::with_capacity(count),
            reported: vec![false; count],
            first_ns: now_ns,
            last_ns: now_ns,
            reached_ns: None,
        });
        for (k, path) in paths {
            if open.blocks.path(node, k).is_none() {
                open.blocks.insert(node, k, said, path);
                member.fates.fused += 1;
            } else {
                member.count_again(resent);
            }
        }
        member.times = (member.fates.fused > 0).then_some(times);
        open.reported[node] |= member.times.is_some();
        open.members.push(member);
        open.last_ns = now_ns;
        self.observe(now_ns);
        Ok(self.close_complete())
    }

    /// Closes the frames that are due, and those before one that is fused.
    pub fn close_due(&mut self, now_ns: u64) -> Vec<Assembled<T>> {
        self.observe(now_ns);
        let mut closed = self.close_complete();
        // A frame that is fused may make a node silent, and the quorum of a later one smaller: it is looked at anew.
        loop {
            let is_due =
                |id: Position, open: &Open<T>| self.due_ns(id, open).is_some_and(|due_ns| due_ns <= now_ns);
            let due: Vec<Position> =
                self.open.iter().filter(|(id, open)| is_due(**id, open)).map(|(id, _)| *id).collect();
            // A frame without a quorum, due or not, closes no other frame.
            let closes_others = |id: &&Position| {
                let open = &self.open[id];
                open.reached_ns.is_some() && self.has_quorum(open)
            };
            let ripe: Vec<Position> = match due.iter().rev().find(closes_others) {
                Some(last) => self.open.range(..=last).map(|(id, _)| *id).collect(),
                None => due,
            };
            if ripe.is_empty() {
                return closed;
            }
            for id in ripe {
                // A frame that no majority has reached in time is refused.
                let refused = self.open[&id].reached_ns.is_none();
                closed.push(self.close(id, refused));
            }
        }
    }

    pub fn close_all(&mut self) -> Vec<Assembled<T>> {
        let ids: Vec<Position> = self.open.keys().copied().collect();
        ids.into_iter().map(|id| self.close(id, false)).collect()
    }

    fn waits_for(&self, node: usize) -> bool {
        self.progress.is_connected(node) && self.misses[node] < MISSES_UNTIL_SILENT
    }

    fn is_complete(&self, open: &Open<T>) -> bool {
        let done = |l: usize| open.reported[l] || !self.waits_for(l);
        open.reached_ns.is_some() && open.reported.contains(&true) && (0..self.count).all(done)
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
        let ids: Vec<Position> = self.open.range(..=complete).map(|(id, _)| *id).collect();
        ids.into_iter().map(|id| self.close(id, false)).collect()
    }

    fn close(&mut self, position: Position, refused: bool) -> Assembled<T> {
        let open = self.open.remove(&position).expect("an open frame");
        let closing = if self.is_complete(&open) {
            Closing::Complete
        } else if refused || open.reached_ns.is_none() && self.is_far(position) {
            Closing::Ahead
        } else if self.has_quorum(&open) {
            Closing::Overdue
        } else {
            Closing::Minority
        };
        if matches!(closing, Closing::Complete | Closing::Overdue) {
            self.book(position, &open);
        }
        let Open { frame, blocks, members, first_ns, last_ns, .. } = open;
        Assembled { frame, blocks, members, first_ns, last_ns, closing }
    }

    /// Remembers a frame that is fused: further reports of it, or of an earlier frame, are late.
    fn book(&mut self, frame: Position, open: &Open<T>) {
        for l in (0..self.count).filter(|l| self.progress.is_connected(*l) && !open.reported[*l]) {
            self.misses[l] = self.misses[l].saturating_add(1);
        }
        self.last_closed = self.last_closed.max(Some(frame));
        if self.closed.len() == REMEMBERED_FRAMES {
            self.closed.pop_front();
        }
        self.closed.push_back((frame, bits(&open.blocks)));
    }

    /// Reopens what was closed beyond the reach of a majority, once that has stayed behind it for longer than a node takes to
    /// catch up.
    fn withdraw_if_contradicted(&mut self, now_ns: u64) {
        if self.reach >= self.last_closed || self.reach.is_none() {
            self.contradicted_ns = None;
            return;
        }
        let since_ns = *self.contradicted_ns.get_or_insert(now_ns);
        let patience_ns = self.deadline_ns.saturating_mul(u64::from(MISSES_UNTIL_SILENT));
        if now_ns.saturating_sub(since_ns) >= patience_ns {
            let closed = self.closed.iter().map(|(frame, _)| Some(*frame));
            self.last_closed = closed.filter(|frame| *frame < self.reach).max().flatten();
            self.contradicted_ns = None;
        }
    }

    /// Where a frame stands; runs that are open, closed last or reported by a node are not forgotten.
    fn position(&mut self, frame: FrameId) -> Position {
        let ends = [self.last_closed, self.reach, self.open.keys().next().copied()];
        let progress = &self.progress;
        self.runs.position(frame, |epoch| {
            progress.uses(epoch) || ends.iter().flatten().any(|position| position.epoch == epoch)
        })
    }

    fn is_closed(&self, frame: Position) -> bool {
        Some(frame) <= self.last_closed || self.known(frame).is_some()
    }

    fn known(&self, frame: Position) -> Option<&[u32]> {
        self.closed.iter().rev().find(|(id, _)| *id == frame).map(|(_, bits)| &bits[..])
    }
}

const _: () =
    assert!(model::MOST_IRS <= u32::BITS as usize, "the mask of paths has one bit per reflecting IRS");

/// Which paths each node delivered, one bit per reflecting IRS.
fn bits(blocks: &FrameBlocks) -> Vec<u32> {
    let mut bits = vec![0; blocks.irs_count()];
    for (l, k, _) in blocks.present() {
        bits[l] |= 1 << k;
    }
    bits
}

#[cfg(test)]
pub(crate) mod tests;
