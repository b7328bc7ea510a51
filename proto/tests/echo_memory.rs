//! A node that does not take its frames costs a window of them, here and at the simulator. Alone in its
//! process, since it measures memory.

use std::net::TcpListener;

use bytes::Bytes;
use hyloc_proto::echo::{EchoPublisher, EchoSubscriber, Offer, Subscription, Timings};

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_stalled_node_holds_its_memory() {
    let (window, frame_bytes) = (64, 100_000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut publisher = EchoPublisher::bind(listener, 1, 1, [0; 32]).await.unwrap();
    let _stalled = EchoSubscriber::start(Subscription {
        address: publisher.address().to_string(),
        node: 0,
        site_sha256: [0; 32],
        window,
        timings: Timings::default(),
    });
    tokio::time::timeout(std::time::Duration::from_secs(20), publisher.until_all_subscribed()).await.unwrap();
    let before = resident_bytes();
    for frame in 0..10_000 {
        let offer = publisher.publish(0, Bytes::from(vec![0u8; frame_bytes])).await;
        assert_eq!(offer, if frame < u64::from(window) { Offer::Sent } else { Offer::NoCredit });
        tokio::task::yield_now().await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for a window of {window} frames of {frame_bytes}");
    let ledger = publisher.ledgers()[0];
    assert_eq!((ledger.offered, ledger.dropped, ledger.in_flight), (10_000, 9_936, 64));
}
