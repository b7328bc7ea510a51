//! `hyloc figures` with real processes and files, and few trials.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;

const HEADER: &str = "figure,x,scheme,metric,value,low,high,trials";
const NAMES: [&str; 16] = [
    "crb-elements",
    "crb-sensors",
    "crb-coverage",
    "crb-irs-count",
    "angle-power",
    "angle-power-full-rank",
    "literal-sweep",
    "location-power",
    "location-distance",
    "end-to-end-power",
    "imperfections",
    "backhaul-accuracy",
    "near-field",
    "clocks",
    "separation",
    "tracking-power",
];

fn figures(out: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hyloc"))
        .args(["figures", "--out"])
        .arg(out)
        .args(arguments)
        .output()
        .unwrap()
}

fn made(out: &Path, arguments: &[&str]) -> String {
    let output = figures(out, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.lines().all(|line| line.contains(" trials per point, figure ")),
        "no bars off a terminal: {said}"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn read(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).unwrap()
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// x, scheme, metric, value, low, high, trials of every row.
fn rows(csv: &str) -> Vec<(f64, String, String, [f64; 3], u64)> {
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(HEADER));
    lines
        .map(|line| {
            let f: Vec<&str> = line.split(',').collect();
            assert_eq!(f.len(), 8, "{line}");
            let number = |i: usize| f[i].parse::<f64>().unwrap();
            (number(1), f[2].into(), f[3].into(), [number(4), number(5), number(6)], f[7].parse().unwrap())
        })
        .collect()
}

#[test]
fn every_figure_and_the_report_are_the_same_on_one_and_two_threads() {
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    made(one.path(), &["--trials", "2", "--threads", "1"]);
    made(two.path(), &["--trials", "2", "--threads", "2"]);
    let mut expected: Vec<String> =
        NAMES.iter().flat_map(|n| ["csv", "png", "svg"].map(|e| format!("{n}.{e}"))).collect();
    expected.extend(["manifest.json", "report.html", "report.md"].map(String::from));
    expected.sort();
    assert_eq!(names_in(one.path()), expected);
    for name in expected {
        let same = fs::read(one.path().join(&name)).unwrap() == fs::read(two.path().join(&name)).unwrap();
        assert!(same, "{name} differs");
    }
    for name in NAMES {
        let csv = read(&one, &format!("{name}.csv"));
        for (x, scheme, metric, [value, low, high], trials) in rows(&csv) {
            assert!(low <= value && value <= high, "{name} {x} {scheme} {metric}: {low} {value} {high}");
            // Those of Stone Soup are of committed runs.
            assert!((1..=2).contains(&trials) || scheme == "stone-soup");
        }
        assert_eq!(&fs::read(one.path().join(format!("{name}.png"))).unwrap()[..4], b"\x89PNG");
        let svg = read(&one, &format!("{name}.svg"));
        // Where the question is another one, another bound takes the place of the paper's.
        let bound = match name {
            "near-field" => "if waves were plane",
            "clocks" => "bound, ten frames",
            "separation" => "bound, one target",
            "tracking-power" => "posterior bound",
            _ => "paper's bound",
        };
        for word in ["exact", bound, "stroke-dasharray", "<text"] {
            assert!(svg.contains(word), "{name}.svg has no {word}");
        }
    }
    report_is_whole(&one);
    angle_power_has_its_metrics(&read(&one, "angle-power.csv"));
}

/// Every claim has a verdict, and the page is self-contained.
fn report_is_whole(folder: &TempDir) {
    let (markdown, html) = (read(folder, "report.md"), read(folder, "report.html"));
    let claims: Vec<&str> = markdown
        .lines()
        .skip_while(|line| *line != "## Verdicts")
        .take_while(|line| *line != "## Reasons")
        .filter(|line| line.starts_with("| ") && !line.starts_with("| claim") && !line.starts_with("| ---"))
        .collect();
    assert_eq!(claims.len(), 25);
    for claim in &claims {
        let verdict = claim.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        assert!(["reproduced", "partly", "not reproduced"].contains(&verdict), "{claim}");
        let id = claim.trim_start_matches("| ").split(' ').next().unwrap();
        assert!(html.contains(&format!("<tr id=\"{id}\">")), "{id}");
        assert!(markdown.contains(&format!("- **{id}** (")), "{id} has no reason");
    }
    for part in ["7 dB", "1/N", "M^3 N", "M N^3", "30 m", "4 dB", "10 dB", "ESPRIT", "Capon", "WLS", "with d"]
    {
        assert!(claims.iter().any(|claim| claim.contains(part)), "no claim on {part}");
    }
    assert_eq!(html.matches("<svg").count(), NAMES.len());
    assert!(!html.contains("<img") && !html.contains("href=") && !html.contains("src="));
}

/// Every documented metric exists for every scheme at every power.
fn angle_power_has_its_metrics(csv: &str) {
    let rows = rows(csv);
    let count = |metric: &str| rows.iter().filter(|row| row.2 == metric).count();
    for metric in ["mse_rad2", "gap_exact_db", "gap_paper_db", "gross_error_share"] {
        assert_eq!(count(metric), 9 * 18, "{metric}");
    }
    assert_eq!(count("crb_rad2"), 9 * 2);
    let at = |scheme: &str, metric: &str| {
        rows.iter().find(|row| row.0 == 70.0 && row.1 == scheme && row.2 == metric).unwrap().3[0]
    };
    // Mean squared error and bound are means of the same trials, so that the gap is their ratio.
    let ratio = 10.0 * (at("music-all-blocks", "mse_rad2") / at("exact-bound", "crb_rad2")).log10();
    assert!((ratio - at("music-all-blocks", "gap_exact_db")).abs() < 1e-3);
    assert!(at("exact-bound", "crb_rad2") > at("paper-bound", "crb_rad2"));
    assert!(at("paper-literal", "gap_exact_db") > 30.0);
    assert!(at("proposed-polished", "gap_exact_db") < 10.0);
}

#[test]
fn only_makes_what_is_named_and_keeps_the_rest() {
    let folder = TempDir::new().unwrap();
    made(folder.path(), &["--only", "crb-sensors", "location-power", "--trials", "3"]);
    let before = read(&folder, "location-power.csv");
    let report = read(&folder, "report.md");
    assert!(report.contains("not in this directory: angle-power"), "{report}");
    assert!(!folder.path().join("angle-power.csv").exists());

    made(folder.path(), &["--only", "crb-sensors", "--trials", "4", "--seed", "9"]);
    assert_eq!(read(&folder, "location-power.csv"), before);
    assert!(rows(&read(&folder, "crb-sensors.csv")).iter().all(|row| row.4 == 4));
    assert!(read(&folder, "report.md").contains("--only crb-sensors --trials 4 --seed 9"));
}

#[test]
fn resume_takes_over_what_is_finished_and_was_made_the_same_way() {
    let folder = TempDir::new().unwrap();
    let both = ["--only", "crb-sensors", "location-power", "--trials", "3"];
    made(folder.path(), &both);
    let (sensors, power) = (read(&folder, "crb-sensors.csv"), read(&folder, "location-power.csv"));

    // The state after an interruption: one figure half-written under a temporary name.
    fs::remove_file(folder.path().join("location-power.csv")).unwrap();
    fs::remove_file(folder.path().join("report.md")).unwrap();
    fs::write(folder.path().join("location-power.csv.partial"), "figure,x").unwrap();
    let resumed = [&both[..], &["--resume"]].concat();
    assert!(made(folder.path(), &resumed).starts_with("Figures: 1 made, 1 taken over."));
    assert_eq!(read(&folder, "crb-sensors.csv"), sensors);
    assert_eq!(read(&folder, "location-power.csv"), power);
    assert!(folder.path().join("report.md").exists());
    assert!(!folder.path().join("location-power.csv.partial").exists());

    // Other sources: the figure is made again.
    let manifest = read(&folder, "manifest.json");
    let sources = manifest.split("\"sources\": \"").nth(1).unwrap()[..16].to_owned();
    assert_ne!(sources, "0123456789abcdef");
    fs::write(folder.path().join("manifest.json"), manifest.replacen(&sources, "0123456789abcdef", 1))
        .unwrap();
    assert!(made(folder.path(), &resumed).starts_with("Figures: 1 made, 1 taken over."));
    assert_eq!(read(&folder, "manifest.json"), manifest);

    // Other settings, or a modified file: the figure is made again.
    let other = [&resumed[..], &["--seed", "2"]].concat();
    assert!(made(folder.path(), &other).starts_with("Figures: 2 made, 0 taken over."));
    assert_ne!(read(&folder, "location-power.csv"), power);
    fs::write(folder.path().join("crb-sensors.csv"), sensors).unwrap();
    assert!(made(folder.path(), &other).starts_with("Figures: 1 made, 1 taken over."));
    assert!(made(folder.path(), &other).starts_with("Figures: 0 made, 2 taken over."));
}

/// Plots and report depend only on the data: drawn again without trials, they are the same.
#[test]
fn redrawing_gives_the_same_files() {
    let folder = TempDir::new().unwrap();
    made(folder.path(), &["--only", "crb-sensors", "literal-sweep", "--trials", "2"]);
    let before: Vec<_> = names_in(folder.path());
    let bytes = |name: &String| fs::read(folder.path().join(name)).unwrap();
    let held: Vec<_> = before.iter().map(bytes).collect();
    for name in ["report.md", "crb-sensors.png"] {
        fs::write(folder.path().join(name), "stale").unwrap();
    }
    assert!(made(folder.path(), &["--redraw"]).starts_with("Figures: 0 made, 0 taken over."));
    assert_eq!(names_in(folder.path()), before);
    for (name, held) in before.iter().zip(held) {
        assert_eq!(bytes(name), held, "{name}");
    }
}

#[test]
fn bad_arguments_end_with_a_sentence_and_nothing_written() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("deep/out");
    fs::write(folder.path().join("file"), "kept").unwrap();
    let (in_file, file) = (folder.path().join("file/out"), folder.path().join("file"));
    let cases: [(&Path, &[&str], &str, i32); 5] = [
        (&out, &["--only", "crb-sensors", "crb-sensor"], "there is no figure `crb-sensor`", 64),
        (&out, &["--trials", "0"], "--trials 0", 64),
        (&out, &["--trials", "99999999"], "--trials 99999999", 64),
        (&in_file, &["--trials", "1"], "cannot write to the output directory", 74),
        (&file, &["--trials", "1"], "it is a file", 74),
    ];
    for (out, arguments, part, code) in cases {
        let output = figures(out, arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.contains(part) && message.lines().count() == 1, "{message}");
        assert!(output.stdout.is_empty());
        assert_eq!(names_in(folder.path()), ["file"], "{arguments:?}");
    }
}

