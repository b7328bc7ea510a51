//! One end of a relayed connection. It is reset, not closed, unless the connection ended in order.

use telemetry::listener::LimitedStream;
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;

/// An end. If it is dropped without [`End::close`] it is reset immediately, without a FIN before it: a reader that sees a
/// FIN first takes a cut connection for a finished one. The halves are therefore borrowed; owned halves send a FIN when
/// they are dropped.
#[derive(Debug)]
pub struct End {
    stream: LimitedStream<TcpStream>,
    closed: bool,
}

impl End {
    /// An end that is reset unless it is closed. Disables Nagle's algorithm.
    pub fn new(stream: LimitedStream<TcpStream>) -> std::io::Result<Self> {
        let end = Self { stream, closed: false };
        end.stream.get_ref().set_nodelay(true)?;
        Ok(end)
    }

    pub fn halves(
        &mut self,
    ) -> (ReadHalf<&mut LimitedStream<TcpStream>>, WriteHalf<&mut LimitedStream<TcpStream>>) {
        split(&mut self.stream)
    }

    /// Closes the end in order: bytes in transit still arrive.
    pub fn close(mut self) {
        self.closed = true;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.closed {
            // Fails if the socket is closed already.
            let _ = self.stream.get_ref().set_zero_linger();
        }
    }
}
