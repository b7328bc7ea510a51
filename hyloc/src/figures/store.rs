//! The output directory: complete figures, and a manifest of how they were made.
//!
//! Every file is written under a temporary name and renamed; the manifest lists a figure only after all its files are in
//! place. An interrupted run therefore leaves only complete figures, beside the units of the one that was being made, and `--resume` can
//! trust the manifest: it keeps a figure if seed, trials and the sources that its numbers depend on are the same, and its CSV has the checksum of the
//! manifest.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use indicatif::ProgressIterator;
use serde::{Deserialize, Serialize};

use super::catalogue::Figure;
use super::rows::{Row, from_csv, to_csv};
use crate::commands::{PARTIAL, progress_bar, replace_file};

const MANIFEST: &str = "manifest.json";

/// What determines the numbers of a figure; `sources` is the checksum of the source files they depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub seed: u64,
    pub trials: u64,
    pub sources: String,
}

/// Data, plot and rendered plot of a figure, by their endings.
pub type FigureFiles = [(&'static str, Vec<u8>); 3];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestEntry {
    recipe: Recipe,
    /// Checksum of the CSV file.
    checksum: String,
}

#[derive(Debug)]
pub struct FigureStore {
    folder: PathBuf,
    entries: BTreeMap<String, ManifestEntry>,
}

impl FigureStore {
    /// Opens `folder`, creates it if necessary, and removes what an interruption left half-written.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        Self::prepare(folder)
            .with_context(|| format!("cannot write to the output directory {}", folder.display()))
    }

    fn prepare(folder: &Path) -> anyhow::Result<Self> {
        if folder.is_file() {
            bail!(io::Error::new(io::ErrorKind::NotADirectory, "it is a file"));
        }
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(PARTIAL) && path.is_file() {
                fs::remove_file(path)?;
            }
        }
        // An unreadable manifest counts as empty.
        let entries = fs::read_to_string(folder.join(MANIFEST))
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        Ok(Self { folder: folder.into(), entries })
    }

    /// Recipe and rows of a finished figure.
    pub fn finished(&self, figure: Figure) -> Option<(Recipe, Vec<Row>)> {
        let entry = self.entries.get(figure.name())?;
        let text = fs::read_to_string(self.path(&format!("{figure}.csv"))).ok()?;
        if checksum(&text) != entry.checksum || !self.path(&format!("{figure}.svg")).is_file() {
            return None;
        }
        Some((entry.recipe.clone(), from_csv(&text).ok()?))
    }

    /// Draws every finished figure again from its data; none is made or kept.
    pub fn redraw(
        &mut self,
        draw: impl Fn(Figure, String) -> anyhow::Result<FigureFiles>,
    ) -> anyhow::Result<Option<[usize; 2]>> {
        for figure in Figure::ALL.into_iter().progress_with(progress_bar(Figure::ALL.len(), "figures")) {
            if let Some((recipe, rows)) = self.finished(figure) {
                self.install(figure, &recipe, &draw(figure, to_csv(&rows))?)?;
            }
        }
        Ok(Some([0, 0]))
    }

    /// Whether the figure is finished and was made by this recipe.
    pub fn has(&self, figure: Figure, recipe: &Recipe) -> bool {
        self.finished(figure).is_some_and(|(made_by, _)| made_by == *recipe)
    }

    /// Writes the files of a figure and adds it to the manifest.
    pub fn install(&mut self, figure: Figure, recipe: &Recipe, files: &FigureFiles) -> anyhow::Result<()> {
        if self.entries.remove(figure.name()).is_some() {
            self.write_manifest()?;
        }
        for (ending, content) in files {
            self.write(&format!("{figure}.{ending}"), content)?;
        }
        let checksum = checksum(&String::from_utf8_lossy(&files[0].1));
        self.entries.insert(figure.name().into(), ManifestEntry { recipe: recipe.clone(), checksum });
        self.write_manifest()
    }

    /// Writes one file atomically.
    pub fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        replace_file(&self.path(name), content)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Directory of the finished units of a figure that is being made.
    pub fn units(&self, figure: Figure) -> PathBuf {
        self.path(&format!("{figure}{PARTIAL}"))
    }

    fn write_manifest(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.entries).context("the manifest cannot be written")?;
        self.write(MANIFEST, text.as_bytes())
    }
}

/// Detects an edited or truncated file.
fn checksum(text: &str) -> String {
    format!("{:016x}", model::random::index_of(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::statistics::Estimate;

    fn recipe(trials: u64) -> Recipe {
        Recipe { seed: 1, trials, sources: "a".into() }
    }

    #[test]
    fn only_a_whole_figure_of_the_same_recipe_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        let estimate = Estimate { value: 1.0, low: 0.5, high: 2.0 };
        let (scheme, metric) = ("music".into(), "mse_rad2".into());
        let csv = to_csv(&[Row { figure: Figure::AnglePower, x: 1.0, scheme, metric, estimate, trials: 3 }]);
        let files = [("csv", csv.clone().into()), ("svg", b"<svg/>".into()), ("png", b"png".into())];
        FigureStore::open(&out).unwrap().install(Figure::AnglePower, &recipe(3), &files).unwrap();

        let store = FigureStore::open(&out).unwrap();
        assert!(store.has(Figure::AnglePower, &recipe(3)));
        assert!(!store.has(Figure::AnglePower, &recipe(4)));
        let other_code = Recipe { sources: "b".into(), ..recipe(3) };
        assert!(!store.has(Figure::AnglePower, &other_code));
        assert!(!store.has(Figure::CrbSensors, &recipe(3)));
        fs::write(out.join("angle-power.csv"), csv.replace("0.5", "0.6")).unwrap();
        assert!(!FigureStore::open(&out).unwrap().has(Figure::AnglePower, &recipe(3)));
    }

    #[test]
    fn leftovers_of_an_interruption_are_cleared() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("angle-power.csv.partial"), "figure").unwrap();
        fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        FigureStore::open(folder.path()).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }

    #[test]
    fn a_folder_below_a_file_is_refused_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let message = format!("{:#}", FigureStore::open(&folder.path().join("file/out")).unwrap_err());
        assert!(message.starts_with("cannot write to the output directory"), "{message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
