//! The accept loop of every TCP listener: connections are counted, limited in all and per peer, and closed when idle.
//!
//! [`Listener::accept`] never fails: an error such as EMFILE is logged, counted, and retried after a pause. What it
//! returns is a [`LimitedStream`], on which TLS, HTTP or gRPC are served ([`Listener::incoming`] for tonic,
//! [`crate::http::serve`] for axum). `axum::serve` has neither a limit of connections nor a timeout for the head of a
//! request, and tonic's own accept loop neither a limit nor a timeout for the first byte.

pub mod admission;
pub mod limits;
mod stream;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, Instant};
use tokio_stream::Stream;
use trust::{Acceptor, Connection};

use crate::metrics::{Counter, Gauge, Metrics};
use crate::warn_limited;
use admission::{Admission, AdmissionDecision, Id};
use limits::ListenerLimits;
use stream::ConnectionActivity;
pub use stream::{Establishment, LimitedStream};

/// Binds an address, where port 0 means any free port; the error names the address.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Binds an address, if there is one.
pub async fn bind_some(address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    match address {
        Some(address) => bind(address).await.map(Some),
        None => Ok(None),
    }
}

/// Pause after an accept error, doubled with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The limits that several ports of the same kind share.
#[derive(Debug, Clone)]
pub struct Limiter(Arc<ListenerState>);

impl Limiter {
    /// Connections within `limits`, lowered to what the descriptor limit of the process allows.
    pub fn new(limits: ListenerLimits, metrics: &Metrics) -> Self {
        Self(Arc::new(ListenerState::new(limits.of_this_process(), metrics)))
    }

    pub fn listen(&self, tcp: TcpListener) -> Listener {
        Listener { tcp, acceptor: Acceptor::plain(), shared: self.0.clone() }
    }
}

/// A listener with limits.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    acceptor: Acceptor,
    shared: Arc<ListenerState>,
}

#[derive(Debug)]
struct ListenerState {
    limits: ListenerLimits,
    began: Instant,
    state: Mutex<Held>,
    open: Gauge,
    accepted: Counter,
    refused: Counter,
    displaced: Counter,
    timed_out: Counter,
    failed: Counter,
}

#[derive(Debug)]
struct Held {
    admission: Admission,
    progress: HashMap<Id, Arc<ConnectionActivity>>,
}

impl ListenerState {
    fn new(limits: ListenerLimits, metrics: &Metrics) -> Self {
        let count = |fate| {
            let labels = [("listener", limits.name), ("fate", fate)];
            metrics.counter("hyloc_connections_total", "Incoming connections by fate.", &labels)
        };
        let labels = [("listener", limits.name)];
        Self {
            limits,
            began: Instant::now(),
            state: Mutex::new(Held { admission: Admission::new(limits), progress: HashMap::new() }),
            open: metrics.gauge("hyloc_connections_open", "Incoming connections that are open.", &labels),
            accepted: count("accepted"),
            refused: count("refused"),
            displaced: count("displaced"),
            timed_out: count("timed_out"),
            failed: count("failed"),
        }
    }

    fn state(&self) -> MutexGuard<'_, Held> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the listener was made.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn closed(&self, id: Id) {
        let mut state = self.state();
        state.progress.remove(&id);
        state.admission.closed(id);
        self.open.set(state.admission.open() as f64);
    }

    fn timed_out(&self) {
        self.timed_out.inc();
    }

    /// Takes a connection in, in place of another one if necessary, or returns it.
    fn admit<S>(self: &Arc<Self>, io: S, peer: SocketAddr) -> Result<LimitedStream<S>, S> {
        let now = self.now();
        let mut state = self.state();
        let Held { admission, progress } = &mut *state;
        let verdict = admission.arrive(peer.ip(), now, |id| progress[&id].activity());
        let (open, listener) = (admission.open(), self.limits.name);
        match verdict {
            AdmissionDecision::Refused => {
                drop(state);
                self.refused.inc();
                warn_limited!(listener, %peer, open, "connection refused: the listener is full");
                Err(io)
            }
            AdmissionDecision::Admitted { id, instead_of } => {
                if let Some(old) = instead_of.and_then(|id| progress.remove(&id)) {
                    old.displaced.cancel();
                    self.displaced.inc();
                    warn_limited!(listener, %peer, open, "the listener is full: an unused connection was closed");
                }
                let new = Arc::new(ConnectionActivity::new(now));
                progress.insert(id, new.clone());
                drop(state);
                self.accepted.inc();
                self.open.set(open as f64);
                Ok(LimitedStream::new(io, peer, id, self.clone(), new))
            }
        }
    }
}

impl Listener {
    /// The only port with these limits.
    pub fn new(tcp: TcpListener, limits: ListenerLimits, metrics: &Metrics) -> Self {
        Limiter::new(limits, metrics).listen(tcp)
    }

    /// The same with TLS, or whatever else `acceptor` makes of a connection.
    pub fn secured(self, acceptor: Acceptor) -> Self {
        Self { acceptor, ..self }
    }

