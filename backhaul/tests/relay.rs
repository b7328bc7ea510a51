//! The relay as a process: cuts, separate links, changes of the plan, bounded memory, exit codes.

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use hyloc_backhaul::control::Action;
use hyloc_backhaul::profile::{NAMES, named};
use hyloc_backhaul::{RelayListeners, RelayOptions, run};
use support::{Site, alone};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Timeout of operations that must end; nothing else depends on it.
const PATIENCE: Duration = Duration::from_secs(90);

/// Whether bytes come through.
async fn works(node: &mut TcpStream, fusion: &mut TcpStream) -> bool {
    let mut byte = [0];
    node.write_all(&[42]).await.is_ok() && matches!(fusion.read(&mut byte).await, Ok(1))
}

/// Waits for the end of a connection and returns whether it was reset rather than closed.
async fn broken(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 1024];
    let wait = async {
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) => return false,
                Ok(_) => {}
                Err(_) => return true,
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the end of the connection")
}

/// The whole process inside this one.
struct Process {
    fusion: TcpListener,
    common: SocketAddr,
    control: SocketAddr,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

impl Process {
    async fn start(plan: Option<&Path>) -> Self {
        let fusion = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let flags =
            ["--listen=127.0.0.1:0", "--control-listen=127.0.0.1:0", "--allow-control", "--unmeasured"];
        let mut options: RelayOptions = settings::options::from_flags(&flags).unwrap();
        options.fusion = fusion.local_addr().unwrap().to_string();
        options.plan = plan.map(Path::to_path_buf);
        let plan = options.load().unwrap();
        let listeners = RelayListeners::bind(&options).await.unwrap();
        let common = listeners.common.as_ref().unwrap().local_addr().unwrap();
        let control = listeners.control.as_ref().unwrap().local_addr().unwrap();
        let stop = CancellationToken::new();
        let running = run(options, plan, listeners, stop.clone());
        let ended = tokio::spawn(async move { drop(running.await.unwrap()) });
        Self { fusion, common, control, stop, ended }
    }

    /// A connection from an address of the loopback.
    async fn connect(&self, source: &str) -> std::io::Result<(TcpStream, TcpStream)> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(format!("{source}:0").parse().unwrap())?;
        let node = socket.connect(self.common).await?;
        let (fusion, _) = self.fusion.accept().await?;
        Ok((node, fusion))
    }

