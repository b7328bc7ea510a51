//! The axes of a sweep: lists and ranges of values, and all combinations of them.

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use telemetry::exit::{self, Failure};

/// Most values of a range.
const MOST_VALUES: usize = 10_000;

/// One axis: a key with a list of values, or with a range.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridAxis {
    /// A key of the scenario, of the plan or of the measure; a name of your own beside `set`.
    pub key: String,
    /// What the axis sets instead of its key: `key=value` with `{}` in place of the value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// The values, in the order of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<toml::Value>>,
    /// First value, last value and step of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 3]>,
}

impl GridAxis {
    /// An axis as on the command line: `key=a,b,c` or `key=from:to:step`. Brackets, braces and quotes hold commas together.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "must be key=a,b,c or key=from:to:step";
        let (key, values) = text.split_once('=').ok_or(form)?;
        let (key, values) = (key.trim(), values.trim());
        if key.is_empty() || values.is_empty() {
            return Err(form.into());
        }
        let key = key.to_owned();
        let bounds: Vec<Option<f64>> = values.split(':').map(|part| part.trim().parse().ok()).collect();
        if let [Some(from), Some(to), Some(step)] = bounds[..] {
            return Ok(Self { key, range: Some([from, to, step]), ..Self::default() });
        }
        let values = listed(values).into_iter().map(toml::Value::String).collect();
        Ok(Self { key, values: Some(values), ..Self::default() })
    }

    /// What one of its values sets, as `key=value`.
    pub fn settings(&self, value: &str) -> Vec<String> {
        match &self.set[..] {
            [] => vec![format!("{}={value}", self.key)],
            set => set.iter().map(|set| set.replace("{}", value)).collect(),
        }
    }

    /// Its values as text.
    pub fn values(&self) -> anyhow::Result<Vec<String>> {
        let refused = |reason: &str| Failure::new(exit::USAGE, format!("axis {}: {reason}", self.key));
        let values: Vec<String> = match (&self.values, self.range) {
            (Some(values), None) => values.iter().map(text).collect(),
            (None, Some([from, to, step])) => {
                let steps = (to - from) / step;
                // False for what is not a number, too.
                ensure!(
                    step != 0.0 && steps >= 0.0 && steps < MOST_VALUES as f64,
                    refused(&format!(
                        "the range {from}:{to}:{step} must lead from its first to its last value in at most {MOST_VALUES} steps"
                    ))
                );
                // The last value belongs to the range in spite of rounding.
                let count = (steps + 1e-9).floor() as usize + 1;
                (0..count).map(|i| rounded(from + i as f64 * step).to_string()).collect()
            }
            _ => bail!(refused("give either `values` or `range`")),
        };
        ensure!(!values.is_empty(), refused("has no values"));
        Ok(values)
    }
}

/// A value as `--set` takes it.
fn text(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// Without the rounding errors of a range: 0.30000000000000004 is 0.3.
fn rounded(value: f64) -> f64 {
    format!("{value:.12e}").parse().unwrap_or(value)
}

/// The parts between commas that are outside of brackets, braces and quotes.
fn listed(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut quoted) = (vec![String::new()], 0i32, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

/// All combinations, the last axis fastest; one without values if there is no axis.
pub fn combinations(axes: &[Vec<String>]) -> Vec<Vec<String>> {
    axes.iter().fold(vec![Vec::new()], |points, values| {
        let extended = |point: &Vec<String>| {
            values
                .iter()
                .map(|value| [point.as_slice(), std::slice::from_ref(value)].concat())
                .collect::<Vec<_>>()
        };
        points.iter().flat_map(extended).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        GridAxis::parse(text).unwrap().values().unwrap()
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(values("base_station.power_dbm=40, 45,50"), ["40", "45", "50"]);
        assert_eq!(values("surface.elements=[6,6],10"), ["[6,6]", "10"]);
        assert_eq!(values("a=0:0.5:0.1"), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(values("a=50:40:-5"), ["50", "45", "40"]);
        assert_eq!(values("a=1:1:1"), ["1"]);
        assert_eq!(values("target.motion={circle={a=1,b=2}},random"), ["{circle={a=1,b=2}}", "random"]);
    }

    #[test]
    fn what_is_no_axis_is_refused_by_name() {
        for bad in ["power", "=1,2", "power="] {
            assert!(GridAxis::parse(bad).unwrap_err().contains("key=a,b,c"), "{bad}");
        }
        for bad in ["a=1:2:0", "a=1:2:-1", "a=0:1:1e-9"] {
            let message = GridAxis::parse(bad).unwrap().values().unwrap_err().to_string();
            assert!(message.contains("axis a") && message.contains("range"), "{message}");
        }
        let neither = GridAxis { key: "a".into(), ..GridAxis::default() };
        assert!(neither.values().unwrap_err().to_string().contains("either"));
    }

    #[test]
    fn an_axis_may_set_several_keys() {
        let set = vec!["surface.elements={}".into(), "irs[0].position_m=[{}, 50]".into()];
        let axis = GridAxis { key: "size".into(), set, ..GridAxis::default() };
        assert_eq!(axis.settings("6"), ["surface.elements=6", "irs[0].position_m=[6, 50]"]);
        assert_eq!(GridAxis::parse("a=1").unwrap().settings("1"), ["a=1"]);
    }

    #[test]
    fn the_last_axis_is_the_fastest() {
        let text = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = combinations(&[text(&["a", "b"]), text(&["1", "2"])]);
        assert_eq!(all, [["a", "1"], ["a", "2"], ["b", "1"], ["b", "2"]].map(|p| text(&p)));
        assert_eq!(combinations(&[]), [Vec::<String>::new()]);
    }
}
