//! A node between a fusion center and a simulator that do as the test says.

mod support;

use std::time::Duration;

use hyloc_irs_node::NodeError;
use hyloc_irs_node::outbox::Totals;
use proto::v1::{Payload, Precision};
use support::{Echoes, Node, RUN, StubFusion, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Status;

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn every_frame_is_reported_and_a_stopped_node_waits_for_the_decisions() {
    let (mut fusion, mut echoes) = (StubFusion::start(64).await, Echoes::start().await);
    let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), |_| {}).await;
    let http = node.started.http.unwrap();
    let registration = fusion.registration().await;
    assert_eq!((registration.identity.as_str(), registration.index), ("under test", None));
    assert!(!registration.incarnation.is_empty());
    echoes.until_subscribed().await;
    let mut reports = Vec::new();
    for frame in 0..10 {
        echoes.send(1, frame).await;
        let report = fusion.report().await;
        assert_eq!((report.run, report.frame, report.blocks.len(), report.resent), (RUN, frame, 3, false));
        assert!(report.blocks.iter().all(|block| block.l == 1));
        assert_eq!((report.blocks_sent, report.blocks_dropped), (3 * (frame + 1), 0));
        let times = report.times.unwrap();
        assert_eq!(times.intended_ns, 5);
        assert!(times.received_ns <= times.filtered_ns && times.filtered_ns <= times.sent_ns);
        reports.push(report);
    }
    assert!(get(http, "/health").await.starts_with("HTTP/1.1 200"));
    assert!(get(http, "/metrics").await.contains("hyloc_node_blocks_total{fate=\"sent\"} 30\n"));
    // Told to stop, it says goodbye to the simulator, but stays until every block is decided.
    node.stop.cancel();
    within("goodbye", echoes.publisher.until_settled()).await;
    assert_eq!(echoes.publisher.ledgers()[1].delivered, 10);
    for report in reports.iter().rev() {
        fusion.fuse(report);
    }
    let summary = node.stop().await;
    assert_eq!(summary.index, Some(1));
    assert_eq!(summary.totals, Totals { sent: 30, fused: 30, ..Totals::default() });
}

/// A node sends what the fusion center asks for, part by part, unless its own settings say otherwise.
#[tokio::test]
async fn a_node_sends_what_is_asked_for_unless_it_was_told_otherwise() {
    type Case = (fn(&mut hyloc_irs_node::NodeOptions), Payload, Precision);
    let cases: [Case; 3] = [
        (|_| {}, Payload::Spectrum, Precision::Q4),
        (|raw| raw.payload = Some(estimation::fusion::PayloadKind::Block), Payload::Block, Precision::Q4),
        (|raw| raw.precision = Some(proto::samples::Precision::F64), Payload::Spectrum, Precision::F64),
    ];
    for (change, payload, precision) in cases {
        let (mut fusion, mut echoes) = (StubFusion::start(64).await, Echoes::start().await);
        let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), change).await;
        echoes.until_subscribed().await;
        echoes.send(1, 0).await;
        let report = fusion.report().await;
        let sent = |block: &proto::v1::Block| (block.payload(), block.precision());
        assert!(report.blocks.iter().all(|block| sent(block) == (payload, precision)), "{payload:?}");
        fusion.fuse(&report);
        node.stop().await;
    }
}

#[tokio::test]
async fn a_broken_connection_sends_the_undecided_again() {
    let (mut fusion, mut echoes) = (StubFusion::start(64).await, Echoes::start().await);
    let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), |_| {}).await;
    echoes.until_subscribed().await;
    for frame in 0..4 {
        echoes.send(1, frame).await;
    }
    let reports = fusion.reports(4).await;
    let first_registration = fusion.registration().await;
    let mut fusion = fusion.restart("first").await;
    let again = fusion.reports(4).await;
    for (before, after) in reports.iter().zip(&again) {
        assert_eq!((before.frame, before.blocks_sent), (after.frame, after.blocks_sent));
        assert_eq!((before.resent, after.resent), (false, true));
        assert_eq!(before.blocks, after.blocks);
        fusion.fuse(after);
    }
    let registration = fusion.registration().await;
    assert_eq!(registration.index, Some(1));
    assert_eq!(registration.incarnation, first_registration.incarnation);
    assert_eq!(node.stop().await.totals, Totals { sent: 12, fused: 12, ..Totals::default() });
}

#[tokio::test]
async fn another_instance_of_the_fusion_center_counts_anew() {
    let (mut fusion, mut echoes) = (StubFusion::start(64).await, Echoes::start().await);
    let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), |_| {}).await;
    echoes.until_subscribed().await;
    for frame in 0..2 {
        echoes.send(1, frame).await;
    }
    fusion.reports(2).await;
    let mut fusion = fusion.restart("second").await;
    // Frames go on coming in while the fusion center is away.
    echoes.send(1, 2).await;
    let again = fusion.reports(3).await;
    let seen: Vec<_> = again.iter().map(|r| (r.frame, r.blocks_sent, r.resent)).collect();
    assert_eq!(seen, [(0, 3, false), (1, 6, false), (2, 9, false)]);
    for report in &again {
        fusion.fuse(report);
    }
    assert_eq!(node.stop().await.totals, Totals { sent: 9, fused: 9, ..Totals::default() });
}

