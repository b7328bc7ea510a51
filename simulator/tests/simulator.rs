//! A simulator with nodes that only listen, and a fusion center that only hears the truth.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use hyloc_simulator::{SimulatorListeners, SimulatorOptions, SimulatorSummary};
use model::{EchoSource, Scenario, System};
use proto::echo::{Delivery, EchoLedger, EchoSubscriber, Subscription, SubscriptionState, Timings};
use proto::site::SharedSite;
use proto::v1;
use proto::v1::fusion_server::{Fusion, FusionServer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

const DEADLINE: Duration = Duration::from_secs(90);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("in time: {what}"))
}

struct Running {
    scenario: Scenario,
    echo: SocketAddr,
    control: Option<SocketAddr>,
    stop: CancellationToken,
    running: JoinHandle<anyhow::Result<SimulatorSummary>>,
}

impl Running {
    async fn start(change: impl FnOnce(&mut SimulatorOptions)) -> Self {
        let mut options =
            settings::options::from_flags(&["--echo-listen=127.0.0.1:0", "--rate=200"]).unwrap();
        change(&mut options);
        let scenario = options.load().unwrap();
        let listeners = SimulatorListeners::bind(&options).await.unwrap();
        let echo = listeners.echo.as_ref().unwrap().local_addr().unwrap();
        let control = listeners.control.as_ref().map(|listener| listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let (simulated, stopped) = (scenario.clone(), stop.clone());
        let running =
            tokio::spawn(async move { hyloc_simulator::run(&options, simulated, listeners, stopped).await });
        Self { scenario, echo, control, stop, running }
    }

    fn node(&self, node: u32) -> EchoSubscriber {
        EchoSubscriber::start(Subscription {
            address: self.echo.to_string(),
            node,
            site_sha256: SharedSite::new(System::new(&self.scenario).unwrap()).unwrap().sha256,
            window: 64,
            sensors: self.scenario.surface.sensors.count(),
            subcarriers: self.scenario.signal.subcarriers,
            timings: Timings { silence: Duration::from_secs(10), ..Timings::default() },
        })
    }

    async fn ended(self) -> SimulatorSummary {
        within("the end", self.running).await.unwrap().unwrap()
    }
}

/// Asks the control, and gives status and body.
async fn ask(control: SocketAddr, method: &'static str, body: &'static str) -> (u16, String) {
    let url = format!("http://{control}/motion");
    let ask = move || telemetry::client::request_with(None, method, &url, body).unwrap();
    let answer = within("an answer", tokio::task::spawn_blocking(ask)).await.unwrap();
    (answer.status, answer.body)
}

async fn take(node: &mut EchoSubscriber, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.push(within("a frame", node.next()).await.unwrap().unwrap());
    }
    taken
}

#[tokio::test]
async fn every_node_gets_every_frame_at_its_time() {
    let simulator = Running::start(|raw| raw.frames = 20).await;
    let source = EchoSource::new(&simulator.scenario).unwrap();
    let mut nodes: Vec<EchoSubscriber> = (0..3).map(|node| simulator.node(node)).collect();
    let mut start_ns = None;
    for (l, node) in nodes.iter_mut().enumerate() {
        for (frame, delivery) in take(node, 20).await.into_iter().enumerate() {
            let (echo, frame) = (delivery.frame, frame as u64);
            assert_eq!(echo.frame, frame);
            assert_eq!(echo.samples, source.frame(l, frame, source.target_m(frame)).as_slice());
            // Open loop: times are the start plus a multiple of the period, the same for all nodes.
            let start_ns = *start_ns.get_or_insert(echo.intended_ns);
            assert_eq!(echo.intended_ns, start_ns + frame * 5_000_000);
            assert!(delivery.received_ns >= echo.intended_ns);
        }
    }
    for node in nodes {
        node.close().await;
    }
    let summary = simulator.ended().await;
    assert_eq!(summary.frames, 20);
    assert_eq!(summary.nodes, [EchoLedger { offered: 20, delivered: 20, dropped: 0, in_flight: 0 }; 3]);
}

#[tokio::test]
async fn a_late_simulator_does_not_shift_what_comes_after() {
    // A hundred thousand frames a second are more than it can make.
    let simulator = Running::start(|raw| {
        (raw.frames, raw.rate_hz, raw.settle_timeout) = (50, 1e5, Duration::from_millis(100));
    })
    .await;
    let mut nodes: Vec<EchoSubscriber> = (0..3).map(|node| simulator.node(node)).collect();
    let frames = take(&mut nodes[0], 50).await;
    let start_ns = frames[0].frame.intended_ns;
    assert!(frames.iter().enumerate().all(|(n, d)| d.frame.intended_ns == start_ns + n as u64 * 10_000));
    drop(nodes);
    simulator.stop.cancel();
    let summary = simulator.ended().await;
    assert!(summary.latest_ms > 0.0, "{summary:?}");
}

