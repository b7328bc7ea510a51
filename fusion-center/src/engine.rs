//! The task that owns the intake of reports and the pool.
//!
//! Reports come in over a bounded queue, closed frames go to the pool, solved ones to the publisher, and every
//! report is acknowledged once the fate of its paths is decided. On shutdown the engine takes what has been received,
//! closes all open frames, solves them and acknowledges: what was acknowledged as fused is in a fix.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use estimation::clock_filter::{ClockEstimate, ClockFilter, ClockFilterSettings};
use estimation::direct::ClockPrior;
use proto::clock::{stamped_ns, steady_time_ns, unix_time_ns};
use proto::convert::{FrameId, Report};
use settings::check::{self, within};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::assembler::{Assembled, Closing, Member};
use crate::fix::{ReportArrivals, Source};
use crate::frame_time::FrameTimeline;
use crate::intake::{Decision, Intake, Settlement};
use crate::ledger::Fates;
use crate::node_table::NodeTable;
use crate::pool::Pool;
use crate::publish::{Outgoing, Publisher};
use crate::queue::Queue;
use crate::recording::Recorder;
use crate::reply::{PendingAcknowledgement, SharedRequests};
use crate::solve::{Earlier, History, Kept, Solved, Solver, solve};

use crate::thinning::Thinning;
use crate::wire::ReportMessage;

/// A node is told the offset of its clock where that is known to this share of the prior.
const KNOWN_SHARE: f64 = 0.1;

#[derive(Debug)]
pub enum Event {
    /// The stream of a node has opened, and it is waited for from now on, or its stream has ended.
    Presence {
        node: usize,
        present: bool,
    },
    Report(Box<Incoming>),
}

/// A checked report.
#[derive(Debug)]
pub struct Incoming {
    pub node: usize,
    pub report: Report,
    /// The report as received, for the recording.
    pub message: Option<ReportMessage>,
    /// When it was received, as stamped.
    pub received_ns: u64,
    /// The same on the steady clock, by which deadlines are judged.
    pub arrived_ns: u64,
    pub acknowledgement: PendingAcknowledgement,
}

/// How frames are assembled and scheduled.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct EngineSettings {
    /// How long a frame waits for its last report.
    #[arg(long = "deadline-ms", id = "deadline_ms", value_name = "MS", default_value = "250",
          value_parser = check::milliseconds(1))]
    pub deadline: Duration,
    /// Frames that are solved at once; 0 means one for each core.
    #[arg(long, value_name = "N", default_value = "0", value_parser = within::<usize>(0, 256))]
    pub workers: usize,
    /// Frames that may wait for a solver before the oldest is shed.
    #[arg(long, value_name = "N", default_value = "16", value_parser = within::<usize>(1, 4096))]
    pub queue: usize,
    /// Time added to every solve, to emulate a slower machine.
    #[arg(long = "solver-delay-ms", id = "solver_delay_ms", value_name = "MS", default_value = "0",
          value_parser = check::milliseconds(0), hide_short_help = true)]
    pub solver_delay: Duration,
    /// Drift that clocks are assumed to have where they are not trusted: standard deviation, parts per billion.
    #[arg(long, value_name = "PPB", default_value = "100", value_parser = within::<f64>(0.0, 1e6))]
    pub clock_drift_ppb: f64,
    /// Wander that clocks are assumed to have where they are not trusted: standard deviation after one second.
    #[arg(long, value_name = "NS", default_value = "0.02", value_parser = within::<f64>(0.0, 1e6))]
    pub clock_wander_ns: f64,
}

impl EngineSettings {
    /// What is assumed about clocks with offsets of this standard deviation.
    fn clock_filter(&self, offset_s: f64) -> ClockFilterSettings {
        ClockFilterSettings {
            rate: self.clock_drift_ppb * 1e-9,
            wander_s: self.clock_wander_ns * 1e-9,
            ..ClockFilterSettings::new(offset_s)
        }
    }

    /// Number of threads that solve.
    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.workers == 0 { cores() } else { self.workers }
    }
}

/// How long acknowledgements wait for the log: a disk that hangs holds up no fix.
const LOG_WAIT: Duration = Duration::from_secs(1);

