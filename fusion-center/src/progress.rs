//! The progress of each node, and of a majority of them.
//!
//! A node's head is the furthest frame that it has reported of its latest run in its present session: nodes send in order, so
//! that a run which a node reports after another is the later one, whichever appeared here first. The reach is the frame
//! that a strict majority of the voters has reached; a voter is a connected node that is neither silent nor quiet. With one
//! voter it is the head of that node, with two the smaller head: if two disagree there is no majority, and
//! the smaller frame number closes fewer frames. If half of the voters report a later run, that run is contested: its
//! frames are not closed until there is a majority, and refused once their fixes would be too old and the others go on elsewhere.
//!
//! A node becomes silent when others wait for it and it makes no progress for [`MISSES_UNTIL_SILENT`] times its own
//! pause between two reports, or as many deadlines if these are longer: a node that reports at its usual rate
//! cannot be made silent by another that invents frames. As long as its rate is not known, its pause is taken
//! to be [`MISSES_UNTIL_SILENT`] deadlines. No node is waited for longer than `QUIET_DEADLINES` deadlines. A node is quiet if it
//! has reported nothing for as long while another did: one that jumped ahead and stopped does not hold the others up. Pure:
//! time is passed in.

use crate::assembler::MISSES_UNTIL_SILENT;
use crate::runs::Position;

/// Frames by which a report may be ahead of the reach. It is the largest credit that can be set: the reports that a node
/// has in flight are never further ahead, unless it drops frames or invents them.
pub const MOST_AHEAD: u64 = 256;

/// Deadlines without any report after which a node loses its vote if others report, and without progress if others wait.
const QUIET_DEADLINES: u64 = 20;

#[derive(Debug, Clone, Default)]
struct Node {
    connected: bool,
    head: Option<Position>,
    /// When the last report came, or the connection before the first.
    spoke_ns: u64,
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
    pub fn set_connected(&mut self, node: usize, connected: bool, now_ns: u64) {
        let node = &mut self.nodes[node];
        node.connected = connected;
        if connected {
            (node.head, node.pause_ns, node.spoke_ns) = (None, None, now_ns);
        }
    }

    /// A report of a node was received, of whatever frame.
    pub fn spoke(&mut self, node: usize, now_ns: u64) {
        self.nodes[node].spoke_ns = now_ns;
    }

    /// Whether a frame of this epoch is the head of a node.
    pub fn uses(&self, epoch: u64) -> bool {
        self.nodes.iter().any(|node| node.head.is_some_and(|head| head.epoch == epoch))
    }

    pub fn is_connected(&self, node: usize) -> bool {
        self.nodes[node].connected
    }

    /// Whether the head of a node is in another run than this.
    pub fn is_in_other_run(&self, node: usize, epoch: u64) -> bool {
        self.nodes[node].head.is_some_and(|head| head.epoch != epoch)
    }

    /// A node has reported a frame.
    pub fn advance(&mut self, node: usize, frame: Position, now_ns: u64) {
        let node = &mut self.nodes[node];
        if node.head.is_some_and(|head| head.epoch == frame.epoch && head >= frame) {
            return;
        }
        if node.head.is_some() {
            node.pause_ns = Some(now_ns.saturating_sub(node.heard_ns));
        }
        *node = Node { head: Some(frame), heard_ns: now_ns, awaited_ns: None, silent: false, ..node.clone() };
    }

    /// The furthest head of the connected nodes.
    pub fn furthest(&self) -> Option<Position> {
        self.nodes.iter().filter(|node| node.connected).filter_map(|node| node.head).max()
    }

    /// Updates which nodes are silent; `furthest` is the furthest frame that others wait with.
    pub fn observe(&mut self, furthest: Option<Position>, now_ns: u64) {
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
        let patience_ns = self.deadline_ns.max(pause_ns).saturating_mul(misses);
        Some(awaited_ns.saturating_add(patience_ns.min(self.quiet_ns())))
    }

    /// How long others wait for a node, or report without it, before it loses its vote.
    fn quiet_ns(&self) -> u64 {
        self.deadline_ns.saturating_mul(QUIET_DEADLINES)
    }

    /// When the next voter becomes silent if none makes progress.
    pub fn next_silence_ns(&self) -> Option<u64> {
        (0..self.nodes.len()).filter_map(|node| self.silence_ns(node)).min()
    }

    /// The furthest frame that a majority of the voters has reached; without voters, the furthest head of the connected
    /// nodes, or of all if none is connected.
    pub fn reach(&self) -> Option<Position> {
        let heads = self.heads();
        if heads.is_empty() {
            let nobody = self.nodes.iter().all(|node| !node.connected);
            return self
                .nodes
                .iter()
                .filter(|node| node.connected || nobody)
                .filter_map(|node| node.head)
                .max();
        }
        heads[(heads.len() - 1) / 2]
    }

    /// The run that half of the voters report and the other half has not reached.
    pub fn contested(&self) -> Option<u64> {
        let heads = self.heads();
        let [lower, upper] =
            [heads.len().checked_sub(1)? / 2, heads.len() / 2].map(|i| heads[i].map(|head| head.epoch));
        upper.filter(|_| lower != upper)
    }

