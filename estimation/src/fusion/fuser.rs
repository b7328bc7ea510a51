//! The fuser: tables made once per system, then one pass per frame.

use std::sync::Arc;

use model::geometry::at_height;
use model::{CMatrix, PlanePoint, System};
use nalgebra::DMatrix;

use super::three_stage::{Expansions, measurements};
use super::{
    FixMethod, FrameBlocks, FusedFix, FuserError, FusionError, FusionSettings, Method, Payload, ThreeStageFix,
};
use crate::angles::{AngleEstimate, AngleEstimator};
use crate::blocks::Blocks;
use crate::delay::{BlockExpansion, MatchedFilter, coverage_sines, searched_delays};
use crate::direct::{
    ClockPrior, DirectFix, DirectLocator, Evidence, EvidenceError, LocatedTarget, MOST_LOSS, Missed, Survey,
};
use crate::linalg::LANES;
use crate::location::{Bearing, CascadeDelay, Caution, CoverageArea, locate};
use crate::signals::ReflectedSignals;

/// Makes a fix from the received paths of a frame.
#[derive(Debug, Clone)]
pub struct Fuser {
    system: System,
    filters: Vec<MatchedFilter>,
    settings: FusionSettings,
    signals: Arc<ReflectedSignals>,
    angles: AngleEstimator,
    direct: Option<DirectLocator>,
    /// Widths of the delay windows, `[l][k]`.
    windows_s: Vec<Vec<f64>>,
    /// Width of the sector in which each node sees the coverage area.
    sectors_rad: Vec<f64>,
}

impl Fuser {
    /// The fuser of a system. With [`Method::Auto`] only the three-stage method is used where the coverage area is too large
    /// for the direct one; see [`Self::has_direct`]. Where the method of the paper does not hold, [`Method::Auto`] becomes
    /// [`Method::Direct`]; see [`System::needs_direct`]. [`Method::ThreeStage`] is refused beyond the plane, and takes what
    /// is known about clocks that are not trusted as corrections.
    pub fn new(system: System, mut settings: FusionSettings) -> Result<Self, FuserError> {
        let count = system.irs_count();
        let filters =
            (0..count).map(|k| MatchedFilter::of_system(&system, k)).collect::<Result<Vec<_>, _>>()?;
        let corner = |at: [f64; 3]| PlanePoint::new(at[0], at[1]);
        let area =
            CoverageArea { min_m: corner(system.coverage.min_m), max_m: corner(system.coverage.max_m) };
        settings.locate.coverage.get_or_insert(area);
        let several = settings.max_targets > 1;
        settings.method = match (settings.method, system.beyond_the_plane()) {
            (Method::ThreeStage, Some(reason)) => return Err(FuserError::ThreeStage(reason)),
            (Method::ThreeStage, None) if several => return Err(FuserError::OneTarget),
            (Method::Auto, _) if several => Method::Direct,
            (Method::Auto, _) if system.needs_direct().is_some() => Method::Direct,
            (method, _) => method,
        };
        let direct = match settings.method {
            // Three stages take the offsets of clocks as they are; the direct method estimates them.
            Method::ThreeStage if system.clock_prior_s == 0.0 => None,
            Method::Direct => Some(DirectLocator::new(&system, settings.direct)?),
            Method::ThreeStage | Method::Auto => DirectLocator::new(&system, settings.direct).ok(),
        };
        let windows_s = (0..count)
            .map(|l| (0..count).map(|k| Ok(searched_delays(&system, l, k, 0.0)?.width_s())).collect())
            .collect::<Result<_, FuserError>>()?;
        let sector_rad = |l: usize| {
            let sines = coverage_sines(&system, &system.irs[l].pose, 0.0);
            sines.max.asin() - sines.min.asin()
        };
        let sectors_rad = (0..count).map(sector_rad).collect();
        let signals = Arc::new(ReflectedSignals::of_system(&system));
        let angles = AngleEstimator::new(settings.angles.clone());
        Ok(Self { filters, settings, signals, angles, direct, windows_s, sectors_rad, system })
    }

    /// The system whose frames are fused.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The settings, with the coverage area of the system where none was set.
    pub fn settings(&self) -> &FusionSettings {
        &self.settings
    }

    /// Whether the direct method is available.
    pub fn has_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// A fix from one frame; paths of IRSs that the system does not have are ignored.
    pub fn fuse(&self, frame: &FrameBlocks) -> Result<FusedFix, FusionError> {
        self.fuse_observed(frame, None, |_| {})
    }

