//! Projection of 64 Hermitian matrices onto the positive semidefinite cone: this crate's kernel with
//! each instruction set the machine has, and nalgebra, on one thread. Times are per 64 matrices.
//!
//! Bound: some 19 n^3 flops a matrix, 0.15 Mflop at order 20. Measured on one core of an AMD EPYC, 64 matrices: 119 us in single and
//! 260 us in double precision with AVX-512, 82 and 37 Gflop/s; 148 and 471 us with AVX2. The shorter the loops, the more their ends and
//! the rotations' square roots count.

#[path = "../tests/support/hermitian.rs"]
mod hermitian;

use divan::Bencher;
use divan::counter::ItemsCount;
use hermitian::HermitianBatch;
use hyloc_estimation::linalg::{Instructions, PsdProjector, Scalar};
use nalgebra::DMatrix;
use num_complex::Complex;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const COUNT: usize = 64;
const ORDERS: [usize; 3] = [8, 20, 40];

fn main() {
    divan::main();
}

fn random_batch<T: Scalar>(order: usize) -> HermitianBatch<T> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut batch = HermitianBatch::zeros(order, COUNT);
    for matrix in 0..COUNT {
        for row in 0..order {
            for column in 0..=row {
                let (re, im) = (StandardNormal.sample(&mut rng), StandardNormal.sample(&mut rng));
                batch.set(matrix, row, column, Complex::new(re, im));
            }
        }
    }
    batch
}

fn bench_kernel<T: Scalar>(bencher: Bencher, order: usize, instructions: Instructions) {
    if !instructions.is_available() {
        return;
    }
    let given = random_batch::<T>(order);
    let mut batch = given.clone();
    let mut projector = PsdProjector::with_instructions(order, instructions).unwrap();
    bencher.counter(ItemsCount::new(COUNT)).bench_local(|| {
        batch.entries_mut().copy_from_slice(given.entries());
        batch.project(&mut projector);
    });
}

#[divan::bench(args = ORDERS, types = [f32, f64])]
fn kernel_avx512<T: Scalar>(bencher: Bencher, order: usize) {
    bench_kernel::<T>(bencher, order, Instructions::Avx512);
}

#[divan::bench(args = ORDERS, types = [f32, f64])]
fn kernel_avx2<T: Scalar>(bencher: Bencher, order: usize) {
    bench_kernel::<T>(bencher, order, Instructions::Avx2);
}

#[divan::bench(args = ORDERS, types = [f32, f64])]
fn kernel_baseline<T: Scalar>(bencher: Bencher, order: usize) {
    bench_kernel::<T>(bencher, order, Instructions::Baseline);
}

#[divan::bench(args = ORDERS)]
fn nalgebra(bencher: Bencher, order: usize) {
    let batch = random_batch::<f64>(order);
    let given: Vec<DMatrix<Complex<f64>>> = (0..COUNT).map(|matrix| batch.matrix(matrix)).collect();
    bencher.counter(ItemsCount::new(COUNT)).bench_local(|| {
        given
            .iter()
            .map(|matrix| {
                let eigen = matrix.clone().symmetric_eigen();
                let mut left = eigen.eigenvectors.clone();
                for (mut column, value) in left.column_iter_mut().zip(eigen.eigenvalues.iter()) {
                    column *= Complex::new(value.max(0.0), 0.0);
                }
                left * eigen.eigenvectors.adjoint()
            })
            .collect::<Vec<_>>()
    });
}
