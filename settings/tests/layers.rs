//! Each layer overrides the one before it, and nothing unknown slips through.

use std::collections::HashMap;
use std::io::Write;

use hyloc_settings::{
    Layers, ScenarioChoice, SettingsError, changed_scenario, load_scenario, scenario_of_text,
};
use model::scenario::{Motion, PathAngles, Phases};
use model::{EchoSource, Scenario};
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

/// A list of targets replaces the one of the defaults; its items are set one by one.
#[test]
fn targets_are_a_table_or_a_list() {
    let two =
        "[[target]]\nmotion = \"circle\"\n[[target]]\nrcs_dbsm = 1.0\nmotion = \"walk\"\nuntil_frame = 9";
    let scenario = overridden(two, "seed=3").unwrap();
    let named = |name| Motion::named(name, &scenario.coverage, 500).unwrap();
    let found: Vec<_> = scenario.targets.iter().map(|t| (t.rcs_dbsm, t.motion.clone())).collect();
    assert_eq!(found, [(7.0, named("circle")), (1.0, named("walk"))]);
    assert_eq!(overridden(two, "target[1].motion=line").unwrap().targets[1].motion, named("line"));
    assert_eq!(overridden(two, "target=[]").unwrap().targets, []);
    assert_eq!(overridden("target = []", "seed=3").unwrap().targets, []);
    assert_eq!(overridden("", "target=[{motion='walk'}, {}, {}]").unwrap().targets.len(), 3);
    let written = toml::to_string(&scenario).unwrap();
    assert_eq!(overridden(&written, "seed=3").unwrap(), scenario, "{written}");
    let none = toml::to_string(&Scenario::default().with_targets(0)).unwrap();
    assert_eq!(overridden(&none, "seed=1").unwrap().targets, [], "{none}");
    for (toml, pair, part) in [
        (two, "target.motion=walk", "motion of a list of 2"),
        (two, "target[1].until_frame=0", "target[1].until_frame = 0"),
        (two, "target[1].motion.line.frames=0", "target[1]: "),
        (two, "target[2].rcs_dbsm=1", "a list of 2"),
        ("[[target]]\n[[target]]\nsize = 1", "seed=3", "target[1]: unknown field `size`"),
        ("[target]\nsize = 1", "seed=3", "unknown field `size`"),
        ("", "target=7", "the table of a target"),
    ] {
        let message = overridden(toml, pair).unwrap_err();
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn the_number_of_targets_can_be_chosen() {
    let choice = |targets| ScenarioChoice { targets: Some(targets), ..ScenarioChoice::default() }.load();
    assert_eq!(choice(1).unwrap(), Scenario::default());
    assert_eq!(choice(4).unwrap(), Scenario::default().with_targets(4));
    assert_eq!(choice(0).unwrap().targets, []);
    let message = choice(17).unwrap_err().to_string();
    assert!(message.contains("targets = 17: must be at most 16"), "{message}");
    let file = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/scenarios/crossing.toml").into());
    let own = ScenarioChoice { file, targets: Some(3), ..ScenarioChoice::default() }.load().unwrap();
    assert!(matches!(own.targets[0].motion, Motion::Line { .. }), "as many as there are: unchanged");
}

/// Two targets of the scenario pass each other at 1.3 m, at the speed that its comments state.
#[test]
fn targets_of_the_crossing_pass_each_other() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/scenarios/crossing.toml");
    let source = EchoSource::new(&load_scenario(&Layers::from_file(file)).unwrap()).unwrap();
    let (mut nearest_m, mut before) = (f64::INFINITY, source.targets(0));
    for frame in 1..600 {
        let targets = source.targets(frame);
        assert_eq!(targets.len(), 3);
        nearest_m = nearest_m.min((targets[0].position_m - targets[1].position_m).norm());
        for t in 0..2 {
            let step_m = (targets[t].position_m - before[t].position_m).norm();
            assert!((step_m - 0.075).abs() < 1e-9, "{step_m}");
        }
        before = targets;
    }
    assert!((1.2..1.4).contains(&nearest_m), "{nearest_m}");
    let people = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/scenarios/hall-people.toml");
    assert_eq!(load_scenario(&Layers::from_file(people)).unwrap().targets.len(), 3);
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
        "target[0].motion",
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

#[test]
fn a_text_is_read_and_a_scenario_changed_without_the_environment() {
    let scenario = scenario_of_text("seed = 7\n[target]\nmotion = 'circle'\n").unwrap();
    assert_eq!((scenario.seed, scenario.irs.len()), (7, 3));
    let pairs = |pairs: &[&str]| pairs.iter().map(|pair| (*pair).to_owned()).collect::<Vec<_>>();
    let changed =
        changed_scenario(&scenario, pairs(&["base_station.power_dbm=40", "irs[0].position_m=[1, 60]"]))
            .unwrap();
    assert_eq!((changed.seed, changed.base_station.power_dbm), (7, 40.0));
    assert_eq!((changed.irs[0].position_m, &changed.targets), ([1.0, 60.0, 0.0], &scenario.targets));
    let refused = |error: SettingsError| error.to_string();
    let unknown = changed_scenario(&scenario, pairs(&["nonsense=1"])).map_err(refused).unwrap_err();
    assert!(unknown.starts_with("settings: unknown field `nonsense`"), "{unknown}");
    let old = scenario_of_text("[imperfections]\nclock_offset_s = 1e-9").map_err(refused).unwrap_err();
    assert!(old.contains("is now clocks.offset_ns"), "{old}");
    assert!(scenario_of_text("seed =").map_err(refused).unwrap_err().contains("no valid TOML"));
    let long = format!("# {}", "x".repeat(1 << 20));
    assert!(scenario_of_text(&long).map_err(refused).unwrap_err().contains("more than 1048576 bytes"));
}
