//! The steady state of the joint solver: a second problem of the same kind allocates nothing, whatever its data.

#[path = "support/counting.rs"]
mod counting;

use counting::allocations;
use hyloc_estimation::angles::admm::{AdmmSettings, JointSolver};
use hyloc_estimation::angles::problem::{Departure, DepartureForm, JointProblem, PathData};
use model::CMatrix;
use model::random::{Purpose, complex_normal, stream};

/// Sixteen paths of structured and free IRSs in more than one group; signals are those of `signals`, blocks those of `data`.
fn problem(signals: u64, data: u64) -> JointProblem {
    let matrices = |seed: u64, count: usize| -> Vec<CMatrix> {
        let mut draw = stream(seed, Purpose::Study, [0, 0]);
        (0..count).map(|_| CMatrix::from_fn(6, 6, |_, _| complex_normal(&mut draw, 1.0))).collect()
    };
    let departure = |(k, signal)| Departure {
        form: if k < 3 { DepartureForm::Structured } else { DepartureForm::Free },
        signal,
    };
    let path = |(i, block)| PathData { l: i / 5, k: i % 5, weight: 1.0, block };
    JointProblem {
        lambda: 2.0,
        sensors: 6,
        departures: matrices(signals, 5).into_iter().enumerate().map(departure).collect(),
        paths: matrices(data, 25).into_iter().enumerate().map(path).collect(),
    }
}

#[test]
fn the_second_problem_allocates_nothing() {
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            for tolerance in [1e-2, 1e-7] {
                let settings = AdmmSettings { tolerance, max_iterations: 20_000, ..AdmmSettings::default() };
                let mut solver = JointSolver::default();
                assert!(solver.solve(&problem(1, 2), &settings).unwrap().converged);
                let next = problem(1, 3);
                let before = allocations();
                let iterations = solver.solve(&next, &settings).unwrap().iterations;
                let used = allocations() - before;
                // The thread pool may take a page for its own queues now and then; the solver takes none.
                let pool_share = if threads == 1 { 0 } else { 4 };
                assert!(used <= pool_share, "{used} in {iterations} iterations, {threads} threads");
            }
        });
    }
}
