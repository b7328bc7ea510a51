//! What the nodes have agreed on, as far as it follows from the reports alone: which frames may be closed, in which order, and
//! which must be refused. It is kept beside the fusion center, from the same reports, and knows none of its rules for silence,
//! contested runs or withdrawal: where these decide, it allows both outcomes.

use std::collections::{BTreeMap, HashMap, HashSet};

use hyloc_fusion_center::assembler::{Assembled, Closing};
use proto::convert::FrameId;

use super::center::DEADLINE_NS;

/// What is promised: a node is not waited for after so many deadlines in a row, and a frame may be so far ahead of the others.
const MISSES_UNTIL_SILENT: u32 = 3;
const MOST_AHEAD: u64 = 256;

/// Deadlines that a frame which is not far ahead waits for a majority before it is refused.
const MOST_DEADLINES: u64 = 20;

/// A node that makes progress at least this often is neither silent nor quiet.
const STEADY_NS: u64 = 2 * DEADLINE_NS;

/// A run by its first appearance, and a frame of it.
type Place = (usize, u64);

#[derive(Default, Clone)]
struct Index {
    connected: bool,
    misses: u32,
    /// The run that it reported last in the present session. Its furthest frame there lies between these two: an old
    /// frame may or may not count as progress.
    head: Option<(usize, [u64; 2])>,
    /// The run that it reported last, and its furthest frame there, of reports that were refused before there was a head:
    /// these may or may not count as progress.
    refused: Option<Place>,
    /// Since when it has made progress without a longer pause, and when it last did.
    steady_ns: Option<(u64, u64)>,
    /// The furthest frame of each run that was ever reported under this index.
    furthest: HashMap<usize, u64>,
}

impl Index {
    /// Whether it has had a vote from `from_ns` on.
    fn votes(&self, from_ns: u64, now_ns: u64) -> bool {
        let steady = |(since_ns, last_ns): (u64, u64)| since_ns <= from_ns && now_ns - last_ns <= STEADY_NS;
        self.connected && self.steady_ns.is_some_and(steady)
    }

    /// Whether the latest that it reported is certainly as far as this.
    fn stands_by(&self, place: Place) -> bool {
        self.head.is_some_and(|(run, [certain, _])| (run, certain) >= place)
    }

    /// Takes a report; returns whether that was certainly progress.
    fn advance(&mut self, (run, frame): Place, accepted: bool) -> bool {
        if self.head.is_none() {
            let before = self.refused.filter(|(known, _)| *known == run).map(|(_, furthest)| furthest);
            if !accepted {
                self.refused = Some((run, before.map_or(frame, |furthest| furthest.max(frame))));
                return false;
            }
            self.head = Some((run, [frame, before.map_or(frame, |furthest| furthest.max(frame))]));
            return before.is_none_or(|furthest| frame > furthest);
        }
        let Some((_, [certain, possible])) = self.head.filter(|(known, _)| *known == run) else {
            self.head = Some((run, [frame, frame]));
            return true;
        };
        let further = accepted && frame > possible;
        let certain = if accepted { certain.max(frame) } else { certain };
        self.head = Some((run, [certain, possible.max(frame)]));
        further
    }

    /// Whether a frame as far as this, or of a later run, was ever reported under this index.
    fn has_reached(&self, (run, frame): Place) -> bool {
        self.furthest.iter().any(|(known, furthest)| *known > run || *known == run && *furthest >= frame)
    }
}

pub struct Agreement {
    indices: Vec<Index>,
    runs: Vec<u64>,
    /// Frames that were accepted and not closed, and when the first report came.
    open: BTreeMap<Place, u64>,
    fused: HashSet<FrameId>,
    /// The last frame that was fused; none once it may have been withdrawn.
    last_fused: Option<Place>,
    /// Since when it is not certain that a majority stands by it.
    doubted_ns: Option<u64>,
}

impl Agreement {
    pub fn new(count: usize) -> Self {
        Self {
            indices: vec![Index::default(); count],
            runs: Vec::new(),
            open: BTreeMap::new(),
            fused: HashSet::new(),
            last_fused: None,
            doubted_ns: None,
        }
    }

    pub fn set_connected(&mut self, index: usize, connected: bool) {
        let furthest = std::mem::take(&mut self.indices[index].furthest);
        self.indices[index] = Index { connected, furthest, ..Index::default() };
    }

    fn place(&mut self, frame: FrameId) -> Place {
        let run = self.runs.iter().position(|run| *run == frame.run).unwrap_or_else(|| {
            self.runs.push(frame.run);
            self.runs.len() - 1
        });
        (run, frame.frame)
    }

    /// Whether a report of this frame comes after its fix.
    pub fn is_fused(&self, frame: FrameId) -> bool {
        self.fused.contains(&frame)
    }

    /// A report was offered; `accepted` if its frame was open.
    pub fn reported(&mut self, index: usize, frame: FrameId, accepted: bool, now_ns: u64) {
        let place = self.place(frame);
        let node = &mut self.indices[index];
        let furthest = node.furthest.entry(place.0).or_default();
        *furthest = place.1.max(*furthest);
        if accepted {
            node.misses = 0;
        }
        if node.advance(place, accepted) {
            let steady = node.steady_ns.filter(|(_, last_ns)| now_ns - last_ns <= STEADY_NS);
            node.steady_ns = Some((steady.map_or(now_ns, |(since_ns, _)| since_ns), now_ns));
        }
        self.doubt(now_ns);
        self.open.iter().for_each(|(open, first_ns)| self.check_far(*open, *first_ns, now_ns));
        if accepted {
            self.open.entry(place).or_insert(now_ns);
        }
        let late = accepted && Some(place) <= self.last_fused;
        assert!(!late, "{frame:?} was accepted after {:?}, by which a majority stands", self.last_fused);
    }

