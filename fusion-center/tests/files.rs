//! Fix log and recording over restarts, full disks and removed directories.

mod support;

use std::path::Path;
use std::time::Duration;

use hyloc_fusion_center::replay::replay;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Frames of all nodes, each fused.
async fn send(center: &Center, frames: std::ops::Range<u64>) {
    let echoes = Echoes::new();
    let mut nodes = nodes(center).await;
    for frame in frames {
        for node in &mut nodes {
            node.send(echoes.report(node.index, frame)).await;
        }
        assert_eq!(nodes[2].acknowledgement().await.unwrap().fused, 3, "frame {frame}");
    }
}

async fn health(center: &Center) -> String {
    get(center, "/health").await
}

async fn get(center: &Center, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(center.http).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", center.http);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Waits until health contains a text, or does not.
async fn until_health(center: &Center, text: &str, contained: bool) {
    until(center, "/health", |answer| answer.contains(text) == contained).await;
}

async fn until(center: &Center, path: &str, holds: impl Fn(&str) -> bool) {
    let waiting = async {
        while !holds(&get(center, path).await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(waiting).await;
}

async fn replayed(directory: &Path) -> u64 {
    let directory = directory.to_path_buf();
    let replay = tokio::task::spawn_blocking(move || replay(&directory, None, |_| {}).unwrap());
    let replayed = replay.await.unwrap();
    assert!(replayed.damage.is_empty() && replayed.broken.is_none(), "{replayed:?}");
    replayed.figures.fixes
}

#[tokio::test]
async fn a_restart_with_the_same_arguments_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (log, recording) = (directory.path().join("fixes.jsonl"), directory.path().join("recording"));
    let options = Options { fixes: Some(log.clone()), record: Some(recording.clone()), ..Options::default() };
    for (run, frames) in [(1, 0..4), (2, 0..2), (3, 5..8)] {
        let center = Center::start(options.clone()).await;
        send(&center, frames).await;
        assert_eq!(center.stop().await.incomplete_files, [], "run {run}");
    }
    assert_eq!(fix_lines(&log).len(), 4 + 2 + 3);
    assert_eq!(replayed(&recording).await, 4);
    assert_eq!(replayed(&recording.join("2")).await, 2);
    assert_eq!(replayed(&recording.join("3")).await, 3);
}

/// A recording that is refused must not cost the fix log.
#[tokio::test]
async fn a_refused_recording_leaves_the_fix_log_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (log, taken) = (directory.path().join("fixes.jsonl"), directory.path().join("taken"));
    std::fs::write(&taken, "a file where the directory would be").unwrap();
    std::fs::write(&log, "{\"frame\":1}\n").unwrap();
    let options =
        options(Options { fixes: Some(log.clone()), record: Some(taken.join("x")), ..Options::default() });
    let listeners = hyloc_fusion_center::FusionListeners::bind(&options).await.unwrap();
    let site = options.load().unwrap();
    let refused = hyloc_fusion_center::run(options, site, listeners, Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("taken"), "{refused:#}");
    let aside = directory.path().join("fixes.jsonl.1");
    let kept = if log.metadata().is_ok_and(|log| log.len() > 0) { &log } else { &aside };
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "{\"frame\":1}\n");
}

#[tokio::test]
async fn a_file_that_is_no_log_is_moved_aside() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("fixes.jsonl");
    std::fs::write(&log, "my notes\n").unwrap();
    let options = Options { fixes: Some(log.clone()), ..Options::default() };
    let center = Center::start(options.clone()).await;
    send(&center, 0..1).await;
    center.stop().await;
    assert_eq!(fix_lines(&log).len(), 1);
    assert_eq!(std::fs::read_to_string(directory.path().join("fixes.jsonl.1")).unwrap(), "my notes\n");

    // A line that a power failure cut.
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, format!("{text}{}", &text[..text.len() / 2])).unwrap();
    let center = Center::start(options).await;
    send(&center, 0..2).await;
    center.stop().await;
    assert_eq!(fix_lines(&log).len(), 2);
    assert!(std::fs::read_to_string(directory.path().join("fixes.jsonl.2")).unwrap().starts_with(&text));
}

/// `/dev/full` refuses every byte as a full disk does; the link then points to a disk with space.
#[tokio::test]
async fn a_full_disk_under_the_fix_log_stops_no_fix() {
    let directory = tempfile::tempdir().unwrap();
    let (log, disk) = (directory.path().join("fixes.jsonl"), directory.path().join("disk.jsonl"));
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    let center = Center::start(Options { fixes: Some(log.clone()), ..Options::default() }).await;
    let mut watcher = center.client().await.watch(proto::v1::WatchRequest {}).await.unwrap().into_inner();
    send(&center, 0..3).await;
    for frame in 0..3 {
        assert_eq!(within(watcher.message()).await.unwrap().unwrap().frame, frame);
    }
    until_health(&center, "degraded: fixes log: ", true).await;
    assert!(health(&center).await.contains("No space left on device"));
    std::fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink(&disk, &log).unwrap();
    send(&center, 3..5).await;
    until_health(&center, "degraded", false).await;
    assert_eq!(center.stop().await.incomplete_files, [], "what waited is written");
    assert_eq!(fix_lines(&disk).len(), 5);
}

/// Ready only while a fix could be made and published now; otherwise all reasons are listed.
#[tokio::test]
async fn ready_lists_every_reason_why_there_is_no_fix() {
    let center = Center::start(Options { fixes: Some("/dev/full".into()), ..Options::default() }).await;
    let has = |answer: &str, all: &[&str]| all.iter().all(|reason| answer.contains(reason));
    let idle = ["503", "nodes: none is connected\n", "frames: none has been received\n"];
    until(&center, "/ready", |answer| has(answer, &idle)).await;
    let (echoes, mut nodes) = (Echoes::new(), nodes(&center).await);
    for node in &mut nodes {
        node.send(echoes.report(node.index, 0)).await;
    }
    let log_alone = |answer: &str| {
        has(answer, &["503", "\nfixes log: "]) && !answer.contains("nodes:") && !answer.contains("frames:")
    };
    until(&center, "/ready", log_alone).await;
    drop(nodes);
    until(&center, "/ready", |answer| has(answer, &["nodes: none is connected\n", "\nfixes log: "])).await;
    center.stop().await;
}

#[tokio::test]
async fn what_the_log_could_not_take_is_counted_in_the_end() {
    let options = Options { fixes: Some("/dev/full".into()), ..Options::default() };
    let center = Center::start(options).await;
    send(&center, 0..3).await;
    let summary = center.stop().await;
    assert_eq!((summary.figures.fixes, summary.incomplete_files[0].lost), (3, 3));
    assert!(summary.incomplete_files[0].reason.contains("/dev/full"), "{:?}", summary.incomplete_files);
}

#[tokio::test]
async fn a_recording_whose_directory_is_removed_is_begun_again() {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("recording");
    let center = Center::start(Options { record: Some(recording.clone()), ..Options::default() }).await;
    send(&center, 0..3).await;
    std::fs::remove_dir_all(&recording).unwrap();
    // Nothing can be made here until the file is gone.
    std::fs::write(&recording, "in the way").unwrap();
    let mut frame = 3;
    let failing = async {
        while !health(&center).await.contains("degraded: recording: ") {
            send(&center, frame..frame + 1).await;
            frame += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within(failing).await;
    std::fs::remove_file(&recording).unwrap();
    send(&center, frame..frame + 4).await;
    until_health(&center, "degraded", false).await;
    center.stop().await;
    assert!(replayed(&recording).await >= 4);
}
