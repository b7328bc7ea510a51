//! A fusion center on free ports of the loopback, and nodes that speak to it.
#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use estimation::fusion::Estimator;
use hyloc_fusion_center::{FusionListeners, FusionSummary, run, run_with};
use model::{EchoSource, Scenario};
use proto::convert::{FrameId, PayloadFormat, Times, report_message};
use proto::samples::Precision;
use proto::v1::fusion_client::FusionClient;
use proto::{PROTOCOL_VERSION, SESSION_KEY, v1};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

pub const RUN: u64 = 7;

const POWER_DBM: f64 = 60.0;

/// Everything here ends within this time or fails.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
}

pub struct Center {
    pub address: String,
    pub http: std::net::SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<anyhow::Result<FusionSummary>>,
}

#[derive(Default, Clone)]
pub struct Options {
    pub deadline_ms: Option<u64>,
    pub solver_delay_ms: Option<u64>,
    pub queue: Option<usize>,
    pub fixes: Option<PathBuf>,
    pub record: Option<PathBuf>,
    pub workers: Option<usize>,
    /// Number of IRSs, if it is not that of Table I.
    pub nodes: Option<usize>,
}

pub fn options(changed: Options) -> hyloc_fusion_center::FusionOptions {
    let mut options: hyloc_fusion_center::FusionOptions =
        settings::options::from_flags(&["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"]).unwrap();
    (options.scenario.power_dbm, options.scenario.nodes) = (Some(POWER_DBM), changed.nodes);
    options.engine.deadline = Duration::from_millis(changed.deadline_ms.unwrap_or(10_000));
    options.engine.solver_delay = Duration::from_millis(changed.solver_delay_ms.unwrap_or(0));
    options.engine.queue = changed.queue.unwrap_or(options.engine.queue);
    options.engine.workers = changed.workers.unwrap_or(options.engine.workers);
    (options.fixes, options.record) = (changed.fixes, changed.record);
    options
}

impl Center {
    pub async fn start(options: Options) -> Self {
        Self::start_with(options, None).await
    }

    /// A center with an estimator of the test's own, if given.
    pub async fn start_with(options: Options, estimator: Option<Box<dyn Estimator>>) -> Self {
        let options = self::options(options);
        let site = options.load().unwrap();
        let listeners = FusionListeners::bind(&options).await.unwrap();
        let address = format!("http://{}", listeners.grpc.local_addr().unwrap());
        let http = listeners.http.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let stopped = shutdown.clone();
        let task = tokio::spawn(async move {
            match estimator {
                Some(estimator) => run_with(estimator, options, site, listeners, stopped).await,
                None => run(options, site, listeners, stopped).await,
            }
        });
        Self { address, http, shutdown, task }
    }

    pub async fn client(&self) -> FusionClient<Channel> {
        within(FusionClient::connect(self.address.clone())).await.unwrap()
    }

    pub async fn stop(self) -> FusionSummary {
        self.shutdown.cancel();
        within(self.task).await.unwrap().unwrap()
    }

    pub fn ask_to_stop(&self) {
        self.shutdown.cancel();
    }
}

pub fn application(identity: &str, index: Option<u32>) -> v1::RegisterRequest {
    v1::RegisterRequest {
        protocol_version: PROTOCOL_VERSION,
        identity: identity.into(),
        index,
        site_sha256: Default::default(),
        incarnation: identity.into(),
    }
}

/// The scenario of the center under test.
pub fn echoes_scenario() -> Scenario {
    Scenario::default().with_power_dbm(POWER_DBM)
}

/// Echoes of the scenario and what each node makes of them.
pub struct Echoes {
    pub source: EchoSource,
    nodes: Vec<DelayEstimator>,
}

impl Echoes {
    pub fn new() -> Arc<Self> {
        Self::of(&echoes_scenario())
    }

