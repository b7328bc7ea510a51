//! What happened, with times: changes that viewers asked for, nodes that came and went, the state of the fixes, clocks that
//! stepped, overload, new runs. The latest are kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::clock::unix_time_ns;
use serde::Serialize;

use super::ApiState;
use crate::fix::FixRecord;
use crate::node_table::NodeView;

/// Entries that are kept.
pub const MOST_KEPT: usize = 200;

/// How often nodes, fixes and load are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long a state of the fixes must last to be told.
const LASTING_NS: u64 = 1_000_000_000;

/// How long there must be no overload for its end to be told.
const CALM_NS: u64 = 5_000_000_000;

/// A silence this long is told as no data; a source that is slower by itself gets three of its intervals.
const SILENCE_NS: u64 = 2_000_000_000;

/// Longest text of an entry, bytes: identities of nodes are part of some.
const LONGEST: usize = 300;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Happening {
    /// Counted from 1.
    pub number: u64,
    pub time_ns: u64,
    /// control, node, fix, clock, load or run.
    pub kind: &'static str,
    pub text: String,
}

#[derive(Debug, Default)]
struct KeptHappenings {
    entries: VecDeque<Happening>,
    last: u64,
}

/// The latest things that happened; shared, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Happenings(Arc<Mutex<KeptHappenings>>);

impl Happenings {
    fn kept(&self) -> MutexGuard<'_, KeptHappenings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, time_ns: u64, kind: &'static str, text: impl Into<String>) {
        let mut text: String = text.into();
        text.truncate(text.floor_char_boundary(LONGEST));
        let mut kept = self.kept();
        kept.last += 1;
        let number = kept.last;
        kept.entries.push_back(Happening { number, time_ns, kind, text });
        if kept.entries.len() > MOST_KEPT {
            kept.entries.pop_front();
        }
    }

    /// Number of the latest entry; 0 before the first.
    pub fn last(&self) -> u64 {
        self.kept().last
    }

    /// Entries after this number, oldest first.
    pub fn after(&self, number: u64) -> Vec<Happening> {
        self.kept().entries.iter().filter(|entry| entry.number > number).cloned().collect()
    }

    /// Looks at nodes, fixes and load as long as fixes are published.
    pub async fn follow(self, state: ApiState) {
        let Some(mut latest) = state.viewer.live() else { return };
        let mut observer = Observer::default();
        loop {
            tokio::time::sleep(LOOK).await;
            if latest.has_changed().is_err() {
                return;
            }
            let fix = latest.borrow_and_update().clone();
            let seen = Seen {
                nodes: &state.node_table.nodes(),
                overloaded: state.node_table.counts().load.overloaded,
                fix: fix.as_deref(),
            };
            let now_ns = unix_time_ns();
            for (kind, text) in observer.look(now_ns, &seen) {
                self.add(now_ns, kind, text);
            }
        }
    }
}

/// What is looked at.
struct Seen<'a> {
    nodes: &'a [NodeView],
    overloaded: bool,
    fix: Option<&'a FixRecord>,
}

/// Tells what has changed since it last looked; time is passed in.
#[derive(Debug, Default)]
struct Observer {
    connected: Vec<bool>,
    stepped: Vec<Option<u64>>,
    /// When the fusion center was last seen overloaded, until its end is told.
    overloaded_ns: Option<u64>,
    run: Option<u64>,
    /// Time of the latest fix, and the time between it and the one seen before.
    fix_ns: Option<u64>,
    pace_ns: u64,
    /// The state that was told, and the one that may become it, with its beginning.
    told: String,
    coming: Option<(String, u64)>,
}

