//! Looking on costs fusion nothing.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyloc::figures::statistics::Resampler;
use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;

/// Rounds of four phases, unless the variable `HYLOC_VIEWER_ROUNDS` asks for more.
const ROUNDS: usize = 5;
const PHASE: Duration = Duration::from_secs(2);
/// Fixes at the begin of a phase that count for neither kind: viewers come and go.
const BETWEEN: usize = 15;
/// How often the rounds are made before the test fails.
const ATTEMPTS: usize = 4;
/// Fixes of a kind that a 99 % quantile takes at least.
const LEAST_FIXES: usize = 400;

/// Fusion times of a round, without viewers and with them.
type Round = [Vec<f64>; 2];

/// Twenty viewers, and one that never reads: fusion goes on as before, and memory is bounded.
///
/// Phases of two seconds at 50 frames a second, with and without viewers in turn. Quantiles of the fusion time must not
/// be a tenth higher with them. A host that takes the processor away for a tenth of a second makes any far tail, and it
/// says when (the kernel's account of stolen time): fixes around such a moment count for neither kind. The ratio comes
/// with its 95 % interval over the rounds. Where that lies above a tenth, more rounds are added; the test fails where
/// it still does after four times as many.
#[test]
fn viewers_do_not_slow_fusion() {
    let _alone = alone();
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let fusion = site.fusion(&["--fixes", log.to_str().unwrap()]);
    let nodes = site.nodes(3);
    let simulator = site.simulator(&["--frames", "0", "--rate", "50"]);
    site.until_more_fixes(100);
    let asked =
        std::env::var("HYLOC_VIEWER_ROUNDS").map(|rounds| rounds.parse().expect("a number of rounds"));
    let (mut times, stolen) = (FusionTimes::follow(&log), Stolen::watch());
    let before = fusion.memory_bytes();
    let mut rounds = Vec::new();
    for attempt in 1..=ATTEMPTS {
        rounds.extend((0..asked.clone().unwrap_or(ROUNDS)).map(|_| round(site.http, &mut times, &stolen)));
        match slowed(&rounds) {
            Some(false) => break,
            Some(true) => assert!(attempt < ATTEMPTS, "viewers slow fusion"),
            None if attempt == ATTEMPTS => {
                skipped("viewers::viewers_do_not_slow_fusion", "the host leaves too little processor")
            }
            None => {}
        }
    }
    let growth_mib = (fusion.memory_bytes() as f64 - before as f64) / f64::from(1 << 20);
    println!("memory grew by {growth_mib:.1} MiB");
    assert!(growth_mib < 16.0);
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    assert_eq!(fusion.stop()["unaccounted"], 0);
}

/// Without, with, with, without: what drifts, drifts for both.
fn round(http: SocketAddr, times: &mut FusionTimes, stolen: &Stolen) -> Round {
    let mut round = Round::default();
    for watched in [false, true, true, false] {
        let viewers: Vec<TcpStream> =
            (0..21).filter(|_| watched).map(|viewer| watch(http, viewer > 0)).collect();
        times.fresh();
        std::thread::sleep(PHASE);
        let counted = times.fresh().into_iter().skip(BETWEEN).filter(|fix| !stolen.during(fix));
        round[usize::from(watched)].extend(counted.map(|fix| fix.fusion_ms));
        for viewer in &viewers {
            viewer.shutdown(std::net::Shutdown::Both).unwrap();
        }
    }
    round
}

