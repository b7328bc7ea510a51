//! A frame from what the nodes report to its fix, as a solver of the fusion center makes it.

use hyloc_estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use hyloc_estimation::fusion::{FrameBlocks, Fuser, FusionSettings, Method, PayloadKind};
use model::scenario::ring;
use model::{EchoSource, Scenario};

fn main() {
    divan::main();
}

/// Table I for three IRSs, a ring for any other number: the fuser and a frame of blocks.
fn scene(count: usize, method: Method) -> (Fuser, FrameBlocks) {
    let paper = Scenario::default();
    let scenario = if count == 3 { paper } else { ring(&paper, count).expect("a ring of this size exists") };
    let source = EchoSource::new(&scenario).expect("the scenario is valid");
    let system = source.system();
    let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
    let mut frame = FrameBlocks::new(count);
    for l in 0..count {
        let node = DelayEstimator::with_settings(system, l, settings.clone()).expect("a valid system");
        let report = node.estimate(&source.frame(l, 0, source.target_m(0))).expect("a frame of this system");
        frame.insert_node(l, report, PayloadKind::Block);
    }
    let fuser = Fuser::new(system.clone(), FusionSettings { method, ..FusionSettings::default() });
    (fuser.expect("a small area"), frame)
}

/// Blocks to a fix by the default method.
#[divan::bench(args = [2, 3, 4, 8, 16, 32], sample_count = 20, sample_size = 1)]
fn fuse(bencher: divan::Bencher, count: usize) {
    let (fuser, frame) = scene(count, Method::Auto);
    bencher.bench_local(|| fuser.fuse(&frame).expect("a fix"));
}

/// The two methods by themselves.
#[divan::bench(args = [3, 8, 16], sample_count = 20, sample_size = 1)]
fn fuse_in_three_stages(bencher: divan::Bencher, count: usize) {
    let (fuser, frame) = scene(count, Method::ThreeStage);
    bencher.bench_local(|| fuser.fuse(&frame).expect("a fix"));
}

#[divan::bench(args = [3, 8, 16], sample_count = 20, sample_size = 1)]
fn fuse_directly(bencher: divan::Bencher, count: usize) {
    let (fuser, frame) = scene(count, Method::Direct);
    bencher.bench_local(|| fuser.fuse(&frame).expect("a fix"));
}
