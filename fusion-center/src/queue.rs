//! The queue of frames that wait for a solver, from which frames that are too old are shed. Pure: time is passed in.
//!
//! A fix is useful only while it is recent. A waiting frame is shed as soon as it could no longer be solved within
//! [`AGE_DEADLINES`] deadlines of its first report, judged by how long solving has taken lately, and the oldest is shed when
//! too many wait. Under overload the solvers therefore spend their time only on frames whose fixes will be recent.
//! A machine on which no solve is fast enough keeps the newest frame: it still gives fixes.

use std::collections::VecDeque;

/// Deadlines after the first report of a frame within which its fix is published, or the frame shed.
pub const AGE_DEADLINES: u64 = 2;

#[derive(Debug)]
pub struct Queue<J> {
    /// Arrival of the first report, and the frame.
    waiting: VecDeque<(u64, J)>,
    most_waiting: usize,
    most_age_ns: u64,
    /// How long a solve takes: rises at once, and falls slowly.
    solve_ns: u64,
}

impl<J> Queue<J> {
    pub fn new(most_waiting: usize, deadline_ns: u64) -> Self {
        Self {
            waiting: VecDeque::with_capacity(most_waiting + 1),
            most_waiting,
            // A quarter of a deadline is left for publication and for solves that take longer than usual.
            most_age_ns: deadline_ns.saturating_mul(AGE_DEADLINES).saturating_sub(deadline_ns / 4),
            solve_ns: 0,
        }
    }

    /// Queues a frame whose first report came at `first_ns`.
    pub fn push(&mut self, first_ns: u64, frame: J) {
        self.waiting.push_back((first_ns, frame));
    }

    /// Removes the frames that are too old; where no solve is fast enough, not the newest.
    pub fn shed_old(&mut self, now_ns: u64) -> Vec<J> {
        let most_ns = self.most_age_ns.saturating_sub(self.solve_ns);
        let newest = self.waiting.len().saturating_sub(usize::from(self.solve_ns >= self.most_age_ns));
        let is_old = |(first_ns, _): &&(u64, J)| now_ns.saturating_sub(*first_ns) > most_ns;
        let old = self.waiting.iter().take(newest).take_while(is_old).count();
        self.waiting.drain(..old).map(|(_, frame)| frame).collect()
    }

    /// Removes the frames that are too old or too many.
    pub fn shed(&mut self, now_ns: u64) -> Vec<J> {
        let mut shed = self.shed_old(now_ns);
        let too_many = self.waiting.len().saturating_sub(self.most_waiting);
        shed.extend(self.waiting.drain(..too_many).map(|(_, frame)| frame));
        shed
    }

    /// The next frame to solve, the oldest; call [`Self::shed_old`] first.
    pub fn pop(&mut self) -> Option<J> {
        self.waiting.pop_front().map(|(_, frame)| frame)
    }

