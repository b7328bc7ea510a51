//! The progress of each node, and of a majority of them.
//!
//! A node's head is the furthest frame that it has reported in its present session. The reach is the frame
//! that a strict majority of the voters has reached; a voter is a connected node that is not silent. With one
//! voter it is the head of that node, with two the smaller head: if two disagree there is no majority, and
//! the smaller frame number closes fewer frames.
//!
//! A node becomes silent when others wait for it and it makes no progress for [`MISSES_UNTIL_SILENT`] times its own
//! pause between two reports, or as many deadlines if these are longer: a node that reports at its usual rate
//! cannot be made silent by another that invents frames. As long as its rate is not known, its pause is taken
//! to be [`MISSES_UNTIL_SILENT`] deadlines. Pure: time is passed in.

use proto::convert::FrameId;

use crate::assembler::MISSES_UNTIL_SILENT;

/// Frames by which a report may be ahead of the reach. It is the largest credit that can be set: the reports that a node
/// has in flight are never further ahead, unless it drops frames or invents them.
pub const MOST_AHEAD: u64 = 256;

#[derive(Debug, Clone, Default)]
struct Node {
    connected: bool,
    head: Option<FrameId>,
    /// When the head last advanced.
    heard_ns: u64,
    /// Time between the last two advances of the head.
    pause_ns: Option<u64>,
    /// Since when a frame beyond the head is open.
    awaited_ns: Option<u64>,
    silent: bool,
}

#[derive(Debug)]
pub struct Progress {
    nodes: Vec<Node>,
    deadline_ns: u64,
}

impl Progress {
    pub fn new(count: usize, deadline_ns: u64) -> Self {
        Self { nodes: vec![Node::default(); count], deadline_ns }
    }

    /// A node has connected or disconnected. Connecting clears its head, but does not end its silence.
    pub fn set_connected(&mut self, node: usize, connected: bool) {
        let node = &mut self.nodes[node];
        node.connected = connected;
        if connected {
            (node.head, node.pause_ns) = (None, None);
        }
    }

    pub fn is_connected(&self, node: usize) -> bool {
        self.nodes[node].connected
    }

    /// Number of connected nodes.
    pub fn connected(&self) -> usize {
        self.nodes.iter().filter(|node| node.connected).count()
    }

    /// A node has reported a frame.
    pub fn advance(&mut self, node: usize, frame: FrameId, now_ns: u64) {
        let node = &mut self.nodes[node];
        if node.head >= Some(frame) {
            return;
        }
        if node.head.is_some() {
            node.pause_ns = Some(now_ns.saturating_sub(node.heard_ns));
        }
        *node = Node { head: Some(frame), heard_ns: now_ns, awaited_ns: None, silent: false, ..node.clone() };
    }

    /// Updates which nodes are silent; `furthest` is the furthest open frame.
    pub fn observe(&mut self, furthest: Option<FrameId>, now_ns: u64) {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            if node.connected && node.head < furthest {
                node.awaited_ns.get_or_insert(now_ns);
            }
            if self.silence_ns(index).is_some_and(|at_ns| at_ns <= now_ns) {
                self.nodes[index].silent = true;
            }
        }
    }

    /// When a voter becomes silent if it makes no progress.
    fn silence_ns(&self, node: usize) -> Option<u64> {
        let node = &self.nodes[node];
        let awaited_ns = node.awaited_ns.filter(|_| node.connected && !node.silent)?;
        let misses = u64::from(MISSES_UNTIL_SILENT);
        let pause_ns = node.pause_ns.unwrap_or(self.deadline_ns.saturating_mul(misses));
        Some(awaited_ns.saturating_add(self.deadline_ns.max(pause_ns).saturating_mul(misses)))
    }

    /// When the next voter becomes silent if none makes progress.
    pub fn next_silence_ns(&self) -> Option<u64> {
        (0..self.nodes.len()).filter_map(|node| self.silence_ns(node)).min()
    }

    /// The furthest frame that a majority of the voters has reached; without voters, the furthest head.
    pub fn reach(&self) -> Option<FrameId> {
        let voters = self.nodes.iter().filter(|node| node.connected && !node.silent);
        let mut heads: Vec<Option<FrameId>> = voters.map(|node| node.head).collect();
        if heads.is_empty() {
            return self.nodes.iter().filter_map(|node| node.head).max();
        }
        heads.sort_unstable();
        heads[(heads.len() - 1) / 2]
    }
}

