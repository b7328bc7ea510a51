//! Echo frames as numpy arrays: `echoes` of shape (frames, M, L), and what belongs to them.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use arrays::{ArrayError, NpyStream, NpyType, NpzArchive, NpzEntry, NpzWriter, scan};
use num_complex::Complex64;

use super::taker::{FileFrame, FrameTaker};
use super::{EchoDomain, EchoFault, EchoFileHeader, EchoFilePlan, EchoWriter, HeaderKeys, create_new, hex};
use crate::echo::EchoFrame;

/// Most frames of a file.
const MOST_FRAMES: usize = 1 << 21;

const ECHOES: &str = "echoes";

const KEYS: HeaderKeys = HeaderKeys {
    node: "node",
    site: "site_sha256",
    sensors: "echoes.shape[1]",
    subcarriers: "echoes.shape[2]",
    rate: "sample_rate_hz",
};

impl From<ArrayError> for EchoFault {
    fn from(error: ArrayError) -> Self {
        match error {
            ArrayError::Io(error) => error.into(),
            ArrayError::Missing { name } => Self::missing(name, "an archive of echoes needs this array"),
            other => Self::Content(other.to_string()),
        }
    }
}

/// The arrays beside the echoes.
#[derive(Debug, Default)]
struct Companions {
    frame: Option<Vec<u64>>,
    time_ns: Option<Vec<u64>>,
    run: Option<u64>,
    node: Option<u32>,
    domain: EchoDomain,
    site_sha256: Option<[u8; 32]>,
    sample_rate_hz: Option<f64>,
}

impl Companions {
    /// Reads one of them; arrays of other names are not looked at.
    fn read<R: Read>(&mut self, stream: NpyStream<R>) -> Result<(), EchoFault> {
        match stream.name.as_str() {
            "frame" => self.frame = Some(list(stream)?),
            "time_ns" => self.time_ns = Some(list(stream)?),
            "run" => self.run = Some(number(stream)?),
            "node" => {
                let node = number(stream)?;
                let rule = "must be the index of an IRS";
                self.node = Some(u32::try_from(node).map_err(|_| EchoFault::key("node", node, rule))?);
            }
            "domain" => self.domain = EchoDomain::named("domain", &stream.text()?)?,
            "site_sha256" => {
                let text = stream.text()?;
                self.site_sha256 = Some(super::sigmf_keys::hash("site_sha256", &text)?);
            }
            "sample_rate_hz" => {
                let values = stream.reals(1)?.values;
                self.sample_rate_hz = Some(values.first().copied().unwrap_or(f64::NAN));
            }
            _ => {}
        }
        Ok(())
    }

    /// The header, with the shape of the echoes; lists must be as long as there are frames.
    fn header<R: Read>(&self, echoes: &NpyStream<R>) -> Result<EchoFileHeader, EchoFault> {
        let [frames, sensors, subcarriers] = echoes.header.shape[..] else {
            return Err(echoes.wrong_shape("(frames, sensors, subcarriers)").into());
        };
        if !matches!(echoes.header.entry, NpyType::Complex64 | NpyType::Complex128) {
            return Err(echoes.wrong_type("complex64 or complex128").into());
        }
        for (name, list) in [("frame", &self.frame), ("time_ns", &self.time_ns)] {
            if let Some(list) = list.as_ref().filter(|list| list.len() != frames) {
                let rule = format!("echoes has {frames} frames");
                return Err(EchoFault::key(format!("{name}.shape"), format!("({},)", list.len()), rule));
            }
        }
        Ok(EchoFileHeader {
            node: self.node,
            run: self.run.unwrap_or(0),
            domain: self.domain,
            site_sha256: self.site_sha256,
            sensors,
            subcarriers,
            sample_rate_hz: self.sample_rate_hz,
        })
    }

    fn number(&self, index: usize) -> u64 {
        self.frame.as_ref().and_then(|frame| frame.get(index).copied()).unwrap_or(index as u64)
    }

    fn time_ns(&self, index: usize) -> u64 {
        self.time_ns.as_ref().and_then(|times| times.get(index).copied()).unwrap_or(0)
    }
}

fn list<R: Read>(stream: NpyStream<R>) -> Result<Vec<u64>, EchoFault> {
    if stream.header.shape.len() != 1 {
        return Err(stream.wrong_shape("one dimension").into());
    }
    Ok(stream.integers(MOST_FRAMES)?.values)
}

