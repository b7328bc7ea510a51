//! `hyloc scenario check`, `hyloc scenario generate` and `hyloc scenario blocks`.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use indicatif::ProgressIterator;
use model::scenario::{Coordinates, coordinates, ring};
use model::units::db_from_ratio;
use model::{EchoSource, Gain, Information, Point, RankCase, Scenario, Scheme, System};
use serde::Serialize;
use settings::{Layers, load_scenario};
use telemetry::exit::{self, Failure};

use super::{progress_bar, say, written};
use crate::scene::blocks_at_true_delays;
use crate::solve::Cases;
use crate::solve::angles::AngleCase;
use crate::verdict::{DetectionConditions, ScenarioVerdict, write_verdict};

/// Derived quantities of a scenario, for a target at the centre of the coverage area.
#[derive(Debug, Serialize)]
pub struct ScenarioSummary {
    #[serde(with = "coordinates::point")]
    target_m: Coordinates,
    noise_power_w: f64,
    unambiguous_half_sector_deg: f64,
    irs: Vec<IrsSummary>,
    path_snr_db: Vec<Vec<f64>>,
    bound_rms_m: Vec<SchemeSummary>,
    clocks: ClockBounds,
    warnings: Vec<String>,
    verdict: ScenarioVerdict,
}

#[derive(Debug, Serialize)]
struct IrsSummary {
    #[serde(with = "coordinates::point")]
    position_m: Coordinates,
    /// Azimuth of the boresight.
    broadside_deg: f64,
    elevation_deg: f64,
    roll_deg: f64,
    widest_view_deg: f64,
    /// `2 D^2 / (lambda d)` at the centre of the coverage area.
    near_field_ratio: f64,
    streams: usize,
    subcarriers: usize,
    effective_rank: usize,
    rank_case: u8,
}

/// Standard deviation of a clock offset of which nothing is known.
const UNKNOWN_S: f64 = 1e-6;

/// The exact bound on the position with what is known about the clocks.
#[derive(Debug, Serialize)]
struct ClockBounds {
    trusted_rms_m: Option<f64>,
    /// With the offsets of all clocks unknown, from one frame.
    unknown_rms_m: Option<f64>,
    /// The same in the tenth frame with constant offsets.
    after_10_frames_rms_m: Option<f64>,
}

#[derive(Debug, Serialize)]
struct SchemeSummary {
    scheme: &'static str,
    exact: Option<f64>,
    paper: Option<f64>,
    /// Of the exact bound, where the coverage area has a height.
    #[serde(skip_serializing_if = "Option::is_none")]
    exact_horizontal: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exact_vertical: Option<f64>,
}

pub fn check(
    file: Option<PathBuf>,
    overrides: Vec<String>,
    conditions: DetectionConditions,
    json: bool,
) -> anyhow::Result<()> {
    let scenario = load_scenario(&Layers { file, overrides, environment: None })?;
    let summary = summarise_scenario(&scenario, conditions)?;
    say(if json { serde_json::to_string_pretty(&summary)? } else { table(&summary) }.trim_end());
    Ok(())
}

/// What `hyloc scenario check` says about a scenario.
pub fn summarise_scenario(
    scenario: &Scenario,
    conditions: DetectionConditions,
) -> anyhow::Result<ScenarioSummary> {
    let system = System::new(scenario).context(Failure::new(exit::DATA, "the scenario cannot be built"))?;
    let single = System::new(&scenario.clone().single_irs()).ok();
    let verdict = ScenarioVerdict::new(scenario, &system, conditions);
    Ok(summarise(&system, single.as_ref(), scenario.rcs_m2(), verdict))
}

pub fn generate(nodes: usize, file: Option<PathBuf>, overrides: Vec<String>) -> anyhow::Result<()> {
    let base = load_scenario(&Layers { file, overrides, environment: None })?;
    let scenario = ring(&base, nodes).map_err(|error| Failure::new(exit::USAGE, error))?;
    say(toml::to_string(&scenario).context("the scenario cannot be written as TOML")?.trim_end());
    Ok(())
}

