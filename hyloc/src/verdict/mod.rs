//! Predicts from its SNRs, without a simulation, whether a scenario will work.
//!
//! The direct method detects a target where the sum of the likelihoods of all paths exceeds a threshold, which follows from the
//! allowed probability of false alarms. The expected availability is the mean chance of that over the coverage area.

mod budget;
mod chance;
mod sectors;
mod table;

use estimation::direct::{DirectSettings, detection_threshold};
use model::scenario::{CrossSection, Phases};
use model::units::{db_from_ratio, ratio_from_db};
use model::{Gain, Information, Point, Scenario, Scheme, System};
use serde::Serialize;

pub use budget::Budget;
pub use sectors::Sector;
pub use table::write_verdict;

/// Positions per side of the coverage area, horizontally and vertically.
const ACROSS: u8 = 9;
const UP: u8 = 3;
/// Availability that advice aims at, and below which a scenario cannot be said to give fixes.
const GOAL: f64 = 0.95;
const UNUSABLE: f64 = 0.05;
/// Largest ratio of the variances of two coordinates.
const LARGEST_RATIO: f64 = 1e8;
/// Largest improvement that is advised.
const MOST_MISSING_DB: f64 = 120.0;

/// Largest number of elements, sensors or frames that is advised.
const MOST_ADVISED: f64 = 1000.0;

/// What a verdict depends on besides the scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetectionConditions {
    /// Allowed share of frames without a target in which one is detected.
    pub false_alarm_probability: f64,
    /// Frames that a fix averages coherently.
    pub frames_per_fix: u64,
}

impl Default for DetectionConditions {
    fn default() -> Self {
        let false_alarm_probability = DirectSettings::default().false_alarm_probability;
        Self { false_alarm_probability, frames_per_fix: 1 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A fix in at least 95 % of frames.
    Works,
    /// A fix in some frames.
    Partly,
    /// A fix in less than 5 % of frames, or positions that are not observable.
    Fails,
}

/// The verdict on a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioVerdict {
    pub outcome: Outcome,
    /// The verdict in words, with what would help.
    pub sentence: String,
    pub false_alarm_probability: f64,
    pub frames_per_fix: u64,
    /// Expected share of targets in the coverage area that give a fix.
    pub availability: f64,
    /// Log-likelihood that a target must reach.
    pub detection_threshold: f64,
    /// Mean SNR of all paths at which half of the targets are detected, and what the centre of the coverage area has.
    pub needed_path_snr_db: f64,
    pub mean_path_snr_db: f64,
    /// What all SNRs lack for 95 % availability; none if nothing or more than 120 dB.
    pub missing_db: Option<f64>,
    pub sectors: Vec<Sector>,
    /// Of the strongest and the weakest path at the centre of the coverage area.
    pub link_budgets: Vec<Budget>,
    pub warnings: Vec<String>,
}

impl ScenarioVerdict {
    pub fn new(scenario: &Scenario, system: &System, conditions: DetectionConditions) -> Self {
        let DetectionConditions { false_alarm_probability, frames_per_fix } = conditions;
        let (centre, rcs_m2) = (system.coverage.centre(), scenario.rcs_m2());
        let paths = system.irs_count().pow(2);
        let threshold = detection_threshold(system, false_alarm_probability, paths);
        let echoes = Echoes::new(scenario, system, threshold, frames_per_fix as f64);
        let observable = is_observable(system, centre, rcs_m2);
        let availability = if observable { echoes.availability(1.0) } else { 0.0 };
        let missing_db = (observable && availability < GOAL).then(|| echoes.missing_db()).flatten();
        let outcome = match availability {
            share if share >= GOAL => Outcome::Works,
            share if share >= UNUSABLE => Outcome::Partly,
            _ => Outcome::Fails,
        };
        let at_centre = snrs(system, centre, rcs_m2, frames_per_fix as f64);
        let (sectors, mut warnings) = sectors::sectors(system);
        warnings.extend(mismatch(scenario));
        Self {
            outcome,
            sentence: sentence(scenario, outcome, availability, observable, missing_db, frames_per_fix),
            false_alarm_probability,
            frames_per_fix,
            availability,
            detection_threshold: threshold,
            needed_path_snr_db: db_from_ratio(threshold / paths as f64 - 1.0),
            mean_path_snr_db: db_from_ratio(at_centre.iter().sum::<f64>() / paths as f64),
            missing_db,
            sectors,
            link_budgets: budgets(system, centre, rcs_m2, frames_per_fix),
            warnings,
        }
    }
}

/// The verdict of a scenario in words; none for a scenario that cannot be built.
pub fn outlook(scenario: &Scenario, conditions: DetectionConditions) -> Option<String> {
    Some(ScenarioVerdict::new(scenario, &System::new(scenario).ok()?, conditions).sentence)
}

/// SNRs of all paths for a target at a point, row by row.
fn snrs(system: &System, target_m: Point, rcs_m2: f64, frames: f64) -> Vec<f64> {
    let count = system.irs_count();
    let energy = |k: usize| system.illumination(k, target_m).map_or(0.0, |b| b.norm_squared());
    let energies: Vec<f64> = (0..count).map(energy).collect();
    let scale = frames * system.sensors() as f64 / system.noise_power_w;
    let snr = |l: usize, k: usize| {
        system.echo_gain(l, k, target_m, rcs_m2).map_or(0.0, |gain| gain.powi(2) * energies[k] * scale)
    };
    (0..count * count).map(|path| snr(path / count, path % count)).collect()
}

/// The SNRs of all paths over the coverage area.
struct Echoes {
    threshold: f64,
    fluctuate: bool,
    /// Per position.
    snrs: Vec<Vec<f64>>,
}

impl Echoes {
    fn new(scenario: &Scenario, system: &System, threshold: f64, frames: f64) -> Self {
        let coverage = &system.coverage;
        let middles = |count: u8| (0..count).map(move |i| (f64::from(i) + 0.5) / f64::from(count));
        let heights = if coverage.is_flat() { 1 } else { UP };
        let places = middles(ACROSS).flat_map(|u| {
            middles(ACROSS).flat_map(move |v| middles(heights).map(move |w| coverage.at_height(u, v, w)))
        });
        let snrs = places.map(|place| snrs(system, place, scenario.rcs_m2(), frames)).collect();
        let fluctuate = scenario.imperfections.cross_section == CrossSection::Swerling1;
        Self { threshold, fluctuate, snrs }
    }