fn number<R: Read>(stream: NpyStream<R>) -> Result<u64, EchoFault> {
    let name = stream.name.clone();
    let values = stream.integers(1)?.values;
    values.first().copied().ok_or_else(|| EchoFault::missing(name, "the array is empty"))
}

/// All arrays beside the echoes of a whole archive.
fn companions<R: Read + Seek>(archive: &mut NpzArchive<R>) -> Result<Companions, EchoFault> {
    let mut companions = Companions::default();
    for name in archive.names().into_iter().filter(|name| name != ECHOES) {
        companions.read(archive.array(&name)?)?;
    }
    Ok(companions)
}

/// What an archive says about its frames; one that is cut off is read as far as it goes.
pub fn read_header<R: Read + Seek>(mut input: R) -> Result<EchoFileHeader, EchoFault> {
    match NpzArchive::open(&mut input) {
        Ok(mut archive) => {
            let companions = companions(&mut archive)?;
            companions.header(&archive.array(ECHOES)?)
        }
        Err(ArrayError::Io(error)) => Err(error.into()),
        Err(broken) => {
            let mut header = None;
            from_beginning(&mut input, &broken, |companions, echoes| {
                header = Some(companions.header(&echoes)?);
                Ok(())
            })?;
            header.ok_or_else(|| EchoFault::from(broken))
        }
    }
}

/// Gives the frames of an archive to `taker`.
pub fn read_frames<R: Read + Seek>(mut input: R, taker: &mut FrameTaker) -> Result<(), EchoFault> {
    match NpzArchive::open(&mut input) {
        Ok(mut archive) => {
            let companions = companions(&mut archive)?;
            let is_stored = archive.is_stored(ECHOES);
            pass_on(&companions, archive.array(ECHOES)?, is_stored, taker)
        }
        Err(ArrayError::Io(error)) => Err(error.into()),
        Err(broken) => {
            let mut faults = None;
            from_beginning(&mut input, &broken, |companions, echoes| {
                faults = pass_on(companions, echoes, true, taker).err();
                Ok(())
            })?;
            Err(faults.unwrap_or_else(|| EchoFault::from(broken)))
        }
    }
}

