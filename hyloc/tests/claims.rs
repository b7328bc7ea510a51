//! The committed data `docs/figures/*.csv` are the only source of the report, the plots, and the numbers in the README and
//! `docs/science`.
//!
//! After a change of claims, tables or plots, run `hyloc figures --redraw --out docs/figures`. After new data, a failing
//! test prints the rows and tables that belong into the documents.

use std::fs;
use std::path::{Path, PathBuf};

use hyloc::figures::catalogue::Figure;
use hyloc::figures::claims::{Claim, ClaimData, Verdict, judged};
use hyloc::figures::rows::{Row, from_csv};
use hyloc::figures::{svg, tables};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn committed(figure: Figure) -> Vec<Row> {
    from_csv(&read(&format!("docs/figures/{figure}.csv"))).unwrap()
}

fn data() -> ClaimData {
    ClaimData::new(Figure::ALL.into_iter().flat_map(committed).collect())
}

fn counts(claims: &[Claim]) -> String {
    let count = |verdict: Verdict| claims.iter().filter(|claim| claim.verdict == verdict).count();
    format!(
        "{} reproduced, {} partly, {} not reproduced",
        count(Verdict::Reproduced),
        count(Verdict::Partly),
        count(Verdict::NotReproduced)
    )
}

#[test]
fn the_report_says_what_the_data_say() {
    let report = read("docs/figures/report.md");
    let claims = judged(&data());
    assert_eq!(claims.len(), 25);
    for claim in &claims {
        let row = format!("| {} | {} | {} | {} |\n", claim.id, claim.paper, claim.measured, claim.verdict);
        assert!(report.contains(&row), "stale, draw again with `hyloc figures --redraw`; expected:\n{row}");
        assert!(report.contains(&claim.reason), "{}: stale reason; expected:\n{}", claim.id, claim.reason);
    }
    assert!(report.contains(&counts(&claims)), "stale counts: {}", counts(&claims));
    for table in tables::all(&data()) {
        assert!(report.contains(&table.markdown()), "stale table:\n{}", table.markdown());
    }
}

#[test]
fn the_plots_show_the_data() {
    for figure in Figure::ALL {
        let committed_svg = read(&format!("docs/figures/{figure}.svg"));
        assert!(svg(figure, &committed(figure)) == committed_svg, "{figure}.svg is stale");
    }
}

/// A value of the committed data.
fn value(figure: Figure, x: f64, scheme: &str, metric: &str) -> f64 {
    let rows = committed(figure);
    let row = rows.iter().find(|row| row.x == x && row.scheme == scheme && row.metric == metric);
    row.unwrap_or_else(|| panic!("{figure} has no {metric} of {scheme} at {x}")).estimate.value
}

