//! The page in a real browser with a running pipeline. Skipped, and reported, if there is no Chromium.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;

use hyloc_tests::browser::{Browser, available};
use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;

/// Path of a screenshot, next to the test executables.
fn artefact(name: &str) -> PathBuf {
    let directory = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("screenshots");
    std::fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

/// A scenario with a slowly moving target.
fn circle(site: &Site) -> String {
    let file = site.path("circle.toml");
    let motion = "[target.motion.circle]\ncentre_m = [5.0, 5.0]\nradius_m = 3.5\nframes = 400\n";
    std::fs::write(&file, motion).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Whether there is no browser; in this case the test is reported as skipped.
fn skip(name: &str) -> bool {
    let missing = !available();
    if missing {
        skipped(&format!("dashboard::{name}"), "it needs chromium and chromedriver");
    }
    missing
}

#[test]
fn the_page_shows_a_live_pipeline_and_says_when_it_is_not() {
    if skip("the_page_shows_a_live_pipeline_and_says_when_it_is_not") {
        return;
    }
    let _alone = alone();
    let site = Site::new();
    let circle = circle(&site);
    let fusion = site.fusion(&["--scenario", &circle]);
    // A name that would do harm if it were inserted as markup.
    let hostile = r#""><img src=/api onerror="document.title='owned'"><b>"#;
    let mut nodes = vec![site.node(0, &[]), site.node_as(hostile, 1, &[]), site.node(2, &[])];
    let simulator = site.simulator(&["--frames", "0", "--rate", "20", "--scenario", &circle]);
    site.until_more_fixes(20);
    let browser = Browser::open(1280, 900);
    browser.go(&format!("http://{}/", site.http));
    browser.until("return document.getElementById('state').dataset.state === 'live'");
    browser.until("return document.querySelector('#fix')?.rx.baseVal.value > 0");
    browser.until("return document.querySelector('#bound')?.rx.baseVal.value > 0");
    let frame =
        browser.run("return Number(document.getElementById('headline').dataset.frame)").as_u64().unwrap();
    browser.until(&format!("return Number(document.getElementById('headline').dataset.frame) > {frame}"));
    browser.until("return document.querySelectorAll('#latency path.s4').length === 1");
    browser.until("return document.querySelectorAll('#error .line').length === 2");
    browser.until("return document.querySelectorAll('#paths [data-state=present]').length === 9");
    browser.until("return document.getElementById('health').textContent.includes('sourcesimulated')");
    assert_eq!(browser.run("return document.getElementById('side').checkVisibility()"), false);
    assert_eq!(
        browser.run("return document.getElementById('clocks-card').checkVisibility()"),
        false,
        "trusted clocks"
    );
    browser.screenshot(&artefact("dashboard-k3.png"));
    browser.prefer("dark");
    browser.screenshot(&artefact("dashboard-k3-dark.png"));
    assert_eq!(
        browser.run("return document.querySelector('[data-node=\"1\"] td').textContent"),
        format!("1 {hostile}")
    );
    assert_eq!(
        browser.run("return [document.images.length, document.title]"),
        serde_json::json!([0, "hyloc"])
    );
    assert_eq!(
        browser.run("return document.getElementById('controls').hidden"),
        true,
        "nothing may be changed"
    );
    all_controls_work(&browser, &site);

    nodes.pop().unwrap().kill();
    let row = browser
        .until("return document.querySelector('#nodes [data-node=\"2\"]').dataset.state === 'missing'");
    let paths = browser.until(
        "return ['2,0', '2,1', '2,2'].every(p => document.querySelector(`[data-path=\"${p}\"]`).dataset.state === 'missing')",
    );
    println!("a killed node shows after {row:?}, its paths {paths:?} later");

    simulator.kill();
    let stale =
        browser.until("return document.getElementById('state').textContent.startsWith('no data since')");
    println!("no data shows after {stale:?}");
    browser.go(&format!("http://{}/", site.http));
    browser.until("return document.getElementById('state').textContent.startsWith('no data since')");
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

#[test]
fn a_site_with_a_height_has_a_side_view() {
    if skip("a_site_with_a_height_has_a_side_view") {
        return;
    }
    let _alone = alone();
    let site = Site::new();
    let scenario = site.path("room.toml");
    std::fs::write(&scenario, ROOM).unwrap();
    let scenario = scenario.to_str().unwrap();
    let fusion = site.fusion(&["--scenario", scenario]);
    let nodes = site.nodes(4);
    let simulator = site.simulator(&["--frames", "0", "--rate", "10", "--scenario", scenario]);
    site.until_more_fixes(5);
    let browser = Browser::open(1280, 900);
    browser.go(&format!("http://{}/", site.http));
    browser.until("return document.querySelector('#fix-side')?.rx.baseVal.value > 0");
    browser.until("return document.querySelectorAll('#side .irs').length === 4");
    browser.until("return document.getElementById('headline').textContent.split(',').length === 3");
    browser.until("return document.getElementById('figures').textContent.includes('NEES (3 is consistent)')");
    browser.screenshot(&artefact("dashboard-space.png"));
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

/// `hyloc demo --clock-offset-ns 100`: the clocks of three nodes in a table and over time, beside the truth, and a step by name.
#[test]
fn clocks_that_are_not_trusted_are_shown() {
    if skip("clocks_that_are_not_trusted_are_shown") {
        return;
    }
    let _alone = alone();
    let step = "clocks.step={node=1,frame=150,step_ns=20.0}";
    let pace = ["--rate", "10", "--deadline-ms", "60000"];
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let clocks = ["--clock-offset-ns", "100", "--clock-drift-ppb", "50", "--set", step];
    let files = ["--fixes", log.to_str().unwrap()];
    let demo =
        Process::start("hyloc", &[&["demo", "--json", "--dashboard"][..], &pace, &clocks, &files].concat());
    let line = demo.said("dashboard: http://");
    let http: std::net::SocketAddr =
        line.split(['/', ' ']).find_map(|part| part.parse().ok()).expect("an address");
    let browser = Browser::open(1280, 900);
    browser.go(&format!("http://{http}/"));
    browser.until("return document.getElementById('clocks-card').checkVisibility()");
    browser.until("return document.querySelectorAll('#offsets .line-offset').length === 3");
    browser.until("return document.querySelectorAll('#offsets .line-truth').length === 3");
    let parts = |kind: &str| {
        format!(
            "return [...document.querySelectorAll('#offsets .{kind}')].every(p => p.getAttribute('d').split('L').length > 20)"
        )
    };
    browser.until(&parts("line-offset"));
    browser.until(&parts("line-truth"));
    let numbers = "return [...document.querySelectorAll('#clocks tr')].map(row => [...row.children].map(cell => Number(cell.textContent)))";
    let table = browser.run(numbers);
    println!("node, offset, deviation, rate, error: {table}");
    let rows = table.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for (node, row) in rows.iter().enumerate() {
        let value = |column: usize| row[column].as_f64().unwrap_or_else(|| panic!("no number: {row}"));
        assert_eq!(value(0), node as f64);
        assert!((1..5).all(|column| value(column).is_finite()) && value(2) > 0.0, "{row}");
    }
    // The table has the numbers of the status; how good these are is tested in pipeline_clocks.rs.
    eventually("the table of a status", || {
        let (status, table) = (live_event(http, "status"), browser.run(numbers));
        let same = |node: usize| {
            let (clock, row) = (&status["nodes"][node]["clock"], &table[node]);
            let close = |key: &str, column: usize, most: f64| {
                Some((clock[key].as_f64()? - row[column].as_f64()?).abs() <= most)
            };
            // Half a digit, and what a clock drifts in a second.
            Some(close("offset_ns", 1, 60.0)? && close("deviation_ns", 2, 0.1)? && close("rate_ppb", 3, 5.0)?)
        };
        (0..3).all(|node| same(node) == Some(true)).then_some(())
    });
    let names = "const card = document.getElementById('clocks-card'); \
                 return [document.getElementById(card.getAttribute('aria-labelledby')).textContent, \
                         card.querySelector('svg').getAttribute('aria-label') !== null, card.querySelectorAll('th[scope=col]').length]";
    assert_eq!(browser.run(names), serde_json::json!(["Clocks", true, 5]));
    browser.until("return document.getElementById('clock-notes').textContent.includes('the clock of node 1 has stepped in frame')");
    browser.until("return document.querySelectorAll('#offsets .line-step').length === 1");
    let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
    let shown = "document.getElementById('clocks-card').scrollIntoView()";
    for (window, phone) in [("desk", false), ("phone", true)] {
        if phone {
            browser.become_phone();
        }
        browser.run(shown);
        assert_eq!(browser.run(fits), true, "{window}");
        browser.screenshot(&artefact(&format!("dashboard-clocks-{window}.png")));
    }
    browser.prefer("dark");
    browser.screenshot(&artefact("dashboard-clocks-dark.png"));
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    drop(browser);
    demo.signal(rustix::process::Signal::INT);
    assert_eq!(demo.finish()["unaccounted"], 0);
    for fix in fixes(&log).iter().filter(|fix| fix["status"] == "nominal") {
        for l in 0..3 {
            let (clock, truth) = (&fix["clocks"][l], &fix["truth"]["clock_offset_ns"][l]);
            let Some(true_ns) = truth.as_f64() else { continue };
            let [offset_ns, deviation_ns] =
                ["offset_ns", "deviation_ns"].map(|key| clock[key].as_f64().expect("a number"));
            let most_ns = 1.0 + 8.0 * deviation_ns;
            assert!((offset_ns - true_ns).abs() < most_ns, "the clock of node {l} in {fix}");
        }
    }
}

/// Keyboard, wheel and mouse work.
fn all_controls_work(browser: &Browser, site: &Site) {
    const TAB: &str = "\u{e004}";
    let focused = "const e = document.activeElement; return e.id || e.dataset.node || ''";
    let mut reached = Vec::new();
    for _ in 0..12 {
        browser.press(TAB);
        reached.push(browser.run(focused).as_str().unwrap().to_owned());
    }
    for control in ["node", "pause", "map", "zoom-in", "zoom-out", "zoom-fit", "0", "1", "2"] {
        assert!(reached.iter().any(|id| id == control), "{control} cannot be reached: {reached:?}");
    }
    let chosen = "return document.querySelectorAll('#paths .chosen').length";
    browser.run("document.querySelector('#nodes [data-node=\"1\"]').focus()");
    browser.press("\u{e007}");
    assert_eq!(browser.run(chosen), 5, "a row and a column");
    assert_eq!(browser.run("return document.getElementById('node').value"), "1");
    browser.press(" ");
    assert_eq!(browser.run(chosen), 0);

    let view = || -> Vec<f64> {
        let text = browser.run("return document.getElementById('map').getAttribute('viewBox')");
        text.as_str().unwrap().split(' ').map(|n| n.parse().unwrap()).collect()
    };
    let whole = view();
    browser.run("document.getElementById('map').focus()");
    browser.press("+");
    let nearer = view();
    assert!(nearer[2] < 0.9 * whole[2], "{nearer:?} after {whole:?}");
    browser.drag("#map", 60, 0);
    assert!(view()[0] < nearer[0], "{:?} after {nearer:?}", view());
    browser.wheel("#map", 120);
    assert!(view()[2] > nearer[2], "{:?} after {nearer:?}", view());
    assert!(
        browser.run("return document.getElementById('hover').textContent").as_str().unwrap().contains(" m")
    );
    browser.press("0");
    assert_eq!(view(), whole);

    let frame = "return Number(document.getElementById('headline').dataset.frame)";
    browser.run("document.getElementById('pause').focus()");
    browser.press(" ");
    browser.until("return document.getElementById('state').textContent === 'paused'");
    let paused = browser.run(frame);
    site.until_more_fixes(20);
    assert_eq!(browser.run(frame), paused);
    browser.press(" ");
    browser.until(&format!("{frame} > {paused}"));
}

#[test]
fn many_irss_and_a_phone_are_legible() {
    if skip("many_irss_and_a_phone_are_legible") {
        return;
    }
    let _alone = alone();
    for (count, rate) in [(8, "5"), (16, "1")] {
        let (site, k) = (Site::new(), count.to_string());
        let circle = circle(&site);
        let fusion = site.fusion(&["--nodes", &k, "--scenario", &circle]);
        let nodes = site.nodes(count);
        let simulator =
            site.simulator(&["--nodes", &k, "--frames", "0", "--rate", rate, "--scenario", &circle]);
        site.until_more_fixes(3);
        let browser = Browser::open(1280, 900);
        let all =
            format!("return document.querySelectorAll('#paths [data-state]').length === {}", count * count);
        let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
        // No number in the matrix is clipped.
        let whole = "return [...document.querySelectorAll('#paths div')].every(d => d.scrollWidth <= d.clientWidth + 1)";
        for (window, phone) in [("desk", false), ("phone", true)] {
            if phone {
                browser.become_phone();
            }
            browser.go(&format!("http://{}/", site.http));
            browser.until(&all);
            browser.until("return document.querySelectorAll('#error .line').length === 2");
            browser.screenshot(&artefact(&format!("dashboard-k{count}-{window}.png")));
            assert_eq!(
                (browser.run(fits), browser.run(whole)),
                (true.into(), true.into()),
                "K = {count}, {window}"
            );
        }
        assert_eq!(browser.console_errors(), Vec::<String>::new());
        simulator.stop();
        nodes.into_iter().for_each(|node| drop(node.stop()));
        fusion.stop();
    }
}

/// `hyloc demo --allow-control`: motion and profile are changed on the page, and fixes follow.
#[test]
fn the_page_changes_what_it_may() {
    if skip("the_page_changes_what_it_may") {
        return;
    }
    let _alone = alone();
    let demo = Process::start(
        "hyloc",
        &["demo", "--json", "--dashboard", "--allow-control", "--power-dbm", "60", "--rate", "10"],
    );
    let line = demo.said("dashboard: http://");
    let http = line.split(['/', ' ']).find_map(|part| part.parse().ok()).expect("an address");
    let browser = Browser::open(1280, 900);
    browser.go(&format!("http://{http}/"));
    browser.until("return document.getElementById('state').dataset.state === 'live'");
    browser.until("return !document.getElementById('controls').hidden");
    // Selects a value and returns the message of the page, which is empty on success.
    let choose = |select: &str, name: &str| {
        browser.until(&format!("return !document.getElementById('{select}').disabled"));
        browser.run(&format!(
            "const s = document.getElementById('{select}'); s.value = '{name}'; s.dispatchEvent(new Event('change'))"
        ));
        browser.until(&format!("return !document.getElementById('{select}').disabled"));
        let (said, value) = (
            browser.run("return document.getElementById('said').textContent"),
            browser.run(&format!("return document.getElementById('{select}').value")),
        );
        assert_eq!(said == "", value == name, "{said}, {value}");
        said.as_str().unwrap().to_owned()
    };
    let radius = |fix: &serde_json::Value| {
        let at = |axis: usize| fix["truth"]["position_m"][axis].as_f64().unwrap() - 5.0;
        at(0).hypot(at(1))
    };
    assert!((radius(&live_event(http, "fix")) - 3.5).abs() < 1e-9, "round in a circle");
    assert_eq!(choose("motion", "fixed"), "");
    let (fix, _) = eventually("a target that stands", || {
        Some(live_event(http, "fix")).filter(|fix| radius(fix) == 0.0 && !fix["truth"]["error_m"].is_null())
    });
    let (error, bound) =
        (fix["truth"]["error_m"].as_f64().unwrap(), fix["truth"]["bound_rms_m"].as_f64().unwrap());
    assert!(error < 6.0 * bound, "the truth went along: {error} m, bound {bound} m");

    // The relay measures the profile first and may refuse it on a busy machine; the page shows this.
    eventually("a change of the profile", || match choose("profile", "congested").as_str() {
        "" => Some(()),
        refused => {
            println!("{refused}");
            assert!(!refused.contains("no answer"), "{refused}");
            None
        }
    });
    eventually("a slower wire", || {
        let fix = live_event(http, "fix");
        fix["timing"]["wire_ms"].as_array()?.iter().all(|ms| ms.as_f64() > Some(15.0)).then_some(())
    });
    // The browser logs a refusal as an error.
    let errors = browser.console_errors();
    assert!(errors.iter().all(|error| error.contains("422")), "{errors:?}");
    drop(browser);
    demo.signal(rustix::process::Signal::INT);
    let report = demo.finish();
    assert_eq!(report["unaccounted"], 0);
}

/// The paths of a node whose reports arrive after their frames are closed are late, not missing.
#[test]
fn late_paths_are_told_from_missing_ones() {
    if skip("late_paths_are_told_from_missing_ones") {
        return;
    }
    let _alone = alone();
    let (site, way) = (Site::new(), free_address());
    let plan = site.path("plan.toml");
    std::fs::write(&plan, "[up]\ndelay_ms = 400\n").unwrap();
    let fusion = site.fusion(&["--deadline-ms", "250"]);
    let (grpc, listen) = (site.grpc.to_string(), way.to_string());
    let mut relay = Process::start(
        "hyloc",
        &[
            "backhaul",
            "--listen",
            &listen,
            "--fusion",
            &grpc,
            "--control-listen",
            "127.0.0.1:0",
            "--plan",
            plan.to_str().unwrap(),
        ],
    );
    relay.started();
    let nodes = [site.node(0, &[]), site.node(1, &[]), site.node_over(way, "far", 2, &[])];
    let simulator = site.simulator(&["--frames", "0", "--rate", "10"]);
    let browser = Browser::open(1280, 900);
    browser.go(&format!("http://{}/", site.http));
    browser.until(
        "return ['2,0', '2,1', '2,2'].every(p => document.querySelector(`[data-path=\"${p}\"]`)?.dataset.state === 'late')",
    );
    browser.until("return document.querySelector('#nodes [data-node=\"2\"]').dataset.state === 'late'");
    browser.until("return document.getElementById('excluded').textContent.includes('node 2 is late')");
    browser.screenshot(&artefact("dashboard-late.png"));
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    relay.stop();
    fusion.stop();
}

#[test]
fn the_page_trusts_nobody() {
    let _alone = alone();
    let site = Site::new();
    let mut fusion = site.fusion(&["--control-simulator", "127.0.0.1:9"]);
    fusion.started();
    let (head, page) = http(site.http, "GET /", "", "").unwrap();
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{head}");
    assert!(
        !page.contains("style=") && !page.contains("onclick") && !page.contains("://"),
        "inline or remote"
    );
    assert!(http_get(site.http, "/metrics").unwrap().contains("hyloc_blocks_total"));
    let json = "content-type: application/json\r\n";
    for path in ["/api/control/motion", "/api/control/profile"] {
        let (head, body) = http(site.http, &format!("POST {path}"), json, r#"{"name":"circle"}"#).unwrap();
        assert!(head.starts_with("HTTP/1.1 403") && body.contains("--allow-control"), "{head} {body}");
    }
    assert!(http_get(site.http, "/api/control").unwrap().contains(r#""allowed":false"#));
    fusion.stop();
}

#[test]
fn the_api_describes_itself() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let nodes = site.nodes(3);
    let simulator = site.simulator(&["--frames", "0", "--rate", "20"]);
    site.until_more_fixes(5);
    let description: serde_json::Value = serde_json::from_str(&http_get(site.http, "/api").unwrap()).unwrap();
    assert_eq!(description["control"], "off: start the fusion center with --allow-control");
    for name in ["fix", "status"] {
        let event = live_event(site.http, name);
        for key in event.as_object().unwrap().keys() {
            assert!(description["events"][name][key].is_string(), "'{key}' of {name} is not described");
        }
    }
    for request in description["requests"].as_object().unwrap().keys() {
        let status = match request.split_once(' ') {
            // It never ends, and was read above.
            Some(("GET", "/api/live")) => continue,
            Some(("GET", _)) => "200",
            _ => "403",
        };
        let json = "content-type: application/json\r\n";
        let (head, _) = http(site.http, request, json, "").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {head}");
    }
    let page: String =
        ["app.js", "clocks.js", "controls.js", "panels.js", "map.js", "side.js", "charts.js", "dom.js"]
            .map(|name| http_get(site.http, &format!("/assets/{name}")).unwrap())
            .concat();
    for used in ["/api/site", "/api/live", "/api/control"] {
        assert!(page.contains(used) && description["requests"][format!("GET {used}")].is_string(), "{used}");
    }
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}
