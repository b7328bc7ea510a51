//! Faults: processes die and come back, ways are cut, streams break, a new run begins; and the healing of it all.

use super::*;

impl World {
    pub(super) fn restart_center(&mut self) {
        if self.center.is_none() {
            self.life += 1;
            let instance = self.secret();
            self.center = Some(Center::new(self.count, instance, self.solve_ns));
            self.work_ns = None;
        }
    }

    /// Both ends of a stream notice at different times that it is broken.
    fn sever(&mut self, id: u64, most_ns: u64) {
        for at_center in [false, true] {
            let delay_ns = self.within(0, most_ns);
            let broken = match at_center {
                true => Event::BreakAtCenter { connection: id, in_order: false },
                false => Event::BreakAtNode { connection: id },
            };
            self.after(delay_ns, broken);
        }
    }

    pub(super) fn connections_of(&self, wanted: impl Fn(&Connection) -> bool) -> Vec<u64> {
        let mut found: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| (connection.node_open || connection.center_open) && wanted(connection))
            .map(|(id, _)| *id)
            .collect();
        found.sort_unstable();
        found
    }

    fn kill_node(&mut self, node: usize) {
        self.nodes[node].up = false;
        for id in self.connections_of(|connection| connection.node == Some(node)) {
            self.sever(id, 50 * MS);
        }
    }

    fn kill_center(&mut self) {
        self.center = None;
        for id in self.connections_of(|_| true) {
            self.connections.get_mut(&id).expect("known").center_open = false;
            let delay_ns = self.within(0, 500 * MS);
            self.after(delay_ns, Event::BreakAtNode { connection: id });
        }
    }

    pub(super) fn fault(&mut self) {
        if self.is_healed() {
            return;
        }
        self.outcome.faults += 1;
        let node = self.within(0, self.count as u64 - 1) as usize;
        let back_ns = self.within(0, 3_000 * MS);
        match self.within(0, 9) {
            0..=2 => {
                self.kill_node(node);
                self.after(back_ns, Event::RestartNode { node });
            }
            3..=5 => {
                self.cut[node] = true;
                for id in self.connections_of(|connection| connection.node == Some(node)) {
                    self.sever(id, 3_000 * MS);
                }
                self.after(back_ns, Event::Mend { node });
            }
            6 => {
                for id in self.connections_of(|connection| connection.node == Some(node)) {
                    self.sever(id, 100 * MS);
                }
            }
            7 => {
                self.kill_center();
                self.after(back_ns, Event::RestartCenter);
            }
            // A simulator starts again, with whatever clock: its run has another identity.
            _ => (self.run, self.frame) = (self.random.random(), 0),
        }
        let next_ns = self.within(50 * MS, 1_500 * MS);
        self.after(next_ns, Event::Fault);
    }

    pub(super) fn heal(&mut self) {
        for node in 0..self.count {
            self.cut[node] = false;
            self.after(0, Event::RestartNode { node });
        }
        self.restart_center();
        for id in self.connections_of(|connection| connection.node.is_none()) {
            self.break_at_center(id, false);
        }
        // What was cut when it healed breaks at the latest now.
        let open = self.connections_of(|connection| connection.node.is_some());
        for id in open {
            let both = self.connections[&id].node_open && self.connections[&id].center_open;
            if !both || self.connections[&id].life != self.life {
                self.sever(id, 1_000 * MS);
            }
        }
    }
}
