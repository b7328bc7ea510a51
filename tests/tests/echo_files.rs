//! Echoes from files through real processes: the same fixes as live, whoever wrote the file, and faults that lose nothing.

use std::path::Path;
use std::process::Command;

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;
use hyloc_tests::python::{python, script};
use serde_json::Value;

const FRAMES: u64 = 12;

/// Frames are waited for, however late a busy machine makes them.
const PATIENT: [&str; 2] = ["--deadline-ms", "60000"];

/// Frame, position and covariance of every fix.
fn fixes_by_frame(log: &Path) -> Vec<(u64, Vec<f64>, Value)> {
    let mut fixes: Vec<(u64, Vec<f64>, Value)> = fixes(log)
        .into_iter()
        .map(|fix| (count(&fix, "frame"), hyloc_tests::numbers(&fix["position_m"]), fix))
        .collect();
    fixes.sort_by_key(|(frame, ..)| *frame);
    fixes
}

/// Fixes of the simulator over ZeroMQ.
fn live() -> Vec<(u64, Vec<f64>, Value)> {
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let fusion = site.fusion(&[&PATIENT[..], &["--fixes", log.to_str().unwrap()]].concat());
    let nodes = site.nodes(3);
    site.simulator(&["--frames", &FRAMES.to_string()]).finish();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    assert_eq!(fusion.stop()["unaccounted"], 0);
    fixes_by_frame(&log)
}

/// Writes the files of a run at the power of the pipelines here.
fn simulate(directory: &Path, format: &str, more: &[&str]) -> Value {
    let (frames, directory) = (FRAMES.to_string(), directory.to_str().unwrap());
    let mut arguments = vec!["simulate", "--power-dbm", "60", "--frames", &frames, "--echoes-out", directory];
    arguments.extend(["--echoes-format", format]);
    arguments.extend(more);
    let summary = Process::start("hyloc", &arguments).finish();
    assert_eq!(count(&summary, "frames"), FRAMES);
    summary
}

/// Fixes of nodes that read these files, each to its end.
fn from_files(files: [&Path; 3], fusion_options: &[&str]) -> Vec<(u64, Vec<f64>, Value)> {
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let fusion = site.fusion(&[&PATIENT[..], &["--fixes", log.to_str().unwrap()], fusion_options].concat());
    let nodes: Vec<Process> = files
        .iter()
        .enumerate()
        .map(|(index, file)| site.node(index, &["--echoes", file.to_str().unwrap()]))
        .collect();
    for (node, file) in nodes.into_iter().zip(files) {
        let summary = node.finish();
        assert_eq!(count(&summary["echoes"], "frames"), FRAMES, "{}: {summary}", file.display());
        assert_eq!(
            (count(&summary, "fused"), count(&summary, "dropped_at_node")),
            (3 * FRAMES, 0),
            "{summary}"
        );
    }
    let summary = fusion.stop();
    assert_eq!((&summary["unaccounted"], count(&summary, "frames_shed")), (&Value::from(0), 0));
    fixes_by_frame(&log)
}

#[track_caller]
fn assert_same(fixes: &[(u64, Vec<f64>, Value)], live: &[(u64, Vec<f64>, Value)]) {
    assert_eq!(fixes.len(), live.len());
    for ((frame, at_m, fix), (expected_frame, expected_m, expected)) in fixes.iter().zip(live) {
        assert_eq!((frame, &fix["status"]), (expected_frame, &expected["status"]));
        let distance_m = at_m.iter().zip(expected_m).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(at_m.len() == 2 && distance_m < 1e-9, "frame {frame}: {at_m:?} instead of {expected_m:?}");
    }
}