    /// A fix from one frame with what is known about the clocks; without that and where they are not trusted, with the prior of
    /// the system. `angles_done` is called between the two stages, angles (Section IV-B) and location (Section V), with
    /// the angles if there are any.
    pub fn fuse_observed(
        &self,
        frame: &FrameBlocks,
        clocks: Option<&ClockPrior>,
        angles_done: impl FnOnce(Option<&AngleEstimate>) + Send,
    ) -> Result<FusedFix, FusionError> {
        if self.settings.method == Method::Direct {
            angles_done(None);
            return Ok(direct_fix(self.locate_directly(frame, clocks)?, None));
        }
        let several_groups = self.system.irs_count().pow(2) > LANES;
        if several_groups && rayon::current_num_threads() > 1 && rayon::current_thread_index().is_none() {
            // Whole frames in the pool: however many are fused at once, no more threads compute than it has.
            return rayon::scope(|_| self.fuse_with_angles(frame, clocks, angles_done));
        }
        self.fuse_with_angles(frame, clocks, angles_done)
    }

    /// A fix by the joint angles, and by the direct method where that is needed besides.
    fn fuse_with_angles(
        &self,
        frame: &FrameBlocks,
        clocks: Option<&ClockPrior>,
        angles_done: impl FnOnce(Option<&AngleEstimate>) + Send,
    ) -> Result<FusedFix, FusionError> {
        let prior = self.clock_prior(clocks);
        // A strong path determines a delay by itself.
        let strong = frame.present().all(|(_, _, path)| path.snr >= self.settings.safe_snr);
        let three_stages = self.settings.method == Method::ThreeStage || self.direct.is_none();
        let stages = || self.staged(frame, prior.as_ref(), angles_done);
        // Where both methods are needed, neither waits for the other.
        let (staged, direct) = if three_stages || strong {
            (stages(), None)
        } else {
            let (staged, direct) = rayon::join(stages, || self.locate_directly(frame, None));
            (staged, Some(direct))
        };
        if three_stages || strong && is_sound(&staged) {
            let update = prior.and_then(|prior| self.locate_directly(frame, Some(&prior)).ok()?.clocks);
            return staged.map(|staged| FusedFix { clocks: update, ..self.three_stage_fix(staged) });
        }
        match direct.unwrap_or_else(|| self.locate_directly(frame, None)) {
            Ok(direct) => Ok(direct_fix(direct, staged.ok())),
            // Strong echoes from outside the coverage area: the three-stage method is not limited to it.
            Err(Missed::Unobservable) if strong => staged.map(|staged| self.three_stage_fix(staged)),
            Err(missed) => Err(missed.into()),
        }
    }

    /// The three-stage method: joint angles, then the location.
    fn staged(
        &self,
        frame: &FrameBlocks,
        prior: Option<&ClockPrior>,
        angles_done: impl FnOnce(Option<&AngleEstimate>),
    ) -> Result<ThreeStageFix, FusionError> {
        let expansions = self.expansions(frame);
        let angles = self.angles(frame, &expansions);
        angles_done(angles.as_ref().ok().and_then(Option::as_ref));
        let measurements =
            measurements(&self.system, &self.filters, frame, &expansions, angles?.as_ref(), prior)?;
        let fix = locate(&measurements, &self.settings.locate)?;
        Ok(ThreeStageFix { fix, measurements })
    }

    /// The blocks of a frame with their derivatives, computed from spectra where those were received.
    fn expansions(&self, frame: &FrameBlocks) -> Expansions {
        let count = self.system.irs_count();
        let expansion = |l: usize, k: usize| {
            let path = frame.path(l, k)?;
            match &path.payload {
                Payload::Parameters => None,
                Payload::Block { block, block_derivative } => {
                    Some(block_expansion(path.delay_s, block, block_derivative))
                }
                Payload::Spectrum(spectrum) => self.filters[k].expansion(spectrum, path.delay_s).ok(),
            }
        };
        (0..count).map(|l| (0..count).map(|k| expansion(l, k)).collect()).collect()
    }

    /// Joint angles of all IRSs from the received blocks; none where no block was received.
    fn angles(
        &self,
        frame: &FrameBlocks,
        expansions: &Expansions,
    ) -> Result<Option<AngleEstimate>, FusionError> {
        if !expansions.iter().flatten().any(Option::is_some) {
            return Ok(None);
        }
        let noise_power_w = frame.noise_power_w().unwrap_or(self.system.noise_power_w);
        let block = |expansion: &Option<BlockExpansion>| expansion.as_ref().map(|e| e.block.clone());
        let table = expansions.iter().map(|row| row.iter().map(block).collect());
        let blocks = Blocks::of_signals(self.signals.clone(), noise_power_w, table.collect())
            .map_err(|error| FusionError::Angles(error.into()))?;
        Ok(Some(self.angles.estimate(&blocks)?))
    }