#[test]
fn an_interrupted_run_leaves_only_whole_figures() {
    let folder = TempDir::new().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_hyloc"))
        .args(["figures", "--only", "crb-sensors", "angle-power", "--trials", "400", "--out"])
        .arg(folder.path())
        .spawn()
        .unwrap();
    // The first figure takes seconds, the second minutes: it is not complete however late the first one is noticed.
    while !folder.path().join("manifest.json").exists() {
        assert!(child.try_wait().unwrap().is_none(), "ended before its first figure");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left: Vec<String> =
        names_in(folder.path()).into_iter().filter(|n| !n.ends_with(".partial")).collect();
    assert_eq!(left, ["crb-sensors.csv", "crb-sensors.png", "crb-sensors.svg", "manifest.json"]);
    let resumed = made(folder.path(), &["--only", "crb-sensors", "--trials", "400", "--resume"]);
    assert!(resumed.starts_with("Figures: 0 made, 1 taken over."), "{resumed}");
}

/// The figure takes hours, so that it is not complete however late its first units are noticed.
#[test]
fn a_signal_ends_a_run_that_can_go_on() {
    let folder = TempDir::new().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_hyloc"))
        .args(["figures", "--only", "angle-power", "--trials", "100000", "--out"])
        .arg(folder.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let units = folder.path().join("angle-power.partial/shard-0-of-1.jsonl");
    while fs::read_to_string(&units).map_or(0, |text| text.lines().count()) < 2 {
        assert!(child.try_wait().unwrap().is_none(), "ended before its first unit");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(
        said.contains("of 36000 units of angle-power are kept in") && said.contains("--resume"),
        "{said}"
    );
    assert_eq!(names_in(folder.path()), ["angle-power.partial"]);
}
