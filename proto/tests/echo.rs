//! The echo transport over real sockets: any start order, restarts, broken and silent connections, refusals.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use hyloc_proto::convert::FrameId;
use hyloc_proto::echo::{
    Delivery, EchoFrame, EchoLedger, EchoPublisher, EchoSubscriber, Offer, Publication, Subscription,
    SubscriptionState, Timings,
};
use model::CMatrix;
use num_complex::Complex64;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

const RUN: u64 = 9;
const HASH: [u8; 32] = [3; 32];
const DEADLINE: Duration = Duration::from_secs(90);
/// Longer than a stall of a busy machine: a connection without a message for this long is rebuilt.
const SILENCE: Duration = Duration::from_secs(10);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("in time: {what}"))
}

fn listener(address: &str) -> TcpListener {
    TcpListener::bind(address).unwrap()
}

fn publication(run: u64, nodes: usize) -> Publication {
    Publication { run, nodes, site_sha256: HASH, sensors: 2, subcarriers: 3 }
}

async fn publisher(nodes: usize) -> EchoPublisher {
    EchoPublisher::bind(listener("127.0.0.1:0"), &publication(RUN, nodes)).unwrap()
}

fn subscription(address: SocketAddr, node: u32) -> Subscription {
    let timings = Timings { ping: Duration::from_millis(20), silence: SILENCE };
    let address = address.to_string();
    Subscription { address, node, site_sha256: HASH, window: 8, sensors: 2, subcarriers: 3, timings }
}

fn echo(frame: u64, node: u32) -> EchoFrame {
    let received = CMatrix::from_element(2, 3, Complex64::new(frame as f64, 0.5));
    EchoFrame::new(FrameId { run: RUN, frame }, node, 0, &received)
}

async fn next(subscriber: &mut EchoSubscriber) -> Delivery {
    within("a frame", subscriber.next()).await.unwrap().unwrap()
}