    /// The part of a fix that depends on one frame alone, for [`Self::fuse_frames`] and [`Self::fuse_targets`], with what is known
    /// about the clocks as in [`Self::fuse_observed`].
    pub fn survey(&self, frame: &FrameBlocks, clocks: Option<&ClockPrior>) -> Result<Survey, Missed> {
        let direct = self.direct.as_ref().ok_or(Missed::NoEvidence)?;
        Ok(self.timed_survey(direct, frame, clocks))
    }

    /// The locator of the direct method, if that is available.
    pub fn locator(&self) -> Option<&DirectLocator> {
        self.direct.as_ref()
    }

    /// The targets of a frame of spectra, strongest first, at most [`FusionSettings::max_targets`]; none where noise alone explains
    /// the data. A single one is located as by [`Method::Direct`], with its protection level; several have none.
    pub fn fuse_targets(&self, survey: &Survey) -> Result<Vec<FusedFix>, FusionError> {
        let direct = self.direct.as_ref().ok_or(Missed::NoEvidence)?;
        let found = direct.locate_several(survey, self.settings.max_targets)?;
        match found.targets.as_slice() {
            [] => Ok(Vec::new()),
            [one] => {
                let mut fix = direct_fix(direct.locate(survey)?, None);
                fix.cautions.extend(one.unresolved.then_some(Caution::Unresolved));
                Ok(vec![fix])
            }
            several => {
                let fix = |(t, target): (usize, &LocatedTarget)| {
                    let unresolved = target.unresolved.then_some(Caution::Unresolved);
                    let doubts = direct.doubts(0.0, target.false_alarm_probability, false);
                    let covariance_m2 = found.covariance_of_m2(t).unwrap_or_default();
                    FusedFix {
                        cautions: unresolved
                            .into_iter()
                            .chain(direct_cautions(false, doubts, None))
                            .collect(),
                        false_alarm_probability: Some(target.false_alarm_probability),
                        ..FusedFix::new(FixMethod::DirectTargets, target.position_m, covariance_m2)
                    }
                };
                let mut fixes: Vec<FusedFix> = several.iter().enumerate().map(fix).collect();
                fixes[0].joint_covariance_m2 = Some(found.covariance_m2);
                fixes[0].clocks = found.clocks;
                Ok(fixes)
            }
        }
    }

    fn timed_survey(
        &self,
        direct: &DirectLocator,
        frame: &FrameBlocks,
        clocks: Option<&ClockPrior>,
    ) -> Survey {
        let evidence = self.evidence(direct, frame);
        match self.clock_prior(clocks) {
            Some(prior) => direct.survey_with_clocks(evidence, prior),
            None => direct.survey(evidence),
        }
    }

    /// What is known about the clocks, by default what the system says; none where they are trusted.
    fn clock_prior(&self, known: Option<&ClockPrior>) -> Option<ClockPrior> {
        let (count, deviation_s) = (self.system.irs_count(), self.system.clock_prior_s);
        let fits = |prior: &&ClockPrior| prior.mean_s().len() == count;
        let prior =
            || known.filter(fits).cloned().or_else(|| ClockPrior::independent(count, deviation_s).ok());
        (deviation_s > 0.0).then(prior).flatten()
    }

    /// A fix from several frames, given with their numbers: the position of the target in the last of them.
    pub fn fuse_frames(&self, frames: &[(u64, &Survey)]) -> Result<FusedFix, FusionError> {
        if self.system.clock_prior_s > 0.0 {
            return Err(FusionError::UnknownClocks);
        }
        let direct = self.direct.as_ref().ok_or(Missed::NoEvidence)?;
        let (last, latest) = *frames.iter().max_by_key(|(number, _)| *number).ok_or(Missed::NoEvidence)?;
        // Times are relative to the last frame, so that large frame numbers cost no precision.
        let timed: Vec<(f64, &Survey)> =
            frames.iter().map(|(number, survey)| (-((last - number) as f64), *survey)).collect();
        let batch = &self.settings.batch;
        let moving = direct.locate_frames(&timed, 0.0, batch.combination, batch.most_speed_m_per_frame)?;
        // The grid has shown whether a frame sees the target elsewhere; the last frame, whose fix this is, is checked exactly.
        if let Ok(alone) = direct.locate(latest) {
            let value = |point| direct.log_likelihood(latest, point);
            if value(alone.position_m) - value(moving.position_m) > MOST_LOSS {
                return Err(Missed::Unobservable.into());
            }
        }
        let axes = self.system.axes().len();
        let covariance_m2 = moving.covariance.view((0, 0), (axes, axes)).into_owned();
        Ok(FusedFix {
            velocity_m_per_frame: Some(moving.velocity),
            protection_level_m: moving.protection_level_m,
            cautions: direct_cautions(false, moving.doubts, moving.protection_level_m),
            alternatives: moving.alternatives,
            ..FusedFix::new(FixMethod::DirectFrames, moving.position_m, covariance_m2)
        })
    }

