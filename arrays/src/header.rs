//! The header of a `.npy` file: type, order and shape of its entries.
//!
//! Magic, version, the length of what follows, and a Python dictionary with three keys. Only that dictionary is understood, not
//! Python's syntax in general.

use std::io::Read;

use crate::{ArrayError, shown};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Longest header; numpy itself refuses longer ones unless it is told to trust the file.
const LONGEST_HEADER: usize = 10_000;

/// Most dimensions of an array.
const MOST_SIDES: usize = 8;

/// Types of entries that are understood; all are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NpyType {
    Complex64,
    Complex128,
    Float32,
    Float64,
    /// An integer of this many bytes.
    Integer {
        bytes: usize,
        signed: bool,
    },
    /// Text of this many characters of four bytes.
    Text(usize),
    /// Text of this many bytes.
    Bytes(usize),
}

impl NpyType {
    /// The type of a description such as `<c16`; none if it is another.
    fn parse(text: &str) -> Option<Self> {
        let kind = text.trim_start_matches(['<', '|']);
        let number = |from: &str| from.parse::<usize>().ok().filter(|count| *count <= LONGEST_HEADER);
        let is_ordered = text.starts_with('<');
        Some(match (kind, is_ordered) {
            ("c8", true) => Self::Complex64,
            ("c16", true) => Self::Complex128,
            ("f4", true) => Self::Float32,
            ("f8", true) => Self::Float64,
            ("i1" | "i2" | "i4" | "i8" | "u1" | "u2" | "u4" | "u8", _) => {
                let bytes = number(&kind[1..])?;
                // Only a single byte has no order.
                if bytes > 1 && !is_ordered {
                    return None;
                }
                Self::Integer { bytes, signed: kind.starts_with('i') }
            }
            _ if kind.starts_with('U') && is_ordered => Self::Text(number(&kind[1..])?),
            _ if kind.starts_with('S') => Self::Bytes(number(&kind[1..])?),
            _ => return None,
        })
    }

    /// Bytes of an entry.
    pub fn bytes(self) -> usize {
        match self {
            Self::Complex128 => 16,
            Self::Complex64 | Self::Float64 => 8,
            Self::Float32 => 4,
            Self::Integer { bytes, .. } | Self::Bytes(bytes) => bytes,
            Self::Text(characters) => 4 * characters,
        }
    }

    fn description(self) -> String {
        match self {
            Self::Complex64 => "<c8".into(),
            Self::Complex128 => "<c16".into(),
            Self::Float32 => "<f4".into(),
            Self::Float64 => "<f8".into(),
            Self::Integer { bytes: 1, signed } => format!("|{}1", if signed { 'i' } else { 'u' }),
            Self::Integer { bytes, signed } => format!("<{}{bytes}", if signed { 'i' } else { 'u' }),
            Self::Text(characters) => format!("<U{characters}"),
            Self::Bytes(bytes) => format!("|S{bytes}"),
        }
    }
}

/// What the header of an array says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    pub entry: NpyType,
    /// The first index runs fastest.
    pub fortran: bool,
    pub shape: Vec<usize>,
}

