//! A low-priority thread that serves page, API, metrics and health.
//!
//! Twenty viewers cost 4 ms of a core every second. The thread runs when nothing else needs the core, so that no report
//! and no solver waits for it; on an overloaded machine it still answers, later (`/health` within 0.3 s with a load of
//! four threads per core on two cores).

use std::io;
use std::net::TcpListener;

use tokio::sync::oneshot;

/// A tenth of a core that is fully used by others: `/health` must answer on a busy machine too. With 19, the lowest
/// priority, it did not within 90 s beside four busy threads on two cores, where the kernel does not group processes.
const NICENESS: i32 = 10;

/// Runs the future of `serve` on a low-priority thread. The returned future completes with its result; if dropped, it
/// ends the server.
pub fn start<F: Future<Output = io::Result<()>>>(
    listener: TcpListener,
    serve: impl FnOnce(tokio::net::TcpListener) -> F + Send + 'static,
) -> io::Result<impl Future<Output = io::Result<()>>> {
    let (mut done, outcome) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".into()).spawn(move || {
        lower_priority();
        let served = runtime.block_on(async {
            let served = serve(tokio::net::TcpListener::from_std(listener)?);
            tokio::select! {
                served = served => served,
                () = done.closed() => Ok(()),
            }
        });
        // The returned future may have been dropped.
        let _ = done.send(served);
    })?;
    Ok(async { outcome.await.unwrap_or_else(|_| Err(io::Error::other("its thread panicked"))) })
}

/// Linux has a priority per thread; elsewhere it belongs to the process and is not changed.
#[cfg(target_os = "linux")]
fn lower_priority() {
    use rustix::process::{getpriority_process, setpriority_process};
    let niceness = getpriority_process(None).map_or(NICENESS, |own| own.max(NICENESS));
    if let Err(error) = setpriority_process(None, niceness) {
        tracing::warn!(%error, "page and API keep the priority of the solver");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_thread_alone_gives_way() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let (tell, told) = oneshot::channel();
        let serve = move |_| async move {
            tell.send(niceness()).unwrap();
            Ok(())
        };
        start(listener(), serve).unwrap().await.unwrap();
        assert_eq!((told.await.unwrap(), niceness()), (before.max(NICENESS), before));
    }

    #[tokio::test]
    async fn what_nobody_waits_for_ends() {
        let (held, ended) = oneshot::channel::<()>();
        let serve = move |_| async move {
            let _held = held;
            std::future::pending().await
        };
        drop(start(listener(), serve).unwrap());
        ended.await.unwrap_err();
    }
}