/// A closed frame on its way through the pool.
struct Job {
    frame: FrameId,
    kept: Arc<Kept>,
    earlier: Earlier,
    members: Vec<Member<PendingAcknowledgement>>,
    first_ns: u64,
    last_ns: u64,
    /// When the frame was taken.
    time_s: f64,
}

pub struct Engine {
    intake: Intake<PendingAcknowledgement>,
    pool: Pool<Job, (Solved, Option<ClockPrior>, Job)>,
    node_table: NodeTable,
    publisher: Publisher,
    recorder: Option<Recorder>,
    history: History,
    thinning: Thinning,
    /// What nodes are asked for and told.
    requests: SharedRequests,
    /// None where clocks are trusted.
    clocks: Option<SharedClocks>,
    timeline: FrameTimeline,
    /// Acknowledgements that wait for the log.
    acknowledging: TaskTracker,
    /// The run that the nodes report.
    run: Option<u64>,
}

impl Engine {
    /// The engine of a site of `count` nodes.
    pub fn new(
        solver: Solver,
        count: usize,
        settings: EngineSettings,
        node_table: NodeTable,
        publisher: Publisher,
        recorder: Option<Recorder>,
        requests: SharedRequests,
    ) -> Self {
        let (delay, deadline_ns) = (settings.solver_delay, settings.deadline.as_nanos() as u64);
        let history = History::new(solver.batch_frames());
        let offset_s = solver.clock_prior_s();
        let clocks = (offset_s > 0.0)
            .then(|| Arc::new(Mutex::new(ClockFilter::new(count, settings.clock_filter(offset_s)))));
        let known = clocks.clone();
        let work = move |job: Job| {
            std::thread::sleep(delay);
            // What is known when solving begins: frames that wait profit from those before them.
            let prior = known.as_ref().and_then(|clocks| locked(clocks).prior(job.time_s));
            let solved = solve_or_fail(&solver, &job, prior.as_ref());
            solver.show(job.frame, &job.kept, prior.as_ref());
            (solved, prior, job)
        };
        Self {
            intake: Intake::new(count, deadline_ns),
            pool: Pool::new(settings.workers(), Queue::new(settings.queue, deadline_ns), work),
            node_table,
            publisher,
            recorder,
            history,
            thinning: Thinning::new(settings.workers()),
            requests,
            clocks,
            timeline: FrameTimeline::default(),
            acknowledging: TaskTracker::new(),
            run: None,
        }
    }

    /// Works until `shutdown`, then drains. Returns the recorder: the last fixes are still on their way to it.
    pub async fn run(
        mut self,
        mut events: mpsc::Receiver<Event>,
        shutdown: CancellationToken,
    ) -> Option<Recorder> {
        let mut open = true;
        while open || !self.pool.is_idle() {
            let deadline = self.intake.assembler.next_deadline_ns().map(instant_of);
            tokio::select! {
                biased;
                solved = self.pool.next(), if !self.pool.is_idle() => {
                    // The next frame is solved while this one is published.
                    self.start();
                    match solved {
                        Ok(((solved, prior, job), took)) => {
                            self.thinning.solved(took.as_nanos() as u64);
                            self.finish(solved, prior, job).await;
                        }
                        Err(error) => tracing::error!(%error, "a solver thread was lost"),
                    }
                }
                event = events.recv(), if open => match event {
                    Some(Event::Report(incoming)) => self.take(*incoming),
                    // The end of an old stream may be told after the beginning of the next one.
                    Some(Event::Presence { node, present: false }) if self.node_table.is_connected(node) => {}
                    Some(Event::Presence { node, present }) => {
                        if let Some(clocks) = self.clocks.as_ref().filter(|_| present) {
                            locked(clocks).restart(node);
                        }
                        let closed = self.intake.assembler.set_connected(node, present, steady_time_ns());
                        self.submit(closed);
                    }
                    None => {
                        open = false;
                        let closed = self.intake.assembler.close_all();
                        self.submit(closed);
                    }
                },
                () = shutdown.cancelled(), if open && !events.is_closed() => events.close(),
                () = sleep_until(deadline), if open && deadline.is_some() => {
                    let due = self.intake.assembler.close_due(steady_time_ns());
                    self.submit(due);
                }
            }
        }
        self.acknowledging.close();
        self.acknowledging.wait().await;
        self.recorder
    }

