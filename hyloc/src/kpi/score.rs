//! Compares the reached values with the required ones.

use serde::{Serialize, Serializer};

use super::measure::{FixError, Measured};
use super::quantile::quantile;
use super::requirements::{CATEGORIES, Category, Criterion};
use crate::figures::statistics::{Estimate, share};

/// Confidence of an accuracy.
const CONFIDENCE: f64 = 0.95;
/// Quantile of the latencies that counts.
const SLOW: f64 = 0.99;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KpiJudgement {
    Pass,
    Fail,
    NotApplicable,
}

/// A reached value with its interval, in metres, seconds or shares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reached {
    pub criterion: Criterion,
    #[serde(flatten)]
    pub figure: KpiFigure,
}

/// How a value is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KpiFigure {
    /// Not a quantity of this scenario.
    NotApplicable,
    /// Nothing to measure it on.
    Unknown,
    Value(Estimate),
}

impl Serialize for KpiFigure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Ends {
            reached: Option<f64>,
            low: Option<f64>,
            high: Option<f64>,
        }
        let value = match self {
            Self::Value(value) => Some(value),
            Self::NotApplicable | Self::Unknown => None,
        };
        // An end that is infinite is not known.
        let end = |end: f64| end.is_finite().then_some(end);
        Ends {
            reached: value.map(|value| value.value),
            low: value.and_then(|value| end(value.low)),
            high: value.and_then(|value| end(value.high)),
        }
        .serialize(serializer)
    }
}

/// One requirement of a category.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KpiRow {
    pub required: f64,
    #[serde(flatten)]
    pub reached: Reached,
    pub judgement: KpiJudgement,
}

/// All requirements of a category.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CategoryScore {
    pub category: u8,
    pub rows: Vec<KpiRow>,
    /// Names of the requirements that are not met.
    pub fails: Vec<&'static str>,
    pub velocity: &'static str,
    pub resolution: &'static str,
}

/// What quantities without a measurement say.
pub const NOT_MEASURED: &str = "not measured yet";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scorecard {
    pub categories: Vec<CategoryScore>,
}

impl Scorecard {
    pub fn new(measured: &Measured) -> Self {
        let reached =
            Criterion::ALL.map(|criterion| Reached { criterion, figure: reach(criterion, measured) });
        Self { categories: CATEGORIES.iter().map(|category| score(category, &reached)).collect() }
    }
}

fn score(category: &Category, reached: &[Reached]) -> CategoryScore {
    let rows: Vec<KpiRow> = reached
        .iter()
        .map(|&reached| {
            let required = category.required(reached.criterion);
            KpiRow { required, reached, judgement: judge(reached.figure, required) }
        })
        .collect();
    let failed = rows.iter().filter(|row| row.judgement == KpiJudgement::Fail);
    CategoryScore {
        category: category.number,
        fails: failed.map(|row| row.reached.criterion.name()).collect(),
        rows,
        velocity: NOT_MEASURED,
        resolution: NOT_MEASURED,
    }
}

/// A requirement is met if the whole interval meets it.
fn judge(figure: KpiFigure, required: f64) -> KpiJudgement {
    match figure {
        KpiFigure::NotApplicable => KpiJudgement::NotApplicable,
        KpiFigure::Value(value) if value.high <= required => KpiJudgement::Pass,
        KpiFigure::Value(_) | KpiFigure::Unknown => KpiJudgement::Fail,
    }
}

fn reach(criterion: Criterion, measured: &Measured) -> KpiFigure {
    let known = |estimate: Option<Estimate>| estimate.map_or(KpiFigure::Unknown, KpiFigure::Value);
    let errors = |pick: fn(&FixError) -> f64| measured.errors.iter().map(pick).collect::<Vec<f64>>();
    let frames = measured.frames as f64;
    match criterion {
        Criterion::HorizontalAccuracy => known(quantile(&errors(|error| error.horizontal_m), CONFIDENCE)),
        Criterion::VerticalAccuracy if measured.flat => KpiFigure::NotApplicable,
        Criterion::VerticalAccuracy => known(quantile(&errors(|error| error.vertical_m), CONFIDENCE)),
        Criterion::Latency => known(quantile(&measured.latencies_s, SLOW)),
        Criterion::Refresh => {
            let times = &measured.times_s;
            let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
            known((!times.is_empty()).then_some(Estimate::exact(mean)))
        }
        Criterion::MissedDetection => known(Some(share(frames - measured.errors.len() as f64, frames))),
        Criterion::FalseAlarm => known(Some(share(measured.false_alarms as f64, frames))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(frames: u64, missed: u64, flat: bool) -> Measured {
        let error = FixError { horizontal_m: 0.15, vertical_m: 0.3 };
        Measured {
            frames,
            errors: vec![error; (frames - missed) as usize],
            nominal: 0,
            false_alarms: 0,
            flat,
            latencies_s: vec![0.06; 2 * frames as usize],
            times_s: vec![0.07; 2 * frames as usize],
        }
    }

    fn fails(measured: &Measured) -> Vec<(u8, Vec<&'static str>)> {
        Scorecard::new(measured).categories.into_iter().map(|score| (score.category, score.fails)).collect()
    }

    #[test]
    fn every_category_names_what_it_fails() {
        let expected = vec![
            (1, vec![]),
            (2, vec![]),
            (3, vec!["refresh"]),
            (4, vec![]),
            (7, vec!["vertical accuracy", "latency"]),
        ];
        assert_eq!(fails(&measured(400, 0, false)), expected);
        let flat = Scorecard::new(&measured(400, 0, true));
        assert!(flat.categories.iter().all(|score| score.rows[1].judgement == KpiJudgement::NotApplicable));
        assert_eq!(flat.categories[4].fails, ["latency"]);
    }

    /// No miss in 100 frames leaves up to 3.7 % possible, two in 400 up to 1.8 %.
    #[test]
    fn an_interval_that_reaches_beyond_the_requirement_fails() {
        let few = fails(&measured(100, 0, false));
        // 200 latencies are too few for the upper end of their 99 % quantile.
        assert_eq!(few[0].1, ["latency", "false alarm"]);
        assert_eq!(few[2].1, ["latency", "refresh", "missed detection", "false alarm"]);
        assert_eq!(fails(&measured(400, 2, false))[3].1, ["missed detection"]);
        // Without a fix nothing is known about accuracy.
        let none = Scorecard::new(&measured(400, 400, false));
        assert_eq!(
            none.categories[0].fails,
            ["horizontal accuracy", "vertical accuracy", "missed detection"]
        );
        assert!(serde_json::to_value(&none).unwrap()["categories"][0]["rows"][0]["reached"].is_null());
    }
}
