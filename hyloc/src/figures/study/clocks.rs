//! Constant clock offsets of the nodes against their size, Table I otherwise.
//!
//! Offsets are uniform within plus or minus x. The same echoes are located directly with clocks that are trusted, with unknown
//! clocks from one frame alone, and with unknown clocks that a filter has followed over [`FILTERED_FRAMES`] frames. The bounds are
//! exact: known clocks; offsets with a normal prior of standard deviation x; the same prior with the information of the frames
//! before, each with its position unknown.

use estimation::clock_filter::{ClockFilter, ClockFilterSettings};
use estimation::direct::ClockPrior;
use estimation::fusion::{FrameBlocks, Fuser, FusionSettings, Method, PayloadKind};
use model::units::SPEED_OF_LIGHT_M_S;
use model::{EchoSource, Gain, Information, Scenario, Scheme};
use nalgebra::DMatrix;

use super::chain::{self, FrameError};
use super::{Study, column};
use crate::figures::rows::Row;

/// Largest offset, ns.
const OFFSETS_NS: [f64; 8] = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];
/// Frames that the filter has, the located one among them.
const FILTERED_FRAMES: u64 = 10;
/// Time between frames.
const INTERVAL_S: f64 = 0.02;

/// One scene; lists by what is known of the clocks: trusted, one frame, filtered.
struct ClockScene {
    errors: [FrameError; 3],
    /// Of known clocks, one frame, filtered.
    bounds_m2: [f64; 3],
}

pub fn against_offset(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut rows = study.new_rows();
    for (point, offset_ns) in study.points(OFFSETS_NS) {
        let scenes = study.point(point, |draw| ClockScene::new(offset_ns, draw.scenario_seed))?;
        let known = column(&scenes, |scene| scene.bounds_m2[0]);
        for (i, scheme) in ["trusted", "one-frame", "filtered"].iter().enumerate() {
            let frames: Vec<FrameError> = scenes.iter().map(|scene| scene.errors[i]).collect();
            chain::add(&mut rows, offset_ns, scheme, &frames);
            let squared = column(&frames, FrameError::squared_m2);
            rows.ratio_db(offset_ns, scheme, "over_known_db", [&squared, &known]);
        }
        for (i, scheme) in ["bound-known", "bound-one-frame", "bound-filtered"].iter().enumerate() {
            let bound = column(&scenes, |scene| scene.bounds_m2[i]);
            rows.mean(offset_ns, scheme, "crb_m2", &bound);
            rows.ratio_db(offset_ns, scheme, "over_known_db", [&bound, &known]);
        }
    }
    Ok(rows.into_rows())
}

impl ClockScene {
    fn new(offset_ns: f64, seed: u64) -> anyhow::Result<Self> {
        let mut scenario = Scenario::default().with_seed(seed);
        scenario.clocks.offset_ns = offset_ns;
        let trusting = EchoSource::new(&scenario)?;
        scenario.clocks.prior_ns = offset_ns;
        let source = EchoSource::new(&scenario)?;
        let frame = FILTERED_FRAMES - 1;
        let prior_s = offset_ns * 1e-9;
        let (filtered, earlier) = filtered_clocks(&source, prior_s, frame)?;
        let information = information(&source, frame);
        let own = DMatrix::identity(source.system().irs_count(), source.system().irs_count())
            * (prior_s * SPEED_OF_LIGHT_M_S).powi(-2);
        let bounds_m2 = [
            information.position_crb_m2(Scheme::Hybrid)?.trace(),
            information.position_crb_with_clocks_m2(&own)?.trace(),
            information.position_crb_with_clocks_m2(&(&own + earlier))?.trace(),
        ];
        let located = [(&trusting, None), (&source, None), (&source, filtered.as_ref())];
        let mut errors = Vec::with_capacity(located.len());
        for ((source, prior), bound_m2) in located.into_iter().zip(bounds_m2) {
            errors.push(error(source, frame, prior, bound_m2)?);
        }
        let errors = errors.try_into().map_err(|_| anyhow::anyhow!("three estimators have three errors"))?;
        Ok(Self { errors, bounds_m2 })
    }
}

/// What a filter knows about the clocks before a frame, and the exact information of the frames before it on the offsets in
/// metres. The clocks are known to be constant.
fn filtered_clocks(
    source: &EchoSource,
    prior_s: f64,
    frame: u64,
) -> anyhow::Result<(Option<ClockPrior>, DMatrix<f64>)> {
    let count = source.system().irs_count();
    let constant = ClockFilterSettings { offset_s: prior_s, rate: 0.0, wander_s: 0.0, rate_wander: 0.0 };
    let mut filter = ClockFilter::new(count, constant);
    let mut earlier = DMatrix::zeros(count, count);
    let fuser = direct(source)?;
    for before in 0..frame {
        let time_s = before as f64 * INTERVAL_S;
        let prior = filter.prior(time_s);
        let fix = fuser.fuse_observed(&blocks(source, before)?, prior.as_ref(), |_| {});
        if let Some(update) = fix.ok().and_then(|fix| fix.clocks) {
            filter.update(time_s, &update);
        }
        earlier += information(source, before).offset_information()?;
    }
    Ok((filter.prior(frame as f64 * INTERVAL_S), earlier))
}

fn error(
    source: &EchoSource,
    frame: u64,
    prior: Option<&ClockPrior>,
    bound_m2: f64,
) -> anyhow::Result<FrameError> {
    let target_m = source.target_m(frame);
    let fix = direct(source)?.fuse_observed(&blocks(source, frame)?, prior, |_| {});
    // The estimate of a frame without a fix is the centre of the area.
    let position_m = fix.map_or(source.system().coverage.centre(), |fix| fix.position_m);
    Ok(FrameError::against(position_m, target_m, bound_m2))
}

fn direct(source: &EchoSource) -> anyhow::Result<Fuser> {
    let settings = FusionSettings { method: Method::Direct, ..FusionSettings::default() };
    Ok(Fuser::new(source.system().clone(), settings)?)
}

fn information(source: &EchoSource, frame: u64) -> Information {
    Information::new(source.system(), source.target_m(frame), source.rcs_m2(), Gain::Unknown)
}

fn blocks(source: &EchoSource, frame: u64) -> anyhow::Result<FrameBlocks> {
    let mut blocks = FrameBlocks::new(source.system().irs_count());
    for (l, node) in chain::nodes(source.system())?.iter().enumerate() {
        let echoes = source.frame(l, frame, source.target_m(frame));
        blocks.insert_node(l, node.estimate(&echoes)?, PayloadKind::Spectrum);
    }
    Ok(blocks)
}