/// Prints the joint angle problems of the first frame of several scenes, in the format of `hyloc solve angles`.
pub fn blocks(file: Option<PathBuf>, overrides: Vec<String>, scenes: u64) -> anyhow::Result<()> {
    let scenario = load_scenario(&Layers { file, overrides, environment: None })?;
    scenario.only_target().context(Failure::new(exit::DATA, "blocks are those of one target"))?;
    let case = |scene| {
        let scenario = scenario.clone().with_seed(scenario.seed.wrapping_add(scene));
        Ok(AngleCase::of_blocks(&blocks_at_true_delays(&EchoSource::new(&scenario)?)?))
    };
    let scenes = (0..scenes).progress_with(progress_bar(scenes as usize, "scenes"));
    let cases = scenes.map(case).collect::<anyhow::Result<Vec<_>>>();
    let cases = cases.context(Failure::new(exit::DATA, "the scenario cannot be built"))?;
    say(&serde_json::to_string(&Cases { cases })?);
    Ok(())
}

fn summarise(
    system: &System,
    single: Option<&System>,
    rcs_m2: f64,
    verdict: ScenarioVerdict,
) -> ScenarioSummary {
    let centre = system.coverage.centre();
    let count = system.irs_count();
    ScenarioSummary {
        target_m: centre.into(),
        noise_power_w: system.noise_power_w,
        unambiguous_half_sector_deg: system.sensor_array().unambiguous_half_sector_rad().to_degrees(),
        irs: (0..count).filter_map(|k| irs_summary(system, k, rcs_m2)).collect(),
        path_snr_db: (0..count)
            .map(|l| {
                (0..count).filter_map(|k| system.path_snr(l, k, centre, rcs_m2).map(db_from_ratio)).collect()
            })
            .collect(),
        bound_rms_m: bounds(system, single, centre, rcs_m2),
        clocks: clock_bounds(system, centre, rcs_m2),
        warnings: system.warnings().into_iter().chain(system.near_field_warning()).collect(),
        verdict,
    }
}

fn irs_summary(system: &System, k: usize, rcs_m2: f64) -> Option<IrsSummary> {
    let irs = system.irs.get(k)?;
    Some(IrsSummary {
        position_m: irs.pose.position_m.into(),
        broadside_deg: irs.pose.orientation.azimuth_rad.to_degrees(),
        elevation_deg: irs.pose.orientation.elevation_rad.to_degrees(),
        roll_deg: irs.pose.orientation.roll_rad.to_degrees(),
        widest_view_deg: system.widest_view_rad(k)?.to_degrees(),
        near_field_ratio: system.near_field_ratio(k)?,
        streams: irs.reflected_signal.ncols(),
        subcarriers: irs.waveform.subcarriers.len(),
        effective_rank: system.effective_rank(k, rcs_m2)?,
        rank_case: match system.rank_case(k, rcs_m2)? {
            RankCase::Full => 1,
            RankCase::Partial => 2,
            RankCase::One => 3,
        },
    })
}

fn bounds(system: &System, single: Option<&System>, target: Point, rcs_m2: f64) -> Vec<SchemeSummary> {
    let bound = |system: &System, gain, scheme| {
        Information::new(system, target, rcs_m2, gain).position_crb_m2(scheme).ok()
    };
    let row = |name, system: &System, scheme| {
        let exact = bound(system, Gain::Unknown, scheme);
        let in_space = exact.as_ref().filter(|bound| bound.nrows() == 3);
        SchemeSummary {
            scheme: name,
            exact: exact.as_ref().map(|bound| bound.trace().sqrt()),
            paper: bound(system, Gain::Known, scheme).map(|bound| bound.trace().sqrt()),
            exact_horizontal: in_space.map(|bound| (bound[(0, 0)] + bound[(1, 1)]).sqrt()),
            exact_vertical: in_space.map(|bound| bound[(2, 2)].sqrt()),
        }
    };
    let mut rows = vec![
        row("hybrid", system, Scheme::Hybrid),
        row("angle only", system, Scheme::AngleOnly),
        row("delay only", system, Scheme::DelayOnly),
        row("no collaboration", system, Scheme::NoCollaboration),
    ];
    rows.extend(single.map(|system| row("single IRS", system, Scheme::Hybrid)));
    rows
}

