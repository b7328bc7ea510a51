//! Parts of a process that fail while the rest goes on, such as a log on a full disk.
//!
//! A part says when it fails, when it works again, and what it lost; health, metrics and the summary show it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::{Counter, Metrics};

/// All parts of a process that may fail.
#[derive(Debug, Clone, Default)]
pub struct Degradations(Arc<Mutex<BTreeMap<&'static str, State>>>);

#[derive(Debug, Clone, Default)]
struct State {
    /// Why it fails now.
    failing: Option<String>,
    /// The first reason so far.
    reason: Option<String>,
    lost: u64,
    /// Whether what it does not write is lost.
    file: bool,
}

/// What a part lost, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    pub part: &'static str,
    pub lost: u64,
    pub reason: String,
}

/// A part that may fail.
#[derive(Debug, Clone)]
pub struct Part {
    name: &'static str,
    all: Degradations,
    lost: Counter,
}

impl Degradations {
    /// Adds a part; what it loses is counted in `metrics`.
    pub fn part(&self, name: &'static str, metrics: &Metrics) -> Part {
        let help = "Entries that could not be written to a file.";
        let lost = metrics.counter("hyloc_file_entries_lost_total", help, &[("file", name)]);
        Part { name, all: self.clone(), lost }
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets why a part fails that loses nothing by it; none if it works.
    pub fn set(&self, name: &'static str, reason: Option<String>) {
        self.states().entry(name).or_default().failing = reason;
    }

    /// Parts that fail now, each with its reason, as in `fixes log: No space left on device`.
    pub fn current(&self) -> Vec<String> {
        let states = self.states();
        let failing = states.iter().filter_map(|(name, state)| Some((name, state.failing.as_ref()?)));
        failing.map(|(name, reason)| format!("{name}: {reason}")).collect()
    }

    /// Parts that lost something, or that still fail.
    pub fn losses(&self) -> Vec<Loss> {
        let states = self.states();
        let incomplete =
            states.iter().filter(|(_, state)| state.lost > 0 || state.file && state.failing.is_some());
        incomplete
            .map(|(&part, state)| Loss {
                part,
                lost: state.lost,
                reason: state.reason.clone().unwrap_or_default(),
            })
            .collect()
    }
}

impl Part {
    /// A part that nobody observes.
    pub fn unobserved(name: &'static str) -> Self {
        Degradations::default().part(name, &Metrics::new())
    }

    pub fn failing(&self, reason: &str) {
        let mut states = self.all.states();
        let state = states.entry(self.name).or_default();
        (state.failing, state.file) = (Some(reason.to_owned()), true);
        state.reason.get_or_insert_with(|| reason.to_owned());
    }

    pub fn recovered(&self) {
        self.all.states().entry(self.name).or_default().failing = None;
    }

    /// What it lost, if anything.
    pub fn loss(&self) -> Option<Loss> {
        self.all.losses().into_iter().find(|loss| loss.part == self.name)
    }

    /// Entries that are lost so far.
    pub fn total_lost(&self) -> u64 {
        self.all.states().get(self.name).map_or(0, |state| state.lost)
    }

    /// Counts entries that are lost for good, and why.
    pub fn lost(&self, count: u64, reason: &str) {
        let mut states = self.all.states();
        let state = states.entry(self.name).or_default();
        state.lost = state.lost.saturating_add(count);
        state.reason.get_or_insert_with(|| reason.to_owned());
        self.lost.inc_by(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_works_again_is_no_longer_current_but_its_losses_stay() {
        let (all, metrics) = (Degradations::default(), Metrics::new());
        let part = all.part("fixes log", &metrics);
        assert!(all.current().is_empty() && all.losses().is_empty());
        part.failing("disk full");
        part.failing("no such directory");
        assert_eq!(all.current(), ["fixes log: no such directory"]);
        part.lost(3, "no such directory");
        part.recovered();
        assert!(all.current().is_empty());
        assert_eq!(all.losses(), [Loss { part: "fixes log", lost: 3, reason: "disk full".into() }]);
        assert!(metrics.render().contains("hyloc_file_entries_lost_total{file=\"fixes log\"} 3\n"));
        let harmless = all.part("recording", &metrics);
        harmless.failing("disk full");
        harmless.recovered();
        assert_eq!(all.losses().len(), 1, "a failure that lost nothing is over");
    }
}
