//! A real Prometheus for tests: it scrapes processes under test once per second and evaluates expressions.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{PATIENCE, eventually, free_address};

/// Whether a Prometheus is installed.
pub fn available() -> bool {
    Command::new("prometheus").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A running Prometheus. It is killed when it is dropped.
#[derive(Debug)]
pub struct Prometheus {
    server: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Prometheus {
    /// Starts a server that scrapes these jobs.
    pub fn start(jobs: &[(&str, Vec<SocketAddr>)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = "global: { scrape_interval: 1s, scrape_timeout: 1s }\nscrape_configs:\n".to_owned();
        for (job, addresses) in jobs {
            let targets: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
            let targets = targets.join(", ");
            config += &format!("- {{ job_name: {job}, static_configs: [{{ targets: [{targets}] }}] }}\n");
        }
        let file = directory.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("written");
        let address = free_address();
        let server = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus starts");
        let prometheus = Self { server, address, _directory: directory };
        eventually("Prometheus is ready", || prometheus.get("/-/ready").filter(|(code, _)| *code == 200));
        prometheus
    }

    /// Values of an expression now, with their labels.
    pub fn query(&self, expression: &str) -> Vec<(Value, f64)> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (code, body) = self.get(&format!("/api/v1/query?query={escaped}")).expect("an answer");
        assert_eq!(code, 200, "{expression}: {body}");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        let result = answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{expression}: {answer}"));
        let value = |sample: &Value| sample["value"][1].as_str().and_then(|text| text.parse().ok());
        result.iter().map(|sample| (sample["metric"].clone(), value(sample).expect("a number"))).collect()
    }

    /// Status and body of an answer, in a version of HTTP that has no chunks.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
