//! The batched projection onto the positive semidefinite cone against an independent
//! eigendecomposition, its properties, and the matrices that break careless implementations.

#[path = "support/hermitian.rs"]
mod hermitian;

use hermitian::HermitianBatch;
use hyloc_estimation::linalg::{GroupSpectrum, Instructions, LANES, PsdProjector, Scalar};
use nalgebra::DMatrix;
use num_complex::Complex;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

type Matrix = DMatrix<Complex<f64>>;

/// Allowed relative error: 450 units of rounding.
fn rounding<T: Scalar>() -> f64 {
    450.0 * T::EPSILON
}

/// A matrix as this precision holds it.
fn held<T: Scalar>(matrix: &Matrix) -> Matrix {
    matrix.map(|value| Complex::new(T::rounded(value.re).into(), T::rounded(value.im).into()))
}

fn available() -> impl Iterator<Item = Instructions> {
    let all = [Instructions::Baseline, Instructions::Avx2, Instructions::Avx512];
    all.into_iter().filter(|set| set.is_available())
}

fn gaussian(rows: usize, columns: usize, rng: &mut ChaCha8Rng) -> Matrix {
    Matrix::from_fn(rows, columns, |_, _| {
        Complex::new(StandardNormal.sample(rng), StandardNormal.sample(rng))
    })
}

fn random_hermitian(order: usize, rng: &mut ChaCha8Rng) -> Matrix {
    let half = gaussian(order, order, rng);
    (&half + half.adjoint()).scale(0.5)
}

/// A Hermitian matrix with the given eigenvalues.
fn with_spectrum(values: &[f64], rng: &mut ChaCha8Rng) -> Matrix {
    let order = values.len();
    let basis = gaussian(order, order, rng).qr().q();
    let scaled = Matrix::from_fn(order, order, |row, column| basis[(row, column)] * values[column]);
    let product = scaled * basis.adjoint();
    (&product + product.adjoint()).scale(0.5)
}

fn project_all<T: Scalar>(
    matrices: &[Matrix],
    instructions: Instructions,
) -> (Vec<Matrix>, Vec<GroupSpectrum>) {
    let order = matrices[0].nrows();
    let mut batch = HermitianBatch::<T>::zeros(order, matrices.len());
    for (place, matrix) in matrices.iter().enumerate() {
        batch.set_matrix(place, matrix);
    }
    let mut projector = PsdProjector::with_instructions(order, instructions).unwrap();
    let spectra = batch.groups_mut().map(|group| projector.project_group(group).unwrap()).collect();
    ((0..matrices.len()).map(|place| batch.matrix(place)).collect(), spectra)
}

fn project_one<T: Scalar>(matrix: &Matrix, instructions: Instructions) -> (Matrix, usize, f64) {
    let (mut results, spectra) = project_all::<T>(std::slice::from_ref(matrix), instructions);
    (results.remove(0), spectra[0].positive[0], spectra[0].trace[0])
}

/// The projection by nalgebra's eigendecomposition.
fn reference(matrix: &Matrix) -> Matrix {
    let eigen = matrix.clone().symmetric_eigen();
    let positive = Matrix::from_diagonal(&eigen.eigenvalues.map(|value| Complex::from(value.max(0.0))));
    &eigen.eigenvectors * positive * eigen.eigenvectors.adjoint()
}

#[test]
fn agrees_with_an_independent_eigendecomposition() {
    check_agrees_with_an_independent_eigendecomposition::<f64>();
    check_agrees_with_an_independent_eigendecomposition::<f32>();
}

fn check_agrees_with_an_independent_eigendecomposition<T: Scalar>() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for order in (1..=40).chain([64]) {
        let matrices: Vec<Matrix> = (0..11).map(|_| held::<T>(&random_hermitian(order, &mut rng))).collect();
        let expected: Vec<Matrix> = matrices.iter().map(reference).collect();
        for instructions in available() {
            let (results, _) = project_all::<T>(&matrices, instructions);
            for ((matrix, expected), result) in matrices.iter().zip(&expected).zip(&results) {
                let error = (result - expected).norm() / matrix.norm();
                assert!(error < rounding::<T>(), "order {order}, {instructions:?}: {error:e}");
            }
        }
    }
}