    fn take(&mut self, incoming: Incoming) {
        let Incoming { node, report, message, received_ns, arrived_ns, mut acknowledgement } = incoming;
        let (frame, paths) = (report.frame, (report.paths.len() + report.refused.len()) as u64);
        let refusal = report.refused.first().map(ToString::to_string);
        if let Some(reason) = &refusal {
            telemetry::warn_limited!(node, frame = frame.frame, reason, "paths refused");
        }
        self.node_table.received(node, &report, paths);
        if let Some(told) = self.intake.decided_before(node, &report) {
            self.node_table.settled(node, Fates::default(), paths);
            acknowledgement.send(told, "the report was received before");
            return;
        }
        acknowledgement.sequence = self
            .recorder
            .as_mut()
            .zip(message)
            .map(|(recorder, message)| recorder.report(received_ns, node, message));
        acknowledgement.refusal = refusal;
        match self.intake.offer(node, report, arrived_ns, acknowledgement) {
            Ok(closed) => self.submit(closed),
            Err(settlement) => self.acknowledge(settlement, &format!("frame {} is closed", frame.frame)),
        }
    }

    fn submit(&mut self, closed: Vec<Assembled<PendingAcknowledgement>>) {
        for Assembled { frame, blocks, members, first_ns, last_ns, closing } in closed {
            match closing {
                Closing::Complete | Closing::Overdue => {}
                Closing::Minority => {
                    self.node_table.minority();
                    self.drop_all(frame, members, "no other node reported this frame");
                    continue;
                }
                Closing::Ahead => {
                    let nodes: Vec<usize> = members.iter().map(|member| member.node).collect();
                    let FrameId { run, frame: number } = frame;
                    telemetry::warn_limited!(
                        ?nodes,
                        run,
                        frame = number,
                        "frame refused: too far ahead of the other nodes"
                    );
                    self.node_table.ahead();
                    self.drop_all(
                        frame,
                        members,
                        "the frame is too far ahead of what the other nodes report",
                    );
                    continue;
                }
            }
            let kept = Arc::new(Kept::new(blocks));
            let earlier = self.history.take(frame, &kept);
            self.node_table.offered();
            self.thinning.offered(frame, steady_time_ns());
            self.requests.set_stride(self.thinning.stride());
            self.intake.to_be_solved(frame);
            let stamps = members.iter().filter_map(|member| Some(member.times?.intended_ns));
            let time_s = self.timeline.next_s(stamps.collect(), first_ns);
            self.pool.submit(first_ns, Job { frame, kept, earlier, members, first_ns, last_ns, time_s });
        }
        self.start();
        self.observe_run();
    }

    /// Starts what solvers are free for, and drops what is shed.
    fn start(&mut self) {
        for shed in self.pool.start(steady_time_ns()) {
            tracing::debug!(frame = shed.frame.frame, "overloaded: frame shed");
            self.node_table.shed();
            self.drop_all(shed.frame, shed.members, "shed: the fusion center is overloaded");
        }
        self.observe_load();
    }

    /// Adds what a solved frame says about the clocks, and tells the nodes.
    fn take_clocks(&mut self, solved: &Solved, time_s: f64) {
        let (Some(clocks), Some(update)) = (&self.clocks, &solved.clocks) else { return };
        let mut filter = locked(clocks);
        filter.update(time_s, update);
        for node in &update.stepped {
            telemetry::warn_limited!(node, frame = solved.record.frame, "the clock of a node has stepped");
        }
        for node in &update.at_edge {
            telemetry::warn_limited!(
                node,
                frame = solved.record.frame,
                "the clock of a node is at the edge of the searched offsets: raise clocks.prior_ns"
            );
        }
        let estimates: Vec<ClockEstimate> = (0..).map_while(|node| filter.estimate(node)).collect();
        for (node, clock) in estimates.iter().enumerate() {
            let known = clock.deviation_s < KNOWN_SHARE * filter.settings().offset_s;
            self.requests.set_clock(node, known.then_some(clock.offset_s));
        }
        drop(filter);
        self.node_table.clocks(estimates, solved.record.frame_id(), &update.stepped);
    }

