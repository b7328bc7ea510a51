//! What the page can change, and what it gives away: every control with its event, every download. In a real browser with
//! `hyloc demo --dashboard --allow-control`. Skipped, and reported, if there is no Chromium.
#![allow(clippy::print_stdout)]

use std::net::SocketAddr;
use std::path::Path;

use hyloc_tests::browser::{Browser, artefact, skip_without_browser};
use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;
use serde_json::Value;

fn skip(name: &str) -> bool {
    skip_without_browser(&format!("dashboard_controls::{name}"))
}

/// A demo with a page, and the address of the page.
fn demo(more: &[&str]) -> (Process, SocketAddr) {
    let arguments = ["demo", "--json", "--dashboard", "--power-dbm", "60", "--rate", "10"];
    let demo = Process::start("hyloc", &[&arguments[..], more].concat());
    let line = demo.said("dashboard: http://");
    let http = line.split(['/', ' ']).find_map(|part| part.parse().ok()).expect("an address");
    (demo, http)
}

fn end(demo: Process) -> Value {
    demo.signal(rustix::process::Signal::INT);
    demo.finish()
}

struct Page<'a> {
    browser: &'a Browser,
    http: SocketAddr,
}

impl Page<'_> {
    /// Waits until an event with this text is on the page.
    fn tells(&self, text: &str) {
        self.browser
            .until(&format!("return document.getElementById('events').textContent.includes('{text}')"));
    }

    fn free(&self, control: &str) {
        self.browser.until(&format!("return !document.getElementById('{control}').disabled"));
    }

    /// Selects a value; returns the message of the page, which is empty on success.
    fn choose(&self, select: &str, name: &str) -> String {
        self.free(select);
        self.browser.run(&format!(
            "const s = document.getElementById('{select}'); s.value = '{name}'; s.dispatchEvent(new Event('change'))"
        ));
        self.free(select);
        self.browser.until("return document.getElementById('said').textContent !== 'changing …'");
        let said = self.browser.run("return document.getElementById('said').textContent");
        let value = self.browser.run(&format!("return document.getElementById('{select}').value"));
        assert_eq!(said == "", value == name, "{said}, {value}");
        said.as_str().unwrap().to_owned()
    }

    /// Selects a node and presses a button, which has this text.
    fn press(&self, node: usize, button: &str, text: &str) {
        self.browser.run(&format!(
            "const s = document.getElementById('which'); s.value = '{node}'; s.dispatchEvent(new Event('change'))"
        ));
        self.free(button);
        self.browser.until(&format!("return document.getElementById('{button}').textContent === '{text}'"));
        self.browser.click(&format!("#{button}"));
    }

    fn node_becomes(&self, node: usize, state: &str) {
        self.browser.until(&format!(
            "return document.querySelector('#nodes [data-node=\"{node}\"]').dataset.state === '{state}'"
        ));
    }

    fn fix(&self) -> Value {
        live_event(self.http, "fix")
    }
}

#[test]
fn every_control_has_its_effect_and_its_event() {
    if skip("every_control_has_its_effect_and_its_event") {
        return;
    }
    let _alone = alone();
    let (demo, http) = demo(&["--allow-control", "--deadline-ms", "1000"]);
    let browser = Browser::open(1400, 900);
    let page = Page { browser: &browser, http };
    browser.go(&format!("http://{http}/"));
    browser.until("return document.getElementById('state').dataset.state === 'live'");
    browser.until("return !document.getElementById('controls').hidden");
    the_target_stands_still(&page);
    three_targets_come_and_two_go(&page);
    the_echoes_become_weaker(&page);
    the_wire_becomes_slower(&page);
    page.press(1, "cut", "Cut link");
    page.tells("link node-1 is cut");
    page.node_becomes(1, "missing");
    page.press(1, "cut", "Restore link");
    page.tells("link node-1 is restored");
    page.node_becomes(1, "connected");
    page.press(2, "kill", "Kill node");
    page.tells("node 2 is killed");
    page.tells("node 2 (node-2) is gone");
    browser.until("return document.getElementById('headline').dataset.state !== 'nominal'");
    page.press(2, "kill", "Start node");
    page.tells("node 2 is started");
    page.node_becomes(2, "connected");
    page.press(0, "clock", "Step clock");
    page.tells("the clock of node 0 steps by 20 ns");
    browser.screenshot(&artefact("dashboard-controls.png"));
    // The browser logs a refusal as an error.
    let errors = browser.console_errors();
    assert!(errors.iter().all(|error| error.contains("422")), "{errors:?}");
    drop(browser);
    assert_eq!(end(demo)["unaccounted"], 0);
}

fn the_target_stands_still(page: &Page) {
    let radius = |fix: &Value| {
        let at = |axis: usize| Some(fix["truth"]["position_m"][axis].as_f64()? - 5.0);
        Some(at(0)?.hypot(at(1)?))
    };
    eventually("a target in a circle", || radius(&page.fix()).filter(|radius| (radius - 3.5).abs() < 1e-9));
    assert_eq!(page.choose("motion", "fixed"), "");
    page.tells("target path: fixed");
    let (fix, _) = eventually("a target that stands", || {
        Some(page.fix()).filter(|fix| radius(fix) == Some(0.0) && !fix["truth"]["error_m"].is_null())
    });
    let (error, bound) =
        (fix["truth"]["error_m"].as_f64().unwrap(), fix["truth"]["bound_rms_m"].as_f64().unwrap());
    assert!(error < 6.0 * bound, "the truth went along: {error} m, bound {bound} m");
}

