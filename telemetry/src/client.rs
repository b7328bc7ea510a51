//! A small HTTP client for loopback: health checks from an image without a shell, control of a process that runs.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use crate::exit;

/// Longest wait for a connection, and for each piece of an answer. A relay that measures itself takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Largest answer that is read.
const LARGEST: u64 = 16 << 20;

/// What a server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Asks for `url`, as in `http://127.0.0.1:7401/health`, and waits for the answer.
pub fn request(method: &str, url: &str, body: &str) -> std::io::Result<Answer> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidInput, format!("'{url}' {what}"));
    let rest = url.strip_prefix("http://").ok_or_else(|| wrong("does not begin with http://"))?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    let target = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let address = target.to_socket_addrs()?.next().ok_or_else(|| wrong("has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut text = String::new();
    stream.take(LARGEST).read_to_string(&mut text)?;
    let broken = || Error::new(ErrorKind::InvalidData, "no HTTP answer");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    Ok(Answer { status, body: body.to_owned() })
}

/// `text` as part of a query.
pub fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

/// Exit code of a health check: 0 if `url` answers with success, else 1 and the reason on standard error.
pub fn check(url: &str) -> ExitCode {
    let reason = match request("GET", url, "") {
        Ok(answer) if (200..300).contains(&answer.status) => return ExitCode::SUCCESS,
        Ok(answer) => format!("{} {}", answer.status, answer.body.trim_end()),
        Err(error) => error.to_string(),
    };
    crate::complain("healthcheck", &format!("{url}: {reason}"));
    ExitCode::from(exit::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Health, Metrics, http};
    use tokio_util::sync::CancellationToken;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_check_follows_the_health() {
        let (listener, address) = http::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (health, shutdown) = (Health::new(), CancellationToken::new());
        let server = tokio::spawn(http::serve(
            listener,
            http::routes(Metrics::new(), health.clone()),
            shutdown.clone(),
        ));
        let ask = move || request("GET", &format!("http://{address}/health"), "");
        let answer = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (503, "starting\n"));
        health.ready();
        let answer = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
        assert_eq!(answer.status, 200);
        shutdown.cancel();
        server.await.unwrap().unwrap();
        assert!(tokio::task::spawn_blocking(ask).await.unwrap().is_err(), "nobody listens any more");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert!(request("GET", "127.0.0.1:7401/health", "").unwrap_err().to_string().contains("http://"));
        assert_eq!(escape("a b/1.2:c"), "a%20b%2F1.2:c");
    }
}