#[test]
fn has_the_properties_of_the_projection() {
    check_has_the_properties_of_the_projection::<f64>();
    check_has_the_properties_of_the_projection::<f32>();
}

fn check_has_the_properties_of_the_projection<T: Scalar>() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for order in [1, 2, 5, 16, 20, 33] {
        let matrix = held::<T>(&random_hermitian(order, &mut rng));
        let tolerance = rounding::<T>() * matrix.norm();
        let values = matrix.clone().symmetric_eigenvalues();
        for instructions in available() {
            let (result, positive, trace) = project_one::<T>(&matrix, instructions);
            assert!(result.clone().symmetric_eigenvalues().min() > -tolerance, "positive semidefinite");
            let rest = (&matrix - &result).symmetric_eigenvalues();
            assert!(rest.max() < tolerance, "the rest is negative semidefinite");
            let (again, _, _) = project_one::<T>(&result, instructions);
            assert!((again - &result).norm() < tolerance, "idempotent");
            let orthogonal = ((&matrix - &result) * &result).norm();
            assert!(orthogonal < tolerance * matrix.norm(), "the rest is orthogonal");
            assert_eq!(positive, values.iter().filter(|value| **value > 0.0).count());
            assert!((trace - result.trace().re).abs() < tolerance, "trace");
        }
    }
}

#[test]
fn leaves_the_cone_alone_and_sends_its_negative_to_zero() {
    check_leaves_the_cone_alone_and_sends_its_negative_to_zero::<f64>();
    check_leaves_the_cone_alone_and_sends_its_negative_to_zero::<f32>();
}

fn check_leaves_the_cone_alone_and_sends_its_negative_to_zero<T: Scalar>() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for order in [1, 4, 20] {
        let values: Vec<f64> = (1..=order).map(|k| k as f64).collect();
        let matrix = held::<T>(&with_spectrum(&values, &mut rng));
        for instructions in available() {
            let (result, positive, _) = project_one::<T>(&matrix, instructions);
            assert_eq!(result.lower_triangle(), matrix.lower_triangle());
            assert_eq!(positive, order);
            let (result, positive, trace) = project_one::<T>(&-&matrix, instructions);
            assert_eq!(result, Matrix::zeros(order, order));
            assert_eq!((positive, trace), (0, 0.0));
        }
    }
}

/// Zero, diagonal, real tridiagonal, of rank one, with repeated eigenvalues, with zero blocks, graded.
fn special_matrices(order: usize) -> Vec<Matrix> {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let zero = Matrix::zeros(order, order);
    let one = Complex::new(1.0, 0.0);
    let unit = |row: usize, column: usize, value: Complex<f64>| {
        let mut matrix = Matrix::zeros(order, order);
        matrix[(row, column)] = value;
        matrix[(column, row)] = value.conj();
        matrix
    };
    let sign = |k: usize| if k.is_multiple_of(2) { 1.0 } else { -1.0 };
    let diagonal = Matrix::from_fn(order, order, |row, column| {
        if row == column { one * (row as f64 * sign(row)) } else { Complex::default() }
    });
    let tridiagonal =
        Matrix::from_fn(
            order,
            order,
            |row, column| {
                if row.abs_diff(column) == 1 { one } else { Complex::default() }
            },
        );
    let vector = gaussian(order, 1, &mut rng);
    let rank_one = &vector * vector.adjoint();
    let repeated: Vec<f64> = (0..order).map(sign).collect();
    let graded: Vec<f64> = (0..order).map(|k| sign(k) * 10_f64.powi(-(k as i32))).collect();
    let mut arrow = random_hermitian(order, &mut rng);
    arrow.view_mut((0, 0), (order - 1, order - 1)).fill(Complex::default());
    vec![
        zero,
        Matrix::identity(order, order),
        unit(order - 1, 0, Complex::new(0.0, 1.0)),
        unit(order / 2, order / 2, -one),
        diagonal,
        tridiagonal,
        -&rank_one,
        rank_one,
        with_spectrum(&repeated, &mut rng),
        with_spectrum(&graded, &mut rng),
        arrow,
    ]
}

