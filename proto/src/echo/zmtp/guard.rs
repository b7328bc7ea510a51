//! The guard in front of the node's DEALER: what the simulator sends is checked before the crate `zeromq` sees it.
//!
//! The guard connects to the simulator and listens on a port of loopback, where it accepts one connection, that of the
//! DEALER. Bytes of the simulator are passed on after their headers were checked; a violation closes both connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::WRITE_TIMEOUT;
use super::scan::{MessageLimits, Scanner};

const CHUNK_BYTES: usize = 64 << 10;

/// A checked connection to a simulator; it ends when this is dropped.
#[derive(Debug)]
pub(in super::super) struct Guard {
    /// Where the DEALER connects.
    pub address: SocketAddr,
    reason: Arc<OnceLock<String>>,
    _task: AbortOnDropHandle<()>,
}

impl Guard {
    /// Connects to `simulator`, host:port. Connection, and then the handshake of the DEALER, may take `patience` each.
    pub async fn connect(simulator: &str, limits: MessageLimits, patience: Duration) -> io::Result<Self> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the simulator cannot be reached");
        let upstream = timeout(patience, TcpStream::connect(simulator)).await.map_err(late)??;
        upstream.set_nodelay(true)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let reason = Arc::new(OnceLock::new());
        let told = reason.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = carry(listener, upstream, limits, patience).await {
                let _ = told.set(error.to_string());
            }
        });
        Ok(Self { address, reason, _task: AbortOnDropHandle::new(task) })
    }

    /// Why the guard has closed the connection, if it has.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }
}

async fn carry(
    listener: TcpListener,
    upstream: TcpStream,
    limits: MessageLimits,
    patience: Duration,
) -> io::Result<()> {
    let accepted = timeout(patience, listener.accept()).await;
    drop(listener);
    let (local, _) = accepted.map_err(|_| io::ErrorKind::TimedOut)??;
    local.set_nodelay(true)?;
    let (from_simulator, to_simulator) = upstream.into_split();
    let (from_dealer, to_dealer) = local.into_split();
    tokio::select! {
        ended = pass(from_simulator, to_dealer, Some(Scanner::new(limits))) => ended,
        ended = pass(from_dealer, to_simulator, None) => ended,
    }
}

/// Passes bytes on until the connection ends, checked if there is a scanner.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut scanner: Option<Scanner>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        let bytes = &buffer[..count];
        if let Some(scanner) = &mut scanner {
            let refuse = |violation| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the simulator violates ZMTP: {violation}"),
                )
            };
            scanner.check_all(bytes).map_err(refuse)?;
            // A node that is behind reads no more until it has room: that may take as long as it needs.
            to.write_all(bytes).await?;
        } else {
            let stuck = |_| io::Error::new(io::ErrorKind::TimedOut, "the simulator does not read");
            timeout(WRITE_TIMEOUT, to.write_all(bytes)).await.map_err(stuck)??;
        }
    }
}
