//! 200 seeds of the deterministic simulation. More: `cargo run -p hyloc-fusion-center --example simulate -- FIRST COUNT`.

#[path = "simulation/mod.rs"]
mod simulation;

use simulation::simulate;

#[test]
fn two_hundred_seeds_keep_the_books_and_recover() {
    let (mut fixes, mut faults, mut hostile) = (0, 0, 0);
    for seed in 0..200 {
        let outcome = std::panic::catch_unwind(|| simulate(seed));
        let outcome =
            outcome.unwrap_or_else(|_| panic!("seed {seed} fails: run the example simulate with {seed} 1"));
        fixes += outcome.fixes;
        faults += outcome.faults;
        hostile += outcome.hostile;
    }
    // The simulation does what it says: faults and strangers in every seed, and fixes all the same.
    assert!(faults > 200 * 5 && hostile > 200 * 50 && fixes > 200 * 100, "{faults} {hostile} {fixes}");
}

#[test]
fn a_seed_decides_everything() {
    assert_eq!(simulate(7), simulate(7));
    assert_ne!(simulate(7), simulate(8));
}

/// Seeds beyond the first two hundred that have failed. 336: a stream opened on a connection that had broken before, an error
/// of the simulation. From 11740 on: the paths of a node were counted twice after a stranger had held its index. 31267: a frame was
/// fused after a later one. 36099: late paths that came again before their frame was solved were counted twice. 502194, 504588,
/// 506391, 506895: what a stranger had closed was not withdrawn while a node said nothing. 504539: a stranger that jumped ahead and
/// then reported earlier frames was taken to make progress, an error of the simulation. The others: one of two nodes filled its
/// credit with frames of a contested run.
#[test]
fn seeds_that_have_failed_pass() {
    for seed in [
        317, 336, 361, 386, 394, 1115, 1648, 11740, 11999, 14892, 15959, 18057, 18299, 31267, 36099, 502194,
        504539, 504588, 506391, 506895,
    ] {
        simulate(seed);
    }
}