    pub fn of(scenario: &Scenario) -> Arc<Self> {
        let source = EchoSource::new(scenario).unwrap();
        let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
        let nodes = (0..scenario.irs.len())
            .map(|l| DelayEstimator::with_settings(source.system(), l, settings.clone()).unwrap())
            .collect();
        Arc::new(Self { source, nodes })
    }

    pub fn report(&self, node: usize, frame: u64) -> v1::FrameReport {
        self.report_as(PayloadFormat { precision: Precision::F64, ..PayloadFormat::default() }, node, frame)
    }

    pub fn report_as(&self, format: PayloadFormat, node: usize, frame: u64) -> v1::FrameReport {
        let received = self.source.frame(node, frame, self.source.target_m(frame));
        let delays = self.nodes[node].estimate(&received).unwrap();
        let times = Times { intended_ns: 1, received_ns: 2, filtered_ns: 3, sent_ns: 4 };
        report_message(FrameId { run: RUN, frame }, node, &delays, format, times)
    }
}

/// A node's connection.
pub struct Node {
    pub index: usize,
    pub session: String,
    pub reports: mpsc::Sender<v1::FrameReport>,
    pub acknowledgements: Streaming<v1::Acknowledgement>,
    sent: u64,
}

impl Node {
    pub async fn join(center: &Center, identity: &str, index: Option<u32>) -> Self {
        let mut client = center.client().await;
        let reply = client.register(application(identity, index)).await.unwrap().into_inner();
        Self::open(client, reply.index as usize, reply.session).await
    }

    /// The same, as soon as the index is free.
    pub async fn join_in_time(center: &Center, identity: &str, index: Option<u32>) -> Self {
        let mut client = center.client().await;
        let reply = within(async {
            loop {
                match client.register(application(identity, index)).await {
                    Ok(reply) => break reply.into_inner(),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        })
        .await;
        Self::open(client, reply.index as usize, reply.session).await
    }

    pub async fn open(mut client: FusionClient<Channel>, index: usize, session: String) -> Self {
        let (reports, outgoing) = mpsc::channel(64);
        let mut request = Request::new(ReceiverStream::new(outgoing));
        request.metadata_mut().insert(SESSION_KEY, session.parse().unwrap());
        let acknowledgements = client.report(request).await.unwrap().into_inner();
        Self { index, session, reports, acknowledgements, sent: 0 }
    }

    pub async fn send(&mut self, mut report: v1::FrameReport) {
        self.sent += report.blocks.len() as u64;
        report.blocks_sent = self.sent;
        self.reports.send(report).await.unwrap();
    }

    pub async fn acknowledgement(&mut self) -> Result<v1::Acknowledgement, Status> {
        Ok(within(self.acknowledgements.message()).await?.expect("the stream goes on"))
    }
}

/// All three nodes.
pub async fn nodes(center: &Center) -> Vec<Node> {
    let mut nodes = Vec::new();
    for index in 0..3 {
        nodes.push(Node::join(center, &format!("node-{index}"), Some(index)).await);
    }
    nodes
}

/// Fixes of a log, each without what depends on the clock or the source.
pub fn fix_lines(path: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let mut fix: serde_json::Value = serde_json::from_str(line).unwrap();
            let object = fix.as_object_mut().unwrap();
            object.remove("run").unwrap();
            object.remove("timing").unwrap();
            object.remove("source").unwrap();
            fix.to_string()
        })
        .collect()
}

/// Place of the entry of a frame in a recording: its run and its number come first, then its reports.
pub fn place_of_frame(bytes: &[u8], frame: u64) -> usize {
    let start = v1::RecordedFrame { run: RUN, frame, reports: vec![3 * frame as u32], ..Default::default() };
    let start = prost::Message::encode_to_vec(&start);
    // The list continues: its length and its entries differ.
    let start = &start[..start.len() - 2];
    bytes.windows(start.len()).position(|part| part == start).expect("the entry of the frame")
}
