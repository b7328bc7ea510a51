//! The page in a real browser with a running pipeline. Skipped, and reported, if there is no Chromium.
#![allow(clippy::print_stdout)]

use hyloc_tests::browser::{Browser, artefact, skip_without_browser};
use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;

/// A scenario with a slowly moving target.
fn circle(site: &Site) -> String {
    let file = site.path("circle.toml");
    let motion = "[target.motion.circle]\ncentre_m = [5.0, 5.0]\nradius_m = 3.5\nframes = 400\n";
    std::fs::write(&file, motion).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Whether there is no browser; in this case the test is reported as skipped.
fn skip(name: &str) -> bool {
    skip_without_browser(&format!("dashboard::{name}"))
}

/// The text of an item of the headline: `error`, `bound`, `gap`, `availability` or `rate`.
fn headline(browser: &Browser, item: &str) -> String {
    let text = format!("return document.querySelector('[data-item={item}] .value')?.textContent ?? ''");
    browser.run(&text).as_str().unwrap().to_owned()
}

/// The view of the map: x and y of its middle, pixels per metre.
fn view(browser: &Browser) -> [f64; 3] {
    let text = browser.run("return document.getElementById('map').dataset.view");
    let numbers: Vec<f64> = text.as_str().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

const MODE: &str = "return document.getElementById('map').dataset.mode";

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
    let browser = Browser::open(1400, 900);
    browser.go(&format!("http://{}/", site.http));
    browser.until("return document.getElementById('state').dataset.state === 'live'");
    browser.until("return document.getElementById('headline').dataset.state === 'nominal'");
    browser.until("return document.getElementById('verdict').textContent === 'nominal'");
    browser.until("return document.querySelector('#fix')?.rx.baseVal.value > 0");
    browser.until("return document.querySelector('#bound')?.rx.baseVal.value > 0");
    let frame =
        browser.run("return Number(document.getElementById('headline').dataset.frame)").as_u64().unwrap();
    browser.until(&format!("return Number(document.getElementById('headline').dataset.frame) > {frame}"));
    browser.until("return document.querySelectorAll('#latency [data-stage]').length === 7");
    for plot in ["error", "cdf"] {
        browser.until(&format!("return document.querySelectorAll('#{plot} .line').length === 2"));
    }
    browser.until("return document.querySelectorAll('#nees .point').length > 0");
    browser.until("return document.querySelectorAll('#paths [data-state=present]').length === 9");
    browser.until("return document.getElementById('health').textContent.includes('sourcesimulated')");
    the_headline_is_that_of_the_summary(&browser, &site);
    for hidden in ["side", "clocks-card", "tracks-card", "controls"] {
        let shown = browser.run(&format!("return document.getElementById('{hidden}').checkVisibility()"));
        assert_eq!(shown, false, "{hidden}");
    }
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
    the_map_follows_and_zooms(&browser);
    all_controls_work(&browser, &site);
    the_likelihood_is_there_on_request(&browser);

    nodes.pop().unwrap().kill();
    let row = browser
        .until("return document.querySelector('#nodes [data-node=\"2\"]').dataset.state === 'missing'");
    let paths = browser.until(
        "return ['2,0', '2,1', '2,2'].every(p => document.querySelector(`[data-path=\"${p}\"]`).dataset.state === 'missing')",
    );
    println!("a killed node shows after {row:?}, its paths {paths:?} later");
    browser.until("return document.getElementById('headline').dataset.state === 'degraded'");
    browser.until("return document.getElementById('why').textContent.includes('node 2 did not report')");
    browser.until("return document.querySelector('#map [data-station=\"IRS 2 gone\"]') !== null");
    for event in ["node 2 (node-2) is gone", "degraded: "] {
        browser.until(&format!("return document.getElementById('events').textContent.includes('{event}')"));
    }

    simulator.kill();
    let stale =
        browser.until("return document.getElementById('state').textContent.startsWith('no data since')");
    println!("no data shows after {stale:?}");
    browser.until("return document.getElementById('headline').dataset.state === 'none'");
    browser.until("return document.getElementById('verdict').textContent === 'no data'");
    // Nothing comes any more: what a reloaded page shows is the history of the fusion center.
    browser.go(&format!("http://{}/", site.http));
    browser.until("return document.getElementById('state').textContent.startsWith('no data since')");
    browser.until(
        "return document.querySelector('#error .line-error')?.getAttribute('d').split('L').length > 20",
    );
    browser.until("return document.querySelectorAll('#cdf .line').length === 2");
    browser.until("return document.getElementById('events').textContent.includes('no data')");
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

/// Error, bound and gap are those that the API states, of the same fixes.
fn the_headline_is_that_of_the_summary(browser: &Browser, site: &Site) {
    let in_words = |metres: f64| match metres {
        1.0.. => format!("{metres:.2}m"),
        0.01.. => format!("{:.1}cm", 100.0 * metres),
        _ => format!("{:.1}mm", 1000.0 * metres),
    };
    eventually("a headline with the numbers of the summary", || {
        let summary = site.summary()?;
        let (error, bound) = (summary["rms_error_m"].as_f64()?, summary["bound_rms_m"].as_f64()?);
        let gap = summary["gap_db"].as_f64()?;
        let shown = ["error", "bound", "gap"].map(|item| headline(browser, item));
        let signed = format!("{}{:.2}dB", if gap > 0.0 { "+" } else { "" }, gap).replace('-', "−");
        (shown == [in_words(error), in_words(bound), signed]).then_some(())
    });
    let interval = browser.run("return document.querySelector('[data-item=gap] .note').textContent");
    assert!(interval.as_str().unwrap().starts_with("95 %: "), "{interval}");
    eventually("the availability of the summary", || {
        let summary = site.summary()?;
        let [fixes, shed, minority, without] =
            ["fixes", "frames_shed", "frames_minority", "without_fix"].map(|key| count(&summary, key) as f64);
        let percent = 100.0 * fixes / (fixes + shed + minority + without);
        let shown = headline(browser, "availability");
        let digits = shown.trim_end_matches('%').split_once('.')?.1.len();
        (shown == format!("{percent:.digits$}%")).then_some(())
    });
    browser.until(
        "return document.querySelector('[data-item=rate] .value').textContent.match(/^[0-9.]+$/) !== null",
    );
}

/// The targets are in view, at any scale; what is outside is an arrow. A zoom leaves the place under the pointer where it is.
fn the_map_follows_and_zooms(browser: &Browser) {
    let arrows = "return document.querySelectorAll('#map .irs[data-arrow]').length";
    assert_eq!((browser.run(MODE), browser.run(arrows)), ("targets".into(), 3.into()));
    browser.click("#view-site");
    assert_eq!((browser.run(MODE), browser.run(arrows)), ("site".into(), 0.into()));
    browser.click("#view-targets");
    let whole = view(browser);
    // At the fix: the map follows it while it moves on.
    for _ in 0..9 {
        browser.wheel("#fix", -120);
    }
    assert_eq!(browser.run(MODE), "targets");
    let near = view(browser);
    assert!(near[2] > 3.0 * whole[2], "{near:?} after {whole:?}");
    eventually("a map that moved with its target", || (view(browser)[..2] != near[..2]).then_some(()));
    browser.until(
        "const m = document.getElementById('map').getBoundingClientRect(), f = document.getElementById('fix').getBoundingClientRect(); \
         return f.left > m.left && f.right < m.right && f.top > m.top && f.bottom < m.bottom",
    );
    browser.click("#view-targets");
    assert_eq!(view(browser)[2], whole[2]);
    // Beside the target, where the map does not move by itself once the target is out of sight.
    browser.click("#pause");
    let place = || -> Vec<f64> {
        let text = browser.run("return document.getElementById('hover').textContent");
        let text = text.as_str().unwrap().split_once(") m").unwrap().0.trim_start_matches('(').to_owned();
        text.split(", ").map(|n| n.parse().unwrap()).collect()
    };
    browser.point_to(200, 480);
    let before = place();
    browser.wheel_at(200, 480, -120);
    browser.point_to(201, 480);
    browser.point_to(200, 480);
    let (after, scale) = (place(), view(browser)[2]);
    assert!(scale > 1.2 * whole[2], "{scale}");
    for axis in 0..2 {
        assert!((after[axis] - before[axis]).abs() < 0.02, "{after:?} after {before:?}");
    }
    browser.click("#pause");
    browser.click("#view-targets");
}

/// The surface is asked for while it is shown, and for newer frames.
fn the_likelihood_is_there_on_request(browser: &Browser) {
    let frame = "return Number(document.getElementById('surface').dataset.frame ?? -1)";
    assert_eq!(browser.run(frame), -1);
    browser.click("#likelihood");
    browser.until(&format!("{} >= 0", frame));
    let first = browser.run(frame);
    browser.until(&format!("{frame} > {first}"));
    let painted = "const c = document.getElementById('surface'); \
                   return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 100)";
    browser.until(painted);
    browser.screenshot(&artefact("dashboard-likelihood.png"));
    browser.click("#likelihood");
    assert_eq!(browser.run(frame), -1);
    // Pointing at a path shows its delay.
    browser.point_at("[data-path=\"0,1\"]");
    browser.until("return document.getElementById('pointed') !== null");
    browser.point_to(5, 5);
    browser.until("return document.getElementById('pointed') === null");
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
    browser.until("return document.getElementById('summary').textContent.split(',').length === 3");
    browser.until("return document.getElementById('health').textContent.includes('NEES (3 is consistent)')");
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
    let numbers = "return [...document.querySelectorAll('#clocks tr')].map(row => [...row.children].map(cell => Number(cell.textContent.replace('−', '-'))))";
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

/// Keyboard and mouse work.
fn all_controls_work(browser: &Browser, site: &Site) {
    const TAB: &str = "\u{e004}";
    browser.run("document.activeElement.blur(); document.getElementById('node').focus()");
    let focused = "const e = document.activeElement; return e.id || e.dataset.span || e.dataset.save || e.dataset.path || e.closest('[data-node]')?.dataset.node || ''";
    let mut reached = vec!["node".to_owned()];
    for _ in 0..30 {
        browser.press(TAB);
        reached.push(browser.run(focused).as_str().unwrap().to_owned());
    }
    let expected = [
        "node",
        "30",
        "120",
        "600",
        "pause",
        "theme",
        "view-targets",
        "view-site",
        "likelihood",
        "zoom-in",
        "zoom-out",
        "map",
        "error",
        "latency",
        "0,0",
        "cdf",
        "nees",
        "0",
        "1",
        "2",
    ];
    let mut rest = reached.iter();
    for control in expected {
        assert!(rest.any(|id| id == control), "{control} is not reached in order: {reached:?}");
    }
    let visible = "document.getElementById('pause').focus(); return getComputedStyle(document.activeElement).outlineStyle";
    browser.press(TAB);
    assert_eq!(browser.run(visible), "solid", "focus can be seen");

    let chosen = "return document.querySelectorAll('#paths .chosen').length";
    browser.run("document.querySelector('#nodes [data-node=\"1\"] button').focus()");
    browser.press("\u{e007}");
    browser.until(&format!("{chosen} === 5"));
    assert_eq!(browser.run("return document.getElementById('node').value"), "1");
    browser.press(" ");
    browser.until(&format!("{chosen} === 0"));
    // Arrow keys go from path to path.
    browser.run("document.querySelector('[data-path=\"0,0\"]').focus()");
    browser.press("\u{e015}");
    browser.press("\u{e014}");
    assert_eq!(browser.run("return document.activeElement.dataset.path"), "1,1");

    browser.run("document.getElementById('map').focus()");
    browser.press("0");
    let whole = view(browser);
    browser.press("+");
    let nearer = view(browser);
    assert!(nearer[2] > 1.1 * whole[2], "{nearer:?} after {whole:?}");
    browser.press("0");
    browser.drag("#map", 60, 0);
    let dragged = view(browser);
    assert!(dragged[0] < whole[0], "{dragged:?} after {whole:?}");
    assert_eq!(browser.run(MODE), "free");
    browser.press("0");
    assert_eq!((view(browser), browser.run(MODE)), (whole, "targets".into()));
    browser.press("1");
    assert_eq!(browser.run(MODE), "site");
    browser.press("0");

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
        let browser = Browser::open(1400, 900);
        let all =
            format!("return document.querySelectorAll('#paths [data-state]').length === {}", count * count);
        let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
        // No number in the matrix is clipped.
        let whole = "return [...document.querySelectorAll('#paths td, #paths th')].every(d => d.scrollWidth <= d.clientWidth + 1)";
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
    for subject in ["motion", "targets", "power", "clock", "profile", "link", "node"] {
        let path = format!("/api/control/{subject}");
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
    let assets = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fusion-center/assets")).unwrap();
    let names = assets.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let scripts = names.filter(|name| name.ends_with(".js"));
    let page: String = scripts.map(|name| http_get(site.http, &format!("/assets/{name}")).unwrap()).collect();
    for used in ["/api/site", "/api/live", "/api/history", "/api/events", "/api/likelihood", "/api/control"] {
        assert!(page.contains(used) && description["requests"][format!("GET {used}")].is_string(), "{used}");
    }
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}
