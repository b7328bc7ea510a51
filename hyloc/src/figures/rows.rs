//! The data behind every figure: rows of `figure,x,scheme,metric,value,low,high,trials`.
//!
//! `low` and `high` are the ends of a 95 % interval; `trials` is the number of independent draws behind the value. Values
//! are written with five significant digits. Plots and report are made from the rows as written, so that reading a file
//! gives the same plots and the same report.

use std::fmt::Write;

use anyhow::{Context, bail};

use super::catalogue::Figure;
use super::statistics::Estimate;

/// First line of every CSV file.
pub const HEADER: &str = "figure,x,scheme,metric,value,low,high,trials";

/// One measured quantity: a metric of a scheme (an estimator, a bound or an imperfection) at a point of the x axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub figure: Figure,
    pub x: f64,
    pub scheme: String,
    pub metric: String,
    pub estimate: Estimate,
    /// Number of independent draws behind the estimate.
    pub trials: u64,
}

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

/// The nearest number with five significant digits. Rounding keeps order, so that intervals still contain their values.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

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
        let row = |x, metric: &str, [value, low, high]: [f64; 3]| {
            let (scheme, metric) = ("music".into(), metric.into());
            let estimate = Estimate { value, low, high };
            Row { figure: Figure::AnglePower, x, scheme, metric, estimate, trials: 7 }
        };
        let first = row(50.0, "mse_rad2", [0.1 + 0.2, 1e-300, f64::INFINITY]);
        let csv = to_csv(&[first, row(-2.5, "gap_exact_db", [1.0 / 3.0, -1.0, 4.0])]);
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
