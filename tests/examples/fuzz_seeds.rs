//! Writes the seeds of all fuzz targets into `fuzz/seeds`: `cargo run -p hyloc-tests --example fuzz_seeds`.

#[allow(dead_code)]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use mcap::records::{MessageHeader, Metadata};
use model::{CMatrix, Scenario};
use prost::Message;
use proto::convert::FrameId;
use proto::echo::EchoFrame;
use proto::echo::file::{EchoFileFormat, EchoFilePlan};
use proto::echo::zmtp::{GREETING, READY_ROUTER, head_of, put_header};
use proto::v1;
use targets::site;

fn write(target: &str, name: &str, content: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), content).unwrap();
}

fn main() {
    let system = &site().system;
    let samples = CMatrix::identity(system.sensors(), 8);
    let frame = EchoFrame::new(FrameId { run: 1, frame: 2 }, 0, 3, &samples);
    write("echo_codec", "frame", &frame.encode().unwrap());

    write_echo_files();

    let report = report();
    write("report", "report", &[&[0], report.encode_to_vec().as_slice()].concat());
    let small = Scenario {
        surface: model::scenario::Surface { elements: 2.into(), ..Default::default() },
        ..Scenario::default()
    };
    let small = proto::site::SharedSite::new(model::System::new(&small).unwrap()).unwrap();
    write("report", "site", &[&[128], small.encode().as_slice()].concat());

    write("scenario", "default", toml::to_string(&Scenario::default()).unwrap().as_bytes());
    write(
        "scenario",
        "overrides",
        b"=target.motion=circle\nsurface.phases=aligned\nirs[0].position_m=[10, 50]\nseed=3",
    );

    let (json, messages) = (json_entries(&report), message_entries(&report));
    let seeds = [("checked", &json, true), ("unchecked", &json, false), ("messages", &messages, true)];
    for (name, entries, checked) in seeds {
        let recording = recording(entries, checked);
        write("recording", name, &recording);
        write("replay", name, &recording);
    }

    for (kind, file) in [("a", "anm"), ("c", "crb"), ("d", "delay"), ("l", "locator")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("vectors/{file}.json"));
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let shortest = vectors["cases"].as_array().unwrap().iter().min_by_key(|case| case.to_string().len());
        let problem = serde_json::json!({ "cases": [shortest] }).to_string();
        write("solve", file, format!("{kind}{problem}").as_bytes());
    }

    let plan = "profile = \"congested\"\n[up]\nloss = 0.1\n[link.west]\nprofile = \"flaky\"\n[link.west.down]\nrate_mbit_s = 5\n";
    let traffic: Vec<u8> = (0..8u32).flat_map(|i| [i * 1000, 1448 * i]).flat_map(u32::to_le_bytes).collect();
    write("relay", "plan", &[plan.as_bytes(), &[0], &traffic].concat());

    write_streams(&frame.encode().unwrap());
}

/// Files of echoes in both formats, and the measured signals of a small site.
fn write_echo_files() {
    let folder = tempfile::tempdir().unwrap();
    let layout = targets::echo_file_layout();
    let plan = EchoFilePlan { layout, run: 9, frames: 3, frame_rate_hz: 50.0, start_ns: 1_000_000_000 };
    let mut files = Vec::new();
    for format in [EchoFileFormat::Npz, EchoFileFormat::Sigmf] {
        let mut writer = format.create(folder.path(), &plan).unwrap();
        for frame in 0..3 {
            let received = CMatrix::from_fn(2, 3, |m, i| ((m + i + 1) as f64).into());
            writer.write(&EchoFrame::new(FrameId { run: 9, frame }, 1, 0, &received)).unwrap();
        }
        files.push(writer.finish().unwrap());
    }
    write("echo_file", "npz", &[b"n", std::fs::read(&files[0][0]).unwrap().as_slice()].concat());
    let mut archive = tar::Builder::new(vec![b's']);
    for file in &files[1] {
        let content = std::fs::read(file).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, file.file_name().unwrap(), content.as_slice()).unwrap();
    }
    write("echo_file", "sigmf", &archive.into_inner().unwrap());
    let overrides = targets::SMALL_SITE.map(str::to_owned).to_vec();
    hyloc::export::export(None, overrides, folder.path()).unwrap();
    let site = std::fs::read(folder.path().join("site.npz")).unwrap();
    write("echo_file", "measured", &[b"m", site.as_slice()].concat());
}

