//! The page in a real browser, against a live pipeline. Skipped, by name, where there is no Chromium.
#![allow(clippy::print_stdout)]

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use hyloc_tests::browser::{Browser, available};
use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;

/// Where screenshots are kept: beside the test executables.
fn artefact(name: &str) -> PathBuf {
    let directory = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("screenshots");
    std::fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

fn skip(name: &str) -> bool {
    if !available() {
        println!("skipped: {name} needs chromium and chromedriver");
        return true;
    }
    false
}

#[test]
fn the_page_shows_a_live_pipeline_and_says_when_it_is_not() {
    if skip("the_page_shows_a_live_pipeline_and_says_when_it_is_not") {
        return;
    }
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let mut nodes = site.nodes(3);
    let simulator = site.simulator(&["--frames", "0", "--rate", "20"]);
    site.until_more_fixes(20);
    let browser = Browser::open(1280, 800);
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
    browser.screenshot(&artefact("dashboard-k3.png"));

    nodes.pop().unwrap().kill();
    let row = browser
        .until("return document.querySelector('#nodes [data-node=\"2\"]').dataset.state === 'missing'");
    let paths = browser.until(
        "return ['2,0', '2,1', '2,2'].every(p => document.querySelector(`[data-path=\"${p}\"]`).dataset.state === 'missing')",
    );
    println!("a killed node shows after {row:?}, its paths {paths:?} later");
    assert!(row + paths < Duration::from_secs(2));

    simulator.kill();
    let stale =
        browser.until("return document.getElementById('state').textContent.startsWith('no data since')");
    println!("no data shows after {stale:?}");
    assert!(stale < Duration::from_secs(3));
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

#[test]
fn eight_irss_and_a_phone_are_legible() {
    if skip("eight_irss_and_a_phone_are_legible") {
        return;
    }
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&["--nodes", "8"]);
    let nodes = site.nodes(8);
    let simulator = site.simulator(&["--nodes", "8", "--frames", "0", "--rate", "5"]);
    site.until_more_fixes(3);
    let browser = Browser::open(1280, 800);
    browser.go(&format!("http://{}/", site.http));
    browser.until("return document.querySelectorAll('#paths [data-state=present]').length === 64");
    browser.until("return document.querySelectorAll('#error .line').length === 2");
    browser.screenshot(&artefact("dashboard-k8.png"));
    assert_eq!(browser.run("return document.documentElement.scrollWidth > window.innerWidth"), false);
    let phone = Browser::open(500, 900);
    phone.go(&format!("http://{}/", site.http));
    phone.until("return document.querySelectorAll('#paths [data-state=present]').length === 64");
    phone.screenshot(&artefact("dashboard-phone.png"));
    assert_eq!(phone.run("return document.documentElement.scrollWidth > window.innerWidth"), false);
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

/// Twenty viewers, and one that never reads: fusion goes on as before, and memory is bounded.
#[test]
fn viewers_do_not_slow_fusion() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let nodes = site.nodes(3);
    let simulator = site.simulator(&["--frames", "0", "--rate", "50"]);
    site.until_more_fixes(100);
    let before = fusion.memory_bytes();
    let watch = |reads: bool| {
        let mut stream = TcpStream::connect(site.http).unwrap();
        write!(stream, "GET /api/live HTTP/1.1\r\nhost: {}\r\n\r\n", site.http).unwrap();
        if reads {
            let mut stream = stream.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
        stream
    };
    let viewers: Vec<TcpStream> = (0..21).map(|viewer| watch(viewer > 0)).collect();
    let (after, _) = site.until_more_fixes(500);
    let growth_mib = (fusion.memory_bytes() as f64 - before as f64) / f64::from(1 << 20);
    println!(
        "21 viewers: memory grew by {growth_mib:.1} MiB, fusion p99 {}",
        after["latency_ms"]["fusion"]["p99"]
    );
    assert!(growth_mib < 32.0);
    for viewer in &viewers {
        viewer.shutdown(std::net::Shutdown::Both).unwrap();
    }
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    let summary = fusion.stop();
    assert_eq!(summary["unaccounted"], 0);
    assert_eq!(count(&summary, "frames_shed"), 0);
}

#[test]
fn the_page_trusts_nobody() {
    let _alone = alone();
    let site = Site::new();
    let mut fusion = site.fusion(&[]);
    fusion.started();
    let mut stream = TcpStream::connect(site.http).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", site.http).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{head}");
    assert!(
        !page.contains("style=") && !page.contains("onclick") && !page.contains("://"),
        "inline or remote"
    );
    let description = http_get(site.http, "/api").unwrap();
    for path in ["/api/site", "/api/summary", "/api/live", "/metrics", "/health"] {
        assert!(description.contains(path), "{path} is not described");
    }
    assert!(http_get(site.http, "/metrics").unwrap().contains("hyloc_blocks_total"));
    fusion.stop();
}
