//! The plans of the report's figures through `hyloc sweep`: the same bytes for any number of threads and shards, and those of
//! `hyloc figures`; what a plan may not say is refused by name.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn hyloc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hyloc")).args(arguments).output().unwrap()
}

fn done(arguments: &[&str]) {
    let output = hyloc(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn refused(plan: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("plan.toml"), plan).unwrap();
    let output = hyloc(&[&["sweep", &path("plan.toml"), "--out", &path("out")], flags].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!([Some(64), Some(65)].contains(&output.status.code()), "{plan}: {said}");
    assert!(!Path::new(&path("out")).exists(), "{plan}: nothing is made");
    said
}

fn plan(figure: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("plans/{figure}.toml"))
}

/// With several units per point, and with several curves.
#[test]
fn a_figure_has_the_same_bytes_on_any_number_of_threads_and_shards() {
    for (figure, trials) in [("crb-irs-count", "30"), ("location-power", "30"), ("imperfections", "1")] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let plan = plan(figure);
        let run = |out: &str, more: &[&str]| {
            done(&[&["sweep", plan.to_str().unwrap(), "--trials", trials, "--out", out], more].concat());
        };
        run(&path("one"), &["--threads", "1"]);
        run(&path("two"), &["--threads", "2"]);
        for shard in ["2/3", "0/3", "1/3"] {
            run(&path("shards"), &["--shard", shard]);
        }
        done(&["sweep", "merge", &path("shards")]);
        done(&["figures", "--only", figure, "--trials", trials, "--out", &path("figures")]);
        let read =
            |name: String| std::fs::read(path(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        for file in ["csv", "svg", "png"].map(|ending| format!("{figure}.{ending}")) {
            let expected = read(format!("figures/{file}"));
            assert!(
                ["one", "two", "shards"].iter().all(|out| read(format!("{out}/{file}")) == expected),
                "{file}"
            );
        }
        for file in ["sweep.csv", "sweep.parquet"] {
            let expected = read(format!("one/{file}"));
            assert!(
                ["two", "shards"].iter().all(|out| read(format!("{out}/{file}")) == expected),
                "{figure}: {file}"
            );
        }
        let csv = String::from_utf8(read("one/sweep.csv".into())).unwrap();
        assert!(csv.lines().next().unwrap().ends_with(",x,scheme,metric,value,low,high,trials"), "{csv}");
        // The long form has the rows of the figure.
        let rows = |text: Vec<u8>| String::from_utf8(text).unwrap().lines().count();
        assert_eq!(csv.lines().count(), rows(read(format!("figures/{figure}.csv"))));
    }
}

/// Units that an interrupted run has left are taken over, unless they are of another plan.
#[test]
fn an_interrupted_figure_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let plan = plan("crb-irs-count");
    done(&["sweep", plan.to_str().unwrap(), "--trials", "50", "--out", &path("whole")]);
    let units = std::fs::read_to_string(path("whole/shard-0-of-1.jsonl")).unwrap();
    // Without the last two of its twelve units; the line before is cut.
    let kept: Vec<&str> = units.lines().collect();
    let left = format!("{}\n{}", kept[..10].join("\n"), &kept[10][..100]);
    for (out, trials) in [("same", "50"), ("other", "51")] {
        let partial = path(&format!("{out}/crb-irs-count.partial"));
        std::fs::create_dir_all(&partial).unwrap();
        std::fs::write(Path::new(&partial).join("shard-0-of-1.jsonl"), &left).unwrap();
        done(&["figures", "--only", "crb-irs-count", "--trials", trials, "--resume", "--out", &path(out)]);
        assert!(!Path::new(&partial).exists());
        let csv = std::fs::read_to_string(path(&format!("{out}/crb-irs-count.csv"))).unwrap();
        assert!(csv.lines().skip(1).all(|line| line.ends_with(&format!(",{trials}"))), "{csv}");
        let same = std::fs::read_to_string(path("whole/crb-irs-count.csv")).unwrap() == csv;
        assert_eq!(same, trials == "50");
    }
}

#[test]
fn what_a_plan_may_not_say_is_refused_by_name() {
    let figure = std::fs::read_to_string(plan("separation")).unwrap();
    let cases = [
        ("measure = \"speed\"".to_owned(), "there is no measure `speed`; there are fix, bounds"),
        ("figure = \"speed\"".into(), "there is no figure `speed`; there are crb-elements"),
        ("figure = \"separation\"".into(), "the figure separation has the measure separation, not fix"),
        ("mesure = \"fix\"".into(), "mesure"),
        ("set = [\"apart_m=1\"]".into(), "apart_m"),
        ("measure = \"separation\"".into(), "the measure needs apart_m"),
        ("measure = \"literal\"\nset = [\"lambda=big\"]".into(), "lambda=big: must be a number"),
        ("measure = \"bounds\"\ngap_interval_db = 1".into(), "gap_interval_db: the measure bounds"),
        ("trials = 0".into(), "trials = 0"),
        ("[[curve]]\nname = \"a\"\naxis = [{ key = \"seed\" }]".into(), "axis seed: give either"),
        ("[[curve]]\nname = \"a\"\nx = 1".into(), "unknown field `x`"),
        (
            "[[axis]]\nkey = \"seed\"\nvalues = [1]\n[[axis]]\nkey = \"seed\"\nvalues = [2]".into(),
            "seed is given twice",
        ),
    ];
    for (plan, named) in cases {
        let said = refused(&plan, &[]);
        assert!(said.contains(named), "{plan}: {said}");
    }
    let said = refused(&figure, &["--grid", "seed=1,2"]);
    assert!(said.contains("the figure separation has its own axes"), "{said}");
}
