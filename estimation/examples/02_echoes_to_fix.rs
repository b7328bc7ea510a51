//! One frame of Table I from the echoes at three nodes to a fix with covariance, alternatives and status.
//!
//! `cargo run -p hyloc-estimation --example 02_echoes_to_fix`
#![allow(clippy::print_stdout)]

use hyloc_estimation::delay::DelayEstimator;
use hyloc_estimation::fusion::{FrameBlocks, Fuser, FusionSettings, PayloadKind};
use hyloc_estimation::location::Status;
use hyloc_estimation::model::{EchoSource, Scenario, Score};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = EchoSource::new(&Scenario::default())?;
    let (system, target_m) = (source.system(), source.target_m(0));
    let mut frame = FrameBlocks::new(system.irs_count());
    for l in 0..system.irs_count() {
        let node = DelayEstimator::new(system, l)?;
        let report = node.estimate(&source.frame(l, 0, target_m))?;
        let arrival = report.arrival.ok_or("no line array")?;
        println!("node {l}: angle {:7.3} degrees", arrival.bearing_rad.to_degrees());
        for (k, path) in report.paths.iter().enumerate() {
            println!("  path ({l}, {k}): delay {:7.2} ns, SNR {:5.1}", path.delay_s * 1e9, path.snr);
        }
        frame.insert_node(l, report, PayloadKind::Spectrum);
    }
    let fix = Fuser::new(system.clone(), FusionSettings::default())?.fuse(&frame)?;
    let score = Score::new(fix.position_m, &fix.covariance_m2, target_m);
    println!("target   ({:.2}, {:.2}) m", target_m.x, target_m.y);
    println!("fix      ({:.2}, {:.2}) m", fix.position_m.x, fix.position_m.y);
    println!("status   {}, {}", Status::with_cautions(&fix.cautions), fix.method.name());
    println!("expected {:.2} m rms", fix.covariance_m2.trace().sqrt());
    println!("error    {:.2} m, NEES {:.1}", score.error_m, score.nees.ok_or("no covariance")?);
    Ok(())
}

// Output:
// node 0: angle   7.634 degrees
//   path (0, 0): delay  310.05 ns, SNR  96.1
//   path (0, 1): delay  334.51 ns, SNR 113.2
//   path (0, 2): delay  298.42 ns, SNR  77.1
// node 1: angle  -8.204 degrees
//   path (1, 0): delay  334.72 ns, SNR  70.1
//   path (1, 1): delay  358.95 ns, SNR  75.8
//   path (1, 2): delay  321.48 ns, SNR  70.5
// node 2: angle  -5.198 degrees
//   path (2, 0): delay  298.02 ns, SNR 137.2
//   path (2, 1): delay  322.73 ns, SNR 124.1
//   path (2, 2): delay  285.63 ns, SNR  54.1
// target   (7.12, 3.78) m
// fix      (7.17, 3.72) m
// status   nominal, three-stage
// expected 0.07 m rms
// error    0.08 m, NEES 2.6
