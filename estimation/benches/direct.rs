//! Direct position determination of one frame of spectra.

use estimation::direct::{DirectLocator, DirectSettings, Evidence};
use model::scenario::ring;
use model::{EchoSource, Scenario};

fn main() {
    divan::main();
}

fn scene(count: usize) -> (DirectLocator, Evidence) {
    let paper = Scenario::default();
    let scenario = if count == 3 { paper } else { ring(&paper, count).expect("a ring of this size exists") };
    let source = EchoSource::new(&scenario).expect("the scenario is valid");
    let system = source.system();
    let locator = DirectLocator::new(system, DirectSettings::default()).expect("a small area");
    let mut evidence = locator.evidence();
    for l in 0..count {
        let echo = source.frame(l, 0, source.target_m(0));
        for (k, irs) in system.irs.iter().enumerate() {
            let spectrum = echo.select_columns(&irs.waveform.subcarriers);
            evidence.spectrum(l, k, &spectrum, system.noise_power_w).expect("it fits");
        }
    }
    (locator, evidence)
}

/// Spectra to position.
#[divan::bench(args = [2, 3, 4, 8, 16])]
fn locate(bencher: divan::Bencher, count: usize) {
    let (locator, evidence) = scene(count);
    bencher.bench_local(|| locator.locate(&evidence).expect("found"));
}

/// The tables, once per system.
#[divan::bench(args = [3, 16], sample_count = 10, sample_size = 1)]
fn build_the_tables(bencher: divan::Bencher, count: usize) {
    let (locator, _) = scene(count);
    let system = locator.system().clone();
    bencher.bench_local(|| DirectLocator::new(&system, DirectSettings::default()));
}
