//! Accuracy against backhaul traffic: raw echoes to position, with every payload and precision.
//!
//! The nodes' estimates are encoded as messages, whose size is measured, then decoded and fused with the default
//! settings of the fusion center. A trial is one scene of Table I, the same for all payloads.

use estimation::fusion::{FrameBlocks, Fuser, FusionSettings, PayloadKind};
use model::{EchoSource, Scenario};
use proto::convert::{FrameId, PayloadFormat, Times, report_from_wire, report_message};
use proto::samples::Precision;

use super::chain::{GROSS_M, nodes};
use super::{Study, column, position_bounds_m2};
use crate::figures::rows::Row;
use crate::figures::statistics::{Estimate, Resampler, share};

const POWERS_DBM: [f64; 3] = [40.0, 50.0, 60.0];

/// One scene: bytes per fix and squared error of the fix, if there is one, by payload.
struct PayloadTrial {
    exact_m2: f64,
    paper_m2: f64,
    sent: Vec<(f64, Option<f64>)>,
}

/// All payloads; parameters have only one precision.
fn formats() -> Vec<PayloadFormat> {
    PayloadKind::ALL
        .into_iter()
        .flat_map(|kind| {
            let precisions =
                if kind == PayloadKind::Parameters { &Precision::ALL[..1] } else { &Precision::ALL };
            precisions.iter().map(move |&precision| PayloadFormat { kind, precision })
        })
        .collect()
}

pub fn against_bytes(study: &Study) -> anyhow::Result<Vec<Row>> {
    let formats = formats();
    let mut rows = study.new_rows();
    for (point, power_dbm) in study.points(POWERS_DBM) {
        let scenario = Scenario::default().with_power_dbm(power_dbm);
        let trials = study.point(point, |draw| {
            PayloadTrial::new(&scenario.clone().with_seed(draw.scenario_seed), &formats)
        })?;
        let kilobytes =
            |i: usize| trials.iter().map(|trial| trial.sent[i].0).sum::<f64>() / 1e3 / trials.len() as f64;
        let (exact, paper) = (column(&trials, |t| t.exact_m2), column(&trials, |t| t.paper_m2));
        let below = rows.resampler.ratio_db(&paper, &exact);
        let places = (0..formats.len()).map(kilobytes);
        let (least, most) = places.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), x| (a.min(x), b.max(x)));
        for x in [least, most] {
            rows.add(x, &format!("exact-bound-{power_dbm}dbm"), "gap_exact_db", Estimate::exact(0.0));
            rows.add(x, &format!("paper-bound-{power_dbm}dbm"), "gap_exact_db", below);
        }
        for (i, format) in formats.iter().enumerate() {
            let kilobytes = kilobytes(i);
            let scheme = format!("{}-{power_dbm}dbm", format.kind.name());
            let found: Vec<(f64, f64)> =
                trials.iter().filter_map(|trial| Some((trial.sent[i].1?, trial.exact_m2))).collect();
            let mut add = |metric: &str, estimate| {
                rows.add_of(found.len() as u64, kilobytes, &scheme, metric, estimate);
            };
            let bits = match format.kind {
                PayloadKind::Parameters => 0.0,
                _ => f64::from(format.precision.bits_per_real()),
            };
            add("bits_per_real", Estimate::exact(bits));
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
    Ok(rows.into_rows())
}

impl PayloadTrial {
    fn new(scenario: &Scenario, formats: &[PayloadFormat]) -> anyhow::Result<Self> {
        let source = EchoSource::new(scenario)?;
        let (system, target_m) = (source.system(), source.target_m(0));
        let estimates = nodes(system)?
            .iter()
            .enumerate()
            .map(|(l, node)| node.estimate(&source.frame(l, 0, target_m)))
            .collect::<Result<Vec<_>, _>>()?;
        let fuser = Fuser::new(system.clone(), FusionSettings::default())?;
        let sent = formats.iter().map(|format| {
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
            let fused = fuser.fuse(&frame).ok();
            Ok((bytes as f64, fused.map(|fused| (fused.position_m - target_m).norm_squared())))
        });
        let sent = sent.collect::<anyhow::Result<Vec<_>>>()?;
        let [exact_m2, paper_m2] = position_bounds_m2(system, target_m, source.rcs_m2())?;
        Ok(Self { exact_m2, paper_m2, sent })
    }
}
