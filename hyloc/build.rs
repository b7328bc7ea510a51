//! Tells the program which sources the numbers of its figures and sweeps depend on.

#[path = "src/sources.rs"]
mod sources;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/sources.rs");
    for part in sources::SOURCES.iter().map(|part| workspace.join(part)).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", part.display());
    }
    println!("cargo::rustc-env=HYLOC_SOURCES={}", sources::digest(&workspace, env!("CARGO_PKG_VERSION"))?);
    Ok(())
}
