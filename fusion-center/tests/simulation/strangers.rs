//! Strangers: they guess sessions, open second streams, register and do no more, or take a free index and invent frames.

use super::*;

impl World {
    pub(super) fn intrude(&mut self) {
        if self.is_healed() {
            return;
        }
        self.outcome.hostile += 1;
        match self.within(0, 5) {
            0 => self.guess_a_session(),
            1 => self.open_a_second_stream(),
            2 => self.only_register(),
            3 => self.take_a_free_index(),
            _ => self.invent_reports(),
        }
        let next_ns = self.within(5 * MS, 150 * MS);
        self.after(next_ns, Event::Intrude);
    }

    fn guess_a_session(&mut self) {
        let guess = match self.within(0, 2) {
            0 => String::new(),
            1 => self.secret(),
            _ => self.center.as_ref().map(|center| center.instance.clone()).unwrap_or_default(),
        };
        if let Some(center) = &mut self.center {
            assert_eq!(center.connect(&guess, self.now_ns), None, "a guess opened a stream");
        }
    }

    /// With the session of an open stream, or of one that is over.
    fn open_a_second_stream(&mut self) {
        let life = self.life;
        let used = self
            .connections
            .values()
            .filter(|connection| connection.life == life && connection.index.is_some());
        let mut sessions: Vec<String> = used.map(|connection| connection.session.clone()).collect();
        sessions.sort_unstable();
        let pick = self.random.random_range(0..sessions.len().max(1));
        let (Some(session), Some(center)) = (sessions.get(pick), &mut self.center) else { return };
        let before: Vec<bool> = (0..self.count).map(|index| center.registry.holder(index).1).collect();
        assert_eq!(center.connect(session, self.now_ns), None, "a session opened a second stream");
        let after: Vec<bool> = (0..self.count).map(|index| center.registry.holder(index).1).collect();
        assert_eq!(before, after, "a refused stream changed who is connected");
    }

    /// A registration by a stranger; none if it is refused.
    fn stranger_registers(&mut self) -> Option<(usize, String)> {
        let index = self.within(0, self.count as u64 - 1) as usize;
        let (session, incarnation) = (self.secret(), self.secret());
        let identity = if self.random.random_bool(0.5) { format!("node-{index}") } else { "stranger".into() };
        let mut application = self.application(identity, incarnation, index);
        // With certificates, a stranger has one of another index.
        application.proven_index = self.proven.then_some(index + 1);
        let (center, now_ns) = (self.center.as_mut()?, self.now_ns);
        let held = center.registry.holder(index).1;
        let registered = center.register(&application, &session, now_ns);
        assert!(registered.is_none() || !held, "a stranger took the index of a connected node");
        assert!(registered.is_none() || !self.proven, "a stranger took an index without its certificate");
        registered.map(|index| (index, session))
    }

    fn only_register(&mut self) {
        self.stranger_registers();
    }

    fn take_a_free_index(&mut self) {
        let Some((_, session)) = self.stranger_registers() else { return };
        self.processes += 1;
        let connection = self.connection(None, self.processes, session);
        self.open(connection);
        let leave_ns = self.within(100 * MS, 4_000 * MS);
        self.after(leave_ns, Event::BreakAtCenter { connection, in_order: false });
    }

    /// Reports of frames near and far, of this run and others, with absurd counts.
    fn invent_reports(&mut self) {
        for id in self.connections_of(|connection| connection.node.is_none() && connection.center_open) {
            let run = match self.within(0, 3) {
                0 => self.random.random(),
                _ => self.run,
            };
            let frame = match self.within(0, 4) {
                0 => u64::MAX,
                1 => self.random.random::<u64>() >> 20,
                2 => self.frame + self.within(0, 300),
                3 => self.frame.saturating_sub(self.within(0, 50)),
                _ => self.frame,
            };
            let process = self.connections[&id].process;
            let frame = FrameId { run, frame };
            let mut stranger = Node::new(process, String::new(), 0);
            stranger.filter(frame, self.count);
            stranger.outbox.registered("", 1);
            let Some(mut report) = stranger.outbox.take_next() else { continue };
            report.blocks_sent = self.random.random::<u64>() >> 16;
            report.resent = self.random.random_bool(0.3);
            self.stream(id, 0, Event::Report { connection: id, report });
        }
    }
}