    async fn perform(&self, action: Action) -> Result<String, String> {
        let control = self.control.to_string();
        let performed = tokio::task::spawn_blocking(move || action.perform(&control, None)).await.unwrap();
        performed.map_err(|error| telemetry::exit::sentence(&error))
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.ended).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_breaks_one_link_and_not_the_other() {
    let _alone = alone().await;
    let process = Process::start(None).await;
    let (mut west, mut west_fusion) = process.connect("127.0.0.1").await.unwrap();
    let (mut east, mut east_fusion) = process.connect("127.0.0.2").await.unwrap();
    assert!(works(&mut west, &mut west_fusion).await && works(&mut east, &mut east_fusion).await);

    let done = process.perform(Action::Cut { link: Some("127.0.0.2".into()) }).await.unwrap();
    assert_eq!(done, r#"["127.0.0.2"]"#);
    assert!(broken(&mut east).await && broken(&mut east_fusion).await);
    assert!(works(&mut west, &mut west_fusion).await, "the other link goes on");
    // A new connection over the cut link is refused; nothing reaches the fusion center.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    // It may be reset before it is known to be made.
    match socket.connect(process.common).await {
        Ok(mut refused) => assert!(broken(&mut refused).await),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    let links = process.perform(Action::Links).await.unwrap();
    assert!(links.lines().any(|line| line.starts_with("127.0.0.2") && line.contains(" yes ")), "{links}");

    process.perform(Action::Restore { link: Some("127.0.0.2".into()) }).await.unwrap();
    let (mut east, mut east_fusion) = process.connect("127.0.0.2").await.unwrap();
    assert!(works(&mut east, &mut east_fusion).await);
    let unknown = process.perform(Action::Cut { link: Some("127.0.0.9".into()) }).await.unwrap_err();
    assert!(unknown.starts_with("404: no link '127.0.0.9'; there are: 127.0.0.1, 127.0.0.2"), "{unknown}");
    // A host name that resolves to a link's address is accepted as well.
    let named = process.perform(Action::Cut { link: Some("localhost".into()) }).await.unwrap();
    assert_eq!(named, r#"["127.0.0.1"]"#);
    assert!(broken(&mut west).await);
    process.stop().await;
}

/// 10 cuts of eight connections, idle, with bytes in transit and with unread bytes: each of the 160 ends must see a
/// reset and none an orderly end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_a_cut_link_is_reset() {
    let _alone = alone().await;
    let site = Site::new("[up]\ndelay_ms = 5\n", &["link"], 1).await;
    let mut orderly = Vec::new();
    for round in 0..10 {
        let mut ends = Vec::new();
        for connection in 0..8 {
            let (mut node, mut fusion) = site.connect("link").await;
            assert!(works(&mut node, &mut fusion).await);
            for _ in 0..connection % 4 {
                node.write_all(&[0; 20_000]).await.unwrap();
                fusion.write_all(&[0; 20_000]).await.unwrap();
            }
            ends.extend([("node", node), ("fusion", fusion)]);
        }
        assert_eq!(site.relay.set_cut(Some("link"), true).await, ["link"]);
        for (which, end) in &mut ends {
            if !broken(end).await {
                orderly.push((round, *which));
            }
        }
        site.relay.set_cut(Some("link"), false).await;
    }
    assert!(orderly.is_empty(), "{} of 160 ends saw an orderly end: {orderly:?}", orderly.len());
}

/// Bytes sent before an orderly end arrive even if the relay finishes the connection before they are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_before_an_orderly_end_arrive() {
    let _alone = alone().await;
    let process = Process::start(None).await;
    let (mut node, mut fusion) = process.connect("127.0.0.1").await.unwrap();
    let said = vec![7; 200_000];
    node.write_all(&said).await.unwrap();
    node.shutdown().await.unwrap();
    fusion.shutdown().await.unwrap();
    let ended = async { while process.perform(Action::Links).await.unwrap().contains("127.0.0.1") {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the relay is done with it");
    let mut heard = Vec::new();
    fusion.read_to_end(&mut heard).await.unwrap();
    assert!(heard == said, "{} of {} bytes", heard.len(), said.len());
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_are_passed_on() {
    let _alone = alone().await;
    let process = Process::start(None).await;
    let (mut node, mut fusion) = process.connect("127.0.0.1").await.unwrap();
    node.write_all(b"last words").await.unwrap();
    node.shutdown().await.unwrap();
    let mut heard = Vec::new();
    fusion.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"last words");
    // The other direction is still open.
    fusion.write_all(b"answer").await.unwrap();
    drop(fusion);
    let mut heard = Vec::new();
    node.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"answer");
    process.stop().await;
}

/// Waits until `holds` is true of the plan.
async fn until_plan(process: &Process, holds: impl Fn(&str) -> bool) {
    let wait = async {
        while !holds(&process.perform(Action::Profile { profile: None, link: None }).await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the plan is followed");
}

/// A byte arrives no earlier than the plan's delay after it was sent.
async fn no_sooner_than(process: &Process, delay_ms: u64) {
    let (mut node, mut fusion) = process.connect("127.0.0.1").await.unwrap();
    let sent = Instant::now();
    assert!(works(&mut node, &mut fusion).await);
    assert!(sent.elapsed() >= Duration::from_millis(delay_ms), "{:?}", sent.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plan_changes_while_the_relay_runs() {
    let _alone = alone().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plan.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("[up]\ndelay_ms = 40.0\n");
    let process = Process::start(Some(&file)).await;
    no_sooner_than(&process, 40).await;
    // The file changes.
    write("[up]\ndelay_ms = 80.25\n");
    until_plan(&process, |plan| plan.contains("80.25")).await;
    no_sooner_than(&process, 80).await;
    // An invalid plan changes nothing.
    let url = format!("http://{}/profile", process.control);
    let put = move || telemetry::client::request_with(None, "PUT", &url, "[up]\ndelay_ms = -1.0\n").unwrap();
    let refused = tokio::task::spawn_blocking(put).await.unwrap();
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("delay_ms = -1"), "{}", refused.body);
    until_plan(&process, |plan| plan.contains("80.25")).await;
    // Only SIGHUP: length and modification time of the file do not change.
    write("[up]\ndelay_ms = 20.25\n");
    until_plan(&process, |plan| plan.contains("20.25")).await;
    let changed: SystemTime = std::fs::metadata(&file).unwrap().modified().unwrap();
    write("[up]\ndelay_ms = 60.25\n");
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(changed).unwrap();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
    until_plan(&process, |plan| plan.contains("60.25")).await;
    no_sooner_than(&process, 60).await;
    // By request, for one link.
    let link = Some("127.0.0.1".to_owned());
    process.perform(Action::Profile { profile: Some("fibre".into()), link }).await.unwrap();
    until_plan(&process, |plan| plan.contains("[link.\"127.0.0.1\"]") && plan.contains("fibre")).await;
    process.stop().await;
}

/// With every profile, in both directions at once, all bytes arrive in order, and the first no earlier than the delay
/// without jitter. Losses and outages are on; the only timeout is that of the whole test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_profile_keeps_bytes_and_order() {
    let _alone = alone().await;
    let plan: String = NAMES.iter().map(|name| format!("[link.{name}]\nprofile = '{name}'\n")).collect();
    let site = Site::new(&plan, &NAMES, 1).await;
    let sent: Vec<u8> = (0..300_000_u32).map(|index| (index.wrapping_mul(index) >> 7) as u8).collect();
    let mut running = JoinSet::new();
    for name in NAMES {
        let (node, fusion) = site.connect(name).await;
        let ((from_node, to_fusion), (from_fusion, to_node)) = (node.into_split(), fusion.into_split());
        for (mut to, mut from) in [(to_fusion, from_fusion), (to_node, from_node)] {
            let sent = sent.clone();
            running.spawn(async move {
                let began = Instant::now();
                let expected = sent.clone();
                let send = async move {
                    to.write_all(&sent).await.unwrap();
                    to.shutdown().await.unwrap();
                };
                let receive = async {
                    let mut heard = vec![0];
                    from.read_exact(&mut heard).await.unwrap();
                    let first = began.elapsed();
                    from.read_to_end(&mut heard).await.unwrap();
                    (heard, first)
                };
                let ((), (heard, first)) = tokio::join!(send, receive);
                (name, heard == expected, first)
            });
        }
    }
    let ended = tokio::time::timeout(PATIENCE, running.join_all()).await.expect("all bytes arrive");
    assert_eq!(ended.len(), 2 * NAMES.len());
    for (name, same, first) in ended {
        assert!(same, "{name}: other bytes, or another order");
        let (up, _) = named(name).unwrap();
        // Exponential and Pareto jitter only adds; the others subtract at most three deviations, or the whole delay.
        let least_ms = (up.delay_ms - 6.0 * up.jitter_ms).max(0.0);
        assert!(first.as_secs_f64() * 1e3 >= least_ms, "{name}: {first:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_bounded() {
    let _alone = alone().await;
    let site = Site::new("[up]\nrate_mbit_s = 1\nbuffer_kib = 64\n", &["link"], 1).await;
    let (mut node, _fusion) = site.connect("link").await;
    let sending = tokio::spawn(async move {
        // 20 s of line time: the sender is blocked long before that.
        let _ = node.write_all(&[0; 2_500_000]).await;
    });
    let held = || site.relay.links()[0].queued_up;
    let full = async {
        while held() < 60_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, full).await.expect("the buffer fills");
    for _ in 0..200 {
        let held = held();
        assert!(held < 64 * 1024 + 2_000, "{held} bytes held");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    sending.abort();
}

#[test]
fn bad_settings_end_with_64_and_what_cannot_be_kept_with_1() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_backhaul"))
            .args(["--listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0"])
            .args(arguments)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), output.stdout)
    };
    let (code, said, _) = run(&["--profile", "carrier-pigeon"]);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("no profile 'carrier-pigeon'"), "{said}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plan.toml");
    std::fs::write(&file, "[up]\nrate_mbit_s = 100000\n").unwrap();
    let (code, said, announced) = run(&["--plan", file.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    // On a machine that cannot keep even a delay of zero, this is reported first.
    assert!(said.contains("is asked for") && said.contains("is what this machine does"), "{said}");
    assert!(announced.is_empty(), "a relay that refuses announces nothing");
}
