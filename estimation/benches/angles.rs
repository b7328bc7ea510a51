//! The joint solver, scan and polish, and the whole angle estimator.
//!
//! Bound of an iteration: K^2 projections of order 20, near 0.15 Mflop each (see `psd`), and some 0.03 Mflop per block for the
//! other steps, the X-update foremost. Blocks go in groups of sixteen lanes, full or not: at K = 3 and 4 one group, 34 us on an AMD EPYC, of
//! which the projection is 30 us; at K = 8 four groups, 98 us on two cores. A solve to 1e-4 is 70 to 100 iterations, a frame 10 to 14.
//!
//! Scan and polish at K = 3: 47 us, of which the scan of two rounds of 80 angles per IRS, sixteen at a time, is the smaller part.

use hyloc_estimation::Blocks;
use hyloc_estimation::angles::admm::{AdmmSettings, solve};
use hyloc_estimation::angles::estimate::{rank_cases, scaled_problem};
use hyloc_estimation::angles::likelihood::AngleLikelihood;
use hyloc_estimation::angles::problem::JointProblem;
use hyloc_estimation::angles::{AngleSettings, estimate_angles};
use model::geometry::cascade_delay_s;
use model::scenario::ring;
use model::{CMatrix, EchoSource, Scenario};

fn main() {
    divan::main();
}

/// Table I for three IRSs, a ring for any other number; blocks at the true delays.
fn blocks(count: usize) -> (Blocks, Vec<f64>) {
    let paper = Scenario::default();
    let scenario = if count == 3 { paper } else { ring(&paper, count).expect("a ring of this size exists") };
    let source = EchoSource::new(&scenario).expect("the scenario is valid");
    let (system, target) = (source.system(), source.target_m(0));
    let block = |frame: &CMatrix, l: usize, k: usize| {
        let waveform = &system.irs[k].waveform;
        let delay_s = cascade_delay_s(&system.irs[l].pose, &system.irs[k].pose, target);
        let phasors = system.delay_phasors(k, delay_s).unwrap();
        let owned = waveform.subcarriers.iter().zip(waveform.codes.column_iter()).zip(phasors);
        owned.fold(CMatrix::zeros(system.sensors(), waveform.codes.nrows()), |sum, ((&i, code), phasor)| {
            sum + frame.column(i) * code.adjoint() * phasor.conj()
        })
    };
    let table = (0..count)
        .map(|l| {
            let frame = source.frame(l, 0, target);
            (0..count).map(|k| Some(block(&frame, l, k))).collect()
        })
        .collect();
    let truth = system.irs.iter().map(|irs| irs.pose.local_angle_rad(target)).collect();
    (Blocks::of_system(system, system.noise_power_w, table).expect("the blocks fit"), truth)
}

fn problem(count: usize) -> JointProblem {
    let (blocks, _) = blocks(count);
    scaled_problem(&blocks, &rank_cases(&blocks), &AngleSettings::default())
}

/// The whole solve from a cold start at a relative objective of 1e-4.
#[divan::bench(args = [2, 3, 4, 8, 16], sample_count = 20, sample_size = 1)]
fn joint_solve_at_1e_4(bencher: divan::Bencher, count: usize) {
    let problem = problem(count);
    bencher.bench_local(|| solve(&problem, &AdmmSettings::default()));
}

#[divan::bench(args = [3, 8], sample_count = 20, sample_size = 1)]
fn hundred_iterations(bencher: divan::Bencher, count: usize) {
    let problem = problem(count);
    let settings = AdmmSettings { tolerance: 1e-300, max_iterations: 100, ..AdmmSettings::default() };
    bencher.bench_local(|| solve(&problem, &settings));
}

/// Scan and Newton polish on the raw blocks.
#[divan::bench(args = [3, 8, 16], sample_count = 20, sample_size = 1)]
fn scan_and_polish(bencher: divan::Bencher, count: usize) {
    let (blocks, truth) = blocks(count);
    bencher.bench_local(|| {
        let likelihood = AngleLikelihood::new(&blocks);
        let mut angles = truth.clone();
        likelihood.scan(&mut angles);
        likelihood.polish(&angles)
    });
}

/// Blocks to angles with the default settings.
#[divan::bench(args = [3, 8, 16], sample_count = 20, sample_size = 1)]
fn blocks_to_angles(bencher: divan::Bencher, count: usize) {
    let (blocks, _) = blocks(count);
    bencher.bench_local(|| estimate_angles(&blocks, &AngleSettings::default()));
}
