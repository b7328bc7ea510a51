//! An iteration of the joint solver allocates nothing: more iterations, not more allocations.

#[path = "support/counting.rs"]
mod counting;

use counting::allocations;
use hyloc_estimation::angles::admm::{self, AdmmSettings};
use hyloc_estimation::angles::problem::{Departure, DepartureForm, JointProblem, PathData};
use model::CMatrix;
use model::random::{Purpose, complex_normal, stream};

#[test]
fn iterations_allocate_nothing() {
    let mut draw = stream(1, Purpose::Study, [0, 0]);
    let mut matrix = |rows, columns| CMatrix::from_fn(rows, columns, |_, _| complex_normal(&mut draw, 1.0));
    let count = 4;
    let departures: Vec<Departure> =
        (0..count).map(|_| Departure { form: DepartureForm::Structured, signal: matrix(6, 6) }).collect();
    let paths = (0..count * count)
        .map(|i| PathData { l: i / count, k: i % count, weight: 1.0, block: matrix(6, 6) })
        .collect();
    let problem = JointProblem { lambda: 2.0, sensors: 6, departures, paths };
    let solve = |iterations: usize| {
        // A tolerance out of reach: all iterations are done, the penalty is balanced on the way.
        let settings =
            AdmmSettings { tolerance: 1e-300, max_iterations: iterations, ..AdmmSettings::default() };
        let before = allocations();
        let solution = admm::solve(&problem, &settings).unwrap();
        assert_eq!(solution.iterations, iterations);
        allocations() - before
    };
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            solve(400);
            let (few, many) = (solve(20), solve(420));
            println!("{threads} threads: {few} allocations for 20 iterations, {many} for 420");
            // The thread pool may take a page for its own queues now and then; the solver takes none.
            let pool_share = if threads == 1 { 0 } else { 4 };
            assert!(many <= few + pool_share, "{few} for 20 iterations, {many} for 420");
        });
    }
}
