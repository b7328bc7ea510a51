//! What mutual TLS costs between nodes and fusion center, against none, in one run: rounds with and without it alternate.
//!
//! `cargo run --release -p hyloc-fusion-center --example tls_cost`
//!
//! Three nodes report frames at Table I: first to a fusion center as it is, blocks of 8 bits, which is the default; then to one whose
//! estimator takes no time, so that the connections alone are measured, with blocks of 8 bits and with blocks of 64 bits. A round
//! measures the time from sending a frame to its last acknowledgement, one frame at a time, and the frames per second with 32 in
//! flight. All processes of a deployment share the two threads of this one.
#![allow(clippy::print_stdout)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Instant, SystemTime};

use estimation::fusion::{Estimator, FixMethod, FrameBlocks, FusedFix, FusionError};
use hyloc_fusion_center::{FusionListeners, run, run_with};
use model::Point;
use proto::channel::connect;
use proto::convert::PayloadFormat;
use proto::samples::Precision;
use proto::v1::FrameReport;
use proto::v1::fusion_client::FusionClient;
use support::{Echoes, Node, Options, application, options};
use tokio_util::sync::CancellationToken;
use trust::authority::{self, Authority};
use trust::{Identity, Name, Paths, Role};

const ROUNDS: usize = 9;
const SINGLE_FRAMES: u64 = 200;
const STREAMED_FRAMES: u64 = 1000;
const IN_FLIGHT: u64 = 32;

/// Needs no time, so that the connection is measured.
struct Instantly;

impl Estimator for Instantly {
    fn estimate(&self, _: &FrameBlocks) -> Result<Vec<FusedFix>, FusionError> {
        let method = FixMethod::Other("none");
        Ok(vec![FusedFix::new(method, Point::new(1.0, 2.0, 0.0), nalgebra::DMatrix::identity(2, 2))])
    }
}

/// Certificates for a fusion center and three nodes.
fn certificates(directory: &std::path::Path) -> impl Fn(Role) -> Paths {
    let now = SystemTime::now();
    let ca = authority::make("lab", now, 10).expect("an authority");
    let authority = Authority::from_pem(&ca.certificate, &ca.key).expect("an authority");
    let directory = directory.to_path_buf();
    std::fs::write(directory.join("ca.pem"), ca.certificate).expect("written");
    move |role| {
        let pair = authority.issue(&Name::new("lab", role).expect("a name"), &[], now, 5).expect("issued");
        let path = |kind: &str| directory.join(format!("{}.{kind}", role.to_string().replace('/', "-")));
        std::fs::write(path("pem"), pair.certificate).expect("written");
        std::fs::write(path("key"), pair.key).expect("written");
        Paths { ca: directory.join("ca.pem"), cert: path("pem"), key: path("key") }
    }
}

/// A fusion center and its three nodes.
struct Pipeline {
    nodes: Vec<Node>,
    frame: u64,
    reports: Vec<FrameReport>,
}

impl Pipeline {
    async fn start(issue: Option<&impl Fn(Role) -> Paths>, estimator: bool, reports: &[FrameReport]) -> Self {
        let mut options = options(Options { queue: Some(256), ..Options::default() });
        if let Some(issue) = issue {
            let Paths { ca, cert, key } = issue(Role::FusionCenter);
            (options.tls.tls_ca, options.tls.tls_cert, options.tls.tls_key) =
                (Some(ca), Some(cert), Some(key));
        }
        let site = options.load().expect("a site");
        let listeners = FusionListeners::bind(&options).await.expect("ports");
        let address = listeners.grpc.local_addr().expect("an address").to_string();
        let stop = CancellationToken::new();
        if estimator {
            tokio::spawn(run(options, site, listeners, stop));
        } else {
            tokio::spawn(run_with(Box::new(Instantly), options, site, listeners, stop));
        }
        let mut nodes = Vec::new();
        for index in 0..3 {
            let identity = issue.map(|issue| Identity::load(issue(Role::Node(index))).expect("an identity"));
            let tls = identity.map(|identity| identity.client(Some(Role::FusionCenter)));
            let mut client = FusionClient::new(connect(&address, tls.as_ref()).await.expect("connected"));
            let reply = client.register(application(&format!("node-{index}"), Some(index))).await;
            let session = reply.expect("registered").into_inner().session;
            nodes.push(Node::open(client, index as usize, session).await);
        }
        Self { nodes, frame: 0, reports: reports.to_vec() }
    }

    async fn send(&mut self) {
        for (node, report) in self.nodes.iter_mut().zip(&self.reports) {
            node.send(FrameReport { frame: self.frame, ..report.clone() }).await;
        }
        self.frame += 1;
    }

    async fn acknowledged(&mut self) {
        for node in &mut self.nodes {
            node.acknowledgement().await.expect("an acknowledgement");
        }
    }

    /// Milliseconds of single frames at the median, and frames per second when streamed.
    async fn round(&mut self) -> (f64, f64) {
        let mut times_ms = Vec::new();
        for _ in 0..SINGLE_FRAMES {
            let begun = Instant::now();
            self.send().await;
            self.acknowledged().await;
            times_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let begun = Instant::now();
        for frame in 0..STREAMED_FRAMES + IN_FLIGHT {
            if frame < STREAMED_FRAMES {
                self.send().await;
            }
            if frame >= IN_FLIGHT {
                self.acknowledged().await;
            }
        }
        (median(times_ms), STREAMED_FRAMES as f64 / begun.elapsed().as_secs_f64())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let issue = certificates(directory.path());
    let echoes = Echoes::new();
    for (what, estimator, precision) in [
        ("as it is, blocks of 8 bits", true, Precision::Q8),
        ("without an estimator, blocks of 8 bits", false, Precision::Q8),
        ("without an estimator, blocks of 64 bits", false, Precision::F64),
    ] {
        let format = PayloadFormat { precision, ..PayloadFormat::default() };
        let reports: Vec<FrameReport> = (0..3).map(|node| echoes.report_as(format, node, 0)).collect();
        let bytes: usize = reports.iter().map(prost::Message::encoded_len).sum();
        println!("\n{what}: {bytes} bytes per frame");
        let mut plain = Pipeline::start(None::<&fn(Role) -> Paths>, estimator, &reports).await;
        let mut secured = Pipeline::start(Some(&issue), estimator, &reports).await;
        compare(&mut plain, &mut secured).await;
    }
}

async fn compare(plain: &mut Pipeline, secured: &mut Pipeline) {
    println!("round   ms without   ms with   frames/s without   frames/s with");
    let (mut more_ms, mut shares) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The order alternates too.
        let (without, with) = if round % 2 == 0 {
            let without = plain.round().await;
            (without, secured.round().await)
        } else {
            let with = secured.round().await;
            (plain.round().await, with)
        };
        println!("{round:>5} {:>12.3} {:>9.3} {:>18.0} {:>15.0}", without.0, with.0, without.1, with.1);
        more_ms.push(with.0 - without.0);
        shares.push(with.1 / without.1);
    }
    println!("TLS adds {:.3} ms to a frame at the median of all rounds", median(more_ms));
    println!("TLS leaves {:.1} % of the throughput at the median of all rounds", 100.0 * median(shares));
}
