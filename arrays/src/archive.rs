//! The archive: arrays by name, or from its beginning if its end is missing.

use std::io::{Read, Seek};
use std::ops::ControlFlow;

use zip::ZipArchive;
use zip::read::{ZipFile, read_zipfile_from_stream};
use zip::result::ZipError;

use crate::{ArrayError, NpyStream};

/// Most arrays of an archive.
const MOST_ARRAYS: usize = 4096;

/// The ending of the files in the archive.
const ENDING: &str = ".npy";

/// The bytes of an array in an archive.
pub type NpzEntry<'a, R> = ZipFile<'a, R>;

/// A whole archive.
#[derive(Debug)]
pub struct NpzArchive<R> {
    archive: ZipArchive<R>,
}

impl<R: Read + Seek> NpzArchive<R> {
    pub fn open(input: R) -> Result<Self, ArrayError> {
        let archive = ZipArchive::new(input).map_err(of_archive)?;
        if archive.len() > MOST_ARRAYS {
            return Err(ArrayError::Archive(format!(
                "{} arrays, at most {MOST_ARRAYS} are accepted",
                archive.len()
            )));
        }
        Ok(Self { archive })
    }

    /// Names of the arrays, in the order of the archive.
    pub fn names(&self) -> Vec<String> {
        let names = self.archive.file_names().filter_map(Result::ok);
        names.filter_map(|name| name.strip_suffix(ENDING).map(str::to_owned)).collect()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.archive.index_for_name(&format!("{name}{ENDING}")).is_some()
    }

    /// The array of this name.
    pub fn array(&mut self, name: &str) -> Result<NpyStream<NpzEntry<'_, R>>, ArrayError> {
        let entry = self.archive.by_name(&format!("{name}{ENDING}")).map_err(|error| match error {
            ZipError::FileNotFound => ArrayError::Missing { name: name.into() },
            other => of_entry(name, other),
        })?;
        NpyStream::open(name, entry)
    }

    /// Whether the array of this name is stored without compression, so that it is not longer than its file.
    pub fn is_stored(&mut self, name: &str) -> bool {
        let entry = self.archive.by_name(&format!("{name}{ENDING}"));
        entry.is_ok_and(|entry| entry.size() <= entry.compressed_size())
    }
}

/// Reads the arrays from the beginning of an archive in their order, without the directory at its end, until it is cut off or
/// `visit` breaks.
pub fn scan<R: Read>(
    input: &mut R,
    mut visit: impl FnMut(NpyStream<NpzEntry<'_, R>>) -> ControlFlow<()>,
) -> Result<(), ArrayError> {
    for _ in 0..MOST_ARRAYS {
        let Some(entry) = read_zipfile_from_stream(input).map_err(of_archive)? else { return Ok(()) };
        let name = entry.name().map(|name| name.into_owned()).unwrap_or_default();
        let Some(name) = name.strip_suffix(ENDING) else { continue };
        if visit(NpyStream::open(name, entry)?).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

fn of_archive(error: ZipError) -> ArrayError {
    match error {
        ZipError::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => ArrayError::Io(error),
        other => ArrayError::Archive(other.to_string()),
    }
}

fn of_entry(name: &str, error: ZipError) -> ArrayError {
    ArrayError::Header { name: name.into(), reason: error.to_string() }
}
