//! Tables of the report; those of `docs/science/accuracy.md` are generated here as well.

use std::fmt::Write;

use super::catalogue::Figure::{
    self, AnglePower, AnglePowerFullRank, BackhaulAccuracy, EndToEndPower, LiteralSweep,
};
use super::claims::ClaimData;
use super::claims::data::Curve;

/// A table with heading and explanatory note; `head` are the names of the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportTable {
    pub heading: &'static str,
    pub note: &'static str,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl ReportTable {
    /// Markdown of the cells, without heading and note.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut out = line(&self.head);
        let _ = writeln!(out, "|{}", " --- |".repeat(self.head.len()));
        out.extend(self.rows.iter().map(|row| line(row)));
        out
    }
}

/// Angle estimators: scheme and name.
const ESTIMATORS: [(&str, &str); 18] = [
    ("proposed-polished", "joint ADMM, polished on the raw blocks"),
    ("beamformer-polished", "joint beamformer, polished alike"),
    ("proposed-denoised", "joint ADMM, denoised blocks"),
    ("proposed-eigenvector", "joint ADMM, eigenvectors, AOA"),
    ("proposed-eigenvector-combined", "joint ADMM, eigenvectors, AOA and AOD combined"),
    ("paper-literal", "the paper's algorithm as printed, best lambda"),
    ("joint-beamformer-all-blocks", "joint beamformer, all blocks"),
    ("beamformer-all-blocks", "beamformer, all blocks"),
    ("music-all-blocks", "MUSIC, all blocks"),
    ("root-music-all-blocks", "root-MUSIC, all blocks"),
    ("esprit-all-blocks", "ESPRIT, all blocks"),
    ("capon-all-blocks", "Capon, all blocks"),
    ("joint-beamformer-one-block", "joint beamformer, one block"),
    ("beamformer-one-block", "beamformer, one block"),
    ("music-one-block", "MUSIC, one block"),
    ("root-music-one-block", "root-MUSIC, one block"),
    ("esprit-one-block", "ESPRIT, one block"),
    ("capon-one-block", "Capon, one block"),
];

/// Methods from echoes to a position: scheme and name.
const METHODS: [(&str, &str); 3] = [
    ("chain", "three stages, angles by joint ADMM and polish"),
    ("chain-beamformer", "three stages, angles by joint beamformer and polish"),
    ("direct", "direct, from spectra"),
];

/// The tables of the report for which there are data.
pub fn all(data: &ClaimData) -> Vec<ReportTable> {
    let tables = [
        angles(data, AnglePower, "Angles at Table I"),
        angles(data, AnglePowerFullRank, "Angles with well-conditioned S_k"),
        literal(data, "lambda", "The printed algorithm over its weight"),
        literal(data, "rho", "The printed algorithm over its penalty"),
        positions(data),
        backhaul(data),
    ];
    tables.into_iter().flatten().collect()
}

/// Gap and gross errors of every estimator at every power.
fn angles(data: &ClaimData, figure: Figure, heading: &'static str) -> Option<ReportTable> {
    let (head, rows) = against_power(data, figure, &ESTIMATORS, "gap_exact_db", &|_| true)?;
    Some(ReportTable {
        heading,
        note: "Mean squared error of the angles above the exact bound in dB, by transmit power in dBm; in brackets the share of \
               angles off by more than 0.1 rad, where there are any.",
        head,
        rows,
    })
}

/// The table of angle estimators in `docs/science/accuracy.md`: both scenarios, selected powers.
pub fn angle_summary(data: &ClaimData) -> Option<ReportTable> {
    let shown = |power: f64| [40.0, 45.0, 50.0, 60.0].contains(&power);
    let (mut head, mut rows) = against_power(data, AnglePower, &ESTIMATORS, "gap_exact_db", &shown)?;
    let at = |metric: &str, scheme: &str| data.at(AnglePowerFullRank, 50.0, scheme, metric);
    head.extend(["well-conditioned S_k, 50 dBm", "there, above the paper's bound"].map(String::from));
    for (row, (scheme, _)) in rows.iter_mut().zip(ESTIMATORS) {
        row.push(tenths(at("gap_exact_db", scheme)?.value));
        row.push(tenths(at("gap_paper_db", scheme)?.value));
    }
    let others =
        ["root-MUSIC", "beamformer, all", "beamformer, one", "joint beamformer, one", "joint ADMM, denoised"];
    rows.retain(|row| !others.iter().any(|name| row[0].starts_with(name)));
    Some(ReportTable { heading: "", note: "", head, rows })
}

/// Gap and gross errors of the methods from raw echoes to a position.
pub fn positions(data: &ClaimData) -> Option<ReportTable> {
    let (head, rows) = against_power(data, EndToEndPower, &METHODS, "gap_exact_without_gross_db", &|_| true)?;
    Some(ReportTable {
        heading: "Raw echoes of a single frame to a position",
        note: "Mean squared error of the position above the exact bound in dB, by transmit power in dBm, gross errors set \
               apart; in brackets the share of frames off by more than 1 m or without a fix, where there are any.",
        head,
        rows,
    })
}

