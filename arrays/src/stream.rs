//! The entries of an array as they come.

use std::io::{ErrorKind, Read};

use num_complex::Complex64;

use crate::header::{NpyHeader, NpyType};
use crate::{ArrayError, shown};

/// Entries that are read at once.
const PIECE: usize = 4096;

/// An array in memory, row by row: the last index runs fastest.
#[derive(Debug, Clone, PartialEq)]
pub struct NpyArray<T> {
    pub shape: Vec<usize>,
    pub values: Vec<T>,
}

impl<T> NpyArray<T> {
    /// The shape as Python writes it.
    pub fn shown(&self) -> String {
        shown(&self.shape)
    }
}

/// Reads the entries of an array in the order of the file.
#[derive(Debug)]
pub struct NpyStream<R> {
    pub name: String,
    pub header: NpyHeader,
    input: R,
    items: u64,
    taken: u64,
    buffer: Vec<u8>,
}

impl<R: Read> NpyStream<R> {
    /// Reads the header; the entries follow.
    pub fn open(name: &str, mut input: R) -> Result<Self, ArrayError> {
        let header = NpyHeader::read(name, &mut input)?;
        let items = header.items().ok_or_else(|| ArrayError::Size {
            name: name.into(),
            items: shown(&header.shape),
            most: usize::MAX / 16,
        })?;
        Ok(Self { name: name.into(), header, input, items, taken: 0, buffer: Vec::new() })
    }

    /// Byte of the data at which the next entry begins.
    pub fn byte(&self) -> u64 {
        self.taken * self.header.entry.bytes() as u64
    }

    /// The shape as Python writes it.
    pub fn shown_shape(&self) -> String {
        shown(&self.header.shape)
    }

    /// The error for a type that is not `allowed`.
    pub fn wrong_type(&self, allowed: &'static str) -> ArrayError {
        let found = format!("{:?}", self.header.entry).to_lowercase();
        ArrayError::Type { name: self.name.clone(), found, allowed }
    }

    /// The error for a shape that is not `allowed`.
    pub fn wrong_shape(&self, allowed: impl Into<String>) -> ArrayError {
        ArrayError::Shape { name: self.name.clone(), found: self.shown_shape(), allowed: allowed.into() }
    }

    /// Fills `out` with complex numbers; real ones have no imaginary part.
    pub fn read_complex(&mut self, out: &mut [Complex64]) -> Result<(), ArrayError> {
        let read: fn(&[u8]) -> Complex64 = match self.header.entry {
            NpyType::Complex128 => |b| Complex64::new(f64_at(b), f64_at(&b[8..])),
            NpyType::Complex64 => |b| Complex64::new(f32_at(b), f32_at(&b[4..])),
            _ => return Err(self.wrong_type("complex64 or complex128")),
        };
        self.fill(out, read)
    }

    fn fill<T>(&mut self, out: &mut [T], read: impl Fn(&[u8]) -> T) -> Result<(), ArrayError> {
        let bytes = self.header.entry.bytes().max(1);
        for piece in out.chunks_mut(PIECE) {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(piece.len() * bytes, 0);
            self.bytes_into(&mut buffer)?;
            for (entry, from) in piece.iter_mut().zip(buffer.chunks_exact(bytes)) {
                *entry = read(from);
            }
            self.taken += piece.len() as u64;
            self.buffer = buffer;
        }
        Ok(())
    }

