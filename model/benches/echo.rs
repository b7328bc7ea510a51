//! Frame synthesis. Budget: one Table I frame for all nodes in under 1 ms on one core.
//!
//! The floor is the noise: K M L = 3000 complex Gaussians, some 10 ns per real draw, 60 us. Measured 60 us at K = 3: all of
//! it. At K = 8 the floor is 160 us, measured 431 us (37 %): K^2 waves of M L / K entries each are added to it.

use hyloc_model::scenario::ring;
use hyloc_model::{EchoSource, Scenario};

fn main() {
    divan::main();
}

#[divan::bench(args = [3, 8, 16])]
fn one_frame_for_all_nodes(bencher: divan::Bencher, count: usize) {
    let paper = Scenario::default();
    let scenario = if count == 3 { paper } else { ring(&paper, count).expect("a ring of this size exists") };
    let source = EchoSource::new(&scenario).expect("the scenario is valid");
    let target = source.target_m(0);
    let mut frame = 0;
    bencher.bench_local(|| {
        frame += 1;
        (0..count).map(|l| source.frame(l, frame, target)).collect::<Vec<_>>()
    });
}

#[divan::bench(args = [3, 8, 16])]
fn build_the_system(count: usize) -> hyloc_model::System {
    let scenario = ring(&Scenario::default(), count).expect("a ring of this size exists");
    hyloc_model::System::new(&scenario).expect("the scenario is valid")
}
