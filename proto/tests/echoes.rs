//! Echo frames by gRPC over real sockets: the simulator's pusher, and pushers that do not behave.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use hyloc_proto::convert::FrameId;
use hyloc_proto::echo::grpc::{max_message_bytes, message_of};
use hyloc_proto::echo::{
    Delivery, EchoFrame, EchoLayout, EchoLedger, EchoPublisher, EchoSubscriber, EchoesEndpoint,
    EchoesService, Offer, Publication, PushTarget, SubscriptionState,
};
use hyloc_proto::v1;
use hyloc_proto::v1::echoes_client::EchoesClient;
use hyloc_proto::v1::push_echoes_reply::Content as Reply;
use hyloc_proto::v1::push_echoes_request::Content;
use model::CMatrix;
use num_complex::Complex64;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use trust::authority::{self, Authority};
use trust::{Acceptor, Identity, Name, Paths, Protocol, Role, secured};

const RUN: u64 = 9;
const HASH: [u8; 32] = [3; 32];
const DEADLINE: Duration = Duration::from_secs(30);
const WINDOW: u32 = 8;

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("in time: {what}"))
}

fn layout(node: u32) -> EchoLayout {
    let (sensors, subcarriers, bandwidth_hz) = (2, 3, 1e8);
    EchoLayout { node, site_sha256: HASH, sensors, subcarriers, bandwidth_hz, window: WINDOW }
}

fn publication(nodes: usize) -> Publication {
    Publication { run: RUN, nodes, site_sha256: HASH, sensors: 2, subcarriers: 3 }
}

fn echo(frame: u64, node: u32) -> EchoFrame {
    let received = CMatrix::from_fn(2, 3, |m, f| Complex64::new(frame as f64 + m as f64 / 3.0, f as f64));
    EchoFrame::new(FrameId { run: RUN, frame }, node, 5, &received)
}

/// A node's port without TLS.
async fn serve() -> (EchoesService, SocketAddr) {
    serve_with(Acceptor::plain()).await
}

