//! The data behind every figure: rows of `figure,x,scheme,metric,value,low,high,trials`.
//!
//! `low` and `high` are the ends of a 95 % interval; `trials` is the number of independent draws behind the
//! value. Values are written with five significant digits. Plots and report are made from the rows as the file holds
//! them, so that a file read again gives the same plots and the same report.

use std::fmt::Write;

use anyhow::{Context, bail};

use super::catalogue::Figure;
use super::statistics::Estimate;

/// First line of every CSV file.
pub const HEADER: &str = "figure,x,scheme,metric,value,low,high,trials";

/// One measured quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The figure it belongs to.
    pub figure: Figure,
    /// Place on the horizontal axis.
    pub x: f64,
    /// What was measured: an estimator, a bound, an imperfection.
    pub scheme: String,
    /// Which quantity of it.
    pub metric: String,
    /// The quantity with its interval.
    pub estimate: Estimate,
    /// Independent draws behind it.
    pub trials: u64,
}

/// Rows of one figure as they are made, point by point.
#[derive(Debug)]
pub struct Table {
    figure: Figure,
    trials: u64,
    rows: Vec<Row>,
}

impl Table {
    /// No rows yet.
    pub fn new(figure: Figure, trials: u64) -> Self {
        Self { figure, trials, rows: Vec::new() }
    }

    /// Adds one row.
    pub fn add(&mut self, x: f64, scheme: &str, metric: &str, estimate: Estimate) {
        self.add_of(self.trials, x, scheme, metric, estimate);
    }

    /// Adds one row that only some of the trials are behind.
    pub fn add_of(&mut self, trials: u64, x: f64, scheme: &str, metric: &str, estimate: Estimate) {
        let (scheme, metric) = (scheme.into(), metric.into());
        self.rows.push(Row { figure: self.figure, x, scheme, metric, estimate, trials });
    }

    /// All rows.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

/// The rows as CSV.
pub fn to_csv(rows: &[Row]) -> String {
    let mut out = format!("{HEADER}\n");
    for row in rows {
        let Estimate { value, low, high } = row.estimate;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{}",
            row.figure,
            rounded(row.x),
            row.scheme,
            row.metric,
            rounded(value),
            rounded(low),
            rounded(high),
            row.trials
        );
    }
    out
}

/// The number of five significant digits that is nearest. Rounding keeps order, so that intervals still hold their values.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// Rows read back from CSV.
pub fn from_csv(text: &str) -> anyhow::Result<Vec<Row>> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        bail!("the first line is not `{HEADER}`");
    }
    lines.enumerate().map(|(i, line)| parse(line).with_context(|| format!("line {}", i + 2))).collect()
}

fn parse(line: &str) -> anyhow::Result<Row> {
    let fields: Vec<&str> = line.split(',').collect();
    let [figure, x, scheme, metric, value, low, high, trials] = fields[..] else {
        bail!("{} fields instead of 8", fields.len());
    };
    let number = |text: &str| text.parse::<f64>().with_context(|| format!("`{text}` is not a number"));
    Ok(Row {
        figure: Figure::parse(figure).with_context(|| format!("`{figure}` is not a figure"))?,
        x: number(x)?,
        scheme: scheme.into(),
        metric: metric.into(),
        estimate: Estimate { value: number(value)?, low: number(low)?, high: number(high)? },
        trials: trials.parse().with_context(|| format!("`{trials}` is not a count"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_the_file() {
        let mut table = Table::new(Figure::AnglePower, 7);
        table.add(50.0, "music", "mse_rad2", Estimate { value: 0.1 + 0.2, low: 1e-300, high: f64::INFINITY });
        table.add(-2.5, "esprit", "gap_exact_db", Estimate { value: 1.0 / 3.0, low: -1.0, high: 4.0 });
        let csv = to_csv(&table.into_rows());
        assert!(csv.contains(",mse_rad2,0.3,") && csv.contains(",gap_exact_db,0.33333,-1,4,7"), "{csv}");
        assert_eq!(to_csv(&from_csv(&csv).unwrap()), csv);
    }

    #[test]
    fn a_broken_file_is_refused_with_its_line() {
        let broken = format!("{HEADER}\nangle-power,1,a,b,1,1,1,1\nangle-power,1,a,b,one,1,1,1\n");
        let message = format!("{:#}", from_csv(&broken).unwrap_err());
        assert!(message.contains("line 3") && message.contains("`one`"), "{message}");
        assert!(from_csv("figure,x\n").is_err());
    }
}
