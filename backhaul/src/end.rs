//! One end of a relayed connection, which never looks closed when it is broken.

use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// An end. Dropped without [`End::close`] it is reset, at once and with nothing in order before it: a reader that
/// meets an orderly end first takes what is cut for what is over. So the halves are borrowed ones; those that own
/// their stream say an orderly end when they are dropped.
#[derive(Debug)]
pub struct End {
    stream: TcpStream,
    over: bool,
}

impl End {
    /// An end that is reset unless it is closed. Small messages are not held back.
    pub fn new(stream: TcpStream) -> std::io::Result<Self> {
        let end = Self { stream, over: false };
        end.stream.set_nodelay(true)?;
        Ok(end)
    }

    /// To read from and to write to.
    pub fn halves(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        self.stream.split()
    }

    /// Ends it in order: what was written and is still on its way arrives.
    pub fn close(mut self) {
        self.over = true;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.over {
            // Fails on a socket that is gone already.
            let _ = self.stream.set_zero_linger();
        }
    }
}
