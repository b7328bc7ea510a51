//! Accounts for every path that the nodes report.
//!
//! For each node: paths sent (as the node counts) = fused + late + duplicate + dropped + in flight (as the
//! fusion center counts). The difference is `unaccounted`; it is above zero while a report is sent
//! again after a broken connection, and zero once nothing is in flight. A node that is restarted
//! begins a new account; the accounts of its earlier processes stay in the sums, and a process that comes back continues its own.

use std::collections::VecDeque;

use serde::Serialize;

/// Earlier processes of an index whose accounts are continued if they come back.
const REMEMBERED_PROCESSES: usize = 16;

/// Numbers of paths by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Fates {
    /// Used in a fix.
    pub fused: u64,
    /// Received after their frame was closed.
    pub late: u64,
    /// Received twice although the connection did not break.
    pub duplicate: u64,
    /// Shed under overload or refused as invalid.
    pub dropped: u64,
}

impl Fates {
    pub fn total(&self) -> u64 {
        let received = self.fused.saturating_add(self.late);
        received.saturating_add(self.duplicate).saturating_add(self.dropped)
    }

    fn add(&mut self, other: Self) {
        self.fused += other.fused;
        self.late += other.late;
        self.duplicate += other.duplicate;
        self.dropped += other.dropped;
    }
}

/// What a process of a node has declared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Declared {
    sent: u64,
    dropped_at_node: u64,
}

impl Declared {
    fn add(&mut self, other: &Self) {
        self.sent = self.sent.saturating_add(other.sent);
        self.dropped_at_node = self.dropped_at_node.saturating_add(other.dropped_at_node);
    }
}

#[derive(Debug, Clone, Default)]
struct Account {
    /// Sum over earlier processes that are not remembered.
    past: Declared,
    /// The latest processes before the present one that declared something, by incarnation.
    earlier: VecDeque<(String, Declared)>,
    present: Declared,
    incarnation: String,
    fates: Fates,
    in_flight: u64,
    repeated: u64,
}

/// The account of a node, in numbers of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Balance {
    /// As counted by the node.
    pub sent: u64,
    /// Dropped by the node before sending.
    pub dropped_at_node: u64,
    #[serde(flatten)]
    pub fates: Fates,
    /// Received, not yet decided.
    pub in_flight: u64,
    /// Received again after a broken connection; `fates` counts their first arrival.
    pub repeated: u64,
    /// `sent` minus `fates` minus `in_flight`.
    pub unaccounted: i64,
}

#[derive(Debug, Clone)]
pub struct Ledger {
    accounts: Vec<Account>,
}

impl Ledger {
    pub fn new(irs_count: usize) -> Self {
        Self { accounts: vec![Account::default(); irs_count] }
    }

    /// A node has registered; a new incarnation begins a new account.
    pub fn open(&mut self, node: usize, incarnation: &str) {
        let account = &mut self.accounts[node];
        if account.incarnation != incarnation || incarnation.is_empty() {
            let before = std::mem::take(&mut account.present);
            if before != Declared::default() {
                account.earlier.push_back((std::mem::take(&mut account.incarnation), before));
            }
            if account.earlier.len() > REMEMBERED_PROCESSES
                && let Some((_, oldest)) = account.earlier.pop_front()
            {
                account.past.add(&oldest);
            }
            // Another process may have held the index while this one was away.
            let known = |(known, _): &(String, Declared)| known == incarnation && !incarnation.is_empty();
            let position = account.earlier.iter().position(known);
            let returned = position.and_then(|position| account.earlier.remove(position));
            account.present = returned.map(|(_, declared)| declared).unwrap_or_default();
            account.incarnation = incarnation.to_owned();
        }
    }

    /// The node has declared how many paths it has sent and dropped so far.
    pub fn declare(&mut self, node: usize, sent: u64, dropped: u64) {
        let present = &mut self.accounts[node].present;
        present.sent = present.sent.max(sent);
        present.dropped_at_node = present.dropped_at_node.max(dropped);
    }

    /// Paths were received whose fate is not decided yet.
    pub fn receive(&mut self, node: usize, paths: u64) {
        self.accounts[node].in_flight += paths;
    }

    /// The fate of received paths is decided.
    pub fn settle(&mut self, node: usize, fates: Fates) {
        let account = &mut self.accounts[node];
        account.in_flight = account.in_flight.saturating_sub(fates.total());
        account.fates.add(fates);
    }

    /// Received paths turned out to have been received before.
    pub fn repeat(&mut self, node: usize, paths: u64) {
        let account = &mut self.accounts[node];
        account.in_flight = account.in_flight.saturating_sub(paths);
        account.repeated += paths;
    }

    fn balance(&self, node: usize) -> Balance {
        let account = &self.accounts[node];
        let mut declared = account.past.clone();
        account.earlier.iter().for_each(|(_, earlier)| declared.add(earlier));
        declared.add(&account.present);
        let Declared { sent, dropped_at_node } = declared;
        let decided = i128::from(account.fates.total()) + i128::from(account.in_flight);
        let unaccounted = (i128::from(sent) - decided).clamp(i64::MIN.into(), i64::MAX.into());
        Balance {
            sent,
            dropped_at_node,
            fates: account.fates,
            in_flight: account.in_flight,
            repeated: account.repeated,
            unaccounted: unaccounted as i64,
        }
    }

