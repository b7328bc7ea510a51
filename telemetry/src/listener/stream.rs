//! A connection that a listener holds: its bytes pass unchanged, and it ends when it is idle or displaced.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::ListenerState;
use super::admission::{Activity, Id};
use super::limits::{ESTABLISH_TIMEOUT, Establish, IDLE_TIMEOUT};

/// What is known about a connection that is held; updated by its stream, read by the listener.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    last_ms: AtomicU64,
    established: AtomicBool,
    pub(super) displaced: CancellationToken,
}

impl ConnectionActivity {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            last_ms: AtomicU64::new(now.as_millis() as u64),
            established: AtomicBool::new(false),
            displaced: CancellationToken::new(),
        }
    }

    pub(super) fn activity(&self) -> Activity {
        Activity {
            established: self.established.load(Ordering::Relaxed),
            last: Duration::from_millis(self.last_ms.load(Ordering::Relaxed)),
        }
    }
}

/// Marks a connection as established; cheap to clone.
#[derive(Debug, Clone)]
pub struct Establishment(Option<Arc<ConnectionActivity>>);

impl Establishment {
    pub fn establish(&self) {
        if let Some(progress) = &self.0 {
            progress.established.store(true, Ordering::Relaxed);
        }
    }
}

/// A place in a listener; given back when it is dropped.
#[derive(Debug)]
struct HeldPlace {
    id: Id,
    shared: Arc<ListenerState>,
    progress: Arc<ConnectionActivity>,
    displaced: Pin<Box<WaitForCancellationFutureOwned>>,
    timer: Pin<Box<Sleep>>,
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        self.shared.closed(self.id);
    }
}

/// A stream within the limits of its listener. A server above it, TLS or HTTP, sees an I/O error when the connection was
/// idle for too long or has to give way.
#[derive(Debug)]
pub struct LimitedStream<S> {
    io: S,
    peer: Option<SocketAddr>,
    place: Option<HeldPlace>,
}

impl<S> LimitedStream<S> {
    pub(super) fn new(
        io: S,
        peer: SocketAddr,
        id: Id,
        shared: Arc<ListenerState>,
        progress: Arc<ConnectionActivity>,
    ) -> Self {
        let displaced = Box::pin(progress.displaced.clone().cancelled_owned());
        let timer = Box::pin(tokio::time::sleep(ESTABLISH_TIMEOUT));
        Self { io, peer: Some(peer), place: Some(HeldPlace { id, shared, progress, displaced, timer }) }
    }

    /// A stream without limits, such as one that this process opened itself.
    pub fn unlimited(io: S) -> Self {
        Self { io, peer: None, place: None }
    }

    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    pub fn get_ref(&self) -> &S {
        &self.io
    }

    /// Marks the connection as established later, if the listener leaves this to the server.
    pub fn establishment(&self) -> Establishment {
        Establishment(self.place.as_ref().map(|place| place.progress.clone()))
    }

    fn moved(&self, received: bool) {
        let Some(HeldPlace { shared, progress, .. }) = &self.place else { return };
        progress.last_ms.store(shared.now().as_millis() as u64, Ordering::Relaxed);
        if received && shared.limits.establish == Establish::FirstByte {
            progress.established.store(true, Ordering::Relaxed);
        }
    }

    /// An error if the connection has to end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(place) = &mut self.place else { return Ok(()) };
        if place.displaced.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "gave way to another: the listener is full",
            ));
        }
        while place.timer.as_mut().poll(context).is_ready() {
            let Activity { established, last } = place.progress.activity();
            // A connection that is not established may not gain time by sending a byte now and then.
            let deadline = place.shared.began + last + IDLE_TIMEOUT;
            if !established || deadline <= Instant::now() {
                place.shared.timed_out();
                let reason = if established { "idle for too long" } else { "no request in time" };
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            place.timer.as_mut().reset(deadline);
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.moved(true);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> LimitedStream<S> {
    fn write(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let polled = write(Pin::new(&mut self.io), context);
        if let Poll::Ready(Ok(1..)) = polled {
            self.moved(false);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |io, context| io.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |io, context| io.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl Connected for LimitedStream<TcpStream> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.io.connect_info()
    }
}
