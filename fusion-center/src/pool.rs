//! Solves frames off the async threads, several at once, and returns them in order.
//!
//! A frame that finds all workers busy waits; when more wait than the queue holds, the oldest is shed.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::task::JoinHandle;

pub struct Pool<J, R> {
    work: Arc<dyn Fn(J) -> R + Send + Sync>,
    workers: usize,
    most_waiting: usize,
    waiting: VecDeque<J>,
    running: FuturesOrdered<JoinHandle<R>>,
}

impl<J: Send + 'static, R: Send + 'static> Pool<J, R> {
    /// A pool that runs `workers` jobs at once and queues at most `most_waiting` more.
    pub fn new(workers: usize, most_waiting: usize, work: impl Fn(J) -> R + Send + Sync + 'static) -> Self {
        Self {
            work: Arc::new(work),
            workers,
            most_waiting,
            waiting: VecDeque::with_capacity(most_waiting + 1),
            running: FuturesOrdered::new(),
        }
    }

    /// Queues a job; returns the oldest waiting one if there are too many.
    pub fn submit(&mut self, job: J) -> Option<J> {
        self.waiting.push_back(job);
        self.start();
        if self.waiting.len() > self.most_waiting { self.waiting.pop_front() } else { None }
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The job that has waited longest.
    pub fn oldest(&self) -> Option<&J> {
        self.waiting.front()
    }

    /// The next result in order; never completes when idle. An error means that the work panicked.
    pub async fn next(&mut self) -> Result<R, tokio::task::JoinError> {
        match self.running.next().await {
            Some(result) => {
                self.start();
                result
            }
            None => std::future::pending().await,
        }
    }

    fn start(&mut self) {
        while self.running.len() < self.workers {
            let Some(job) = self.waiting.pop_front() else { return };
            let work = self.work.clone();
            self.running.push_back(tokio::task::spawn_blocking(move || work(job)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn results_come_in_order_whatever_finishes_first() {
        let (release, gate) = mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let mut pool = Pool::new(2, 8, move |job: u32| {
            if job == 0 {
                gate.lock().unwrap().recv().unwrap();
            } else if job == 1 {
                release.send(()).unwrap();
            }
            job
        });
        (0..5).for_each(|job| assert!(pool.submit(job).is_none()));
        let mut results = Vec::new();
        while !pool.is_idle() {
            results.push(pool.next().await.unwrap());
        }
        assert_eq!(results, [0, 1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn overload_sheds_the_oldest_that_waits() {
        let (release, gate) = mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let mut pool = Pool::new(1, 2, move |job: u32| {
            gate.lock().unwrap().recv().unwrap();
            job
        });
        let shed: Vec<u32> = (0..6).filter_map(|job| pool.submit(job)).collect();
        assert_eq!(shed, [1, 2, 3]);
        (0..3).for_each(|_| release.send(()).unwrap());
        let mut results = Vec::new();
        while !pool.is_idle() {
            results.push(pool.next().await.unwrap());
        }
        assert_eq!(results, [0, 4, 5]);
    }
}