    fn three_stage_fix(&self, staged: ThreeStageFix) -> FusedFix {
        let fix = &staged.fix;
        let position_m = at_height(fix.position_m(), self.system.coverage.min_m[2]);
        let covariance_m2 = DMatrix::from_column_slice(2, 2, fix.covariance_m2().as_slice());
        let fused = FusedFix {
            protection_level_m: fix.protection_level_m,
            excluded: fix.excluded.iter().map(ToString::to_string).collect(),
            cautions: fix.cautions.clone(),
            ..FusedFix::new(FixMethod::ThreeStage, position_m, covariance_m2)
        };
        FusedFix { three_stage: Some(staged), ..fused }
    }

    fn locate_directly(&self, frame: &FrameBlocks, clocks: Option<&ClockPrior>) -> Result<DirectFix, Missed> {
        let direct = self.direct.as_ref().ok_or(Missed::NoEvidence)?;
        direct.locate(&self.timed_survey(direct, frame, clocks))
    }

    /// The evidence of a frame for the direct method. Evidence that does not fit is left out: it was checked before.
    fn evidence(&self, direct: &DirectLocator, frame: &FrameBlocks) -> Evidence {
        let mut evidence = direct.evidence();
        let count = self.system.irs_count();
        for (l, k, path) in frame.present().filter(|(l, k, _)| l.max(k) < &count) {
            let Some(node) = frame.node(l) else { continue };
            let noise_power_w = node.noise_power_w + path.quantisation_power_w;
            let _: Result<(), EvidenceError> = match &path.payload {
                Payload::Spectrum(spectrum) => evidence.spectrum(l, k, spectrum, noise_power_w),
                Payload::Block { block, block_derivative } => {
                    let expansion = block_expansion(path.delay_s, block, block_derivative);
                    evidence.block(l, k, &expansion, noise_power_w)
                }
                Payload::Parameters => {
                    let delay = CascadeDelay { delay_s: path.delay_s, variance_s2: path.delay_variance_s2 };
                    evidence.delay(l, k, delay, self.windows_s[l][k])
                }
            };
        }
        for l in 0..count {
            if let Some(arrival) = frame.node(l).and_then(|node| node.arrival) {
                let bearing_rad = arrival.bearing_rad + self.system.irs[l].pose.broadside_rad();
                let bearing = Bearing { bearing_rad, ..arrival };
                let _: Result<(), EvidenceError> = evidence.bearing(l, bearing, self.sectors_rad[l]);
            }
        }
        evidence
    }
}

fn block_expansion(delay_s: f64, block: &CMatrix, block_derivative: &CMatrix) -> BlockExpansion {
    BlockExpansion { delay_s, block: block.clone(), block_derivative: block_derivative.clone() }
}

/// Whether the three-stage method found a single position that fits.
fn is_sound(staged: &Result<ThreeStageFix, FusionError>) -> bool {
    let doubtful = |caution: &Caution| caution.is_doubt() || *caution == Caution::ResolvedByCoverage;
    staged.as_ref().is_ok_and(|staged| !staged.fix.cautions.iter().any(doubtful))
}

/// Cautions of a direct fix, `doubts` among them.
fn direct_cautions(faulty: bool, doubts: Vec<Caution>, level_m: Option<f64>) -> Vec<Caution> {
    let faulty = faulty.then_some(Caution::FaultExcluded);
    let unprotected = level_m.is_none().then_some(Caution::Unprotected);
    faulty.into_iter().chain(doubts).chain(unprotected).collect()
}

fn direct_fix(direct: DirectFix, staged: Option<ThreeStageFix>) -> FusedFix {
    let faulty = !direct.excluded.is_empty();
    FusedFix {
        protection_level_m: direct.protection_level_m,
        excluded: direct.excluded.iter().map(ToString::to_string).collect(),
        cautions: direct_cautions(faulty, direct.doubts, direct.protection_level_m),
        alternatives: direct.alternatives,
        three_stage: staged,
        clocks: direct.clocks,
        false_alarm_probability: Some(direct.false_alarm_probability),
        ..FusedFix::new(FixMethod::Direct, direct.position_m, direct.covariance_m2)
    }
}