type Told = Vec<(&'static str, String)>;

impl Observer {
    fn look(&mut self, now_ns: u64, seen: &Seen) -> Told {
        let mut told = Told::new();
        self.look_at_nodes(seen.nodes, &mut told);
        if seen.overloaded && self.overloaded_ns.replace(now_ns).is_none() {
            told.push(("load", "overloaded: frames wait for a solver".to_owned()));
        }
        if self.overloaded_ns.is_some_and(|last_ns| now_ns.saturating_sub(last_ns) > CALM_NS) {
            self.overloaded_ns = None;
            told.push(("load", "no longer overloaded".to_owned()));
        }
        let Some(fix) = seen.fix else { return told };
        if self.run != Some(fix.run) {
            let text = if self.run.is_some() { "a new run of the simulator" } else { "the first frame" };
            self.run = Some(fix.run);
            told.push(("run", text.to_owned()));
        }
        self.look_at_fix(now_ns, fix, &mut told);
        told
    }

    fn look_at_nodes(&mut self, nodes: &[NodeView], told: &mut Told) {
        let came = |known: Option<&bool>, node: &NodeView| known.copied().unwrap_or(false) != node.connected;
        for (l, node) in nodes.iter().enumerate() {
            if came(self.connected.get(l), node) {
                let what = if node.connected { "is connected" } else { "is gone" };
                told.push(("node", format!("node {l} ({}) {what}", node.identity)));
            }
            let stepped = node.clock.and_then(|clock| clock.stepped_frame);
            if let Some(frame) = stepped.filter(|_| self.stepped.get(l) != Some(&stepped)) {
                told.push(("clock", format!("the clock of node {l} has stepped in frame {frame}")));
            }
        }
        self.connected = nodes.iter().map(|node| node.connected).collect();
        self.stepped = nodes.iter().map(|node| node.clock.and_then(|clock| clock.stepped_frame)).collect();
    }

    fn look_at_fix(&mut self, now_ns: u64, fix: &FixRecord, told: &mut Told) {
        let time_ns = fix.timing.time_ns;
        if self.fix_ns != Some(time_ns) {
            self.pace_ns = self.fix_ns.map_or(0, |before| time_ns.saturating_sub(before));
            self.fix_ns = Some(time_ns);
        }
        let silent = now_ns.saturating_sub(time_ns) > SILENCE_NS.max(self.pace_ns.saturating_mul(3));
        let status = match fix.status.as_str() {
            "unobservable" => "no fix",
            status => status,
        };
        let state = if silent { "no data" } else { status };
        if state == self.told {
            self.coming = None;
            return;
        }
        let begun_ns = match &self.coming {
            Some((coming, begun_ns)) if coming == state => *begun_ns,
            _ => now_ns,
        };
        // The first state and a silence are told at once.
        if now_ns.saturating_sub(begun_ns) < LASTING_NS && !silent && !self.told.is_empty() {
            self.coming = Some((state.to_owned(), begun_ns));
            return;
        }
        let why = fix.cautions.first().filter(|_| !silent).map(|why| format!(": {why}")).unwrap_or_default();
        told.push(("fix", format!("{state}{why}")));
        (self.told, self.coming) = (state.to_owned(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::Source;
    use estimation::fusion::FrameBlocks;
    use proto::convert::FrameId;

    const S: u64 = 1_000_000_000;

    fn fix(run: u64, time_ns: u64, status: &str, caution: &str) -> FixRecord {
        let none = Err(estimation::location::Unobservable::NoMeasurements.into());
        let blocks = FrameBlocks::new(2);
        let mut fix = FixRecord::new(FrameId { run, frame: 0 }, &blocks, None, &none, Source::Simulated);
        (fix.status, fix.timing.time_ns) = (status.to_owned(), time_ns);
        fix.cautions = vec![caution.to_owned()];
        fix
    }

    fn node(connected: bool) -> NodeView {
        NodeView {
            index: 0,
            identity: "wall".into(),
            connected,
            last_frame: None,
            last_report_ns: None,
            balance: crate::ledger::Balance::default(),
            clock: None,
        }
    }

    #[test]
    fn only_changes_that_last_are_told() {
        let mut observer = Observer::default();
        let mut look = |now_ns: u64, status: &str, time_ns: u64| -> Vec<String> {
            let fix = fix(1, time_ns, status, "node 1 did not report");
            let seen = Seen { nodes: &[node(true)], overloaded: false, fix: Some(&fix) };
            observer.look(now_ns, &seen).into_iter().map(|(_, text)| text).collect()
        };
        let first = look(10 * S, "nominal", 10 * S);
        assert_eq!(first[..2], ["node 0 (wall) is connected", "the first frame"]);
        assert_eq!(look(10 * S + S / 2, "degraded", 10 * S + S / 2), [""; 0], "for half a second");
        assert_eq!(look(11 * S, "nominal", 11 * S), [""; 0]);
        assert_eq!(look(12 * S, "degraded", 12 * S), [""; 0]);
        assert_eq!(look(13 * S, "degraded", 13 * S), ["degraded: node 1 did not report"]);
        assert_eq!(look(16 * S + S / 2, "degraded", 13 * S), ["no data"]);
        assert_eq!(look(17 * S, "degraded", 13 * S), [""; 0]);
    }

    #[test]
    fn overload_that_comes_and_goes_is_told_once() {
        let mut observer = Observer::default();
        let mut look = |now_ns: u64, overloaded: bool| -> Vec<String> {
            let told = observer.look(now_ns, &Seen { nodes: &[], overloaded, fix: None });
            told.into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(look(S, true), ["overloaded: frames wait for a solver"]);
        assert_eq!((look(2 * S, false), look(3 * S, true), look(7 * S, false)), (vec![], vec![], vec![]));
        assert_eq!((look(9 * S, false), look(20 * S, false)), (vec!["no longer overloaded".into()], vec![]));
    }

    #[test]
    fn the_latest_are_kept_with_their_numbers() {
        let happenings = Happenings::default();
        assert_eq!((happenings.last(), happenings.after(0)), (0, vec![]));
        (0..500u64).for_each(|i| happenings.add(i, "node", "ä".repeat(400)));
        let kept = happenings.after(0);
        assert_eq!((kept.len(), kept[0].number, happenings.last()), (MOST_KEPT, 301, 500));
        assert_eq!(kept[0].text.len(), LONGEST);
        let last: Vec<u64> = happenings.after(498).iter().map(|entry| entry.number).collect();
        assert_eq!(last, [499, 500]);
    }
}