    /// Mean chance of a detection with all SNRs times `gain`.
    fn availability(&self, gain: f64) -> f64 {
        let chance = |snrs: &Vec<f64>| {
            if self.fluctuate {
                let means: Vec<f64> = snrs.iter().map(|snr| gain * snr).collect();
                chance::fluctuating(self.threshold, &means)
            } else {
                chance::constant(self.threshold, snrs.len(), gain * snrs.iter().sum::<f64>())
            }
        };
        self.snrs.iter().map(chance).sum::<f64>() / self.snrs.len() as f64
    }

    /// What is missing for the goal, to a tenth of a decibel, rounded up.
    fn missing_db(&self) -> Option<f64> {
        let enough = |tenths: u32| self.availability(ratio_from_db(f64::from(tenths) / 10.0)) >= GOAL;
        let (mut low, mut high) = (0, (10.0 * MOST_MISSING_DB) as u32);
        if !enough(high) {
            return None;
        }
        while high - low > 1 {
            let middle = u32::midpoint(low, high);
            if enough(middle) { high = middle } else { low = middle }
        }
        Some(f64::from(high) / 10.0)
    }
}

/// Whether the paths determine a position at the centre. Strength plays no part in it: a coordinate is not observed where its
/// bound is out of all proportion to that of another.
fn is_observable(system: &System, centre: Point, rcs_m2: f64) -> bool {
    let bound = Information::new(system, centre, rcs_m2, Gain::Unknown).position_crb_m2(Scheme::Hybrid);
    bound.is_ok_and(|bound| bound.diagonal().max() < LARGEST_RATIO * bound.diagonal().min())
}

fn budgets(system: &System, centre: Point, rcs_m2: f64, frames: u64) -> Vec<Budget> {
    let count = system.irs_count();
    let all = (0..count * count)
        .filter_map(|path| Budget::new(system, (path / count, path % count), centre, rcs_m2, frames));
    let mut all: Vec<Budget> = all.collect();
    all.sort_by(|a, b| b.snr_db.total_cmp(&a.snr_db));
    all.drain(1..all.len().max(2) - 1);
    all
}

/// A warning where estimators assume other waves than there are.
fn mismatch(scenario: &Scenario) -> Option<String> {
    let assumed = scenario.prior.wavefront.filter(|assumed| *assumed != scenario.signal.wavefront)?;
    Some(format!(
        "estimators assume {} waves and the echoes are {}: what that loses is not part of the expected availability",
        assumed.name(),
        scenario.signal.wavefront.name()
    ))
}

fn sentence(
    scenario: &Scenario,
    outcome: Outcome,
    availability: f64,
    observable: bool,
    missing_db: Option<f64>,
    frames: u64,
) -> String {
    if !observable {
        return "this scenario cannot give a fix: its paths do not determine a position, whatever their strength; add \
                IRSs, channel paths or rows of elements and sensors"
            .into();
    }
    let share = format!("a target is expected to be detected in {:.1} % of frames", 100.0 * availability);
    let begin = match outcome {
        Outcome::Works => return format!("this scenario works: {share}"),
        Outcome::Partly => format!("this scenario gives a fix only in some frames: {share}"),
        Outcome::Fails => format!("this scenario cannot give a fix: {share}"),
    };
    let Some(missing_db) = missing_db else {
        return format!(
            "{begin}, and {MOST_MISSING_DB} dB more would not be enough: check the units of the scenario"
        );
    };
    let (surface, gain) = (&scenario.surface, ratio_from_db(missing_db));
    let times = |count: usize, gain: f64| (count as f64 * gain).ceil();
    let sensors = times(surface.sensors.count(), gain);
    let (phases, elements) = match surface.phases {
        Phases::Random => ("random", times(surface.elements.count(), gain)),
        Phases::Aligned { .. } => ("aligned", times(surface.elements.count(), gain.sqrt())),
    };
    let frames = (frames as f64 * gain).ceil();
    let others = [
        (elements, format!("about {elements} elements per IRS at {phases} phases")),
        (sensors, format!("{sensors} sensors per IRS")),
        (frames, format!("--frames-per-fix {frames}")),
    ];
    let feasible = others.into_iter().filter(|(count, _)| *count <= MOST_ADVISED);
    let remedies: Vec<String> = [format!("--power-dbm {:.1}", scenario.base_station.power_dbm + missing_db)]
        .into_iter()
        .chain(feasible.map(|(_, remedy)| remedy))
        .collect();
    format!("{begin}; {:.0} % need {missing_db:.1} dB more: {}", 100.0 * GOAL, remedies.join(", or "))
}

#[cfg(test)]
mod tests;
