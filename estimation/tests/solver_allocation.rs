//! An iteration of the joint solver allocates nothing: more iterations, not more allocations.

use std::alloc::{GlobalAlloc, Layout, System as Heap};
use std::sync::atomic::{AtomicUsize, Ordering};

use hyloc_estimation::angles::admm::{self, AdmmSettings};
use hyloc_estimation::angles::problem::{Departure, DepartureForm, JointProblem, PathData};
use model::CMatrix;
use model::random::{Purpose, complex_normal, stream};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { Heap.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { Heap.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        let solution = admm::solve(&problem, &settings).unwrap();
        assert_eq!(solution.iterations, iterations);
        ALLOCATIONS.load(Ordering::SeqCst) - before
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
