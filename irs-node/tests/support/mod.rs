//! A fusion center that does as the test says, and a simulator's echo side.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyloc_irs_node::{NodeError, NodeOptions, NodeSummary};
use model::{EchoSource, Scenario, System};
use proto::convert::FrameId;
use proto::echo::{EchoFrame, EchoPublisher, Offer, Publication};
use proto::site::SharedSite;
use proto::v1::fusion_server::{Fusion, FusionServer};
use proto::{SESSION_KEY, v1};
use telemetry::{Endpoints, Started};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

pub const RUN: u64 = 11;
const DEADLINE: Duration = Duration::from_secs(30);

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("in time: {what}"))
}

type Refuse = Arc<Mutex<Option<Status>>>;

/// The service behind [`StubFusion`].
struct Stub {
    site: SharedSite,
    instance: String,
    credit: u32,
    refuse: Refuse,
    registrations: mpsc::UnboundedSender<v1::RegisterRequest>,
    reports: mpsc::UnboundedSender<v1::FrameReport>,
    decisions: broadcast::Sender<v1::Acknowledgement>,
}

#[tonic::async_trait]
impl Fusion for Stub {
    type ReportStream = Pin<Box<dyn Stream<Item = Result<v1::Acknowledgement, Status>> + Send>>;
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::Fix, Status>> + Send>>;

    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterReply>, Status> {
        let request = request.into_inner();
        let index = request.index.unwrap_or(1);
        let _ = self.registrations.send(request);
        if let Some(status) = self.refuse.lock().unwrap().clone() {
            return Err(status);
        }
        Ok(Response::new(v1::RegisterReply {
            index,
            site: Some(self.site.message.clone()),
            site_sha256: self.site.sha256.to_vec().into(),
            session: "session".into(),
            instance: self.instance.clone(),
            credit: self.credit,
            max_report_bytes: 1 << 20,
            payload: v1::Payload::Spectrum as i32,
            precision: v1::Precision::Q4 as i32,
        }))
    }

    async fn report(
        &self,
        request: Request<Streaming<v1::FrameReport>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        assert_eq!(request.metadata().get(SESSION_KEY).unwrap(), "session");
        let mut incoming = request.into_inner();
        let (reports, mut decisions) = (self.reports.clone(), self.decisions.subscribe());
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    report = incoming.next() => match report {
                        Some(Ok(report)) => drop(reports.send(report)),
                        _ => return,
                    },
                    Ok(decision) = decisions.recv() => if sender.send(Ok(decision)).await.is_err() { return },
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn truth(
        &self,
        _: Request<Streaming<v1::TruthRecord>>,
    ) -> Result<Response<v1::TruthSummary>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}

/// A fusion center under the test's control.
pub struct StubFusion {
    pub address: SocketAddr,
    pub refuse: Refuse,
    registrations: mpsc::UnboundedReceiver<v1::RegisterRequest>,
    reports: mpsc::UnboundedReceiver<v1::FrameReport>,
    decisions: broadcast::Sender<v1::Acknowledgement>,
    credit: u32,
    /// A runtime of its own: with it end all connections, as with a process.
    runtime: Option<Runtime>,
}

impl Drop for StubFusion {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl StubFusion {
    pub async fn start(credit: u32) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), "first", credit).await
    }

    async fn start_at(address: SocketAddr, instance: &str, credit: u32) -> Self {
        let listener = within("the port", async {
            loop {
                match std::net::TcpListener::bind(address) {
                    Ok(listener) => return listener,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        })
        .await;
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (registered, registrations) = mpsc::unbounded_channel();
        let (reported, reports) = mpsc::unbounded_channel();
        let (decisions, refuse) = (broadcast::channel(256).0, Refuse::default());
        let stub = Stub {
            site: SharedSite::new(System::new(&Scenario::default()).unwrap()).unwrap(),
            instance: instance.into(),
            credit,
            refuse: refuse.clone(),
            registrations: registered,
            reports: reported,
            decisions: decisions.clone(),
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let server = tonic::transport::Server::builder().add_service(FusionServer::new(stub));
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        Self { address, refuse, registrations, reports, decisions, credit, runtime: Some(runtime) }
    }

    /// Dies and comes back at the same address.
    pub async fn restart(self, instance: &str) -> Self {
        let (address, credit) = (self.address, self.credit);
        drop(self);
        Self::start_at(address, instance, credit).await
    }

    pub async fn registration(&mut self) -> v1::RegisterRequest {
        within("a registration", self.registrations.recv()).await.unwrap()
    }

    pub async fn report(&mut self) -> v1::FrameReport {
        within("a report", self.reports.recv()).await.unwrap()
    }

    pub async fn reports(&mut self, count: usize) -> Vec<v1::FrameReport> {
        let mut reports = Vec::new();
        while reports.len() < count {
            reports.push(self.report().await);
        }
        reports
    }

    pub fn nothing_came(&mut self) -> bool {
        self.reports.try_recv().is_err()
    }

    /// Decides that all blocks of a report were fused.
    pub fn fuse(&self, report: &v1::FrameReport) {
        let fused = report.blocks.len() as u32;
        let (run, frame, credit) = (report.run, report.frame, self.credit);
        let decision = v1::Acknowledgement { run, frame, fused, credit, ..v1::Acknowledgement::default() };
        self.decisions.send(decision).unwrap();
    }
}

/// The echo side of a simulator, frame by frame.
pub struct Echoes {
    pub publisher: EchoPublisher,
    source: EchoSource,
}

impl Echoes {
    pub async fn start() -> Self {
        let source = EchoSource::new(&Scenario::default()).unwrap();
        let shared = SharedSite::new(source.system().clone()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (sensors, subcarriers) = (source.system().sensors(), source.system().subcarriers);
        let publication =
            Publication { run: RUN, nodes: 3, site_sha256: shared.sha256, sensors, subcarriers };
        let publisher = EchoPublisher::bind(listener, &publication).unwrap();
        Self { publisher, source }
    }

    /// Waits for the only node of the test.
    pub async fn until_subscribed(&self) {
        within("a subscription", async {
            while self.publisher.subscribed() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    pub async fn send(&mut self, node: u32, frame: u64) {
        let received = self.source.frame(node as usize, frame, self.source.target_m(frame));
        let frame = EchoFrame::new(FrameId { run: RUN, frame }, node, 5, &received);
        assert_eq!(self.publisher.publish(node as usize, frame), Offer::Sent);
    }
}

/// A running node.
pub struct Node {
    pub stop: CancellationToken,
    pub started: Started,
    running: JoinHandle<Result<NodeSummary, NodeError>>,
}

impl Node {
    pub async fn start(fusion: SocketAddr, simulator: SocketAddr, change: fn(&mut NodeOptions)) -> Self {
        let mut options: NodeOptions = settings::options::from_flags(&["--identity=under test"]).unwrap();
        (options.fusion, options.simulator) = (fusion.to_string(), simulator.to_string());
        change(&mut options);
        let options = options.check().unwrap();
        let endpoints =
            Endpoints::bind(options.endpoints.http_listen, options.endpoints.health_listen).await.unwrap();
        let started = endpoints.started("irs-node");
        let stop = CancellationToken::new();
        let running = tokio::spawn(hyloc_irs_node::run(options, endpoints, stop.clone()));
        Self { stop, started, running }
    }

    pub async fn ended(self) -> Result<NodeSummary, NodeError> {
        within("the end", self.running).await.unwrap()
    }

    pub async fn stop(self) -> NodeSummary {
        self.stop.cancel();
        self.ended().await.unwrap()
    }
}
