//! Python with the packages of `tests/requirements.txt`, for tests of what other programs read.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::skipped;

/// Variable with the path of an interpreter to use instead.
const PYTHON: &str = "HYLOC_PYTHON";

/// The interpreter of the environment that `.ci/python` makes, if it can import all `packages`; otherwise reports the
/// test as skipped.
pub fn python(test: &str, packages: &[&str]) -> Option<PathBuf> {
    let made = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python-venv/bin/python");
    let interpreter = std::env::var_os(PYTHON).map_or_else(made, PathBuf::from);
    let import = format!("import {}", packages.join(", "));
    let found = Command::new(&interpreter).args(["-c", &import]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(interpreter);
    }
    skipped(test, &format!("no Python with {}: run .ci/python", packages.join(", ")));
    None
}

/// Path of a script in `tests/python`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(name)
}