fn three_targets_come_and_two_go(page: &Page) {
    let there = |count: usize| {
        eventually("another number of targets", || {
            let fix = page.fix();
            let told = fix["truth"]["targets"].as_array().map_or(1, Vec::len);
            (told == count && fix["targets"].as_array()?.len() == count).then_some(())
        });
    };
    assert_eq!(page.choose("targets", "3"), "");
    page.tells("number of targets: 3");
    there(3);
    page.browser.until("return document.querySelectorAll('#map .track').length === 3");
    page.browser.screenshot(&artefact("dashboard-three-targets.png"));
    assert_eq!(page.choose("targets", "1"), "");
    there(1);
}

/// 10 dB less power are 10 dB less SNR, and a bound that is as much higher.
fn the_echoes_become_weaker(page: &Page) {
    let levels = || -> Option<(f64, f64)> {
        let fix = page.fix();
        let snr: Vec<f64> = hyloc_tests::numbers(&fix["snr_db"]);
        let bound = fix["truth"]["bound_rms_m"].as_f64()?;
        (snr.len() == 9).then(|| (snr.iter().sum::<f64>() / 9.0, bound))
    };
    let (before, _) = eventually("a fix", levels);
    assert_eq!(page.choose("power", "50"), "");
    page.tells("transmit power: 50 dBm");
    let (after, _) = eventually("weaker echoes", || levels().filter(|(snr, _)| *snr < before.0 - 6.0));
    assert!((before.0 - after.0 - 10.0).abs() < 3.0, "{} to {} dB", before.0, after.0);
    let worse_db = 20.0 * (after.1 / before.1).log10();
    assert!((worse_db - 10.0).abs() < 1.0, "the bound is that of the echoes: {worse_db} dB");
    assert_eq!(page.choose("power", "60"), "");
}

fn the_wire_becomes_slower(page: &Page) {
    // The relay measures the profile first and may refuse it on a busy machine; the page shows this.
    eventually("a change of the profile", || match page.choose("profile", "congested").as_str() {
        "" => Some(()),
        refused => {
            println!("{refused}");
            assert!(!refused.contains("no answer"), "{refused}");
            None
        }
    });
    page.tells("backhaul: congested");
    eventually("a slower wire", || {
        let fix = page.fix();
        fix["timing"]["wire_ms"].as_array()?.iter().all(|ms| ms.as_f64() > Some(15.0)).then_some(())
    });
    eventually("the old profile", || (page.choose("profile", "clear").is_empty()).then_some(()));
}

/// A file that the browser has written completely.
fn written(directory: &Path, name: &str) -> Vec<u8> {
    let path = directory.join(name);
    eventually(name, || std::fs::read(&path).ok().filter(|bytes| !bytes.is_empty())).0
}

/// Fixes, site and pictures can be taken along; they contain what the page showed.
#[test]
fn everything_can_be_downloaded() {
    if skip("everything_can_be_downloaded") {
        return;
    }
    let _alone = alone();
    let (demo, http) = demo(&[]);
    let directory = tempfile::tempdir().unwrap();
    let browser = Browser::open(1400, 900);
    browser.download_to(directory.path());
    browser.go(&format!("http://{http}/"));
    browser.until("return document.querySelectorAll('#cdf .line').length === 2");
    for plot in ["map", "error", "latency", "cdf", "nees"] {
        browser.click(&format!("[data-save={plot}]"));
        let picture = written(directory.path(), &format!("hyloc-{plot}.png"));
        assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n", "{plot}");
        assert!(picture.len() > 4000, "{plot}: {} bytes", picture.len());
    }
    for name in ["fixes.csv", "fixes.jsonl", "site.toml"] {
        browser.click(&format!("a[href=\"/api/{name}\"]"));
    }
    let text = |name: &str| String::from_utf8(written(directory.path(), name)).unwrap();
    let csv = text("fixes.csv");
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert!(rows.len() >= 10 && rows.iter().all(|row| row.len() == columns.len()), "{} rows", rows.len());
    let fixes: Vec<Value> =
        text("fixes.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (row, fix) in rows.iter().zip(&fixes) {
        assert_eq!(row[column("frame")].parse::<u64>().unwrap(), count(fix, "frame"));
        assert_eq!(row[column("x_m")].parse::<f64>().ok(), fix["position_m"][0].as_f64());
        assert_eq!(row[column("error_m")].parse::<f64>().ok(), fix["error_m"].as_f64());
    }
    let site: model::Scenario = toml::from_str(&text("site.toml")).unwrap();
    assert_eq!((site.irs.len(), site.base_station.power_dbm.round()), (3, 60.0));
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    drop(browser);
    end(demo);
}

/// The page has a port of its own, and the next one if that is taken; the gRPC address is printed with it.
#[test]
fn a_demo_has_its_port_or_the_next_one() {
    let _alone = alone();
    let (first, http) = demo(&[]);
    let (second, other) = demo(&[]);
    assert!((7401..=7499).contains(&http.port()) && other.port() > http.port(), "{http} {other}");
    end(second);
    end(first);
    let own = free_address();
    let asked = own.to_string();
    let process = Process::start("hyloc", &["demo", "--json", "--dashboard", "--http-listen", &asked]);
    let line = process.said("dashboard: http://");
    assert!(line.starts_with(&format!("dashboard: http://{own}/ (gRPC 127.0.0.1:")), "{line}");
    end(process);
}
