//! A TOML table made of layers: defaults, a file, environment variables, `key=value` pairs.
//!
//! A file is merged table by table. A variable or a pair replaces the value at its key whole, so that
//! `target.motion={line={...}}` takes the place of a circle. Keys are `table.key`, and `list[2].key` for an item
//! that is there. Values are numbers and truth values where they look like one, else TOML, else text.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::{Table, Value};

use crate::SettingsError;

/// What environment variables of the layers begin with.
const PREFIX: &str = "HYLOC__";

/// Longest text of a key or a value that is taken.
const LONGEST_TEXT: usize = 64 << 10;

/// Where settings come from, weakest first: the defaults of the type, `file`, `environment`, `overrides`.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables to look at; none means those of the process.
    pub environment: Option<HashMap<String, String>>,
    /// `key=value` pairs from the command line, with dots in the key.
    pub overrides: Vec<String>,
}

impl Layers {
    /// Defaults, `file`, and the environment of the process.
    pub fn from_file(file: impl AsRef<Path>) -> Self {
        Self { file: Some(file.as_ref().to_path_buf()), ..Self::default() }
    }

    pub(crate) fn origin(&self) -> String {
        match &self.file {
            Some(path) => path.display().to_string(),
            None => "settings".into(),
        }
    }

    pub(crate) fn refuse(&self, reason: impl ToString) -> SettingsError {
        SettingsError::Layers { origin: self.origin(), reason: reason.to_string() }
    }

    /// The table that the layers give over the defaults of `T`.
    pub(crate) fn resolve<T: Serialize + Default>(&self) -> Result<Table, SettingsError> {
        let mut table = Table::try_from(T::default()).map_err(|error| self.refuse(error))?;
        if let Some(path) = &self.file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| SettingsError::File { path: path.clone(), source })?;
            let file: Table =
                toml::from_str(&text).map_err(|error| self.refuse(format!("no valid TOML: {error}")))?;
            merge(&mut table, file);
        }
        for (key, value) in self.variables() {
            let path: Vec<Step> = key.split("__").map(|part| Step::Key(part.to_lowercase())).collect();
            let refuse = |reason| self.refuse(format!("{PREFIX}{key}: {reason}"));
            set(&mut table, &path, parsed(&value)).map_err(refuse)?;
        }
        for pair in &self.overrides {
            let (key, value) = pair.split_once('=').ok_or_else(|| SettingsError::Override(shown(pair)))?;
            let refuse = |reason: String| self.refuse(format!("{}: {reason}", shown(pair)));
            let path = steps(key.trim()).ok_or_else(|| SettingsError::Override(shown(pair)))?;
            set(&mut table, &path, parsed(value.trim())).map_err(refuse)?;
        }
        Ok(table)
    }

    /// Variables with the prefix, which is taken off, in an order that does not change from run to run.
    fn variables(&self) -> Vec<(String, String)> {
        let ours = |(key, value): (String, String)| {
            key.strip_prefix(PREFIX).filter(|key| !key.is_empty()).map(|key| (key.to_owned(), value))
        };
        let mut found: Vec<(String, String)> = match &self.environment {
            Some(given) => given.clone().into_iter().filter_map(ours).collect(),
            None => {
                let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
                    Some((key.into_string().ok()?, value.into_string().ok()?))
                };
                std::env::vars_os().filter_map(text).filter_map(ours).collect()
            }
        };
        found.sort();
        found
    }
}

/// A pair as an error shows it: not longer than a line.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(200).collect();
    if short.len() < text.len() { format!("{short}...") } else { short }
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(known)), Value::Table(new)) => merge(known, new),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// One step on the way to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// `a.b[2].c` as steps; none if it is no such key.
fn steps(key: &str) -> Option<Vec<Step>> {
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let mut steps = Vec::new();
    for part in key.split('.') {
        let mut pieces = part.split('[');
        let name = pieces.next().filter(|name| is_name(name))?;
        steps.push(Step::Key(name.to_owned()));
        for piece in pieces {
            steps.push(Step::Index(piece.strip_suffix(']')?.trim().parse().ok()?));
        }
    }
    (steps.len() <= 32).then_some(steps)
}

/// Puts `value` at the end of `path`. Tables on the way are made; items of lists must be there.
fn set(table: &mut Table, path: &[Step], value: Value) -> Result<(), String> {
    let Some((Step::Key(first), rest)) = path.split_first() else { return Err("no key".into()) };
    let mut place = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new()));
    for step in rest {
        place = match step {
            Step::Key(key) => {
                if !place.is_table() {
                    *place = Value::Table(Table::new());
                }
                let Value::Table(table) = place else { return Err("no table".into()) };
                table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()))
            }
            Step::Index(index) => {
                let Value::Array(items) = place else { return Err(format!("[{index}] of what is no list")) };
                let count = items.len();
                items
                    .get_mut(*index)
                    .ok_or_else(|| format!("[{index}] of a list of {count}, counted from 0"))?
            }
        };
    }
    *place = value;
    Ok(())
}

/// What a text stands for.
fn parsed(text: &str) -> Value {
    if let Ok(value) = text.parse::<bool>() {
        return Value::Boolean(value);
    }
    if let Ok(value) = text.parse::<i64>() {
        return Value::Integer(value);
    }
    if let Ok(value) = text.parse::<f64>() {
        return Value::Float(value);
    }
    as_toml(text).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// A list, an inline table or a quoted text.
fn as_toml(text: &str) -> Option<Value> {
    let quoted = text.starts_with(['[', '{', '"', '\'']) && text.len() <= LONGEST_TEXT;
    let mut table: Table = quoted.then(|| toml::from_str(&format!("value = {text}")))?.ok()?;
    // A text with a line break may have said more than one thing.
    let value = table.remove("value")?;
    table.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_and_indices() {
        let name = |name: &str| Step::Key(name.into());
        assert_eq!(steps("irs[2].position_m"), Some(vec![name("irs"), Step::Index(2), name("position_m")]));
        assert_eq!(steps("a[0][1]").unwrap().len(), 3);
        for bad in
            ["", ".", "a.", ".a", "a[", "a[x]", "a[-1]", "a[1", "a b", "a[99999999999999999999]", "[1]"]
        {
            assert_eq!(steps(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn texts_become_values() {
        assert_eq!(parsed("true"), Value::Boolean(true));
        assert_eq!(parsed("007"), Value::Integer(7));
        assert_eq!(parsed("1e3"), Value::Float(1000.0));
        assert_eq!(parsed("circle"), Value::String("circle".into()));
        assert_eq!(parsed("'7'"), Value::String("7".into()));
        assert_eq!(parsed("[1, 2]").as_array().unwrap().len(), 2);
        assert_eq!(parsed("{a = {b = 1}}")["a"]["b"].as_integer(), Some(1));
        assert_eq!(parsed("[1]\nseed = 3"), Value::String("[1]\nseed = 3".into()));
        assert_eq!(parsed("{a = "), Value::String("{a = ".into()));
    }

    #[test]
    fn lists_do_not_grow() {
        let mut table: Table = toml::from_str("list = [1, 2]").unwrap();
        assert!(set(&mut table, &steps("list[1]").unwrap(), Value::Integer(9)).is_ok());
        assert_eq!(table["list"][1].as_integer(), Some(9));
        let refused = set(&mut table, &steps("list[4000000000]").unwrap(), Value::Integer(9)).unwrap_err();
        assert!(refused.contains("a list of 2"), "{refused}");
    }
}
