//! The fuser: tables made once per system, then one pass per frame.

use model::{Point, System};

use super::three_stage::measurements;
use super::{
    FixMethod, FrameBlocks, FusedFix, FuserError, FusionError, FusionSettings, Method, Payload, ThreeStageFix,
};
use crate::angles::{AngleEstimate, AngleEstimator};
use crate::blocks::Blocks;
use crate::delay::{BlockExpansion, MatchedFilter, coverage_delays, coverage_sines};
use crate::direct::{
    DirectFix, DirectLocator, Evidence, EvidenceError, FramesSettings, MOST_LOSS, Missed, Survey,
};
use crate::location::{Bearing, CascadeDelay, Caution, CoverageArea, Fix, locate};

/// Turns what came of a frame into a fix.
#[derive(Debug, Clone)]
pub struct Fuser {
    system: System,
    filters: Vec<MatchedFilter>,
    settings: FusionSettings,
    direct: Option<DirectLocator>,
    /// Widths of the delay windows, by l, then k.
    windows_s: Vec<Vec<f64>>,
    /// Width of the sector in which a node sees the coverage area.
    sectors_rad: Vec<f64>,
}

/// A frame with the blocks of its paths, made from spectra where those came.
#[derive(Debug)]
pub struct Prepared<'a> {
    pub(super) frame: &'a FrameBlocks,
    pub(super) expansions: Vec<Vec<Option<BlockExpansion>>>,
}

/// What the angle step gave: nothing where the method or the payloads have no use for it.
pub type AngleStep = Result<Option<AngleEstimate>, FusionError>;

impl Fuser {
    /// The fuser of a system. Under [`Method::Auto`] an area too large for the direct method leaves the
    /// three-stage one; see [`Self::has_direct`].
    pub fn new(system: System, mut settings: FusionSettings) -> Result<Self, FuserError> {
        let count = system.irs_count();
        let filters =
            (0..count).map(|k| MatchedFilter::of_system(&system, k)).collect::<Result<Vec<_>, _>>()?;
        let area = CoverageArea { min_m: system.coverage.min_m.into(), max_m: system.coverage.max_m.into() };
        settings.locate.coverage.get_or_insert(area);
        let direct = match settings.method {
            Method::ThreeStage => None,
            Method::Direct => Some(DirectLocator::new(&system, settings.direct)?),
            Method::Auto => DirectLocator::new(&system, settings.direct).ok(),
        };
        let windows_s = (0..count)
            .map(|l| (0..count).map(|k| Ok(coverage_delays(&system, l, k, 0.0)?.width_s())).collect())
            .collect::<Result<_, FuserError>>()?;
        let sectors_rad = system.irs.iter().map(|irs| {
            let sines = coverage_sines(&system, &irs.pose, 0.0);
            sines.max.asin() - sines.min.asin()
        });
        let sectors_rad = sectors_rad.collect();
        Ok(Self { filters, settings, direct, windows_s, sectors_rad, system })
    }

    /// The system whose frames are fused.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The settings in force.
    pub fn settings(&self) -> &FusionSettings {
        &self.settings
    }

