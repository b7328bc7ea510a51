//! What comes out of a fusion center that is offered ten times as many frames as it can solve. A measurement, not a test: it
//! depends on the machine.
//!
//! `cargo run --release -p hyloc-fusion-center --example overload -- [K ...]`, by default with 3 and 16 IRSs.
//!
//! The capacity is measured in a run of its own, with no more frames in flight than solvers and one that waits. A second
//! fusion center then gets ten times that rate, and half of it afterwards. Its nodes have the outbox of the real
//! ones and leave out the frames that the fusion center does not ask for; their reports are made beforehand, so that the
//! processor time goes to the fusion center. The age of a fix runs from the time at which its frame was due to the
//! acknowledgement at the first node, which is longer than the age at the publication. Recovery takes until the first
//! second in which every frame is fused.
#![allow(clippy::print_stdout)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use irs_node::outbox::{Outbox, Totals};
use irs_node::stride::Stride;
use proto::v1;
use support::{Center, Echoes, Node, Options, echoes_scenario};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

const DEADLINE_MS: u64 = 250;
const FACTOR: f64 = 10.0;
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(20);
const AFTERWARDS: Duration = Duration::from_secs(8);
const CREDIT: u32 = 64;
const NODE_QUEUE: usize = 256;

/// Frames that were fused: when they were due, and when the first node was told.
type Fused = Arc<Mutex<HashMap<u64, (Instant, Instant)>>>;

/// The frames that are due: number of the latest, and its time.
type Due = watch::Receiver<Option<(u64, Instant)>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let counts = if asked.is_empty() { vec![3, 16] } else { asked };
    for count in counts {
        let reports = reports(count);
        let capacity_hz = capacity(count, &reports).await;
        println!("K = {count}: capacity {capacity_hz:.1} frames/s, in a run without overload");
        overload(count, &reports, capacity_hz).await;
    }
}

/// A report of every node.
fn reports(count: usize) -> Vec<v1::FrameReport> {
    let base = echoes_scenario();
    let scenario =
        if count == base.irs.len() { base } else { model::scenario::ring(&base, count).expect("a ring") };
    let echoes = Echoes::of(&scenario);
    (0..count).map(|node| echoes.report(node, 0)).collect()
}

async fn center(count: usize) -> (Center, Vec<Node>) {
    let nodes = (count != echoes_scenario().irs.len()).then_some(count);
    let center = Center::start(Options { nodes, deadline_ms: Some(DEADLINE_MS), ..Options::default() }).await;
    let mut joined = Vec::new();
    for index in 0..count {
        joined.push(Node::join(&center, &format!("node-{index}"), Some(index as u32)).await);
    }
    (center, joined)
}

/// Frames per second with as many in flight as there are solvers, and one that waits.
async fn capacity(count: usize, reports: &[v1::FrameReport]) -> f64 {
    let (center, mut nodes) = center(count).await;
    let in_flight = std::thread::available_parallelism().map_or(1, usize::from) as u64 + 1;
    let begun = Instant::now();
    let (mut frame, mut fused, mut counted_from) = (0, 0, None);
    while begun.elapsed() < WARM_UP + MEASURED {
        for (node, report) in nodes.iter_mut().zip(reports) {
            node.send(v1::FrameReport { frame, ..report.clone() }).await;
        }
        frame += 1;
        if frame < in_flight {
            continue;
        }
        let mut complete = true;
        for node in &mut nodes {
            complete &= node.acknowledgement().await.expect("an acknowledgement").fused > 0;
        }
        if begun.elapsed() >= WARM_UP {
            counted_from.get_or_insert_with(Instant::now);
            fused += u64::from(complete);
        }
    }
    let hz = (fused - 1) as f64 / counted_from.expect("frames").elapsed().as_secs_f64();
    drop(nodes);
    center.stop().await;
    hz
}

/// A node that reports what is due and asked for, until there are no more frames and everything is acknowledged.
async fn report(mut node: Node, report: v1::FrameReport, mut due: Due, fused: Fused) -> Totals {
    let (mut outbox, mut stride, mut next) = (Outbox::new(NODE_QUEUE), Stride::default(), 0);
    let mut times = HashMap::new();
    let mut ended = false;
    outbox.registered("center", CREDIT);
    while !(ended && outbox.is_empty()) {
        tokio::select! {
            changed = due.changed(), if !ended => {
                ended = changed.is_err();
                let Some((latest, time)) = *due.borrow_and_update() else { continue };
                for frame in next..=latest {
                    if stride.includes(frame, std::time::Instant::now()) {
                        times.insert(frame, time);
                        outbox.push(v1::FrameReport { frame, ..report.clone() });
                    } else {
                        outbox.leave_out(report.blocks.len() as u64);
                    }
                }
                next = latest + 1;
            }
            told = node.acknowledgements.message() => {
                let told = told.expect("an acknowledgement").expect("the stream goes on");
                stride.ask(told.stride, std::time::Instant::now());
                outbox.acknowledge(&told);
                if let Some(due) = times.remove(&told.frame).filter(|_| told.fused > 0) {
                    fused.lock().expect("a lock").entry(told.frame).or_insert((due, Instant::now()));
                }
            }
        }
        while let Some(next) = outbox.take_next() {
            node.reports.send(next).await.expect("the stream goes on");
        }
    }
    outbox.totals()
}

