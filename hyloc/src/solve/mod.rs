//! `hyloc solve`: problems and answers as JSON, in the formats of `tests/vectors`.

pub mod angles;
pub mod complex;
pub mod crb;
pub mod delay;
pub mod direct;
pub mod limits;
pub mod locate;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use indicatif::ProgressIterator;
use serde::Serialize;
use serde::de::DeserializeOwned;
use telemetry::exit::{self, Failure};

use self::limits::MOST_INPUT_BYTES;
use crate::commands::{progress_bar, say, write_file};

/// A problem of a file `{"cases": [...]}`.
pub trait Problem: DeserializeOwned {
    /// Settings from the command line.
    type Settings;
    type Answer: Serialize;

    fn solve(&self, settings: &Self::Settings) -> anyhow::Result<Self::Answer>;
}

/// A list of problems, or of their answers. Other fields of a file, such as notes, are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
pub struct Cases<T> {
    pub cases: Vec<T>,
}

#[derive(Debug, Args)]
pub struct SolveFiles {
    /// JSON file with the problems under "cases"; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Output file; standard output by default.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Converts a list of matrices; errors name the entry of `name`.
fn matrices(list: &[complex::ComplexRows], name: &str) -> Result<Vec<model::CMatrix>, complex::MatrixError> {
    list.iter().enumerate().map(|(i, rows)| rows.matrix(&format!("{name}[{i}]"))).collect()
}

/// Checks that a table has one entry for each pair of `count` IRSs.
fn ensure_square<T>(name: &str, table: &[Vec<T>], count: usize) -> anyhow::Result<()> {
    ensure!(
        table.len() == count && table.iter().all(|row| row.len() == count),
        "{name}: expected a table of {count} x {count}, one entry for each pair of IRSs"
    );
    Ok(())
}

/// Solves every case; an error names the case.
pub fn solve_all<P: Problem>(settings: &P::Settings, input: &Cases<P>) -> anyhow::Result<Cases<P::Answer>> {
    let solve = |(i, case): (usize, &P)| {
        case.solve(settings).with_context(|| Failure::new(exit::DATA, format!("case {i}")))
    };
    let cases = input.cases.iter().enumerate().progress_with(progress_bar(input.cases.len(), "problems"));
    Ok(Cases { cases: cases.map(solve).collect::<anyhow::Result<_>>()? })
}

/// Reads the problems, solves them, and writes the answers.
pub fn run<P: Problem>(
    settings: &P::Settings,
    SolveFiles { input, output }: &SolveFiles,
) -> anyhow::Result<()> {
    let other = || format!("{} is not a file of problems of this kind", input.display());
    let cases: Cases<P> =
        serde_json::from_str(&read(input)?).with_context(|| Failure::new(exit::DATA, other()))?;
    let answer = serde_json::to_string(&solve_all(settings, &cases)?)?;
    match output {
        Some(path) => write_file(path, (answer + "\n").as_bytes()),
        None => {
            say(&answer);
            Ok(())
        }
    }
}

/// Reads a file or standard input up to the limit.
fn read(input: &Path) -> anyhow::Result<String> {
    let refuse = || format!("cannot read {}", input.display());
    let reader: Box<dyn Read> = match input == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(input).with_context(refuse)?),
    };
    let mut text = String::new();
    reader.take(MOST_INPUT_BYTES + 1).read_to_string(&mut text).with_context(refuse)?;
    ensure!(
        text.len() as u64 <= MOST_INPUT_BYTES,
        Failure::new(
            exit::DATA,
            format!("{}: more than {MOST_INPUT_BYTES} bytes: split it", input.display())
        )
    );
    Ok(text)
}
