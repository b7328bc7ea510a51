//! The projection must not touch the heap.

#[path = "support/counting.rs"]
mod counting;
#[path = "support/hermitian.rs"]
mod hermitian;

use counting::allocations;
use hermitian::HermitianBatch;
use hyloc_estimation::linalg::{PsdProjector, Scalar};
use num_complex::Complex;

#[test]
fn projection_allocates_nothing() {
    allocates_nothing::<f64>();
    allocates_nothing::<f32>();
}

fn allocates_nothing<T: Scalar>() {
    let order = 20;
    let mut batch = HermitianBatch::<T>::zeros(order, 20);
    for matrix in 0..batch.count() {
        for row in 0..order {
            for column in 0..=row {
                let phase = (matrix * 31 + row * 7 + column * 3) as f64;
                batch.set(matrix, row, column, Complex::new(phase.sin(), phase.cos()));
            }
        }
    }
    let mut projector = PsdProjector::new(order).unwrap();
    let before = allocations();
    batch.project(&mut projector);
    assert_eq!(allocations(), before);
}
