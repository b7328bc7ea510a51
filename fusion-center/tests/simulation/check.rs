//! What must hold: every path is accounted for exactly once, no stranger's data is in a fix, and fixes come again after
//! the healing.

use std::collections::{HashMap, HashSet};

use hyloc_fusion_center::ledger::Fates;
use proto::convert::FrameId;

use super::center::{Center, DEADLINE_NS, Fix, Ticket};
use super::node::{Node, delay_s};
use super::world::{HEALED_NS, STOP_NS};

pub struct Checks {
    count: usize,
    /// A node that reports nothing after the healing.
    mute: Option<usize>,
    /// Paths in fixes, by life of the center.
    fused: HashMap<(u64, FrameId, usize), HashSet<usize>>,
    fused_of: HashMap<(u64, usize), u64>,
    /// Processes whose reports were received, by life and index.
    senders: HashMap<(u64, usize), HashSet<u64>>,
    /// Processes that are no nodes.
    strangers: HashSet<u64>,
    fixes: u64,
    /// When frames were emitted, and when fixes with the paths of all nodes that report were made.
    emitted_ns: Vec<u64>,
    complete_ns: Vec<u64>,
    /// When a stream of a node was last opened, or the mute node last reported.
    settled_ns: u64,
    /// When the mute node last reported in its present session, and the longest pause between two such reports.
    last_of_mute_ns: Option<u64>,
    longest_pause_ns: u64,
    life: u64,
}

/// How long the others wait for a node that is connected and says nothing: three of its pauses, which are taken to be three
/// deadlines as long as they are not known, and at most twenty deadlines. What a stranger closed is withdrawn after
/// three more, and another deadline closes the first frame without the node.
fn patience_ns(longest_pause_ns: u64) -> u64 {
    (3 * longest_pause_ns).clamp(9 * DEADLINE_NS, 20 * DEADLINE_NS) + (3 + 1) * DEADLINE_NS
}

impl Checks {
    pub fn new(count: usize, mute: Option<usize>) -> Self {
        Self {
            count,
            mute,
            fused: HashMap::new(),
            fused_of: HashMap::new(),
            senders: HashMap::new(),
            strangers: HashSet::new(),
            fixes: 0,
            emitted_ns: Vec::new(),
            complete_ns: Vec::new(),
            settled_ns: 0,
            last_of_mute_ns: None,
            longest_pause_ns: 0,
            life: 0,
        }
    }

    pub fn fixes(&self) -> u64 {
        self.fixes
    }

    /// When the last frame is emitted. The others may have waited for a mute node before the time that counts.
    pub fn stop_ns(&self) -> u64 {
        STOP_NS + self.mute.map_or(0, |_| patience_ns(u64::MAX / 3))
    }

    pub fn emitted(&mut self, now_ns: u64) {
        self.emitted_ns.push(now_ns);
    }

    /// The stream of a node was opened.
    pub fn opened(&mut self, index: usize, now_ns: u64) {
        self.settled_ns = now_ns;
        if self.mute == Some(index) {
            (self.last_of_mute_ns, self.longest_pause_ns) = (None, 0);
        }
    }

    pub fn received(&mut self, life: u64, index: usize, process: u64, is_node: bool, now_ns: u64) {
        self.senders.entry((life, index)).or_default().insert(process);
        if !is_node {
            self.strangers.insert(process);
        } else if self.mute == Some(index) {
            let pause_ns = self.last_of_mute_ns.replace(now_ns).map_or(0, |last_ns| now_ns - last_ns);
            self.longest_pause_ns = self.longest_pause_ns.max(pause_ns);
            self.settled_ns = now_ns;
        }
    }

    /// The books of a node balance at all times.
    pub fn balanced(&self, node: &Node) {
        let t = node.outbox.totals();
        assert_eq!(t.sent, t.fused + t.late + t.duplicate + t.dropped + t.in_flight, "{t:?}");
    }

