//! A room with a height and panels on its walls, through real processes.
#![allow(clippy::print_stdout)]

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;
use serde_json::Value;

const FRAMES: u64 = 40;

fn room(site: &Site) -> String {
    let file = site.path("room.toml");
    std::fs::write(&file, ROOM).unwrap();
    file.to_str().unwrap().to_owned()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}")).iter().map(|v| v.as_f64().unwrap()).collect()
}

/// 40 fixes, seeded: three coordinates, near the truth, with error and bound along each of them. The mean squared error along
/// a coordinate has a standard deviation of 22 % over 40 fixes, so that 3 dB are four of them.
#[test]
fn fixes_have_three_coordinates_and_meet_their_bounds() {
    let _alone = alone();
    let site = Site::new();
    let (scenario, log) = (room(&site), site.path("fixes.jsonl"));
    let frames = FRAMES.to_string();
    let arguments = ["demo", "--json", "--scenario", &scenario, "--frames", &frames, "--rate", "5"];
    let more = ["--deadline-ms", "30000", "--fixes", log.to_str().unwrap()];
    let report = Process::start("hyloc", &[&arguments[..], &more[..]].concat()).finish();
    assert_eq!((count(&report, "fixes"), &report["unaccounted"]), (FRAMES, &Value::from(0)), "{report}");
    assert_eq!(report["nees_expected"], 3);
    for axis in ["x", "y", "z"] {
        let figures = &report["axes"][axis];
        println!("{axis}: {figures}");
        assert!(figures["gap_db"].as_f64().unwrap().abs() < 3.0, "{axis}: {figures}");
    }
    for fix in fixes(&log) {
        assert_eq!((&fix["axes"], &fix["method"]), (&Value::from("xyz"), &Value::from("direct")));
        let (position, truth) = (numbers(&fix["position_m"]), numbers(&fix["truth"]["position_m"]));
        assert_eq!((position.len(), numbers(&fix["covariance_m2"]).len()), (3, 6));
        let error_m = position.iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        assert!(error_m < 0.5 && (0.5..=2.5).contains(&truth[2]), "{fix}");
        assert!((error_m - fix["truth"]["error_m"].as_f64().unwrap()).abs() < 1e-9);
    }
}

/// The chain of the paper is of the plane: auto says once that it locates directly and why, three-stage is refused.
#[test]
fn the_method_of_the_plane_is_refused_in_space() {
    let _alone = alone();
    let site = Site::new();
    let scenario = room(&site);
    let (code, said) = site.fusion(&["--scenario", &scenario, "--method", "three-stage"]).outcome();
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("panels of several rows") && said.contains("use the direct method"), "{said}");
    let mut fusion = site.fusion(&["--scenario", &scenario]);
    fusion.started();
    let said = fusion.said("located directly");
    assert!(said.contains("panels of several rows"), "{said}");
    fusion.stop();
}
