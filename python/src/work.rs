//! Long work without the interpreter lock: on several threads, until it is done or the user interrupts it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::ErrorKind;

/// How often a signal such as Ctrl-C is looked for.
const SIGNALS: Duration = Duration::from_millis(100);

/// Whether the user has interrupted the work.
pub struct Cancelled(AtomicBool);

impl Cancelled {
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The threads of this process. A process that was forked has none of the threads of its parent and gets its own.
fn pool() -> Result<Arc<ThreadPool>, String> {
    static POOL: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, threads)) = pool.as_ref().filter(|(owner, _)| *owner == process) {
        debug_assert_eq!(*owner, process);
        return Ok(threads.clone());
    }
    let threads = ThreadPoolBuilder::new().thread_name(|i| format!("hyloc-{i}")).build();
    let threads = Arc::new(threads.map_err(|error| format!("no threads: {error}"))?);
    // Joining the threads of the parent would wait for ever.
    std::mem::forget(pool.replace((process, threads.clone())));
    Ok(threads)
}

/// Runs `work` without the interpreter lock. A panic becomes an exception, an interrupt is raised once the work has noticed it.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce(&Cancelled) -> T + Send) -> PyResult<T> {
    let cancelled = Cancelled(AtomicBool::new(false));
    let pool = pool().map_err(|reason| ErrorKind::Internal.error(reason))?;
    let (result, interrupt) = py.detach(|| {
        thread::scope(|scope| {
            let (ended, wait) = channel::<()>();
            let worker = scope.spawn(|| {
                let _ended = ended;
                catch_unwind(AssertUnwindSafe(|| pool.install(|| work(&cancelled))))
            });
            let mut interrupt = None;
            while wait.recv_timeout(SIGNALS) == Err(RecvTimeoutError::Timeout) {
                if let Err(raised) = Python::attach(|py| py.check_signals()) {
                    interrupt = Some(raised);
                    cancelled.0.store(true, Ordering::Relaxed);
                    break;
                }
            }
            (worker.join().and_then(|result| result), interrupt)
        })
    });
    match (interrupt, result) {
        (Some(raised), _) => Err(raised),
        (None, Ok(result)) => Ok(result),
        (None, Err(panic)) => Err(ErrorKind::Internal.error(described(panic.as_ref()))),
    }
}

/// What a panic says.
fn described(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "no description".into());
    format!("hyloc failed inside, which is a fault of the package: {text}")
}

/// Panics on a thread of the pool, for the test that this becomes an exception.
#[pyfunction]
pub fn panic_for_test(py: Python<'_>) -> PyResult<()> {
    detached(py, |_| panic!("as asked for"))
}