impl NpyHeader {
    /// Reads the header of array `name`.
    pub fn read(name: &str, input: &mut impl Read) -> Result<Self, ArrayError> {
        let refuse = |reason: &str| ArrayError::Header { name: name.into(), reason: reason.into() };
        let cut = |_| refuse("its header is cut off");
        let mut start = [0; 8];
        input.read_exact(&mut start).map_err(cut)?;
        let [magic @ .., major, _] = &start;
        if magic != MAGIC {
            return Err(refuse("it does not begin with the signature of one"));
        }
        let length = match *major {
            1 => {
                let mut length = [0; 2];
                input.read_exact(&mut length).map_err(cut)?;
                usize::from(u16::from_le_bytes(length))
            }
            2 | 3 => {
                let mut length = [0; 4];
                input.read_exact(&mut length).map_err(cut)?;
                usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX)
            }
            version => return Err(refuse(&format!("version {version} of the format is not known"))),
        };
        if length > LONGEST_HEADER {
            return Err(refuse(&format!(
                "its header has {length} bytes, at most {LONGEST_HEADER} are accepted"
            )));
        }
        let mut text = vec![0; length];
        input.read_exact(&mut text).map_err(cut)?;
        let text = String::from_utf8(text).map_err(|_| refuse("its header is no text"))?;
        Self::parse(name, &text)
    }

    /// The header from its dictionary.
    fn parse(name: &str, text: &str) -> Result<Self, ArrayError> {
        let missing = |key: &str| ArrayError::Header {
            name: name.into(),
            reason: format!("its header has no valid '{key}'"),
        };
        let value = |key: &str| {
            let rest = text.split_once(&format!("'{key}'"))?.1;
            Some(rest.trim_start().strip_prefix(':')?.trim_start())
        };
        let description = value("descr").ok_or_else(|| missing("descr"))?;
        let description = match description.strip_prefix('\'').and_then(|rest| rest.split_once('\'')) {
            Some((description, _)) => description.to_owned(),
            // A list of fields.
            None => description.chars().take(40).collect(),
        };
        let entry = NpyType::parse(&description).ok_or_else(|| ArrayError::Type {
            name: name.into(),
            found: description,
            allowed: "a little-endian complex or real number, an integer or text",
        })?;
        let order = value("fortran_order").ok_or_else(|| missing("fortran_order"))?;
        let fortran = match (order.starts_with("True"), order.starts_with("False")) {
            (true, _) => true,
            (_, true) => false,
            _ => return Err(missing("fortran_order")),
        };
        let shape = value("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')'));
        let (sides, _) = shape.ok_or_else(|| missing("shape"))?;
        let sides = sides.split(',').map(str::trim).filter(|side| !side.is_empty());
        let shape: Result<Vec<usize>, _> = sides.map(str::parse).collect();
        let shape = shape.ok().filter(|shape| shape.len() <= MOST_SIDES).ok_or_else(|| missing("shape"))?;
        Ok(Self { entry, fortran, shape })
    }

    /// Number of entries; none if it is beyond any file.
    pub fn items(&self) -> Option<u64> {
        let sides = self.shape.iter().map(|side| *side as u64);
        let items = sides.into_iter().try_fold(1u64, u64::checked_mul)?;
        items.checked_mul(self.entry.bytes().max(1) as u64).map(|_| items)
    }

    /// The bytes of the header, which fill a multiple of 64.
    pub fn encode(&self) -> Vec<u8> {
        let order = if self.fortran { "True" } else { "False" };
        let mut text = format!(
            "{{'descr': '{}', 'fortran_order': {order}, 'shape': {}, }}",
            self.entry.description(),
            shown(&self.shape)
        );
        let before = MAGIC.len() + 4;
        while !(before + text.len() + 1).is_multiple_of(64) {
            text.push(' ');
        }
        text.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<NpyHeader, String> {
        NpyHeader::parse("echoes", text).map_err(|error| error.to_string())
    }

    #[test]
    fn headers_survive() {
        let types = [
            NpyType::Complex128,
            NpyType::Complex64,
            NpyType::Float64,
            NpyType::Integer { bytes: 8, signed: false },
            NpyType::Integer { bytes: 1, signed: true },
            NpyType::Text(4),
            NpyType::Bytes(3),
        ];
        for (entry, shape) in
            types.into_iter().zip([vec![], vec![3], vec![2, 3, 4], vec![0], vec![1, 1], vec![], vec![]])
        {
            let header = NpyHeader { entry, fortran: shape.len() > 1, shape };
            let bytes = header.encode();
            assert!(bytes.len().is_multiple_of(64) && bytes.ends_with(b"\n"));
            assert_eq!(NpyHeader::read("a", &mut bytes.as_slice()).unwrap(), header);
        }
    }

    #[test]
    fn what_numpy_writes_is_read() {
        let text = "{'descr': '<c16', 'fortran_order': False, 'shape': (5, 10, 100), }          \n";
        let header = parsed(text).unwrap();
        assert_eq!(
            (header.entry, header.fortran, header.shape.as_slice()),
            (NpyType::Complex128, false, &[5, 10, 100][..])
        );
        assert_eq!(header.items(), Some(5000));
        assert_eq!(parsed("{'descr':'<i8','fortran_order':True,'shape':(),}").unwrap().items(), Some(1));
    }

    #[test]
    fn other_types_are_refused_by_name() {
        for (description, found) in [("'>c16'", ">c16"), ("'|O'", "|O"), ("[('a', '<f8')]", "[('a'")] {
            let said =
                parsed(&format!("{{'descr': {description}, 'fortran_order': False, 'shape': (1,), }}"))
                    .unwrap_err();
            assert!(said.starts_with(&format!("echoes.dtype = {found}")), "{said}");
        }
        for (broken, key) in [("{}", "descr"), ("{'descr': '<f8', 'fortran_order': No", "fortran_order")] {
            assert!(parsed(broken).unwrap_err().ends_with(&format!("'{key}'")), "{broken}");
        }
        for sides in ["(-1,)", "(1", "(1,1,1,1,1,1,1,1,1)", "(99999999999999999999,)", "7"] {
            let said =
                parsed(&format!("{{'descr': '<f8', 'fortran_order': True, 'shape': {sides}")).unwrap_err();
            assert!(said.ends_with("'shape'"), "{said}");
        }
        let large = NpyHeader { entry: NpyType::Complex128, fortran: false, shape: vec![1 << 30; 3] };
        assert_eq!(large.items(), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in vec(any::<u8>(), 0..100)) {
            let _ = parsed(&String::from_utf8_lossy(&bytes));
            let _ = NpyHeader::read("a", &mut [MAGIC.as_slice(), &[1, 0], &bytes].concat().as_slice());
            let _ = NpyHeader::read("a", &mut bytes.as_slice());
        }
    }
}
