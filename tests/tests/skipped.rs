//! `.ci/test` counts and lists skipped tests, which are an error in CI.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hyloc_tests::process::{SKIPPED_TESTS, skipped};

/// Set where this executable runs as the test command whose tests are skipped.
const INNER: &str = "HYLOC_INNER_SKIPS";

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/test")
}

/// Runs `.ci/test` with `skips` skipped tests; in CI or not.
fn run(skips: usize, ci: bool) -> (Output, String) {
    let mut command = Command::new(script());
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "inner"]);
    command.env(INNER, skips.to_string()).env_remove(SKIPPED_TESTS).env_remove("CI");
    if ci {
        command.env("CI", "true");
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    (output, said)
}

/// The test command of the runs below; does nothing otherwise.
#[test]
fn inner() {
    let skips = std::env::var(INNER).map_or(0, |count| count.parse().unwrap());
    for index in 0..skips {
        skipped(&format!("inner::number_{index}"), "nobody is there");
    }
}

#[test]
fn skipped_tests_are_counted_and_named_and_fail_in_ci_alone() {
    for ci in [false, true] {
        let (output, said) = run(0, ci);
        assert!(output.status.success() && said.ends_with("\n0 skipped\n"), "{said}");
    }
    for ci in [false, true] {
        let (output, said) = run(2, ci);
        let named = "\n2 skipped:\ninner::number_0: nobody is there\ninner::number_1: nobody is there\n";
        assert!(said.ends_with(named), "{said}");
        assert_eq!(output.status.code(), Some(i32::from(ci)));
        let aside = String::from_utf8(output.stderr).unwrap();
        assert!(aside.contains("SKIPPED inner::number_1: nobody is there"), "past the capture: {aside}");
    }
}

/// A failed test command is an error regardless of skipped tests.
#[test]
fn a_failed_test_command_fails() {
    let status = Command::new(script()).arg("false").env_remove("CI").status().unwrap();
    assert_eq!(status.code(), Some(1));
}
