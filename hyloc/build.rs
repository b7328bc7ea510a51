//! Tells the program which sources the numbers of its figures and sweeps depend on.

#[path = "src/sources.rs"]
mod sources;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/sources.rs");
    let all =
        [("HYLOC_FIGURE_SOURCES", &sources::FIGURES[..]), ("HYLOC_SWEEP_SOURCES", &sources::SWEEPS[..])];
    for (variable, parts) in all {
        for part in parts.iter().map(|part| workspace.join(part)).filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", part.display());
        }
        let digest = sources::digest(parts, &workspace, env!("CARGO_PKG_VERSION"))?;
        println!("cargo::rustc-env={variable}={digest}");
    }
    Ok(())
}
