//! Sweeps through the command line: the same bytes whatever the number of threads, shards and interruptions.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PLAN: &str = r#"
trials = 60

[[axis]]
key = "base_station.power_dbm"
values = [40, 50]

[[axis]]
key = "method"
values = ["direct", "three-stage"]
"#;

fn sweep(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hyloc")).arg("sweep").args(arguments).output().unwrap()
}

fn done(arguments: &[&str]) -> String {
    let output = sweep(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str], code: i32) -> String {
    let output = sweep(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

fn results(folder: &Path) -> [Vec<u8>; 2] {
    ["sweep.csv", "sweep.parquet"].map(|name| std::fs::read(folder.join(name)).unwrap())
}

/// The file of a sweep that is not divided.
const SHARD: &str = "shard-0-of-1.jsonl";

/// The column `metric` of a point, as value, low and high.
fn metric(csv: &str, point: usize, metric: &str) -> [f64; 3] {
    let row = csv
        .lines()
        .find(|line| line.starts_with(&format!("{point},")) && line.contains(&format!(",{metric},")));
    let fields: Vec<&str> = row.unwrap_or_else(|| panic!("{metric} of {point}: {csv}")).split(',').collect();
    [fields.len() - 4, fields.len() - 3, fields.len() - 2].map(|i| fields[i].parse().unwrap())
}

#[test]
fn threads_shards_and_interruptions_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let plan = path("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let whole = path("whole");
    let said = done(&[&plan, "--out", &whole]);
    assert!(said.contains("rms error") && said.contains("three-stage"), "{said}");
    let expected = results(Path::new(&whole));

    let one = path("one");
    done(&[&plan, "--out", &one, "--threads", "1"]);
    assert_eq!(results(Path::new(&one)), expected, "one thread");

    for shards in [3, 7] {
        let out = path(&format!("shards-{shards}"));
        // All at once, as on a cluster: they share the folder.
        std::thread::scope(|scope| {
            for index in (0..shards).rev() {
                let (plan, out) = (&plan, &out);
                scope.spawn(move || done(&[plan, "--out", out, "--shard", &format!("{index}/{shards}")]));
            }
        });
        done(&["merge", &out]);
        assert_eq!(results(Path::new(&out)), expected, "{shards} shards");
    }

    // The state after an interruption: some units, and a line that is cut.
    let cut = path("cut");
    std::fs::create_dir(&cut).unwrap();
    std::fs::copy(Path::new(&whole).join("plan.json"), Path::new(&cut).join("plan.json")).unwrap();
    let units = std::fs::read_to_string(Path::new(&whole).join(SHARD)).unwrap();
    let lines: Vec<&str> = units.lines().collect();
    std::fs::write(Path::new(&cut).join(SHARD), format!("{}\n{}", lines[..4].join("\n"), &lines[4][..99]))
        .unwrap();
    let said = refused(&[&plan, "--out", &cut], 64);
    assert!(said.contains("--resume"), "{said}");
    done(&[&plan, "--out", &cut, "--resume"]);
    assert_eq!(results(Path::new(&cut)), expected, "interrupted");
    let resumed = std::fs::read_to_string(Path::new(&cut).join(SHARD)).unwrap();
    assert!(resumed.starts_with(&lines[..4].join("\n")) && resumed.lines().count() == lines.len());

    // What the numbers are: at 50 dBm both methods are at the bound, with consistent covariances.
    let csv = String::from_utf8(expected[0].clone()).unwrap();
    assert!(csv.starts_with("point,base_station.power_dbm,method,metric,value,low,high,trials\n"), "{csv}");
    for point in [2, 3] {
        let [gap_db, low_db, high_db] = metric(&csv, point, "gap_db");
        // 60 trials of two coordinates: the gap scatters by 0.56 dB.
        assert!(gap_db.abs() < 1.7 && low_db < gap_db && gap_db < high_db, "{gap_db}");
        assert!((1.2..3.2).contains(&metric(&csv, point, "nees")[0]));
        assert_eq!(metric(&csv, point, "availability")[0], 1.0);
    }
    // Ten dB of power are ten dB of the bound.
    let bound = |point| metric(&csv, point, "bound_rms_m")[0];
    assert!((bound(0) / bound(2) - 10f64.sqrt()).abs() < 1e-9);
}

#[test]
fn faults_of_shards_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let grid = ["--grid", "base_station.power_dbm=50", "--trials", "50", "--set", "seed=4"];
    let shard = |of: &'static str| [&grid[..], &["--out", out, "--shard", of]].concat();
    done(&shard("1/2"));
    let said = refused(&["merge", out], 65);
    assert!(said.contains("shard-0-of-2.jsonl is missing"), "{said}");
    let other =
        [&["--grid", "base_station.power_dbm=55", "--trials", "50", "--out", out, "--shard", "0/2"][..]]
            .concat();
    let said = refused(&other, 64);
    assert!(said.contains("another plan") && said.contains("--out"), "{said}");
    done(&shard("0/2"));

    let file = Path::new(out).join("shard-0-of-2.jsonl");
    let whole = std::fs::read_to_string(&file).unwrap();
    let with = |text: &str, named: &str| {
        std::fs::write(&file, text).unwrap();
        let said = refused(&["merge", out], 65);
        assert!(said.contains("shard-0-of-2.jsonl") && said.contains(named), "{said}");
        assert!(!Path::new(out).join("sweep.csv").exists(), "nothing is written");
    };
    let header = whole.lines().next().unwrap();
    with(&format!("{header}\n"), "incomplete");
    with(&whole.replacen("\"found\":1", "\"found\":2", 1), "checksum");
    with(&whole.replacen("\"sources\":\"", "\"sources\":\"0", 1), "other sources");
    with("", "empty");
    std::fs::write(&file, &whole).unwrap();
    std::fs::write(Path::new(out).join("shard-0-of-3.jsonl"), &whole).unwrap();
    let said = refused(&["merge", out], 65);
    assert!(said.contains("shard-0-of-3.jsonl"), "{said}");
    std::fs::remove_file(Path::new(out).join("shard-0-of-3.jsonl")).unwrap();
    done(&["merge", out]);
}

#[test]
fn a_point_ends_when_its_interval_is_narrow_enough() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let grid = "base_station.power_dbm=50,60";
    done(&["--grid", grid, "--set", "seed=2", "--trials", "400", "--gap-interval-db", "4", "--out", out]);
    let csv = std::fs::read_to_string(Path::new(out).join("sweep.csv")).unwrap();
    for point in [0, 1] {
        let [_, low, high] = metric(&csv, point, "gap_db");
        let trials: u64 = csv
            .lines()
            .filter(|line| line.starts_with(&format!("{point},")))
            .map(|line| line.rsplit(',').next().unwrap().parse::<u64>().unwrap())
            .max()
            .unwrap();
        assert!(
            high - low <= 4.0 && trials < 400 && trials.is_multiple_of(25),
            "{low} to {high} after {trials}"
        );
    }
}

