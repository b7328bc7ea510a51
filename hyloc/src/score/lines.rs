//! Lines of a file, and what is wrong with one: file, line, key.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde_json::Value;
use telemetry::exit::{self, Failure};

/// Longest line that is read.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// Says what is wrong with a line of a file; an empty key is left out.
pub fn line_error(path: &Path, line: usize, key: &str, problem: impl std::fmt::Display) -> Failure {
    let colon = if key.is_empty() { "" } else { ": " };
    Failure::new(exit::DATA, format!("{}, line {line}: {key}{colon}{problem}", path.display()))
}

/// All lines of a file that are not empty, with their numbers.
pub fn lines(path: &Path) -> anyhow::Result<impl Iterator<Item = anyhow::Result<(usize, String)>>> {
    let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let (mut input, path) = (BufReader::new(file), path.to_path_buf());
    let mut number = 0;
    let next = move || {
        let mut line = Vec::new();
        number += 1;
        let read = input.by_ref().take(MOST_LINE_BYTES + 1).read_until(b'\n', &mut line);
        match read.with_context(|| format!("{} cannot be read", path.display())) {
            Ok(0) => None,
            Err(error) => Some(Err(error)),
            Ok(_) if line.len() as u64 > MOST_LINE_BYTES => {
                let problem = format!("more than {MOST_LINE_BYTES} bytes");
                Some(Err(line_error(&path, number, "", problem).into()))
            }
            Ok(_) => Some(match String::from_utf8(line) {
                Ok(line) => Ok((number, line)),
                Err(_) => Err(line_error(&path, number, "", "is not text in UTF-8").into()),
            }),
        }
    };
    // Nothing is read behind an error.
    let mut failed = false;
    let lines =
        std::iter::from_fn(next).take_while(move |line| !std::mem::replace(&mut failed, line.is_err()));
    Ok(lines.filter(|line| line.as_ref().map_or(true, |(_, line)| !line.trim().is_empty())))
}

/// Reads a JSON object of a line.
pub fn object(path: &Path, line: usize, text: &str) -> Result<Value, Failure> {
    let value: Value = serde_json::from_str(text).map_err(|error| line_error(path, line, "", error))?;
    match value.is_object() {
        true => Ok(value),
        false => Err(line_error(path, line, "", "is not a JSON object")),
    }
}

/// What a JSON object means; an error names the key.
pub fn meaning<T: DeserializeOwned>(path: &Path, line: usize, value: &Value) -> Result<T, Failure> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let key = error.path().to_string();
        let key = if key == "." { "" } else { key.as_str() };
        line_error(path, line, key, error.inner())
    })
}
