//! Strangers at the listeners of real processes: idle connections, exhausted descriptors, pages of other sites, floods of
//! refused messages. All clients are on the loopback and bounded in number.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use telemetry::log_limit::BURST;

/// Idle connections that a stranger opens to each listener; the process may have 1024 descriptors.
const STRANGERS: usize = 1100;

/// Opens connections that never send a byte. One that is refused or closed stays in the count.
fn idle_connections(address: SocketAddr, count: usize) -> Vec<Option<TcpStream>> {
    (0..count).map(|_| TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()).collect()
}

/// Lets this process hold all those connections.
fn raise_own_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("a higher limit");
}

fn status_of(address: SocketAddr, request: &str, headers: &str, body: &str) -> u16 {
    let (head, _) = http(address, request, headers, body).expect("a response");
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

/// The value of a metric; 0 if it is not there.
fn metric(address: SocketAddr, sample: &str) -> f64 {
    let (text, _) = eventually("metrics", || http_get(address, "/metrics"));
    let line = text.lines().find_map(|line| line.strip_prefix(sample));
    line.map_or(0.0, |value| value.trim().parse().expect("a number"))
}

/// While a stranger holds 1100 idle connections to gRPC and as many to HTTP of a fusion center with 1024 descriptors,
/// health answers, the log reports it, fixes go on, and a node can join.
#[test]
fn idle_strangers_lock_out_nobody() {
    let _alone = alone();
    raise_own_descriptor_limit();
    let site = Site::new();
    let mut fusion = site.fusion_limited(&[], 1024);
    fusion.started();
    let mut nodes = vec![site.node(0, &[]), site.node(1, &[])];
    let simulator = site.simulator(&["--frames", "0", "--rate", "10", "--start-after-s", "1"]);
    site.until_more_fixes(5);

    let strangers = [idle_connections(site.grpc, STRANGERS), idle_connections(site.http, STRANGERS)];
    let (health, waited) = eventually("health", || http_get(site.http, "/health"));
    println!("health answers after {waited:?}");
    assert_eq!(health, "serving\n");
    fusion.said("the listener is full");
    nodes.push(site.node(2, &[]));
    site.until_more_fixes(5);
    site.until("three nodes", |summary| {
        summary["ledger"].as_array().unwrap().iter().all(|node| node["connected"] == true)
    });
    for (listener, most) in [("grpc", 448.0), ("http", 224.0)] {
        let fate = |fate: &str| {
            let sample = format!("hyloc_connections_total{{listener=\"{listener}\",fate=\"{fate}\"}}");
            metric(site.http, &sample)
        };
        let (displaced, others) = (fate("displaced"), fate("timed_out") + fate("refused"));
        let open = metric(site.http, &format!("hyloc_connections_open{{listener=\"{listener}\"}}"));
        println!("{listener}: {displaced} displaced, {others} timed out or refused, {open} open");
        assert!(displaced >= 1.0 && displaced + others >= STRANGERS as f64 - most, "{listener}");
        assert!(open <= most, "{listener}: {open}");
    }
    drop(strangers);
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    let summary = fusion.stop();
    assert_eq!(summary["unaccounted"], 0, "{summary}");
}

/// A process that runs out of descriptors logs it and serves again when some are free.
#[test]
fn exhausted_descriptors_are_survived() {
    let _alone = alone();
    let site = Site::new();
    let mut fusion = site.fusion(&[]);
    fusion.started();
    let id = Pid::from_raw(fusion.id() as i32);
    let open = std::fs::read_dir(format!("/proc/{}/fd", fusion.id())).expect("descriptors");
    let open: BTreeSet<u64> =
        open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok()).collect();
    let lowest_free = (0..).find(|number| !open.contains(number)).expect("a free number");
    // A new descriptor gets the lowest free number, which must be below the limit.
    let few = Rlimit { current: Some(lowest_free + 2), ..getrlimit(Resource::Nofile) };
    prlimit(id, Resource::Nofile, few).expect("a lower limit");
    let strangers = idle_connections(site.http, 8);
    let said = fusion.said("connections cannot be accepted");
    assert!(said.contains("WARN") && said.contains("wait_ms"), "{said}");
    drop(strangers);
    eventually("health", || http_get(site.http, "/health"));
    fusion.stop();
}