#[test]
fn several_targets_have_gospa_and_bad_axes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let out = path("targets");
    done(&["--grid", "targets=0,2", "--trials", "25", "--out", &out]);
    let csv = std::fs::read_to_string(Path::new(&out).join("sweep.csv")).unwrap();
    assert_eq!(metric(&csv, 0, "false_alarm_rate")[0], 0.0);
    assert!(metric(&csv, 1, "count_right_rate")[0] > 0.7 && metric(&csv, 1, "gospa_m")[0] < 1.0, "{csv}");
    for (axis, named) in [
        ("base_station.power=50", "power"),
        ("method=fast", "method"),
        ("nodes=many", "nodes"),
        ("a", "key=a,b,c"),
        ("base_station.power_dbm=1:2:0", "range"),
    ] {
        let out = path("bad");
        let said = refused(&["--grid", axis, "--trials", "5", "--out", &out], 64);
        assert!(said.contains(named), "{axis}: {said}");
        assert!(!Path::new(&out).exists(), "{axis}: nothing is made");
    }
    let said = refused(&["merge", &path("nowhere")], 65);
    assert!(said.contains("plan.json"), "{said}");
}

/// The sweep takes hours, so that it is not complete however late its first units are noticed.
#[test]
fn an_interrupted_sweep_keeps_its_units() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut running = Command::new(env!("CARGO_BIN_EXE_hyloc"))
        .args(["sweep", "--grid", "base_station.power_dbm=40,50", "--trials", "100000", "--out"])
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let units =
        || std::fs::read_to_string(out.join(SHARD)).map_or(0, |text| text.lines().count().saturating_sub(1));
    while units() < 2 {
        assert!(running.try_wait().unwrap().is_none(), "ended before its first units");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(
        said.contains(&format!("{} of 8000 units are kept", units())) && said.contains("--resume"),
        "{said}"
    );
    assert!(!out.join("sweep.csv").exists());
    let said = refused(&["merge", out.to_str().unwrap()], 65);
    assert!(said.contains("incomplete"), "{said}");
}