    fn observe_run(&mut self) {
        let run = self.intake.assembler.run();
        if run.is_some() && run != self.run {
            telemetry::info_limited!(run, before = self.run, "a majority of the nodes reports a new run");
            self.run = run;
        }
    }

    fn observe_load(&self) {
        let oldest_ns = self.pool.oldest().map(|job| job.last_ns);
        self.node_table.load(
            steady_time_ns(),
            self.intake.assembler.open_frames(),
            self.pool.waiting(),
            oldest_ns,
        );
    }

    fn drop_all(&mut self, frame: FrameId, members: Vec<Member<PendingAcknowledgement>>, reason: &str) {
        for settlement in self.intake.decide(frame, members, Decision::Dropped) {
            self.acknowledge(settlement, reason);
        }
    }

    /// Records the fates of a report's paths and acknowledges it.
    fn acknowledge(&self, settlement: Settlement<PendingAcknowledgement>, reason: &str) {
        let (acknowledgement, told) = self.settle(settlement);
        acknowledgement.send(told, reason);
    }

    /// Counts what was decided; the acknowledgement remains to be sent.
    fn settle(&self, settlement: Settlement<PendingAcknowledgement>) -> (PendingAcknowledgement, Fates) {
        let Settlement { node, acknowledgement, fates, repeated, told } = settlement;
        self.node_table.settled(node, fates, repeated);
        (acknowledgement, told)
    }

    async fn finish(&mut self, mut solved: Solved, clocks: Option<ClockPrior>, job: Job) {
        let Job { frame, earlier, members, first_ns, last_ns, time_s, .. } = job;
        self.take_clocks(&solved, time_s);
        if let Some(followable) = &mut solved.followable {
            followable.time_s = time_s;
        }
        let reports = members.iter().filter_map(|member| {
            let times = member.times.filter(|times| times.intended_ns > 0)?;
            Some((member.node, times, stamped_ns(member.received_ns)))
        });
        let arrivals = ReportArrivals {
            first_ns: stamped_ns(first_ns),
            last_ns: stamped_ns(last_ns),
            bytes: members.iter().map(|member| member.bytes as u64).sum(),
            reports: reports.collect(),
        };
        if let Some(recorder) = &mut self.recorder {
            let sequences = members.iter().filter_map(|member| member.acknowledgement.sequence).collect();
            let earlier = earlier.iter().map(|(number, _)| *number).collect();
            let followed_s = solved.followable.as_ref().map(|_| time_s);
            recorder.frame(frame, unix_time_ns(), sequences, earlier, clocks.as_ref(), followed_s);
        }
        let (unwritten, written) = oneshot::channel();
        let unwritten = Some(unwritten).filter(|_| self.publisher.has_log());
        self.publisher.publish(Outgoing { solved, arrivals: Some(arrivals), unwritten }).await;
        let settlements = self.intake.decide(frame, members, Decision::Fused);
        let settled: Vec<_> = settlements.into_iter().map(|settlement| self.settle(settlement)).collect();
        // A fix that was acknowledged is in the log, whatever happens to this process.
        self.acknowledging.spawn(async move {
            let _ = tokio::time::timeout(LOG_WAIT, written).await;
            settled.into_iter().for_each(|(acknowledgement, told)| acknowledgement.send(told, ""));
        });
    }
}

/// Solves a frame; a panic of the solver costs one fix, not the process.
fn solve_or_fail(solver: &Solver, job: &Job, clocks: Option<&ClockPrior>) -> Solved {
    let Job { frame, kept, earlier, .. } = job;
    let solved =
        catch_unwind(AssertUnwindSafe(|| solve(solver, *frame, kept, earlier, clocks, Source::Simulated)));
    solved.unwrap_or_else(|_| {
        tracing::error!(frame = frame.frame, "the solver panicked");
        Solved::failed(*frame, kept)
    })
}

/// The clocks of the nodes, shared with the solvers.
type SharedClocks = Arc<Mutex<ClockFilter>>;

fn locked(clocks: &SharedClocks) -> MutexGuard<'_, ClockFilter> {
    clocks.lock().unwrap_or_else(PoisonError::into_inner)
}

fn instant_of(time_ns: u64) -> Instant {
    Instant::now() + Duration::from_nanos(time_ns.saturating_sub(steady_time_ns()))
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
