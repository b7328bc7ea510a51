//! The K^2 blocks of a frame, put together.
//!
//! A frame is closed when every node that is waited for has reported, at the deadline after a majority has
//! come to it ([`crate::progress`]), or when a later frame is complete: nodes send in order, so what is missing
//! then will not come. Frames are closed in order; a report for a closed frame is late. A node that is not
//! connected is not waited for, nor is one that has missed [`MISSES_UNTIL_SILENT`] deadlines in a row, until
//! it reports again.
//!
//! No node closes frames that the others have not come to: a frame beyond the reach of the majority waits. If
//! it lies more than [`crate::progress::MOST_AHEAD`] frames beyond, or in another run, and no majority has come
//! to such numbers by its deadline, it is refused. A frame that fewer than half of the nodes waited for have
//! reported is closed without a fix. So a node that makes up frame numbers spoils no one else's. What a node
//! closed while it was alone binds the others only as long as they do not contradict it.
//!
//! Pure: time is passed in. Memory is bounded by the credit of the nodes and [`REMEMBERED_FRAMES`].

use std::collections::{BTreeMap, VecDeque};

use estimation::fusion::FrameBlocks;
use proto::convert::{FrameId, Report, Times};

use crate::ledger::Fates;
use crate::progress::{Progress, is_far};

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
    /// It lies too far ahead of what a majority of the nodes has come to: no fix.
    Ahead,
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
    /// When a majority had come to it.
    reached_ns: Option<u64>,
}

