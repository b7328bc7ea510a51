//! What each bit on the backhaul buys: raw echoes to position, every payload in every precision over the wire.
//!
//! The nodes' estimates become the messages that they would send; those are measured, decoded and fused as
//! the fusion center does by default. A trial is one scene of Table I, the same for all payloads.

use estimation::fusion::{FrameBlocks, Fuser, FusionSettings, PayloadKind};
use model::{EchoSource, Gain, Information, Point, Scenario, Scheme};
use proto::convert::{FrameId, PayloadFormat, Times, report_from_wire, report_message};
use proto::samples::Precision;

use super::chain::{GROSS_M, nodes};
use super::{Study, column};
use crate::figures::rows::{Row, Table};
use crate::figures::statistics::{Resampler, share};

/// Transmit powers.
pub const POWERS_DBM: [f64; 3] = [40.0, 50.0, 60.0];

/// Kinds of payload by name.
pub const KINDS: [(&str, PayloadKind); 3] = [
    ("parameters", PayloadKind::Parameters),
    ("block", PayloadKind::Block),
    ("spectrum", PayloadKind::Spectrum),
];

/// What became of a scene under one payload.
#[derive(Debug, Clone, Copy)]
struct Sent {
    bytes: f64,
    /// Squared error of the fix, if there is one.
    squared_m2: Option<f64>,
}

struct Trial {
    exact_m2: f64,
    paper_m2: f64,
    sent: Vec<Sent>,
}

/// All payloads: parameters have no precision to choose.
fn formats() -> Vec<(&'static str, PayloadFormat)> {
    let format = |name, kind, precision| (name, PayloadFormat { kind, precision });
    KINDS
        .iter()
        .flat_map(|&(name, kind)| {
            let precisions =
                if kind == PayloadKind::Parameters { &Precision::ALL[..1] } else { &Precision::ALL };
            precisions.iter().map(move |&precision| format(name, kind, precision))
        })
        .collect()
}

pub fn against_bytes(study: &Study) -> anyhow::Result<Vec<Row>> {
    let formats = formats();
    let mut table = Table::new(study.figure, study.trials);
    for (point, &power_dbm) in POWERS_DBM.iter().enumerate() {
        let scenario = Scenario::default().with_power_dbm(power_dbm);
        let trials = study
            .point(point, |draw| Trial::new(&scenario.clone().with_seed(draw.scenario_seed), &formats))?;
        let kilobytes = |i: usize| {
            trials.iter().map(|trial| trial.sent[i].bytes).sum::<f64>() / 1e3 / trials.len() as f64
        };
        let (exact, paper) = (column(&trials, |t| t.exact_m2), column(&trials, |t| t.paper_m2));
        let below = Resampler::new(trials.len()).ratio_db(&paper, &exact);
        let places = (0..formats.len()).map(kilobytes);
        let (least, most) = places.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), x| (a.min(x), b.max(x)));
        for x in [least, most] {
            table.add(x, &format!("exact-bound-{power_dbm}dbm"), "gap_exact_db", super::exactly(0.0));
            table.add(x, &format!("paper-bound-{power_dbm}dbm"), "gap_exact_db", below);
        }
        for (i, (name, format)) in formats.iter().enumerate() {
            let kilobytes = kilobytes(i);
            let scheme = format!("{name}-{power_dbm}dbm");
            let found: Vec<(f64, f64)> =
                trials.iter().filter_map(|trial| Some((trial.sent[i].squared_m2?, trial.exact_m2))).collect();
            let mut add = |metric: &str, estimate| {
                table.add_of(found.len() as u64, kilobytes, &scheme, metric, estimate);
            };
            let bits = match format.kind {
                PayloadKind::Parameters => 0.0,
                _ => format.precision.bits_per_real(),
            };
            add("bits_per_real", super::exactly(bits));
            add("found_share", share(found.len() as f64, trials.len() as f64));
            if found.is_empty() {
                continue;
            }
            let (squared, exact) = (column(&found, |f| f.0), column(&found, |f| f.1));
            let gross = squared.iter().filter(|&&s| s > GROSS_M * GROSS_M).count();
            let resampler = Resampler::new(found.len());
            add("mse_m2", resampler.mean(&squared));
            add("gap_exact_db", resampler.ratio_db(&squared, &exact));
            add("gross_error_share", share(gross as f64, found.len() as f64));
        }
    }
    Ok(table.into_rows())
}

impl Trial {
    fn new(scenario: &Scenario, formats: &[(&str, PayloadFormat)]) -> anyhow::Result<Self> {
        let source = EchoSource::new(scenario)?;
        let (system, target_m) = (source.system(), source.target_m(0));
        let estimates = nodes(system)?
            .iter()
            .enumerate()
            .map(|(l, node)| node.estimate(&source.frame(l, 0, target_m)))
            .collect::<Result<Vec<_>, _>>()?;
        let fuser = Fuser::new(system.clone(), FusionSettings::default())?;
        let sent = formats.iter().map(|(_, format)| {
            let mut frame = FrameBlocks::new(system.irs_count());
            let mut bytes = 0;
            for (l, delays) in estimates.iter().enumerate() {
                let message = report_message(FrameId::default(), l, delays, *format, Times::default());
                let report = report_from_wire(message, l, system)?;
                bytes += report.bytes;
                for (k, path) in report.paths {
                    frame.insert(l, k, report.node, path);
                }
            }
            let position_m: Option<Point> = fuser.fuse(&frame).ok().map(|fused| fused.position_m);
            let squared_m2 = position_m.map(|position| (position - target_m).norm_squared());
            Ok(Sent { bytes: bytes as f64, squared_m2 })
        });
        let sent = sent.collect::<anyhow::Result<Vec<_>>>()?;
        let bound = |gain| bound_m2(&source, target_m, gain);
        Ok(Self { exact_m2: bound(Gain::Unknown)?, paper_m2: bound(Gain::Known)?, sent })
    }
}

fn bound_m2(source: &EchoSource, target_m: Point, gain: Gain) -> anyhow::Result<f64> {
    let information = Information::new(source.system(), target_m, source.rcs_m2(), gain);
    Ok(information.position_crb_m2(Scheme::Hybrid)?.trace())
}
