//! Echo frames in files: SigMF recordings and archives ([`sigmf`]) and numpy's `.npz` ([`npz`]).
//!
//! A file has the frames of one node in one run. [`read_echoes`] checks what the file says about itself against what the node expects,
//! then gives frame after frame to the caller; memory is that of one frame. The first fault ends it, and what came before is used.
//! [`EchoFileFormat::create`] writes files. `docs/reference/echo-files.md` defines both formats for users.

pub mod npz;
pub mod sigmf;
mod sigmf_keys;
mod sigmf_writer;
mod source;
mod taker;

use std::fs::File;
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::codec::EchoFrame;
use super::grpc::service::EchoLayout;

pub use source::EchoFileSource;
use taker::FrameTaker;

/// What the samples of a frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EchoDomain {
    /// L subcarriers of every sensor.
    #[default]
    Subcarriers,
    /// L samples in time of every sensor, at the rate W.
    Time,
}

impl EchoDomain {
    /// The domain of this name, where `key` states one.
    fn named(key: &str, name: &str) -> Result<Self, EchoFault> {
        match name {
            "subcarriers" => Ok(Self::Subcarriers),
            "time" => Ok(Self::Time),
            other => Err(EchoFault::key(key, other, "must be subcarriers or time")),
        }
    }
}

/// What a file says about its frames.
#[derive(Debug, Clone, PartialEq)]
pub struct EchoFileHeader {
    /// Index of the node that received the frames, if the file says so.
    pub node: Option<u32>,
    pub run: u64,
    pub domain: EchoDomain,
    pub site_sha256: Option<[u8; 32]>,
    pub sensors: usize,
    pub subcarriers: usize,
    pub sample_rate_hz: Option<f64>,
}

/// Names of the facts of a header in a format, for errors.
struct HeaderKeys {
    node: &'static str,
    site: &'static str,
    sensors: &'static str,
    subcarriers: &'static str,
    rate: &'static str,
}

impl EchoFileHeader {
    /// Refuses a file that is not for this node, by the key that differs.
    fn check(&self, layout: &EchoLayout, keys: &HeaderKeys) -> Result<(), EchoFault> {
        if let Some(node) = self.node.filter(|node| *node != layout.node) {
            return Err(EchoFault::key(keys.node, node, format!("this is node {}", layout.node)));
        }
        if let Some(site) = self.site_sha256.filter(|site| *site != layout.site_sha256) {
            let own = hex(&layout.site_sha256);
            return Err(EchoFault::key(keys.site, hex(&site), format!("the pipeline works with site {own}")));
        }
        for (key, found, expected, what) in [
            (keys.sensors, self.sensors, layout.sensors, "sensors"),
            (keys.subcarriers, self.subcarriers, layout.subcarriers, "subcarriers"),
        ] {
            if found != expected {
                return Err(EchoFault::key(key, found, format!("the site has {expected} {what}")));
            }
        }
        let off = |rate_hz: &f64| {
            let difference = (rate_hz - layout.bandwidth_hz).abs();
            difference.is_nan() || difference > 1e-6 * layout.bandwidth_hz
        };
        match self.sample_rate_hz.filter(off) {
            Some(rate_hz) => {
                let rule = format!("must be the bandwidth of the site, {} Hz", layout.bandwidth_hz);
                Err(EchoFault::key(keys.rate, rate_hz, rule))
            }
            None => Ok(()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why a file of echoes cannot be used, or not beyond a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EchoFault {
    #[error("{key} = {value}: {rule}")]
    Key { key: String, value: String, rule: String },
    #[error("{key} is missing: {rule}")]
    Missing { key: String, rule: String },
    /// The frame of this number, which begins at this byte of the samples.
    #[error("frame {frame} at byte {byte}: {reason}")]
    Frame { frame: u64, byte: u64, reason: String },
    #[error("{0}")]
    Content(String),
    #[error("cannot be read: {reason}")]
    Io { kind: io::ErrorKind, reason: String },
}

impl EchoFault {
    fn key(key: impl Into<String>, value: impl ToString, rule: impl Into<String>) -> Self {
        // A value from outside may be long.
        let value = value.to_string().chars().take(200).collect();
        Self::Key { key: key.into(), value, rule: rule.into() }
    }

    fn missing(key: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Missing { key: key.into(), rule: rule.into() }
    }
}

impl From<io::Error> for EchoFault {
    fn from(error: io::Error) -> Self {
        Self::Io { kind: error.kind(), reason: error.to_string() }
    }
}

/// A fault with its file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", file.display())]
pub struct EchoFileError {
    pub file: PathBuf,
    pub fault: EchoFault,
}

impl EchoFileError {
    fn new(file: &Path, fault: EchoFault) -> Self {
        Self { file: file.to_path_buf(), fault }
    }
}

/// Takes frames; breaks if it wants no more.
pub type TakeFrame<'a> = &'a mut dyn FnMut(EchoFrame) -> ControlFlow<()>;

/// The kinds of files, by their names.
enum EchoFileKind {
    Npz,
    SigmfArchive,
    /// The metadata beside the data.
    SigmfPair,
}

fn kind(path: &Path) -> Result<EchoFileKind, EchoFault> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("npz") => Ok(EchoFileKind::Npz),
        Some("sigmf") => Ok(EchoFileKind::SigmfArchive),
        Some("sigmf-meta" | "sigmf-data") => Ok(EchoFileKind::SigmfPair),
        _ => {
            Err(EchoFault::Content("the name must end with .sigmf-meta, .sigmf-data, .sigmf or .npz".into()))
        }
    }
}

/// Reads what a file says about its frames.
pub fn read_header(path: &Path) -> Result<EchoFileHeader, EchoFileError> {
    let read = || match kind(path)? {
        EchoFileKind::Npz => npz::read_header(open(path)?),
        EchoFileKind::SigmfArchive => sigmf::read_archive_header(open(path)?),
        EchoFileKind::SigmfPair => sigmf::read_pair_header(path),
    };
    read().map_err(|fault| EchoFileError::new(path, fault))
}

/// Reads the frames of a file for a node that expects `layout`; returns how many there were. A fault ends it; frames before it have
/// been taken.
pub fn read_echoes(path: &Path, layout: &EchoLayout, take: TakeFrame) -> Result<u64, EchoFileError> {
    let mut taker = FrameTaker::new(layout, take);
    let mut read = || match kind(path)? {
        EchoFileKind::Npz => npz::read_frames(open(path)?, &mut taker),
        EchoFileKind::SigmfArchive => sigmf::read_archive(open(path)?, &mut taker),
        EchoFileKind::SigmfPair => sigmf::read_pair(path, &mut taker),
    };
    read().map_err(|fault| EchoFileError::new(path, fault))?;
    Ok(taker.taken)
}

/// Reads the frames of bytes that are those of a file, for tests: `.npz`, or an archive of SigMF.
pub fn read_bytes(
    bytes: &[u8],
    is_npz: bool,
    layout: &EchoLayout,
    take: TakeFrame,
) -> Result<u64, EchoFault> {
    let mut taker = FrameTaker::new(layout, take);
    let input = io::Cursor::new(bytes);
    if is_npz { npz::read_frames(input, &mut taker) } else { sigmf::read_archive(input, &mut taker) }?;
    Ok(taker.taken)
}

/// Opens a regular file: others may never end.
fn open(path: &Path) -> Result<BufReader<File>, EchoFault> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(EchoFault::Content("no file".into()));
    }
    Ok(BufReader::with_capacity(1 << 16, file))
}