    /// New fixes of the center.
    pub fn take_fixes(&mut self, life: u64, center: &mut Center, now_ns: u64) {
        self.life = life;
        for Fix { assembled, at_ns } in center.fixes.drain(..) {
            self.fixes += 1;
            let age_ns = at_ns - assembled.first_ns;
            assert!(age_ns <= 2 * DEADLINE_NS, "a fix {age_ns} ns after its first report");
            for (l, k, path) in assembled.blocks.present() {
                let known = self.fused.entry((life, assembled.frame, l)).or_default();
                assert!(known.insert(k), "path ({l}, {k}) of {:?} is in two fixes", assembled.frame);
                *self.fused_of.entry((life, l)).or_default() += 1;
                let senders = &self.senders[&(life, l)];
                let made =
                    senders.iter().any(|process| path.delay_s == delay_s(*process, assembled.frame, k));
                assert!(
                    made,
                    "path ({l}, {k}) of {:?} was made by nobody who held the index",
                    assembled.frame
                );
            }
            if now_ns >= HEALED_NS {
                let reporters = self.count - usize::from(self.mute.is_some());
                if assembled.blocks.present().count() == reporters * self.count {
                    self.complete_ns.push(now_ns);
                }
                for (l, k, path) in assembled.blocks.present() {
                    let stranger =
                        self.strangers.iter().any(|p| path.delay_s == delay_s(*p, assembled.frame, k));
                    assert!(!stranger, "path ({l}, {k}) of a stranger that has left");
                }
            }
        }
    }

    /// A report is acknowledged: what is called fused is in a fix.
    pub fn told(&self, life: u64, ticket: Ticket, told: Fates, index: Option<usize>) {
        assert!(told.total() >= self.count as u64, "{told:?} for {} paths", self.count);
        let Some(index) = index else { return };
        let known = self.fused.get(&(life, ticket.frame, index)).map_or(0, HashSet::len) as u64;
        assert!(told.fused <= known, "{} paths acknowledged as fused, {known} are", told.fused);
    }

    pub fn finish(&self, nodes: &[Node], center: &Center, proven: bool) {
        let balances = center.ledger.balances();
        for (index, node) in nodes.iter().enumerate() {
            self.balanced(node);
            let totals = node.outbox.totals();
            assert!(
                node.outbox.is_empty() && totals.in_flight == 0,
                "node {index} waits for ever: {totals:?}"
            );
            let balance = balances[index];
            assert_eq!(balance.in_flight, 0, "index {index}");
            let fused = self.fused_of.get(&(self.life, index)).copied().unwrap_or(0);
            assert_eq!(balance.fates.fused, fused, "index {index}: the ledger and the fixes differ");
            // The account of one process that lived as long as this center is exact.
            let senders = self.senders.get(&(self.life, index));
            if senders.is_some_and(|senders| senders.len() == 1 && senders.contains(&node.process)) {
                assert_eq!(balance.unaccounted, 0, "index {index}: {balance:?}");
                assert_eq!(balance.sent, totals.sent, "index {index}");
                let told = (totals.fused, totals.late, totals.duplicate, totals.dropped);
                let Fates { fused, late, duplicate, dropped } = balance.fates;
                assert_eq!(told, (fused, late, duplicate, dropped), "index {index}: what the node was told");
            }
        }
        if proven {
            assert!(self.strangers.is_empty(), "a report of a stranger was received");
        }
        assert!(self.settled_ns <= HEALED_NS, "a stream was opened {} ns after the start", self.settled_ns);
        let settled_ns = self.mute.map_or(0, |_| self.settled_ns + patience_ns(self.longest_pause_ns));
        let counted = HEALED_NS.max(settled_ns)..self.stop_ns();
        let count = |times_ns: &[u64]| times_ns.iter().filter(|at_ns| counted.contains(at_ns)).count();
        let (complete, emitted) = (count(&self.complete_ns), count(&self.emitted_ns));
        let links: Vec<_> = nodes.iter().map(|node| (node.process, &node.link)).collect();
        let holders: Vec<_> = (0..self.count).map(|index| center.registry.holder(index)).collect();
        assert!(
            10 * complete >= 9 * emitted.saturating_sub(1),
            "{complete} complete fixes of {emitted} frames, {} in all; {links:?} {holders:?}",
            self.fixes
        );
    }
}
