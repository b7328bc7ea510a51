//! A node that does not take its frames costs a window of them, here and at the simulator. Alone in its
//! process, since it measures memory.

use std::net::TcpListener;

use hyloc_proto::convert::FrameId;
use hyloc_proto::echo::{
    EchoFrame, EchoPublisher, EchoSubscriber, Offer, Publication, Subscription, Timings,
};
use model::CMatrix;

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_stalled_node_holds_its_memory() {
    let (window, sensors, subcarriers) = (64, 10, 625);
    let frame_bytes = EchoFrame::bytes(sensors, subcarriers);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let publication = Publication { run: 1, nodes: 1, site_sha256: [0; 32], sensors, subcarriers };
    let publisher = EchoPublisher::bind(listener, &publication).unwrap();
    let _stalled = EchoSubscriber::start(Subscription {
        address: publisher.address().unwrap().to_string(),
        node: 0,
        site_sha256: [0; 32],
        window,
        sensors,
        subcarriers,
        timings: Timings::default(),
    });
    tokio::time::timeout(std::time::Duration::from_secs(90), publisher.until_all_subscribed()).await.unwrap();
    let before = resident_bytes();
    let received = CMatrix::zeros(sensors, subcarriers);
    // Far more than may be held, and done with long before the publisher disconnects a node that acknowledges nothing.
    for frame in 0..1000 {
        let offer = publisher.publish(0, EchoFrame::new(FrameId { run: 1, frame }, 0, 0, &received));
        assert_eq!(offer, if frame < u64::from(window) { Offer::Sent } else { Offer::NoCredit });
        tokio::task::yield_now().await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for a window of {window} frames of {frame_bytes}");
    let ledger = publisher.ledgers()[0];
    assert_eq!((ledger.offered, ledger.dropped, ledger.in_flight), (1000, 936, 64));
}
