//! The documents agree with each other and point at what is there.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rows of the table whose head ends with the verdict, cell by cell.
fn verdicts(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().skip_while(|line| !line.trim_end().ends_with("| verdict |")).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// What the README says of the claims is what the report says, row by row.
#[test]
fn the_readme_tells_what_the_report_found() {
    let (readme, report) = (read(&root().join("README.md")), read(&root().join("docs/figures/report.md")));
    let found: Vec<Vec<&str>> = verdicts(&report).into_iter().map(|row| row[1..].to_vec()).collect();
    assert!(found.len() > 20 && found.iter().all(|row| row.len() == 3));
    assert_eq!(verdicts(&readme), found);
    let count = |verdict: &str| found.iter().filter(|row| row[2] == verdict).count();
    let counts = format!(
        "{} reproduced, {} partly, {} not reproduced",
        count("reproduced"),
        count("partly"),
        count("not reproduced")
    );
    assert!(readme.contains(&format!("Of its {} claims: {counts}", found.len())) && report.contains(&counts));
}

/// Every link to a file of the project leads somewhere.
#[test]
fn links_lead_somewhere() {
    let folders = ["", "benchmarks", "deploy", "docs", "docs/figures", "tests/vectors"];
    let mut seen = 0;
    for folder in folders.map(|folder| root().join(folder)) {
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
            for link in read(&file).split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
                if link.is_empty() || link.contains("://") {
                    continue;
                }
                seen += 1;
                assert!(folder.join(link).exists(), "{}: {link} is not there", file.display());
            }
        }
    }
    assert!(seen > 20, "{seen} links");
}
