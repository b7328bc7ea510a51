//! The joint solver: what must hold whatever the data.

mod support;

use hyloc_estimation::angles::admm::{AdmmSettings, JointSolver, solve};
use hyloc_estimation::angles::estimate::{rank_cases, scaled_problem};
use hyloc_estimation::angles::problem::JointProblem;
use hyloc_estimation::angles::{AngleSettings, Extraction, estimate_angles};
use hyloc_estimation::{BlockError, Blocks};
use model::scenario::PathAngles;
use model::{CMatrix, RankCase, Scenario};
use num_complex::Complex64;
use proptest::prelude::*;
use support::{Scene, scene};

fn problem(scene: &Scene) -> JointProblem {
    scaled_problem(&scene.blocks, &rank_cases(&scene.blocks), &AngleSettings::default())
}

type Table = Vec<Vec<Option<CMatrix>>>;

fn table(blocks: &Blocks) -> Table {
    let count = blocks.irs_count();
    (0..count).map(|l| (0..count).map(|k| blocks.block(l, k).cloned()).collect()).collect()
}

#[test]
fn the_objective_is_as_accurate_as_asked_for() {
    for seed in 0..5 {
        for power in [40.0, 50.0, 60.0, 90.0] {
            let problem = problem(&scene(&Scenario::default().with_seed(seed).with_power_dbm(power)));
            let objective = |tolerance| {
                let settings = AdmmSettings { tolerance, max_iterations: 20_000, ..AdmmSettings::default() };
                let solution = solve(&problem, &settings).unwrap();
                assert!(solution.converged && solution.objective_error <= tolerance);
                (solution.objective, solution.objective_error)
            };
            let (best, _) = objective(1e-7);
            for tolerance in [1e-2, 1e-3, 1e-4, 1e-5] {
                let (found, estimated) = objective(tolerance);
                let error = (found / best - 1.0).abs();
                assert!(error < estimated, "seed {seed}, {power} dBm: {error:e}, estimated {estimated:e}");
            }
        }
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let problem = problem(&scene(&model::scenario::ring(&Scenario::default(), 5).unwrap()));
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| solve(&problem, &AdmmSettings::default()).unwrap())
    };
    let one = on(1);
    assert_eq!(one, on(2));
    assert_eq!(one, on(4));
}

/// What a solver keeps from one problem to the next does not change its answers.
#[test]
fn a_solver_that_has_worked_gives_the_same_answer() {
    let mut solver = JointSolver::default();
    for (seed, power) in [(1, 50.0), (1, 40.0), (2, 50.0), (1, 50.0)] {
        for tolerance in [1e-2, 1e-6] {
            let problem = problem(&scene(&Scenario::default().with_seed(seed).with_power_dbm(power)));
            let settings = AdmmSettings { tolerance, ..AdmmSettings::default() };
            assert_eq!(*solver.solve(&problem, &settings).unwrap(), solve(&problem, &settings).unwrap());
            // A weight that single precision does not hold: nothing of the problem before is left.
            let heavy = JointProblem { lambda: 1e14, ..problem };
            let few = AdmmSettings { max_iterations: 30, ..settings };
            assert_eq!(*solver.solve(&heavy, &few).unwrap(), solve(&heavy, &few).unwrap());
        }
    }
}

/// Powers of two in the units of blocks and signals change no digit, however large.
#[test]
fn units_do_not_matter() {
    let given = problem(&scene(&Scenario::default()));
    let expected = solve(&given, &AdmmSettings::default()).unwrap();
    for (signal, block) in [(2f64.powi(-90), 2f64.powi(-60)), (2f64.powi(70), 2f64.powi(90))] {
        let mut other = given.clone();
        other.departures.iter_mut().for_each(|departure| departure.signal *= Complex64::from(signal));
        other.paths.iter_mut().for_each(|path| path.block *= Complex64::from(signal * block));
        other.lambda /= block * signal.powi(2);
        let settings =
            AdmmSettings { penalty: AdmmSettings::default().penalty / block, ..AdmmSettings::default() };
        let found = solve(&other, &settings).unwrap();
        assert_eq!((found.iterations, found.converged), (expected.iterations, true));
        assert!((found.objective / (expected.objective * block) - 1.0).abs() < 1e-12);
        assert_eq!(found.denoised[0].scale(1.0 / block), expected.denoised[0]);
    }
}

#[test]
fn the_iteration_limit_is_said() {
    let problem = problem(&scene(&Scenario::default()));
    let settings = AdmmSettings { max_iterations: 3, ..AdmmSettings::default() };
    let solution = solve(&problem, &settings).unwrap();
    assert!(!solution.converged && solution.iterations == 3);
    assert!(solution.objective.is_finite() && solution.primal_residual > 0.0);
    assert!(solve(&problem, &AdmmSettings::default()).unwrap().converged);
}

