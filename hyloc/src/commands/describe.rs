//! `hyloc completions` and `hyloc man`: the command line as described to a shell and to `man`.

use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{say, write_file};
use crate::cli::HylocArguments;

/// Prints the completion script of a shell.
pub fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut HylocArguments::command(), "hyloc", &mut script);
    say(String::from_utf8_lossy(&script).trim_end());
}

/// Writes a manual page for every command and prints their paths.
pub fn man(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut command = HylocArguments::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, directory)
}

fn write_pages(command: &Command, directory: &Path) -> anyhow::Result<()> {
    let page = Man::new(command.clone()).source(concat!("hyloc ", env!("CARGO_PKG_VERSION")));
    let (path, mut text) = (directory.join(page.get_filename()), Vec::new());
    page.render(&mut text)?;
    // Examples are indented: they are neither filled nor hyphenated.
    let unfilled = |line: &str| match line.starts_with("  ") {
        true => format!(".nf\n{line}\n.fi\n"),
        false => format!("{line}\n"),
    };
    let text: String = String::from_utf8_lossy(&text).lines().map(unfilled).collect();
    write_file(&path, text.as_bytes())?;
    say(&path.display().to_string());
    command.get_subcommands().try_for_each(|command| write_pages(command, directory))
}
