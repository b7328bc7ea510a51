//! The page for everyone: names, roles, contrast and focus, by the rules of axe-core and by tests of names. Skipped, and
//! reported, if there is no Chromium, or for the rules no axe-core (`.ci/run` installs both).
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};

use hyloc_tests::browser::{Browser, skip_without_browser};
use hyloc_tests::process::*;
use serde_json::Value;

/// Variable with the path of `axe.min.js`.
const AXE: &str = "HYLOC_AXE";

/// The script of axe-core, if it is installed.
fn axe() -> Option<String> {
    let installed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/axe/axe_core_python/axe.min.js");
    let path = std::env::var_os(AXE).map_or(installed, PathBuf::from);
    std::fs::read_to_string(path).ok()
}

/// A demo with everything that the page can show, and the page.
fn shown() -> (Process, Browser) {
    let clocks = ["--clock-offset-ns", "50"];
    let arguments = ["demo", "--json", "--dashboard", "--allow-control", "--power-dbm", "60", "--rate", "10"];
    let demo = Process::start("hyloc", &[&arguments[..], &clocks].concat());
    let line = demo.said("dashboard: http://");
    let http: std::net::SocketAddr =
        line.split(['/', ' ']).find_map(|part| part.parse().ok()).expect("an address");
    let browser = Browser::open(1400, 900);
    browser.go(&format!("http://{http}/"));
    browser.until("return !document.getElementById('controls').hidden");
    browser.until("return document.getElementById('clocks-card').checkVisibility()");
    browser.until("return document.querySelectorAll('#cdf .line').length === 2");
    browser.until("return document.querySelectorAll('#events li').length > 3");
    (demo, browser)
}

/// No finding of axe-core that is serious or critical: light and dark, on a screen and on a phone.
#[test]
fn axe_finds_nothing_serious() {
    let name = "dashboard_access::axe_finds_nothing_serious";
    if skip_without_browser(name) {
        return;
    }
    let Some(script) = axe() else {
        return skipped(name, "it needs axe-core: .ci/run installs it, HYLOC_AXE names axe.min.js");
    };
    let _alone = alone();
    let (demo, browser) = shown();
    let mut serious = Vec::new();
    for (scheme, phone) in [("light", false), ("dark", false), ("dark", true), ("light", true)] {
        browser.prefer(scheme);
        match phone {
            true => browser.become_phone(),
            false => browser.become_screen(1400, 900),
        }
        browser.run(&format!("if (!window.axe) {{ {script} }}"));
        let found = browser.run_async(
            "const done = arguments[arguments.length - 1]; axe.run(document, { resultTypes: ['violations'] }).then(r => \
             done(r.violations.map(v => [v.impact, v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' ' + n.failureSummary.slice(0, 200))])))",
        );
        for finding in found.as_array().expect("a list") {
            let Some(impact) = finding[0].as_str() else { continue };
            println!("{scheme}, phone {phone}: {finding}");
            if ["serious", "critical"].contains(&impact) {
                serious.push(format!("{scheme}, phone {phone}: {finding}"));
            }
        }
    }
    assert_eq!(serious, Vec::<String>::new());
    drop(browser);
    demo.signal(rustix::process::Signal::INT);
    demo.finish();
}

/// Everything that can be reached has a name, pictures say what they are, headings and regions are named.
#[test]
fn everything_that_can_be_reached_has_a_name() {
    if skip_without_browser("dashboard_access::everything_that_can_be_reached_has_a_name") {
        return;
    }
    let _alone = alone();
    let (demo, browser) = shown();
    let nameless = "const name = e => e.getAttribute('aria-label') || document.getElementById(e.getAttribute('aria-labelledby'))?.textContent \
        || e.closest('label')?.textContent || e.title || e.textContent; \
        return [...document.querySelectorAll('a, button, select, input, [tabindex], svg[role], section, table')] \
        .filter(e => e.checkVisibility() && !name(e).trim()).map(e => e.outerHTML.slice(0, 120))";
    assert_eq!(browser.run(nameless), Value::Array(Vec::new()));
    let order = browser.run(
        "return [...document.querySelectorAll('h1, h2')].filter(e => e.checkVisibility()).map(e => e.textContent)",
    );
    let order: Vec<&str> = order.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(order[..4], ["hyloc", "Headline", "Map", "Error against the exact bound"]);
    // Nobody is kept in the page by Tab: no positive order, nothing that takes Tab for itself.
    let positive =
        "return document.querySelectorAll('[tabindex]:not([tabindex=\"0\"]):not([tabindex=\"-1\"])').length";
    assert_eq!(browser.run(positive), 0);
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    drop(browser);
    demo.signal(rustix::process::Signal::INT);
    demo.finish();
}
