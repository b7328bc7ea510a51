//! Recordings are read by the programs of others: every message is decoded by the schema in the file.

use std::process::Command;

use hyloc_tests::pipeline::fixes;
use hyloc_tests::process::{Process, alone};
use hyloc_tests::python::{python, script};
use serde_json::Value;

#[test]
fn python_decodes_every_message_of_a_recording() {
    let _alone = alone();
    let packages = ["mcap", "mcap_protobuf", "foxglove_schemas_protobuf"];
    let test = "recording_readers::python_decodes_every_message_of_a_recording";
    let Some(python) = python(test, &packages) else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (recording, log) = (at("recording"), at("fixes.jsonl"));
    let demo =
        ["demo", "--frames", "12", "--rate", "10", "--targets", "2", "--clock-offset-ns", "10", "--json"];
    Process::start("hyloc", &[&demo[..], &["--record", &recording, "--fixes", &log]].concat()).finish();

    let output = Command::new(python)
        .arg(script("read_recording.py"))
        .arg(format!("{recording}/blocks.mcap"))
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count =
        |topic: &str| read["topics"][topic]["messages"].as_u64().unwrap_or_else(|| panic!("{topic}: {read}"));
    assert_eq!(["/frames", "/fixes", "/holes", "/site"].map(count), [12, 12, 0, 1]);
    assert!(count("/reports") >= 36 && count("/truth") >= 12, "{read}");
    let drawn = count("/scene");
    assert!((2..=12).contains(&drawn) && count("/pose") <= drawn && count("/log") >= 2, "{read}");

    let (read, logged) = (read["fixes"].as_array().unwrap(), fixes(log.as_ref()));
    assert_eq!((read.len(), logged.len()), (12, 12));
    for (read, logged) in read.iter().zip(&logged) {
        assert_eq!((&read["frame"], &read["status"]), (&logged["frame"], &logged["status"]));
        // A flat area: the height is zero and not in the log.
        let (position, expected) = (read["position_m"].as_array().unwrap(), &logged["position_m"]);
        let same = expected.as_array().is_none_or(|expected| position[..expected.len()] == expected[..]);
        assert!(same, "{position:?} {expected}");
        let tracks = logged["tracks"].as_array().unwrap();
        let identities: Vec<&Value> = tracks.iter().map(|track| &track["identity"]).collect();
        assert_eq!(read["tracks"].as_array().unwrap().iter().collect::<Vec<_>>(), identities);
    }
}