    pub fn balances(&self) -> Vec<Balance> {
        (0..self.accounts.len()).map(|node| self.balance(node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balanced_account() {
        let mut ledger = Ledger::new(1);
        ledger.open(0, "a");
        ledger.declare(0, 9, 3);
        ledger.receive(0, 9);
        assert_eq!((ledger.balance(0).in_flight, ledger.balance(0).unaccounted), (9, 0));
        ledger.settle(0, Fates { fused: 5, late: 2, duplicate: 1, dropped: 1 });
        let balance = ledger.balance(0);
        assert_eq!((balance.in_flight, balance.unaccounted, balance.dropped_at_node), (0, 0, 3));
    }

    #[test]
    fn a_lost_report_shows_until_it_comes_again() {
        let mut ledger = Ledger::new(1);
        ledger.open(0, "a");
        ledger.declare(0, 6, 0);
        ledger.receive(0, 3);
        assert_eq!(ledger.balance(0).unaccounted, 3);
        ledger.receive(0, 3);
        assert_eq!(ledger.balance(0).unaccounted, 0);
    }

    #[test]
    fn a_new_life_adds_to_the_old_one_and_a_reconnect_does_not() {
        let mut ledger = Ledger::new(1);
        for (incarnation, sent) in [("a", 6), ("a", 9), ("b", 4)] {
            ledger.open(0, incarnation);
            ledger.declare(0, sent, 0);
        }
        assert_eq!(ledger.balance(0).sent, 13);
    }

    /// What a process declares is a sum over its lifetime: it is not counted twice if another process held the index in between.
    #[test]
    fn a_process_that_comes_back_continues_its_account() {
        let mut ledger = Ledger::new(1);
        for (incarnation, sent) in [("a", 6), ("stranger", 0), ("a", 9), ("b", 2), ("a", 10), ("b", 3)] {
            ledger.open(0, incarnation);
            ledger.declare(0, sent, 1);
        }
        assert_eq!((ledger.balance(0).sent, ledger.balance(0).dropped_at_node), (13, 3));
        // Memory is bounded, and no sum is lost.
        for process in 0..100 {
            ledger.open(0, &format!("restarted {process}"));
            ledger.declare(0, 1, 0);
        }
        assert_eq!((ledger.balance(0).sent, ledger.accounts[0].earlier.len()), (113, REMEMBERED_PROCESSES));
    }

    /// Every figure of two accounts, over two lives of the first node, with numbers that no other sum gives.
    #[test]
    fn every_figure_of_the_accounts() {
        let mut ledger = Ledger::new(2);
        ledger.open(0, "a");
        ledger.declare(0, 100, 7);
        // What was said before, or less of it, changes nothing.
        ledger.declare(0, 90, 5);
        ledger.receive(0, 70);
        ledger.settle(0, Fates { fused: 20, late: 11, duplicate: 5, dropped: 3 });
        ledger.settle(0, Fates { fused: 1, late: 2, duplicate: 3, dropped: 4 });
        ledger.repeat(0, 6);
        ledger.open(0, "b");
        ledger.declare(0, 1000, 50);
        ledger.open(1, "c");
        ledger.declare(1, 2, 1);
        let fates = Fates { fused: 21, late: 13, duplicate: 8, dropped: 7 };
        assert_eq!(fates.total(), 49);
        let first = Balance {
            sent: 1100,
            dropped_at_node: 57,
            fates,
            in_flight: 70 - 49 - 6,
            repeated: 6,
            unaccounted: 1100 - 49 - 15,
        };
        let second = Balance { sent: 2, dropped_at_node: 1, unaccounted: 2, ..Balance::default() };
        assert_eq!(ledger.balances(), [first, second]);
        // More fates than paths: nothing is in flight, and the excess is unaccounted.
        ledger.settle(1, Fates { fused: 5, ..Fates::default() });
        assert_eq!((ledger.balance(1).in_flight, ledger.balance(1).unaccounted), (0, -3));
    }

    /// What a node declares is its own affair, and no sum of it wraps.
    #[test]
    fn absurd_declarations_do_not_wrap() {
        let mut ledger = Ledger::new(1);
        ledger.open(0, "a");
        ledger.declare(0, u64::MAX, u64::MAX);
        ledger.receive(0, 3);
        assert_eq!((ledger.balance(0).sent, ledger.balance(0).unaccounted), (u64::MAX, i64::MAX));
        for incarnation in ["b", "c"] {
            ledger.open(0, incarnation);
            ledger.declare(0, u64::MAX, u64::MAX);
        }
        let balance = ledger.balance(0);
        assert_eq!((balance.sent, balance.dropped_at_node), (u64::MAX, u64::MAX));
    }

    /// Nodes that tell no incarnation begin a new account with every registration.
    #[test]
    fn without_an_incarnation_every_registration_is_a_new_life() {
        let mut ledger = Ledger::new(1);
        for _ in 0..2 {
            ledger.open(0, "");
            ledger.declare(0, 6, 2);
        }
        assert_eq!((ledger.balance(0).sent, ledger.balance(0).dropped_at_node), (12, 4));
    }
}
