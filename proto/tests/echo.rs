//! The echo transport over real sockets: any start order, restarts, broken and silent connections, refusals.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use hyloc_proto::convert::FrameId;
use hyloc_proto::echo::{
    Delivery, EchoFrame, EchoLedger, EchoPublisher, EchoSubscriber, Offer, Subscription, SubscriptionState,
    Timings,
};
use model::CMatrix;
use num_complex::Complex64;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

const RUN: u64 = 9;
const HASH: [u8; 32] = [3; 32];
const DEADLINE: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("in time: {what}"))
}

fn listener(address: &str) -> TcpListener {
    TcpListener::bind(address).unwrap()
}

async fn publisher(nodes: usize) -> EchoPublisher {
    EchoPublisher::bind(listener("127.0.0.1:0"), RUN, nodes, HASH).await.unwrap()
}

fn subscription(address: SocketAddr, node: u32) -> Subscription {
    let timings = Timings { ping: Duration::from_millis(20), silence: Duration::from_secs(5) };
    Subscription { address: address.to_string(), node, site_sha256: HASH, window: 8, timings }
}

fn encoded(frame: u64, node: u32) -> Bytes {
    let received = CMatrix::from_element(2, 3, Complex64::new(frame as f64, 0.5));
    EchoFrame::new(FrameId { run: RUN, frame }, node, 0, &received).encode().unwrap()
}

async fn next(subscriber: &mut EchoSubscriber) -> Delivery {
    within("a frame", subscriber.next()).await.unwrap().unwrap()
}

/// Offers until the node takes it; frames before that are dropped.
async fn publish_until_sent(publisher: &mut EchoPublisher, node: u32, mut frame: u64) -> u64 {
    within("a subscriber", async {
        while publisher.publish(node as usize, encoded(frame, node)).await != Offer::Sent {
            frame += 1;
            tokio::task::yield_now().await;
        }
        frame
    })
    .await
}

fn balanced(publisher: &EchoPublisher) -> EchoLedger {
    let ledger = publisher.ledgers()[0];
    assert_eq!(ledger.offered, ledger.delivered + ledger.dropped + ledger.in_flight, "{ledger:?}");
    ledger
}

#[tokio::test]
async fn frames_arrive_in_order_and_every_one_is_acknowledged() {
    let mut publisher = publisher(2).await;
    let mut nodes: Vec<EchoSubscriber> =
        (0..2).map(|node| EchoSubscriber::start(subscription(publisher.address(), node))).collect();
    within("subscriptions", publisher.until_all_subscribed()).await;
    for frame in 0..100 {
        for node in 0..2u32 {
            let offer = publisher.publish(node as usize, encoded(frame, node)).await;
            assert_eq!(offer, Offer::Sent);
            let delivery = next(&mut nodes[node as usize]).await;
            assert_eq!((delivery.frame.frame, delivery.frame.node), (frame, node));
            assert!(delivery.received_ns > 0);
        }
    }
    for node in nodes {
        within("goodbye", node.close()).await;
    }
    within("settled", publisher.until_settled()).await;
    let done = EchoLedger { offered: 100, delivered: 100, dropped: 0, in_flight: 0 };
    assert_eq!(publisher.close(), vec![done, done]);
}

#[tokio::test]
async fn a_node_may_start_before_the_simulator() {
    // No other test binds or connects from this loopback address, so that the port stays free.
    let address = listener("127.0.0.2:0").local_addr().unwrap();
    let mut node = EchoSubscriber::start(subscription(address, 0));
    assert_eq!(*node.state().borrow(), SubscriptionState::Connecting);
    let mut publisher = EchoPublisher::bind(listener(&address.to_string()), RUN, 1, HASH).await.unwrap();
    within("a subscription", publisher.until_all_subscribed()).await;
    publisher.publish(0, encoded(0, 0)).await;
    assert_eq!(next(&mut node).await.frame.frame, 0);
}

