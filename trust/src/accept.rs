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
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::identity::Identity;
use crate::peer::{Caller, Peer};
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

impl<S: Connected<ConnectInfo = TcpConnectInfo>> Connected for Connection<S> {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        let tcp = match self {
            Self::Plain(stream) => stream.connect_info(),
            Self::Tls(stream, _) => stream.get_ref().0.connect_info(),
        };
        Caller { peer: self.peer(), address: tcp.remote_addr() }
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
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::identity::{ClientTls, Paths};
    use crate::lab::{DAY, Lab};
    use crate::role::Role;

    /// Connects and exchanges a byte: in TLS 1.3 a client learns only then whether its certificate was accepted.
    async fn connect(server: &Identity, client: &ClientTls) -> Result<Peer, String> {
        let (here, there) = duplex(1 << 16);
        let acceptor = server.acceptor(Protocol::Grpc);
        let serving = async {
            let mut connection = acceptor.accept(there).await.map_err(|error| error.to_string())?;
            connection.write_u8(7).await.map_err(|error| error.to_string())?;
            connection.flush().await.map_err(|error| error.to_string())?;
            Ok::<_, String>(connection.peer())
        };
        let asking = async {
            let mut connection = client.connect(here, Protocol::Grpc).await?;
            connection.read_u8().await
        };
        match tokio::join!(serving, asking) {
            (Ok(peer), Ok(7)) => Ok(peer),
            (Err(server), _) => Err(format!("server: {server}")),
            (_, answer) => Err(format!("client: {answer:?}")),
        }
    }

    #[tokio::test]
    async fn both_sides_prove_their_roles() {
        let lab = Lab::new("lab");
        let (fusion, node) = (lab.valid(Role::FusionCenter), lab.valid(Role::Node(2)));
        let peer = connect(&fusion, &node.client(Some(Role::FusionCenter))).await.unwrap();
        assert_eq!(peer, Peer::Named(Arc::new(node.name())));
        // Without a certificate the connection is made, and nothing is known of the peer.
        let anonymous = ClientTls::anonymous(&lab.paths().ca).unwrap();
        assert_eq!(connect(&fusion, &anonymous).await, Ok(Peer::Anonymous));
        // A node that poses as the fusion center is not spoken to.
        let refused = connect(&node, &node.client(Some(Role::FusionCenter))).await.unwrap_err();
        assert!(refused.starts_with("server: "), "{refused}");
        assert!(connect(&node, &fusion.client(Some(Role::Node(2)))).await.is_ok());
        assert!(connect(&node, &fusion.client(Some(Role::Node(1)))).await.is_err());
    }

    #[tokio::test]
    async fn strangers_are_refused_on_either_side() {
        let (lab, other, now) = (Lab::new("lab"), Lab::new("lab"), SystemTime::now());
        let (fusion, node) = (lab.valid(Role::FusionCenter), lab.valid(Role::Node(2)));
        let stranger = other.valid(Role::Node(2));
        // Another authority: the server's certificate, and the client's.
        assert!(connect(&fusion, &stranger.client(None)).await.is_err());
        let own = other.paths();
        let mixed = Paths { ca: lab.paths().ca, ..own };
        let mixed = Identity::load(mixed).unwrap();
        let refused = connect(&fusion, &mixed.client(None)).await.unwrap_err();
        assert!(refused.contains("invalid peer certificate"), "{refused}");
        // Another domain of the same authority.
        let guest = lab.identity(&lab.pair_of("guest", Role::Node(2), now), now);
        assert!(connect(&guest, &node.client(None)).await.is_err());
        let refused = connect(&fusion, &guest.client(None)).await.unwrap_err();
        assert!(!refused.is_empty());
        // Expired, on either side.
        let then = now - 20 * DAY;
        let old = lab.identity(&lab.pair(Role::Node(2), then), then);
        let refused = connect(&fusion, &old.client(None)).await.unwrap_err();
        assert!(refused.contains("xpired"), "{refused}");
        let old = lab.identity(&lab.pair(Role::FusionCenter, then), then);
        assert!(connect(&old, &node.client(None)).await.is_err());
    }

    /// A peer that says nothing ends after the timeout; until then others are served.
    #[tokio::test(start_paused = true)]
    async fn a_slow_handshake_delays_no_other() {
        let lab = Lab::new("lab");
        let (fusion, node) = (lab.valid(Role::FusionCenter), lab.valid(Role::Node(0)));
        let (sender, receiver) = mpsc::channel::<io::Result<DuplexStream>>(8);
        let mut accepted = secured(ReceiverStream::new(receiver), fusion.acceptor(Protocol::Grpc));
        let (mut silent, there) = duplex(1 << 16);
        sender.send(Ok(there)).await.unwrap();
        let (here, there) = duplex(1 << 16);
        sender.send(Ok(there)).await.unwrap();
        let client = tokio::spawn(async move { node.client(None).connect(here, Protocol::Grpc).await });
        let begun = tokio::time::Instant::now();
        let first = accepted.next().await.unwrap().unwrap();
        assert!(matches!(first.peer(), Peer::Named(_)) && begun.elapsed() < HANDSHAKE_TIMEOUT);
        client.await.unwrap().unwrap();
        let mut rest = Vec::new();
        silent.read_to_end(&mut rest).await.unwrap();
        assert!(begun.elapsed() >= HANDSHAKE_TIMEOUT, "the silent one was given its time");
    }
}
