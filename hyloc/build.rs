//! Tells the program which sources the numbers of its figures depend on.

#[path = "src/figures/sources.rs"]
mod sources;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for part in sources::PARTS.map(|part| workspace.join(part)).iter().filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", part.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let digest = sources::digest(&workspace, env!("CARGO_PKG_VERSION"))?;
    println!("cargo::rustc-env=HYLOC_FIGURE_SOURCES={digest}");
    Ok(())
}
