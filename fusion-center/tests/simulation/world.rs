//! Processes and network in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use hyloc_fusion_center::registry::Application;
use model::random::{Purpose, Stream, stream};
use proto::convert::FrameId;
use proto::{PROTOCOL_VERSION, v1};
use rand::RngExt;

use super::center::{CREDIT, Center, Ticket};
use super::check::Checks;
use super::node::{Link, Node, report_of};

#[path = "faults.rs"]
mod faults;
#[path = "strangers.rs"]
mod strangers;

pub const MS: u64 = 1_000_000;
const PERIOD_NS: u64 = 40 * MS;
const HEAL_NS: u64 = 10_000 * MS;
/// Five seconds after the healing, fixes of all nodes must come at the rate of the frames.
pub const HEALED_NS: u64 = HEAL_NS + 5_000 * MS;
pub const STOP_NS: u64 = HEALED_NS + 2_000 * MS;
/// Time for everything to be decided after the last frame.
const SETTLE_NS: u64 = 12_000 * MS;

/// What a simulation came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub events: u64,
    pub fixes: u64,
    pub faults: u64,
    pub hostile: u64,
}

enum Event {
    Emit,
    Echo { node: usize, process: u64, frame: FrameId },
    Poke { node: usize },
    Register { node: usize, process: u64 },
    Registered { node: usize, process: u64, session: Option<String> },
    Open { connection: u64 },
    Opened { connection: u64, instance: Option<String> },
    Report { connection: u64, report: v1::FrameReport },
    Acknowledge { connection: u64, acknowledgement: v1::Acknowledgement },
    BreakAtNode { connection: u64 },
    BreakAtCenter { connection: u64, in_order: bool },
    Work,
    RestartNode { node: usize },
    RestartCenter,
    Mend { node: usize },
    Fault,
    Intrude,
    Heal,
}

/// A stream between a process and the fusion center.
struct Connection {
    /// The node, or none for a stranger.
    node: Option<usize>,
    process: u64,
    session: String,
    index: Option<usize>,
    /// The life of the fusion center that it belongs to.
    life: u64,
    node_open: bool,
    center_open: bool,
    /// Latest delivery in each direction: a stream keeps its order.
    delivered_ns: [u64; 2],
}

pub struct World {
    now_ns: u64,
    random: Stream,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    payloads: HashMap<u64, Event>,
    sequence: u64,
    count: usize,
    /// Whether indices are proven by certificates.
    proven: bool,
    solve_ns: u64,
    /// A node that is connected and gets no echoes after the healing: the others do not wait for it.
    mute: Option<usize>,
    run: u64,
    frame: u64,
    nodes: Vec<Node>,
    cut: Vec<bool>,
    center: Option<Center>,
    life: u64,
    connections: HashMap<u64, Connection>,
    processes: u64,
    work_ns: Option<u64>,
    checks: Checks,
    outcome: Outcome,
}

/// Runs the simulation of a seed; panics if something does not hold.
pub fn simulate(seed: u64) -> Outcome {
    let mut random = stream(seed, Purpose::Study, [17, 0]);
    let count = random.random_range(2..=5);
    let mut other = stream(seed, Purpose::Study, [17, 1]);
    let mute = other.random_bool(0.25).then(|| other.random_range(0..count));
    let mut world = World {
        now_ns: 0,
        events: BinaryHeap::new(),
        payloads: HashMap::new(),
        sequence: 0,
        count,
        proven: random.random_bool(0.5),
        solve_ns: random.random_range(2..30) * MS,
        mute,
        run: random.random(),
        frame: 0,
        nodes: Vec::new(),
        cut: vec![false; count],
        center: None,
        life: 0,
        connections: HashMap::new(),
        processes: 0,
        work_ns: None,
        checks: Checks::new(count, mute),
        outcome: Outcome::default(),
        random,
    };
    world.begin();
    world.run();
    world.outcome
}

