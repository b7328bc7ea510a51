//! Timers with sub-millisecond resolution; those of the runtime have one of a millisecond.
//!
//! One thread sleeps until the next task is due and wakes it. It, and every thread that waits here, requests short
//! timeslices ([`timeslice`]), because a busy machine wakes them late otherwise.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::timeslice;

/// Waiting tasks by due time and order of arrival.
type SleepingTasks = BTreeMap<(Instant, u64), oneshot::Sender<()>>;

#[derive(Default)]
struct Clock {
    waiting: Mutex<(SleepingTasks, u64)>,
    earlier: Condvar,
}

impl Clock {
    fn waiting(&self) -> MutexGuard<'_, (SleepingTasks, u64)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        timeslice::shorten();
        let mut waiting = self.waiting();
        loop {
            let now = Instant::now();
            waiting = match waiting.0.first_key_value().map(|((due, _), _)| *due) {
                None => self.earlier.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    self.earlier.wait_timeout(waiting, due - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    // Fails if the task is gone.
                    let _ = waiting.0.pop_first().map(|(_, wake)| wake.send(()));
                    waiting
                }
            };
        }
    }

    fn add(&self, due: Instant, wake: oneshot::Sender<()>) {
        let (waiting, count) = &mut *self.waiting();
        *count += 1;
        if waiting.first_key_value().is_none_or(|((first, _), _)| due < *first) {
            self.earlier.notify_one();
        }
        waiting.insert((due, *count), wake);
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
    clock.add(due, wake);
    woken.await.map_err(|_| std::io::Error::other("the clock has stopped"))
}
