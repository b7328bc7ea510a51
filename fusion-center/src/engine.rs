//! The heart of the process: one task that owns the assembler and the pool.
//!
//! Reports come in over a bounded queue, closed frames go to the pool, solved ones to the publisher, and every
//! report is acknowledged once the fate of its blocks is decided. At the end it takes what has been received,
//! closes all open frames, solves them and acknowledges: what was acknowledged as fused is in a fix.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use estimation::fusion::Fuser;
use proto::clock::unix_time_ns;
use proto::convert::{FrameId, Report};
use settings::check::{self, within};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::assembler::{Assembled, Assembler, Closing, Member};
use crate::fix::Source;
use crate::ledger::Fates;
use crate::node_table::NodeTable;
use crate::pool::Pool;
use crate::publish::{Outgoing, Publisher, Since, milliseconds};
use crate::recording::Recorder;
use crate::reply::Reply;
use crate::solve::{Earlier, History, Kept, Solved, solve};
use crate::wire::ReportMessage;

/// Fates per node that are remembered for reports that come again; more than a node's credit.
const REMEMBERED_FATES: usize = 512;

/// What reaches the engine.
#[derive(Debug)]
pub enum Event {
    /// A node registered: it is waited for from now on.
    Joined(usize),
    /// A node's stream ended.
    Left(usize),
    /// A checked report.
    Report(Box<Incoming>),
}

/// A checked report on its way in.
#[derive(Debug)]
pub struct Incoming {
    /// The node.
    pub node: usize,
    /// What it says.
    pub report: Report,
    /// As it came, for the recording.
    pub message: Option<ReportMessage>,
    /// When it came.
    pub received_ns: u64,
    /// Where its acknowledgement goes.
    pub reply: Reply,
}

/// How the engine works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
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
    /// Added to every solve: acts as a slower machine.
    #[arg(long = "solver-delay-ms", id = "solver_delay_ms", value_name = "MS", default_value = "0",
          value_parser = check::milliseconds(0), hide_short_help = true)]
    pub solver_delay: Duration,
}

impl EngineSettings {
    /// Threads that solve.
    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.workers == 0 { cores() } else { self.workers }
    }
}

/// A report's place in the recording and its reply.
#[derive(Debug)]
pub struct Tag {
    reply: Reply,
    sequence: Option<u32>,
}

type Frame = Assembled<Tag>;

struct Job {
    frame: FrameId,
    kept: Arc<Kept>,
    earlier: Earlier,
    rest: Rest,
}

/// What a frame keeps while its blocks are solved.
struct Rest {
    members: Vec<Member<Tag>>,
    first_ns: u64,
    last_ns: u64,
    /// Numbers of the earlier frames that it is solved with.
    earlier: Vec<u64>,
}

/// See the module.
pub struct Engine {
    assembler: Assembler<Tag>,
    pool: Pool<Job, (Solved, Rest)>,
    node_table: NodeTable,
    publisher: Publisher,
    recorder: Option<Recorder>,
    history: History,
    /// Fates that were told of late, by node: a report that comes again is told the same.
    told: Vec<VecDeque<(FrameId, Fates)>>,
}

impl Engine {
    /// An engine that publishes to `publisher` and keeps accounts in `node_table`.
    pub fn new(
        fuser: Arc<Fuser>,
        settings: EngineSettings,
        node_table: NodeTable,
        publisher: Publisher,
        recorder: Option<Recorder>,
    ) -> Self {
        let count = fuser.system().irs_count();
        let delay = settings.solver_delay;
        let history = History::new(fuser.settings().batch.frames);
        let work = move |job: Job| {
            std::thread::sleep(delay);
            (solve_or_say(&fuser, job.frame, &job.kept, &job.earlier), job.rest)
        };
        Self {
            assembler: Assembler::new(count, settings.deadline.as_nanos() as u64),
            pool: Pool::new(settings.workers(), settings.queue, work),
            node_table,
            publisher,
            recorder,
            history,
            told: vec![VecDeque::with_capacity(REMEMBERED_FATES); count],
        }
    }