    /// A solve has taken this long.
    pub fn solved(&mut self, took_ns: u64) {
        self.solve_ns = took_ns.max(self.solve_ns - self.solve_ns / 32 + took_ns / 32);
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The frame that has waited longest.
    pub fn oldest(&self) -> Option<&J> {
        self.waiting.front().map(|(_, frame)| frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const DEADLINE_MS: u64 = 250;

    #[test]
    fn frames_that_could_not_be_solved_in_time_are_shed_oldest_first() {
        let mut queue = Queue::new(16, 100);
        (0..5).for_each(|frame| queue.push(10 * frame, frame));
        assert!(queue.shed(175).is_empty(), "none is older than two deadlines less a quarter");
        assert_eq!(queue.shed(186), [0, 1]);
        queue.solved(70);
        assert_eq!(queue.shed(130), [2], "105 are left");
        queue.solved(175);
        assert_eq!(
            (queue.shed(1000), queue.len(), queue.oldest()),
            (vec![3], 1, Some(&4)),
            "the newest stays"
        );
        assert_eq!((queue.pop(), queue.pop()), (Some(4), None));
        assert!(queue.shed(1000).is_empty());
    }

    #[test]
    fn more_than_the_queue_holds_are_shed_however_young() {
        let mut queue = Queue::new(2, 100);
        (0..5).for_each(|frame| queue.push(0, frame));
        assert_eq!(queue.shed(0), [0, 1, 2]);
        let mut none = Queue::new(0, 100);
        none.push(0, 1);
        assert_eq!(none.shed(0), [1]);
    }

    #[test]
    fn the_solve_time_rises_at_once_and_falls_slowly() {
        let mut queue = Queue::<()>::new(2, 1000);
        queue.solved(80);
        assert_eq!(queue.solve_ns, 80);
        queue.solved(16);
        assert_eq!(queue.solve_ns, 78);
        (0..200).for_each(|_| queue.solved(16));
        assert!((16..=48).contains(&queue.solve_ns), "{}", queue.solve_ns);
    }

    /// Frames offered by time, ages of the fixes, and what was shed.
    #[derive(Debug, Default)]
    struct Outcome {
        offered: u64,
        /// When a fix was published, and its age.
        fixes: Vec<(u64, u64)>,
        shed: u64,
        left: u64,
    }

    impl Outcome {
        fn per_second(&self, from_ms: u64, to_ms: u64) -> f64 {
            let fixes = self.fixes.iter().filter(|(at, _)| (from_ms * MS..to_ms * MS).contains(at)).count();
            fixes as f64 / ((to_ms - from_ms) as f64 * 1e-3)
        }

        fn p99_age_ms(&self, from_ms: u64) -> u64 {
            let mut ages: Vec<u64> =
                self.fixes.iter().filter(|(at, _)| *at >= from_ms * MS).map(|(_, age)| *age).collect();
            ages.sort_unstable();
            ages[(ages.len() - 1) * 99 / 100] / MS
        }
    }

    /// Solvers that take `solve_ms`, a fifth more or less by turns, get frames at a rate that changes with time: events at a
    /// resolution of a tenth of a millisecond. Results are published in order, as the pool returns them.
    fn simulate(workers: usize, solve_ms: u64, periods: &[(u64, f64)], total_ms: u64) -> Outcome {
        let mut queue = Queue::new(16, DEADLINE_MS * MS);
        let mut running: VecDeque<(u64, u64, u64)> = VecDeque::new();
        let (mut outcome, mut next_ns, mut started) = (Outcome::default(), 0.0, 0_u64);
        for now_ns in (0..total_ms * 10).map(|tick| tick * MS / 10) {
            let rate = periods.iter().rev().find(|(from_ms, _)| from_ms * MS <= now_ns).unwrap().1;
            while next_ns <= now_ns as f64 {
                queue.push(now_ns, now_ns);
                outcome.offered += 1;
                next_ns += 1e9 / rate;
            }
            while running.front().is_some_and(|(_, end_ns, _)| *end_ns <= now_ns) {
                let (first_ns, _, took_ns) = running.pop_front().unwrap();
                outcome.fixes.push((now_ns, now_ns - first_ns));
                queue.solved(took_ns);
            }
            while running.len() < workers {
                outcome.shed += queue.shed_old(now_ns).len() as u64;
                let Some(first_ns) = queue.pop() else { break };
                started += 1;
                let took_ns = solve_ms * MS * [10, 12, 8, 11, 9][started as usize % 5] / 10;
                running.push_back((first_ns, now_ns + took_ns, took_ns));
            }
            outcome.shed += queue.shed(now_ns).len() as u64;
        }
        outcome.left = (running.len() + queue.len()) as u64;
        outcome
    }

    /// Ten times the capacity for 20 s, of fast and of slow solvers: at least 80 % of the capacity comes out, the 99th percentile of
    /// the age is at most two deadlines, every frame is accounted for, and three seconds later nothing is shed.
    #[test]
    fn goodput_and_freshness_hold_at_ten_times_the_capacity() {
        for (workers, solve_ms) in [(1, 5), (1, 50), (2, 100), (2, 330), (1, 200), (4, 120)] {
            let capacity = workers as f64 * 1000.0 / solve_ms as f64;
            let periods = [(0, 0.3 * capacity), (5000, 10.0 * capacity), (25_000, 0.5 * capacity)];
            let outcome = simulate(workers, solve_ms, &periods, 40_000);
            let goodput = outcome.per_second(6000, 25_000) / capacity;
            let age_ms = outcome.p99_age_ms(0);
            assert!(goodput >= 0.8, "{workers} x {solve_ms} ms: {goodput}");
            assert!(age_ms <= 2 * DEADLINE_MS, "{workers} x {solve_ms} ms: {age_ms} ms");
            let accounted = outcome.fixes.len() as u64 + outcome.shed + outcome.left;
            assert_eq!(outcome.offered, accounted);
            // After the overload everything is solved again, at once.
            let after = outcome.per_second(28_000, 40_000) / (0.5 * capacity);
            let slowest = outcome.fixes.iter().filter(|(at, _)| *at > 28_000 * MS).map(|(_, age)| *age).max();
            assert!(after > 0.95, "{workers} x {solve_ms} ms: {after}");
            assert!(slowest.unwrap() <= 3 * solve_ms * MS, "{slowest:?}");
        }
    }
}
