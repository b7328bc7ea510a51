//! Echo frames as SigMF: samples of M channels, L for every frame, with the layout of the frames in the metadata.
//!
//! Keys of the namespace `core` are honoured or refused by name; those of `hyloc` say what the frames are. The channels are
//! interleaved, so that a frame is its M x L matrix column by column.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha512};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::sigmf_keys::{MetadataKeys, hash};
use super::taker::{FileFrame, FrameTaker};
use super::{EchoDomain, EchoFault, EchoFileHeader, HeaderKeys, hex, open, stamp_ns};
use crate::samples::{DitherKey, Precision, unpack};

/// Longest metadata that is read.
const MOST_METADATA_BYTES: u64 = 4 << 20;

/// The name of our keys among the extensions.
pub(super) const NAMESPACE: &str = "hyloc";

const KEYS: HeaderKeys = HeaderKeys {
    node: "hyloc:node",
    site: "hyloc:site_sha256",
    sensors: "core:num_channels",
    subcarriers: "hyloc:subcarriers",
    rate: "core:sample_rate",
};

/// A run of frames without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameSpan {
    /// Position of its first frame in the file, in frames.
    start: u64,
    number: u64,
    time_ns: u64,
}

/// The metadata, checked as far as the file alone allows.
#[derive(Debug, Clone, PartialEq)]
struct SigmfRecording {
    header: EchoFileHeader,
    precision: Precision,
    sha512: Option<String>,
    /// The file of the samples, if it is not named like that of the metadata.
    dataset: Option<String>,
    frame_rate_hz: Option<f64>,
    /// At least one, in order.
    spans: Vec<FrameSpan>,
}

impl SigmfRecording {
    fn parse(metadata: &[u8]) -> Result<Self, EchoFault> {
        let invalid =
            |error: serde_json::Error| EchoFault::Content(format!("the metadata is no valid JSON: {error}"));
        let root: Map<String, Value> = serde_json::from_slice(metadata).map_err(invalid)?;
        let no_global = || EchoFault::missing("global", "metadata of SigMF has this object");
        let global = root.get("global").and_then(Value::as_object).ok_or_else(no_global)?;
        let global = MetadataKeys { place: String::new(), values: global };
        check_core(&global)?;
        let sensors = global.integer("core:num_channels")?.unwrap_or(1);
        if global.integer("hyloc:sensors")?.is_some_and(|stated| stated != sensors) {
            return Err(global.refuse("hyloc:sensors", format!("core:num_channels is {sensors}")));
        }
        let subcarriers = global.integer("hyloc:subcarriers")?;
        let rule = "the number of samples of a frame, which is that of the subcarriers";
        let subcarriers = global.required("hyloc:subcarriers", subcarriers, rule)?.max(1);
        let domain = global.text("hyloc:domain")?.map(|name| EchoDomain::named("hyloc:domain", name));
        let node = global.integer("hyloc:node")?.map(u32::try_from).transpose();
        let site = global.text("hyloc:site_sha256")?.map(|text| hash("hyloc:site_sha256", text));
        let frame_rate_hz = global.real("hyloc:frame_rate_hz")?;
        if frame_rate_hz.is_some_and(|rate_hz| rate_hz.is_nan() || rate_hz <= 0.0) {
            return Err(global.refuse("hyloc:frame_rate_hz", "must be above zero"));
        }
        let header = EchoFileHeader {
            node: node.map_err(|_| global.refuse("hyloc:node", "must be the index of an IRS"))?,
            run: global.integer("hyloc:run")?.unwrap_or(0),
            domain: domain.transpose()?.unwrap_or_default(),
            site_sha256: site.transpose()?,
            sensors: usize::try_from(sensors).unwrap_or(usize::MAX),
            subcarriers: usize::try_from(subcarriers).unwrap_or(usize::MAX),
            sample_rate_hz: global.real("core:sample_rate")?,
        };
        if header.domain == EchoDomain::Time && header.sample_rate_hz.is_none() {
            return Err(EchoFault::missing("core:sample_rate", "samples in time need their rate"));
        }
        Ok(Self {
            precision: precision(&global)?,
            sha512: global.text("core:sha512")?.map(str::to_lowercase),
            dataset: global.text("core:dataset")?.map(str::to_owned),
            frame_rate_hz,
            spans: spans(&global, root.get("captures"), subcarriers)?,
            header,
        })
    }