/// The text of a document with single spaces, so that line breaks do not matter.
fn in_one_line(name: &str) -> String {
    read(name).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every number in the tables of accuracy follows from the data.
#[test]
fn the_tables_of_accuracy_say_what_the_data_say() {
    let (accuracy, data) = (read("docs/science/accuracy.md"), data());
    for table in [tables::angle_summary(&data), tables::positions(&data), tables::backhaul(&data)] {
        let table = table.unwrap().markdown();
        assert!(accuracy.contains(&table), "docs/science/accuracy.md should hold\n\n{table}");
    }
    let summary = format!("Of the 25 claims in Section VI: {}", counts(&judged(&data)));
    assert!(in_one_line("docs/science/claims.md").contains(&summary), "expected: {summary}");
}

/// The comparison of several IRSs with one, and the summary of accuracy and claims in the README follow from the data.
#[test]
fn the_readme_says_what_the_data_say() {
    let (readme, data) = (in_one_line("README.md"), data());
    let mut expected = Vec::new();
    for count in [2.0, 3.0, 8.0] {
        let of = |scheme: &str, metric: &str| value(Figure::CrbIrsCount, count, scheme, metric);
        let together_cm = 100.0 * of("hybrid", "crb_exact_m2").sqrt();
        let [apart, single] =
            ["no-collaboration", "single-irs"].map(|scheme| of(scheme, "over_hybrid_exact_db"));
        expected.push(format!("| {count} | {together_cm:.1} cm | +{apart:.1} dB | {single:.1} dB |"));
    }
    let single = value(Figure::CrbElements, 10.0, "single-irs", "over_hybrid_exact_db");
    expected.push(format!("bound is {:.1} dB below that of three IRSs", -single));

    let positions = tables::positions(&data).unwrap();
    let column = positions.head.iter().position(|name| name == "50 dBm").unwrap();
    let [three_stage, _, direct] = [0, 1, 2].map(|row| &positions.rows[row][column]);
    expected.push(format!("{three_stage} dB above it in three stages and {direct} dB directly"));

    let [trusted, one_frame, filtered] = ["trusted", "one-frame", "filtered"]
        .map(|scheme| value(Figure::Clocks, 100.0, scheme, "over_known_db"));
    expected.push(format!("single frames are located {one_frame:.1} dB above the bound of known clocks"));
    expected.push(format!("{filtered:.1} dB above it once ten frames have been received"));
    expected.push(format!("with clocks that are trusted it would be {trusted:.1} dB"));

    let claims = judged(&data);
    let count = |verdict: Verdict| claims.iter().filter(|claim| claim.verdict == verdict).count();
    expected.push(format!(
        "Of the {} claims in Section VI of the paper, {} are reproduced, {} partly and {} not",
        claims.len(),
        count(Verdict::Reproduced),
        count(Verdict::Partly),
        count(Verdict::NotReproduced)
    ));
    for text in expected {
        assert!(readme.contains(&text), "the README should say: {text}");
    }
}

/// Figure, x, scheme and metric of every number in the errata.
#[test]
fn the_errata_say_what_the_data_say() {
    let errata = read("docs/science/errata.md");
    let in_db = [
        (Figure::AnglePower, 50.0, "paper-literal", "gap_exact_db"),
        (Figure::AnglePowerFullRank, 50.0, "paper-literal", "gap_exact_db"),
        (Figure::AnglePower, 50.0, "proposed-eigenvector", "gap_exact_db"),
        (Figure::AnglePower, 50.0, "proposed-eigenvector-combined", "gap_exact_db"),
        (Figure::AnglePower, 50.0, "proposed-polished", "gap_exact_db"),
        (Figure::CrbElements, 10.0, "no-collaboration", "over_hybrid_exact_db"),
        (Figure::LocationPower, 50.0, "paper-literal", "gap_exact_db"),
        (Figure::LocationPower, 50.0, "paper-two-stage", "gap_exact_db"),
        (Figure::LocationPower, 50.0, "paper-three-stage", "gap_exact_db"),
        (Figure::LocationPower, 50.0, "two-stage", "gap_exact_db"),
        (Figure::LocationPower, 50.0, "three-stage", "gap_exact_db"),
        (Figure::LocationDistance, 2.0, "paper-three-stage", "gap_exact_db"),
        (Figure::LocationDistance, 2.0, "three-stage", "gap_exact_db"),
        (Figure::Imperfections, -20.0, "leakage", "gap_exact_db"),
        (Figure::Imperfections, -10.0, "leakage", "gap_exact_db"),
        (Figure::NearField, 10.0, "located-plane", "gap_exact_db"),
        (Figure::NearField, 20.0, "located-plane", "gap_exact_db"),
        (Figure::NearField, 40.0, "located-plane", "gap_exact_db"),
        (Figure::NearField, 10.0, "located-spherical", "gap_exact_db"),
        (Figure::NearField, 20.0, "located-spherical", "gap_exact_db"),
        (Figure::NearField, 40.0, "located-spherical", "gap_exact_db"),
        (Figure::NearField, 40.0, "single-irs-spherical", "over_hybrid_db"),
        (Figure::NearField, 40.0, "single-irs-plane", "over_hybrid_db"),
    ];
    let shares = [35.0, 40.0, 50.0].map(|power| (Figure::EndToEndPower, power, "chain", "gross_error_share"));
    let told = |(figure, x, scheme, metric): (Figure, f64, &str, &str), scale: f64, unit: &str| {
        let rows = committed(figure);
        let row = rows.iter().find(|row| row.x == x && row.scheme == scheme && row.metric == metric);
        let [value, low, high] =
            row.map(|row| [row.estimate.value, row.estimate.low, row.estimate.high]).unwrap();
        let text = format!("{:.1} {unit} ({:.1} to {:.1})", scale * value, scale * low, scale * high);
        assert!(
            errata.contains(&text),
            "docs/science/errata.md should say {text}: {figure}, {x}, {scheme}, {metric}"
        );
    };
    in_db.into_iter().for_each(|key| told(key, 1.0, "dB"));
    let matched = [10.0, 20.0, 40.0].map(|count| (Figure::NearField, count, "plane", "matched_energy_share"));
    shares.into_iter().chain(matched).for_each(|key| told(key, 100.0, "%"));
}

/// The claim of 4 dB from the bound refers to the paper's bound, and an interval that only overlaps the range is not
/// sufficient.
#[test]
fn no_verdict_rests_on_mere_overlap() {
    let claims = judged(&data());
    let gap = claims.iter().find(|claim| claim.id == "angle-gap").unwrap();
    assert!(gap.measured.contains("above the paper's bound"), "{}", gap.measured);
    // With S_k of Table I the distance is far from 4 dB, so that the claim is never fully reproduced.
    assert_ne!(gap.verdict, Verdict::Reproduced);
    assert!(
        read("docs/figures/report.md").contains("whole 95 % interval of every part lies inside its range")
    );
}
