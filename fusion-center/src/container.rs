//! Reads an MCAP file that may be damaged, truncated or hostile.
//!
//! The reader of the `mcap` crate ends at the first fault and allocates what a record claims as its length. Here every
//! length is compared with the size of the file before anything is allocated, the checksum of every chunk is verified
//! before a message of it is returned, and a fault is returned as [`Damage`] with its place, after which reading
//! continues behind it:
//!
//! - A chunk whose checksum does not match is skipped.
//! - The length of a chunk is stated three times; if one of them differs, the other two decide.
//! - If the framing is lost, the next chunk is found by these redundant lengths.
//! - A file that ends within a chunk, such as that of a process that was killed, has no checksum for this chunk. Its
//!   complete messages are returned, after a [`ContainerEvent::Truncated`].
//!
//! Memory is bounded by the largest chunk, which is at most the size of the file; time is linear in that size.

mod records;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use mcap::MAGIC;
use mcap::records::op;

use self::records::parse_record;

/// Opcode and length.
const PREFIX: u64 = 1 + 8;

/// Header of a chunk without compression: times, size, checksum, name of the compression, compressed size.
const CHUNK_HEADER: u64 = 8 + 8 + 8 + 4 + 4 + 8;

/// A length that the writer sets when a chunk begins and replaces when it ends.
const UNFINISHED: u64 = u64::MAX;

/// Longest metadata record that is read; longer ones are skipped.
const MOST_METADATA: u64 = 64 << 10;

/// A message of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub channel: u16,
    pub sequence: u32,
    /// When it was recorded, nanoseconds since the Unix epoch.
    pub time_ns: u64,
    pub data: Vec<u8>,
}

/// A fault of the file and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// First byte, and the first byte after it.
    pub bytes: [u64; 2],
    pub problem: String,
    /// Whether messages are lost.
    pub loses: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [from, to] = self.bytes;
        let end = if self.loses { ", skipped" } else { ", no message is lost" };
        write!(f, "bytes {from} to {to}: {}{end}", self.problem)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerEvent {
    Channel {
        id: u16,
        topic: String,
    },
    Entry(Entry),
    Metadata(BTreeMap<String, String>),
    Damage(Damage),
    /// The file ends without its last records at this byte; messages that follow are not covered by a checksum.
    Truncated(u64),
}

/// Reads the events of an MCAP file from its start to the end of its data.
pub struct Container<R> {
    input: BufReader<R>,
    size: u64,
    offset: u64,
    /// Records of the current chunk that have not been returned.
    chunk: Vec<u8>,
    chunk_at: usize,
    /// Place of the first of [`Self::chunk`].
    chunk_offset: u64,
    done: bool,
    sections: Option<ContainerEvent>,
    damaged: bool,
}

impl<R: Read + Seek> Container<R> {
    /// Starts at the beginning of `input`; reads it once to verify the checksum of all its data.
    pub fn new(input: R) -> io::Result<Self> {
        Self::start_at(input, true)
    }

    /// The same without the checksum of all data; chunks are verified all the same.
    pub fn by_chunks(input: R) -> io::Result<Self> {
        Self::start_at(input, false)
    }

    fn start_at(mut input: R, whole: bool) -> io::Result<Self> {
        let size = input.seek(SeekFrom::End(0))?;
        let mut input = BufReader::with_capacity(64 << 10, input);
        let sections = verify_sections(&mut input, size, whole)?;
        input.seek(SeekFrom::Start(0))?;
        Ok(Self {
            input,
            size,
            offset: 0,
            chunk: Vec::new(),
            chunk_at: 0,
            chunk_offset: 0,
            done: false,
            sections,
            damaged: false,
        })
    }