    fn bytes_into(&mut self, buffer: &mut [u8]) -> Result<(), ArrayError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => return Err(self.cut(filled)),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_end(&error) => return Err(self.cut(filled)),
                Err(error) => {
                    let byte = self.byte() + filled as u64;
                    return Err(ArrayError::Damaged {
                        name: self.name.clone(),
                        byte,
                        reason: error.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    fn cut(&self, filled: usize) -> ArrayError {
        let items = self.taken + (filled / self.header.entry.bytes().max(1)) as u64;
        let byte = self.byte() + filled as u64;
        ArrayError::Cut { name: self.name.clone(), byte, items, expected: self.items }
    }

    /// Reads to the end, where the archive compares the checksum.
    pub fn finish(mut self) -> Result<(), ArrayError> {
        let ended = std::io::copy(&mut self.input, &mut std::io::sink());
        let damaged = |error: std::io::Error| ArrayError::Damaged {
            name: self.name.clone(),
            byte: self.taken * self.header.entry.bytes() as u64,
            reason: error.to_string(),
        };
        ended.map(drop).map_err(damaged)
    }

    /// All entries, row by row; an error if there are more than `most`.
    fn all<T: Clone + Default>(
        mut self,
        most: usize,
        read: impl Fn(&[u8]) -> T,
    ) -> Result<NpyArray<T>, ArrayError> {
        let items = usize::try_from(self.items).ok().filter(|items| *items <= most).ok_or_else(|| {
            ArrayError::Size { name: self.name.clone(), items: self.items.to_string(), most }
        })?;
        let mut values = Vec::new();
        while values.len() < items {
            let from = values.len();
            values.resize(items.min(from + PIECE), T::default());
            self.fill(&mut values[from..], &read)?;
        }
        let NpyHeader { fortran, shape, .. } = self.header.clone();
        self.finish()?;
        if fortran {
            values = by_rows(&shape, &values);
        }
        Ok(NpyArray { shape, values })
    }

    /// The whole array as complex numbers.
    pub fn complex(self, most: usize) -> Result<NpyArray<Complex64>, ArrayError> {
        match self.header.entry {
            NpyType::Complex128 => self.all(most, |b| Complex64::new(f64_at(b), f64_at(&b[8..]))),
            NpyType::Complex64 => self.all(most, |b| Complex64::new(f32_at(b), f32_at(&b[4..]))),
            _ => Err(self.wrong_type("complex64 or complex128")),
        }
    }

    /// The whole array as real numbers.
    pub fn reals(self, most: usize) -> Result<NpyArray<f64>, ArrayError> {
        match self.header.entry {
            NpyType::Float64 => self.all(most, f64_at),
            NpyType::Float32 => self.all(most, f32_at),
            NpyType::Integer { .. } => {
                let NpyArray { shape, values } = self.integers(most)?;
                Ok(NpyArray { shape, values: values.into_iter().map(|value| value as f64).collect() })
            }
            _ => Err(self.wrong_type("float32, float64 or an integer type")),
        }
    }

    /// The whole array as integers that are not negative.
    pub fn integers(self, most: usize) -> Result<NpyArray<u64>, ArrayError> {
        let NpyType::Integer { bytes, signed } = self.header.entry else {
            return Err(self.wrong_type("an integer type"));
        };
        let name = self.name.clone();
        let array = self.all(most, |from| {
            let mut digits = [0; 8];
            digits[..bytes].copy_from_slice(&from[..bytes]);
            u64::from_le_bytes(digits)
        })?;
        // The sign is the highest bit of the type.
        let sign = |value: &u64| signed && value >> (8 * bytes - 1) == 1;
        match array.values.iter().position(sign) {
            None => Ok(array),
            Some(at) => {
                Err(ArrayError::Header { name: format!("{name}[{at}]"), reason: "it is negative".into() })
            }
        }
    }

    /// A single text.
    pub fn text(self) -> Result<String, ArrayError> {
        let name = self.name.clone();
        let entry = self.header.entry;
        let bytes = match entry {
            NpyType::Text(_) | NpyType::Bytes(_) => self.all(1, <[u8]>::to_vec)?.values.concat(),
            _ => return Err(self.wrong_type("a text")),
        };
        let character =
            |digits: &[u8]| char::from_u32(digits.first_chunk().map_or(0, |d| u32::from_le_bytes(*d)));
        let text: Option<String> = match entry {
            NpyType::Text(_) => bytes.chunks_exact(4).map(character).collect(),
            _ => String::from_utf8(bytes).ok(),
        };
        let text = text.ok_or(ArrayError::Header { name, reason: "its text is not valid".into() })?;
        Ok(text.trim_end_matches('\0').to_owned())
    }
}

/// Whether a read failed because there is no more data: `zip` compares the checksum there, and that of half an array is wrong.
fn is_end(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof || error.to_string() == "Invalid checksum"
}

/// The entries row by row, from the order in which the first index runs fastest.
fn by_rows<T: Clone>(shape: &[usize], values: &[T]) -> Vec<T> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1usize;
    for side in shape {
        strides.push(stride);
        stride = stride.saturating_mul(*side);
    }
    let place = |mut row: usize| {
        let mut at = 0;
        for (side, stride) in shape.iter().zip(&strides).rev() {
            at += row % side * stride;
            row /= side;
        }
        at
    };
    (0..values.len()).map(|row| values[place(row)].clone()).collect()
}

fn f64_at(bytes: &[u8]) -> f64 {
    bytes.first_chunk().map_or(f64::NAN, |digits| f64::from_le_bytes(*digits))
}

fn f32_at(bytes: &[u8]) -> f64 {
    bytes.first_chunk().map_or(f64::NAN, |digits| f64::from(f32::from_le_bytes(*digits)))
}