/// Whether a frame is of a later run than `reach` or more than [`MOST_AHEAD`] frames beyond it; false without a reach.
pub fn is_far(frame: FrameId, reach: Option<FrameId>) -> bool {
    reach.is_some_and(|reach| {
        frame.run > reach.run
            || frame.run == reach.run && frame.frame > reach.frame.saturating_add(MOST_AHEAD)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(run: u64, frame: u64) -> FrameId {
        FrameId { run, frame }
    }

    fn with_heads(heads: &[Option<u64>]) -> Progress {
        let mut progress = Progress::new(heads.len(), 100);
        for (node, head) in heads.iter().enumerate() {
            progress.set_connected(node, true);
            if let Some(frame) = head {
                progress.advance(node, id(1, *frame), 0);
            }
        }
        progress
    }

    #[test]
    fn the_reach_is_what_a_strict_majority_has_come_to() {
        for (heads, reach) in [
            (&[Some(9)][..], Some(9)),
            (&[Some(9), Some(4)], Some(4)),
            (&[Some(9), None], None),
            (&[Some(9), Some(4), Some(6)], Some(6)),
            (&[Some(9), Some(4), Some(6), Some(7)], Some(6)),
            (&[Some(9), Some(4), Some(6), Some(7), None], Some(6)),
        ] {
            let expected = reach.map(|frame| id(1, frame));
            assert_eq!(with_heads(heads).reach(), expected, "{heads:?}");
        }
    }

    #[test]
    fn a_head_does_not_go_back_until_the_node_comes_anew() {
        let mut progress = with_heads(&[Some(9)]);
        progress.advance(0, id(1, 3), 1);
        assert_eq!(progress.reach(), Some(id(1, 9)));
        progress.set_connected(0, false);
        assert_eq!((progress.connected(), progress.is_connected(0)), (0, false));
        assert_eq!(progress.reach(), Some(id(1, 9)), "where nobody votes, the furthest head");
        progress.set_connected(0, true);
        assert_eq!((progress.connected(), progress.is_connected(0), progress.reach()), (1, true, None));
    }

    #[test]
    fn silence_is_three_deadlines_or_three_own_pauses_without_progress() {
        let mut progress = with_heads(&[Some(0), Some(0)]);
        assert_eq!(progress.next_silence_ns(), None, "nobody waits");
        progress.advance(0, id(1, 1), 50);
        progress.observe(Some(id(1, 1)), 50);
        assert_eq!(progress.next_silence_ns(), Some(950), "its pace is not known");
        progress.advance(1, id(1, 1), 60);
        progress.observe(Some(id(1, 2)), 70);
        assert_eq!(progress.next_silence_ns(), Some(370), "three deadlines of 100");
        progress.advance(0, id(1, 2), 70);
        progress.observe(Some(id(1, 2)), 369);
        assert_eq!(progress.reach(), Some(id(1, 1)));
        progress.observe(Some(id(1, 2)), 370);
        assert_eq!((progress.reach(), progress.next_silence_ns()), (Some(id(1, 2)), None));
        // It speaks after a pause of 400: from now on three such pauses are its patience.
        progress.advance(1, id(1, 2), 460);
        progress.advance(0, id(1, 3), 470);
        progress.observe(Some(id(1, 3)), 470);
        assert_eq!((progress.reach(), progress.next_silence_ns()), (Some(id(1, 2)), Some(1670)));
        progress.set_connected(1, false);
        assert_eq!((progress.reach(), progress.next_silence_ns()), (Some(id(1, 3)), None));
    }

    #[test]
    fn only_what_lies_past_the_window_or_in_a_later_run_is_far() {
        let reach = Some(id(3, 10));
        for (frame, far) in [
            (id(3, 10 + MOST_AHEAD), false),
            (id(3, 11 + MOST_AHEAD), true),
            (id(3, 0), false),
            (id(2, u64::MAX), false),
            (id(4, 0), true),
        ] {
            assert_eq!(is_far(frame, reach), far, "{frame:?}");
        }
        assert!(!is_far(id(9, 9), None));
        assert!(!is_far(id(3, u64::MAX), Some(id(3, u64::MAX - 1))));
    }
}