/// Pages of other sites reach no process: a name that was made to resolve to this machine is refused with 421, a foreign
/// Origin with 403, a form with 415. The relay has no control unless that is allowed.
#[test]
fn pages_of_other_sites_are_refused() {
    let _alone = alone();
    let site = Site::new();
    let mut fusion = site.fusion(&["--allow-control", "--http-name", "fusion-center"]);
    let grpc = site.grpc.to_string();
    let flags = ["backhaul", "--listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0", "--fusion", &grpc];
    let mut plain = Process::start("hyloc", &flags);
    assert_eq!(plain.started().control, None, "no control unless allowed");
    plain.stop();
    let mut relay =
        Process::start("hyloc", &[&flags[..], &["--allow-control", "--link", "west=127.0.0.1:0"]].concat());
    let control = relay.started().control.expect("control");
    let mut simulator =
        site.simulator(&["--frames", "0", "--allow-control", "--control-listen", "127.0.0.1:0"]);
    let (page, started) = (fusion.started().http.unwrap(), simulator.started());
    let mut node = site.node(0, &[]);
    let (motion, metrics) = (started.control.unwrap(), node.started().http.unwrap());

    let reads = [
        (page, "GET /"),
        (page, "GET /api/summary"),
        (page, "GET /api/live"),
        (page, "GET /health"),
        (control, "GET /links"),
        (motion, "GET /motion"),
        (metrics, "GET /metrics"),
    ];
    for (address, request) in reads {
        // The request has two Host headers, its own and the foreign one; then only the foreign one.
        assert_eq!(status_of(address, request, "host: rebound.example\r\n", ""), 421, "{request}");
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nhost: rebound.example\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 421") && answer.contains("http_name"), "{request}: {answer}");
        assert_eq!(status_of(address, request, "origin: http://evil.example\r\n", ""), 403, "{request}");
    }
    let changes = [
        (control, "POST /cut"),
        (control, "POST /restore"),
        (control, "PUT /profile"),
        (motion, "PUT /motion"),
        (page, "POST /api/control/motion"),
    ];
    for (address, request) in changes {
        let form = "content-type: application/x-www-form-urlencoded\r\n";
        assert_eq!(status_of(address, request, form, "name=circle"), 415, "{request}");
        assert_eq!(status_of(address, request, "content-type: text/plain\r\n", "{}"), 415, "{request}");
        assert_eq!(status_of(address, request, "", ""), 415, "{request}");
        let foreign = "content-type: application/json\r\norigin: null\r\n";
        assert_eq!(status_of(address, request, foreign, "{}"), 403, "{request}");
    }
    let own = format!("content-type: application/json\r\norigin: http://{control}\r\n");
    assert!(http_get(control, "/links").unwrap().contains(r#""cut":false"#), "nothing was cut");
    assert_eq!(status_of(control, "POST /cut?link=west", &own, ""), 200);
    assert!(http_get(control, "/links").unwrap().contains(r#""cut":true"#));
    let at = control.to_string();
    let restored = Process::start("hyloc", &["backhaul", "restore", "west", "--control-listen", &at]);
    assert_eq!(restored.outcome().0, Some(0));
    let mut stream = TcpStream::connect(page).unwrap();
    write!(stream, "GET /health HTTP/1.1\r\nhost: fusion-center:7401\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "a configured name: {answer}");
    for process in [simulator, node, relay, fusion] {
        process.kill();
    }
}

/// Refused messages of a stranger, as fast as they come, write at most ten lines and one more per second; how many were
/// suppressed is logged.
#[test]
fn a_flood_of_refused_messages_writes_few_lines() {
    const MESSAGES: u64 = 2000;
    let _alone = alone();
    let site = Site::new();
    let mut fusion = site.fusion(&[]);
    fusion.started();
    let begun = Instant::now();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = FusionClient::connect(format!("http://{}", site.grpc)).await.unwrap();
        for _ in 0..MESSAGES {
            let identity = "a long name ".repeat(1000);
            let request = v1::RegisterRequest { protocol_version: 99, identity, ..Default::default() };
            client.register(request).await.unwrap_err();
        }
    });
    let seconds = begun.elapsed().as_secs();
    fusion.signal(rustix::process::Signal::TERM);
    let (code, said) = fusion.outcome();
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("node refused")).collect();
    let bytes: usize = lines.iter().map(|line| line.len()).sum();
    println!("{MESSAGES} messages in {seconds} s: {} lines, {bytes} bytes", lines.len());
    assert!((1..=u64::from(BURST) + seconds + 1).contains(&(lines.len() as u64)), "{}", lines.len());
    assert!(lines.iter().all(|line| line.len() < 1000), "{said}");
    let suppressed = said.lines().filter_map(|line| line.split("suppressed=").nth(1)).map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().expect("a number")
    });
    assert_eq!(suppressed.sum::<u64>() + lines.len() as u64, MESSAGES, "{said}");
}

/// One address that opens 64 event streams does not lock out the 65th viewer, at another address; the viewer that gives
/// way is told so.
#[test]
fn event_streams_of_one_address_lock_out_no_other() {
    let _alone = alone();
    let site = Site::new();
    let mut fusion = site.fusion(&[]);
    fusion.started();
    let mut greedy: Vec<TcpStream> = (0..64).map(|_| viewer_of(site.http, false)).collect();
    // All are served before the next one comes.
    for stream in &mut greedy {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
    }
    let request = format!("GET /api/live HTTP/1.1\r\nhost: {}\r\n\r\n", site.http);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let other = runtime.block_on(async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut stream = socket.connect(site.http).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let mut buffer = [0; 4096];
        let reading = async {
            while !text.contains("event: status") {
                let count = stream.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the stream ended: {text}");
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("events for the 65th viewer");
        text
    });
    assert!(other.starts_with("HTTP/1.1 200"), "{other}");
    let mut told = String::new();
    greedy[0].read_to_string(&mut told).expect("the stream ends");
    assert!(told.contains("event: evicted\ndata: {\"reason\":\"closed: "), "{told}");
    fusion.stop();
}

/// The same for streams of fixes over gRPC: the oldest watcher of an address that opens too many is told why it ends.
#[test]
fn watchers_of_one_address_are_bounded() {
    let _alone = alone();
    let site = Site::new();
    let mut fusion = site.fusion(&[]);
    fusion.started();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let watching = async {
        let mut streams = Vec::new();
        // A connection may open 32 streams.
        for _ in 0..3 {
            let mut client = FusionClient::connect(format!("http://{}", site.grpc)).await.unwrap();
            for _ in 0..30 {
                streams.push(client.watch(v1::WatchRequest {}).await.unwrap().into_inner());
            }
        }
        for (number, stream) in streams.iter_mut().take(90 - 64).enumerate() {
            let ended = stream.message().await.unwrap_err();
            assert_eq!(ended.code(), tonic::Code::ResourceExhausted, "watcher {number}: {ended}");
            assert!(ended.message().contains("too many watchers"), "{ended}");
        }
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, watching).await.expect("in time") });
    drop(runtime);
    fusion.stop();
}
