//! Constant clock offsets of the nodes.
//!
//! Offsets are uniform within plus or minus x, the scenario's `clocks.offset_ns`. The same echoes are located directly with clocks that are trusted, with unknown
//! clocks from one frame alone, and with unknown clocks that a filter has followed over [`FILTERED_FRAMES`] frames. The bounds are
//! exact: known clocks; offsets with a normal prior of standard deviation x; the same prior with the information of the frames
//! before, each with its position unknown.

use estimation::clock_filter::{ClockFilter, ClockFilterSettings};
use estimation::direct::ClockPrior;
use estimation::fusion::Fuser;
use model::units::SPEED_OF_LIGHT_M_S;
use model::{EchoSource, Gain, Information, Scenario, Scheme};
use nalgebra::DMatrix;

use super::end_to_end::{FrameError, add_errors, direct};
use super::{Deserialize, Draw, FrameChain, GridPoint, Measure, PointRows, Serialize, column};

/// Frames that the filter has, the located one among them.
const FILTERED_FRAMES: u64 = 10;
/// Time between frames.
const INTERVAL_S: f64 = 0.02;

/// One scene; lists by what is known of the clocks: trusted, one frame, filtered.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClockScene {
    /// Beside the bounds of known clocks, one frame, filtered.
    errors: [FrameError; 3],
}

pub struct ClockMeasure;

impl Measure for ClockMeasure {
    type Outcome = ClockScene;

    fn trial(draw: Draw) -> anyhow::Result<ClockScene> {
        let mut scenario = draw.scenario;
        let trusting = ClockedChain::new(&scenario)?;
        scenario.clocks.prior_ns = scenario.clocks.offset_ns;
        let chain = ClockedChain::new(&scenario)?;
        let frame = FILTERED_FRAMES - 1;
        let prior_s = scenario.clocks.offset_ns * 1e-9;
        let (filtered, earlier) = chain.filtered_clocks(prior_s, frame)?;
        let information = information(&chain.frames.source, frame);
        let count = scenario.irs.len();
        let own = DMatrix::identity(count, count) * (prior_s * SPEED_OF_LIGHT_M_S).powi(-2);
        let one_m2 = information.position_crb_with_clocks_m2(&own)?.trace();
        let filtered_m2 = information.position_crb_with_clocks_m2(&(&own + earlier))?.trace();
        let errors = [
            trusting.error(frame, None, information.position_crb_m2(Scheme::Hybrid)?.trace())?,
            chain.error(frame, None, one_m2)?,
            chain.error(frame, filtered.as_ref(), filtered_m2)?,
        ];
        Ok(ClockScene { errors })
    }

    fn rows(_point: &GridPoint, scenes: &[ClockScene], rows: &mut PointRows) {
        let known = column(scenes, |scene| scene.errors[0].bound_m2);
        for (i, scheme) in ["trusted", "one-frame", "filtered"].iter().enumerate() {
            add_errors(rows, scheme, scenes.iter().map(|scene| scene.errors[i]));
            let squared = column(scenes, |scene| scene.errors[i].squared_m2);
            rows.ratio_db(scheme, "over_known_db", [&squared, &known]);
        }
        for (i, scheme) in ["bound-known", "bound-one-frame", "bound-filtered"].iter().enumerate() {
            let bound = column(scenes, |scene| scene.errors[i].bound_m2);
            rows.mean(scheme, "crb_m2", &bound);
            rows.ratio_db(scheme, "over_known_db", [&bound, &known]);
        }
    }
}

/// Frames and the direct locator of a scenario.
struct ClockedChain {
    frames: FrameChain,
    fuser: Fuser,
}

impl ClockedChain {
    fn new(scenario: &Scenario) -> anyhow::Result<Self> {
        let frames = FrameChain::new(scenario)?;
        let fuser = Fuser::new(frames.system().clone(), direct())?;
        Ok(Self { frames, fuser })
    }

    /// What a filter knows about the clocks before a frame, and the exact information of the frames before it on the offsets in
    /// metres. The clocks are known to be constant.
    fn filtered_clocks(
        &self,
        prior_s: f64,
        frame: u64,
    ) -> anyhow::Result<(Option<ClockPrior>, DMatrix<f64>)> {
        let count = self.frames.system().irs_count();
        let constant = ClockFilterSettings { offset_s: prior_s, rate: 0.0, wander_s: 0.0, rate_wander: 0.0 };
        let mut filter = ClockFilter::new(count, constant);
        let mut earlier = DMatrix::zeros(count, count);
        for before in 0..frame {
            let time_s = before as f64 * INTERVAL_S;
            let prior = filter.prior(time_s);
            let blocks = self.frames.frame(before, None)?;
            let fix = self.fuser.fuse_observed(&blocks, prior.as_ref(), |_| {});
            if let Some(update) = fix.ok().and_then(|fix| fix.clocks) {
                filter.update(time_s, &update);
            }
            earlier += information(&self.frames.source, before).offset_information()?;
        }
        Ok((filter.prior(frame as f64 * INTERVAL_S), earlier))
    }

    fn error(&self, frame: u64, prior: Option<&ClockPrior>, bound_m2: f64) -> anyhow::Result<FrameError> {
        let blocks = self.frames.frame(frame, None)?;
        let fix = self.fuser.fuse_observed(&blocks, prior, |_| {});
        // The estimate of a frame without a fix is the centre of the area.
        let position_m = fix.map_or(self.frames.system().coverage.centre(), |fix| fix.position_m);
        Ok(FrameError::new(position_m, self.frames.source.target_m(frame), bound_m2))
    }
}

fn information(source: &EchoSource, frame: u64) -> Information {
    Information::new(source.system(), source.target_m(frame), source.rcs_m2(), Gain::Unknown)
}
