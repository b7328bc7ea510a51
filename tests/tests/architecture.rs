//! The invariants of ARCHITECTURE.md that can be checked in the source text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const CRATES: [&str; 14] = [
    "model",
    "estimation",
    "tracking",
    "arrays",
    "settings",
    "trust",
    "proto",
    "telemetry",
    "simulator",
    "irs-node",
    "fusion-center",
    "backhaul",
    "hyloc",
    "python",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn offenders(folder: &str, forbidden: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources(&root().join(folder)) {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in forbidden {
            if text.contains(word) {
                found.push(format!("{}: {word}", path.display()));
            }
        }
    }
    found
}

#[test]
fn the_core_is_pure() {
    let forbidden = [
        "std::fs",
        "std::net",
        "std::io",
        "std::env",
        "std::process",
        "std::time",
        "Instant::now",
        "SystemTime",
        "tokio",
        "tracing",
        "async ",
        "println!(",
        "print!(",
    ];
    for folder in ["model/src", "estimation/src", "tracking/src"] {
        assert_eq!(offenders(folder, &forbidden), Vec::<String>::new());
    }
}

#[test]
fn tracking_knows_no_signals() {
    // Tracks are made from laws of positions; what made them stays outside.
    let manifest = std::fs::read_to_string(root().join("tracking/Cargo.toml")).unwrap();
    for name in ["model", "estimation", "rayon"] {
        assert!(!manifest.lines().any(|line| line.starts_with(&format!("{name}."))), "{name}");
    }
}

#[test]
fn estimation_never_sees_the_truth() {
    // Only the echo source knows the position of the target. Scenes of unit tests are not part of the library.
    let found = offenders("estimation/src", &["EchoSource", "model::echo", "target_m("]);
    let of_library: Vec<String> =
        found.into_iter().filter(|place| !place.contains("/test_scene.rs: ")).collect();
    assert_eq!(of_library, Vec::<String>::new());
    for folder in ["direct", "location"] {
        let module =
            std::fs::read_to_string(root().join("estimation/src").join(folder).join("mod.rs")).unwrap();
        assert!(module.contains("#[cfg(test)]\nmod test_scene;"), "{folder}");
    }
}

#[test]
fn truth_is_for_display_only() {
    // The service receives it, publisher and journal join it to a finished fix and its tracks, recordings store it.
    let may_know = [
        "told.rs",
        "truth.rs",
        "channels.rs",
        "judge.rs",
        "service.rs",
        "publish.rs",
        "journal.rs",
        "recording.rs",
        "recorded.rs",
        "recorded/entries.rs",
        "replay.rs",
        "replay/solver.rs",
        "run.rs",
        "score.rs",
    ];
    for path in sources(&root().join("fusion-center/src")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let knows = |word: &&str| text.contains(*word);
        let found = ["crate::truth", "crate::told", "TruthStore", "TruthRecord", "EchoSource"]
            .into_iter()
            .find(knows);
        let allowed = may_know.iter().any(|name| path.ends_with(name));
        assert!(allowed || found.is_none(), "{}: {found:?}", path.display());
    }
    assert_eq!(offenders("irs-node/src", &["TruthRecord", "EchoSource", "target_m("]), Vec::<String>::new());
}

#[test]
fn nodes_and_fusion_center_know_the_site_alone() {
    // A scenario contains the target, its motion and cross-section, and the seed. Settings derive the site from it at
    // once; nothing else in these crates may use it.
    let secrets = ["Scenario", "EchoSource", "Motion", "Imperfections", "seed", "rcs_dbsm", "motion_m"];
    let mut found = Vec::new();
    for folder in ["irs-node/src", "fusion-center/src"] {
        for path in sources(&root().join(folder)) {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let code = code.join("\n");
            let words: Vec<&str> = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let named = secrets.iter().filter(|secret| words.contains(*secret));
            found.extend(named.map(|secret| format!("{}: {secret}", path.display())));
        }
    }
    assert_eq!(found, Vec::<String>::new());
    let wire = std::fs::read_to_string(root().join("proto/hyloc/v1/fusion.proto")).unwrap();
    for secret in ["scenario", "seed ", "motion"] {
        let fields = wire.lines().map(|line| line.split("//").next().unwrap_or_default());
        assert!(fields.into_iter().all(|line| !line.contains(secret)), "the wire carries {secret}");
    }
}