    /// What turns a connection into one whose peer is known.
    pub fn acceptor(&self) -> Acceptor {
        self.acceptor.clone()
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The next connection.
    pub async fn accept(&self) -> LimitedStream<TcpStream> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match self.tcp.accept().await {
                Ok((tcp, peer)) => {
                    // Fails if the connection is closed already.
                    let _ = tcp.set_nodelay(true);
                    match self.shared.admit(tcp, peer) {
                        Ok(stream) => return stream,
                        // A reset: it frees the port at once and tells the peer that this was no orderly end.
                        Err(refused) => drop(refused.set_zero_linger()),
                    }
                }
                Err(error) => {
                    self.shared.failed.inc();
                    let (listener, wait_ms) = (self.shared.limits.name, pause.as_millis() as u64);
                    if is_exhaustion(&error) {
                        warn_limited!(listener, %error, wait_ms, "connections cannot be accepted: trying again");
                        tokio::time::sleep(pause).await;
                        pause = (2 * pause).min(LONGEST_PAUSE);
                    } else {
                        warn_limited!(listener, %error, "a connection was lost before it was accepted");
                    }
                }
            }
        }
    }

    /// The accepted connections as a stream without end, for tonic; the peer is an extension of every request.
    pub fn incoming(self) -> impl Stream<Item = io::Result<Connection<LimitedStream<TcpStream>>>> {
        let acceptor = self.acceptor();
        let accepted = futures_util::stream::unfold(self, |listener| async {
            let stream = listener.accept().await;
            Some((Ok(stream), listener))
        });
        trust::secured(accepted, acceptor)
    }
}

/// Whether the process or the machine has run out of descriptors or memory, which passes; other errors belong to the
/// connection that was not made.
fn is_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::limits::{CONTROL, ESTABLISH_TIMEOUT, GRPC, HTTP, IDLE_TIMEOUT};
    use super::*;

    fn shared(limits: ListenerLimits) -> (Arc<ListenerState>, Metrics) {
        let metrics = Metrics::new();
        (Arc::new(ListenerState::new(limits, &metrics)), metrics)
    }

    fn connect(shared: &Arc<ListenerState>) -> (DuplexStream, LimitedStream<DuplexStream>) {
        let (peer, io) = duplex(64);
        (peer, shared.admit(io, "192.0.2.1:1234".parse().unwrap()).unwrap())
    }

    /// Reads until the stream ends or fails; returns the time and the kind of the error.
    async fn outlived(mut stream: LimitedStream<DuplexStream>) -> (Duration, Option<io::ErrorKind>) {
        let (begun, mut buffer) = (Instant::now(), [0; 16]);
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) => return (begun.elapsed(), None),
                Ok(_) => {}
                Err(error) => return (begun.elapsed(), Some(error.kind())),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_nothing_is_closed() {
        for limits in [GRPC, HTTP] {
            let (shared, metrics) = shared(limits);
            let (_peer, stream) = connect(&shared);
            assert_eq!(outlived(stream).await, (ESTABLISH_TIMEOUT, Some(io::ErrorKind::TimedOut)));
            assert_eq!(shared.state().admission.open(), 0);
            assert!(metrics.render().contains("fate=\"timed_out\"} 1\n"), "{}", metrics.render());
        }
    }

    /// Bytes that make no request do not keep an HTTP connection open, and a request does.
    #[tokio::test(start_paused = true)]
    async fn a_connection_must_be_established_and_not_idle() {
        for (requests, lasts) in [(false, ESTABLISH_TIMEOUT), (true, Duration::from_secs(100) + IDLE_TIMEOUT)]
        {
            let (shared, _) = shared(HTTP);
            let (mut peer, stream) = connect(&shared);
            if requests {
                stream.establishment().establish();
            }
            let trickle = tokio::spawn(async move {
                for _ in 0..100 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if peer.write_all(b"x").await.is_err() {
                        break;
                    }
                }
                tokio::time::sleep(Duration::from_secs(1000)).await;
            });
            let (time, error) = outlived(stream).await;
            assert_eq!(error, Some(io::ErrorKind::TimedOut));
            assert!(time >= lasts && time < lasts + Duration::from_secs(1), "{time:?}");
            trickle.abort();
        }
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_gives_way_to_a_newcomer() {
        let (shared, metrics) = shared(CONTROL);
        let full = CONTROL.per_peer();
        let mut held: Vec<_> = (0..full).map(|_| connect(&shared)).collect();
        let newcomer = connect(&shared);
        let (_, first) = held.remove(0);
        assert_eq!(outlived(first).await.1, Some(io::ErrorKind::ConnectionAborted));
        assert_eq!(shared.state().admission.open(), full);
        // Established ones stay, and the newcomer is refused.
        for (_, stream) in held.iter().chain([&newcomer]) {
            stream.establishment().establish();
        }
        assert!(shared.admit((), "192.0.2.1:1".parse().unwrap()).is_err());
        assert!(shared.admit((), "192.0.2.2:1".parse().unwrap()).is_ok(), "another peer has its share");
        let shown = metrics.render();
        for fate in ["displaced\"} 1\n", "refused\"} 1\n"] {
            assert!(shown.contains(fate), "{shown}");
        }
        assert!(
            shown.contains(&format!("hyloc_connections_open{{listener=\"control\"}} {full}.0\n")),
            "{shown}"
        );
    }

    #[test]
    fn what_passes_is_waited_for() {
        use rustix::io::Errno;
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(is_exhaustion(&error(Errno::MFILE)) && is_exhaustion(&error(Errno::NFILE)));
        assert!(!is_exhaustion(&error(Errno::CONNABORTED)));
    }
}