/// The exact bound with what is known about the clocks; an offset of which nothing is known is as wide as a microsecond.
fn clock_bounds(system: &System, target: Point, rcs_m2: f64) -> ClockBounds {
    let information = Information::new(system, target, rcs_m2, Gain::Unknown);
    let prior_s = if system.clock_prior_s > 0.0 { system.clock_prior_s } else { UNKNOWN_S };
    let after = |frames| Some(information.position_crb_after_m2(frames, prior_s).ok()?.trace().sqrt());
    ClockBounds {
        trusted_rms_m: information.position_crb_m2(Scheme::Hybrid).ok().map(|bound| bound.trace().sqrt()),
        unknown_rms_m: after(1),
        after_10_frames_rms_m: after(10),
    }
}

fn table(summary: &ScenarioSummary) -> String {
    written(|out| write_table(out, summary))
}

fn write_table(out: &mut String, s: &ScenarioSummary) -> std::fmt::Result {
    let place = |at: &Coordinates| {
        let shown: Vec<String> = coordinates::stated(at).iter().map(|value| format!("{value:.1}")).collect();
        format!("({})", shown.join(", "))
    };
    let centre: Vec<String> = coordinates::stated(&s.target_m).iter().map(f64::to_string).collect();
    writeln!(out, "Target at the centre of the coverage area, ({}) m", centre.join(", "))?;
    writeln!(out, "Unambiguous sector: +-{:.1} degrees from broadside\n", s.unambiguous_half_sector_deg)?;
    writeln!(
        out,
        "IRS   position (m)        broadside   view     near field  streams  subcarriers  rank  case"
    )?;
    for (k, irs) in s.irs.iter().enumerate() {
        let place = place(&irs.position_m);
        writeln!(
            out,
            "{k:<5} {place:<18} {:>8.1} deg {:>5.1} deg {:>11.2} {:>8} {:>12} {:>5} {:>5}",
            irs.broadside_deg,
            irs.widest_view_deg,
            irs.near_field_ratio,
            irs.streams,
            irs.subcarriers,
            irs.effective_rank,
            irs.rank_case
        )?;
    }
    writeln!(out, "\nSNR per path after the matched filter (dB): rows sense, columns reflect")?;
    for row in &s.path_snr_db {
        writeln!(out, "  {}", row.iter().map(|v| format!("{v:6.1}")).collect::<Vec<_>>().join(" "))?;
    }
    let in_space =
        s.irs.iter().any(|irs| irs.position_m[2] != 0.0 || (irs.elevation_deg, irs.roll_deg) != (0.0, 0.0));
    if in_space {
        writeln!(out, "\nBoresight (degrees)  azimuth  elevation     roll")?;
        for (k, irs) in s.irs.iter().enumerate() {
            let (azimuth, elevation) = (irs.broadside_deg, irs.elevation_deg);
            writeln!(out, "  IRS {k:<12} {azimuth:>9.1} {elevation:>10.1} {:>8.1}", irs.roll_deg)?;
        }
    }
    let heights = if s.bound_rms_m.iter().any(|row| row.exact_vertical.is_some()) {
        "  horizontal and vertical (exact)"
    } else {
        ""
    };
    writeln!(out, "\nPosition bound, rms (m)    exact    paper{heights}")?;
    for row in &s.bound_rms_m {
        let show = |v: Option<f64>| v.map_or("       -".into(), |v| format!("{v:8.4}"));
        write!(out, "  {:<20} {} {}", row.scheme, show(row.exact), show(row.paper))?;
        if row.exact_vertical.is_some() {
            write!(out, "  {} {}", show(row.exact_horizontal), show(row.exact_vertical))?;
        }
        writeln!(out)?;
    }
    let clocks = [
        ("trusted", s.clocks.trusted_rms_m),
        ("unknown, one frame", s.clocks.unknown_rms_m),
        ("unknown, 10 frames", s.clocks.after_10_frames_rms_m),
    ];
    writeln!(out, "\nClocks of the nodes        exact")?;
    for (name, bound) in clocks {
        writeln!(out, "  {name:<20} {}", bound.map_or("       -".into(), |v| format!("{v:8.4}")))?;
    }
    for warning in &s.warnings {
        writeln!(out, "\nwarning: {warning}")?;
    }
    write_verdict(out, &s.verdict)
}