    /// The next event; none at the end.
    fn next_event(&mut self) -> io::Result<Option<ContainerEvent>> {
        loop {
            if self.chunk_at < self.chunk.len() {
                if let Some(event) = self.next_in_chunk() {
                    return Ok(Some(event));
                }
                continue;
            }
            if self.done {
                // Damage of a chunk changes the checksum of the whole, too; it is reported once.
                let sections = self.sections.take();
                return Ok(
                    sections.filter(|event| !self.damaged || !matches!(event, ContainerEvent::Damage(_)))
                );
            }
            let event = if self.offset == 0 { self.start()? } else { self.next_record()? };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    fn start(&mut self) -> io::Result<Option<ContainerEvent>> {
        let mut magic = [0; 8];
        if self.size < magic.len() as u64 {
            self.done = true;
            return Ok(None);
        }
        self.input.read_exact(&mut magic)?;
        self.offset = magic.len() as u64;
        let damage = (magic != *MAGIC).then(|| self.damage([0, 8], "no MCAP file begins like this", false));
        Ok(damage)
    }

    /// Reads one record outside of chunks. Its body is skipped unless it is needed.
    fn next_record(&mut self) -> io::Result<Option<ContainerEvent>> {
        let from = self.offset;
        let remaining = self.size - from;
        if remaining < PREFIX {
            // That the file is truncated is known from the absence of its end.
            self.done = true;
            return Ok(None);
        }
        let mut prefix = [0; PREFIX as usize];
        self.input.read_exact(&mut prefix)?;
        let (opcode, length) = (prefix[0], u64_at(&prefix, 1));
        let fits = length <= remaining - PREFIX;
        match opcode {
            op::CHUNK => return self.read_chunk(from, length),
            op::DATA_END if fits && length == 4 => {
                self.done = true;
                return Ok(None);
            }
            _ => {}
        }
        let body = if fits { self.read_body(opcode, length)? } else { None };
        match body.map(|body| parse_record(opcode, length, &body)) {
            Some(Some(event)) => {
                self.offset = self.input.seek(SeekFrom::Start(from + PREFIX + length))?;
                Ok(event)
            }
            // An incomplete record at the end, or damage: if chunks follow, the framing is lost.
            _ => self.resume(from, "the record is damaged"),
        }
    }

    /// The body of a record that is parsed, or its first bytes if only their consistency is checked.
    fn read_body(&mut self, opcode: u8, length: u64) -> io::Result<Option<Vec<u8>>> {
        let needed = match opcode {
            op::HEADER | op::METADATA => length.min(MOST_METADATA),
            op::MESSAGE_INDEX => length.min(6),
            op::CHANNEL | op::MESSAGE => length,
            op::SCHEMA | op::ATTACHMENT => 0,
            _ => return Ok(None),
        };
        let mut body = vec![0; needed as usize];
        self.input.read_exact(&mut body)?;
        Ok(Some(body))
    }

    /// Reads a chunk and verifies it.
    fn read_chunk(&mut self, from: u64, length: u64) -> io::Result<Option<ContainerEvent>> {
        let data_from = from + PREFIX + CHUNK_HEADER;
        if data_from > self.size {
            return self.resume(from, "the chunk is incomplete");
        }
        let header = self.read_chunk_header()?;
        let Some((records, agreed)) = header.records(length, self.size - data_from) else {
            return self.salvage(from, data_from, length, &header);
        };
        let mut chunk = vec![0; records as usize];
        self.input.read_exact(&mut chunk)?;
        self.offset = data_from + records;
        let bytes = [from, self.offset];
        if header.crc != 0 && crc32fast::hash(&chunk) != header.crc {
            return Ok(Some(self.damage(bytes, "the checksum of the chunk does not match", true)));
        }
        (self.chunk, self.chunk_at, self.chunk_offset) = (chunk, 0, data_from);
        let problem = match (agreed, header.crc) {
            (_, 0) => "the chunk has no checksum",
            (false, _) => "the header of the chunk is damaged",
            (true, _) => return Ok(None),
        };
        Ok(Some(self.damage(bytes, problem, false)))
    }

    fn read_chunk_header(&mut self) -> io::Result<ChunkHeader> {
        let mut header = [0; CHUNK_HEADER as usize];
        self.input.read_exact(&mut header)?;
        Ok(ChunkHeader::parse(&header))
    }

    /// A chunk that does not end in the file: the last one of a truncated file, or one with damaged lengths.
    fn salvage(
        &mut self,
        from: u64,
        data_from: u64,
        length: u64,
        header: &ChunkHeader,
    ) -> io::Result<Option<ContainerEvent>> {
        let complete = !matches!(self.sections, Some(ContainerEvent::Truncated(_)));
        let next = self.find_chunk(from + 1)?;
        let too_long = |size: u64| size > self.size - data_from;
        let cut = header.compression == 0 && too_long(header.compressed) && too_long(length);
        if complete || next.is_some() || !cut {
            return self.resume(from, "the lengths of the chunk are damaged or it is compressed");
        }
        self.input.seek(SeekFrom::Start(data_from))?;
        let mut chunk = vec![0; (self.size - data_from) as usize];
        self.input.read_exact(&mut chunk)?;
        (self.chunk, self.chunk_at, self.chunk_offset) = (chunk, 0, data_from);
        (self.offset, self.done, self.sections) = (self.size, true, None);
        Ok(Some(ContainerEvent::Truncated(from)))
    }

    /// Continues with the first chunk behind `from`. Without one, the file ends here.
    fn resume(&mut self, from: u64, problem: &str) -> io::Result<Option<ContainerEvent>> {
        let next = self.find_chunk(from + 1)?;
        self.offset = self.input.seek(SeekFrom::Start(next.unwrap_or(self.size)))?;
        self.done = next.is_none();
        if self.done && matches!(self.sections, Some(ContainerEvent::Truncated(_))) {
            self.sections = None;
            return Ok(Some(ContainerEvent::Truncated(from)));
        }
        Ok(Some(self.damage([from, self.offset], problem, true)))
    }

    /// The first place from `from` on that begins like a chunk whose lengths all agree.
    fn find_chunk(&mut self, from: u64) -> io::Result<Option<u64>> {
        const WINDOW: usize = (PREFIX + CHUNK_HEADER) as usize;
        let mut at = from.min(self.size);
        self.input.seek(SeekFrom::Start(at))?;
        let mut buffer: Vec<u8> = Vec::with_capacity(128 << 10);
        loop {
            let read = self.input.by_ref().take(64 << 10).read_to_end(&mut buffer)?;
            if buffer.len() < WINDOW {
                return Ok(None);
            }
            for (i, window) in buffer.windows(WINDOW).enumerate() {
                let place = at + i as u64;
                if window[0] == op::CHUNK && plausible_chunk(window, self.size - place) {
                    return Ok(Some(place));
                }
            }
            if read == 0 {
                return Ok(None);
            }
            let kept = buffer.len() - (WINDOW - 1);
            buffer.drain(..kept);
            at += kept as u64;
        }
    }

    /// The next record of the current chunk; none if it is of no interest.
    fn next_in_chunk(&mut self) -> Option<ContainerEvent> {
        let rest = &self.chunk[self.chunk_at..];
        let place = self.chunk_offset + self.chunk_at as u64;
        let length = (rest.len() as u64 >= PREFIX).then(|| u64_at(rest, 1));
        let Some(length) = length.filter(|length| *length <= rest.len() as u64 - PREFIX) else {
            return self.end_of_chunk(place, "a record of the chunk is incomplete");
        };
        let (opcode, body) = (rest[0], &rest[PREFIX as usize..][..length as usize]);
        match opcode {
            op::SCHEMA | op::CHANNEL | op::MESSAGE => match parse_record(opcode, length, body) {
                Some(event) => {
                    self.chunk_at += (PREFIX + length) as usize;
                    event
                }
                None => self.end_of_chunk(place, "a record of the chunk is invalid"),
            },
            _ => self.end_of_chunk(place, "the chunk contains a record of another kind"),
        }
    }

    /// Gives up the rest of the current chunk. That the last chunk of a truncated file is incomplete is known.
    fn end_of_chunk(&mut self, place: u64, problem: &str) -> Option<ContainerEvent> {
        let end = self.chunk_offset + self.chunk.len() as u64;
        self.chunk_at = self.chunk.len();
        let truncated = self.done && end == self.size;
        (!truncated).then(|| self.damage([place, end], problem, true))
    }

    fn damage(&mut self, bytes: [u64; 2], problem: &str, loses: bool) -> ContainerEvent {
        self.damaged = true;
        ContainerEvent::Damage(Damage { bytes, problem: problem.into(), loses })
    }
}

impl<R: Read + Seek> Iterator for Container<R> {
    type Item = io::Result<ContainerEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.next_event().transpose();
        if matches!(event, Some(Err(_))) {
            (self.done, self.sections) = (true, None);
            self.chunk_at = self.chunk.len();
        }
        event
    }
}

/// The header of a chunk, read as that of one without compression.
struct ChunkHeader {
    uncompressed: u64,
    crc: u32,
    /// Length of the name of the compression.
    compression: u32,
    compressed: u64,
}

impl ChunkHeader {
    fn parse(bytes: &[u8]) -> Self {
        Self {
            uncompressed: u64_at(bytes, 16),
            crc: u32_at(bytes, 24),
            compression: u32_at(bytes, 28),
            compressed: u64_at(bytes, 32),
        }
    }

