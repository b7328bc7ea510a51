//! The same blocks give the same fixes: over two runs, over any order of arrival, and from a recording.

mod support;

use std::path::Path;

use hyloc_fusion_center::replay::{Replayed, replay};
use prost::Message;
use proto::v1;
use support::*;

/// Runs ten frames, the nodes' reports in this order; the fix log goes to `log`.
async fn run_frames(order: [usize; 3], log: &Path, record: Option<&Path>) {
    let options = Options {
        fixes: Some(log.to_path_buf()),
        record: record.map(Path::to_path_buf),
        ..Options::default()
    };
    let center = Center::start(options).await;
    let echoes = Echoes::new();
    let mut nodes = nodes(&center).await;
    let (truths, records) = tokio::sync::mpsc::channel(16);
    let mut client = center.client().await;
    let teller = tokio::spawn(async move {
        client.truth(tokio_stream::wrappers::ReceiverStream::new(records)).await.unwrap()
    });
    for frame in 0..10 {
        let truth = echoes.source.target_m(frame);
        truths
            .send(v1::TruthRecord {
                frame,
                x_m: truth.x,
                y_m: truth.y,
                z_m: truth.z,
                run: RUN,
                rcs_m2: 5.0,
                // Numbers that only their shortest decimal digits bring back.
                clock_offset_s: (0..3).map(|l| (1.0 + f64::from(l)) * 1e-9 / 3.0).collect(),
                targets: None,
            })
            .await
            .unwrap();
    }
    drop(truths);
    assert_eq!(within(teller).await.unwrap().into_inner().taken, 10);
    for frame in 0..10 {
        for node in order {
            nodes[node].send(echoes.report(node, frame)).await;
        }
    }
    for _ in 0..10 {
        assert_eq!(nodes[order[2]].acknowledgement().await.unwrap().fused, 3);
    }
    assert_eq!(center.stop().await.figures.judged, 10);
}

