//! Queries on the rows, and formatting of their results.

use crate::figures::catalogue::Figure;
use crate::figures::rows::Row;
use crate::figures::statistics::{Estimate, slope};

/// The rows of all figures of a report.
#[derive(Debug, Clone, Default)]
pub struct ClaimData {
    rows: Vec<Row>,
}

/// A curve: x and value with interval.
pub(in crate::figures) type Curve = Vec<(f64, Estimate)>;

impl ClaimData {
    pub fn new(rows: Vec<Row>) -> Self {
        Self { rows }
    }

    pub fn has(&self, figure: Figure) -> bool {
        self.rows.iter().any(|row| row.figure == figure)
    }

    /// A curve; none if it was not measured.
    pub(in crate::figures) fn curve(&self, figure: Figure, scheme: &str, metric: &str) -> Option<Curve> {
        let chosen = self
            .rows
            .iter()
            .filter(|row| row.figure == figure && row.scheme == scheme && row.metric == metric);
        let curve: Curve = chosen.map(|row| (row.x, row.estimate)).collect();
        (!curve.is_empty()).then_some(curve)
    }

    pub(in crate::figures) fn at(
        &self,
        figure: Figure,
        x: f64,
        scheme: &str,
        metric: &str,
    ) -> Option<Estimate> {
        self.curve(figure, scheme, metric)?.into_iter().find(|(at, _)| *at == x).map(|(_, estimate)| estimate)
    }

    /// Exponent of a curve: slope of its logarithm over that of x, for x >= `least`.
    pub(super) fn exponent(
        &self,
        figure: Figure,
        scheme: &str,
        metric: &str,
        least: f64,
    ) -> Option<Estimate> {
        let curve = self.curve(figure, scheme, metric)?;
        let points: Curve =
            curve.into_iter().filter(|(x, _)| *x >= least).map(|(x, y)| (x.ln(), y.map(f64::ln))).collect();
        slope(&points)
    }
}

/// Largest minus smallest value of a curve. Its points are independent draws, so that the half-widths add as squares.
pub(super) fn spread(curve: &[(f64, Estimate)]) -> Option<Estimate> {
    let (_, most) = curve.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let (_, least) = curve.iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let value = most.value - least.value;
    let (below, above) = (
        (most.value - most.low).hypot(least.high - least.value),
        (most.high - most.value).hypot(least.value - least.low),
    );
    Some(Estimate { value, low: value - below, high: value + above })
}

/// "4.5 dB (4.2 to 4.8)".
pub(super) fn db(estimate: Estimate) -> String {
    format!("{:.1} dB ({:.1} to {:.1})", estimate.value, estimate.low, estimate.high)
}

/// "3.1 % (2.0 to 5.1)".
pub(super) fn percent(share: Estimate) -> String {
    format!("{:.1} % ({:.1} to {:.1})", 100.0 * share.value, 100.0 * share.low, 100.0 * share.high)
}

/// "-1.02 (-1.05 to -0.99)".
pub(super) fn number(estimate: Estimate) -> String {
    format!("{:.2} ({:.2} to {:.2})", estimate.value, estimate.low, estimate.high)
}

/// "3.1 to 6.2 dB" over a curve.
pub(super) fn range_db(curve: &[(f64, Estimate)]) -> String {
    let values = || curve.iter().map(|(_, y)| y.value);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    format!("{low:.1} to {high:.1} dB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_read_off_from_where_they_hold() {
        let row = |m: f64| {
            let value = if m < 4.0 { 1e6 } else { m.powi(3) };
            let estimate = Estimate { value, low: value * 0.9, high: value * 1.1 };
            let (scheme, metric) = ("a".into(), "b".into());
            Row { figure: Figure::CrbSensors, x: m, scheme, metric, estimate, trials: 1 }
        };
        let data = ClaimData::new([2.0, 4.0, 8.0, 16.0].map(row).into());
        let exponent = data.exponent(Figure::CrbSensors, "a", "b", 4.0).unwrap();
        assert!((exponent.value - 3.0).abs() < 1e-9 && exponent.low < 3.0 && exponent.high > 3.0);
        assert!(data.at(Figure::CrbSensors, 5.0, "a", "b").is_none());
        assert!(data.curve(Figure::CrbSensors, "a", "c").is_none());
    }
}
