//! The output directory: complete figures, and a manifest of how they were made.
//!
//! Every file is written under a temporary name and renamed; the manifest lists a figure only after all its files are in
//! place. An interrupted run therefore leaves only complete figures, and `--resume` can trust the manifest: it keeps a
//! figure if seed, trials and the sources that its numbers depend on are the same, and its CSV has the checksum of the
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
use crate::commands::progress_bar;

const MANIFEST: &str = "manifest.json";
const PARTIAL: &str = ".partial";

/// What determines the numbers of a figure; `sources` is the checksum of the source files they depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub seed: u64,
    pub trials: u64,
    pub sources: String,
}

/// The plot of a figure; the PNG is the rendered SVG.
#[derive(Debug, Clone)]
pub struct Drawing {
    pub svg: String,
    pub png: Vec<u8>,
}

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
    /// Opens `folder`, creates it if necessary, and checks that it is writable.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let missing = first_missing(folder);
        let opened = Self::prepare(folder);
        if opened.is_err() {
            // Removes the folders that were created; removal fails if none was.
            if let Some(made) = missing {
                let _ = fs::remove_dir_all(made);
            }
        }
        opened.with_context(|| format!("cannot write to the output directory {}", folder.display()))
    }

    fn prepare(folder: &Path) -> anyhow::Result<Self> {
        if folder.exists() && !folder.is_dir() {
            bail!(io::Error::new(io::ErrorKind::NotADirectory, "it is a file"));
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

    /// Draws every finished figure again from its data.
    pub fn redraw(&mut self, draw: impl Fn(Figure, &[Row]) -> anyhow::Result<Drawing>) -> anyhow::Result<()> {
        for figure in Figure::ALL.into_iter().progress_with(progress_bar(Figure::ALL.len(), "figures")) {
            if let Some((recipe, rows)) = self.finished(figure) {
                self.install(figure, &recipe, &to_csv(&rows), &draw(figure, &rows)?)?;
            }
        }
        Ok(())
    }

    /// Whether the figure is finished and was made by this recipe.
    pub fn has(&self, figure: Figure, recipe: &Recipe) -> bool {
        self.finished(figure).is_some_and(|(made_by, _)| made_by == *recipe)
    }

    /// Writes the files of a figure and adds it to the manifest.
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
        let entry = ManifestEntry { recipe: recipe.clone(), checksum: checksum(csv) };
        self.entries.insert(figure.name().into(), entry);
        self.write_manifest()
    }

    /// Writes one file atomically.
    pub fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let (partial, path) = (self.path(&format!("{name}{PARTIAL}")), self.path(name));
        let written = fs::write(&partial, content).and_then(|()| fs::rename(&partial, &path));
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written.with_context(|| format!("cannot write {}", path.display()))
    }

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

/// Detects an edited or truncated file.
fn checksum(text: &str) -> String {
    format!("{:016x}", model::random::index_of(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rows::FigureRows;
    use crate::figures::statistics::Estimate;

    fn recipe(trials: u64) -> Recipe {
        Recipe { seed: 1, trials, sources: "a".into() }
    }

    #[test]
    fn only_a_whole_figure_of_the_same_recipe_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        let mut rows = FigureRows::new(Figure::AnglePower, 3);
        rows.add(1.0, "music", "mse_rad2", Estimate { value: 1.0, low: 0.5, high: 2.0 });
        let csv = to_csv(&rows.into_rows());
        let drawing = Drawing { svg: "<svg/>".into(), png: b"png".into() };
        FigureStore::open(&out).unwrap().install(Figure::AnglePower, &recipe(3), &csv, &drawing).unwrap();

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