/// Both formats; the second run with signals, codes and frequencies of an export instead of the channel model.
#[test]
fn a_run_from_files_has_the_fixes_of_the_live_run() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let live = live();
    assert_eq!(live.len() as u64, FRAMES);
    let sigmf = folder.path().join("sigmf");
    let summary = simulate(&sigmf, "sigmf", &[]);
    let file = |name: &str| sigmf.join(name);
    let files = [file("node-0.sigmf-meta"), file("node-1.sigmf-data"), file("node-2.sigmf-meta")];
    let fixes = from_files(files.each_ref().map(|file| file.as_path()), &[]);
    assert_same(&fixes, &live);
    assert!(fixes.iter().all(|(.., fix)| fix["run"] == summary["run"]), "the run of the files");
    let truth = std::fs::read_to_string(file("truth.jsonl")).unwrap();
    let truth: Vec<Value> = truth.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(live.iter().any(|(.., fix)| fix["truth"].is_object()));
    for (line, (frame, .., fix)) in truth.iter().zip(&live) {
        assert_eq!((&line["run"], count(line, "frame")), (&summary["run"], *frame));
        // No fix waits for the truth, which may come too late for the first one.
        if fix["truth"].is_object() {
            assert_eq!(line["targets"][0]["position_m"], fix["truth"]["position_m"]);
        }
        assert_eq!(
            (&line["targets"][0]["identity"], line["targets"][0]["rcs_m2"].is_f64()),
            (&Value::from(0), true)
        );
    }

    let site = folder.path().join("site");
    let out = ["scenario", "export", "--set", "base_station.power_dbm=60", "--out", site.to_str().unwrap()];
    Process::start("hyloc", &out).finish();
    let measured = format!("measured={}", site.join("site.npz").display());
    let npz = folder.path().join("npz");
    simulate(&npz, "npz", &["--set", &measured]);
    let files = [0, 1, 2].map(|node| npz.join(format!("node-{node}.npz")));
    assert_same(&from_files(files.each_ref().map(|file| file.as_path()), &["--set", &measured]), &live);
    let description: Value = serde_json::from_slice(&std::fs::read(site.join("site.json")).unwrap()).unwrap();
    let metadata: Value = serde_json::from_slice(&std::fs::read(file("node-0.sigmf-meta")).unwrap()).unwrap();
    assert_eq!(description["site_sha256"], metadata["global"]["hyloc:site_sha256"]);

    // What is there is not overwritten.
    let again = ["simulate", "--frames", "1", "--echoes-out", npz.to_str().unwrap()];
    let (code, said) = Process::start("hyloc", &again).outcome();
    assert!(code == Some(74) && said.contains("truth.jsonl: File exists"), "{code:?} {said}");
}

#[test]
fn a_fault_in_a_file_loses_no_frame_before_it() {
    let _alone = alone();
    let site = Site::new();
    let directory = site.path("echoes");
    simulate(&directory, "sigmf", &[]);
    let cut = directory.join("node-2.sigmf-data");
    let bytes = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2 + 100]).unwrap();
    let log = site.path("fixes.jsonl");
    let fusion = site.fusion(&[&PATIENT[..], &["--fixes", log.to_str().unwrap()]].concat());
    let file = |node: usize| directory.join(format!("node-{node}.sigmf-meta")).display().to_string();
    let nodes: Vec<Process> = (0..3).map(|node| site.node(node, &["--echoes", &file(node)])).collect();
    for (index, node) in nodes.into_iter().enumerate() {
        let (code, summary, said) = node.report();
        if index < 2 {
            assert_eq!((code, count(&summary["echoes"], "frames")), (Some(0), FRAMES), "{said}");
            continue;
        }
        assert_eq!(
            (code, count(&summary["echoes"], "frames"), count(&summary, "fused")),
            (Some(65), 6, 18),
            "{said}"
        );
        let expected =
            "node-2.sigmf-meta: frame 6 at byte 96000: the samples are cut off: 100 of 16000 bytes are there";
        assert!(said.contains(expected) && said.contains("; 6 frames before it were processed"), "{said}");
    }
    assert_eq!(fusion.stop()["unaccounted"], 0);
    let nodes: Vec<usize> =
        fixes_by_frame(&log).iter().map(|(.., fix)| fix["nodes"].as_array().unwrap().len()).collect();
    assert_eq!(nodes, [3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2]);
}

#[test]
fn a_file_for_another_node_or_site_is_refused_by_key() {
    let _alone = alone();
    let site = Site::new();
    let directory = site.path("echoes");
    simulate(&directory, "npz", &[]);
    let file = directory.join("node-1.npz").display().to_string();
    let (code, said) = Process::start("irs-node", &["--echoes", &file, "--index", "0"]).outcome();
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("node-1.npz: has the frames of node 1, and index = 0"), "{said}");
    let (code, said) =
        Process::start("irs-node", &["--echoes", &file, "--echo-listen", "127.0.0.1:0"]).outcome();
    assert!(code == Some(64) && said.contains("exclude each other"), "{said}");
    let (code, said) = Process::start("irs-node", &["--echoes", "nowhere.npz"]).outcome();
    assert!(code == Some(74) && said.contains("nowhere.npz"), "{said}");
    // Another site: the fusion center has another seed. The index comes from the file, and nobody else is waited for for long.
    let fusion = site.fusion(&["--seed", "2"]);
    let grpc = site.grpc.to_string();
    let node = Process::start("irs-node", &["--echoes", &file, "--fusion", &grpc, "--start-after-s", "0.1"]);
    let (code, summary, said) = node.report();
    assert_eq!(
        (code, &summary["index"], count(&summary["echoes"], "frames")),
        (Some(65), &Value::from(1), 0),
        "{said}"
    );
    assert!(said.contains("node-1.npz: site_sha256 = "), "{said}");
    fusion.stop();
}

