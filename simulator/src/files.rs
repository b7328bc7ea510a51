//! Writes the echoes that would be sent to files, one per node, with the truth beside them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use model::{EchoSource, Scenario, TrueTarget};
use proto::clock::unix_time_ns;
use proto::convert::FrameId;
use proto::echo::file::{EchoFilePlan, EchoWriter, stamp_ns};
use proto::echo::{DEFAULT_WINDOW, EchoLayout};
use proto::secret::run_identity;
use proto::site::SharedSite;
use proto::v1;
use serde::Serialize;
use telemetry::exit::{self, Failure};
use tokio_util::sync::CancellationToken;

use crate::control::Course;
use crate::{ROLE, SimulatorOptions, build, pace, timed, truth};

/// How often progress is logged.
const NOTICE: Duration = Duration::from_secs(2);

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EchoFilesSummary {
    pub role: &'static str,
    pub run: u64,
    pub frames: u64,
    pub files: Vec<PathBuf>,
    pub truth: PathBuf,
}

/// A line of the truth: the targets that are there in a frame.
#[derive(Serialize)]
struct WrittenTruth {
    run: u64,
    frame: u64,
    targets: Vec<WrittenTarget>,
}

#[derive(Serialize)]
struct WrittenTarget {
    identity: u64,
    /// The free coordinates.
    position_m: Vec<f64>,
    rcs_m2: f64,
    /// Gains of all paths, where there are several targets: their joint bound depends on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gains: Vec<f64>,
}

impl WrittenTruth {
    fn new(source: &EchoSource, id: FrameId, targets: &[TrueTarget]) -> Self {
        let axes = source.system().axes();
        let told = truth::record(source, id, targets, false).targets.unwrap_or_default().targets;
        let write = |(target, told): (&TrueTarget, v1::TrueTarget)| WrittenTarget {
            identity: told.identity,
            position_m: axes.iter().map(|&axis| target.position_m[axis]).collect(),
            rcs_m2: told.rcs_m2,
            gains: told.gains,
        };
        Self { run: id.run, frame: id.frame, targets: targets.iter().zip(told).map(write).collect() }
    }
}

/// Writes the frames of a scenario into the directory of the options. If it fails or is stopped, the files that it has begun are
/// removed.
pub async fn write_files(
    options: &SimulatorOptions,
    scenario: Scenario,
    shutdown: CancellationToken,
) -> anyhow::Result<EchoFilesSummary> {
    let source = build(timed(scenario.clone(), options.rate_hz)).await?;
    let course = Course::new(&scenario, options.rate_hz);
    let options = options.clone();
    let write = move || {
        let directory = options.echoes_out.clone().unwrap_or_default();
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let mut files = FileSet::create(&options, &source, &directory)?;
        let written = files.write(&options, &source, &course, &shutdown);
        files.finish(written)
    };
    tokio::task::spawn_blocking(write).await?
}

/// The files of a run.
struct FileSet {
    run: u64,
    start_ns: u64,
    writers: Vec<Box<dyn EchoWriter>>,
    truth: (PathBuf, BufWriter<File>),
    frames: u64,
    /// Files that have been begun.
    begun: Vec<PathBuf>,
}

impl FileSet {
    fn create(options: &SimulatorOptions, source: &EchoSource, directory: &Path) -> anyhow::Result<Self> {
        let system = source.system();
        let site_sha256 = SharedSite::new(system.clone())?.sha256;
        let (run, start_ns) = (run_identity(), unix_time_ns());
        let path = directory.join("truth.jsonl");
        let truth = File::create_new(&path).with_context(|| path.display().to_string())?;
        let mut set = Self {
            run,
            start_ns,
            writers: Vec::new(),
            truth: (path.clone(), BufWriter::new(truth)),
            frames: 0,
            begun: vec![path],
        };
        for node in 0..system.irs_count() {
            let layout = EchoLayout {
                node: node as u32,
                site_sha256,
                sensors: system.sensors(),
                subcarriers: system.subcarriers,
                bandwidth_hz: system.bandwidth_hz,
                window: DEFAULT_WINDOW,
            };
            let plan = EchoFilePlan {
                layout,
                run,
                frames: options.frames,
                frame_rate_hz: options.rate_hz,
                start_ns,
            };
            match options.echoes_format.create(directory, &plan) {
                Ok(writer) => {
                    set.begun.extend(writer.paths());
                    set.writers.push(writer);
                }
                Err(error) => {
                    set.remove();
                    return Err(error).context("the files of echoes cannot be made");
                }
            }
        }
        Ok(set)
    }

    fn write(
        &mut self,
        options: &SimulatorOptions,
        source: &EchoSource,
        course: &Course,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let situation = course.situation();
        let mut noticed = Instant::now();
        for frame in 0..options.frames {
            if stop.is_cancelled() {
                let reason = format!("stopped after {frame} of {} frames: no file is left", options.frames);
                return Err(Failure::new(exit::UNAVAILABLE, reason).into());
            }
            let id = FrameId { run: self.run, frame };
            let targets = situation.targets(source, frame);
            let due_ns = stamp_ns(self.start_ns, frame, options.rate_hz);
            for (writer, echo) in self.writers.iter_mut().zip(pace::echoes(source, id, &targets, due_ns)) {
                writer.write(&echo).context("the echoes cannot be written")?;
            }
            let line = serde_json::to_string(&WrittenTruth::new(source, id, &targets))?;
            writeln!(self.truth.1, "{line}").context("the truth cannot be written")?;
            self.frames += 1;
            if noticed.elapsed() >= NOTICE {
                tracing::info!(frames = self.frames, of = options.frames, "writing");
                noticed = Instant::now();
            }
        }
        self.truth.1.flush().context("the truth cannot be written")
    }

    fn finish(mut self, written: anyhow::Result<()>) -> anyhow::Result<EchoFilesSummary> {
        let writers = std::mem::take(&mut self.writers);
        let finish = || {
            written?;
            let files = writers.into_iter().map(|writer| writer.finish()).collect::<Result<Vec<_>, _>>();
            anyhow::Ok(files.context("the echoes cannot be written")?.concat())
        };
        let files = finish().inspect_err(|_| self.remove())?;
        Ok(EchoFilesSummary { role: ROLE, run: self.run, frames: self.frames, files, truth: self.truth.0 })
    }

    /// Removes what was begun: half a file looks like a whole one.
    fn remove(&self) {
        for path in &self.begun {
            let _ = std::fs::remove_file(path);
        }
    }
}