    /// When the slowest of the connected nodes in other runs than this last made progress; a silent node does not count.
    pub fn elsewhere_ns(&self, epoch: u64) -> Option<u64> {
        let others = self.nodes.iter().filter(|node| node.connected && !node.silent);
        others.filter(|node| node.head.map(|head| head.epoch) != Some(epoch)).map(|node| node.heard_ns).min()
    }

    /// The heads of the voters, in order.
    fn heads(&self) -> Vec<Option<Position>> {
        let connected = || self.nodes.iter().filter(|node| node.connected);
        let spoke_ns = connected().map(|node| node.spoke_ns).max().unwrap_or(0);
        let is_quiet = |node: &Node| spoke_ns.saturating_sub(node.spoke_ns) > self.quiet_ns();
        let voters = connected().filter(|node| !node.silent && !is_quiet(node));
        let mut heads: Vec<Option<Position>> = voters.map(|node| node.head).collect();
        heads.sort_unstable();
        heads
    }
}

/// Whether a frame is of a later run than `reach` or more than [`MOST_AHEAD`] frames beyond it; false without a reach.
pub fn is_far(frame: Position, reach: Option<Position>) -> bool {
    reach.is_some_and(|reach| {
        frame.epoch > reach.epoch
            || frame.epoch == reach.epoch && frame.frame > reach.frame.saturating_add(MOST_AHEAD)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(epoch: u64, frame: u64) -> Position {
        Position { epoch, frame }
    }

    fn with_heads(heads: &[Option<u64>]) -> Progress {
        let mut progress = Progress::new(heads.len(), 100);
        for (node, head) in heads.iter().enumerate() {
            progress.set_connected(node, true, 0);
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
    fn a_run_that_half_of_the_voters_report_is_contested() {
        for (epochs, contested) in [
            (&[1][..], None),
            (&[1, 2], Some(2)),
            (&[1, 1, 2], None),
            (&[1, 2, 1, 2], Some(2)),
            (&[2, 2, 1, 2], None),
        ] {
            let mut progress = Progress::new(epochs.len(), 100);
            for (node, epoch) in epochs.iter().enumerate() {
                progress.set_connected(node, true, 0);
                progress.advance(node, id(*epoch, 0), 0);
            }
            assert_eq!(progress.contested(), contested, "{epochs:?}");
        }
        assert_eq!(Progress::new(2, 100).contested(), None);
    }

    #[test]
    fn a_head_does_not_go_back_until_the_node_comes_anew() {
        let mut progress = with_heads(&[Some(9)]);
        progress.advance(0, id(1, 3), 1);
        assert_eq!(progress.reach(), Some(id(1, 9)));
        assert!(progress.is_in_other_run(0, 0) && !progress.is_in_other_run(0, 1));
        progress.advance(0, id(0, 3), 1);
        assert_eq!(progress.reach(), Some(id(0, 3)), "a run that is reported after another is later");
        progress.advance(0, id(1, 9), 1);
        progress.set_connected(0, false, 1);
        assert!(!progress.is_connected(0));
        assert_eq!(progress.reach(), Some(id(1, 9)), "where nobody votes, the furthest head");
        progress.set_connected(0, true, 1);
        assert_eq!((progress.is_connected(0), progress.reach()), (true, None));
    }

    /// Whoever has left has no say while another is connected, even if that one is silent.
    #[test]
    fn the_head_of_who_left_does_not_count() {
        let mut progress = with_heads(&[Some(9000), Some(4)]);
        progress.observe(Some(id(1, 9000)), 0);
        progress.observe(Some(id(1, 9000)), 900);
        assert_eq!(progress.reach(), Some(id(1, 9000)), "node 1 is silent");
        progress.set_connected(0, false, 901);
        assert_eq!(progress.reach(), Some(id(1, 4)));
    }

    /// Two of three jump ahead and say nothing more: after twenty deadlines the third is followed.
    #[test]
    fn who_reports_nothing_while_others_do_loses_its_vote() {
        let mut progress = with_heads(&[Some(9000), Some(9000), Some(4)]);
        assert_eq!(progress.reach(), Some(id(1, 9000)));
        progress.spoke(2, 2000);
        assert_eq!(progress.reach(), Some(id(1, 9000)), "twenty deadlines of 100");
        progress.spoke(2, 2001);
        assert_eq!(progress.reach(), Some(id(1, 4)));
        progress.spoke(0, 2002);
        assert_eq!(progress.reach(), Some(id(1, 4)), "one of two");
        progress.spoke(1, 2002);
        assert_eq!(progress.reach(), Some(id(1, 9000)));
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
        progress.set_connected(1, false, 470);
        assert_eq!((progress.reach(), progress.next_silence_ns()), (Some(id(1, 3)), None));
    }

    /// Whoever waits may have used up its credit and say nothing more: then only this bound ends the wait.
    #[test]
    fn one_long_pause_does_not_prolong_the_wait_for_ever() {
        let mut progress = with_heads(&[Some(0), Some(0)]);
        progress.advance(1, id(1, 1), 50_000);
        progress.advance(0, id(1, 2), 50_010);
        progress.observe(Some(id(1, 2)), 50_010);
        assert_eq!(progress.next_silence_ns(), Some(52_010), "twenty deadlines of 100");
        progress.observe(Some(id(1, 2)), 52_010);
        assert_eq!(progress.reach(), Some(id(1, 2)));
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