#[tokio::test]
async fn a_restarted_simulator_gets_its_nodes_back() {
    let mut first = publisher(1).await;
    let address = first.address();
    let mut node = EchoSubscriber::start(subscription(address, 0));
    within("a subscription", first.until_all_subscribed()).await;
    for frame in 0..5 {
        first.publish(0, encoded(frame, 0)).await;
        assert_eq!(next(&mut node).await.frame.frame, frame);
    }
    assert_eq!(first.close().len(), 1);
    // The port is free as soon as the old socket's task has ended.
    let rebound = within("the port", async {
        loop {
            match TcpListener::bind(address) {
                Ok(listener) => return listener,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let mut second = EchoPublisher::bind(rebound, RUN + 1, 1, HASH).await.unwrap();
    within("a subscription", second.until_all_subscribed()).await;
    second.publish(0, encoded(5, 0)).await;
    assert_eq!(next(&mut node).await.frame.frame, 5);
    node.close().await;
    within("settled", second.until_settled()).await;
    assert_eq!(balanced(&second).delivered, 1);
}

#[tokio::test]
async fn a_restarted_node_is_taken_back_and_its_losses_are_counted() {
    let mut publisher = publisher(1).await;
    let node = EchoSubscriber::start(subscription(publisher.address(), 0));
    within("a subscription", publisher.until_all_subscribed()).await;
    for frame in 0..3 {
        publisher.publish(0, encoded(frame, 0)).await;
    }
    drop(node);
    let mut again = EchoSubscriber::start(subscription(publisher.address(), 0));
    let mut link = again.state();
    within("a subscription", link.wait_for(|link| *link == SubscriptionState::Subscribed)).await.unwrap();
    let frame = publish_until_sent(&mut publisher, 0, 3).await;
    assert_eq!(next(&mut again).await.frame.frame, frame);
    again.close().await;
    within("settled", publisher.until_settled()).await;
    let ledger = balanced(&publisher);
    assert_eq!((ledger.delivered, ledger.dropped), (1, ledger.offered - 1));
}

#[tokio::test]
async fn a_stalled_node_costs_a_window_and_the_rest_is_counted() {
    let mut publisher = publisher(1).await;
    let mut node = EchoSubscriber::start(subscription(publisher.address(), 0));
    within("a subscription", publisher.until_all_subscribed()).await;
    for frame in 0..500 {
        publisher.publish(0, encoded(frame, 0)).await;
    }
    assert_eq!(balanced(&publisher), EchoLedger { offered: 500, delivered: 0, dropped: 492, in_flight: 8 });
    for frame in 0..8 {
        assert_eq!(next(&mut node).await.frame.frame, frame);
    }
    node.close().await;
    within("settled", publisher.until_settled()).await;
    assert_eq!(balanced(&publisher).delivered, 8);
}

#[tokio::test]
async fn another_site_an_unknown_index_and_a_taken_index_are_refused_with_the_reason() {
    let publisher = publisher(1).await;
    let _first = EchoSubscriber::start(subscription(publisher.address(), 0));
    within("a subscription", publisher.until_all_subscribed()).await;
    let good = subscription(publisher.address(), 0);
    let cases = [
        (Subscription { site_sha256: [4; 32], ..good.clone() }, "site 04040404"),
        (Subscription { node: 1, ..good.clone() }, "node 1 does not exist"),
        (good, "already"),
    ];
    for (subscription, expected) in cases {
        let unwanted = EchoSubscriber::start(subscription);
        let mut link = unwanted.state();
        let refused =
            within("a refusal", link.wait_for(|link| matches!(link, SubscriptionState::Refused(_))))
                .await
                .unwrap();
        assert!(
            matches!(&*refused, SubscriptionState::Refused(reason) if reason.contains(expected)),
            "{:?}",
            *refused
        );
    }
    assert_eq!(publisher.subscribed(), 1);
}

#[tokio::test]
async fn garbage_is_counted_answered_and_harms_nobody() {
    let mut publisher = publisher(1).await;
    let mut node = EchoSubscriber::start(subscription(publisher.address(), 0));
    within("a subscription", publisher.until_all_subscribed()).await;
    let mut stranger = DealerSocket::new();
    stranger.connect(&format!("tcp://{}", publisher.address())).await.unwrap();
    let mut two_parts = ZmqMessage::from(vec![1u8]);
    two_parts.push_back(Bytes::from_static(b"more"));
    for message in [ZmqMessage::from(vec![0xffu8; 40]), ZmqMessage::from(vec![1u8, 250, 3]), two_parts] {
        stranger.send(message).await.unwrap();
        within("an answer", stranger.recv()).await.unwrap();
    }
    assert_eq!(publisher.refused(), 3);
    // A frame that makes no sense reaches the node as an error, the next one as a frame.
    publisher.publish(0, Bytes::from_static(b"\x01nonsense")).await;
    publisher.publish(0, encoded(1, 0)).await;
    assert!(within("an error", node.next()).await.unwrap().is_err());
    assert_eq!(next(&mut node).await.frame.frame, 1);
    node.close().await;
    assert_eq!(balanced(&publisher).delivered, 2);
}

/// A wire between node and simulator that can be cut, or go dead without a sign.
struct Wire {
    address: SocketAddr,
    state: watch::Sender<WireState>,
}

#[derive(Clone, Copy, PartialEq)]
enum WireState {
    Whole,
    Dead,
    Cut,
}

impl Wire {
    async fn to(upstream: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = watch::Sender::new(WireState::Whole);
        let changes = state.subscribe();
        tokio::spawn(async move {
            while let Ok((node, _)) = listener.accept().await {
                tokio::spawn(Self::carry(node, upstream, changes.clone()));
            }
        });
        Self { address, state }
    }

    async fn carry(mut node: TcpStream, upstream: SocketAddr, mut state: watch::Receiver<WireState>) {
        if state.wait_for(|state| *state == WireState::Whole).await.is_err() {
            return;
        }
        let Ok(mut simulator) = TcpStream::connect(upstream).await else { return };
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut node, &mut simulator) => return,
            _ = state.wait_for(|state| *state != WireState::Whole) => {}
        }
        // Dead: both ends stay open and nothing moves.
        let _ = state.wait_for(|state| *state != WireState::Dead).await;
    }
}

async fn heals(broken: WireState) {
    let mut publisher = publisher(1).await;
    let wire = Wire::to(publisher.address()).await;
    let timings = Timings { ping: Duration::from_millis(20), silence: Duration::from_millis(300) };
    let mut node = EchoSubscriber::start(Subscription { timings, ..subscription(wire.address, 0) });
    let mut link = node.state();
    within("a subscription", publisher.until_all_subscribed()).await;
    for frame in 0..4 {
        publisher.publish(0, encoded(frame, 0)).await;
    }
    // One is done with, one is at work, two wait at the node when the wire breaks.
    assert_eq!(next(&mut node).await.frame.frame, 0);
    assert_eq!(next(&mut node).await.frame.frame, 1);
    within("three frames at the node", async {
        while node.waiting() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    wire.state.send_replace(broken);
    within("the break to be noticed", link.wait_for(|link| *link == SubscriptionState::Connecting))
        .await
        .unwrap();
    wire.state.send_replace(WireState::Whole);
    within("a subscription", link.wait_for(|link| *link == SubscriptionState::Subscribed)).await.unwrap();
    assert_eq!(next(&mut node).await.frame.frame, 2);
    assert_eq!(next(&mut node).await.frame.frame, 3);
    let frame = publish_until_sent(&mut publisher, 0, 4).await;
    assert_eq!(next(&mut node).await.frame.frame, frame);
    node.close().await;
    within("settled", publisher.until_settled()).await;
    let ledger = balanced(&publisher);
    assert_eq!((ledger.delivered, ledger.dropped), (5, ledger.offered - 5), "{ledger:?}");
}

#[tokio::test]
async fn a_cut_wire_heals_without_losing_what_had_arrived() {
    heals(WireState::Cut).await;
}

#[tokio::test]
async fn a_dead_wire_is_noticed_and_heals() {
    heals(WireState::Dead).await;
}