#[tokio::test]
async fn two_runs_and_a_replay_give_the_same_fixes() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    run_frames([0, 1, 2], &at("a"), Some(&at("recording"))).await;
    run_frames([2, 0, 1], &at("b"), None).await;
    let expected = fix_lines(&at("a"));
    assert_eq!(expected.len(), 10);
    assert!(expected.iter().all(|line| line.contains(r#""clock_offset_ns":["#)), "{}", expected[0]);
    assert_eq!(fix_lines(&at("b")), expected, "whatever the order of arrival");

    let (recording, log) = (at("recording"), at("c"));
    let again = move || replay(&recording, Some(&log), |_| {}).unwrap();
    let Replayed { figures, broken, .. } = tokio::task::spawn_blocking(again).await.unwrap();
    assert_eq!((figures.fixes, figures.judged, broken.is_none()), (10, 10, true));
    assert_eq!(fix_lines(&at("c")), expected, "from the recording");
    let replayed = std::fs::read_to_string(at("c")).unwrap();
    assert!(replayed.lines().all(|line| line.contains(r#""source":"replayed""#)));

    // No end, and the seventh frame cut.
    let (recording, log) = (at("recording"), at("d"));
    let path = recording.join("blocks.mcap");
    let bytes = std::fs::read(&path).unwrap();
    let seventh = bytes.windows(19).position(|bytes| bytes == br#""frame":6,"reports""#).unwrap();
    std::fs::write(&path, &bytes[..seventh]).unwrap();
    let again = move || replay(&recording, Some(&log), |_| {}).unwrap();
    let Replayed { figures, broken, .. } = tokio::task::spawn_blocking(again).await.unwrap();
    assert!(broken.unwrap().to_string().contains("blocks.mcap"));
    assert_eq!(figures.fixes, 6);
    assert_eq!(fix_lines(&at("d")), expected[..6]);
}

/// A report is its sender's whatever its blocks claim: the first block says that another node sensed it, which is
/// refused, and the replay must refuse it too and take the others as they were taken.
#[tokio::test]
async fn a_replay_knows_who_sent_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let (log, recording) = (directory.path().join("log"), directory.path().join("recording"));
    let options = Options { fixes: Some(log.clone()), record: Some(recording.clone()), ..Options::default() };
    let center = Center::start(options).await;
    let echoes = Echoes::new();
    let mut nodes = nodes(&center).await;
    let mut forged = echoes.report(0, 0);
    forged.blocks[0].l = 1;
    forged.recorded_node = Some(1);
    nodes[0].send(forged).await;
    for (node, connection) in nodes.iter_mut().enumerate().skip(1) {
        connection.send(echoes.report(node, 0)).await;
    }
    let decided = nodes[0].acknowledgement().await.unwrap();
    assert_eq!((decided.fused, decided.dropped), (2, 1));
    assert_eq!(nodes[2].acknowledgement().await.unwrap().fused, 3);
    center.stop().await;

    let replayed = directory.path().join("replayed");
    let again = {
        let replayed = replayed.clone();
        move || replay(&recording, Some(&replayed), |_| {}).unwrap()
    };
    assert_eq!(tokio::task::spawn_blocking(again).await.unwrap().figures.fixes, 1);
    assert_eq!(fix_lines(&replayed), fix_lines(&log));
}

/// A recording as it was written before sites and senders were: the scenario in its place, the sender left to guess.
fn aged(recording: &Path) {
    std::fs::remove_file(recording.join("site.pb")).unwrap();
    // Clocks had no table of their own.
    let now = toml::to_string(&echoes_scenario()).unwrap();
    let clocks = now.find("[clocks]").unwrap();
    let others = clocks + now[clocks..].find("\n\n").unwrap();
    let scenario = [&now[..clocks], &now[others..]].concat();
    let scenario = scenario.replace("[imperfections]\n", "[imperfections]\nclock_offset_s = 0.0\n");
    assert!(scenario.contains("clock_offset_s"), "{scenario}");
    let prior = scenario.find("[prior]").unwrap();
    let after = prior + scenario[prior..].find("\n\n").unwrap();
    std::fs::write(recording.join("scenario.toml"), [&scenario[..prior], &scenario[after..]].concat())
        .unwrap();
    let path = recording.join("blocks.mcap");
    let bytes = std::fs::read(&path).unwrap();
    let mut writer = mcap::Writer::new(std::io::Cursor::new(Vec::new())).unwrap();
    for message in mcap::MessageStream::new(&bytes).unwrap() {
        let mut message = message.unwrap();
        if message.channel.topic == "/reports" {
            let mut report = v1::FrameReport::decode(message.data.as_ref()).unwrap();
            assert!(report.recorded_node.take().is_some());
            message.data = report.encode_to_vec().into();
        }
        writer.write(&message).unwrap();
    }
    writer.finish().unwrap();
    std::fs::write(&path, writer.into_inner().into_inner()).unwrap();
}

#[tokio::test]
async fn an_older_recording_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    run_frames([0, 1, 2], &at("log"), Some(&at("recording"))).await;
    aged(&at("recording"));
    let (recording, log) = (at("recording"), at("replayed"));
    let again = move || replay(&recording, Some(&log), |_| {}).unwrap();
    assert_eq!(tokio::task::spawn_blocking(again).await.unwrap().figures.fixes, 10);
    assert_eq!(fix_lines(&at("replayed")), fix_lines(&at("log")));
}

#[test]
fn what_is_no_recording_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(replay(directory.path(), None, |_| {}).unwrap_err().to_string().contains("site.pb"));
    std::fs::write(directory.path().join("site.pb"), b"not a site").unwrap();
    assert!(replay(directory.path(), None, |_| {}).unwrap_err().to_string().contains("not a site"));
    std::fs::remove_file(directory.path().join("site.pb")).unwrap();
    let scenario = toml::to_string(&model::Scenario::default()).unwrap();
    std::fs::write(directory.path().join("scenario.toml"), scenario).unwrap();
    std::fs::write(directory.path().join("blocks.mcap"), b"not a recording").unwrap();
    assert!(replay(directory.path(), None, |_| {}).unwrap_err().to_string().contains("blocks.mcap"));
}
