//! The results of a sweep in long form: one row per point, scheme and metric, with its 95 % interval.
//!
//! Means, ratios and roots of means: percentile bootstrap over the trials of the point; shares: Wilson's interval. Units are part of
//! the names of the metrics.

use std::cell::OnceCell;

use super::plan::{GridPoint, SweepPlan};
use crate::figures::statistics::{Estimate, Resampler};

/// One metric of one point.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRow {
    pub point: usize,
    /// Place on the horizontal axis of a figure.
    pub x: f64,
    /// An estimator, a bound or a curve; empty if the measure has only one.
    pub scheme: String,
    pub metric: String,
    pub estimate: Estimate,
    /// Independent draws behind it.
    pub trials: u64,
}

/// Collects the rows of a point.
#[derive(Debug)]
pub struct PointRows {
    point: usize,
    /// Place of the rows that are added next.
    pub x: f64,
    trials: usize,
    resampler: OnceCell<Resampler>,
    rows: Vec<SweepRow>,
}

impl PointRows {
    pub fn new(point: &GridPoint, trials: usize) -> Self {
        Self { point: point.index, x: point.x, trials, resampler: OnceCell::new(), rows: Vec::new() }
    }

    /// Resamples of all trials.
    pub fn resampler(&self) -> &Resampler {
        self.resampler.get_or_init(|| Resampler::new(self.trials))
    }

    pub fn add(&mut self, scheme: &str, metric: &str, estimate: Estimate) {
        self.add_of(self.trials, scheme, metric, estimate);
    }

    /// Adds the mean over all trials.
    pub fn mean(&mut self, scheme: &str, metric: &str, samples: &[f64]) {
        self.add(scheme, metric, self.resampler().mean(samples));
    }

    /// Adds the ratio of two means over all trials, in dB.
    pub fn ratio_db(&mut self, scheme: &str, metric: &str, [numerators, denominators]: [&[f64]; 2]) {
        self.add(scheme, metric, self.resampler().ratio_db(numerators, denominators));
    }

    /// Adds a row that is based on only some of the trials.
    pub fn add_of(&mut self, trials: usize, scheme: &str, metric: &str, estimate: Estimate) {
        let (scheme, metric) = (scheme.into(), metric.into());
        let (point, x, trials) = (self.point, self.x, trials as u64);
        self.rows.push(SweepRow { point, x, scheme, metric, estimate, trials });
    }

    pub fn into_rows(self) -> Vec<SweepRow> {
        self.rows
    }
}

/// The values of a column.
pub enum ColumnValues<'a> {
    /// As they are written in the plan.
    Axis(Vec<&'a str>),
    Texts(Vec<&'a str>),
    Numbers(Vec<f64>),
    Counts(Vec<i64>),
}

/// All rows as columns; places and schemes only if the measure has them.
pub fn columns<'a>(plan: &'a SweepPlan, rows: &'a [SweepRow]) -> Vec<(&'a str, ColumnValues<'a>)> {
    let numbers = |value: fn(&SweepRow) -> f64| ColumnValues::Numbers(rows.iter().map(value).collect());
    let counts = |value: fn(&SweepRow) -> i64| ColumnValues::Counts(rows.iter().map(value).collect());
    let texts = |value: fn(&SweepRow) -> &str| ColumnValues::Texts(rows.iter().map(value).collect());
    let mut columns = vec![("point", counts(|row| row.point as i64))];
    for (axis, key) in plan.axes.iter().enumerate() {
        let values = rows.iter().map(|row| plan.points[row.point].values[axis].as_str());
        columns.push((key, ColumnValues::Axis(values.collect())));
    }
    if rows.iter().any(|row| !row.scheme.is_empty()) {
        columns.extend([("x", numbers(|row| row.x)), ("scheme", texts(|row| &row.scheme))]);
    }
    columns.extend([
        ("metric", texts(|row| &row.metric)),
        ("value", numbers(|row| row.estimate.value)),
        ("low", numbers(|row| row.estimate.low)),
        ("high", numbers(|row| row.estimate.high)),
        ("trials", counts(|row| row.trials as i64)),
    ]);
    columns
}

/// All rows as CSV.
pub fn to_csv(plan: &SweepPlan, rows: &[SweepRow]) -> String {
    let columns = columns(plan, rows);
    let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect();
    let field = |values: &ColumnValues, i: usize| match values {
        ColumnValues::Axis(values) | ColumnValues::Texts(values) => quoted(values[i]),
        ColumnValues::Numbers(values) => values[i].to_string(),
        ColumnValues::Counts(values) => values[i].to_string(),
    };
    let line = |i| columns.iter().map(|(_, values)| field(values, i)).collect::<Vec<_>>().join(",") + "\n";
    names.join(",") + "\n" + &(0..rows.len()).map(line).collect::<String>()
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("[6,6]"), "\"[6,6]\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted("40"), "40");
    }
}