    /// Whether the direct method is at hand.
    pub fn has_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Makes the blocks of a frame from its spectra; what came as blocks is taken as it is.
    pub fn prepare<'a>(&self, frame: &'a FrameBlocks) -> Prepared<'a> {
        let count = self.system.irs_count();
        let expansion = |l: usize, k: usize| {
            let path = frame.path(l, k)?;
            match &path.payload {
                Payload::Parameters => None,
                Payload::Block { block, block_derivative } => Some(BlockExpansion {
                    delay_s: path.delay_s,
                    block: block.clone(),
                    block_derivative: block_derivative.clone(),
                }),
                Payload::Spectrum(spectrum) => self.filters[k].expansion(spectrum, path.delay_s).ok(),
            }
        };
        let wanted = self.settings.method != Method::Direct;
        let row = |l: usize| (0..count).map(|k| expansion(l, k).filter(|_| wanted)).collect();
        Prepared { frame, expansions: (0..count).map(row).collect() }
    }

    /// Joint angles of all IRSs from the blocks that came (Section IV-B).
    pub fn angles(&self, prepared: &Prepared) -> AngleStep {
        let any = prepared.expansions.iter().flatten().any(Option::is_some);
        if self.settings.method == Method::Direct || !any {
            return Ok(None);
        }
        let noise_power_w = prepared.frame.noise_power_w().unwrap_or(self.system.noise_power_w);
        let block = |expansion: &Option<BlockExpansion>| expansion.as_ref().map(|e| e.block.clone());
        let table = prepared.expansions.iter().map(|row| row.iter().map(block).collect());
        let blocks = Blocks::of_system(&self.system, noise_power_w, table.collect())
            .map_err(|error| FusionError::Angles(error.into()))?;
        Ok(Some(AngleEstimator::new(self.settings.angles.clone()).estimate(&blocks)?))
    }

    /// The position (Section V), by the method that is set.
    pub fn locate(&self, prepared: &Prepared, angles: &AngleStep) -> Result<FusedFix, FusionError> {
        if self.settings.method == Method::Direct {
            return Ok(direct_fix(self.locate_directly(prepared.frame)?, None));
        }
        let staged = self.locate_in_stages(prepared, angles);
        let strong = self.is_strong(prepared.frame);
        if self.direct.is_none() || strong && is_sound(&staged) {
            return staged.map(three_stage_fix);
        }
        match self.locate_directly(prepared.frame) {
            Ok(direct) => Ok(direct_fix(direct, staged.ok())),
            // Strong echoes from outside the area: the three stages know of no area.
            Err(Missed::Unobservable) if strong => staged.map(three_stage_fix),
            Err(missed) => Err(missed.into()),
        }
    }

    /// All steps.
    pub fn fuse(&self, frame: &FrameBlocks) -> Result<FusedFix, FusionError> {
        let prepared = self.prepare(frame);
        self.locate(&prepared, &self.angles(&prepared))
    }

    /// What several fixes from one frame have in common, for [`Self::fuse_frames`].
    pub fn survey(&self, frame: &FrameBlocks) -> Result<Survey, Missed> {
        let direct = self.direct.as_ref().ok_or(Missed::NoEvidence)?;
        Ok(direct.survey(self.evidence(direct, frame)))
    }

    /// A fix from several frames, given with their numbers; it is the target's position in the last of them.
    pub fn fuse_frames(&self, frames: &[(u64, &Survey)]) -> Result<FusedFix, FusionError> {
        let direct = self.direct.as_ref().ok_or(Missed::NoEvidence)?;
        let (last, latest) = *frames.iter().max_by_key(|(number, _)| *number).ok_or(Missed::NoEvidence)?;
        // Counted back from the last, so that large frame numbers cost no precision.
        let timed: Vec<(f64, &Survey)> =
            frames.iter().map(|(number, survey)| (-((last - number) as f64), *survey)).collect();
        let batch = &self.settings.batch;
        let settings =
            FramesSettings { combination: batch.combination, most_speed: batch.most_speed_m_per_frame };
        let moving = direct.locate_frames(&timed, 0.0, &settings)?;
        // The grid has told of frames that see the target elsewhere; the last one, whose fix this is, is asked exactly.
        if let Ok(alone) = direct.locate(latest) {
            let value = |point| direct.log_likelihood(latest, point);
            if value(alone.position_m) - value(moving.state.xy()) > MOST_LOSS {
                return Err(Missed::Unobservable.into());
            }
        }
        Ok(FusedFix {
            method: FixMethod::DirectFrames,
            position_m: moving.state.xy(),
            covariance_m2: moving.covariance.fixed_view::<2, 2>(0, 0).into_owned(),
            velocity_m_per_frame: Some(Point::new(moving.state.z, moving.state.w)),
            protection_level_m: moving.protection_level_m,
            excluded: Vec::new(),
            cautions: direct_cautions(false, moving.doubts, moving.protection_level_m),
            alternatives: moving.alternatives,
            three_stage: None,
            direct: None,
        })
    }

    fn locate_in_stages(
        &self,
        prepared: &Prepared,
        angles: &AngleStep,
    ) -> Result<ThreeStageFix, FusionError> {
        let angles = angles.as_ref().map_err(Clone::clone)?;
        let measurements = measurements(&self.system, &self.filters, prepared, angles.as_ref())?;
        let fix = locate(&measurements, &self.settings.locate)?;
        Ok(ThreeStageFix { fix, measurements })
    }

    fn locate_directly(&self, frame: &FrameBlocks) -> Result<DirectFix, Missed> {
        let direct = self.direct.as_ref().ok_or(Missed::NoEvidence)?;
        direct.locate(&direct.survey(self.evidence(direct, frame)))
    }

    /// Whether every path is strong enough for a delay of its own.
    fn is_strong(&self, frame: &FrameBlocks) -> bool {
        frame.present().all(|(_, _, path)| path.snr >= self.settings.safe_snr)
    }

    /// What the frame holds, for the direct method. What does not fit is left out: it was checked before.
    fn evidence(&self, direct: &DirectLocator, frame: &FrameBlocks) -> Evidence {
        let mut evidence = direct.evidence();
        for (l, k, path) in frame.present() {
            let Some(node) = frame.node(l) else { continue };
            let noise_power_w = node.noise_power_w + path.quantisation_power_w;
            let _: Result<(), EvidenceError> = match &path.payload {
                Payload::Spectrum(spectrum) => evidence.spectrum(l, k, spectrum, noise_power_w),
                Payload::Block { block, block_derivative } => {
                    let expansion = BlockExpansion {
                        delay_s: path.delay_s,
                        block: block.clone(),
                        block_derivative: block_derivative.clone(),
                    };
                    evidence.block(l, k, &expansion, noise_power_w)
                }
                Payload::Parameters => {
                    let delay = CascadeDelay { delay_s: path.delay_s, variance_s2: path.delay_variance_s2 };
                    evidence.delay(l, k, delay, self.windows_s[l][k])
                }
            };
        }
        for l in 0..frame.irs_count() {
            if let Some(arrival) = frame.node(l).and_then(|node| node.arrival) {
                let bearing_rad = arrival.bearing_rad + self.system.irs[l].pose.broadside_rad;
                let bearing = Bearing { bearing_rad, ..arrival };
                let _: Result<(), EvidenceError> = evidence.bearing(l, bearing, self.sectors_rad[l]);
            }
        }
        evidence
    }
}

