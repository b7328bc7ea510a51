//! Mutual TLS through real processes: certificates are made by `hyloc certs`, renewed under load without a lost frame, and
//! without them nothing is reached from elsewhere.

use std::process::Command;

use hyloc_tests::pipeline::{Site, count};
use hyloc_tests::process::{Process, alone, eventually, executable, http_get};

/// Runs `hyloc certs` in the directory of a site.
fn certs(site: &Site, arguments: &[&str]) {
    let directory = site.path("certs").display().to_string();
    let output = Command::new(executable("hyloc"))
        .args(["certs", arguments[0], &directory])
        .args(&arguments[1..])
        .output()
        .expect("hyloc runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The flags that give a process its certificate.
fn tls(site: &Site, role: &str) -> Vec<String> {
    let path = |name: &str| site.path("certs").join(role).join(name).display().to_string();
    ["--tls-ca", &path("ca.pem"), "--tls-cert", &path("cert.pem"), "--tls-key", &path("key.pem")]
        .map(str::to_owned)
        .to_vec()
}

fn with<'a>(flags: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    flags.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

#[test]
fn renewal_under_load_loses_no_frame() {
    let _alone = alone();
    let site = Site::new();
    certs(&site, &["init", "--nodes", "3"]);
    let (fusion, simulator) = (tls(&site, "fusion-center"), tls(&site, "simulator"));
    let mut fusion = site.fusion(&with(&fusion, &["--deadline-ms", "60000"]));
    fusion.started();
    let flags: Vec<Vec<String>> = (0..3).map(|index| tls(&site, &format!("node/{index}"))).collect();
    let nodes: Vec<Process> = (0..3).map(|index| site.node(index, &with(&flags[index], &[]))).collect();
    let mut simulator = site.simulator(&with(&simulator, &["--frames", "300", "--rate", "15"]));
    simulator.started();
    site.until("the first fixes", |summary| count(summary, "fixes") >= 5);

    certs(&site, &["renew"]);
    fusion.said("a new certificate is in force");
    for node in &nodes {
        node.said("a new certificate is in force");
    }
    // A new connection, with the new certificate on both sides, in the middle of the run.
    let anonymous = format!("--tls-ca={}", site.path("certs/ca.pem").display());
    let health = Command::new(executable("hyloc"))
        .args(["healthcheck", &format!("http://{}/health", site.http), &anonymous])
        .status()
        .expect("hyloc runs");
    assert!(health.success());
    // A file that cannot be used changes nothing; log and health say so.
    let cert = site.path("certs/fusion-center/cert.pem");
    let good = std::fs::read(&cert).expect("a certificate");
    std::fs::write(&cert, "no certificate").expect("written");
    fusion.said("the certificate files cannot be used; what is in force stays");
    let degraded = || http_get(site.http, "/health").filter(|text| text.contains("degraded: certificate: "));
    eventually("degraded health", degraded);
    std::fs::write(&cert, good).expect("written");
    eventually("sound health", || http_get(site.http, "/health").filter(|text| text == "serving\n"));
    let sent = simulator.finish();
    assert_eq!(count(&sent, "frames"), 300);
    for node in nodes {
        let summary = node.stop();
        assert_eq!((count(&summary, "dropped"), count(&summary, "dropped_at_node")), (0, 0), "{summary}");
    }
    let summary = fusion.stop();
    assert_eq!(count(&summary, "fixes"), 300, "{summary}");
    assert_eq!(summary["unaccounted"], 0, "{summary}");
}

/// The first process with a certificate of an index has it; another certificate of the same index gives no second seat
/// while it is in use, and one of another role none at all.
#[test]
fn replicas_take_the_certificates_that_are_free() {
    let _alone = alone();
    let site = Site::new();
    certs(&site, &["init", "--nodes", "3"]);
    let mut fusion = site.fusion(&with(&tls(&site, "fusion-center"), &[]));
    fusion.started();
    let path = |name: &str| site.path("certs").join("node/{index}").join(name).display().to_string();
    let (ca, cert, key) =
        (site.path("certs/ca.pem").display().to_string(), path("cert.pem"), path("key.pem"));
    let (grpc, echo) = (site.grpc.to_string(), site.echo.to_string());
    let replica = |identity: &str| {
        let flags = ["--fusion", &grpc, "--simulator", &echo, "--identity", identity, "--tls-ca", &ca];
        Process::start("irs-node", &[&flags[..], &["--tls-cert", &cert, "--tls-key", &key]].concat())
    };
    let replicas: Vec<Process> = ["a", "b", "c"].into_iter().map(replica).collect();
    let connected = |summary: &serde_json::Value| {
        let nodes = summary["ledger"].as_array().expect("a ledger");
        nodes.iter().filter(|node| node["connected"] == true).count()
    };
    let (summary, _) = site.until("all seats", |summary| connected(summary) == 3);
    let mut names: Vec<&str> =
        (0..3).filter_map(|index| summary["ledger"][index]["identity"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c"]);

    let wrong = site.node_as("posing", 0, &with(&tls(&site, "simulator"), &[]));
    let (code, said) = wrong.outcome();
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("cannot be used by this process, irs-node of index 0"), "{said}");
    for replica in replicas {
        replica.stop();
    }
    fusion.stop();
}

#[test]
fn others_reach_nothing_without_tls() {
    let open: [(&str, &[&str], &str); 4] = [
        ("fusion-center", &["--listen", "0.0.0.0:0"], "listen = 0.0.0.0:0"),
        ("irs-node", &["--http-listen", "0.0.0.0:0"], "http_listen = 0.0.0.0:0"),
        ("simulator", &["--echo-listen", "0.0.0.0:0"], "echo_listen = 0.0.0.0:0"),
        (
            "hyloc",
            &["backhaul", "--allow-control", "--control-listen", "0.0.0.0:0"],
            "control_listen = 0.0.0.0:0",
        ),
    ];
    for (name, arguments, key) in open {
        let (code, said) = Process::start(name, arguments).outcome();
        assert_eq!(code, Some(64), "{name}: {said}");
        assert!(said.contains(key) && said.contains("--insecure"), "{said}");
    }
    let mut insecure = Process::start(
        "fusion-center",
        &["--listen", "0.0.0.0:0", "--http-listen", "127.0.0.1:0", "--insecure"],
    );
    insecure.started();
    insecure.said("--insecure: whoever reaches these addresses can read and forge everything");
    insecure.stop();
    let partial = Process::start("fusion-center", &["--tls-ca", "ca.pem"]).outcome();
    assert_eq!(partial.0, Some(64), "{}", partial.1);
    assert!(partial.1.contains("all three or none"), "{}", partial.1);
}

/// HTTP on an address other than loopback: health for all, the rest for watchers.
#[test]
fn http_elsewhere_needs_a_certificate() {
    let _alone = alone();
    let site = Site::new();
    certs(&site, &["init", "--nodes", "2"]);
    let flags = tls(&site, "fusion-center");
    let arguments = with(&flags, &["--listen", "127.0.0.1:0", "--http-listen", "0.0.0.0:0"]);
    let mut fusion = Process::start("fusion-center", &arguments);
    let port = fusion.started().http.expect("an address").port();
    let check = |path: &str, more: &[String]| {
        let url = format!("https://127.0.0.1:{port}{path}");
        let output = Command::new(executable("hyloc")).args(["healthcheck", &url]).args(more).output();
        let output = output.expect("hyloc runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let ca = vec!["--tls-ca".to_owned(), site.path("certs/ca.pem").display().to_string()];
    eventually("health", || (check("/health", &ca).0 == Some(0)).then_some(()));
    let (code, said) = check("/metrics", &ca);
    assert!(code == Some(1) && said.contains("401 this needs the certificate of a watcher"), "{said}");
    assert_eq!(check("/metrics", &tls(&site, "watcher")).0, Some(0));
    let (code, said) = check("/metrics", &tls(&site, "node/1"));
    assert!(code == Some(1) && said.contains("403 this needs the certificate of a watcher"), "{said}");
    let (code, said) = check("/health", &[]);
    assert!(code == Some(1) && said.contains("https needs --tls-ca"), "{said}");
    // Another authority is not believed.
    let other = Site::new();
    certs(&other, &["init"]);
    let stranger: Vec<String> = vec!["--tls-ca".into(), other.path("certs/ca.pem").display().to_string()];
    let (code, said) = check("/health", &stranger);
    assert!(code == Some(1) && said.contains("invalid peer certificate"), "{said}");
    fusion.stop();
}
