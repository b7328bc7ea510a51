//! What payload and precision cost in the position: raw echoes, estimated at the nodes, over the wire, fused; Table I.
//!
//! Figures are printed: `cargo test -p hyloc-proto --test quantised -- --nocapture`.
#![allow(clippy::print_stdout)]

use estimation::delay::{DelayEstimator, DelaySettings, NodeDelays, Statistic};
use estimation::fusion::{FrameBlocks, Fuser, FusionSettings, Method, PayloadKind};
use hyloc_proto::convert::{FrameId, PayloadFormat, Times, report_from_wire, report_message};
use hyloc_proto::samples::Precision;
use model::units::db_from_ratio;
use model::{EchoSource, Gain, Information, Point, Scenario, Scheme};

const SCENES: u64 = 300;

struct Scene {
    source: EchoSource,
    target_m: Point,
    delays: Vec<NodeDelays>,
    fuser: Fuser,
}

impl Scene {
    fn new(seed: u64, power_dbm: f64, method: Method) -> Self {
        let source = EchoSource::new(&Scenario::default().with_seed(seed).with_power_dbm(power_dbm)).unwrap();
        let (system, target_m) = (source.system(), source.target_m(0));
        let delays = (0..3).map(|l| {
            let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
            let node = DelayEstimator::with_settings(system, l, settings).unwrap();
            node.estimate(&source.frame(l, 0, target_m)).unwrap()
        });
        let delays = delays.collect();
        let settings = FusionSettings { method, ..FusionSettings::default() };
        let fuser = Fuser::new(system.clone(), settings).unwrap();
        Self { source, target_m, delays, fuser }
    }

    /// Bytes on the wire, and the squared error of the fix if there is one.
    fn send(&self, format: PayloadFormat) -> (usize, Option<f64>) {
        let mut frame = FrameBlocks::new(3);
        let mut bytes = 0;
        for (l, delays) in self.delays.iter().enumerate() {
            let message = report_message(FrameId::default(), l, delays, format, Times::default());
            let report = report_from_wire(message, l, self.source.system()).unwrap();
            bytes += report.bytes;
            for (k, path) in report.paths {
                frame.insert(l, k, report.node, path);
            }
        }
        let fix = self.fuser.fuse(&frame).ok();
        (bytes, fix.map(|fix| (fix.position_m - self.target_m).norm_squared()))
    }

    fn bound_m2(&self) -> f64 {
        let rcs_m2 = self.source.rcs_m2();
        let information = Information::new(self.source.system(), self.target_m, rcs_m2, Gain::Unknown);
        information.position_crb_m2(Scheme::Hybrid).unwrap().trace()
    }
}

#[test]
fn eight_bits_cost_less_than_a_third_of_a_decibel() {
    let precisions = [Precision::F32, Precision::Q8, Precision::Q4];
    let (mut squared_m2, mut bytes) = ([0.0; 3], [0; 3]);
    for seed in 0..SCENES {
        let scene = Scene::new(9000 + seed, 50.0, Method::Direct);
        for (i, precision) in precisions.into_iter().enumerate() {
            let (sent, error_m2) = scene.send(PayloadFormat { kind: PayloadKind::Spectrum, precision });
            bytes[i] += sent;
            squared_m2[i] += error_m2.expect("a target");
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

/// Blocks of 8 bits are the default: at Table I (50 dBm) they are as good as spectra of 8 bits, at 40 dBm spectra are worth
/// their bytes.
#[test]
fn blocks_are_as_good_as_spectra_where_delays_are_found() {
    println!("| transmit power | blocks, 8 bits | spectra, 8 bits |");
    println!("| --- | --- | --- |");
    for (power_dbm, most_difference_db) in
        [(40.0, f64::INFINITY), (45.0, f64::INFINITY), (50.0, 0.2), (60.0, 0.2)]
    {
        let kinds = [PayloadKind::Block, PayloadKind::Spectrum];
        let (mut squared_m2, mut bound_m2, mut bytes, mut fixes) = ([0.0; 2], [0.0; 2], [0; 2], [0; 2]);
        for seed in 0..SCENES {
            let scene = Scene::new(12_000 + seed, power_dbm, Method::Auto);
            for (i, kind) in kinds.into_iter().enumerate() {
                let (sent, error_m2) = scene.send(PayloadFormat { kind, precision: Precision::Q8 });
                bytes[i] += sent;
                if let Some(error_m2) = error_m2 {
                    fixes[i] += 1;
                    squared_m2[i] += error_m2;
                    bound_m2[i] += scene.bound_m2();
                }
            }
        }
        let gap_db = |i: usize| db_from_ratio(squared_m2[i] / bound_m2[i]);
        let cell = |i: usize| {
            let kilobytes = bytes[i] as f64 / 1e3 / SCENES as f64;
            format!("{:.2} dB, {} of {SCENES} fixed, {kilobytes:.1} kB", gap_db(i), fixes[i])
        };
        println!("| {power_dbm} dBm | {} | {} |", cell(0), cell(1));
        assert!(gap_db(0) - gap_db(1) <= most_difference_db, "{power_dbm} dBm");
    }
}
