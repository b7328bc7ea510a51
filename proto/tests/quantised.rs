//! What quantisation costs in the position: spectra over the wire, located directly, Table I at 50 dBm.
#![allow(clippy::print_stdout)]

use estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use estimation::fusion::{FrameBlocks, Fuser, FusionSettings, Method, PayloadKind};
use model::units::db_from_ratio;
use model::{EchoSource, Scenario};
use proto::convert::{FrameId, PayloadFormat, Times, report_from_wire, report_message};
use proto::samples::Precision;

const SCENES: u64 = 300;

#[test]
fn eight_bits_cost_less_than_a_third_of_a_decibel() {
    let precisions = [Precision::F32, Precision::Q8, Precision::Q4];
    let (mut squared_m2, mut bytes) = ([0.0; 3], [0; 3]);
    for seed in 0..SCENES {
        let source = EchoSource::new(&Scenario::default().with_seed(9000 + seed)).unwrap();
        let (system, target_m) = (source.system(), source.target_m(0));
        let settings = FusionSettings { method: Method::Direct, ..FusionSettings::default() };
        let fuser = Fuser::new(system.clone(), settings).unwrap();
        let delays: Vec<_> = (0..3)
            .map(|l| {
                let settings =
                    DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
                let node = DelayEstimator::with_settings(system, l, settings).unwrap();
                node.estimate(&source.frame(l, 0, target_m)).unwrap()
            })
            .collect();
        for (i, precision) in precisions.into_iter().enumerate() {
            let format = PayloadFormat { kind: PayloadKind::Spectrum, precision };
            let mut frame = FrameBlocks::new(3);
            for (l, delays) in delays.iter().enumerate() {
                let message = report_message(FrameId::default(), l, delays, format, Times::default());
                let report = report_from_wire(message, l, system).unwrap();
                bytes[i] += report.bytes;
                for (k, path) in report.paths {
                    frame.insert(l, k, report.node, path);
                }
            }
            let fix = fuser.fuse(&frame).expect("a target");
            squared_m2[i] += (fix.position_m - target_m).norm_squared();
        }
    }
    for (i, most_db) in [(1, 0.3), (2, 0.6)] {
        let cost_db = db_from_ratio(squared_m2[i] / squared_m2[0]);
        let kilobytes = |i: usize| bytes[i] as f64 / 1e3 / SCENES as f64;
        println!(
            "{}: {cost_db:.2} dB against single precision, {:.1} instead of {:.1} kB a fix",
            precisions[i].name(),
            kilobytes(i),
            kilobytes(0)
        );
        assert!(cost_db <= most_db);
    }
}
