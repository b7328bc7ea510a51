//! A TOML table made of layers: defaults, a file, environment variables, `key=value` pairs.
//!
//! A file is merged table by table. A variable or a pair replaces the whole value of its key, so that
//! `target.motion={line={...}}` replaces a circle. Keys are `table.key`, and `list[2].key` for an existing item; `list.key` is
//! refused.
//! A value is parsed as a boolean, an integer, a floating-point number or TOML, in this order, and else taken as text.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::{Table, Value};

use crate::{MOST_SETTINGS_BYTES, SettingsError, read_at_most};

/// Prefix of the environment variables.
const PREFIX: &str = "HYLOC__";

/// Longest value that is parsed as TOML.
const LONGEST_TEXT: usize = 64 << 10;

/// Sources of settings, weakest first: the defaults of the type, `file`, `environment`, `overrides`.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    pub file: Option<PathBuf>,
    /// Environment variables; none means those of the process.
    pub environment: Option<HashMap<String, String>>,
    /// `key=value` pairs from the command line, with dots in the key.
    pub overrides: Vec<String>,
}

impl Layers {
    pub fn from_file(file: impl AsRef<Path>) -> Self {
        Self { file: Some(file.as_ref().to_path_buf()), ..Self::default() }
    }

    fn origin(&self) -> String {
        self.file.as_ref().map_or("settings".into(), |path| path.display().to_string())
    }

    pub(crate) fn refuse(&self, reason: impl ToString) -> SettingsError {
        SettingsError::Layers { origin: self.origin(), reason: reason.to_string() }
    }

    /// The file without the layers above it.
    pub(crate) fn file_alone(file: &Path) -> Self {
        Self { environment: Some(HashMap::new()), ..Self::from_file(file) }
    }

    /// The defaults of `T` with all layers applied.
    pub(crate) fn resolve<T: Serialize + Default>(&self) -> Result<Table, SettingsError> {
        let mut table = Table::try_from(T::default()).map_err(|error| self.refuse(error))?;
        if let Some(path) = &self.file {
            let invalid = |error| SettingsError::content(path, format!("no valid TOML: {error}"));
            merge(&mut table, toml::from_str(&read_at_most(path, MOST_SETTINGS_BYTES)?).map_err(invalid)?);
        }
        for (key, value) in self.variables() {
            let path: Vec<Step> = key.split("__").map(|part| Step::Key(part.to_lowercase())).collect();
            let refuse = |reason| self.refuse(format!("{PREFIX}{key}: {reason}"));
            set(&mut table, &path, parsed(&value)).map_err(refuse)?;
        }
        self.overridden(table)
    }

    /// A table with the `key=value` pairs applied.
    pub(crate) fn overridden(&self, mut table: Table) -> Result<Table, SettingsError> {
        for pair in &self.overrides {
            let parts = pair.split_once('=').and_then(|(key, value)| Some((steps(key.trim())?, value)));
            let (path, value) = parts.ok_or_else(|| SettingsError::Override(shown(pair)))?;
            let refuse = |reason: String| self.refuse(format!("{}: {reason}", shown(pair)));
            set(&mut table, &path, parsed(value.trim())).map_err(refuse)?;
        }
        Ok(table)
    }

    /// The defaults of `T` with a text of TOML applied.
    pub(crate) fn resolve_text<T: Serialize + Default>(&self, text: &str) -> Result<Table, SettingsError> {
        if text.len() as u64 > MOST_SETTINGS_BYTES {
            return Err(self.refuse(format!("more than {MOST_SETTINGS_BYTES} bytes")));
        }
        let mut table = Table::try_from(T::default()).map_err(|error| self.refuse(error))?;
        let over = toml::from_str(text).map_err(|error| self.refuse(format!("no valid TOML: {error}")))?;
        merge(&mut table, over);
        Ok(table)
    }

    /// Variables with the prefix, without it, in alphabetical order.
    fn variables(&self) -> BTreeMap<String, String> {
        let all = self.environment.clone().unwrap_or_else(|| {
            std::env::vars_os()
                .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
                .collect()
        });
        all.into_iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?.to_owned(), value)))
            .filter(|(key, _)| !key.is_empty())
            .collect()
    }
}

/// A pair as shown in an error: cut off after 200 characters.
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

/// One step of the path to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// The steps of a key such as `a.b[2].c`; none if the key is invalid.
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

/// Sets the value at `path`. Missing tables are created; items of lists must exist.
fn set(table: &mut Table, path: &[Step], value: Value) -> Result<(), String> {
    let empty = || Value::Table(Table::new());
    let Some((Step::Key(first), rest)) = path.split_first() else { return Err("no key".into()) };
    let mut place = table.entry(first.clone()).or_insert_with(empty);
    for step in rest {
        place = match step {
            Step::Key(key) => {
                if let Value::Array(items) = place {
                    return Err(format!(
                        "{key} of a list of {}: name its items, as in [0].{key}",
                        items.len()
                    ));
                }
                if !place.is_table() {
                    *place = empty();
                }
                let Value::Table(table) = place else { return Err("no table".into()) };
                table.entry(key.clone()).or_insert_with(empty)
            }
            Step::Index(index) => {
                let Value::Array(items) = place else {
                    return Err(format!("[{index}] of a value that is no list"));
                };
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

/// The value that a text stands for.
fn parsed(text: &str) -> Value {
    let boolean = text.parse().map(Value::Boolean);
    let number =
        boolean.or_else(|_| text.parse().map(Value::Integer)).or_else(|_| text.parse().map(Value::Float));
    number.ok().or_else(|| as_toml(text)).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// A list, an inline table or a quoted text.
fn as_toml(text: &str) -> Option<Value> {
    let quoted = text.starts_with(['[', '{', '"', '\'']) && text.len() <= LONGEST_TEXT;
    let mut table: Table = quoted.then(|| toml::from_str(&format!("value = {text}")))?.ok()?;
    // A text with a line break may contain further keys.
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
        let refused = set(&mut table, &steps("list.key").unwrap(), Value::Integer(9)).unwrap_err();
        assert!(refused.contains("key of a list of 2"), "{refused}");
    }
}
