//! Measures the cost of viewers of the page for fusion. A measurement, not a test: it depends on the machine.
//!
//! `cargo run -p hyloc-tests --example viewers -- [ROUNDS]`
//!
//! Phases of two seconds at 50 frames per second, alternately with and without 21 viewers, one of which never reads. Fixes
//! around times when the host took the processor away (stolen time of the kernel) are ignored. Ratios of quantiles have
//! a 95 % interval over the rounds.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyloc::figures::statistics::Resampler;
use hyloc_tests::pipeline::*;
use hyloc_tests::process::viewer_of;

/// Default number of rounds of four phases.
const ROUNDS: usize = 5;
const PHASE: Duration = Duration::from_secs(2);
/// Fixes at the start of a phase that are ignored, while viewers connect and disconnect.
const BETWEEN: usize = 15;

/// Fusion times of a round, without viewers and with them.
type Round = [Vec<f64>; 2];

fn main() {
    let asked = std::env::args().nth(1);
    let rounds = asked.map_or(ROUNDS, |text| text.parse().expect("a number of rounds"));
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let fusion = site.fusion(&["--fixes", log.to_str().unwrap()]);
    let nodes = site.nodes(3);
    let simulator = site.simulator(&["--frames", "0", "--rate", "50"]);
    site.until_more_fixes(100);
    let (mut times, stolen) = (FusionTimes::follow(&log), Stolen::watch());
    let before = fusion.memory_bytes();
    let rounds: Vec<Round> = (0..rounds).map(|_| round(site.http, &mut times, &stolen)).collect();
    report(&rounds);
    let growth_mib = (fusion.memory_bytes() as f64 - before as f64) / f64::from(1 << 20);
    println!("memory of the fusion center grew by {growth_mib:.1} MiB");
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

/// Without, with, with, without viewers, so that drift affects both kinds equally.
fn round(http: SocketAddr, times: &mut FusionTimes, stolen: &Stolen) -> Round {
    let mut round = Round::default();
    for watched in [false, true, true, false] {
        let viewers: Vec<TcpStream> =
            (0..21).filter(|_| watched).map(|viewer| viewer_of(http, viewer > 0)).collect();
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

/// Prints quantiles of the fusion time without and with viewers, and their ratio.
fn report(rounds: &[Round]) {
    let counted = |kind: usize| rounds.iter().map(|round| round[kind].len()).sum::<usize>();
    println!("21 viewers: {} fixes without and {} with them count", counted(0), counted(1));
    if counted(0).min(counted(1)) == 0 {
        return println!("too much processor time was stolen to compare");
    }
    let resampler = Resampler::new(rounds.len());
    for share in [0.5, 0.9, 0.99] {
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
    }
}

/// Times at which the host took the processor away, by the kernel's statistics.
struct Stolen(Arc<Mutex<Vec<u64>>>);

impl Stolen {
    /// Sampling interval of the statistics, which count in steps of 10 ms.
    const LOOK: Duration = Duration::from_millis(20);
    /// Uncertainty of the time of stealing, before and after it is observed.
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

/// Time of a fix, and its latency from the last block on.
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

    /// Fusion times since the last call; an incomplete line is left for the next.
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