/// Formats that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EchoFileFormat {
    /// A pair `.sigmf-meta` and `.sigmf-data`, cf64_le.
    Sigmf,
    /// Numpy's `.npz`, complex128.
    Npz,
}

/// The frames that a file will have: numbered from 0, at a constant rate.
#[derive(Debug, Clone, PartialEq)]
pub struct EchoFilePlan {
    pub layout: EchoLayout,
    pub run: u64,
    pub frames: u64,
    pub frame_rate_hz: f64,
    /// When frame 0 was taken, nanoseconds since the Unix epoch.
    pub start_ns: u64,
}

impl EchoFilePlan {
    fn stamp_ns(&self, frame: u64) -> u64 {
        stamp_ns(self.start_ns, frame, self.frame_rate_hz)
    }
}

/// When a frame was taken that comes `number` frames after one at `start_ns`.
pub fn stamp_ns(start_ns: u64, number: u64, frame_rate_hz: f64) -> u64 {
    // A multiple of a rounded period would drift.
    let after = Duration::try_from_secs_f64(number as f64 / frame_rate_hz).unwrap_or(Duration::MAX);
    start_ns.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
}

/// Writes the frames of a node in their order.
pub trait EchoWriter: Send {
    /// The files that are written.
    fn paths(&self) -> Vec<PathBuf>;
    fn write(&mut self, frame: &EchoFrame) -> io::Result<()>;
    /// Completes the files and returns their paths. Without it there is no usable file.
    fn finish(self: Box<Self>) -> io::Result<Vec<PathBuf>>;
}

impl EchoFileFormat {
    /// Creates the files of a node in a directory, `node-INDEX` with the ending of the format; an error if they exist.
    pub fn create(self, directory: &Path, plan: &EchoFilePlan) -> io::Result<Box<dyn EchoWriter>> {
        let stem = directory.join(format!("node-{}", plan.layout.node));
        Ok(match self {
            Self::Sigmf => Box::new(sigmf_writer::SigmfWriter::create(&stem, plan)?),
            Self::Npz => Box::new(npz::NpzEchoWriter::create(&stem, plan)?),
        })
    }
}

/// A new file; the error names it.
fn create_new(path: &Path) -> io::Result<File> {
    let created = File::options().write(true).read(true).create_new(true).open(path);
    created.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
