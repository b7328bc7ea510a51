//! `report.md` and `report.html`: verdicts, reasons, tables, figures and their recipes.

use std::fmt::Write;

use super::catalogue::Figure;
use super::claims::{Claim, ClaimData, RULE, Verdict, judged};
use super::plot::escaped;
use super::rows::HEADER;
use super::store::{FigureStore, Recipe};
use super::tables::{ReportTable, all as tables};

const TITLE: &str = "Section VI, reproduced";

/// Reports on every finished figure of the directory; returns the number of claims by verdict.
pub fn write(store: &FigureStore) -> anyhow::Result<[usize; 4]> {
    let finished: Vec<_> = Figure::ALL
        .into_iter()
        .filter_map(|f| store.finished(f).map(|(recipe, rows)| (f, recipe, rows)))
        .collect();
    let rows = finished.iter().flat_map(|(_, _, rows)| rows.clone()).collect();
    let data = ClaimData::new(rows);
    let report = ReportContent {
        claims: judged(&data),
        tables: tables(&data),
        made: finished.into_iter().map(|(f, recipe, _)| (f, recipe)).collect(),
    };
    store.write("report.md", markdown(&report).as_bytes())?;
    let pictures = report
        .made
        .iter()
        .map(|(figure, _)| settings::read(&store.path(&format!("{figure}.svg"))))
        .collect::<Result<Vec<_>, _>>()?;
    store.write("report.html", html(&report, &pictures).as_bytes())?;
    Ok(counts(&report.claims))
}

/// Content of both forms of the report.
struct ReportContent {
    claims: Vec<Claim>,
    tables: Vec<ReportTable>,
    made: Vec<(Figure, Recipe)>,
}

fn counts(claims: &[Claim]) -> [usize; 4] {
    Verdict::ALL.map(|verdict| claims.iter().filter(|claim| claim.verdict == verdict).count())
}

fn introduction(claims: &[Claim]) -> String {
    let counts = Verdict::ALL.into_iter().zip(counts(claims)).filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts.map(|(verdict, count)| format!("{count} {verdict}")).collect();
    format!(
        "Every claim of Section VI with a number or an order in it, held against Monte Carlo of Table I: {}. Brackets are \
         95 % intervals. \"Exact bound\": the complex gain of every path is unknown, as it is to a receiver; \"paper's \
         bound\": known. {RULE}",
        counts.join(", ")
    )
}

fn columns() -> String {
    format!(
        "Columns of every CSV file: `{HEADER}`. `low` and `high` are the ends of a 95 % interval: bootstrap over trials \
         for means and ratios of means, Wilson for shares."
    )
}

fn markdown(ReportContent { claims, tables, made }: &ReportContent) -> String {
    let mut out = format!("# {TITLE}\n\n{}\n\n## Verdicts\n\n", introduction(claims));
    out += "| claim | the paper says | measured | verdict |\n| --- | --- | --- | --- |\n";
    for claim in claims {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {} | {} | {} | {} |", claim.id, claim.paper, claim.measured, claim.verdict);
    }
    out += "\n## Reasons\n\n";
    for claim in claims {
        let shown: Vec<&str> = claim.figures.iter().map(|f| f.name()).collect();
        let _ =
            writeln!(out, "- **{}** ({}): {}. {}", claim.id, shown.join(", "), claim.verdict, claim.reason);
    }
    for table in tables {
        let _ = write!(out, "\n## {}\n\n{}\n\n{}", table.heading, table.note, table.markdown());
    }
    out += "\n## Figures\n\n";
    for (figure, recipe) in made {
        let _ = writeln!(out, "### {figure}\n\n![{figure}]({figure}.svg)\n");
        let _ = writeln!(out, "{} {}\n", figure.caption(), provenance(*figure, recipe));
    }
    let _ = writeln!(out, "## Data\n\n{}", columns());
    out
}

fn provenance(figure: Figure, recipe: &Recipe) -> String {
    format!(
        "{} trials per point; `hyloc figures --only {figure} --trials {} --seed {}` (sources {}).",
        recipe.trials, recipe.trials, recipe.seed, recipe.sources
    )
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#111}\
table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.35em .6em;text-align:left;vertical-align:top}\
svg{max-width:100%;height:auto}figure{margin:2em 0}figcaption{color:#444}code{background:#f2f2f2;padding:0 .2em}\
.reproduced{background:#d9f0d3}.partly{background:#fff2cc}.not-reproduced{background:#f8d7da}.not-measured{color:#777}";

fn html(ReportContent { claims, tables, made }: &ReportContent, pictures: &[String]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{TITLE}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{TITLE}</h1>\n<p>{}</p>\n<h2>Verdicts</h2>\n<table>\n\
         <tr><th>claim</th><th>the paper says</th><th>measured</th><th>verdict</th><th>why</th></tr>\n",
        escaped(&introduction(claims))
    );
    for claim in claims {
        let verdict = claim.verdict.to_string();
        let _ = writeln!(
            out,
            "<tr id=\"{}\"><td>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{verdict}</td><td>{}</td></tr>",
            claim.id,
            claim.id,
            escaped(claim.paper),
            escaped(&claim.measured),
            verdict.replace(' ', "-"),
            escaped(&claim.reason)
        );
    }
    out += "</table>\n";
    for table in tables {
        let _ = writeln!(out, "<h2>{}</h2>\n<p>{}</p>", escaped(table.heading), with_code(table.note));
        out += "<table>\n";
        for (i, row) in std::iter::once(&table.head).chain(&table.rows).enumerate() {
            let tag = if i == 0 { "th" } else { "td" };
            let cells = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
            let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
        }
        out += "</table>\n";
    }
    out += "<h2>Figures</h2>\n";
    for ((figure, recipe), picture) in made.iter().zip(pictures) {
        let caption = format!("{} {}", figure.caption(), provenance(*figure, recipe));
        let _ = writeln!(
            out,
            "<figure id=\"{figure}\">\n<h3>{figure}</h3>\n{picture}<figcaption>{}</figcaption>\n</figure>",
            with_code(&caption)
        );
    }
    let _ = writeln!(out, "<h2>Data</h2>\n<p>{}</p>\n</body>\n</html>", with_code(&columns()));
    out
}

/// Text with its backquoted parts as code.
fn with_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(i, part)| {
            let part = escaped(part);
            if i % 2 == 1 { format!("<code>{part}</code>") } else { part }
        })
        .collect()
}
