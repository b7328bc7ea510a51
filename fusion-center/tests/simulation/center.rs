//! The fusion center of the simulation: the pure parts of the real one, wired as its service and engine wire them.

use std::collections::VecDeque;

use hyloc_fusion_center::assembler::{Assembled, Closing, Member};
use hyloc_fusion_center::intake::{Decision, Intake, Settlement};
use hyloc_fusion_center::ledger::{Fates, Ledger};
use hyloc_fusion_center::queue::Queue;
use hyloc_fusion_center::registry::{Application, Registry};
use proto::convert::{FrameId, Report};

use super::agreement::Agreement;

pub const DEADLINE_NS: u64 = 250_000_000;
pub const CREDIT: u32 = 16;
const QUEUE: usize = 8;
/// How long an index is kept for the process whose stream broke.
const LEASE_NS: u64 = 2_000_000_000;

/// Which process sent a report, over which connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub process: u64,
    pub connection: u64,
    pub frame: FrameId,
}

/// A frame that was fused, with the process behind each of its reports.
pub struct Fix {
    pub assembled: Assembled<Ticket>,
    pub at_ns: u64,
}

pub struct Center {
    pub instance: String,
    pub registry: Registry,
    pub ledger: Ledger,
    pub intake: Intake<Ticket>,
    /// What may be closed, from the same reports.
    pub agreement: Agreement,
    queue: Queue<Assembled<Ticket>>,
    /// Frames at the solvers, and when they are done; one solver.
    solving: Option<(Assembled<Ticket>, u64, u64)>,
    /// Incarnation of each index, as its stream opened.
    incarnations: Vec<String>,
    /// When the stream of an index broke, until it is registered again.
    broken_ns: Vec<Option<u64>>,
    /// Acknowledgements to be sent.
    pub replies: VecDeque<(Ticket, Fates)>,
    pub fixes: Vec<Fix>,
    pub solve_ns: u64,
}

impl Center {
    pub fn new(count: usize, instance: String, solve_ns: u64) -> Self {
        Self {
            instance,
            registry: Registry::new(count, &[1]),
            ledger: Ledger::new(count),
            intake: Intake::new(count, DEADLINE_NS),
            agreement: Agreement::new(count),
            queue: Queue::new(QUEUE, DEADLINE_NS),
            solving: None,
            incarnations: vec![String::new(); count],
            broken_ns: vec![None; count],
            replies: VecDeque::new(),
            fixes: Vec::new(),
            solve_ns,
        }
    }

    pub fn register(&mut self, application: &Application, session: &str, now_ns: u64) -> Option<usize> {
        let index = self.registry.register(application, session, now_ns).ok()?;
        let known = application.proven_index.is_some() || self.incarnations[index] == application.incarnation;
        let kept = self.broken_ns[index].take().is_some_and(|broken_ns| now_ns < broken_ns + LEASE_NS);
        assert!(known || !kept, "index {index} was taken from a process whose stream had just broken");
        self.incarnations[index].clone_from(&application.incarnation);
        Some(index)
    }

    pub fn connect(&mut self, session: &str, now_ns: u64) -> Option<usize> {
        let index = self.registry.connect(session, now_ns).ok()?;
        self.ledger.open(index, &self.incarnations[index].clone());
        let closed = self.intake.assembler.set_connected(index, true, now_ns);
        self.agreement.set_connected(index, true);
        self.submit(closed, now_ns);
        Some(index)
    }

    pub fn disconnect(&mut self, session: &str, index: usize, in_order: bool, now_ns: u64) {
        if self.registry.disconnect(session, in_order, now_ns) {
            self.broken_ns[index] = (!in_order).then_some(now_ns);
            let closed = self.intake.assembler.set_connected(index, false, now_ns);
            self.agreement.set_connected(index, false);
            self.submit(closed, now_ns);
        }
    }

    pub fn take(&mut self, node: usize, report: Report, ticket: Ticket, now_ns: u64) {
        let paths = (report.paths.len() + report.refused.len()) as u64;
        self.ledger.declare(node, report.blocks_sent, report.blocks_dropped);
        self.ledger.receive(node, paths);
        if let Some(told) = self.intake.decided_before(node, &report) {
            self.ledger.repeat(node, paths);
            self.replies.push_back((ticket, told));
            return;
        }
        let frame = report.frame;
        let offered = self.intake.offer(node, report, now_ns, ticket);
        let accepted = offered.is_ok() && !self.agreement.is_fused(frame);
        self.agreement.reported(node, frame, accepted, now_ns);
        match offered {
            Ok(closed) => self.submit(closed, now_ns),
            Err(settlement) => self.book(settlement),
        }
    }

    /// When the center has something to do by itself.
    pub fn next_ns(&self) -> Option<u64> {
        let solved = self.solving.as_ref().map(|(_, done_ns, _)| *done_ns);
        self.intake.assembler.next_deadline_ns().into_iter().chain(solved).min()
    }

    pub fn work(&mut self, now_ns: u64) {
        if self.solving.as_ref().is_some_and(|(_, done_ns, _)| *done_ns <= now_ns)
            && let Some((mut assembled, _, took_ns)) = self.solving.take()
        {
            self.queue.solved(took_ns);
            let (frame, members) = (assembled.frame, std::mem::take(&mut assembled.members));
            let tickets = members.iter().map(|member| (member.node, member.acknowledgement)).collect();
            self.fixes.push(Fix { assembled, at_ns: now_ns });
            self.publish(tickets);
            self.settle(frame, members, Decision::Fused);
        }
        let due = self.intake.assembler.close_due(now_ns);
        self.submit(due, now_ns);
    }

    fn publish(&mut self, tickets: Vec<(usize, Ticket)>) {
        let blocks = &self.fixes.last().expect("a fix").assembled.blocks;
        for (l, k, path) in blocks.present() {
            // Every path of a fix was made by a process whose report is behind the fix.
            let made = tickets.iter().any(|(node, ticket)| {
                *node == l && path.delay_s == super::node::delay_s(ticket.process, ticket.frame, k)
            });
            assert!(made, "path ({l}, {k}) of a fix is nobody's");
        }
    }

    fn submit(&mut self, closed: Vec<Assembled<Ticket>>, now_ns: u64) {
        self.agreement.closed(&closed, now_ns);
        for assembled in closed {
            match assembled.closing {
                Closing::Complete | Closing::Overdue => {
                    self.intake.to_be_solved(assembled.frame);
                    self.queue.push(assembled.first_ns, assembled);
                }
                Closing::Minority | Closing::Ahead => {
                    self.settle(assembled.frame, assembled.members, Decision::Dropped);
                }
            }
        }
        if self.solving.is_none() {
            for shed in self.queue.shed_old(now_ns) {
                self.settle(shed.frame, shed.members, Decision::Dropped);
            }
            let took_ns = self.solve_ns;
            self.solving = self.queue.pop().map(|next| (next, now_ns + took_ns, took_ns));
        }
        for shed in self.queue.shed(now_ns) {
            self.settle(shed.frame, shed.members, Decision::Dropped);
        }
        assert!(self.queue.len() <= QUEUE);
    }

    fn settle(&mut self, frame: FrameId, members: Vec<Member<Ticket>>, decision: Decision) {
        for settlement in self.intake.decide(frame, members, decision) {
            self.book(settlement);
        }
    }

    fn book(&mut self, settled: Settlement<Ticket>) {
        self.ledger.settle(settled.node, settled.fates);
        self.ledger.repeat(settled.node, settled.repeated);
        self.replies.push_back((settled.acknowledgement, settled.told));
    }
}