#[tokio::test]
async fn a_node_that_dies_costs_only_its_own_frames() {
    let simulator = Running::start(|raw| {
        raw.frames = 60;
        // Frames of the dead node stay in flight until this has passed; the others have to be done by then.
        raw.settle_timeout = Duration::from_secs(10);
    })
    .await;
    let mut nodes: Vec<EchoSubscriber> = (0..3).map(|node| simulator.node(node)).collect();
    take(&mut nodes[2], 5).await;
    drop(nodes.pop());
    for node in &mut nodes {
        assert_eq!(take(node, 60).await.last().unwrap().frame.frame, 59);
    }
    for node in nodes {
        node.close().await;
    }
    let summary = simulator.ended().await;
    let whole = EchoLedger { offered: 60, delivered: 60, dropped: 0, in_flight: 0 };
    assert_eq!(summary.nodes[..2], [whole; 2]);
    let dead = summary.nodes[2];
    assert_eq!((dead.offered, dead.delivered + dead.dropped, dead.in_flight), (60, 60, 0));
    assert!(dead.delivered <= 5 && dead.dropped >= 55, "{dead:?}");
}

#[tokio::test]
async fn it_starts_without_all_nodes_only_when_told_to() {
    let simulator = Running::start(|raw| {
        raw.frames = 5;
        raw.start_after = Duration::from_secs(5);
    })
    .await;
    let mut node = simulator.node(1);
    assert_eq!(take(&mut node, 5).await.len(), 5);
    node.close().await;
    let summary = simulator.ended().await;
    assert_eq!(summary.nodes[1].delivered, 5);
    assert_eq!(summary.nodes[0], EchoLedger { offered: 5, delivered: 0, dropped: 5, in_flight: 0 });

    let waiting = Running::start(|_| {}).await;
    let node = waiting.node(0);
    within("a subscription", node.state().wait_for(|link| *link == SubscriptionState::Subscribed))
        .await
        .unwrap();
    waiting.stop.cancel();
    assert_eq!(waiting.ended().await.frames, 0);
}

/// Hears the truth.
struct Listener(mpsc::UnboundedSender<v1::TruthRecord>);

#[tonic::async_trait]
impl Fusion for Listener {
    type ReportStream = Pin<Box<dyn Stream<Item = Result<v1::Acknowledgement, Status>> + Send>>;
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::Fix, Status>> + Send>>;

    async fn truth(
        &self,
        request: Request<Streaming<v1::TruthRecord>>,
    ) -> Result<Response<v1::TruthSummary>, Status> {
        let (mut records, mut taken) = (request.into_inner(), 0);
        while let Some(record) = records.message().await? {
            let _ = self.0.send(record);
            taken += 1;
        }
        Ok(Response::new(v1::TruthSummary { taken }))
    }