fn run_python(interpreter: &Path, name: &str, arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(interpreter).arg(script(name)).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Files of ours are valid for `sigmf` and numpy, and files of theirs give the same fixes: Fortran order, compressed, in time,
/// and with the metadata and archive of `sigmf`.
#[test]
fn python_reads_our_files_and_we_read_those_of_python() {
    let test = "python_reads_our_files_and_we_read_those_of_python";
    let Some(interpreter) = python(test, &["numpy", "sigmf"]) else { return };
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    simulate(&path.join("sigmf"), "sigmf", &[]);
    simulate(&path.join("npz"), "npz", &[]);
    let told = run_python(&interpreter, "echo_files.py", &["check", path.to_str().unwrap()]);
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (count(told, "frames"), count(told, "sensors"), count(told, "subcarriers")),
        (FRAMES, 10, 100)
    );
    assert_eq!((count(told, "channels"), &told["equal"], count(told, "node")), (10, &Value::Bool(true), 0));
    assert_eq!((told["domain"].as_str(), count(told, "step_ns")), (Some("subcarriers"), 20_000_000));
    assert_eq!(told["numbers"], Value::from((0..FRAMES).collect::<Vec<u64>>()));

    run_python(&interpreter, "echo_files.py", &["rewrite", path.to_str().unwrap()]);
    let ours = [0, 1, 2].map(|node| path.join(format!("npz/node-{node}.npz")));
    let ours = from_files(ours.each_ref().map(|file| file.as_path()), &[]);
    for names in
        [["py-0.npz", "cz-1.npz", "time-2.npz"], ["py-0.sigmf-meta", "archive-1.sigmf", "py-2.sigmf-data"]]
    {
        let files = names.map(|name| path.join(name));
        assert_same(&from_files(files.each_ref().map(|file| file.as_path()), &[]), &ours);
    }
}

/// A program without any code of hyloc pushes its own echoes and gets their fixes, all by gRPC.
#[test]
fn python_pushes_its_own_echoes_and_gets_fixes() {
    let test = "python_pushes_its_own_echoes_and_gets_fixes";
    let Some(interpreter) = python(test, &["numpy", "grpc", "grpc_tools"]) else { return };
    let _alone = alone();
    let site = Site::new();
    let exported = site.path("site");
    let out =
        ["scenario", "export", "--set", "base_station.power_dbm=60", "--out", exported.to_str().unwrap()];
    Process::start("hyloc", &out).finish();
    let fusion = site.fusion(&PATIENT);
    let echo: Vec<String> = (0..3).map(|_| free_address().to_string()).collect();
    let mut nodes: Vec<Process> =
        (0..3).map(|index| site.node(index, &["--echo-listen", &echo[index]])).collect();
    nodes.iter_mut().for_each(|node| drop(node.started()));
    nodes.iter().for_each(|node| drop(node.said("the matched filter is ready")));
    let (archive, grpc) = (exported.join("site.npz"), site.grpc.to_string());
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto");
    let mut arguments = vec![proto, archive.to_str().unwrap(), &grpc];
    arguments.extend(echo.iter().map(String::as_str));
    let told = run_python(&interpreter, "push_echoes.py", &arguments);
    let (fixes, ended) = told.split_at(FRAMES as usize);
    assert_eq!(ended[0]["processed"], Value::from(vec![FRAMES; 3]));
    for fix in fixes {
        let (at_m, target_m) =
            (hyloc_tests::numbers(&fix["position_m"]), hyloc_tests::numbers(&fix["target_m"]));
        let error_m = (at_m[0] - target_m[0]).hypot(at_m[1] - target_m[1]);
        // Six standard deviations: a sign or an order that is wrong anywhere in the script's model misses by metres.
        let deviation_m =
            (fix["covariance_m2"][0].as_f64().unwrap() + fix["covariance_m2"][2].as_f64().unwrap()).sqrt();
        assert!(fix["run"] == true && fix["status"] == "nominal", "{fix}");
        assert!(error_m < 6.0 * deviation_m && deviation_m < 0.1, "{error_m} m, {deviation_m} m: {fix}");
    }
    nodes.into_iter().for_each(|node| drop(node.stop()));
    assert_eq!(fusion.stop()["unaccounted"], 0);
}