/// Puts frames together.
#[derive(Debug)]
pub struct Assembler<T> {
    count: usize,
    deadline_ns: u64,
    open: BTreeMap<FrameId, Open<T>>,
    closed: VecDeque<(FrameId, Vec<u32>)>,
    last_closed: Option<FrameId>,
    /// The furthest frame that a majority of the connected nodes closed, two at least.
    agreed: Option<FrameId>,
    /// Since when a majority has been behind what a single node closed.
    contradicted_ns: Option<u64>,
    progress: Progress,
    reach: Option<FrameId>,
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
            agreed: None,
            contradicted_ns: None,
            progress: Progress::new(irs_count, deadline_ns),
            reach: None,
            misses: vec![0; irs_count],
        }
    }

    /// A node came or went; frames that waited for it alone are closed.
    pub fn set_connected(&mut self, node: usize, connected: bool, now_ns: u64) -> Vec<Assembled<T>> {
        self.progress.set_connected(node, connected);
        self.misses[node] = 0;
        self.observe(now_ns);
        self.close_complete()
    }

    /// When there is next something to close, if a frame is open.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let due = self.open.iter().filter_map(|(id, open)| self.due_ns(*id, open)).min();
        let waits = self.open.values().any(|open| open.reached_ns.is_none());
        let silence = self.progress.next_silence_ns().filter(|_| waits);
        due.into_iter().chain(silence).min()
    }

    /// When a frame is due; none while it waits for a majority to come to it.
    fn due_ns(&self, frame: FrameId, open: &Open<T>) -> Option<u64> {
        let first_ns = Some(open.first_ns).filter(|_| is_far(frame, self.reach));
        Some(open.reached_ns.or(first_ns)?.saturating_add(self.deadline_ns))
    }

    /// Time has passed or a node has moved: frames that a majority has come to may be closed from now on.
    fn observe(&mut self, now_ns: u64) {
        self.progress.observe(self.open.keys().next_back().copied(), now_ns);
        self.reach = self.progress.reach();
        let Some(reach) = self.reach else { return };
        for (_, open) in self.open.range_mut(..=reach) {
            open.reached_ns.get_or_insert(now_ns);
        }
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
        if Some(frame) > self.agreed {
            self.progress.advance(node, frame, now_ns);
            self.observe(now_ns);
            self.withdraw_if_contradicted(now_ns);
        }
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
            reached_ns: None,
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
        self.observe(now_ns);
        Ok(self.close_complete())
    }

    /// Closes what is due.
    pub fn close_due(&mut self, now_ns: u64) -> Vec<Assembled<T>> {
        self.observe(now_ns);
        let mut closed = self.close_complete();
        let due: Vec<FrameId> = self
            .open
            .iter()
            .filter(|(id, open)| self.due_ns(**id, open).is_some_and(|due_ns| due_ns <= now_ns))
            .map(|(id, _)| *id)
            .collect();
        // A frame without a quorum, due or not, closes no one else's.
        let closes_others = |id: &&FrameId| {
            let open = &self.open[id];
            open.reached_ns.is_some() && self.has_quorum(open)
        };
        let last = due.iter().rev().find(closes_others).copied();
        let ripe: Vec<FrameId> =
            self.open.keys().filter(|id| Some(**id) <= last || due.contains(id)).copied().collect();
        closed.extend(ripe.into_iter().map(|id| self.close(id)));
        closed
    }

    /// Closes everything, for the end.
    pub fn close_all(&mut self) -> Vec<Assembled<T>> {
        let ids: Vec<FrameId> = self.open.keys().copied().collect();
        ids.into_iter().map(|id| self.close(id)).collect()
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
        let ids: Vec<FrameId> = self.open.range(..=complete).map(|(id, _)| *id).collect();
        ids.into_iter().map(|id| self.close(id)).collect()
    }

    fn close(&mut self, frame: FrameId) -> Assembled<T> {
        let open = self.open.remove(&frame).expect("an open frame");
        let closing = if self.is_complete(&open) {
            Closing::Complete
        } else if open.reached_ns.is_none() && is_far(frame, self.reach) {
            Closing::Ahead
        } else if self.has_quorum(&open) {
            Closing::Overdue
        } else {
            Closing::Minority
        };
        if matches!(closing, Closing::Complete | Closing::Overdue) {
            self.book(frame, &open);
        }
        let Open { blocks, members, first_ns, last_ns, .. } = open;
        Assembled { frame, blocks, members, first_ns, last_ns, closing }
    }

    /// Remembers a frame that is fused: what comes for it, or for one before it, is late.
    fn book(&mut self, frame: FrameId, open: &Open<T>) {
        let reported = open.reported.iter().filter(|reported| **reported).count();
        for l in (0..self.count).filter(|l| self.progress.is_connected(*l) && !open.reported[*l]) {
            self.misses[l] = self.misses[l].saturating_add(1);
        }
        self.last_closed = self.last_closed.max(Some(frame));
        if reported >= 2 && 2 * reported > self.progress.connected() {
            self.agreed = self.agreed.max(Some(frame));
        }
        if self.closed.len() == REMEMBERED_FRAMES {
            self.closed.pop_front();
        }
        self.closed.push_back((frame, bits(&open.blocks)));
    }

    /// What a node closed while it was alone does not hold against a majority that stays behind it for longer
    /// than a node takes to catch up.
    fn withdraw_if_contradicted(&mut self, now_ns: u64) {
        if self.last_closed <= self.agreed || self.reach >= self.last_closed || self.reach.is_none() {
            self.contradicted_ns = None;
            return;
        }
        let since_ns = *self.contradicted_ns.get_or_insert(now_ns);
        let patience_ns = self.deadline_ns.saturating_mul(u64::from(MISSES_UNTIL_SILENT));
        if now_ns.saturating_sub(since_ns) >= patience_ns {
            self.last_closed = self.agreed;
            self.contradicted_ns = None;
        }
    }

    fn is_closed(&self, frame: FrameId) -> bool {
        Some(frame) <= self.last_closed || self.known(frame).is_some()
    }

    fn known(&self, frame: FrameId) -> Option<&[u32]> {
        self.closed.iter().rev().find(|(id, _)| *id == frame).map(|(_, bits)| &bits[..])
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
        let known = self.known(frame).map_or(0, |bits| bits[node]);
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
mod tests;
