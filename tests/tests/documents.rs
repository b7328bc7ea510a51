//! The documents point at what is there. What they say of the figures is tested in `hyloc/tests/claims.rs`.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every link to a file of the project leads somewhere.
#[test]
fn links_lead_somewhere() {
    let folders = ["", "benchmarks", "deploy", "docs", "docs/figures", "tests/vectors"];
    let mut seen = 0;
    for folder in folders.map(|folder| root().join(folder)) {
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
            for link in read(&file).split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
                if link.is_empty() || link.contains("://") {
                    continue;
                }
                seen += 1;
                assert!(folder.join(link).exists(), "{}: {link} is not there", file.display());
            }
        }
    }
    assert!(seen > 20, "{seen} links");
}
