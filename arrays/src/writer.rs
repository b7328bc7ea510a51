//! Writes an archive without compression, as `numpy.savez` does.

use std::io::{Seek, Write};

use num_complex::Complex64;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::header::{NpyHeader, NpyType};

/// Writes arrays one after another.
#[derive(Debug)]
pub struct NpzWriter<W: Write + Seek> {
    archive: ZipWriter<W>,
}

impl<W: Write + Seek> NpzWriter<W> {
    pub fn new(output: W) -> Self {
        Self { archive: ZipWriter::new(output) }
    }

    /// Begins an array, whose entries are then written as bytes.
    pub fn begin(&mut self, name: &str, entry: NpyType, shape: &[usize]) -> std::io::Result<()> {
        let options =
            SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
        self.archive.start_file(format!("{name}.npy"), options)?;
        self.write(&NpyHeader { entry, fortran: false, shape: shape.to_vec() }.encode())
    }

    /// Writes entries of the array that was begun last.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.archive.write_all(bytes)
    }

    /// A complex array, row by row.
    pub fn complex(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl IntoIterator<Item = Complex64>,
    ) -> std::io::Result<()> {
        let parts = values.into_iter().flat_map(|value| [value.re, value.im]);
        self.begin(name, NpyType::Complex128, shape)?;
        self.write(&parts.flat_map(f64::to_le_bytes).collect::<Vec<u8>>())
    }

    /// A real array, row by row.
    pub fn reals(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl IntoIterator<Item = f64>,
    ) -> std::io::Result<()> {
        self.begin(name, NpyType::Float64, shape)?;
        self.write(&values.into_iter().flat_map(f64::to_le_bytes).collect::<Vec<u8>>())
    }

    /// An array of unsigned integers, row by row.
    pub fn integers(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl IntoIterator<Item = u64>,
    ) -> std::io::Result<()> {
        self.begin(name, NpyType::Integer { bytes: 8, signed: false }, shape)?;
        self.write(&values.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
    }

    /// A single text.
    pub fn text(&mut self, name: &str, text: &str) -> std::io::Result<()> {
        self.begin(name, NpyType::Text(text.chars().count()), &[])?;
        self.write(&text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Writes the directory of the archive; returns the output.
    pub fn finish(self) -> std::io::Result<W> {
        Ok(self.archive.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::ops::ControlFlow;

    use crate::{ArrayError, NpzArchive, scan};

    use super::*;

    fn archive() -> Vec<u8> {
        let mut writer = NpzWriter::new(Cursor::new(Vec::new()));
        writer.integers("frame", &[3], [7, 8, u64::MAX]).unwrap();
        writer.text("domain", "time").unwrap();
        writer.reals("noise", &[], [0.25]).unwrap();
        let values = (0..6).map(|n| Complex64::new(f64::from(n), -0.5));
        writer.complex("echoes", &[2, 3], values).unwrap();
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn arrays_survive() {
        let mut archive = NpzArchive::open(Cursor::new(archive())).unwrap();
        assert_eq!(archive.names(), ["frame", "domain", "noise", "echoes"]);
        assert_eq!(archive.array("frame").unwrap().integers(3).unwrap().values, [7, 8, u64::MAX]);
        assert_eq!(archive.array("domain").unwrap().text().unwrap(), "time");
        assert_eq!(archive.array("noise").unwrap().reals(1).unwrap().values, [0.25]);
        let echoes = archive.array("echoes").unwrap().complex(6).unwrap();
        assert_eq!((echoes.shape, echoes.values[5]), (vec![2, 3], Complex64::new(5.0, -0.5)));
        assert!(archive.is_stored("echoes") && archive.contains("noise") && !archive.contains("run"));
        assert!(matches!(archive.array("run"), Err(ArrayError::Missing { .. })));
        let refused = archive.array("echoes").unwrap().integers(6).unwrap_err().to_string();
        assert_eq!(refused, "echoes.dtype = complex128: must be an integer type");
        assert!(matches!(archive.array("frame").unwrap().integers(2), Err(ArrayError::Size { .. })));
    }

    #[test]
    fn fortran_order_is_turned_round() {
        let mut writer = NpzWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default();
        writer.archive.start_file("a.npy", options).unwrap();
        writer
            .write(&NpyHeader { entry: NpyType::Float64, fortran: true, shape: vec![2, 3] }.encode())
            .unwrap();
        // Columns one after another.
        let columns = [0.0, 10.0, 1.0, 11.0, 2.0, 12.0];
        writer.write(&columns.into_iter().flat_map(f64::to_le_bytes).collect::<Vec<u8>>()).unwrap();
        let bytes = writer.finish().unwrap().into_inner();
        let array = NpzArchive::open(Cursor::new(bytes)).unwrap().array("a").unwrap().reals(6).unwrap();
        assert_eq!(array.values, [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
    }

    #[test]
    fn a_cut_archive_is_read_from_its_beginning() {
        let whole = archive();
        let at = whole.windows(6).rposition(|window| window == b"\x93NUMPY").unwrap();
        let cut = &whole[..at + 128 + 40];
        assert!(NpzArchive::open(Cursor::new(cut)).is_err());
        let (mut names, mut read) = (Vec::new(), [Complex64::ZERO; 2]);
        let mut ended = None;
        scan(&mut &cut[..], |mut stream| {
            names.push(stream.name.clone());
            if stream.name == "echoes" {
                stream.read_complex(&mut read).unwrap();
                ended = stream.read_complex(&mut [Complex64::ZERO; 1]).err();
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!((names.len(), read[1]), (4, Complex64::new(1.0, -0.5)));
        let said = ended.unwrap().to_string();
        assert_eq!(said, "echoes: ends at byte 40 of its data, after 2 of 6 entries");
    }

    #[test]
    fn a_changed_byte_is_found_by_the_checksum() {
        let mut bytes = archive();
        let at = bytes.windows(6).rposition(|window| window == b"\x93NUMPY").unwrap();
        bytes[at + 128 + 3] ^= 1;
        let refused = NpzArchive::open(Cursor::new(bytes)).unwrap().array("echoes").unwrap().complex(6);
        assert!(matches!(refused, Err(ArrayError::Damaged { .. })), "{refused:?}");
    }
}
