//! Solves frames off the async threads, several at once, and returns them in order.
//!
//! A frame that finds all workers busy waits in the [`Queue`], which decides what is shed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::task::{JoinError, JoinHandle};

use crate::queue::Queue;

pub struct Pool<J, R> {
    work: Arc<dyn Fn(J) -> R + Send + Sync>,
    workers: usize,
    queue: Queue<J>,
    running: FuturesOrdered<JoinHandle<(R, Duration)>>,
}

impl<J: Send + 'static, R: Send + 'static> Pool<J, R> {
    /// A pool that runs `workers` jobs at once; more wait in `queue`.
    pub fn new(workers: usize, queue: Queue<J>, work: impl Fn(J) -> R + Send + Sync + 'static) -> Self {
        Self { work: Arc::new(work), workers, queue, running: FuturesOrdered::new() }
    }

    /// Queues a job whose first report came at `first_ns`; [`Self::start`] must follow.
    pub fn submit(&mut self, first_ns: u64, job: J) {
        self.queue.push(first_ns, job);
    }

    /// Starts what workers are free for; returns the jobs that were shed.
    pub fn start(&mut self, now_ns: u64) -> Vec<J> {
        let mut shed = Vec::new();
        while self.running.len() < self.workers {
            shed.extend(self.queue.shed_old(now_ns));
            let Some(job) = self.queue.pop() else { return shed };
            let work = self.work.clone();
            self.running.push_back(tokio::task::spawn_blocking(move || {
                let begun = Instant::now();
                (work(job), begun.elapsed())
            }));
        }
        shed.extend(self.queue.shed(now_ns));
        shed
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.queue.is_empty()
    }

    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The job that has waited longest.
    pub fn oldest(&self) -> Option<&J> {
        self.queue.oldest()
    }

    /// The next result in order, and how long it took; never completes when idle. An error means that the work
    /// panicked. [`Self::start`] must follow.
    pub async fn next(&mut self) -> Result<(R, Duration), JoinError> {
        match self.running.next().await {
            Some(result) => result.inspect(|(_, took)| self.queue.solved(took.as_nanos() as u64)),
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Longer than any test.
    const DEADLINE_NS: u64 = 1 << 60;

    #[tokio::test]
    async fn results_come_in_order_whatever_finishes_first() {
        let (release, gate) = mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let mut pool = Pool::new(2, Queue::new(8, DEADLINE_NS), move |job: u32| {
            if job == 0 {
                gate.lock().unwrap().recv().unwrap();
            } else if job == 1 {
                release.send(()).unwrap();
            }
            job
        });
        for job in 0..5 {
            pool.submit(0, job);
            assert!(pool.start(0).is_empty());
        }
        let mut results = Vec::new();
        while !pool.is_idle() {
            results.push(pool.next().await.unwrap().0);
            assert!(pool.start(0).is_empty());
        }
        assert_eq!(results, [0, 1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn overload_sheds_the_oldest_that_waits() {
        let (release, gate) = mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let mut pool = Pool::new(1, Queue::new(2, DEADLINE_NS), move |job: u32| {
            gate.lock().unwrap().recv().unwrap();
            job
        });
        let mut shed = Vec::new();
        for job in 0..6 {
            pool.submit(0, job);
            shed.extend(pool.start(0));
        }
        assert_eq!(shed, [1, 2, 3]);
        (0..3).for_each(|_| release.send(()).unwrap());
        let mut results = Vec::new();
        while !pool.is_idle() {
            results.push(pool.next().await.unwrap().0);
            assert!(pool.start(0).is_empty());
        }
        assert_eq!(results, [0, 4, 5]);
    }
}
