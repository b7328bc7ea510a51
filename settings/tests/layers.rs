//! Each layer overrides the one before it, and nothing unknown slips through.

use std::collections::HashMap;
use std::io::Write;

use model::Scenario;
use model::scenario::PathAngles;
use settings::{Layers, load_scenario};

fn layers(toml: &str, environment: &[(&str, &str)], overrides: &[&str]) -> (tempfile::NamedTempFile, Layers) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(toml.as_bytes()).unwrap();
    let layers = Layers {
        file: Some(file.path().to_path_buf()),
        environment: Some(environment.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()),
        overrides: overrides.iter().map(|s| s.to_string()).collect(),
    };
    (file, layers)
}

fn refusal(toml: &str, environment: &[(&str, &str)], overrides: &[&str]) -> String {
    let (_file, layers) = layers(toml, environment, overrides);
    load_scenario(&layers).unwrap_err().to_string()
}

#[test]
fn defaults_are_table_one() {
    let layers = Layers { environment: Some(HashMap::new()), ..Layers::default() };
    assert_eq!(load_scenario(&layers).unwrap(), Scenario::default());
}

#[test]
fn later_layers_win() {
    let toml = "[base_station]\npower_dbm = 41.0\nantennas = 60\n[channel]\nangles = \"dft-grid\"";
    let environment = [("HYLOC__BASE_STATION__POWER_DBM", "42"), ("HYLOC__SEED", "7"), ("HYLOC_OTHER", "x")];
    let (_file, layers) = layers(toml, &environment, &["seed=9", "signal.spacing_wavelengths=0.5"]);
    let scenario = load_scenario(&layers).unwrap();
    assert_eq!(scenario.base_station.antennas, 60);
    assert_eq!(scenario.base_station.power_dbm, 42.0);
    assert_eq!(scenario.channel.angles, PathAngles::DftGrid);
    assert_eq!(scenario.seed, 9);
    assert_eq!(scenario.signal.spacing_wavelengths, 0.5);
    assert_eq!(scenario.irs, Scenario::default().irs);
}

#[test]
fn enumerations_with_content_are_read() {
    let toml = "[surface]\nphases = { aligned = { toward_m = [5.0, 5.0] } }\n\
                [target]\nmotion = { fixed = { position_m = [1.0, 2.0] } }";
    let (_file, layers) = layers(toml, &[], &[]);
    let scenario = load_scenario(&layers).unwrap();
    assert_eq!(scenario.target.motion, model::scenario::Motion::Fixed { position_m: [1.0, 2.0] });
}

#[test]
fn refusals_name_the_key() {
    assert!(refusal("[signal]\nbandwith_hz = 1.0", &[], &[]).contains("bandwith_hz"));
    assert!(refusal("", &[("HYLOC__SIGNAL__COLOUR", "red")], &[]).contains("colour"));
    assert!(refusal("", &[], &["nonsense"]).contains("key=value"));
    assert!(refusal("", &[], &["signal.subcarriers=12"]).contains("signal.subcarriers = 12"));
    assert!(refusal("[base_station]\npower_dbm = nan", &[], &[]).contains("base_station.power_dbm = NaN"));
    assert!(refusal("[base_station]\npower_dbm = \"much\"", &[], &[]).contains("power_dbm"));
    assert!(refusal("[base_station\n", &[], &[]).contains("TOML"));
    let missing = Layers::from_file("/nowhere/at-all.toml");
    assert!(load_scenario(&missing).unwrap_err().to_string().contains("/nowhere/at-all.toml"));
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Role {
    listen: String,
    deadline_ms: u64,
    record: Option<String>,
}

impl Default for Role {
    fn default() -> Self {
        Self { listen: "127.0.0.1:0".into(), deadline_ms: 100, record: None }
    }
}

#[derive(serde::Serialize, Default)]
struct RoleFlags {
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<u64>,
}

/// The settings of a process: file over defaults, flag over file; nothing unknown.
#[test]
fn a_role_has_the_same_layers() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"deadline_ms = 7\nlisten = '127.0.0.1:5'").unwrap();
    let load = |flags: &RoleFlags| settings::load_role::<Role, _>("layers-test", Some(file.path()), flags);
    let from_file = load(&RoleFlags::default()).unwrap();
    assert_eq!(from_file, Role { listen: "127.0.0.1:5".into(), deadline_ms: 7, record: None });
    let flags = RoleFlags { listen: Some("127.0.0.1:6".into()), unknown: None };
    assert_eq!(load(&flags).unwrap().listen, "127.0.0.1:6");
    let flags = RoleFlags { listen: None, unknown: Some(1) };
    assert!(load(&flags).unwrap_err().to_string().contains("unknown"));
}