/// Streams of ZMTP peers: a node with two messages in short and long frames, a simulator with a frame of echoes, and a header
/// that claims more than comes.
fn write_streams(frame: &[u8]) {
    let node: &[u8] = b"\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00";
    let short: [u8; 5] = [0, 3, 7, 8, 9];
    let mut long = BytesMut::new();
    put_header(&mut long, 300, false);
    long.resize(long.len() + 300, 5);
    write("zmtp", "node", &[&[64, 6, 0][..], &GREETING, node, &short, &long[..]].concat());

    let payload = Bytes::copy_from_slice(frame);
    let head = head_of(&[2, 1], Some(&payload));
    write("zmtp", "simulator", &[&[10, 255, 1][..], &GREETING, READY_ROUTER, &head[..], frame].concat());

    let mut claim = BytesMut::new();
    put_header(&mut claim, 1 << 40, true);
    write("zmtp", "claim", &[&[1, 0, 0][..], &GREETING, node, &claim[..]].concat());
}

fn report() -> v1::FrameReport {
    v1::FrameReport { frame: 1, run: 1, noise_power_w: 1e-13, recorded_node: Some(0), ..Default::default() }
}

/// Entries of an older recording, with their channels.
fn json_entries(report: &v1::FrameReport) -> Vec<(u16, Vec<u8>)> {
    vec![
        (1, report.encode_to_vec()),
        (3, br#"{"run":1,"frame":1,"position_m":[3.0,4.0],"rcs_m2":5.0}"#.to_vec()),
        (2, br#"{"run":1,"frame":1,"reports":[0]}"#.to_vec()),
        (4, br#"{"run":1,"first":2,"last":3,"entries":4}"#.to_vec()),
    ]
}

/// The same as messages, with a fix.
fn message_entries(report: &v1::FrameReport) -> Vec<(u16, Vec<u8>)> {
    let truth = v1::TruthRecord { run: 1, frame: 1, x_m: 3.0, y_m: 4.0, rcs_m2: 5.0, ..Default::default() };
    let frame = v1::RecordedFrame { run: 1, frame: 1, reports: vec![0], ..Default::default() };
    let track = v1::Track { identity: 1, covariance: vec![1.0; 10], ..Default::default() };
    let fix = v1::Fix {
        run: 1,
        frame: 1,
        status: "unobservable".into(),
        tracks: vec![track],
        ..Default::default()
    };
    let hole = v1::RecordedHole { run: 1, first: 2, last: 3, entries: 4 };
    vec![
        (1, report.encode_to_vec()),
        (3, truth.encode_to_vec()),
        (2, frame.encode_to_vec()),
        (5, fix.encode_to_vec()),
        (4, hole.encode_to_vec()),
    ]
}

fn recording(entries: &[(u16, Vec<u8>)], checked: bool) -> Vec<u8> {
    let options = mcap::WriteOptions::new().compression(None).calculate_chunk_crcs(checked);
    let mut writer = options.create(Cursor::new(Vec::new())).unwrap();
    let metadata = BTreeMap::from([("protocol_version".to_owned(), proto::PROTOCOL_VERSION.to_string())]);
    writer.write_metadata(&Metadata { name: "hyloc".into(), metadata }).unwrap();
    for topic in ["/reports", "/frames", "/truth", "/holes", "/fixes"] {
        writer.add_channel(0, topic, "", &BTreeMap::new()).unwrap();
    }
    for (i, (channel_id, data)) in entries.iter().enumerate() {
        let header =
            MessageHeader { channel_id: *channel_id, sequence: i as u32, log_time: 1, publish_time: 1 };
        writer.write_to_known_channel(&header, data).unwrap();
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner().into_inner()
}