/// Whether some quantile is a tenth higher with viewers than without, beyond doubt; nothing where too few fixes count.
fn slowed(rounds: &[Round]) -> Option<bool> {
    let counted = |kind: usize| rounds.iter().map(|round| round[kind].len()).sum::<usize>();
    println!("21 viewers: {} fixes without and {} with them count", counted(0), counted(1));
    if counted(0).min(counted(1)) < LEAST_FIXES {
        return None;
    }
    let resampler = Resampler::new(rounds.len());
    let ratios = [0.5, 0.9, 0.99].map(|share| {
        let ratio = resampler.interval(|chosen| {
            let [without, with] = quantiles(chosen.map(|round| &rounds[round]), share);
            with / without
        });
        let [without, with] = quantiles(rounds.iter(), share);
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        println!(
            "fusion p{:.0} {without:.2} to {with:.2} ms, {:+.1} % ({:+.1} to {:+.1})",
            100.0 * share,
            percent(ratio.value),
            percent(ratio.low),
            percent(ratio.high),
        );
        ratio
    });
    Some(ratios.iter().any(|ratio| ratio.low > 1.1))
}

/// When the host took the processor away, from the kernel's account; never where there is none.
struct Stolen(Arc<Mutex<Vec<u64>>>);

impl Stolen {
    /// How often the account is looked at. It counts in steps of 10 ms.
    const LOOK: Duration = Duration::from_millis(20);
    /// How long before it showed the time may have been stolen, and after.
    const MARGIN_NS: u64 = 60_000_000;

    fn watch() -> Self {
        let moments = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::downgrade(&moments);
        std::thread::spawn(move || {
            let mut before = Self::account();
            while let Some(moments) = kept.upgrade() {
                let now = Self::account();
                if now != before {
                    moments.lock().unwrap().push(proto::clock::unix_time_ns());
                }
                before = now;
                drop(moments);
                std::thread::sleep(Self::LOOK);
            }
        });
        Self(moments)
    }

    fn account() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        // cpu user nice system idle iowait irq softirq steal
        text.lines().next()?.split_whitespace().nth(8)?.parse().ok()
    }

    fn during(&self, fix: &FusionTime) -> bool {
        let begin_ns = fix.time_ns - (fix.fusion_ms * 1e6) as u64 - Self::MARGIN_NS;
        self.0.lock().unwrap().iter().any(|moment| (begin_ns..fix.time_ns + Self::MARGIN_NS).contains(moment))
    }
}

/// Opens the stream of live events. In life a viewer is on a machine of its own; here it takes what is left of this one.
fn watch(http: SocketAddr, reads: bool) -> TcpStream {
    let mut stream = TcpStream::connect(http).unwrap();
    write!(stream, "GET /api/live HTTP/1.1\r\nhost: {http}\r\n\r\n").unwrap();
    if reads {
        let mut stream = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            rustix::process::setpriority_process(None, 19).unwrap();
            std::io::copy(&mut stream, &mut std::io::sink())
        });
    }
    stream
}

/// When a fix was out, and how long it took from the last block on.
struct FusionTime {
    time_ns: u64,
    fusion_ms: f64,
}

/// The fusion times in a growing log of fixes.
struct FusionTimes {
    log: BufReader<File>,
    line: String,
}

impl FusionTimes {
    fn follow(log: &Path) -> Self {
        Self { log: BufReader::new(File::open(log).unwrap()), line: String::new() }
    }

    /// Those since the last call; a line that is not whole yet is left for the next.
    fn fresh(&mut self) -> Vec<FusionTime> {
        let mut times = Vec::new();
        while self.log.read_line(&mut self.line).unwrap() > 0 && self.line.ends_with('\n') {
            let fix: serde_json::Value = serde_json::from_str(&self.line).unwrap();
            let timing = &fix["timing"];
            times.push(FusionTime {
                time_ns: timing["time_ns"].as_u64().unwrap(),
                fusion_ms: timing["fusion_ms"].as_f64().unwrap(),
            });
            self.line.clear();
        }
        times
    }
}

/// A quantile without and with viewers.
fn quantiles<'a>(rounds: impl Iterator<Item = &'a Round>, share: f64) -> [f64; 2] {
    let mut both = Round::default();
    for round in rounds {
        both.iter_mut().zip(round).for_each(|(all, own)| all.extend_from_slice(own));
    }
    both.map(|mut all| {
        let at = (share * all.len() as f64) as usize;
        *all.select_nth_unstable_by(at, f64::total_cmp).1
    })
}