#[test]
fn the_wire_ends_at_its_conversions() {
    // The gRPC service with its replies, the truth as it is told, the encoding of messages, and recordings, which consist of messages.
    let converts = [
        "service.rs",
        "told.rs",
        "reply.rs",
        "wire.rs",
        "recording.rs",
        "recorded.rs",
        "recorded/entries.rs",
        "replay.rs",
        "replay/solver.rs",
        "replay/comparison.rs",
        "run.rs",
    ];
    for path in sources(&root().join("fusion-center/src")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let allowed = converts.iter().any(|name| path.ends_with(name));
        assert!(allowed || !text.contains("v1::"), "{} knows a wire type", path.display());
    }
    assert_eq!(offenders("estimation/src", &["proto::", "tonic"]), Vec::<String>::new());
    let others = ["fusion-center/src", "irs-node/src", "simulator/src", "hyloc/src", "telemetry/src"];
    for folder in others {
        assert_eq!(offenders(folder, &["zeromq::", "bincode::"]), Vec::<String>::new());
    }
}

#[test]
fn ports_are_served_with_limits() {
    // Accept loops of other kinds have no limit of connections and no timeout.
    let own = ["axum::serve", "TcpListenerStream", "TcpIncoming", "Server::builder()", ".accept().await"];
    for folder in
        ["fusion-center/src", "irs-node/src", "simulator/src", "backhaul/src", "telemetry/src", "hyloc/src"]
    {
        let elsewhere = |found: &String| {
            // The accept loop itself with its table, what uses it, and the relay's measurement of itself.
            let uses = [
                "telemetry/src/listener",
                "telemetry/src/http.rs",
                "backhaul/src/relay.rs",
                "backhaul/src/measure.rs",
            ];
            !uses.iter().any(|path| found.contains(path))
        };
        let found: Vec<String> = offenders(folder, &own).into_iter().filter(elsewhere).collect();
        assert_eq!(found, Vec::<String>::new());
    }
}

#[test]
fn the_page_makes_no_markup_from_text() {
    for entry in std::fs::read_dir(root().join("fusion-center/assets")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=\""] {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
    }
}

/// Small enough to be part of the executable, as it is written: no build step, nothing from other hosts.
#[test]
fn the_page_is_small_and_fetches_nothing_from_elsewhere() {
    let mut bytes = 0;
    for entry in std::fs::read_dir(root().join("fusion-center/assets")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        bytes += text.len();
        let others = text.replace("http://www.w3.org/2000/svg", "");
        for word in ["://", "import(", "@import", "require("] {
            assert!(!others.contains(word), "{}: {word}", path.display());
        }
    }
    assert!(bytes <= 120_000, "{bytes} bytes");
}

#[test]
fn mains_are_short() {
    for process in ["fusion-center", "irs-node", "simulator", "hyloc"] {
        let text = std::fs::read_to_string(root().join(process).join("src/main.rs")).unwrap();
        assert!(text.lines().count() < 100, "{process}");
    }
}

#[test]
fn randomness_has_one_door() {
    for folder in ["model/src", "estimation/src", "tracking/src"] {
        let found: Vec<String> =
            offenders(folder, &["rand::rng()", "thread_rng", "from_os_rng", "from_entropy"]);
        assert_eq!(found, Vec::<String>::new());
    }
    for folder in ["estimation/src", "tracking/src"] {
        assert_eq!(offenders(folder, &["rand_chacha", "use rand::"]), Vec::<String>::new());
    }
    // Secrets come from the operating system, in one place.
    let processes =
        ["telemetry", "settings", "simulator", "irs-node", "fusion-center", "backhaul", "hyloc", "proto"];
    let others = processes.map(|name| offenders(&format!("{name}/src"), &["getrandom::"])).concat();
    assert!(others.len() == 1 && others[0].contains("secret.rs"), "{others:?}");
}

#[test]
fn files_stay_readable() {
    let long: Vec<String> = CRATES
        .iter()
        .map(|name| format!("{name}/src"))
        .flat_map(|folder| sources(&root().join(folder)))
        .filter_map(|path| {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            (lines > 500).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect();
    assert_eq!(long, Vec::<String>::new());
}

/// A reader who searches for a type finds one. Types of tests do not count, nor do those that are generated.
#[test]
fn a_type_name_has_one_meaning() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in CRATES {
        for path in sources(&root().join(folder).join("src")) {
            let inside = path.strip_prefix(root()).unwrap();
            if inside
                .components()
                .any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name))
            {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            for line in code.lines().filter(|line| !line.starts_with(char::is_whitespace)) {
                let words: Vec<&str> = line.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
                let kind = words.iter().position(|word| ["struct", "enum", "trait", "type"].contains(word));
                if let Some(name) =
                    kind.filter(|_| !line.starts_with('/')).and_then(|kind| words.get(kind + 1))
                {
                    places.entry((*name).to_owned()).or_default().push(path.display().to_string());
                }
            }
        }
    }
    assert!(places.len() > 300, "{} types", places.len());
    places.retain(|_, places| places.len() > 1);
    assert_eq!(places, BTreeMap::new());
}
