//! Looking on from a thread of its own, which gives way to everything else.
//!
//! Page, API, metrics and health are served here: twenty viewers cost 4 ms of a core every second. A thread of low
//! priority does that when nothing else wants the core, so that no report and no solver waits for it; on a machine that
//! is overloaded it is still heard, later (`/health` within 0.3 s, with both cores wanted four times over).

use std::io;
use std::net::TcpListener;

use tokio::sync::oneshot;

/// The lowest priority there is: 1.5 % of a core that others want whole.
const NICENESS: i32 = 19;

/// Runs what `serve` makes of the listener on a thread of low priority. The future tells how that ended; dropped, it
/// ends it.
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
        // Nobody may wait for it any more.
        let _ = done.send(served);
    })?;
    Ok(async { outcome.await.unwrap_or_else(|_| Err(io::Error::other("its thread panicked"))) })
}

/// Linux has a priority for each thread; elsewhere it is the whole process's, and stays.
#[cfg(target_os = "linux")]
fn lower_priority() {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
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
        assert_eq!((told.await.unwrap(), niceness()), (NICENESS, before));
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