#[test]
fn survives_special_matrices_at_any_scale() {
    check_survives_special_matrices_at_any_scale::<f64>();
    check_survives_special_matrices_at_any_scale::<f32>();
}

fn check_survives_special_matrices_at_any_scale<T: Scalar>() {
    for order in [2, 3, 20] {
        let scales: &[f64] = if T::EPSILON < 1e-10 {
            &[1.0, 1e-150, 1e150, 3e-290, 1e290]
        } else {
            &[1.0, 1e-15, 1e15, 3e-29, 1e29]
        };
        for &scale in scales {
            let matrices: Vec<Matrix> =
                special_matrices(order).iter().map(|matrix| matrix.scale(scale)).collect();
            for instructions in available() {
                let (results, _) = project_all::<T>(&matrices, instructions);
                for (place, (matrix, result)) in matrices.iter().zip(&results).enumerate() {
                    let (matrix, result) = (matrix.scale(1.0 / scale), result.scale(1.0 / scale));
                    let error = (reference(&matrix) - result).norm() / matrix.norm().max(1.0);
                    assert!(error < rounding::<T>(), "{place} of order {order}, {instructions:?}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn counts_only_eigenvalues_beyond_rounding() {
    check_counts_only_eigenvalues_beyond_rounding::<f64>();
    check_counts_only_eigenvalues_beyond_rounding::<f32>();
}

fn check_counts_only_eigenvalues_beyond_rounding<T: Scalar>() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let vector = gaussian(20, 1, &mut rng);
    let matrix = held::<T>(&(&vector * vector.adjoint()));
    for instructions in available() {
        let (_, positive, trace) = project_one::<T>(&matrix, instructions);
        assert_eq!(positive, 1);
        assert!((trace / matrix.trace().re - 1.0).abs() < 0.1 * rounding::<T>());
    }
}

#[test]
fn a_flawed_matrix_ends_in_nan_and_spares_its_neighbours() {
    check_a_flawed_matrix_ends_in_nan_and_spares_its_neighbours::<f64>();
    check_a_flawed_matrix_ends_in_nan_and_spares_its_neighbours::<f32>();
}

fn check_a_flawed_matrix_ends_in_nan_and_spares_its_neighbours<T: Scalar>() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let sound: Vec<Matrix> = (0..LANES).map(|_| random_hermitian(12, &mut rng)).collect();
    for flaw in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for (row, column) in [(0, 0), (11, 11), (7, 3), (11, 0)] {
            let mut flawed = sound.clone();
            flawed[3][(row, column)] = Complex::new(flaw, 0.0);
            for instructions in available() {
                let (expected, _) = project_all::<T>(&sound, instructions);
                let (results, spectra) = project_all::<T>(&flawed, instructions);
                assert!(results[3].iter().all(|value| value.re.is_nan() && value.im.is_nan()));
                assert!(spectra[0].trace[3].is_nan());
                for lane in (0..LANES).filter(|lane| *lane != 3) {
                    assert_eq!(bits(&results[lane]), bits(&expected[lane]));
                }
            }
        }
    }
}

fn bits(matrix: &Matrix) -> Vec<(u64, u64)> {
    matrix.iter().map(|value| (value.re.to_bits(), value.im.to_bits())).collect()
}

#[test]
fn does_not_depend_on_neighbours_or_place() {
    check_does_not_depend_on_neighbours_or_place::<f64>();
    check_does_not_depend_on_neighbours_or_place::<f32>();
}

fn check_does_not_depend_on_neighbours_or_place<T: Scalar>() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for order in [2, 9, 20] {
        let mut matrices = special_matrices(order);
        matrices.extend((0..20).map(|_| random_hermitian(order, &mut rng)));
        for instructions in available() {
            let (together, _) = project_all::<T>(&matrices, instructions);
            let reversed: Vec<Matrix> = matrices.iter().rev().cloned().collect();
            let (backwards, _) = project_all::<T>(&reversed, instructions);
            for (place, matrix) in matrices.iter().enumerate() {
                let (alone, _, _) = project_one::<T>(matrix, instructions);
                assert_eq!(bits(&alone), bits(&together[place]));
                assert_eq!(bits(&alone), bits(&backwards[matrices.len() - 1 - place]));
            }
        }
    }
}
