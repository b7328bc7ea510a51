//! Fixes shown as they come, and an eye on every process.
//!
//! One rule for processes that die without being told to: a node is named, and the others go on; without the fusion
//! center, the simulator or the relay nothing can go on, nor without any node, nor before the first fix, since the
//! simulator waits for all nodes. Either way the demo sums up what there is.

use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use serde_json::Value;
use telemetry::exit;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::DemoFlags;
use super::children::Child;
use crate::commands::note;

/// How often the processes are looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// How long a child gets to drain.
const DRAIN_TIME: Duration = Duration::from_secs(20);

/// What was seen of a demo.
#[derive(Debug, Default)]
pub struct Watched {
    /// From the start of the first process to the first fix with a position.
    pub first_fix_s: Option<f64>,
    /// Frames with a position.
    pub fixes: u64,
    /// Frames without one.
    pub without_fix: u64,
    /// Processes that died without being told to, in words.
    pub deaths: Vec<String>,
}

impl Watched {
    fn solved(&self) -> u64 {
        self.fixes + self.without_fix
    }

    fn take(&mut self, fix: &v1::Fix, began: Instant) {
        if fix.position.is_none() {
            self.without_fix += 1;
            return;
        }
        self.fixes += 1;
        self.first_fix_s.get_or_insert_with(|| began.elapsed().as_secs_f64());
    }
}

/// All processes.
pub struct Cast {
    pub fusion: Child,
    pub simulator: Child,
    pub nodes: Vec<Child>,
    pub relay: Option<Child>,
}

/// Last lines of the processes; none of one that died.
pub struct Summaries {
    pub fusion: Option<Value>,
    pub simulator: Option<Value>,
    pub nodes: Vec<Option<Value>>,
}

impl Cast {
    /// Stops all processes, upstream first: each stage drains into the next.
    pub async fn stop(self) -> Summaries {
        let Self { fusion, simulator, mut nodes, relay } = self;
        let simulator = simulator.stop(DRAIN_TIME).await;
        nodes.iter_mut().for_each(Child::terminate);
        let mut summaries = Vec::with_capacity(nodes.len());
        for node in nodes {
            summaries.push(node.stop(DRAIN_TIME).await);
        }
        if let Some(relay) = relay {
            relay.stop(DRAIN_TIME).await;
        }
        Summaries { fusion: fusion.stop(DRAIN_TIME).await, simulator, nodes: summaries }
    }

    /// Nodes that have ended and were not known to, but for the last `spared` ones.
    fn ended_nodes(&mut self, known: &mut [bool], spared: usize) -> anyhow::Result<Vec<(usize, ExitStatus)>> {
        let mut ended = Vec::new();
        let expected = self.nodes.len() - spared;
        for (index, node) in self.nodes.iter_mut().enumerate().take(expected) {
            if let Some(status) = node.ended()?.filter(|_| !known[index]) {
                known[index] = true;
                ended.push((index, status));
            }
        }
        Ok(ended)
    }
}

/// Shows fixes until the simulator ends, or one without whom nothing goes on.
pub async fn watch(
    flags: &DemoFlags,
    grpc: SocketAddr,
    cast: &mut Cast,
    began: Instant,
    stop: &CancellationToken,
) -> anyhow::Result<Watched> {
    let bar = progress_bar(flags);
    let mut client = FusionClient::connect(format!("http://{grpc}")).await?;
    let mut fixes = client.watch(v1::WatchRequest {}).await?.into_inner();
    let mut watched = Watched::default();
    let mut known = vec![false; cast.nodes.len()];
    // Not made anew with every fix: it must come due however fast fixes come.
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            fix = fixes.message() => {
                let Ok(Some(fix)) = fix else {
                    let ended = tokio::time::timeout(DRAIN_TIME, cast.fusion.wait()).await;
                    let status = ended.ok().and_then(Result::ok);
                    watched.deaths.push(death("the fusion center", status));
                    break;
                };
                watched.take(&fix, began);
                bar.set_position(watched.solved());
                bar.set_message(one_line(&fix));
                if flags.kill_node_after == Some(watched.solved()) {
                    cast.nodes.iter_mut().next_back().into_iter().for_each(Child::kill);
                }
            }
            status = cast.simulator.wait() => {
                let status = status?;
                if !status.success() {
                    watched.deaths.push(death("the simulator", Some(status)));
                }
                break;
            }
            () = stop.cancelled() => break,
            _ = checks.tick() => {
                if !check(flags, cast, &mut known, &mut watched, &bar)? {
                    break;
                }
            }
        }
    }
    check(flags, cast, &mut known, &mut watched, &bar)?;
    bar.finish_and_clear();
    Ok(watched)
}

/// Names what has died since the last look; whether the demo can go on.
fn check(
    flags: &DemoFlags,
    cast: &mut Cast,
    known: &mut [bool],
    watched: &mut Watched,
    bar: &ProgressBar,
) -> anyhow::Result<bool> {
    let spared = usize::from(flags.kill_node_after.is_some_and(|after| watched.solved() >= after));
    for (index, status) in cast.ended_nodes(known, spared)? {
        let refused = [exit::BAD_CONFIGURATION, exit::REFUSED].map(|code| Some(i32::from(code)));
        if watched.solved() == 0 && refused.contains(&status.code()) {
            // It has said itself what it does not take.
            bail!("node {index} ended with {status}");
        }
        let death = death(&format!("node {index}"), Some(status));
        bar.suspend(|| note(&format!("{death}: the others go on")));
        watched.deaths.push(death);
    }
    let relay = cast.relay.as_mut().map(Child::ended).transpose()?.flatten();
    watched.deaths.extend(relay.map(|status| death("the backhaul", Some(status))));
    let none_left = known.iter().all(|ended| *ended);
    let too_early = known.contains(&true) && watched.solved() == 0;
    Ok(relay.is_none() && !none_left && !too_early)
}

fn death(who: &str, status: Option<ExitStatus>) -> String {
    match status {
        Some(status) => format!("{who} died: {status}"),
        None => format!("{who} ended early"),
    }
}

fn progress_bar(flags: &DemoFlags) -> ProgressBar {
    let target =
        if flags.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let (bar, template) = if flags.frames == 0 {
        (ProgressBar::with_draw_target(None, target), "{spinner} frame {pos}  {msg}")
    } else {
        let bar = ProgressBar::with_draw_target(Some(flags.frames), target);
        (bar, "{bar:30} frame {pos}/{len}, {eta} left  {msg}")
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn one_line(fix: &v1::Fix) -> String {
    let Some(position) = &fix.position else { return format!("{}: no position", fix.status) };
    let error = fix.truth.as_ref().map(|truth| {
        let error_m = (position.x_m - truth.x_m).hypot(position.y_m - truth.y_m);
        format!(", off by {:.1} cm", 100.0 * error_m)
    });
    format!("({:.2}, {:.2}) m{} {}", position.x_m, position.y_m, error.unwrap_or_default(), fix.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fix_is_the_first_with_a_position() {
        let began = Instant::now();
        let mut watched = Watched::default();
        watched.take(&v1::Fix::default(), began);
        assert_eq!((watched.first_fix_s, watched.solved()), (None, 1));
        let found = v1::Fix { position: Some(v1::Point { x_m: 1.0, y_m: 2.0 }), ..v1::Fix::default() };
        watched.take(&found, began);
        assert!(watched.first_fix_s.is_some());
        assert_eq!((watched.fixes, watched.without_fix), (1, 1));
    }
}
