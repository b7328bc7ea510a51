//! The output directory: figures that are whole or absent, and a manifest of what made them.
//!
//! Every file is written beside its place and renamed into it; the manifest names a figure only after all
//! its files are in place. An interrupted run therefore leaves finished figures and nothing half-written, and
//! `--resume` can trust what the manifest says: it takes a figure over when seed, trials and the sources that its numbers
//! depend on are the same, and its CSV is what the manifest remembers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::catalogue::Figure;
use super::rows::{Row, from_csv, to_csv};

const MANIFEST: &str = "manifest.json";
const PARTIAL: &str = ".partial";

/// What determines a figure's numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Seed of the run.
    pub seed: u64,
    /// Trials per point.
    pub trials: u64,
    /// Checksum of the sources that the numbers depend on.
    pub sources: String,
}

/// A figure's plot.
#[derive(Debug, Clone)]
pub struct Drawing {
    /// As SVG.
    pub svg: String,
    /// The same, rendered.
    pub png: Vec<u8>,
}

/// What the manifest says of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    recipe: Recipe,
    /// Checksum of the CSV file.
    checksum: String,
}

/// An output directory.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    entries: BTreeMap<String, Entry>,
}

impl Store {
    /// Opens `folder`, makes it where it is missing, and makes sure that it can be written to.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let missing = first_missing(folder);
        let opened = Self::prepare(folder);
        if opened.is_err() {
            // Leave nothing behind that was not there before; what cannot be removed was not made.
            if let Some(made) = missing {
                let _ = fs::remove_dir_all(made);
            }
        }
        opened.with_context(|| format!("cannot write to the output directory {}", folder.display()))
    }

    fn prepare(folder: &Path) -> anyhow::Result<Self> {
        if folder.exists() && !folder.is_dir() {
            bail!("it is a file");
        }
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(PARTIAL) {
                fs::remove_file(path)?;
            }
        }
        let probe = folder.join(format!("probe{PARTIAL}"));
        fs::write(&probe, [])?;
        fs::remove_file(&probe)?;
        // A manifest that cannot be read vouches for nothing.
        let entries = fs::read_to_string(folder.join(MANIFEST))
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        Ok(Self { folder: folder.into(), entries })
    }

    /// Rows of a figure that is finished, whatever made it.
    pub fn finished(&self, figure: Figure) -> Option<(Recipe, Vec<Row>)> {
        let entry = self.entries.get(figure.name())?;
        let text = fs::read_to_string(self.path(&format!("{figure}.csv"))).ok()?;
        if checksum(&text) != entry.checksum || !self.path(&format!("{figure}.svg")).is_file() {
            return None;
        }
        Some((entry.recipe.clone(), from_csv(&text).ok()?))
    }

    /// Draws every finished figure again from its data.
    pub fn redraw(&mut self, draw: impl Fn(Figure, &[Row]) -> anyhow::Result<Drawing>) -> anyhow::Result<()> {
        for figure in Figure::ALL {
            if let Some((recipe, rows)) = self.finished(figure) {
                self.install(figure, &recipe, &to_csv(&rows), &draw(figure, &rows)?)?;
            }
        }
        Ok(())
    }

    /// Rows of a figure that is finished and was made by this recipe.
    pub fn matching(&self, figure: Figure, recipe: &Recipe) -> Option<Vec<Row>> {
        self.finished(figure).filter(|(made_by, _)| made_by == recipe).map(|(_, rows)| rows)
    }

    /// Puts a finished figure in place.
    pub fn install(
        &mut self,
        figure: Figure,
        recipe: &Recipe,
        csv: &str,
        drawing: &Drawing,
    ) -> anyhow::Result<()> {
        if self.entries.remove(figure.name()).is_some() {
            self.write_manifest()?;
        }
        self.write(&format!("{figure}.csv"), csv.as_bytes())?;
        self.write(&format!("{figure}.svg"), drawing.svg.as_bytes())?;
        self.write(&format!("{figure}.png"), &drawing.png)?;
        let entry = Entry { recipe: recipe.clone(), checksum: checksum(csv) };
        self.entries.insert(figure.name().into(), entry);
        self.write_manifest()
    }

    /// Writes one file whole.
    pub fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let (partial, path) = (self.path(&format!("{name}{PARTIAL}")), self.path(name));
        let written = fs::write(&partial, content).and_then(|()| fs::rename(&partial, &path));
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Where a file of this directory is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write_manifest(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.entries).context("the manifest cannot be written")?;
        self.write(MANIFEST, text.as_bytes())
    }
}

/// The topmost folder of `path` that does not exist yet.
fn first_missing(path: &Path) -> Option<PathBuf> {
    path.ancestors().filter(|a| !a.as_os_str().is_empty() && !a.exists()).last().map(Path::to_path_buf)
}

/// FNV-1a of 64 bits: enough to notice a file that was edited or cut short.
fn checksum(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rows::Table;
    use crate::figures::statistics::Estimate;

    fn recipe(trials: u64) -> Recipe {
        Recipe { seed: 1, trials, sources: "a".into() }
    }

    #[test]
    fn only_a_whole_figure_of_the_same_recipe_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        let mut table = Table::new(Figure::AnglePower, 3);
        table.add(1.0, "music", "mse_rad2", Estimate { value: 1.0, low: 0.5, high: 2.0 });
        let csv = to_csv(&table.into_rows());
        let drawing = Drawing { svg: "<svg/>".into(), png: b"png".into() };
        Store::open(&out).unwrap().install(Figure::AnglePower, &recipe(3), &csv, &drawing).unwrap();

        let store = Store::open(&out).unwrap();
        assert_eq!(store.matching(Figure::AnglePower, &recipe(3)).unwrap().len(), 1);
        assert!(store.matching(Figure::AnglePower, &recipe(4)).is_none());
        let other_code = Recipe { sources: "b".into(), ..recipe(3) };
        assert!(store.matching(Figure::AnglePower, &other_code).is_none());
        assert!(store.matching(Figure::CrbSensors, &recipe(3)).is_none());
        fs::write(out.join("angle-power.csv"), csv.replace("0.5", "0.6")).unwrap();
        assert!(Store::open(&out).unwrap().matching(Figure::AnglePower, &recipe(3)).is_none());
    }

    #[test]
    fn leftovers_of_an_interruption_are_cleared() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("angle-power.csv.partial"), "figure").unwrap();
        fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        Store::open(folder.path()).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }

    #[test]
    fn a_folder_below_a_file_is_refused_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let message = format!("{:#}", Store::open(&folder.path().join("file/out")).unwrap_err());
        assert!(message.starts_with("cannot write to the output directory"), "{message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