async fn serve_with(acceptor: Acceptor) -> (EchoesService, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (service, address) = (EchoesService::default(), listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder()
        .add_service(EchoesEndpoint(service.clone()))
        .serve_with_incoming(secured(TcpListenerStream::new(listener), acceptor));
    tokio::spawn(server);
    (service, address)
}

fn target(address: SocketAddr) -> PushTarget {
    PushTarget { address: address.to_string(), identity: None }
}

async fn next(subscriber: &mut EchoSubscriber) -> Delivery {
    within("a frame", subscriber.next()).await.unwrap().unwrap()
}

fn balanced(publisher: &EchoPublisher) -> EchoLedger {
    let ledger = publisher.ledgers()[0];
    assert_eq!(ledger.offered, ledger.delivered + ledger.dropped + ledger.in_flight, "{ledger:?}");
    ledger
}

#[tokio::test]
async fn frames_arrive_to_the_bit_and_every_one_is_acknowledged() {
    let mut nodes = Vec::new();
    let mut targets = Vec::new();
    for node in 0..2 {
        let (service, address) = serve().await;
        targets.insert(0, target(address));
        nodes.push(service.open(layout(node)));
    }
    let publisher = EchoPublisher::push(targets, &publication(2));
    within("all nodes", publisher.until_all_subscribed()).await;
    for frame in 0..50 {
        for node in 0..2u32 {
            assert_eq!(publisher.publish(node as usize, echo(frame, node)), Offer::Sent);
            assert_eq!(next(&mut nodes[node as usize]).await.frame, echo(frame, node));
        }
    }
    for node in nodes {
        within("the farewell", node.close()).await;
    }
    within("settled", publisher.until_settled()).await;
    let done = EchoLedger { offered: 50, delivered: 50, dropped: 0, in_flight: 0 };
    assert_eq!(publisher.close(), vec![done, done]);
}

#[tokio::test]
async fn a_node_that_is_behind_costs_a_window_and_a_restarted_one_is_found_again() {
    let (service, address) = serve().await;
    let publisher = EchoPublisher::push(vec![target(address)], &publication(1));
    let mut node = service.open(layout(0));
    within("the node", publisher.until_all_subscribed()).await;
    for frame in 0..100 {
        publisher.publish(0, echo(frame, 0));
    }
    assert_eq!(balanced(&publisher), EchoLedger { offered: 100, delivered: 0, dropped: 92, in_flight: 8 });
    for frame in 0..3 {
        assert_eq!(next(&mut node).await.frame.frame, frame);
    }
    // It has processed three; the five that wait are lost with it.
    node.close().await;
    within("settled", publisher.until_settled()).await;
    assert_eq!(balanced(&publisher), EchoLedger { offered: 100, delivered: 3, dropped: 97, in_flight: 0 });
    let mut node = service.open(layout(0));
    within("the node again", publisher.until_all_subscribed()).await;
    publisher.publish(0, echo(200, 0));
    assert_eq!(next(&mut node).await.frame.frame, 200);
    node.close().await;
    within("settled", publisher.until_settled()).await;
    assert_eq!(balanced(&publisher).delivered, 4);
}

#[tokio::test]
async fn a_pusher_that_restarts_gets_its_place_back() {
    let (service, address) = serve().await;
    let mut node = service.open(layout(0));
    for run in [RUN, RUN + 1] {
        let publisher = EchoPublisher::push(vec![target(address)], &Publication { run, ..publication(1) });
        within("the node", publisher.until_all_subscribed()).await;
        publisher.publish(0, echo(run, 0));
        let delivery = next(&mut node).await;
        assert_eq!((delivery.frame.run, delivery.frame.frame), (run, run));
        drop(publisher);
        let mut state = node.state();
        within("the place is free", state.wait_for(|state| *state == SubscriptionState::Connecting))
            .await
            .unwrap();
    }
}

/// A pusher that sends what the test says.
struct Pusher {
    requests: mpsc::Sender<v1::PushEchoesRequest>,
    replies: Streaming<v1::PushEchoesReply>,
}

fn hello() -> v1::PushHello {
    v1::PushHello {
        version: 1,
        name: "test".into(),
        run: RUN,
        node: 0,
        site_sha256: Bytes::copy_from_slice(&HASH),
        sensors: 2,
        subcarriers: 3,
    }
}

async fn client(address: SocketAddr) -> EchoesClient<Channel> {
    EchoesClient::connect(format!("http://{address}")).await.unwrap()
}

impl Pusher {
    async fn start(address: SocketAddr, first: Option<Content>) -> Result<Self, Status> {
        let (requests, receiver) = mpsc::channel(16);
        if let Some(content) = first {
            requests.send(v1::PushEchoesRequest { content: Some(content) }).await.unwrap();
        }
        let replies = within("a reply", client(address).await.push(ReceiverStream::new(receiver))).await?;
        Ok(Self { requests, replies: replies.into_inner() })
    }

    async fn welcomed(address: SocketAddr, hello: v1::PushHello) -> (Self, v1::PushWelcome) {
        let mut pusher = Self::start(address, Some(Content::Hello(hello))).await.unwrap();
        match pusher.reply().await {
            Ok(Some(Reply::Welcome(welcome))) => (pusher, welcome),
            other => panic!("{other:?}"),
        }
    }

    async fn send(&self, frame: v1::EchoFrame) {
        let content = Some(Content::Frame(frame));
        self.requests.send(v1::PushEchoesRequest { content }).await.unwrap();
    }

    async fn reply(&mut self) -> Result<Option<Reply>, Status> {
        Ok(within("a reply", self.replies.message()).await?.and_then(|reply| reply.content))
    }
}

async fn refused(address: SocketAddr, first: Option<Content>) -> (Code, String) {
    let status = Pusher::start(address, first).await.err().expect("a refusal");
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn a_stranger_is_refused_by_name() {
    let (service, address) = serve().await;
    let describe = async || client(address).await.describe(v1::DescribeEchoesRequest {}).await;
    assert_eq!(describe().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(refused(address, Some(Content::Hello(hello()))).await.0, Code::Unavailable);
    let _node = service.open(layout(0));
    let told = describe().await.unwrap().into_inner();
    assert_eq!((told.version, told.node, told.sensors, told.subcarriers, told.credit), (1, 0, 2, 3, WINDOW));
    assert_eq!(told.max_message_bytes, max_message_bytes(2, 3) as u64);
    let cases = [
        (v1::PushHello { version: 2, ..hello() }, "version 2"),
        (v1::PushHello { node: 1, ..hello() }, "for node 1, this is node 0"),
        (v1::PushHello { site_sha256: vec![4; 32].into(), ..hello() }, "site 04040404"),
        (v1::PushHello { site_sha256: Bytes::new(), ..hello() }, "a hash of 0 bytes"),
        (v1::PushHello { sensors: 3, ..hello() }, "frames of 3 x 3, expected 2 sensors x 3 subcarriers"),
        (v1::PushHello { subcarriers: u32::MAX, ..hello() }, "frames of 2 x 4294967295"),
    ];
    for (hello, expected) in cases {
        let (code, reason) = refused(address, Some(Content::Hello(hello))).await;
        assert!(code == Code::FailedPrecondition && reason.contains(expected), "{code:?} {reason}");
    }
    let frame = Content::Frame(message_of(1, &echo(0, 0)));
    assert_eq!(refused(address, Some(frame)).await.0, Code::InvalidArgument);
    // A silent pusher is sent away, and has kept nobody out.
    let (silent, (pusher, _)) = tokio::join!(refused(address, None), Pusher::welcomed(address, hello()));
    assert_eq!(silent, (Code::DeadlineExceeded, "no hello within 2 s".into()));
    drop(pusher);
}

#[tokio::test]
async fn one_pusher_at_a_time_and_a_dead_one_frees_its_place() {
    let (service, address) = serve().await;
    let node = service.open(layout(0));
    let (first, welcome) = Pusher::welcomed(address, hello()).await;
    assert_eq!((welcome.credit, welcome.received, welcome.processed), (WINDOW, 0, 0));
    let second = v1::PushHello { run: RUN + 1, ..hello() };
    let (code, reason) = refused(address, Some(Content::Hello(second.clone()))).await;
    assert_eq!((code, reason.as_str()), (Code::AlreadyExists, "node 0 takes echoes from 'test' already"));
    let mut state = node.state();
    drop(first);
    within("the place is free", state.wait_for(|state| *state == SubscriptionState::Connecting))
        .await
        .unwrap();
    let (mut old, _) = Pusher::welcomed(address, second.clone()).await;
    // A new call of the same run replaces the one before it.
    let (_new, _) = Pusher::welcomed(address, second).await;
    assert_eq!(old.reply().await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn malformed_frames_are_refused_and_the_call_goes_on() {
    let (service, address) = serve().await;
    let mut node = service.open(layout(0));
    let (mut pusher, _) = Pusher::welcomed(address, hello()).await;
    let good = |sequence| message_of(sequence, &echo(sequence, 0));
    let short = v1::EchoFrame { samples: Bytes::from_static(&[0; 95]), ..good(1) };
    let unknown = v1::EchoFrame { format: 7, ..good(2) };
    let infinite: Vec<u8> = f64::INFINITY.to_le_bytes().repeat(12);
    let infinite = v1::EchoFrame { samples: infinite.into(), ..good(3) };
    for (frame, expected) in [
        (short, "the samples of frame 1 have 95 bytes, expected 96"),
        (unknown, "the samples of frame 2 have no known format"),
        (infinite, "frame 3 contains a sample that is not finite"),
    ] {
        let sequence = frame.sequence;
        pusher.send(frame).await;
        let refusal = loop {
            match pusher.reply().await {
                Ok(Some(Reply::Refusal(refusal))) => break refusal,
                Ok(Some(Reply::Acknowledgement(_))) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((refusal.sequence, refusal.reason.as_str()), (sequence, expected));
        assert_eq!(within("an error", node.next()).await.unwrap().unwrap_err().to_string(), expected);
    }
    // What is in order goes on; after the last frame the node ends the call itself.
    pusher.send(good(4)).await;
    let Pusher { requests, mut replies } = pusher;
    drop(requests);
    assert_eq!(next(&mut node).await.frame, echo(4, 0));
    let last = tokio::spawn(async move {
        let _ = node.next().await;
        node
    });
    let mut processed = 0;
    while let Some(reply) = within("an acknowledgement", replies.message()).await.unwrap() {
        if let Some(Reply::Acknowledgement(acknowledgement)) = reply.content {
            processed = acknowledgement.processed;
        }
    }
    assert_eq!(processed, 4);
    last.abort();
}

#[tokio::test]
async fn a_message_that_is_too_long_or_out_of_order_ends_its_call_alone() {
    let (service, address) = serve().await;
    let _node = service.open(layout(0));
    let long = v1::EchoFrame { samples: vec![0; 4096].into(), ..message_of(1, &echo(1, 0)) };
    let late = message_of(2, &echo(1, 0));
    for (frame, code, expected) in [
        (long, Code::OutOfRange, "too large"),
        (late, Code::InvalidArgument, "sequence number 2, expected 1"),
    ] {
        let (mut pusher, _) = Pusher::welcomed(address, hello()).await;
        pusher.send(frame).await;
        let status = pusher.reply().await.unwrap_err();
        assert!(status.code() == code && status.message().contains(expected), "{status:?}");
    }
    Pusher::welcomed(address, hello()).await;
}

#[tokio::test]
async fn with_tls_only_a_simulator_pushes_and_only_into_the_node_that_it_believes() {
    let directory = tempfile::tempdir().unwrap();
    let now = std::time::SystemTime::now();
    let pair = authority::make("lab", now, 30).unwrap();
    let authority = Authority::from_pem(&pair.certificate, &pair.key).unwrap();
    let identity = |role: Role| {
        let issued = authority.issue(&Name::new("lab", role).unwrap(), &[], now, 10).unwrap();
        let file =
            |kind: &str| directory.path().join(format!("{}.{kind}", role.to_string().replace('/', "-")));
        let paths = Paths { ca: directory.path().join("ca.pem"), cert: file("pem"), key: file("key") };
        std::fs::write(&paths.ca, &pair.certificate).unwrap();
        std::fs::write(&paths.cert, issued.certificate).unwrap();
        std::fs::write(&paths.key, issued.key).unwrap();
        Identity::load(paths).unwrap()
    };
    let (service, address) = serve_with(identity(Role::Node(0)).acceptor(Protocol::Grpc)).await;
    let mut node = service.open(layout(0));
    for role in [Role::Watcher, Role::Operator, Role::Node(0)] {
        let tls = identity(role).client(Some(Role::Node(0)));
        let channel = hyloc_proto::channel::connect(&address.to_string(), Some(&tls)).await.unwrap();
        let mut client = EchoesClient::new(channel);
        let refused = client.describe(v1::DescribeEchoesRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{role}");
        let hello = v1::PushEchoesRequest { content: Some(Content::Hello(hello())) };
        let refused = client.push(tokio_stream::once(hello)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{role}");
    }
    let target = |address: SocketAddr| PushTarget {
        address: address.to_string(),
        identity: Some(identity(Role::Simulator)),
    };
    let publisher = EchoPublisher::push(vec![target(address)], &publication(1));
    within("the node", publisher.until_all_subscribed()).await;
    assert_eq!(publisher.publish(0, echo(1, 0)), Offer::Sent);
    assert_eq!(next(&mut node).await.frame, echo(1, 0));

    // A node that says that it is node 0 and proves node 1 gets nothing.
    let (service, address) = serve_with(identity(Role::Node(1)).acceptor(Protocol::Grpc)).await;
    let impostor = service.open(layout(0));
    let publisher = EchoPublisher::push(vec![target(address)], &publication(1));
    let subscribed = timeout(Duration::from_secs(2), publisher.until_all_subscribed()).await;
    assert!(subscribed.is_err() && *impostor.state().borrow() == SubscriptionState::Connecting);
}