/// Looks for the echoes of an archive whose directory is missing because its end is. What names the frames must come before them:
/// `node`, `run` and `frame` after the echoes are lost with the end.
fn from_beginning<R: Read + Seek>(
    input: &mut R,
    broken: &ArrayError,
    mut found: impl FnMut(&Companions, NpyStream<NpzEntry<'_, R>>) -> Result<(), EchoFault>,
) -> Result<(), EchoFault> {
    input.rewind()?;
    let mut companions = Companions::default();
    let mut outcome = Ok(());
    let ended = scan(input, |stream| {
        let is_last = stream.name == ECHOES;
        outcome = if !is_last {
            companions.read(stream)
        } else if companions.frame.is_some() && companions.run.is_some() {
            found(&companions, stream)
        } else {
            let reason = "and run and frame, which name its frames, do not come before echoes";
            Err(EchoFault::Content(format!("{broken}; the archive is cut off, {reason}")))
        };
        if is_last || outcome.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    outcome?;
    // Nothing, or not enough, could be read.
    ended.map_err(|_| EchoFault::Content(format!("{broken}; the archive is cut off or damaged")))
}

/// Gives the frames of the array to `taker`.
fn pass_on<R: Read>(
    companions: &Companions,
    mut echoes: NpyStream<R>,
    is_stored: bool,
    taker: &mut FrameTaker,
) -> Result<(), EchoFault> {
    let header = companions.header(&echoes)?;
    taker.begin(&header, &KEYS)?;
    let (sensors, subcarriers) = taker.shape();
    let (frames, length) = (echoes.header.shape[0], sensors * subcarriers);
    if echoes.header.fortran {
        if !is_stored {
            let rule =
                "of a compressed archive must be in C order: use numpy.ascontiguousarray or numpy.savez";
            return Err(EchoFault::key("echoes", "Fortran order", rule));
        }
        return pass_on_fortran(companions, echoes, frames, length, taker);
    }
    let mut rows = vec![Complex64::ZERO; length];
    for index in 0..frames {
        let byte = echoes.byte();
        let number = companions.number(index);
        echoes.read_complex(&mut rows).map_err(|error| at_frame(number, byte, error))?;
        // From rows to columns.
        let samples = (0..length).map(|at| rows[at % sensors * subcarriers + at / sensors]).collect();
        let frame = FileFrame { number, time_ns: companions.time_ns(index), byte, samples };
        if taker.frame(frame)?.is_break() {
            return Ok(());
        }
    }
    Ok(echoes.finish()?)
}

/// The frames of an array whose first index runs fastest: all of it is needed for the first frame.
fn pass_on_fortran<R: Read>(
    companions: &Companions,
    mut echoes: NpyStream<R>,
    frames: usize,
    length: usize,
    taker: &mut FrameTaker,
) -> Result<(), EchoFault> {
    let (mut all, mut piece): (Vec<Complex64>, _) = (Vec::new(), [Complex64::ZERO; 4096]);
    // The product was checked with the header.
    let total = frames * length;
    while all.len() < total {
        let piece = &mut piece[..(total - all.len()).min(4096)];
        let byte = echoes.byte();
        echoes.read_complex(piece).map_err(|error| at_frame(companions.number(0), byte, error))?;
        all.extend_from_slice(piece);
    }
    echoes.finish()?;
    for index in 0..frames {
        let samples = (0..length).map(|at| all[at * frames + index]).collect();
        let (number, time_ns) = (companions.number(index), companions.time_ns(index));
        if taker.frame(FileFrame { number, time_ns, byte: 0, samples })?.is_break() {
            return Ok(());
        }
    }
    Ok(())
}

fn at_frame(frame: u64, byte: u64, error: ArrayError) -> EchoFault {
    match error {
        ArrayError::Io(error) => error.into(),
        ArrayError::Cut { byte: end, .. } => {
            EchoFault::Frame { frame, byte, reason: format!("echoes is cut off at byte {end} of its data") }
        }
        other => EchoFault::Frame { frame, byte, reason: other.to_string() },
    }
}

/// Writes `node-INDEX.npz`, with the echoes last, so that what names the frames survives if the end is cut off.
pub(super) struct NpzEchoWriter {
    path: PathBuf,
    writer: NpzWriter<io::BufWriter<File>>,
    left: u64,
}

impl NpzEchoWriter {
    pub(super) fn create(stem: &Path, plan: &EchoFilePlan) -> io::Result<Self> {
        let path = stem.with_extension("npz");
        let mut writer = NpzWriter::new(io::BufWriter::with_capacity(1 << 16, create_new(&path)?));
        let layout = &plan.layout;
        let frames = plan.frames as usize;
        writer.integers("node", &[], [u64::from(layout.node)])?;
        writer.integers("run", &[], [plan.run])?;
        writer.text("domain", "subcarriers")?;
        writer.text("site_sha256", &hex(&layout.site_sha256))?;
        writer.reals("sample_rate_hz", &[], [layout.bandwidth_hz])?;
        writer.integers("frame", &[frames], 0..plan.frames)?;
        writer.integers("time_ns", &[frames], (0..plan.frames).map(|frame| plan.stamp_ns(frame)))?;
        writer.begin(ECHOES, NpyType::Complex128, &[frames, layout.sensors, layout.subcarriers])?;
        Ok(Self { path, writer, left: plan.frames })
    }
}

impl EchoWriter for NpzEchoWriter {
    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn write(&mut self, frame: &EchoFrame) -> io::Result<()> {
        self.left = self.left.saturating_sub(1);
        let (sensors, subcarriers) = (frame.sensors as usize, frame.subcarriers as usize);
        let places = (0..sensors).flat_map(|m| (0..subcarriers).map(move |i| i * sensors + m));
        let parts = places.filter_map(|at| frame.samples.get(at)).flat_map(|sample| [sample.re, sample.im]);
        self.writer.write(&parts.flat_map(f64::to_le_bytes).collect::<Vec<u8>>())
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<PathBuf>> {
        if self.left > 0 {
            return Err(io::Error::other(format!("{} frames were not written", self.left)));
        }
        let paths = self.paths();
        self.writer.finish()?.into_inner()?.sync_all()?;
        Ok(paths)
    }
}
