//! Waiting to a fraction of a millisecond; the runtime's own timers count whole ones.
//!
//! One thread sleeps until the next task is due and wakes it. It, and every thread that waits here, asks for short
//! timeslices ([`timeslice`]): a busy machine wakes them late otherwise.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::timeslice;

#[derive(Default)]
struct Clock {
    waiting: Mutex<BinaryHeap<Reverse<Waiter>>>,
    earlier: Condvar,
}

struct Waiter {
    due: Instant,
    wake: oneshot::Sender<()>,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Waiter {}

impl PartialOrd for Waiter {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiter {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

impl Clock {
    fn run(&self) {
        timeslice::shorten();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            waiting = match waiting.peek().map(|Reverse(next)| next.due) {
                None => self.earlier.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    self.earlier.wait_timeout(waiting, due - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    if let Some(Reverse(next)) = waiting.pop() {
                        // The task may have gone.
                        let _ = next.wake.send(());
                    }
                    waiting
                }
            };
        }
    }

    fn add(&self, waiter: Waiter) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let first = waiting.peek().is_none_or(|Reverse(next)| waiter.due < next.due);
        waiting.push(Reverse(waiter));
        if first {
            self.earlier.notify_one();
        }
    }
}

/// Waits until `due`.
pub async fn until(due: Instant) -> std::io::Result<()> {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    timeslice::shorten();
    if due <= Instant::now() {
        return Ok(());
    }
    let mut fresh = false;
    let clock = CLOCK.get_or_init(|| {
        fresh = true;
        Clock::default()
    });
    if fresh {
        std::thread::Builder::new().name("clock".into()).spawn(|| clock.run())?;
    }
    let (wake, woken) = oneshot::channel();
    clock.add(Waiter { due, wake });
    woken.await.map_err(|_| std::io::Error::other("the clock has stopped"))
}
