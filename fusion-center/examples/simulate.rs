//! Runs seeds of the deterministic simulation: `cargo run -p hyloc-fusion-center --example simulate -- [FIRST [COUNT]]`.
//!
//! A seed that fails is printed with the reason; run alone, it fails in the same way.
#![allow(clippy::print_stdout)]

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::panic::{catch_unwind, set_hook};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (first, count) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(10_000));
    set_hook(Box::new(|panic| println!("{panic}")));
    let (mut events, mut fixes, mut failed) = (0, 0, Vec::new());
    for seed in first..first + count {
        match catch_unwind(|| simulation::simulate(seed)) {
            Ok(outcome) => (events, fixes) = (events + outcome.events, fixes + outcome.fixes),
            Err(_) => {
                println!("seed {seed} fails");
                failed.push(seed);
            }
        }
    }
    println!("{count} seeds, {events} events, {fixes} fixes, {} failed {failed:?}", failed.len());
    assert!(failed.is_empty());
}