/// One decimal, without a sign on zero.
fn tenths(value: f64) -> String {
    let rounded = (10.0 * value).round() / 10.0;
    format!("{:.1}", if rounded == 0.0 { 0.0 } else { rounded })
}

type Cells = (Vec<String>, Vec<Vec<String>>);

fn against_power(
    data: &ClaimData,
    figure: Figure,
    schemes: &[(&str, &str)],
    metric: &str,
    shown: &dyn Fn(f64) -> bool,
) -> Option<Cells> {
    let mut head = Vec::new();
    let mut rows = Vec::new();
    for (scheme, name) in schemes {
        let gross = data.curve(figure, scheme, "gross_error_share")?;
        let gaps: Curve = data.curve(figure, scheme, metric)?;
        let cell = |&(power, share): &(f64, super::statistics::Estimate)| {
            let gap = gaps.iter().find(|(x, _)| *x == power).map(|(_, gap)| tenths(gap.value));
            let gap = gap.unwrap_or_else(|| "-".into());
            if share.value > 0.0 { format!("{gap} ({:.1} %)", 100.0 * share.value) } else { gap }
        };
        let chosen = || gross.iter().filter(|(power, _)| shown(*power));
        head = std::iter::once("estimator".into()).chain(chosen().map(|(x, _)| format!("{x} dBm"))).collect();
        rows.push(std::iter::once((*name).into()).chain(chosen().map(cell)).collect());
    }
    Some((head, rows))
}

/// Error and convergence of the printed algorithm over one of its settings.
fn literal(data: &ClaimData, swept: &str, heading: &'static str) -> Option<ReportTable> {
    let mut rows = Vec::new();
    for (scene, name) in [("full-rank", "well-conditioned"), ("table-one", "Table I")] {
        let scheme = format!("{scene}-{swept}");
        for (x, gap) in data.curve(LiteralSweep, &scheme, "gap_exact_db")? {
            let at = |metric: &str| data.at(LiteralSweep, x, &scheme, metric).map(|e| e.value);
            rows.push(vec![
                name.into(),
                x.to_string(),
                format!("{:.1} ({:.1} to {:.1})", gap.value, gap.low, gap.high),
                format!("{:.1}", at("gap_paper_db")?),
                format!("{:.1} %", 100.0 * at("gross_error_share")?),
                format!("{:.1} %", 100.0 * at("converged_share")?),
                format!("{:.0}", at("iterations")?),
                format!("{:.1e}", at("residual")?),
            ]);
        }
    }
    let columns = [
        "S_k",
        swept,
        "above the exact bound (dB)",
        "above the paper's bound (dB)",
        "gross errors",
        "converged",
        "iterations",
        "residual",
    ];
    Some(ReportTable {
        heading,
        note: "50 dBm. `converged`: share of the 2K problems that met a relative residual of 0.009 within 100 iterations; \
               `iterations`: their mean; `residual`: the largest of a scene, median over scenes. Where lambda is too small the \
               answer is zero: no angle, and a relative residual of 1.",
        head: columns.map(String::from).to_vec(),
        rows,
    })
}

/// The cheapest payload within 1 dB of the exact bound, for each power.
pub fn backhaul(data: &ClaimData) -> Option<ReportTable> {
    let mut rows = Vec::new();
    for power in [60, 50, 40] {
        let mut best: Option<Vec<String>> = None;
        let mut least = f64::INFINITY;
        for (kind, name) in
            [("parameters", "delays and angles"), ("block", "blocks"), ("spectrum", "spectra")]
        {
            let scheme = format!("{kind}-{power}dbm");
            for (kilobytes, gap) in data.curve(BackhaulAccuracy, &scheme, "gap_exact_db")? {
                let at =
                    |metric: &str| data.at(BackhaulAccuracy, kilobytes, &scheme, metric).map(|e| e.value);
                let (found, bits) = (at("found_share")?, at("bits_per_real")?);
                if gap.value <= 1.0 && found >= 0.95 && kilobytes < least {
                    least = kilobytes;
                    best = Some(vec![
                        format!("{power} dBm"),
                        format!("{name}, {bits} bits per real"),
                        format!("{kilobytes:.1}"),
                        format!("{:.1} dB", gap.value),
                        format!("{:.1} %", 100.0 * found),
                    ]);
                }
            }
        }
        rows.push(best.unwrap_or_else(|| {
            [format!("{power} dBm")].into_iter().chain(["-"; 4].map(String::from)).collect()
        }));
    }
    let head =
        ["transmit power", "payload", "kilobytes per fix", "above the exact bound", "frames with a fix"];
    Some(ReportTable {
        heading: "The cheapest payload within 1 dB",
        note: "Of all payloads and precisions with at least 95 % of frames fixed and a mean squared error within 1 dB of the \
               exact bound, the one with the fewest bytes.",
        head: head.map(String::from).to_vec(),
        rows,
    })
}
