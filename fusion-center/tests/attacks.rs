//! Attacks on sessions, frame numbers, accounts and the truth, by clients on the loopback. Bounded in count and time.

mod support;

use std::time::Duration;

use proto::v1;
use proto::v1::fusion_client::FusionClient;
use proto::{SESSION_KEY, v1::TruthRecord};
use support::*;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// Tries to open a stream of reports; returns why it is refused.
async fn refused_stream(client: &mut FusionClient<Channel>, session: &str) -> Option<Status> {
    let mut request = Request::new(tokio_stream::empty());
    request.metadata_mut().insert(SESSION_KEY, session.parse().unwrap());
    client.report(request).await.err()
}

/// Registers as soon as it is possible; returns the session.
async fn register_in_time(center: &Center, application: v1::RegisterRequest) -> v1::RegisterReply {
    let mut client = center.client().await;
    within(async {
        loop {
            match client.register(application.clone()).await {
                Ok(reply) => return reply.into_inner(),
                Err(status) => assert_eq!(status.code(), Code::AlreadyExists, "{status}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

async fn fix_of_all(nodes: &mut [Node], echoes: &Echoes, frame: u64, watch: &mut tonic::Streaming<v1::Fix>) {
    for node in nodes.iter_mut() {
        node.send(echoes.report(node.index, frame)).await;
    }
    let fix = within(watch.message()).await.unwrap().unwrap();
    assert_eq!((fix.frame, fix.run, fix.paths_used), (frame, RUN, 9));
}

#[tokio::test]
async fn sessions_cannot_be_guessed() {
    let center = Center::start(Options::default()).await;
    let nodes = nodes(&center).await;
    let mut client = center.client().await;
    let status = client.status(v1::StatusRequest {}).await.unwrap().into_inner();
    let published = format!("{status:?}");
    for node in &nodes {
        assert!(node.session.len() == 32 && !published.contains(&node.session));
        assert!(!node.session.contains(&status.instance) && !status.instance.contains(&node.session));
    }
    // What was the rule once: instance, index, counter.
    for (index, count) in (0..3).flat_map(|index| (0..10).map(move |count| (index, count))) {
        let guess = format!("{}-{index}-{count}", status.instance);
        assert_eq!(refused_stream(&mut client, &guess).await.unwrap().code(), Code::Unauthenticated);
    }
    for guess in ["", "0", &"0".repeat(32), &status.instance] {
        assert_eq!(refused_stream(&mut client, guess).await.unwrap().code(), Code::Unauthenticated);
    }
    center.stop().await;
}

/// A second stream on a session, stolen or not: it is refused, its end frees nothing, and the first goes on.
#[tokio::test]
async fn a_second_stream_is_refused_and_disturbs_nobody() {
    let center = Center::start(Options::default()).await;
    let echoes = Echoes::new();
    let mut nodes = nodes(&center).await;
    let mut client = center.client().await;
    let mut watch = center.client().await.watch(v1::WatchRequest {}).await.unwrap().into_inner();
    fix_of_all(&mut nodes, &echoes, 0, &mut watch).await;
    for node in &nodes {
        let refusal = refused_stream(&mut client, &node.session).await.unwrap();
        assert_eq!(
            (refusal.code(), refusal.message()),
            (Code::AlreadyExists, "this session has a stream already")
        );
    }
    drop(client);
    let mut thief = center.client().await;
    for index in 0..3 {
        for identity in ["thief", &format!("node-{index}")] {
            let claim =
                v1::RegisterRequest { incarnation: "guess".into(), ..application(identity, Some(index)) };
            let refusal = thief.register(claim).await.unwrap_err();
            assert_eq!(refusal.code(), Code::AlreadyExists, "{refusal}");
        }
    }
    fix_of_all(&mut nodes, &echoes, 1, &mut watch).await;
    let status = thief.status(v1::StatusRequest {}).await.unwrap().into_inner();
    assert!(status.nodes.iter().all(|node| node.connected && node.identity.starts_with("node-")));
    // The session of a node that has gone opens nothing either.
    let session = nodes.pop().unwrap().session;
    within(async {
        while refused_stream(&mut thief, &session).await.unwrap().code() != Code::Unauthenticated {}
    })
    .await;
    assert_eq!(center.stop().await.unaccounted, 0);
}

/// Three registrations without a stream take all indices; they expire, and they hold up no frame of others.
#[tokio::test]
async fn bare_registrations_expire_within_seconds() {
    // Far longer than anything here waits: the frame is not held up by those who only registered.
    let center = Center::start(Options { deadline_ms: Some(600_000), ..Options::default() }).await;
    let echoes = Echoes::new();
    let mut stranger = center.client().await;
    let mut first = Node::join(&center, "node-0", Some(0)).await;
    for index in 1..3 {
        stranger.register(application(&format!("bare-{index}"), Some(index))).await.unwrap();
    }
    let full = stranger.register(application("node-1", None)).await.unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    first.send(echoes.report(0, 0)).await;
    assert_eq!(first.acknowledgement().await.unwrap().fused, 3);
    for index in 1..3 {
        let reply = register_in_time(&center, application(&format!("node-{index}"), Some(index))).await;
        assert_eq!(reply.index, index);
        assert_eq!(refused_stream(&mut stranger, &reply.session).await.map(|status| status.code()), None);
    }
    center.stop().await;
}

/// A node dies between its registration and its stream: its next life has another incarnation and gets the index back.
#[tokio::test]
async fn a_node_that_died_before_its_stream_comes_back() {
    let center = Center::start(Options::default()).await;
    let mut client = center.client().await;
    let first = client.register(application("node-0", Some(0))).await.unwrap().into_inner();
    drop(client);
    let next = v1::RegisterRequest { incarnation: "next life".into(), ..application("node-0", Some(0)) };
    let reply = register_in_time(&center, next).await;
    assert!(reply.index == 0 && reply.session != first.session);
    let node = Node::open(center.client().await, 0, reply.session).await;
    let status = center.client().await.status(v1::StatusRequest {}).await.unwrap().into_inner();
    assert!(status.nodes[0].connected);
    drop(node);
    center.stop().await;
}

/// Strangers that hold two of three indices close the farthest frame of the farthest run, then leave: the honest nodes get
/// fixes again, with data of their own alone.
#[tokio::test]
async fn a_huge_frame_number_with_a_quorum_does_not_outlive_its_senders() {
    for (run, frame) in [(u64::MAX, u64::MAX), (RUN, u64::MAX), (u64::MAX, 0)] {
        let center = Center::start(Options { deadline_ms: Some(100), ..Options::default() }).await;
        let echoes = Echoes::new();
        let mut watch = center.client().await.watch(v1::WatchRequest {}).await.unwrap().into_inner();
        let mut strangers = Vec::new();
        for index in 0..2 {
            strangers.push(Node::join(&center, &format!("stranger-{index}"), Some(index)).await);
        }
        let mut honest = vec![Node::join(&center, "node-2", Some(2)).await];
        for stranger in &mut strangers {
            let report = v1::FrameReport { run, frame, ..echoes.report(stranger.index, 0) };
            stranger.send(report).await;
        }
        assert_eq!(strangers[0].acknowledgement().await.unwrap().fused, 3);
        let poisoned = within(watch.message()).await.unwrap().unwrap();
        assert_eq!((poisoned.run, poisoned.frame), (run, frame));
        drop(strangers);
        for index in 0..2 {
            honest.push(Node::join_in_time(&center, &format!("node-{index}"), Some(index)).await);
        }
        // Frames of the honest nodes until all three are in one fix.
        let mut next = 10;
        within(async {
            loop {
                for node in &mut honest {
                    node.send(echoes.report(node.index, next)).await;
                }
                for node in &mut honest {
                    node.acknowledgement().await.unwrap();
                }
                next += 1;
                if let Ok(fix) = tokio::time::timeout(Duration::from_millis(10), watch.message()).await {
                    let fix = fix.unwrap().unwrap();
                    assert_eq!(fix.run, RUN);
                    if fix.paths_used == 9 {
                        return;
                    }
                }
            }
        })
        .await;
        center.stop().await;
    }
}

/// A simulator that starts again has another random identity, greater or smaller: its first frame is fused.
#[tokio::test]
async fn a_new_run_gives_fixes_at_once_whatever_its_identity() {
    let center = Center::start(Options::default()).await;
    let echoes = Echoes::new();
    let mut nodes = nodes(&center).await;
    let mut watch = center.client().await.watch(v1::WatchRequest {}).await.unwrap().into_inner();
    for run in [1 << 52, 3, 1 << 51] {
        for frame in 0..2 {
            for node in &mut nodes {
                node.send(v1::FrameReport { run, ..echoes.report(node.index, frame) }).await;
            }
            let fix = within(watch.message()).await.unwrap().unwrap();
            assert_eq!((fix.run, fix.frame, fix.paths_used), (run, frame, 9));
        }
    }
    assert_eq!(center.stop().await.figures.fixes, 6);
}

#[tokio::test]
async fn a_count_that_would_wrap_is_refused_by_name() {
    let center = Center::start(Options::default()).await;
    let echoes = Echoes::new();
    let mut nodes = nodes(&center).await;
    for (sent, dropped, name) in [(u64::MAX, 0, "blocks_sent"), (3, u64::MAX - 1, "blocks_dropped")] {
        let report = v1::FrameReport { blocks_sent: sent, blocks_dropped: dropped, ..echoes.report(0, 0) };
        nodes[0].reports.send(report).await.unwrap();
        let told = nodes[0].acknowledgement().await.unwrap();
        assert!(told.dropped == 3 && told.reason.starts_with(name), "{told:?}");
    }
    let status = center.client().await.status(v1::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(
        (status.nodes[0].sent, status.nodes[0].unaccounted),
        (0, -6),
        "two refused reports of 3 paths"
    );
    assert_eq!(center.stop().await.unaccounted, 6);
}

/// A stranger tells another truth of every frame, and of very many: fixes are compared with what the simulator told.
#[tokio::test]
async fn a_flood_of_truth_displaces_nothing() {
    let center = Center::start(Options::default()).await;
    let echoes = Echoes::new();
    let mut nodes = nodes(&center).await;
    let mut watch = center.client().await.watch(v1::WatchRequest {}).await.unwrap().into_inner();
    let record = |frame, x_m| TruthRecord {
        run: RUN,
        frame,
        x_m,
        y_m: 1.0,
        z_m: 0.0,
        rcs_m2: 5.0,
        ..TruthRecord::default()
    };
    let (simulator, told) = tokio::sync::mpsc::channel(64);
    let mut client = center.client().await;
    let telling =
        tokio::spawn(async move { client.truth(tokio_stream::wrappers::ReceiverStream::new(told)).await });
    for frame in 0..5 {
        simulator.send(record(frame, 3.0)).await.unwrap();
    }
    let fix = async |nodes: &mut [Node], watch: &mut tonic::Streaming<v1::Fix>, frame| {
        for node in nodes {
            node.send(echoes.report(node.index, frame)).await;
        }
        within(watch.message()).await.unwrap().unwrap()
    };
    // The simulator's records are there once a fix has its truth.
    let mut frame = 0;
    while fix(&mut nodes, &mut watch, frame).await.truth.is_none() {
        frame += 1;
        simulator.send(record(frame, 3.0)).await.unwrap();
    }
    let flood: Vec<TruthRecord> = (0..20_000).map(|n| record(n, 666.0)).collect();
    let taken = center.client().await.truth(tokio_stream::iter(flood)).await.unwrap().into_inner().taken;
    assert!(taken <= 8192 + 6, "records far from the current frames are refused: {taken}");
    for frame in frame + 1..5 {
        let fix = fix(&mut nodes, &mut watch, frame).await;
        assert_eq!(fix.truth.unwrap().x_m, 3.0, "frame {frame}");
    }
    drop(simulator);
    assert!(within(telling).await.unwrap().unwrap().into_inner().taken >= 5);
    center.stop().await;
}

#[tokio::test]
async fn a_truth_that_cannot_be_is_refused() {
    let center = Center::start(Options::default()).await;
    let good = TruthRecord { run: RUN, x_m: 1.0, rcs_m2: 5.0, ..TruthRecord::default() };
    let clocks = |offsets: &[f64]| TruthRecord { clock_offset_s: offsets.to_vec(), ..good.clone() };
    let refused = [
        (TruthRecord { y_m: f64::NAN, ..good.clone() }, "must be finite"),
        (TruthRecord { rcs_m2: 0.0, ..good.clone() }, "rcs_m2"),
        (clocks(&[1e-9, 2e-9]), "an entry per node"),
        (clocks(&[1e-9; 4]), "an entry per node"),
        (clocks(&[1e-9, f64::NAN, 0.0]), "clock_offset_s of the truth must be finite"),
        (clocks(&[1e-9, 0.0, f64::INFINITY]), "clock_offset_s of the truth must be finite"),
    ];
    let mut client = center.client().await;
    for (record, reason) in refused {
        let refusal = client.truth(tokio_stream::iter([record])).await.unwrap_err();
        assert!(refusal.code() == Code::InvalidArgument && refusal.message().contains(reason), "{refusal}");
    }
    let taken = client.truth(tokio_stream::iter([clocks(&[1e-9, -2e-9, 0.0])])).await.unwrap();
    assert_eq!(taken.into_inner().taken, 1);
    center.stop().await;
}

#[tokio::test]
async fn names_that_look_like_others_are_refused() {
    let center = Center::start(Options::default()).await;
    let mut client = center.client().await;
    for identity in ["node\u{202e}0", "node\u{200b}-0", "\u{feff}node-0", "a\u{2066}b"] {
        let refusal = client.register(application(identity, None)).await.unwrap_err();
        assert!(
            refusal.code() == Code::InvalidArgument && refusal.message().contains("printable"),
            "{identity:?}"
        );
    }
    center.stop().await;
}