    /// What was fused may be withdrawn when a majority has not stood by it for as long as a node takes to become silent.
    fn doubt(&mut self, now_ns: u64) {
        let Some(last) = self.last_fused else { return };
        let stands = |node: &&Index| node.stands_by(last) && node.votes(now_ns, now_ns);
        let standing = self.indices.iter().filter(stands).count();
        let connected = self.indices.iter().filter(|node| node.connected).count();
        let doubted_ns = self.doubted_ns.take().unwrap_or(now_ns);
        if 2 * standing <= connected {
            self.doubted_ns = Some(doubted_ns);
            if now_ns - doubted_ns >= u64::from(MISSES_UNTIL_SILENT) * DEADLINE_NS {
                self.last_fused = None;
            }
        }
    }

    /// A frame that a majority has been far behind since its first report is refused after a deadline.
    fn check_far(&self, place: Place, from_ns: u64, now_ns: u64) {
        let far_behind = |node: &&Index| {
            let same_run = node.head.is_some_and(|(run, _)| run == place.0);
            let behind = |(run, last): (&usize, &u64)| {
                *run < place.0 || *run == place.0 && last.saturating_add(MOST_AHEAD) < place.1
            };
            same_run && node.furthest.iter().all(behind) && node.votes(from_ns, now_ns)
        };
        let behind = self.indices.iter().filter(far_behind).count();
        let open_ns = now_ns - from_ns;
        assert!(
            2 * behind <= self.indices.len() || open_ns <= DEADLINE_NS,
            "{place:?} was open for {open_ns} ns although {behind} were far behind it"
        );
    }

    /// A frame that is not far ahead of a majority in its run is not refused before a majority could have come.
    fn check_patience(&self, place: Place, open_ns: u64, now_ns: u64) {
        let near = |node: &&Index| {
            let near = |(run, [certain, _]): (usize, [u64; 2])| {
                run == place.0 && certain.saturating_add(MOST_AHEAD) >= place.1
            };
            node.head.is_some_and(near) && node.votes(now_ns, now_ns)
        };
        let near = self.indices.iter().filter(near).count();
        let connected = self.indices.iter().filter(|node| node.connected).count();
        assert!(
            2 * near <= connected || open_ns >= MOST_DEADLINES * DEADLINE_NS,
            "{place:?} was refused after {open_ns} ns although {near} of {connected} are near it"
        );
    }

    /// Frames were closed together.
    pub fn closed<T>(&mut self, all: &[Assembled<T>], now_ns: u64) {
        for (i, assembled) in all.iter().enumerate() {
            let mut reporters: Vec<usize> = assembled.blocks.present().map(|(l, _, _)| l).collect();
            reporters.dedup();
            let ripe = all[i..].iter().any(|later| {
                later.closing == Closing::Complete || now_ns >= later.first_ns.saturating_add(DEADLINE_NS)
            });
            assert!(ripe, "{:?} was closed before its time", assembled.frame);
            let place = self.place(assembled.frame);
            self.open.remove(&place);
            self.check_far(place, assembled.first_ns, now_ns);
            // What comes before a frame that is fused is closed with it.
            let fused = |later: &Assembled<T>| matches!(later.closing, Closing::Complete | Closing::Overdue);
            if assembled.closing == Closing::Ahead && !all[i..].iter().any(fused) {
                self.check_patience(place, now_ns - assembled.first_ns, now_ns);
            }
            self.check_quorum(assembled.frame, assembled.closing, &reporters);
            if matches!(assembled.closing, Closing::Complete | Closing::Overdue) {
                self.check_reach(place, assembled.first_ns, now_ns);
                assert!(self.last_fused < Some(place), "{place:?} was fused after {:?}", self.last_fused);
                self.last_fused = Some(place);
                for (index, node) in self.indices.iter_mut().enumerate() {
                    node.misses += u32::from(node.connected && !reporters.contains(&index));
                }
                self.fused.insert(assembled.frame);
            }
        }
    }

    /// At least half of the nodes that are waited for are behind a fix, and all of them behind a complete one.
    fn check_quorum(&self, frame: FrameId, closing: Closing, reporters: &[usize]) {
        let waited_for = |(_, node): &(usize, &Index)| node.connected && node.misses < MISSES_UNTIL_SILENT;
        let waited: Vec<usize> = self.indices.iter().enumerate().filter(waited_for).map(|(i, _)| i).collect();
        let quorum = !reporters.is_empty() && 2 * reporters.len() >= waited.len();
        let described = || format!("{frame:?}, {closing:?}: {reporters:?} of {waited:?}");
        match closing {
            Closing::Complete => {
                assert!(quorum && waited.iter().all(|i| reporters.contains(i)), "{}", described());
            }
            Closing::Overdue => assert!(quorum, "{}", described()),
            Closing::Minority => assert!(!quorum, "{}", described()),
            Closing::Ahead => {}
        }
    }

    /// A majority has reached a frame that is fused: fewer of those that certainly have a vote have not.
    fn check_reach(&self, place: Place, first_ns: u64, now_ns: u64) {
        let reached = self.indices.iter().filter(|node| node.has_reached(place)).count();
        let behind = self
            .indices
            .iter()
            .filter(|node| !node.has_reached(place) && node.votes(first_ns, now_ns))
            .count();
        assert!(reached > behind, "{place:?} was fused: {reached} have reached it, {behind} have not");
    }
}