    fn frame_bytes(&self) -> Option<u64> {
        let samples = self.header.sensors.checked_mul(self.header.subcarriers)?;
        samples.checked_mul(self.precision.bytes(1)).map(|bytes| bytes as u64)
    }

    /// Number and time of the frame at a position of the file.
    fn stamp(&self, position: u64) -> (u64, u64) {
        let after = self.spans.partition_point(|segment| segment.start <= position);
        let Some(segment) = after.checked_sub(1).and_then(|at| self.spans.get(at)) else {
            return (position, 0);
        };
        let since = position - segment.start;
        let time_ns = match (segment.time_ns, since, self.frame_rate_hz) {
            (0, _, _) => 0,
            (time_ns, 0, _) => time_ns,
            (time_ns, _, Some(rate_hz)) => stamp_ns(time_ns, since, rate_hz),
            _ => 0,
        };
        (segment.number.saturating_add(since), time_ns)
    }
}

fn precision(global: &MetadataKeys) -> Result<Precision, EchoFault> {
    let rule = "must be cf32_le or cf64_le";
    match global.required("core:datatype", global.text("core:datatype")?, rule)? {
        "cf32_le" => Ok(Precision::F32),
        "cf64_le" => Ok(Precision::F64),
        _ => Err(global.refuse("core:datatype", rule)),
    }
}

/// Refuses what the metadata asks for and is not supported.
fn check_core(global: &MetadataKeys) -> Result<(), EchoFault> {
    let version =
        global.required("core:version", global.text("core:version")?, "the version of SigMF, 1.x")?;
    if version.split('.').next() != Some("1") {
        return Err(global.refuse("core:version", "only version 1 of SigMF is supported"));
    }
    if global.values.get("core:metadata_only").is_some_and(|value| *value != Value::Bool(false)) {
        return Err(global.refuse("core:metadata_only", "there are no samples to read"));
    }
    if global.integer("core:trailing_bytes")?.is_some_and(|bytes| bytes > 0) {
        return Err(global.refuse("core:trailing_bytes", "bytes after the samples are not supported"));
    }
    let extensions = global.values.get("core:extensions").and_then(Value::as_array);
    for extension in extensions.into_iter().flatten() {
        let name = extension.get("name").and_then(Value::as_str).unwrap_or_default();
        let optional = extension.get("optional").and_then(Value::as_bool).unwrap_or(false);
        if name != NAMESPACE && !optional {
            return Err(EchoFault::key(
                "core:extensions",
                name,
                "this extension is not optional and not supported",
            ));
        }
        let version = extension.get("version").and_then(Value::as_str).unwrap_or_default();
        if name == NAMESPACE && version.split('.').next() != Some("1") {
            return Err(EchoFault::key(
                "core:extensions",
                format!("{name} {version}"),
                "only version 1 is supported",
            ));
        }
    }
    Ok(())
}

fn spans(global: &MetadataKeys, captures: Option<&Value>, length: u64) -> Result<Vec<FrameSpan>, EchoFault> {
    let offset = global.integer("core:offset")?.unwrap_or(0);
    let first = global.integer("hyloc:first_frame")?.unwrap_or(0);
    let captures = captures.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut spans: Vec<FrameSpan> = Vec::with_capacity(captures.len() + 1);
    for (c, capture) in captures.iter().enumerate() {
        let place = format!("captures[{c}].");
        let none = || EchoFault::key(format!("captures[{c}]"), "another value", "must be an object");
        let capture = MetadataKeys { place, values: capture.as_object().ok_or_else(none)? };
        if capture.integer("core:header_bytes")?.is_some_and(|bytes| bytes > 0) {
            return Err(capture.refuse("core:header_bytes", "bytes between the samples are not supported"));
        }
        let sample = capture.integer("core:sample_start")?;
        let sample =
            capture.required("core:sample_start", sample, "the sample at which the capture begins")?;
        let refuse = |rule: String| Err(capture.refuse("core:sample_start", rule));
        let Some(sample) = sample.checked_sub(offset) else {
            return refuse(format!("must not be below core:offset, {offset}"));
        };
        if !sample.is_multiple_of(length) {
            return refuse(format!("a capture must begin with a frame, at a multiple of {length} samples"));
        }
        let start = sample / length;
        if spans.last().is_some_and(|before| before.start >= start) {
            return refuse("captures must be in ascending order".into());
        }
        let number = capture.integer("hyloc:frame")?.unwrap_or(first.saturating_add(start));
        spans.push(FrameSpan { start, number, time_ns: capture_time_ns(&capture)? });
    }
    if spans.first().is_none_or(|segment| segment.start > 0) {
        spans.insert(0, FrameSpan { start: 0, number: first, time_ns: 0 });
    }
    Ok(spans)
}