    /// Length of the records if two of the three lengths agree and it fits, and whether the whole header agrees.
    fn records(&self, length: u64, available: u64) -> Option<(u64, bool)> {
        let (a, b, c) = (length.wrapping_sub(CHUNK_HEADER), self.uncompressed, self.compressed);
        let records = if a == b || a == c { a } else { b };
        let agree = (a == b) as u8 + (b == c) as u8 + (a == c) as u8;
        let fits = agree > 0 && records <= available && records != UNFINISHED;
        fits.then_some((records, agree == 3 && self.compression == 0))
    }
}

fn plausible_chunk(window: &[u8], remaining: u64) -> bool {
    let header = ChunkHeader::parse(&window[PREFIX as usize..]);
    let available = remaining - PREFIX - CHUNK_HEADER;
    header.records(u64_at(window, 1), available).is_some_and(|(_, agreed)| agreed)
}

/// Finds the last records of a complete file, and verifies the checksums of data and summary that they state if `whole`.
fn verify_sections<R: Read + Seek>(
    input: &mut BufReader<R>,
    size: u64,
    whole: bool,
) -> io::Result<Option<ContainerEvent>> {
    const FOOTER: u64 = PREFIX + 20;
    const DATA_END: u64 = PREFIX + 4;
    let magic = MAGIC.len() as u64;
    let least = 2 * magic + FOOTER + DATA_END;
    if size < least {
        return Ok(Some(ContainerEvent::Truncated(size)));
    }
    let footer_at = size - magic - FOOTER;
    let mut end = [0; (FOOTER + 8) as usize];
    input.seek(SeekFrom::Start(footer_at))?;
    input.read_exact(&mut end)?;
    let footer = end[0] == op::FOOTER && u64_at(&end, 1) == 20;
    let ended = end[FOOTER as usize..] == *MAGIC;
    if !footer && !ended {
        return Ok(Some(ContainerEvent::Truncated(size)));
    }
    let damage = |bytes: [u64; 2], problem: &str| {
        Ok(Some(ContainerEvent::Damage(Damage { bytes, problem: problem.into(), loses: false })))
    };
    let summary_at = match u64_at(&end, 9) {
        0 => footer_at,
        start => start,
    };
    let data_end_at = summary_at.checked_sub(DATA_END).filter(|at| (magic..footer_at).contains(at));
    let Some(data_end_at) = data_end_at.filter(|_| footer && ended) else {
        return damage([footer_at, size], "the end of the file is damaged");
    };
    if !whole {
        return Ok(None);
    }
    input.seek(SeekFrom::Start(0))?;
    let data_crc = hash(input, data_end_at)?;
    let mut data_end = [0; DATA_END as usize];
    input.read_exact(&mut data_end)?;
    if data_end[0] != op::DATA_END || u64_at(&data_end, 1) != 4 {
        return damage([data_end_at, summary_at], "the end of the data is damaged");
    }
    let stated = u32_at(&data_end, 9);
    if stated != 0 && stated != data_crc {
        return damage([0, data_end_at], "the checksum of the data does not match, that of every chunk does");
    }
    // It covers the summary and the footer up to the checksum.
    let summary_crc = hash(input, footer_at + FOOTER - 4 - summary_at)?;
    let stated = u32_at(&end, (FOOTER - 4) as usize);
    if stated != 0 && stated != summary_crc {
        return damage([summary_at, size], "the checksum of the summary does not match");
    }
    Ok(None)
}

/// CRC-32 of the next `length` bytes.
fn hash(input: &mut impl Read, length: u64) -> io::Result<u32> {
    let (mut hasher, mut buffer) = (crc32fast::Hasher::new(), [0; 16 << 10]);
    let mut input = input.take(length);
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            read => hasher.update(&buffer[..read]),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}