#[test]
fn any_subset_of_blocks_gives_the_angles_that_it_tells() {
    let scene = scene(&Scenario::default().with_power_dbm(70.0));
    for mask in [0b111_111_110u32, 0b110_101_011, 0b100_010_001, 0b000_000_111, 0b001_001_001, 0b000_010_000]
    {
        let mut blocks = table(&scene.blocks);
        for (i, block) in blocks.iter_mut().flatten().enumerate() {
            if mask & (1 << i) == 0 {
                *block = None;
            }
        }
        let present = |l: usize, k: usize| mask & (1 << (3 * l + k)) != 0;
        let blocks = Blocks::of_system(&scene.system, scene.blocks.noise_variance(), blocks).unwrap();
        let estimate = estimate_angles(&blocks, &AngleSettings::default()).unwrap();
        for (i, irs) in estimate.irs.iter().enumerate() {
            let told = (0..3).any(|j| present(i, j) || present(j, i));
            assert_eq!(irs.angle_rad.is_some(), told, "mask {mask:09b}, IRS {i}");
            if let Some(angle) = irs.angle_rad {
                assert!((angle - scene.truth_rad[i]).abs() < 0.02, "mask {mask:09b}, IRS {i}");
            }
        }
    }
}

#[test]
fn rank_cases_mix_in_one_problem() {
    let mut scenario = Scenario::default().with_power_dbm(60.0);
    scenario.channel.angles = PathAngles::DftGrid;
    scenario.irs[1].paths = Some(4);
    scenario.irs[2].paths = Some(1);
    let scene = scene(&scenario);
    for extraction in [Extraction::Eigenvector, Extraction::Denoised, Extraction::Polished] {
        let settings = AngleSettings { extraction, ..AngleSettings::default() };
        let estimate = estimate_angles(&scene.blocks, &settings).unwrap();
        let cases: Vec<RankCase> = estimate.irs.iter().map(|irs| irs.rank_case).collect();
        assert_eq!(cases, [RankCase::Full, RankCase::Partial, RankCase::One]);
        assert!(estimate.irs[2].departure_rad.is_none());
        for (irs, truth) in estimate.irs.iter().zip(&scene.truth_rad) {
            assert!((irs.angle_rad.unwrap() - truth).abs() < 0.02, "{extraction:?}: {irs:?} for {truth}");
        }
    }
}

#[test]
fn unusable_blocks_are_named() {
    let scene = scene(&Scenario::default());
    let noise = scene.blocks.noise_variance();
    let with = |edit: &dyn Fn(&mut Table)| {
        let mut blocks = table(&scene.blocks);
        edit(&mut blocks);
        Blocks::of_system(&scene.system, noise, blocks).unwrap_err()
    };
    let nan = with(&|b| b[1][2].as_mut().unwrap()[(0, 0)] = Complex64::new(f64::NAN, 0.0));
    assert_eq!(nan, BlockError::NotFinite { l: 1, k: 2 });
    assert!(nan.to_string().contains("(1, 2)"));
    let infinite = with(&|b| b[2][0].as_mut().unwrap()[(3, 1)] = Complex64::new(0.0, f64::INFINITY));
    assert_eq!(infinite, BlockError::NotFinite { l: 2, k: 0 });
    assert!(with(&|b| b[0][1] = Some(CMatrix::zeros(10, 3))).to_string().contains("block (0, 1) is 10 x 3"));
    assert!(with(&|b| b[0][1] = Some(CMatrix::zeros(0, 10))).to_string().contains("block (0, 1)"));
    assert_eq!(with(&|b| b.iter_mut().flatten().for_each(|x| *x = None)), BlockError::Empty);
    assert!(matches!(with(&|b| b.truncate(2)), BlockError::Table { .. }));
    let mut signals: Vec<CMatrix> = scene.system.irs.iter().map(|irs| irs.reflected_signal.clone()).collect();
    signals[1].fill(Complex64::ZERO);
    let error = Blocks::new(1.0, signals, noise, table(&scene.blocks)).unwrap_err();
    assert!(error.to_string().contains("IRS 1") && error.to_string().contains("rank 0"));
    assert!(Blocks::of_system(&scene.system, -1.0, table(&scene.blocks)).is_err());
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![8 => -10.0..10.0f64, 1 => Just(0.0), 1 => prop::num::f64::ANY]
}

fn matrix(rows: usize, columns: usize) -> impl Strategy<Value = CMatrix> {
    prop::collection::vec((value(), value()), rows * columns).prop_map(move |v| {
        CMatrix::from_iterator(rows, columns, v.into_iter().map(|(re, im)| Complex64::new(re, im)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the shapes and values: refused or estimated, never a panic, never an angle that is not finite.
    #[test]
    fn arbitrary_blocks_never_panic(
        (signals, blocks) in (1usize..4, 1usize..5, 1usize..5, 1usize..4).prop_flat_map(|(count, m, n, d)| (
            prop::collection::vec(matrix(n, d), count),
            prop::collection::vec(prop::collection::vec(prop::option::of(matrix(m, d)), count), count),
        )),
        spacing in 0.1..2.0f64,
        noise in prop_oneof![4 => 0.01..10.0f64, 1 => prop::num::f64::ANY],
    ) {
        if let Ok(blocks) = Blocks::new(spacing, signals, noise, blocks) {
            for extraction in [Extraction::Eigenvector, Extraction::Denoised, Extraction::Polished] {
                let admm = AdmmSettings { max_iterations: 60, ..AdmmSettings::default() };
                let settings = AngleSettings { extraction, admm, ..AngleSettings::default() };
                if let Ok(estimate) = estimate_angles(&blocks, &settings) {
                    for irs in &estimate.irs {
                        prop_assert!(irs.angle_rad.is_none_or(f64::is_finite), "{irs:?}");
                    }
                }
            }
        }
    }
}