/// Offers until the node takes it; frames before that are dropped.
async fn publish_until_sent(publisher: &EchoPublisher, node: u32, mut frame: u64) -> u64 {
    within("a subscriber", async {
        while publisher.publish(node as usize, echo(frame, node)) != Offer::Sent {
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
    let publisher = publisher(2).await;
    let mut nodes: Vec<EchoSubscriber> =
        (0..2).map(|node| EchoSubscriber::start(subscription(publisher.address().unwrap(), node))).collect();
    within("subscriptions", publisher.until_all_subscribed()).await;
    for frame in 0..100 {
        for node in 0..2u32 {
            let offer = publisher.publish(node as usize, echo(frame, node));
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
    let publisher = EchoPublisher::bind(listener(&address.to_string()), &publication(RUN, 1)).unwrap();
    within("a subscription", publisher.until_all_subscribed()).await;
    publisher.publish(0, echo(0, 0));
    assert_eq!(next(&mut node).await.frame.frame, 0);
}

#[tokio::test]
async fn a_restarted_simulator_gets_its_nodes_back() {
    let first = publisher(1).await;
    let address = first.address().unwrap();
    let mut node = EchoSubscriber::start(subscription(address, 0));
    within("a subscription", first.until_all_subscribed()).await;
    for frame in 0..5 {
        first.publish(0, echo(frame, 0));
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
    let second = EchoPublisher::bind(rebound, &publication(RUN + 1, 1)).unwrap();
    within("a subscription", second.until_all_subscribed()).await;
    second.publish(0, echo(5, 0));
    assert_eq!(next(&mut node).await.frame.frame, 5);
    node.close().await;
    within("settled", second.until_settled()).await;
    assert_eq!(balanced(&second).delivered, 1);
}

#[tokio::test]
async fn a_restarted_node_is_taken_back_and_its_losses_are_counted() {
    let publisher = publisher(1).await;
    let node = EchoSubscriber::start(subscription(publisher.address().unwrap(), 0));
    within("a subscription", publisher.until_all_subscribed()).await;
    for frame in 0..3 {
        publisher.publish(0, echo(frame, 0));
    }
    drop(node);
    let mut again = EchoSubscriber::start(subscription(publisher.address().unwrap(), 0));
    let mut link = again.state();
    within("a subscription", link.wait_for(|link| *link == SubscriptionState::Subscribed)).await.unwrap();
    let frame = publish_until_sent(&publisher, 0, 3).await;
    assert_eq!(next(&mut again).await.frame.frame, frame);
    again.close().await;
    within("settled", publisher.until_settled()).await;
    let ledger = balanced(&publisher);
    assert_eq!((ledger.delivered, ledger.dropped), (1, ledger.offered - 1));
}

#[tokio::test]
async fn a_stalled_node_costs_a_window_and_the_rest_is_counted() {
    let publisher = publisher(1).await;
    let mut node = EchoSubscriber::start(subscription(publisher.address().unwrap(), 0));
    within("a subscription", publisher.until_all_subscribed()).await;
    for frame in 0..500 {
        publisher.publish(0, echo(frame, 0));
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
    let _first = EchoSubscriber::start(subscription(publisher.address().unwrap(), 0));
    within("a subscription", publisher.until_all_subscribed()).await;
    let good = subscription(publisher.address().unwrap(), 0);
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
    let publisher = publisher(1).await;
    let mut node = EchoSubscriber::start(subscription(publisher.address().unwrap(), 0));
    within("a subscription", publisher.until_all_subscribed()).await;
    let mut two_parts = ZmqMessage::from(vec![1u8]);
    two_parts.push_back(Bytes::from_static(b"more"));
    for message in [ZmqMessage::from(vec![0xffu8; 40]), ZmqMessage::from(vec![1u8, 250, 3]), two_parts] {
        // The crate's socket, without a guard: the endpoint speaks its protocol.
        let mut stranger = DealerSocket::new();
        stranger.connect(&format!("tcp://{}", publisher.address().unwrap())).await.unwrap();
        stranger.send(message).await.unwrap();
        within("an answer", stranger.recv()).await.unwrap();
    }
    assert_eq!((publisher.refused(), publisher.evicted()), (3, 0));
    publisher.publish(0, echo(1, 0));
    assert_eq!(next(&mut node).await.frame.frame, 1);
    node.close().await;
    assert_eq!(balanced(&publisher).delivered, 1);
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
    let publisher = publisher(1).await;
    let wire = Wire::to(publisher.address().unwrap()).await;
    // Only a dead wire is noticed by its silence, which is longer than a stall of the machine and shorter than the time
    // after which the publisher disconnects a node that acknowledges nothing.
    let silence = if broken == WireState::Dead { Duration::from_secs(3) } else { SILENCE };
    let timings = Timings { ping: Duration::from_millis(20), silence };
    let mut node = EchoSubscriber::start(Subscription { timings, ..subscription(wire.address, 0) });
    let mut link = node.state();
    within("a subscription", publisher.until_all_subscribed()).await;
    for frame in 0..4 {
        publisher.publish(0, echo(frame, 0));
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
    let frame = publish_until_sent(&publisher, 0, 4).await;
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

/// A subscription to node `node` by the process `instance`, as bytes: version, kind, node, instance, hash, window, no resume.
fn hello_bytes(node: u8, instance: u8) -> Vec<u8> {
    let mut bytes = vec![1, 0, node, instance];
    bytes.extend(HASH);
    bytes.extend([8, 0]);
    bytes
}

#[tokio::test]
async fn a_squatter_holds_one_seat_and_not_for_long() {
    let publisher = publisher(3).await;
    let mut squatter = DealerSocket::new();
    squatter.connect(&format!("tcp://{}", publisher.address().unwrap())).await.unwrap();
    for (node, instance) in [(0, 1), (1, 2), (2, 3), (0, 4)] {
        squatter.send(ZmqMessage::from(hello_bytes(node, instance))).await.unwrap();
        within("a welcome", squatter.recv()).await.unwrap();
        assert_eq!(publisher.subscribed(), 1, "one seat for a connection");
    }
    // It is silent from now on: the node gets its seat.
    let mut nodes: Vec<EchoSubscriber> =
        (0..3).map(|node| EchoSubscriber::start(subscription(publisher.address().unwrap(), node))).collect();
    for node in 0..3u32 {
        let mut state = nodes[node as usize].state();
        within("a seat", state.wait_for(|state| *state == SubscriptionState::Subscribed)).await.unwrap();
        assert_eq!(publisher.publish(node as usize, echo(0, node)), Offer::Sent);
        assert_eq!(next(&mut nodes[node as usize]).await.frame.node, node);
    }
    assert_eq!(publisher.subscribed(), 3);
}

#[tokio::test]
async fn a_subscriber_that_acknowledges_nothing_is_evicted() {
    let publisher = publisher(1).await;
    let mut squatter = DealerSocket::new();
    squatter.connect(&format!("tcp://{}", publisher.address().unwrap())).await.unwrap();
    squatter.send(ZmqMessage::from(hello_bytes(0, 1))).await.unwrap();
    within("a welcome", squatter.recv()).await.unwrap();
    publisher.publish(0, echo(0, 0));
    let mut pings = tokio::time::interval(Duration::from_millis(200));
    within("the eviction", async {
        while publisher.subscribed() == 1 {
            pings.tick().await;
            let _ = squatter.send(ZmqMessage::from(vec![1u8, 2])).await;
        }
    })
    .await;
    assert_eq!(publisher.evicted(), 1);
    let _node = EchoSubscriber::start(subscription(publisher.address().unwrap(), 0));
    within("the node", publisher.until_all_subscribed()).await;
    assert_eq!(balanced(&publisher), EchoLedger { offered: 1, delivered: 0, dropped: 1, in_flight: 0 });
}