impl World {
    fn begin(&mut self) {
        for index in 0..self.count {
            let node = self.new_node();
            self.nodes.push(node);
            let delay_ns = self.within(0, 300 * MS);
            self.after(delay_ns, Event::Poke { node: index });
        }
        let delay_ns = self.within(0, 500 * MS);
        self.after(delay_ns, Event::RestartCenter);
        self.after(0, Event::Emit);
        self.after(500 * MS, Event::Fault);
        self.after(300 * MS, Event::Intrude);
        self.after(HEAL_NS, Event::Heal);
    }

    fn run(&mut self) {
        let end_ns = self.checks.stop_ns() + SETTLE_NS;
        while let Some(Reverse((at_ns, sequence))) = self.events.pop() {
            if at_ns > end_ns {
                break;
            }
            self.now_ns = at_ns;
            let event = self.payloads.remove(&sequence).expect("an event");
            self.outcome.events += 1;
            self.handle(event);
            self.settle();
        }
        self.checks.finish(&self.nodes, self.center.as_ref().expect("it was healed"), self.proven);
        self.outcome.fixes = self.checks.fixes();
    }

    fn within(&mut self, least: u64, most: u64) -> u64 {
        self.random.random_range(least..=most)
    }

    fn after(&mut self, delay_ns: u64, event: Event) {
        self.at(self.now_ns + delay_ns, event);
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at_ns, self.sequence)));
        self.payloads.insert(self.sequence, event);
    }

    fn secret(&mut self) -> String {
        format!("{:032x}", self.random.random::<u128>())
    }

    fn new_node(&mut self) -> Node {
        self.processes += 1;
        let incarnation = self.secret();
        Node::new(self.processes, incarnation, self.now_ns)
    }

    fn is_healed(&self) -> bool {
        self.now_ns >= HEAL_NS
    }

    /// A message to or from the center; lost if the way of the node is cut.
    fn post(&mut self, node: Option<usize>, event: Event) {
        if node.is_none_or(|node| !self.cut[node]) {
            let delay_ns = self.within(MS / 5, 30 * MS);
            self.after(delay_ns, event);
        }
    }

    /// A message on a stream, in order.
    fn stream(&mut self, id: u64, direction: usize, event: Event) {
        let delay_ns = self.within(MS / 5, 15 * MS);
        let connection = &self.connections[&id];
        if connection.node.is_some_and(|node| self.cut[node]) {
            return;
        }
        let at_ns = (self.now_ns + delay_ns).max(connection.delivered_ns[direction] + 1);
        self.connections.get_mut(&id).expect("known").delivered_ns[direction] = at_ns;
        self.at(at_ns, event);
    }

    /// Sends the replies of the center and looks at its fixes; wakes it when it is due.
    fn settle(&mut self) {
        let Some(center) = &mut self.center else { return };
        self.checks.take_fixes(self.life, center, self.now_ns);
        let replies: Vec<_> = center.replies.drain(..).collect();
        let due_ns = center.next_ns();
        for (ticket, told) in replies {
            self.checks.told(self.life, ticket, told, self.connections[&ticket.connection].index);
            let acknowledgement = v1::Acknowledgement {
                run: ticket.frame.run,
                frame: ticket.frame.frame,
                fused: told.fused as u32,
                late: told.late as u32,
                duplicate: told.duplicate as u32,
                dropped: told.dropped as u32,
                credit: CREDIT,
                ..Default::default()
            };
            let connection = ticket.connection;
            if self.connections[&connection].center_open {
                self.stream(connection, 1, Event::Acknowledge { connection, acknowledgement });
            }
        }
        if let Some(due_ns) = due_ns.map(|due_ns| due_ns.max(self.now_ns))
            && self.work_ns.is_none_or(|known_ns| due_ns < known_ns || known_ns < self.now_ns)
        {
            self.work_ns = Some(due_ns);
            self.at(due_ns, Event::Work);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Emit => self.emit(),
            Event::Echo { node, process, frame } => {
                let mute = self.mute == Some(node) && self.is_healed();
                if self.nodes[node].up && self.nodes[node].process == process && !mute {
                    self.nodes[node].filter(frame, self.count);
                    self.send_reports(node);
                }
            }
            Event::Poke { node } => self.poke(node),
            Event::Register { node, process } => self.register(node, process),
            Event::Registered { node, process, session } => self.registered(node, process, session),
            Event::Open { connection } => self.open(connection),
            Event::Opened { connection, instance } => self.opened(connection, instance),
            Event::Report { connection, report } => self.report(connection, &report),
            Event::Acknowledge { connection, acknowledgement } => {
                self.acknowledge(connection, &acknowledgement)
            }
            Event::BreakAtNode { connection } => self.break_at_node(connection),
            Event::BreakAtCenter { connection, in_order } => self.break_at_center(connection, in_order),
            Event::Work => {
                self.work_ns = None;
                if let Some(center) = &mut self.center {
                    center.work(self.now_ns);
                }
            }
            Event::RestartNode { node } => {
                if !self.nodes[node].up {
                    self.nodes[node] = self.new_node();
                    self.after(0, Event::Poke { node });
                }
            }
            Event::RestartCenter => self.restart_center(),
            Event::Mend { node } => self.cut[node] = false,
            Event::Fault => self.fault(),
            Event::Intrude => self.intrude(),
            Event::Heal => self.heal(),
        }
    }

    fn emit(&mut self) {
        if self.now_ns >= self.checks.stop_ns() {
            return;
        }
        let frame = FrameId { run: self.run, frame: self.frame };
        self.frame += 1;
        self.checks.emitted(self.now_ns);
        for node in 0..self.count {
            let delay_ns = self.within(MS, 20 * MS);
            let process = self.nodes[node].process;
            self.after(delay_ns, Event::Echo { node, process, frame });
        }
        self.after(PERIOD_NS, Event::Emit);
    }

    fn poke(&mut self, index: usize) {
        let (node, now_ns) = (&mut self.nodes[index], self.now_ns);
        if !node.up {
            return;
        }
        match node.link {
            Link::Waiting { until_ns } if until_ns <= now_ns => {
                node.link = Link::Asking { until_ns: now_ns + 2_000 * MS };
                let process = node.process;
                self.post(Some(index), Event::Register { node: index, process });
                self.after(2_000 * MS, Event::Poke { node: index });
            }
            Link::Asking { until_ns } if until_ns <= now_ns => self.wait(index),
            _ => {}
        }
    }

    fn wait(&mut self, index: usize) {
        self.nodes[index].back_off(self.now_ns);
        let Link::Waiting { until_ns } = self.nodes[index].link else { return };
        self.at(until_ns, Event::Poke { node: index });
    }

    fn application(&self, identity: String, incarnation: String, index: usize) -> Application {
        Application {
            protocol_version: PROTOCOL_VERSION,
            identity,
            index: Some(index),
            site_sha256: Vec::new(),
            incarnation,
            proven_index: None,
        }
    }

    fn register(&mut self, index: usize, process: u64) {
        let (session, incarnation) = (self.secret(), self.nodes[index].incarnation.clone());
        if self.nodes[index].process != process {
            return;
        }
        let mut application = self.application(format!("node-{index}"), incarnation, index);
        application.proven_index = self.proven.then_some(index);
        let Some(center) = &mut self.center else { return };
        let registered = center.register(&application, &session, self.now_ns);
        let session = registered.map(|_| session);
        self.post(Some(index), Event::Registered { node: index, process, session });
    }

    fn registered(&mut self, index: usize, process: u64, session: Option<String>) {
        let node = &self.nodes[index];
        if !node.up || node.process != process || !matches!(node.link, Link::Asking { .. }) {
            return;
        }
        let Some(session) = session else { return self.wait(index) };
        let connection = self.connection(Some(index), process, session);
        self.post(Some(index), Event::Open { connection });
    }

    fn connection(&mut self, node: Option<usize>, process: u64, session: String) -> u64 {
        self.sequence += 1;
        let connection = Connection {
            node,
            process,
            session,
            index: None,
            life: self.life,
            node_open: true,
            center_open: false,
            delivered_ns: [0, 0],
        };
        self.connections.insert(self.sequence, connection);
        self.sequence
    }

    fn open(&mut self, id: u64) {
        let connection = &self.connections[&id];
        let (node, life) = (connection.node, connection.life);
        let Some(center) = self.center.as_mut().filter(|_| life == self.life) else { return };
        let index = center.connect(&connection.session, self.now_ns);
        let instance = index.map(|_| center.instance.clone());
        let connection = self.connections.get_mut(&id).expect("known");
        (connection.index, connection.center_open) = (index, index.is_some());
        if let Some(node) = node.filter(|_| index.is_some()) {
            self.checks.opened(node, self.now_ns);
        }
        self.post(node, Event::Opened { connection: id, instance });
    }

    fn opened(&mut self, id: u64, instance: Option<String>) {
        let (node, process) = (self.connections[&id].node, self.connections[&id].process);
        let Some(index) = node else { return };
        let asking = matches!(self.nodes[index].link, Link::Asking { .. });
        if !self.nodes[index].up || self.nodes[index].process != process || !asking {
            // The caller has given up: the center notices.
            let delay_ns = self.within(0, 3_000 * MS);
            return self.after(delay_ns, Event::BreakAtCenter { connection: id, in_order: false });
        }
        // A connection that broke while its stream was being opened does not open.
        let Some(instance) = instance.filter(|_| self.connections[&id].node_open) else {
            return self.wait(index);
        };
        let node = &mut self.nodes[index];
        node.link = Link::Streaming { connection: id };
        node.backoff_ns = 50 * MS;
        node.outbox.registered(&instance, CREDIT);
        self.send_reports(index);
    }

    fn send_reports(&mut self, index: usize) {
        let Link::Streaming { connection } = self.nodes[index].link else { return };
        while let Some(report) = self.nodes[index].outbox.take_next() {
            self.stream(connection, 0, Event::Report { connection, report });
        }
        self.checks.balanced(&self.nodes[index]);
    }

    fn report(&mut self, id: u64, report: &v1::FrameReport) {
        let connection = &self.connections[&id];
        let life = connection.life;
        let Some(center) = self.center.as_mut().filter(|_| life == self.life && connection.center_open)
        else {
            return;
        };
        if !center.registry.is_current(&connection.session) {
            // Its node has registered again.
            self.connections.get_mut(&id).expect("known").center_open = false;
            return self.post(None, Event::BreakAtNode { connection: id });
        }
        let (Some(index), process) = (connection.index, connection.process) else { return };
        let frame = FrameId { run: report.run, frame: report.frame };
        let ticket = Ticket { process, connection: id, frame };
        self.checks.received(self.life, index, process, connection.node.is_some(), self.now_ns);
        center.take(index, report_of(report), ticket, self.now_ns);
    }

    fn acknowledge(&mut self, id: u64, acknowledgement: &v1::Acknowledgement) {
        let Some(index) = self.connections[&id].node else { return };
        if self.nodes[index].up && self.nodes[index].link == (Link::Streaming { connection: id }) {
            self.nodes[index].outbox.acknowledge(acknowledgement);
            self.send_reports(index);
        }
    }

    fn break_at_node(&mut self, id: u64) {
        let connection = self.connections.get_mut(&id).expect("known");
        connection.node_open = false;
        let Some(index) = connection.node else { return };
        if self.nodes[index].up && self.nodes[index].link == (Link::Streaming { connection: id }) {
            self.nodes[index].lose(self.now_ns);
            let Link::Waiting { until_ns } = self.nodes[index].link else { return };
            self.at(until_ns, Event::Poke { node: index });
        }
    }

    fn break_at_center(&mut self, id: u64, in_order: bool) {
        let connection = self.connections.get_mut(&id).expect("known");
        let (life, open) = (connection.life, std::mem::replace(&mut connection.center_open, false));
        let (Some(index), session) = (connection.index, connection.session.clone()) else { return };
        if let Some(center) = self.center.as_mut().filter(|_| open && life == self.life) {
            center.disconnect(&session, index, in_order, self.now_ns);
        }
    }
}
