//! Accuracy against backhaul traffic: raw echoes to position, with every payload and precision.
//!
//! The nodes' estimates are encoded as messages, whose size is measured, then decoded and fused with the default
//! settings of the fusion center. A trial is one scene, the same for all payloads. The place of a row is its kilobytes per fix.

use estimation::fusion::{Fuser, FusionSettings, PayloadKind};
use proto::convert::PayloadFormat;
use proto::samples::Precision;

use super::{
    Deserialize, Draw, Estimate, FrameChain, GridPoint, Measure, PointRows, Resampler, Serialize, column,
    gross_count, position_bounds_m2, share,
};

/// One scene: bytes per fix and squared error of the fix, if there is one, by payload.
#[derive(Debug, Serialize, Deserialize)]
pub struct PayloadTrial {
    exact_m2: f64,
    paper_m2: f64,
    sent: Vec<(f64, Option<f64>)>,
}

pub struct BackhaulMeasure;

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

impl Measure for BackhaulMeasure {
    type Outcome = PayloadTrial;

    fn trial(draw: Draw) -> anyhow::Result<PayloadTrial> {
        let chain = FrameChain::new(&draw.scenario)?;
        let (source, system) = (&chain.source, chain.system());
        let target_m = source.target_m(0);
        let reports = chain.reports(0, &source.targets(0))?;
        let fuser = Fuser::new(system.clone(), FusionSettings::default())?;
        let sent = formats().into_iter().map(|format| {
            let (blocks, bytes) = chain.received(0, reports.clone(), Some(format))?;
            let fused = fuser.fuse(&blocks).ok();
            Ok((bytes as f64, fused.map(|fused| (fused.position_m - target_m).norm_squared())))
        });
        let sent = sent.collect::<anyhow::Result<Vec<_>>>()?;
        let [exact_m2, paper_m2] = position_bounds_m2(system, target_m, source.rcs_m2())?;
        Ok(PayloadTrial { exact_m2, paper_m2, sent })
    }

    fn rows(point: &GridPoint, trials: &[PayloadTrial], rows: &mut PointRows) {
        let power_dbm = point.scenario.base_station.power_dbm;
        let kilobytes =
            |i: usize| column(trials, |t| t.sent[i].0).iter().sum::<f64>() / 1e3 / trials.len() as f64;
        let (exact, paper) = (column(trials, |t| t.exact_m2), column(trials, |t| t.paper_m2));
        let below = rows.resampler().ratio_db(&paper, &exact);
        let places = (0..formats().len()).map(kilobytes);
        let (least, most) = places.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), x| (a.min(x), b.max(x)));
        for x in [least, most] {
            rows.x = x;
            rows.add(&format!("exact-bound-{power_dbm}dbm"), "gap_exact_db", Estimate::exact(0.0));
            rows.add(&format!("paper-bound-{power_dbm}dbm"), "gap_exact_db", below);
        }
        for (i, format) in formats().iter().enumerate() {
            rows.x = kilobytes(i);
            let scheme = format!("{}-{power_dbm}dbm", format.kind.name());
            let found: Vec<(f64, f64)> =
                trials.iter().filter_map(|trial| Some((trial.sent[i].1?, trial.exact_m2))).collect();
            let mut add = |metric: &str, estimate| rows.add_of(found.len(), &scheme, metric, estimate);
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
            let resampler = Resampler::new(found.len());
            add("mse_m2", resampler.mean(&squared));
            add("gap_exact_db", resampler.ratio_db(&squared, &exact));
            add("gross_error_share", share(gross_count(&squared), found.len() as f64));
        }
    }
}
