//! The projection must not touch the heap.

#[path = "support/hermitian.rs"]
mod hermitian;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use hermitian::HermitianBatch;
use hyloc_estimation::linalg::PsdProjector;
use num_complex::Complex;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands every call on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those `System` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn projection_allocates_nothing() {
    let order = 20;
    let mut batch = HermitianBatch::zeros(order, 20);
    for matrix in 0..batch.count() {
        for row in 0..order {
            for column in 0..=row {
                let phase = (matrix * 31 + row * 7 + column * 3) as f64;
                batch.set(matrix, row, column, Complex::new(phase.sin(), phase.cos()));
            }
        }
    }
    let mut projector = PsdProjector::new(order).unwrap();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    batch.project(&mut projector);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
}
