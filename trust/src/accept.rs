//! The server side: connections become encrypted, and their peers known, without waiting for each other.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::Connected;

use crate::identity::Identity;
use crate::peer::Peer;
use crate::role::Name;

/// How long a handshake may take, on either side.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Handshakes that may be under way at once on one listener.
const HANDSHAKES: usize = 256;

/// Connections that may wait to be served.
const WAITING: usize = 64;

/// What is spoken inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2.
    Grpc,
    /// HTTP/1.1.
    Http,
}

impl Protocol {
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Grpc => b"h2",
            Self::Http => b"http/1.1",
        }
    }
}

/// Accepts connections with TLS, or as they are; cheap to clone.
#[derive(Debug, Clone)]
pub struct Acceptor(Option<(Identity, Protocol)>);

impl Acceptor {
    /// Connections stay as they are, and nothing is known of their peers.
    pub fn plain() -> Self {
        Self(None)
    }

    pub(crate) fn tls(identity: Identity, protocol: Protocol) -> Self {
        Self(Some((identity, protocol)))
    }

    pub fn is_tls(&self) -> bool {
        self.0.is_some()
    }

    /// Completes the handshake with the certificate in force, within [`HANDSHAKE_TIMEOUT`].
    pub async fn accept<S>(&self, stream: S) -> io::Result<Connection<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Some((identity, protocol)) = &self.0 else { return Ok(Connection::Plain(stream)) };
        let material = identity.current();
        let accept = TlsAcceptor::from(material.server(protocol.alpn())).accept(stream);
        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, accept).await;
        let stream =
            accepted.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake in time"))??;
        let peer = match stream.get_ref().1.peer_certificates() {
            None | Some([]) => Peer::Anonymous,
            Some([certificate, ..]) => {
                let refuse = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
                let name = Name::of_certificate(certificate).map_err(|error| refuse(error.to_string()))?;
                if name.domain != material.name.domain {
                    return Err(refuse(format!("the peer is of another domain: {name}")));
                }
                Peer::Named(Arc::new(name))
            }
        };
        Ok(Connection::Tls(Box::new(stream), peer))
    }
}

/// An accepted connection.
#[derive(Debug)]
pub enum Connection<S> {
    Plain(S),
    Tls(Box<TlsStream<S>>, Peer),
}

impl<S> Connection<S> {
    pub fn peer(&self) -> Peer {
        match self {
            Self::Plain(_) => Peer::Plain,
            Self::Tls(_, peer) => peer.clone(),
        }
    }
}

/// The peer becomes an extension of every request of the connection.
impl<S> Connected for Connection<S> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream, _) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream, _) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream, _) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream, _) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream, _) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream, _) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Completes the handshakes of connections as they come, until the result is dropped. They run beside each other: a
/// slow one delays no other. For tonic, which gets the connections of a listener as a stream.
pub fn secured<S>(
    connections: impl Stream<Item = io::Result<S>> + Send + 'static,
    acceptor: Acceptor,
) -> ReceiverStream<io::Result<Connection<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        tokio::pin!(connections);
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        loop {
            let Ok(permit) = handshakes.clone().acquire_owned().await else { return };
            let next = tokio::select! {
                next = connections.next() => next,
                () = sender.closed() => None,
            };
            let Some(next) = next else { return };
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let accepted = match next {
                    Ok(stream) => acceptor.accept(stream).await,
                    Err(error) => Err(error),
                };
                drop(permit);
                match accepted {
                    // The receiver may be gone.
                    Ok(connection) => drop(sender.send(Ok(connection)).await),
                    Err(error) => tracing::debug!(%error, "no connection"),
                }
            });
        }
    });
    ReceiverStream::new(receiver)
}
