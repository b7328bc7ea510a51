//! The same blocks give the same fixes: over two runs, over any order of arrival, and from a recording.

mod support;

use std::path::Path;

use hyloc_fusion_center::fix::FixRecord;
use hyloc_fusion_center::recorded::{RecordedEntry, Recording};
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
    let Replayed { figures, broken, equal, different, .. } =
        tokio::task::spawn_blocking(again).await.unwrap();
    assert_eq!((figures.fixes, figures.judged, broken.is_none()), (10, 10, true));
    assert_eq!((equal, different), (10, vec![]), "as the recording says");
    assert_eq!(fix_lines(&at("c")), expected, "from the recording");
    let replayed = std::fs::read_to_string(at("c")).unwrap();
    assert!(replayed.lines().all(|line| line.contains(r#""source":"replayed""#)));

    // No end, and the seventh frame cut.
    let (recording, log) = (at("recording"), at("d"));
    let path = recording.join("blocks.mcap");
    let bytes = std::fs::read(&path).unwrap();
    let seventh = place_of_frame(&bytes, 6);
    std::fs::write(&path, &bytes[..seventh]).unwrap();
    let again = move || replay(&recording, Some(&log), |_| {}).unwrap();
    let Replayed { figures, broken, .. } = tokio::task::spawn_blocking(again).await.unwrap();
    assert!(broken.unwrap().to_string().contains("blocks.mcap"));
    assert_eq!(figures.fixes, 6);
    assert_eq!(fix_lines(&at("d")), expected[..6]);
}

/// Every channel has a schema, and the public reader returns what was recorded.
#[tokio::test]
async fn a_recording_is_read_entry_by_entry() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    run_frames([0, 1, 2], &at("log"), Some(&at("recording"))).await;
    let log = std::fs::read_to_string(at("log")).unwrap();
    let logged: Vec<FixRecord> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();

    let recording = Recording::open(&at("recording")).unwrap();
    assert_eq!((recording.system().irs_count(), recording.damage()), (3, &[][..]));
    let (mut reports, mut frames, mut truths, mut fixes) = (Vec::new(), 0, 0, Vec::new());
    for entry in recording.entries().unwrap() {
        let (time_ns, entry) = entry.unwrap();
        assert!(time_ns > 0);
        match entry {
            RecordedEntry::Report(report) => {
                assert_eq!((report.sequence as usize, report.report.paths.len()), (reports.len(), 3));
                reports.push((report.report.frame.frame, report.node));
            }
            RecordedEntry::Frame(frame) => {
                assert_eq!(frame.frame, frames);
                let mut of_frame: Vec<_> = frame.reports.iter().map(|i| reports[*i as usize]).collect();
                of_frame.sort();
                assert_eq!(of_frame, [0, 1, 2].map(|node| (frames, node)));
                frames += 1;
            }
            RecordedEntry::Truth(frame, told) => {
                assert_eq!(
                    Some(told.targets[0].position_m),
                    logged[frame.frame as usize].truth.as_ref().unwrap().position_m
                );
                truths += 1;
            }
            RecordedEntry::Fix(fix) => fixes.push(*fix),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((reports.len(), truths, frames), (30, 10, 10));
    assert_eq!(fixes.len(), 10);
    for (fix, logged) in fixes.iter().zip(&logged) {
        let position = fix.position.unwrap();
        assert_eq!(logged.position_m.unwrap().to_vec(), [position.x_m, position.y_m]);
        assert_eq!(logged.covariance_m2.as_ref(), Some(&fix.covariance_m2));
        assert_eq!(
            (fix.time_ns, fix.bound_rms_m),
            (logged.timing.time_ns, logged.truth.as_ref().unwrap().bound_rms_m)
        );
    }

    let bytes = std::fs::read(at("recording").join("blocks.mcap")).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    let mut channels: Vec<_> = summary.channels.values().collect();
    channels.sort_by_key(|channel| channel.id);
    let schemas = channels.iter().map(|channel| {
        assert_eq!(channel.message_encoding, "protobuf");
        let schema = channel.schema.as_ref().unwrap();
        assert!(schema.encoding == "protobuf" && !schema.data.is_empty());
        (channel.topic.as_str(), schema.name.as_str())
    });
    let expected = [
        ("/reports", "hyloc.v1.FrameReport"),
        ("/frames", "hyloc.v1.RecordedFrame"),
        ("/truth", "hyloc.v1.TruthRecord"),
        ("/holes", "hyloc.v1.RecordedHole"),
        ("/fixes", "hyloc.v1.Fix"),
        ("/pose", "foxglove.PoseInFrame"),
        ("/site", "foxglove.SceneUpdate"),
        ("/scene", "foxglove.SceneUpdate"),
        ("/log", "foxglove.Log"),
    ];
    assert_eq!(schemas.collect::<Vec<_>>(), expected);
}

/// A fix of the recording that was made by another program is found.
#[tokio::test]
async fn a_replay_reports_fixes_that_differ_from_the_recorded_ones() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    run_frames([0, 1, 2], &at("log"), Some(&at("recording"))).await;
    rewrite(&at("recording").join("blocks.mcap"), |topic, data| {
        let mut fix = v1::Fix::decode(data).ok().filter(|fix| topic == "/fixes" && fix.frame == 4)?;
        let position = fix.position.as_mut().unwrap();
        position.x_m = position.x_m.next_up();
        Some(fix.encode_to_vec())
    });
    let recording = at("recording");
    let again = move || replay(&recording, None, |_| {}).unwrap();
    let Replayed { equal, different, damage, .. } = tokio::task::spawn_blocking(again).await.unwrap();
    assert_eq!((equal, different.len(), damage.len()), (9, 1, 0), "{different:?} {damage:?}");
    assert!(different[0].starts_with(&format!("frame 4 of run {RUN} differs")), "{different:?}");
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
    rewrite(&recording.join("blocks.mcap"), |topic, data| {
        let mut report = v1::FrameReport::decode(data).ok().filter(|_| topic == "/reports")?;
        assert!(report.recorded_node.take().is_some());
        Some(report.encode_to_vec())
    });
}

/// Writes a file again, with other messages where `change` has any.
fn rewrite(path: &Path, change: impl Fn(&str, &[u8]) -> Option<Vec<u8>>) {
    let bytes = std::fs::read(path).unwrap();
    let options = mcap::WriteOptions::new().compression(None);
    let mut writer = options.create(std::io::Cursor::new(Vec::new())).unwrap();
    for message in mcap::MessageStream::new(&bytes).unwrap() {
        let mut message = message.unwrap();
        if let Some(data) = change(&message.channel.topic, &message.data) {
            message.data = data.into();
        }
        writer.write(&message).unwrap();
    }
    writer.finish().unwrap();
    std::fs::write(path, writer.into_inner().into_inner()).unwrap();
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

/// A recording of a release whose channels other than the reports were JSON: two targets, their tracks, and clocks that are
/// not trusted, with the fixes that this release made.
#[test]
fn a_recording_with_channels_of_json_gives_the_fixes_of_its_release() {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/json-channels");
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("fixes.jsonl");
    let Replayed { figures, broken, damage, missing, equal, different } =
        replay(&old, Some(&log), |_| {}).unwrap();
    assert_eq!((figures.fixes, figures.without_fix, equal), (6, 0, 0));
    assert_eq!((broken.is_none(), damage, missing, different), (true, vec![], vec![], vec![]));
    let read = |path: &Path| -> Vec<FixRecord> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    // To the nanometre: another processor may round otherwise.
    let close =
        |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
    let (replayed, expected) = (read(&log), read(&old.join("fixes.jsonl")));
    assert_eq!((replayed.len(), expected.len()), (6, 6));
    for (now, before) in replayed.iter().zip(&expected) {
        assert_eq!(
            (now.frame_id(), &now.status, &now.cautions),
            (before.frame_id(), &before.status, &before.cautions)
        );
        assert_eq!((now.targets.len(), now.tracks().len()), (before.targets.len(), before.tracks().len()));
        for (now, before) in now.targets.iter().zip(&before.targets) {
            assert!(close(&now.position_m, &before.position_m), "{now:?} {before:?}");
            assert!(close(&now.covariance_m2, &before.covariance_m2));
        }
        for (now, before) in now.tracks().iter().zip(before.tracks()) {
            assert_eq!(now.identity, before.identity);
            assert!(close(&now.position_m, &before.position_m), "{now:?} {before:?}");
        }
        for (now, before) in now.clocks.iter().zip(&before.clocks) {
            assert!((now.offset_ns - before.offset_ns).abs() < 1e-6 && now.prior_ns == before.prior_ns);
        }
        let (now, before) = (now.truth.as_ref().unwrap(), before.truth.as_ref().unwrap());
        assert_eq!((now.position_m, &now.clock_offset_ns), (before.position_m, &before.clock_offset_ns));
        assert!((now.bound_rms_m.unwrap() - before.bound_rms_m.unwrap()).abs() < 1e-9);
    }
    let recording = Recording::open(&old).unwrap();
    let entries: Vec<RecordedEntry> = recording.entries().unwrap().map(|entry| entry.unwrap().1).collect();
    let count = |is: fn(&RecordedEntry) -> bool| entries.iter().filter(|entry| is(entry)).count();
    let counts = [
        count(|entry| matches!(entry, RecordedEntry::Report(_))),
        count(
            |entry| matches!(entry, RecordedEntry::Frame(frame) if frame.clocks.is_some() && frame.time_s.is_some()),
        ),
        count(
            |entry| matches!(entry, RecordedEntry::Truth(_, told) if told.listed && told.targets.len() == 2),
        ),
    ];
    assert_eq!((counts, entries.len()), ([18, 6, 6], 30));
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
