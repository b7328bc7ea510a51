//! `hyloc solve`: problems from JSON files, answers as JSON. Formats are those of `tests/vectors`.

pub mod angles;
pub mod complex;
pub mod crb;
pub mod delay;
pub mod locate;

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::say;

/// A kind of problem that comes as `{"cases": [...]}`.
pub trait Problem {
    /// Settings from the command line.
    type Settings;
    /// One case as read.
    type Case: DeserializeOwned;
    /// Its answer.
    type Answer: Serialize;

    /// Solves one case.
    fn solve(settings: &Self::Settings, case: &Self::Case) -> anyhow::Result<Self::Answer>;
}

/// A list of cases, or of their answers. Other fields of a file, such as notes, are passed over.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
pub struct Cases<T> {
    /// The cases.
    pub cases: Vec<T>,
}

/// Matrices of a list; errors name the entry of `name`.
fn matrices(list: &[complex::ComplexRows], name: &str) -> Result<Vec<model::CMatrix>, complex::Ragged> {
    list.iter().enumerate().map(|(i, rows)| rows.matrix(&format!("{name}[{i}]"))).collect()
}

/// Solves every case; an error names the case.
pub fn solve_all<P: Problem>(
    settings: &P::Settings,
    input: &Cases<P::Case>,
) -> anyhow::Result<Cases<P::Answer>> {
    let cases = input
        .cases
        .iter()
        .enumerate()
        .map(|(i, case)| P::solve(settings, case).with_context(|| format!("case {i}")))
        .collect::<anyhow::Result<_>>()?;
    Ok(Cases { cases })
}

/// Reads `input`, solves, and writes the answer to `output` or standard output.
pub fn run<P: Problem>(settings: &P::Settings, input: &Path, output: Option<&Path>) -> anyhow::Result<()> {
    let cases: Cases<P::Case> = serde_json::from_str(&read(input)?)
        .with_context(|| format!("{} is not a file of problems of this kind", input.display()))?;
    let answer = serde_json::to_string(&solve_all::<P>(settings, &cases)?)?;
    match output {
        Some(path) => {
            std::fs::write(path, answer + "\n").with_context(|| format!("cannot write {}", path.display()))
        }
        None => {
            say(&answer);
            Ok(())
        }
    }
}

fn read(input: &Path) -> anyhow::Result<String> {
    if input == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(input).with_context(|| format!("cannot read {}", input.display()))
}
