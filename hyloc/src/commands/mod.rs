//! Short subcommands, and what all of them share: files and output to the terminal.

pub mod certs;
pub mod describe;
pub mod replay;
pub mod scenario;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use telemetry::exit::{self, Failure};
/// A note goes to standard error while a long command runs, a result to standard output.
pub use telemetry::{note, print_text as say};

/// Writes a file; the error names it.
pub fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Ending of what is not complete yet.
pub const PARTIAL: &str = ".partial";

/// Writes a file under a temporary name and renames it, so that it is complete or not there. The name is unique: shards on
/// several machines may write the same file of one folder at once.
pub fn replace_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    let mut partial = tempfile::Builder::new();
    partial.prefix(name).suffix(PARTIAL);
    #[cfg(unix)]
    partial.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let written = || -> std::io::Result<()> {
        let mut file = partial.tempfile_in(folder)?;
        std::io::Write::write_all(&mut file, content)?;
        file.persist(path)?;
        Ok(())
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

/// The text that `write` writes, without white space at its end.
pub fn written(write: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out);
    out.truncate(out.trim_end().len());
    out
}

/// Reserves standard output for fixes if they go there, which excludes `--json`.
pub fn reserve_stdout(fixes: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let reserved = fixes.is_some_and(fusion_center::is_stdout);
    let refusal = "--fixes - and --json both write to standard output: give --fixes a file, or omit --json";
    ensure!(!(reserved && json), Failure::new(exit::USAGE, refusal));
    if reserved {
        telemetry::reserve_stdout();
    }
    Ok(())
}

/// Moves a fix log of an earlier run aside and says so.
pub fn move_aside(fixes: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = fixes.filter(|path| !fusion_center::is_stdout(path)) else { return Ok(()) };
    if let Some(aside) = fusion_center::fix_log::move_aside(path)? {
        note(&format!("{} exists: it is now {}", path.display(), aside.display()));
    }
    Ok(())
}

/// A progress bar that is cleared at the end; hidden if standard error is not a terminal.
pub fn progress_bar(length: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{spinner} {msg:18} {bar:30} {pos}/{len}, {elapsed} elapsed, {eta} left",
    );
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(length as u64).with_style(style).with_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.with_finish(ProgressFinish::AndClear)
}