/// When the first frame of a capture was taken; 0 if it is not said.
fn capture_time_ns(capture: &MetadataKeys) -> Result<u64, EchoFault> {
    if let Some(time_ns) = capture.integer("hyloc:time_ns")? {
        return Ok(time_ns);
    }
    let Some(text) = capture.text("core:datetime")? else { return Ok(0) };
    let time = OffsetDateTime::parse(text, &Rfc3339).ok();
    let time_ns = time.and_then(|time| u64::try_from(time.unix_timestamp_nanos()).ok());
    time_ns.ok_or_else(|| {
        capture.refuse("core:datetime", "must be a time after 1970, as in 2026-01-31T12:00:00.5Z")
    })
}

/// Where the samples are in their file.
#[derive(Debug, Clone, Copy)]
struct DataRange {
    start: u64,
    length: u64,
    /// Less than `length` if the file ends too soon.
    available: u64,
}

/// The metadata of a pair, and the path of the samples.
fn pair(path: &Path) -> Result<(SigmfRecording, PathBuf), EchoFault> {
    let metadata = path.with_extension("sigmf-meta");
    let mut bytes = Vec::new();
    let input = open(&metadata).map_err(|fault| of_file(&metadata, fault))?;
    input.take(MOST_METADATA_BYTES + 1).read_to_end(&mut bytes)?;
    check_length(bytes.len() as u64)?;
    let recording = SigmfRecording::parse(&bytes)?;
    let data = match &recording.dataset {
        None => path.with_extension("sigmf-data"),
        Some(name) if Path::new(name).file_name() == Some(name.as_ref()) => path.with_file_name(name),
        Some(name) => {
            return Err(EchoFault::key(
                "core:dataset",
                name,
                "must be the name of a file beside the metadata",
            ));
        }
    };
    Ok((recording, data))
}

/// A fault of one of the two files of a pair, with its name.
fn of_file(path: &Path, fault: EchoFault) -> EchoFault {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match fault {
        EchoFault::Io { kind, reason } => EchoFault::Io { kind, reason: format!("{name}: {reason}") },
        other => EchoFault::Content(format!("{name}: {other}")),
    }
}

fn check_length(found: u64) -> Result<(), EchoFault> {
    if found > MOST_METADATA_BYTES {
        return Err(EchoFault::Content(format!("the metadata has more than {MOST_METADATA_BYTES} bytes")));
    }
    Ok(())
}

pub(super) fn read_pair_header(path: &Path) -> Result<EchoFileHeader, EchoFault> {
    let (recording, data) = pair(path)?;
    open(&data).map_err(|fault| of_file(&data, fault))?;
    Ok(recording.header)
}

pub(super) fn read_pair(path: &Path, taker: &mut FrameTaker) -> Result<(), EchoFault> {
    let (recording, data) = pair(path)?;
    let mut input = open(&data).map_err(|fault| of_file(&data, fault))?;
    let length = input.seek(SeekFrom::End(0))?;
    pass_on(&recording, input, DataRange { start: 0, length, available: length }, taker)
}