    /// Works until `shutdown`, then drains.
    pub async fn run(mut self, mut events: mpsc::Receiver<Event>, shutdown: CancellationToken) {
        let mut open = true;
        while open || !self.pool.is_idle() {
            let deadline = self.assembler.next_deadline_ns().map(instant_of);
            tokio::select! {
                biased;
                solved = self.pool.next(), if !self.pool.is_idle() => match solved {
                    Ok((solved, rest)) => self.finish(solved, rest).await,
                    Err(error) => tracing::error!(%error, "a solver thread was lost"),
                },
                event = events.recv(), if open => match event {
                    Some(event) => self.handle(event),
                    None => {
                        open = false;
                        let rest = self.assembler.close_all();
                        self.submit(rest);
                    }
                },
                () = shutdown.cancelled(), if open && !events.is_closed() => events.close(),
                () = sleep_until(deadline), if open && deadline.is_some() => {
                    let due = self.assembler.close_due(unix_time_ns());
                    self.submit(due);
                }
            }
        }
        if let Some(recorder) = self.recorder {
            recorder.finish();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Joined(node) => {
                let closed = self.assembler.set_connected(node, true, unix_time_ns());
                self.submit(closed);
            }
            Event::Left(node) => {
                let closed = self.assembler.set_connected(node, false, unix_time_ns());
                self.submit(closed);
            }
            Event::Report(incoming) => self.take(*incoming),
        }
    }

    fn take(&mut self, incoming: Incoming) {
        let Incoming { node, report, message, received_ns, reply } = incoming;
        let blocks = (report.paths.len() + report.refused.len()) as u64;
        let reason = report.refused.first().map(ToString::to_string);
        if let Some(reason) = &reason {
            tracing::warn!(node, frame = report.frame.frame, reason, "blocks refused");
        }
        self.node_table.received(node, &report, blocks);
        let frame = report.frame;
        let told = self.told[node].iter().rev().find(|(known, _)| *known == frame).map(|(_, fates)| *fates);
        if let Some(fates) = told.filter(|_| report.resent) {
            self.node_table.settled(node, Fates::default(), blocks);
            reply.send(fates, "it came before");
            return;
        }
        let sequence = self
            .recorder
            .as_mut()
            .zip(message)
            .map(|(recorder, message)| recorder.report(received_ns, node, message));
        let reply = reply.because(reason);
        match self.assembler.offer(node, report, received_ns, Tag { reply, sequence }) {
            Ok(closed) => self.submit(closed),
            Err(rejected) => {
                let (fates, repeated) = (rejected.fates, rejected.repeated);
                let told = Fates { fused: fates.fused + repeated, ..fates };
                self.settle(node, frame, (fates, repeated), told, rejected.reply, &rejected.reason);
            }
        }
    }

    fn submit(&mut self, closed: Vec<Frame>) {
        for Assembled { frame, blocks, members, first_ns, last_ns, closing } in closed {
            if closing == Closing::Minority {
                self.node_table.minority();
                self.drop_all(frame, members, "no other node reported this frame");
                continue;
            }
            if closing == Closing::Ahead {
                self.refuse_ahead(frame, members);
                continue;
            }
            let kept = Arc::new(Kept::new(blocks));
            let earlier = self.history.take(frame, &kept);
            let numbers = earlier.iter().map(|(number, _)| *number).collect();
            let rest = Rest { members, first_ns, last_ns, earlier: numbers };
            let job = Job { frame, kept, earlier, rest };
            self.node_table.offered();
            if let Some(shed) = self.pool.submit(job) {
                tracing::debug!(frame = shed.frame.frame, "overloaded: frame shed");
                self.node_table.shed();
                self.drop_all(shed.frame, shed.rest.members, "shed: the fusion center is overloaded");
            }
        }
        self.observe_load();
    }