/// Makes frames due at a rate for some time; returns the number of the next.
async fn offer(due: &watch::Sender<Option<(u64, Instant)>>, first: u64, hz: f64, time: Duration) -> u64 {
    let begun = Instant::now();
    let frames = (time.as_secs_f64() * hz) as u64;
    for number in 0..frames {
        let at = begun + Duration::from_secs_f64(number as f64 / hz);
        sleep_until(at).await;
        due.send_replace(Some((first + number, at)));
    }
    first + frames
}

async fn overload(count: usize, reports: &[v1::FrameReport], capacity_hz: f64) {
    let (center, nodes) = center(count).await;
    let (offers, due) = watch::channel(None);
    let fused = Fused::default();
    let tasks: Vec<_> = nodes
        .into_iter()
        .zip(reports)
        .map(|(node, sample)| tokio::spawn(report(node, sample.clone(), due.clone(), fused.clone())))
        .collect();
    drop(due);
    let first = offer(&offers, 0, FACTOR * capacity_hz, WARM_UP).await;
    let begun = Instant::now();
    let second = offer(&offers, first, FACTOR * capacity_hz, MEASURED).await;
    let ended = Instant::now();
    let last = offer(&offers, second, capacity_hz / 2.0, AFTERWARDS).await;
    let finished = Instant::now();
    sleep(Duration::from_millis(4 * DEADLINE_MS)).await;
    drop(offers);
    let mut unbalanced = 0;
    for task in tasks {
        let t = task.await.expect("a node");
        unbalanced += t.sent.abs_diff(t.fused + t.late + t.duplicate + t.dropped) + t.in_flight;
    }
    let summary = center.stop().await;
    let fused = std::mem::take(&mut *fused.lock().expect("a lock"));
    let during = fused.values().filter(|(_, told)| (begun..ended).contains(told)).count();
    let goodput_hz = during as f64 / ended.duration_since(begun).as_secs_f64();
    let mut ages_ms: Vec<f64> =
        fused.values().map(|(due, told)| told.duration_since(*due).as_secs_f64() * 1e3).collect();
    ages_ms.sort_by(f64::total_cmp);
    let quantile = |share: f64| ages_ms[((ages_ms.len() - 1) as f64 * share).round() as usize];
    // The beginning of the first second of the normal load in which every frame was fused.
    let after_s = finished.duration_since(ended).as_secs_f64() / (last - second) as f64;
    let (mut from, frames_per_second) = (second, (1.0 / after_s) as u64);
    for frame in second..last {
        if from + frames_per_second <= frame {
            break;
        }
        if !fused.contains_key(&frame) {
            from = frame + 1;
        }
    }
    let recovery_s = (from - second) as f64 * after_s;
    let lost = (from..last).filter(|frame| !fused.contains_key(frame)).count();

    let share = 100.0 * goodput_hz / capacity_hz;
    let bounds = [
        (
            "goodput",
            format!("{goodput_hz:.1} fixes/s, {share:.0} % of the capacity (at least 80)"),
            share >= 80.0,
        ),
        (
            "age",
            format!(
                "p50 {:.0}, p99 {:.0}, longest {:.0} ms (p99 at most {})",
                quantile(0.5),
                quantile(0.99),
                quantile(1.0),
                2 * DEADLINE_MS
            ),
            quantile(0.99) <= 2.0 * DEADLINE_MS as f64,
        ),
        (
            "ledger",
            format!("{} unaccounted, {unbalanced} unbalanced at the nodes (none)", summary.unaccounted),
            summary.unaccounted == 0 && unbalanced == 0,
        ),
        (
            "recovery",
            format!("{recovery_s:.1} s (at most 3), {lost} frames lost afterwards"),
            recovery_s <= 3.0,
        ),
    ];
    println!(
        "K = {count}: {:.0} frames/s offered for {} s, {} fixes, {} shed",
        FACTOR * capacity_hz,
        (WARM_UP + MEASURED).as_secs(),
        ages_ms.len(),
        summary.counts.load.frames_shed
    );
    for (what, found, holds) in bounds {
        println!("  {what:<9} {found}: {}", if holds { "holds" } else { "FALLS SHORT" });
    }
}