/// The metadata of an archive, and where its samples are.
fn archived<R: Read + Seek>(mut input: R) -> Result<(SigmfRecording, DataRange), EchoFault> {
    let end = input.seek(SeekFrom::End(0))?;
    input.rewind()?;
    let broken = |error: io::Error| EchoFault::Content(format!("no archive of SigMF: {error}"));
    let (mut metadata, mut data) = (None, None);
    let mut archive = tar::Archive::new(input);
    for entry in archive.entries_with_seek().map_err(broken)? {
        let mut entry = match entry {
            Ok(entry) => entry,
            // The end is cut off; what is needed may be there already.
            Err(_) if metadata.is_some() && data.is_some() => break,
            Err(error) => return Err(broken(error)),
        };
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = entry.path_bytes().into_owned();
        let (start, length) = (entry.raw_file_position(), entry.size());
        if name.ends_with(b".sigmf-meta") {
            check_length(length)?;
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(broken)?;
            if metadata.replace(bytes).is_some() {
                return Err(EchoFault::Content(
                    "the archive has several recordings: one file per node is read".into(),
                ));
            }
        } else if name.ends_with(b".sigmf-data") {
            let available = length.min(end.saturating_sub(start));
            data = Some(DataRange { start, length, available });
            if available < length {
                break;
            }
        }
    }
    let metadata =
        metadata.ok_or_else(|| EchoFault::missing(".sigmf-meta", "the archive needs the metadata"))?;
    let data = data.ok_or_else(|| EchoFault::missing(".sigmf-data", "the archive needs the samples"))?;
    Ok((SigmfRecording::parse(&metadata)?, data))
}

pub(super) fn read_archive_header<R: Read + Seek>(input: R) -> Result<EchoFileHeader, EchoFault> {
    archived(input).map(|(recording, _)| recording.header)
}

pub(super) fn read_archive<R: Read + Seek>(mut input: R, taker: &mut FrameTaker) -> Result<(), EchoFault> {
    let (recording, range) = archived(&mut input)?;
    pass_on(&recording, BufReader::with_capacity(1 << 16, input), range, taker)
}

/// Gives the frames to `taker`. Samples that end in the middle of a frame are used up to there; where they are complete, nothing
/// is used if they do not have the checksum of the metadata.
fn pass_on<R: Read + Seek>(
    recording: &SigmfRecording,
    mut input: R,
    range: DataRange,
    taker: &mut FrameTaker,
) -> Result<(), EchoFault> {
    taker.begin(&recording.header, &KEYS)?;
    let (sensors, subcarriers) = taker.shape();
    let too_large = || EchoFault::Content("a frame is too large".into());
    let frame_bytes = recording.frame_bytes().filter(|bytes| *bytes > 0).ok_or_else(too_large)?;
    let (frames, rest) = (range.available / frame_bytes, range.available % frame_bytes);
    let is_cut = rest > 0 || range.available < range.length;
    if !is_cut && let Some(stated) = &recording.sha512 {
        check_hash(&mut input, range, stated)?;
    }
    input.seek(SeekFrom::Start(range.start))?;
    let mut bytes = vec![0; usize::try_from(frame_bytes).map_err(|_| too_large())?];
    for position in 0..frames {
        let (number, time_ns) = recording.stamp(position);
        let byte = position * frame_bytes;
        input.read_exact(&mut bytes)?;
        let samples = unpack(&bytes, (sensors, subcarriers), recording.precision, DitherKey([0; 4]));
        let samples = samples.ok_or_else(too_large)?.as_slice().to_vec();
        if taker.frame(FileFrame { number, time_ns, byte, samples })?.is_break() {
            return Ok(());
        }
    }
    if is_cut {
        let (frame, _) = recording.stamp(frames);
        let reason = format!("the samples are cut off: {rest} of {frame_bytes} bytes are there");
        return Err(EchoFault::Frame { frame, byte: frames * frame_bytes, reason });
    }
    Ok(())
}

fn check_hash<R: Read + Seek>(input: &mut R, range: DataRange, stated: &str) -> Result<(), EchoFault> {
    input.seek(SeekFrom::Start(range.start))?;
    let mut hasher = Sha512::new();
    io::copy(&mut input.take(range.length), &mut HashInput(&mut hasher))?;
    let found = hex(&hasher.finalize());
    if found == *stated {
        return Ok(());
    }
    let rule = format!("the samples have {found}: they are damaged, and nothing of them is used");
    Err(EchoFault::key("core:sha512", stated, rule))
}

/// Writes into a hash.
pub(super) struct HashInput<'a>(pub &'a mut Sha512);

impl io::Write for HashInput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