    fn observe_load(&self) {
        let oldest_ns = self.pool.oldest().map(|job| job.rest.last_ns);
        self.node_table.load(unix_time_ns(), self.assembler.open_frames(), self.pool.waiting(), oldest_ns);
    }

    fn refuse_ahead(&mut self, frame: FrameId, members: Vec<Member<Tag>>) {
        let nodes: Vec<usize> = members.iter().map(|member| member.node).collect();
        tracing::warn!(
            ?nodes,
            run = frame.run,
            frame = frame.frame,
            "frame refused: too far ahead of the others"
        );
        self.node_table.ahead();
        self.drop_all(frame, members, "the frame is too far ahead of what the other nodes report");
    }

    fn drop_all(&mut self, frame: FrameId, members: Vec<Member<Tag>>, reason: &str) {
        for Member { node, reply, fates, repeated, .. } in members {
            let fates = Fates { fused: 0, dropped: fates.dropped + fates.fused, ..fates };
            let told = Fates { dropped: fates.dropped + repeated, ..fates };
            self.settle(node, frame, (fates, repeated), told, reply, reason);
        }
    }

    /// Books the fate of a report's blocks and tells its node. Blocks that came again are booked as such and
    /// told the fate of their first arrival.
    fn settle(
        &mut self,
        node: usize,
        frame: FrameId,
        (fates, repeated): (Fates, u64),
        told: Fates,
        tag: Tag,
        reason: &str,
    ) {
        self.node_table.settled(node, fates, repeated);
        let known = &mut self.told[node];
        if known.len() == REMEMBERED_FATES {
            known.pop_front();
        }
        known.push_back((frame, told));
        tag.reply.send(told, reason);
    }

    async fn finish(&mut self, solved: Solved, rest: Rest) {
        self.observe_load();
        let Solved { mut record, basis, reason } = solved;
        let timing = &mut record.timing;
        timing.assemble_ms = milliseconds(rest.first_ns, rest.last_ns);
        timing.wire_bytes = rest.members.iter().map(|member| member.bytes as u64).sum();
        let mut since = Since { last_ns: rest.last_ns, intended_ns: None };
        for member in &rest.members {
            let Some(times) = member.times.filter(|times| times.intended_ns > 0) else { continue };
            timing.nodes.push(member.node);
            timing.emit_ms.push(milliseconds(times.intended_ns, times.received_ns));
            timing.filter_ms.push(milliseconds(times.received_ns, times.filtered_ns));
            timing.wire_ms.push(milliseconds(times.sent_ns, member.received_ns));
            since.intended_ns = Some(times.intended_ns);
        }
        if let Some(recorder) = &mut self.recorder {
            let sequences = rest.members.iter().filter_map(|member| member.reply.sequence).collect();
            recorder.frame(record.frame_id(), unix_time_ns(), sequences, rest.earlier);
        }
        let frame = record.frame_id();
        self.publisher.publish(Outgoing { record, basis, reason, since: Some(since) }).await;
        for Member { node, reply, fates, repeated, .. } in rest.members {
            let told = Fates { fused: fates.fused + repeated, ..fates };
            self.settle(node, frame, (fates, repeated), told, reply, "");
        }
    }
}

/// A panic of the solver costs one fix, not the process.
fn solve_or_say(fuser: &Fuser, frame: FrameId, kept: &Kept, earlier: &Earlier) -> Solved {
    let solved = catch_unwind(AssertUnwindSafe(|| solve(fuser, frame, kept, earlier, Source::Simulated)));
    solved.unwrap_or_else(|_| {
        tracing::error!(frame = frame.frame, "the solver panicked");
        Solved::failed(frame, kept)
    })
}

fn instant_of(time_ns: u64) -> Instant {
    Instant::now() + Duration::from_nanos(time_ns.saturating_sub(unix_time_ns()))
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