#[tokio::test]
async fn without_credit_the_oldest_waiting_reports_are_dropped_and_counted() {
    let (mut fusion, mut echoes) = (StubFusion::start(2).await, Echoes::start().await);
    let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), |raw| {
        raw.queue = 3;
        raw.drain_timeout = Duration::ZERO;
    })
    .await;
    echoes.until_subscribed().await;
    for frame in 0..10 {
        echoes.send(1, frame).await;
    }
    let under_way = fusion.reports(2).await;
    within("all frames to be filtered", echoes.publisher.until_settled()).await;
    // Two of ten are under way, three wait, five were dropped; a decision lets the oldest waiting go.
    fusion.fuse(&under_way[1]);
    let next = fusion.report().await;
    assert_eq!((next.frame, next.blocks_sent, next.blocks_dropped), (7, 9, 15));
    assert!(fusion.nothing_came());
    let totals = node.stop().await.totals;
    assert_eq!(totals, Totals { sent: 9, fused: 3, in_flight: 6, dropped_at_node: 21, ..Totals::default() });
}

#[tokio::test]
async fn frames_are_averaged_in_groups_named_by_their_first() {
    let (mut fusion, mut echoes) = (StubFusion::start(64).await, Echoes::start().await);
    let node =
        Node::start(fusion.address, echoes.publisher.address().unwrap(), |raw| raw.frames_per_fix = 2).await;
    echoes.until_subscribed().await;
    // Frames 2 and 5 are missing; the last group is reported when the node stops.
    for frame in [0, 1, 3, 4, 6] {
        echoes.send(1, frame).await;
    }
    let reports = fusion.reports(3).await;
    assert_eq!(reports.iter().map(|report| report.frame).collect::<Vec<_>>(), [0, 2, 4]);
    // The noise of two averaged frames has half the power.
    let ratio = reports[0].noise_power_w / reports[1].noise_power_w;
    assert!((0.4..0.6).contains(&ratio), "{ratio}");
    within("the last frame to be taken", async {
        while echoes.publisher.ledgers()[1].in_flight > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    node.stop.cancel();
    let last = fusion.report().await;
    assert_eq!((last.frame, last.blocks_sent), (6, 12));
    for report in reports.iter().chain([&last]) {
        fusion.fuse(report);
    }
    assert_eq!(node.stop().await.totals.fused, 12);
}

#[tokio::test]
async fn a_refusal_for_good_ends_the_node_with_the_reason() {
    let (mut fusion, echoes) = (StubFusion::start(64).await, Echoes::start().await);
    *fusion.refuse.lock().unwrap() = Some(Status::failed_precondition("scenario aaaa, expected bbbb"));
    let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), |raw| {
        raw.scenario.set = vec!["base_station.power_dbm=40".into()];
    })
    .await;
    assert!(!fusion.registration().await.site_sha256.is_empty());
    let error = node.ended().await.unwrap_err();
    assert!(matches!(&error, NodeError::Refused(reason) if reason.contains("expected bbbb")), "{error}");
    // A fusion center that forgets to refuse: the node does not work with another site all the same.
    *fusion.refuse.lock().unwrap() = None;
    let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), |raw| {
        raw.scenario.power_dbm = Some(41.0)
    })
    .await;
    assert!(matches!(node.ended().await, Err(NodeError::Refused(_))));
}

#[tokio::test]
async fn a_taken_index_is_asked_for_again_until_it_is_free_or_time_is_up() {
    let (mut fusion, echoes) = (StubFusion::start(64).await, Echoes::start().await);
    *fusion.refuse.lock().unwrap() = Some(Status::already_exists("index 2 is taken"));
    let claim = |raw: &mut hyloc_irs_node::NodeOptions| raw.index = Some(2);
    let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), claim).await;
    for _ in 0..2 {
        assert_eq!(fusion.registration().await.index, Some(2));
    }
    *fusion.refuse.lock().unwrap() = None;
    echoes.until_subscribed().await;
    assert_eq!(node.stop().await.index, Some(2));

    *fusion.refuse.lock().unwrap() = Some(Status::already_exists("index 2 is taken"));
    let node = Node::start(fusion.address, echoes.publisher.address().unwrap(), |raw| {
        raw.index = Some(2);
        raw.claim_timeout = Some(Duration::from_millis(100));
    })
    .await;
    let error = node.ended().await.unwrap_err();
    assert!(matches!(&error, NodeError::Refused(reason) if reason.contains("taken")), "{error}");
}

#[tokio::test]
async fn a_node_alone_waits_and_stops_when_told() {
    let nobody = "127.0.0.1:1".parse().unwrap();
    let node = Node::start(nobody, nobody, |_| {}).await;
    let health = get(node.started.http.unwrap(), "/health").await;
    assert!(health.starts_with("HTTP/1.1 503"), "{health}");
    let summary = node.stop().await;
    assert_eq!((summary.index, summary.totals), (None, Totals::default()));
}