/// Whether the three-stage chain found one place that fits.
fn is_sound(staged: &Result<ThreeStageFix, FusionError>) -> bool {
    let doubtful = |caution: &Caution| {
        matches!(
            caution,
            Caution::Inconsistent
                | Caution::FaultNotCertain
                | Caution::ResolvedByCoverage
                | Caution::Ambiguous
                | Caution::NotConverged
        )
    };
    staged.as_ref().is_ok_and(|staged| !staged.fix.cautions.iter().any(doubtful))
}

fn three_stage_fix(staged: ThreeStageFix) -> FusedFix {
    let Fix { excluded, protection_level_m, cautions, .. } = &staged.fix;
    FusedFix {
        method: FixMethod::ThreeStage,
        position_m: staged.fix.position_m(),
        covariance_m2: staged.fix.covariance_m2(),
        velocity_m_per_frame: None,
        protection_level_m: *protection_level_m,
        excluded: excluded.iter().map(ToString::to_string).collect(),
        cautions: cautions.clone(),
        alternatives: Vec::new(),
        three_stage: Some(staged),
        direct: None,
    }
}

/// Why a direct fix is not nominal.
fn direct_cautions(faulty: bool, doubts: Vec<Caution>, level_m: Option<f64>) -> Vec<Caution> {
    let faulty = faulty.then_some(Caution::FaultExcluded);
    let unprotected = level_m.is_none().then_some(Caution::Unprotected);
    faulty.into_iter().chain(doubts).chain(unprotected).collect()
}

fn direct_fix(direct: DirectFix, staged: Option<ThreeStageFix>) -> FusedFix {
    FusedFix {
        method: FixMethod::Direct,
        position_m: direct.position_m,
        covariance_m2: direct.covariance_m2,
        velocity_m_per_frame: None,
        protection_level_m: direct.protection_level_m,
        excluded: direct.excluded.iter().map(ToString::to_string).collect(),
        cautions: direct_cautions(
            !direct.excluded.is_empty(),
            direct.doubts.clone(),
            direct.protection_level_m,
        ),
        alternatives: direct.alternatives.clone(),
        three_stage: staged,
        direct: Some(direct),
    }
}