    async fn register(&self, _: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterReply>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn report(
        &self,
        _: Request<Streaming<v1::FrameReport>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}

#[tokio::test]
async fn the_truth_is_told_even_to_a_fusion_center_that_comes_late() {
    // No other test binds or connects from this loopback address, so that the port stays free.
    let address = std::net::TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let simulator = Running::start(|raw| {
        raw.frames = 30;
        raw.fusion = Some(address.to_string());
        raw.scenario.set =
            ["offset_ns=100", "drift_ppb=50", "prior_ns=100"].map(|set| format!("clocks.{set}")).into();
    })
    .await;
    let mut nodes: Vec<EchoSubscriber> = (0..3).map(|node| simulator.node(node)).collect();
    // Ten frames are over before anyone listens.
    take(&mut nodes[0], 10).await;
    let (sender, mut heard) = mpsc::unbounded_channel();
    let listener = TcpListener::bind(address).await.unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(FusionServer::new(Listener(sender)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    let mut scenario = simulator.scenario.clone();
    // At 200 frames a second.
    scenario.clocks.frame_interval_s = 0.005;
    let source = EchoSource::new(&scenario).unwrap();
    for frame in 0..30 {
        let record = within("a record", heard.recv()).await.unwrap();
        let clocks: Vec<f64> = (0..3).map(|l| source.clock_offset_s(l, frame)).collect();
        assert_eq!(record.clock_offset_s, clocks);
        let target = source.target_m(frame);
        assert_eq!((record.frame, record.x_m, record.y_m), (frame, target.x, target.y));
    }
    take(&mut nodes[0], 20).await;
    take(&mut nodes[1], 30).await;
    take(&mut nodes[2], 30).await;
    for node in nodes {
        node.close().await;
    }
    let truth = simulator.ended().await.truth;
    assert_eq!((truth.made, truth.confirmed, truth.lost), (30, 30, 0));
}

#[tokio::test]
async fn the_echoes_and_the_truth_of_several_targets_are_told() {
    let (sender, mut heard) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fusion = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder()
        .add_service(FusionServer::new(Listener(sender)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    let simulator = Running::start(|raw| {
        raw.frames = 6;
        raw.fusion = Some(fusion);
        raw.scenario.set =
            vec!["target=[{motion='walk', until_frame=4}, {motion='walk', from_frame=2}]".into()];
    })
    .await;
    let source = EchoSource::new(&simulator.scenario).unwrap();
    let mut nodes: Vec<EchoSubscriber> = (0..3).map(|node| simulator.node(node)).collect();
    let frames = take(&mut nodes[1], 6).await;
    for (frame, delivery) in (0..).zip(frames) {
        let targets = source.targets(frame);
        assert_eq!(delivery.frame.samples, source.frame_of(1, frame, &targets).as_slice(), "frame {frame}");
        let told = within("a record", heard.recv()).await.unwrap().targets.unwrap().targets;
        let identities: Vec<u64> = told.iter().map(|target| target.identity).collect();
        let expected: &[u64] = [&[0][..], &[0, 1], &[1]][frame as usize / 2];
        assert_eq!(identities, expected, "frame {frame}");
        for (told, target) in told.iter().zip(&targets) {
            let at = told.position.unwrap();
            assert_eq!(
                (at.x_m, at.y_m, told.rcs_m2),
                (target.position_m.x, target.position_m.y, target.rcs_m2)
            );
            assert_eq!(told.gains.len(), if targets.len() > 1 { 18 } else { 0 });
        }
    }
    take(&mut nodes[0], 6).await;
    take(&mut nodes[2], 6).await;
    for node in nodes {
        node.close().await;
    }
    assert_eq!(simulator.ended().await.truth.confirmed, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_target_goes_another_way_when_told_to_and_the_truth_with_it() {
    let (sender, mut heard) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fusion = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder()
        .add_service(FusionServer::new(Listener(sender)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    let simulator = Running::start(|raw| {
        (raw.allow_control, raw.control_listen) = (true, "127.0.0.1:0".parse().ok());
        raw.fusion = Some(fusion);
        raw.settle_timeout = Duration::from_millis(200);
    })
    .await;
    let control = simulator.control.unwrap();
    let source = EchoSource::new(&simulator.scenario).unwrap();
    let centre = simulator.scenario.coverage.centre();
    let mut nodes: Vec<EchoSubscriber> = (0..3).map(|node| simulator.node(node)).collect();
    let mut frames = take(&mut nodes[1], 5).await;
    let (status, said) = ask(control, "PUT", "spiral").await;
    assert_eq!((status, said.contains("there are scenario, random, fixed, line")), (422, true), "{said}");
    let (status, said) = ask(control, "PUT", "fixed").await;
    assert_eq!((status, said.contains(r#""motion":"fixed""#)), (200, true), "{said}");
    assert_eq!(ask(control, "GET", "").await, (200, said));
    frames.extend(take(&mut nodes[1], 60).await);
    let mut turned = None;
    for delivery in frames {
        let frame = delivery.frame.frame;
        let record = within("a record", heard.recv()).await.unwrap();
        let target = source.target_m(frame);
        if (record.x_m, record.y_m) != (target.x, target.y) {
            turned.get_or_insert(frame);
        }
        let target = if turned.is_some() { centre } else { target };
        assert_eq!((record.frame, record.x_m, record.y_m), (frame, target.x, target.y));
        assert_eq!(delivery.frame.samples, source.frame(1, frame, target).as_slice(), "frame {frame}");
    }
    assert!(turned.is_some_and(|frame| frame >= 5), "{turned:?}");
    drop(nodes);
    simulator.stop.cancel();
    simulator.ended().await;
    assert_eq!(Running::start(|_| {}).await.control, None, "off unless allowed");
}
