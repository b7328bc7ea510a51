//! Arrays in numpy's `.npz` files: a ZIP archive with one `.npy` file per array.
//!
//! A file may come from anywhere: memory is taken as its bytes come, whatever lengths it claims, and the error names the array
//! and the place. [`NpzArchive`] reads a whole archive by the names of its arrays, [`scan`] one that is cut off, from its beginning;
//! [`NpzWriter`] writes one, without compression. [`NpyStream`] reads a long array piece by piece.

mod archive;
mod header;
mod stream;
mod writer;

pub use archive::{NpzArchive, NpzEntry, scan};
pub use header::{NpyHeader, NpyType};
pub use stream::{NpyArray, NpyStream};
pub use writer::NpzWriter;

/// Why an array cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    #[error("no archive of numpy arrays: {0}")]
    Archive(String),
    #[error("{name}: there is no such array")]
    Missing { name: String },
    #[error("{name}: no numpy array: {reason}")]
    Header { name: String, reason: String },
    #[error("{name}.dtype = {found}: must be {allowed}")]
    Type { name: String, found: String, allowed: &'static str },
    #[error("{name}.shape = {found}: must be {allowed}")]
    Shape { name: String, found: String, allowed: String },
    #[error("{name}: {items} entries, at most {most} are accepted")]
    Size { name: String, items: String, most: usize },
    #[error("{name}: ends at byte {byte} of its data, after {items} of {expected} entries")]
    Cut { name: String, byte: u64, items: u64, expected: u64 },
    #[error(
        "{name}: the data does not match its checksum or cannot be unpacked, at byte {byte} of its data: {reason}"
    )]
    Damaged { name: String, byte: u64, reason: String },
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// A shape as Python writes it.
pub(crate) fn shown(shape: &[usize]) -> String {
    let sides: Vec<String> = shape.iter().map(usize::to_string).collect();
    match sides.as_slice() {
        [one] => format!("({one},)"),
        all => format!("({})", all.join(", ")),
    }
}
