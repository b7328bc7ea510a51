//! The verdict as text.

use std::fmt::Write;

use super::ScenarioVerdict;

/// Appends link budgets, detection, sectors and verdict.
pub fn write_verdict(out: &mut String, verdict: &ScenarioVerdict) -> std::fmt::Result {
    write_budgets(out, verdict)?;
    writeln!(
        out,
        "\nDetection: half of the targets need a mean path SNR of {:.1} dB (log-likelihood {:.1}, false alarms in {} % of frames); \
         the centre has {:.1} dB",
        verdict.needed_path_snr_db,
        verdict.detection_threshold,
        100.0 * verdict.false_alarm_probability,
        verdict.mean_path_snr_db
    )?;
    writeln!(
        out,
        "Expected availability over the coverage area: {:.1} % (spectra, {} frame(s) per fix)",
        100.0 * verdict.availability,
        verdict.frames_per_fix
    )?;
    let seen = verdict.sectors.iter().map(|sector| {
        let rows = sector.along_rows_deg.map_or(String::new(), |rows| format!(" by {rows:.0}"));
        format!("{:.0}{rows}", sector.along_columns_deg)
    });
    let limit = verdict.sectors.first().map_or(90.0, |sector| sector.unambiguous_deg);
    writeln!(
        out,
        "Degrees from broadside at which each IRS sees the area: {} (unambiguous: {limit:.1})",
        seen.collect::<Vec<_>>().join(", ")
    )?;
    for warning in &verdict.warnings {
        writeln!(out, "\nwarning: {warning}")?;
    }
    writeln!(out, "\nVerdict: {}", verdict.sentence)
}

fn write_budgets(out: &mut String, verdict: &ScenarioVerdict) -> std::fmt::Result {
    for (name, budget) in ["strongest", "weakest"].into_iter().zip(&verdict.link_budgets) {
        writeln!(
            out,
            "\nLink budget of the {name} path at the centre, reflected by IRS {}, sensed at IRS {} (dB)",
            budget.reflector, budget.sensor
        )?;
        for line in &budget.lines {
            writeln!(out, "  {:<44} {:>8.1}", line.what, line.db)?;
        }
        writeln!(out, "  {:<44} {:>8.1}", "= SNR after the matched filter", budget.snr_db)?;
    }
    Ok(())
}
