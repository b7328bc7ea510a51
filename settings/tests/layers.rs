//! Each layer overrides the one before it, and nothing unknown slips through.

use std::collections::HashMap;
use std::io::Write;

use hyloc_settings::{Layers, load_scenario};
use model::Scenario;
use model::scenario::{Motion, PathAngles, Phases};
use proptest::prelude::*;

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
    assert_eq!(scenario.targets[0].motion, Motion::Fixed { position_m: [1.0, 2.0, 0.0] });
}

/// What `scenario check --set ...` makes of one override, after a file.
fn overridden(toml: &str, pair: &str) -> Result<Scenario, String> {
    let (_file, layers) = layers(toml, &[], &[pair]);
    load_scenario(&layers).map_err(|error| error.to_string())
}

#[test]
fn tables_and_lists_can_be_set() {
    let circle = "target.motion={circle={centre_m=[5.0, 5.0], radius_m=2.0, frames=40}}";
    let expected = Motion::Circle { centre_m: [5.0, 5.0, 0.0], radius_m: 2.0, frames: 40 };
    assert_eq!(overridden("", circle).unwrap().targets[0].motion, expected);
    // In place of another motion of the file, not merged with it.
    let line = "[target]\nmotion = { line = { from_m = [1.0, 1.0], to_m = [9.0, 9.0], frames = 5 } }";
    assert_eq!(overridden(line, circle).unwrap().targets[0].motion, expected);
    let shorter = overridden(line, "target.motion.line.frames=7").unwrap();
    assert!(matches!(shorter.targets[0].motion, Motion::Line { frames: 7, .. }));
    assert_eq!(overridden("", "irs[1].position_m=[20, -40]").unwrap().irs[1].position_m, [20.0, -40.0, 0.0]);
    assert_eq!(overridden("", "irs=[{position_m=[20, -40]}]").unwrap().irs.len(), 1);
    let (_file, layers) = layers("", &[("HYLOC__TARGET__MOTION", "{fixed={position_m=[1, 2]}}")], &[]);
    let fixed = Motion::Fixed { position_m: [1.0, 2.0, 0.0] };
    assert_eq!(load_scenario(&layers).unwrap().targets[0].motion, fixed);
}

/// The page's words for motions, and phases without a point, fit the coverage area of the scenario.
#[test]
fn short_forms_fit_the_coverage_area() {
    let area = "[coverage]\nmin_m = [-8.0, 2.0]\nmax_m = [4.0, 10.0]";
    for name in Motion::NAMES {
        let scenario = overridden(area, &format!("target.motion={name}")).unwrap();
        let expected = Motion::named(name, &scenario.coverage, 500).unwrap();
        assert_eq!(scenario.targets[0].motion, expected, "{name}");
        let (_file, layers) = layers(area, &[("HYLOC__TARGET__MOTION", name)], &[]);
        assert_eq!(load_scenario(&layers).unwrap().targets[0].motion, expected);
    }
    let aligned = overridden(area, "surface.phases=aligned").unwrap().surface.phases;
    assert_eq!(aligned, Phases::Aligned { toward_m: [-2.0, 6.0, 0.0] });
    assert_eq!(overridden(area, "surface.phases=random").unwrap().surface.phases, Phases::Random);
    assert!(overridden(area, "target.motion=spiral").unwrap_err().contains("spiral"));
    assert!(overridden(area, "surface.phases=focused").unwrap_err().contains("focused"));
}

/// Texts of the given characters, of at most `most` of them.
fn text(characters: &'static str, most: usize) -> impl Strategy<Value = String> {
    let one = prop::sample::select(characters.chars().collect::<Vec<_>>());
    prop::collection::vec(one, 0..=most).prop_map(|characters| characters.into_iter().collect())
}

/// Texts of any characters.
fn any_text(most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..=most).prop_map(|characters| characters.into_iter().collect())
}

/// Keys that exist, keys that do not, and what is no key.
fn keys() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "seed",
        "target",
        "target.motion",
        "target.motion.circle",
        "target.motion.circle.radius_m",
        "target.rcs_dbsm",
        "surface.phases",
        "surface.phases.aligned.toward_m[0]",
        "channel.angles",
        "imperfections.cross_section",
        "coverage",
        "coverage.min_m[0]",
        "irs",
        "irs[0]",
        "irs[0].position_m[1]",
        "irs[18446744073709551615].position_m",
        "irs[-9223372036854775808]",
        "irs[1].paths",
    ]);
    prop_oneof![3 => known.prop_map(str::to_owned), 1 => text("abz_.[]09 -", 24), 1 => any_text(12)]
}

fn values() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "circle",
        "aligned",
        "random",
        "line",
        "nan",
        "-inf",
        "1e400",
        "true",
        "",
        "[]",
        "{}",
        "[[[[",
        "{a=",
        "{circle=5}",
        "{circle={}}",
        "{circle={radius_m='x'}}",
        "{line={}, circle={}}",
        "{random={}}",
        "'circle'",
        "\"fixed\"",
        "1979-05-27",
        "9223372036854775808",
        "-1",
        "[1, 2]",
        "[nan, nan]",
        "[{}]",
        "[1]\nseed = 3",
        "{aligned=1}",
        "{aligned={toward_m=[1]}}",
        "{fixed={position_m=[1e999, 0]}}",
    ]);
    prop_oneof![3 => known.prop_map(str::to_owned), 1 => any_text(24), 1 => text("-+019.eE_x", 12)]
}

proptest! {
    /// Whatever is given as `--set` or in the environment, there is a scenario or an error, never a panic.
    #[test]
    fn hostile_keys_and_values_are_refused_without_a_panic(
        pairs in prop::collection::vec((keys(), values()), 1..4),
        variable in text("ABT_", 16),
        value in values(),
    ) {
        let overrides = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let motion = ("HYLOC__TARGET__MOTION".to_owned(), value.clone());
        let environment = HashMap::from([motion, (format!("HYLOC__{variable}"), value)]);
        let _ = load_scenario(&Layers { file: None, environment: Some(environment), overrides });
    }
}

#[test]
fn deep_nesting_is_refused() {
    let deep = format!("seed={}", "[".repeat(100_000));
    assert!(overridden("", &deep).is_err());
    assert!(overridden("", &format!("{}=1", "a.".repeat(10_000))).is_err());
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

/// The key of earlier releases is refused by what replaces it, whichever layer has it.
#[test]
fn the_former_key_of_the_clocks_names_its_successors() {
    let key = "imperfections.clock_offset_s";
    let file = "[imperfections]\nclock_offset_s = 1e-9";
    let variable = ("HYLOC__IMPERFECTIONS__CLOCK_OFFSET_S", "1e-9");
    let refusals = [
        refusal(file, &[], &[]),
        refusal("", &[variable], &[]),
        refusal("", &[], &["imperfections.clock_offset_s=1e-9"]),
        refusal("", &[], &["imperfections={clock_offset_s=0}"]),
    ];
    for refusal in refusals {
        for named in [key, "clocks.offset_ns", "nanoseconds", "clocks.prior_ns"] {
            assert!(refusal.contains(named), "{named}: {refusal}");
        }
    }
    assert!(refusal("[imperfections]\nclock_offset = 1.0", &[], &[]).contains("unknown field"));
}
