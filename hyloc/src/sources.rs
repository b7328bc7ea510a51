//! What code the numbers of figures and sweeps depend on, as one checksum over their source files.
//!
//! Compiled into the build script, which hands the checksum to the program, and into the tests.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Files and folders of the workspace: the model, the estimators, the tracker, the wire, how scenarios and settings are read, the
/// plans of the figures, the Monte Carlo itself, and the versions of all libraries. Plots, claims and reports are made from the data and
/// do not count.
pub const SOURCES: [&str; 21] = [
    "Cargo.lock",
    "model/src",
    "estimation/src",
    "tracking/src",
    "proto/hyloc",
    "proto/src",
    "settings/src/layers.rs",
    "settings/src/scenario.rs",
    "fusion-center/src/method.rs",
    "hyloc/plans",
    "hyloc/src/scene.rs",
    "hyloc/src/figures/catalogue.rs",
    "hyloc/src/figures/rows.rs",
    "hyloc/src/figures/statistics.rs",
    "hyloc/src/sweep/chain.rs",
    "hyloc/src/sweep/engine.rs",
    "hyloc/src/sweep/grid.rs",
    "hyloc/src/sweep/measure",
    "hyloc/src/sweep/plan.rs",
    "hyloc/src/sweep/rows.rs",
    "hyloc/src/sweep/settings.rs",
];

/// Checksum of all parts below `workspace`. A part that is not there, as in a package taken out of the workspace,
/// counts by `version`.
pub fn digest(workspace: &Path, version: &str) -> io::Result<String> {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for part in SOURCES {
        let path = workspace.join(part);
        if !path.exists() {
            hash.add(part.as_bytes());
            hash.add(version.as_bytes());
            continue;
        }
        for file in files(&path)? {
            let name = file.strip_prefix(workspace).unwrap_or(&file);
            hash.add(name.to_string_lossy().as_bytes());
            hash.add(&fs::read(&file)?);
        }
    }
    Ok(format!("{:016x}", hash.0))
}

/// All files at or below `path`, in order of their names.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.into()]);
    }
    let mut entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries.iter().map(|entry| files(entry)).collect::<io::Result<Vec<_>>>()?.concat())
}

/// FNV-1a of 64 bits: notices a change, and does not have to withstand an attack.
struct Fnv(u64);

impl Fnv {
    /// Adds bytes and where they end.
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().copied().chain((bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn copy(from: &Path, to: &Path) {
        for part in SOURCES {
            for file in files(&from.join(part)).unwrap() {
                let target = to.join(file.strip_prefix(from).unwrap());
                fs::create_dir_all(target.parent().unwrap()).unwrap();
                fs::copy(file, target).unwrap();
            }
        }
    }

    #[test]
    fn one_changed_byte_in_any_part_is_another_digest() {
        let folder = tempfile::tempdir().unwrap();
        copy(&workspace(), folder.path());
        let before = digest(folder.path(), "0").unwrap();
        assert_eq!(before, digest(&workspace(), "0").unwrap(), "the place does not matter");
        assert_eq!(before, digest(folder.path(), "1").unwrap(), "nor does the version");
        let changed = [
            "model/src/fisher.rs",
            "estimation/src/angles/literal.rs",
            "hyloc/src/sweep/measure/end_to_end.rs",
        ];
        for file in changed.map(|file| folder.path().join(file)) {
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, format!("{text}\n")).unwrap();
            assert_ne!(digest(folder.path(), "0").unwrap(), before, "{}", file.display());
            fs::write(&file, text).unwrap();
        }
        assert_eq!(digest(folder.path(), "0").unwrap(), before);
    }

    #[test]
    fn the_program_knows_the_digest_of_its_sources() {
        let now = digest(&workspace(), env!("CARGO_PKG_VERSION")).unwrap();
        assert_eq!(now, env!("HYLOC_SOURCES"));
    }
}
