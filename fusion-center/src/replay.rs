//! Replays a recording: solves the same paths in the same frames and gives the same fixes, bit for bit.
//!
//! The file is read as a stream, once for the truth (which may have been written shortly after its frame) and once
//! for the reports: memory does not grow with it, except for the truth's 72 bytes per frame, and 8 per node where clocks are
//! not trusted. Every checksum is verified (see [`container`](crate::container)). A frame is solved from all of its reports or not at all: what a fault of the
//! recording makes impossible is named in [`Replayed`], and the rest is replayed. Fixes are compared with those of the
//! recording.

mod comparison;
mod solver;

use std::path::Path;
use std::sync::Arc;

use telemetry::Part;
use tokio_util::sync::CancellationToken;

use self::comparison::FixComparison;
use self::solver::ReplaySolver;
use crate::container::ContainerEvent;
use crate::fix_log::{Existing, FixLog, LogQueue};
use crate::publish::{FixSink, Publisher};
use crate::recorded::{Recording, truncated};
use crate::recording::{BLOCKS_FILE, RecordingError};
use crate::solve::Solver;
use crate::statistics::Figures;
use crate::truth::TruthStore;

/// Faults that are described one by one.
const MOST_FAULTS: usize = 1000;

#[derive(Debug)]
pub struct Replayed {
    pub figures: Figures,
    /// The recording breaks off here; everything before is replayed.
    pub broken: Option<RecordingError>,
    /// Faults of the files, each with file and place.
    pub damage: Vec<String>,
    /// Frames that were recorded or could have been, and are not replayed, with the reason.
    pub missing: Vec<String>,
    /// Replayed fixes that equal those of the recording; older recordings contain none.
    pub equal: u64,
    /// Replayed fixes that do not, with what differs.
    pub different: Vec<String>,
}

/// Replays the recording in `directory`; writes one JSON line per fix to `log`, until its reader leaves. A log that exists
/// is moved aside. `progress` is called with the number of frames so far.
pub fn replay(
    directory: &Path,
    log: Option<&Path>,
    mut progress: impl FnMut(u64),
) -> anyhow::Result<Replayed> {
    let recording = Recording::open(directory)?;
    let mut faults = Faults::default();
    recording.damage().iter().for_each(|fault| faults.damage(fault.clone()));
    let (system, method) = (recording.system(), recording.method());
    let blocks = directory.join(BLOCKS_FILE);
    let solver = Solver::new(system, method).map_err(|error| RecordingError::content(&blocks, error))?;
    let tracks = solver.tracks(method).map_err(|error| RecordingError::content(&blocks, error))?;
    let system = Arc::new(system.clone());
    let comparison = FixComparison::default();
    let mut solver = ReplaySolver::new(&recording, system.clone(), solver, comparison.clone())?;

    let (truth, stop) = (TruthStore::default(), CancellationToken::new());
    let log = log.map(|path| {
        let log = FixLog::open(path, Existing::MoveAside, Part::unobserved("fixes log"))?;
        anyhow::Ok(LogQueue::start(log, stop.clone(), true)?)
    });
    let part = log.as_ref().and_then(|log| log.as_ref().ok()).map(|(queue, _)| queue.part().clone());
    let replayed = comparison.clone();
    let compare: FixSink = Box::new(move |fix| replayed.replayed(fix));
    let (publisher, thread) =
        Publisher::start(system, truth.clone(), tracks, log.transpose()?, vec![compare])?;
    let viewer = publisher.viewer();
    let mut frames = 0;
    for event in recording.events(true)?.take_while(|_| !stop.is_cancelled()) {
        let (path, event) = event?;
        let taken = match event {
            ContainerEvent::Entry(entry) => solver.take(&entry),
            ContainerEvent::Channel { id, topic } => {
                solver.channels.define(id, &topic);
                continue;
            }
            ContainerEvent::Metadata(_) => continue,
            ContainerEvent::Damage(damage) => {
                if damage.loses {
                    solver.gap = true;
                }
                faults.damage(format!("{}: {damage}", path.display()));
                continue;
            }
            ContainerEvent::Truncated(at) => {
                faults.broken = Some(RecordingError::content(&path, truncated(at)));
                continue;
            }
        };
        let outgoing = match taken {
            Ok(outgoing) => outgoing,
            Err(problem) => {
                faults.missing(problem);
                continue;
            }
        };
        let Some((outgoing, gap)) = outgoing else { continue };
        if let Some(gap) = gap {
            faults.missing(gap);
        }
        for frame in outgoing.solved.basis.frames() {
            if let Some(target) = solver.truths.remove(&frame) {
                truth.insert(frame, target);
            }
        }
        publisher.publish_blocking(outgoing);
        frames += 1;
        progress(frames);
    }
    if let Some(gap) = solver.last_gap() {
        faults.missing(gap);
    }
    drop(publisher);
    thread.finish()?;
    // Frames before an error are valid; without any, the file is not a recording.
    if frames == 0 && !stop.is_cancelled() {
        faults.refuse(&blocks)?;
    }
    if let Some(loss) = part.and_then(|part| part.loss()) {
        anyhow::bail!(telemetry::exit::Failure::new(
            telemetry::exit::IO,
            format!("the fix log {}", loss.reason)
        ));
    }
    let (equal, different) = comparison.result();
    Ok(Replayed {
        figures: viewer.figures(),
        broken: faults.broken,
        damage: faults.damage.shown(),
        missing: faults.missing.shown(),
        equal,
        different,
    })
}

/// What is wrong with a recording.
#[derive(Default)]
struct Faults {
    broken: Option<RecordingError>,
    damage: Limited,
    missing: Limited,
}

/// A list that is limited in length.
#[derive(Default)]
struct Limited(Vec<String>, usize);

impl Limited {
    fn add(&mut self, fault: String) {
        match self.0.len() < MOST_FAULTS {
            true => self.0.push(fault),
            false => self.1 += 1,
        }
    }

    fn shown(mut self) -> Vec<String> {
        if self.1 > 0 {
            self.0.push(format!("and {} more", self.1));
        }
        self.0
    }
}

impl Faults {
    fn damage(&mut self, fault: String) {
        self.damage.add(fault);
    }

    fn missing(&mut self, what: String) {
        self.missing.add(what);
    }

    /// An error if there is any fault.
    fn refuse(&mut self, path: &Path) -> Result<(), RecordingError> {
        let first = self.damage.0.first().or(self.missing.0.first());
        match (self.broken.take(), first) {
            (_, Some(first)) => Err(RecordingError::content(path, first)),
            (Some(broken), None) => Err(broken),
            (None, None) => Ok(()),
        }
    }
}
