//! The numbered examples print what their sources say, and a crate outside the workspace can use the estimators.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use hyloc_tests::process::cargo;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The comment lines after `// Output:` at the end of a source.
fn expected_output(source: &str) -> String {
    let (_, block) = source.split_once("\n// Output:\n").expect("an example ends with its output");
    let line =
        |line: &str| line.strip_prefix("//").map(|text| text.strip_prefix(' ').unwrap_or(text).to_owned());
    block.lines().map(|text| line(text).expect("a comment") + "\n").collect()
}

#[test]
fn every_example_prints_what_its_source_says() {
    // Built with the tests of the workspace; this builds them for a single test.
    succeed(&mut cargo(&["build", "--quiet", "--workspace", "--examples"]));
    // target/debug/deps/this-test
    let test = env::current_exe().unwrap();
    let executables = test.ancestors().nth(2).unwrap().join("examples");
    for (package, name) in [
        ("estimation", "01_bound"),
        ("estimation", "02_echoes_to_fix"),
        ("estimation", "03_own_estimator"),
        ("hyloc", "04_pipeline_in_process"),
    ] {
        let source = fs::read_to_string(root().join(format!("{package}/examples/{name}.rs"))).unwrap();
        assert!(source.lines().count() < 60, "{name} is too long");
        let printed = succeed(&mut Command::new(executables.join(name))).stdout;
        assert_eq!(String::from_utf8(printed).unwrap(), expected_output(&source), "{name}");
    }
}

/// Locates the target of Table I with nothing but the estimators.
const OUTSIDE: &str = r#"
use hyloc_estimation::delay::DelayEstimator;
use hyloc_estimation::fusion::{Estimator, FrameBlocks, Fuser, FusionSettings, PayloadKind};
use hyloc_estimation::model::{EchoSource, Scenario};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = EchoSource::new(&Scenario::default())?;
    let (system, target_m) = (source.system(), source.target_m(0));
    let mut frame = FrameBlocks::new(system.irs_count());
    for l in 0..system.irs_count() {
        let report = DelayEstimator::new(system, l)?.estimate(&source.frame(l, 0, target_m))?;
        frame.insert_node(l, report, PayloadKind::Spectrum);
    }
    let fixes = Fuser::new(system.clone(), FusionSettings::default())?.estimate(&frame)?;
    let error_m = (fixes[0].position_m - target_m).norm();
    assert!(error_m < 0.2, "{error_m} m");
    Ok(())
}
"#;

/// A package of its own, with the estimators as its only dependency; the build directory is kept, so that only the first
/// run takes long.
#[test]
fn a_crate_outside_the_workspace_locates_a_target() {
    assert!(OUTSIDE.lines().count() < 25);
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let dependency = root().join("estimation").canonicalize().unwrap();
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nhyloc-estimation = {{ path = {dependency:?} }}\n\n\
         [profile.dev]\nopt-level = 1\ndebug = false\n"
    );
    fs::create_dir_all(package.join("src")).unwrap();
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    fs::write(package.join("src/main.rs"), OUTSIDE).unwrap();
    fs::copy(root().join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("outside");
    let mut build = cargo(&["build", "--quiet", "--offline"]);
    succeed(build.current_dir(&package).env("CARGO_TARGET_DIR", &target));
    succeed(&mut Command::new(target.join("debug/outside")));
}
