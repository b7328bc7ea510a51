//! Values of SigMF metadata by their keys, so that an error names the key.

use serde_json::{Map, Value};

use super::EchoFault;

/// The keys of an object of the metadata.
#[derive(Debug, Clone)]
pub(super) struct MetadataKeys<'a> {
    /// Where the object is, with a dot; empty for `global`.
    pub place: String,
    pub values: &'a Map<String, Value>,
}

impl MetadataKeys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.place)
    }

    pub fn refuse(&self, key: &str, rule: impl Into<String>) -> EchoFault {
        let value = self.values.get(key).map(shown).unwrap_or_default();
        EchoFault::key(self.name(key), value, rule)
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, EchoFault> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.refuse(key, "must be a text"))
    }

    pub fn real(&self, key: &str) -> Result<Option<f64>, EchoFault> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| self.refuse(key, "must be a number"))
    }

    /// An integer, as a number or, for languages without 64 bits, as a text of digits.
    pub fn integer(&self, key: &str) -> Result<Option<u64>, EchoFault> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number.map(Some).ok_or_else(|| self.refuse(key, "must be an integer from 0 to 2^64 - 1"))
    }

    pub fn required<T>(&self, key: &str, value: Option<T>, rule: &str) -> Result<T, EchoFault> {
        value.ok_or_else(|| EchoFault::missing(self.name(key), rule))
    }
}

/// A value as one line.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        other => other.to_string(),
    }
}

/// A hash of 64 hexadecimal digits.
pub(super) fn hash(key: &str, text: &str) -> Result<[u8; 32], EchoFault> {
    let digits = |at: usize| text.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..32).map(digits).collect();
    let hash = bytes.filter(|_| text.len() == 64).and_then(|bytes| bytes.try_into().ok());
    hash.ok_or_else(|| EchoFault::key(key, text, "must have 64 hexadecimal digits"))
}
