//! Display of fixes, and supervision of all processes.
//!
//! If a node dies unexpectedly it is reported, and the others continue. The demo ends if the fusion center, the simulator
//! or the relay dies, if no node is left, or if a node dies before the first fix, because the simulator waits for all
//! nodes. A summary is printed in any case.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use proto::channel::connect;
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use serde_json::Value;
use telemetry::exit::{self, Failure};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use trust::ClientTls;

use super::DemoFlags;
use super::children::{Child, Children, EchoWay};
use super::clocks::ClockScore;
use super::control::{NodeAnswer, NodeOrder, NodeWork};
use crate::commands::note;

const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Timeout for a child to drain its queues and end.
const DRAIN_TIME: Duration = Duration::from_secs(20);

/// Pause before the stream of fixes is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

/// Observations during a demo; see [`super::DemoReport`] for the fields.
#[derive(Debug, Default)]
pub struct Watched {
    pub first_fix_s: Option<f64>,
    pub fixes: u64,
    pub without_fix: u64,
    pub deaths: Vec<String>,
    /// None where clocks are trusted.
    pub clocks: Option<ClockScore>,
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
        if let Some(clocks) = &mut self.clocks {
            clocks.take(fix);
        }
        self.first_fix_s.get_or_insert_with(|| began.elapsed().as_secs_f64());
    }

    /// The fusion center dies, or ends in order because the reader of its standard output has left.
    fn fusion_ended(&mut self, flags: &DemoFlags, status: Option<ExitStatus>, stop: &CancellationToken) {
        if flags.to_stdout() && status.is_some_and(|status| status.success()) {
            stop.cancel();
        } else {
            self.deaths.push(death("the fusion center", status));
        }
    }
}

/// All child processes.
pub struct DemoProcesses {
    pub fusion: Child,
    pub simulator: Child,
    pub nodes: Vec<Child>,
    pub relay: Option<Child>,
}

impl DemoProcesses {
    /// Stops all processes, upstream first, so that each stage drains into the next. Returns the last lines of fusion
    /// center, simulator and nodes, none for a process that died; and how the fusion center ended.
    pub async fn stop(self) -> (Option<Value>, Option<Value>, Vec<Option<Value>>, Option<ExitStatus>) {
        let Self { mut fusion, simulator, mut nodes, relay } = self;
        let simulator = simulator.stop(DRAIN_TIME).await;
        nodes.iter_mut().for_each(Child::terminate);
        let mut summaries = Vec::with_capacity(nodes.len());
        for node in nodes {
            summaries.push(node.stop(DRAIN_TIME).await);
        }
        if let Some(relay) = relay {
            relay.stop(DRAIN_TIME).await;
        }
        fusion.terminate();
        let status = tokio::time::timeout(DRAIN_TIME, fusion.wait()).await.ok().and_then(Result::ok);
        (fusion.stop(Duration::ZERO).await, simulator, summaries, status)
    }

    /// Nodes that have ended by themselves since the last call.
    fn ended_nodes(&mut self, fates: &mut [NodeFate]) -> anyhow::Result<Vec<(usize, ExitStatus)>> {
        let mut ended = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if let Some(status) = node.ended()?.filter(|_| fates[index] == NodeFate::Runs) {
                fates[index] = NodeFate::Ended;
                ended.push((index, status));
            }
        }
        Ok(ended)
    }
}

/// What became of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeFate {
    Runs,
    /// By itself.
    Ended,
    /// On request; it may be started again.
    Killed,
}

/// Starts nodes again, and the orders to do so; none where nobody may give any.
pub struct NodeSupply<'a> {
    pub children: &'a Children<'a>,
    /// By node: where it finds the fusion center, and how it gets its echoes.
    pub ways: Vec<(SocketAddr, EchoWay)>,
    pub orders: Option<mpsc::Receiver<NodeOrder>>,
}

impl NodeSupply<'_> {
    /// The next order; never completes where nobody may give any.
    async fn next(&mut self) -> NodeOrder {
        let next = match &mut self.orders {
            Some(orders) => orders.recv().await,
            None => None,
        };
        match next {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }

    /// Carries out an order.
    async fn work(&self, work: NodeWork, nodes: &mut [Child], fates: &mut [NodeFate]) -> NodeAnswer {
        let count = nodes.len();
        match work {
            NodeWork::Show => {}
            NodeWork::Kill(index) | NodeWork::Start(index) if index >= count => {
                return Err(format!("there is no node {index}: the last one is {}\n", count - 1));
            }
            NodeWork::Kill(index) if fates[index] != NodeFate::Runs => {
                return Err(format!("node {index} does not run\n"));
            }
            NodeWork::Start(index) if fates[index] == NodeFate::Runs => {
                return Err(format!("node {index} runs already\n"));
            }
            NodeWork::Kill(index) => {
                fates[index] = NodeFate::Killed;
                nodes[index].kill();
                nodes[index].wait().await.map_err(|error| format!("{error}\n"))?;
            }
            NodeWork::Start(index) => {
                let (grpc, echo) = self.ways[index];
                let started = self.children.node(index, grpc, echo);
                nodes[index] = started.map_err(|error| format!("node {index}: {error:#}\n"))?;
                fates[index] = NodeFate::Runs;
            }
        }
        Ok(fates.iter().map(|fate| *fate == NodeFate::Runs).collect())
    }
}

/// Shows fixes until the simulator or another indispensable process ends.
pub async fn watch(
    flags: &DemoFlags,
    (grpc, tls): (SocketAddr, Option<&ClientTls>),
    processes: &mut DemoProcesses,
    mut supply: NodeSupply<'_>,
    (began, clocks): (Instant, Option<ClockScore>),
    stop: &CancellationToken,
) -> anyhow::Result<Watched> {
    let bar = progress_bar(flags);
    let mut fixes = open(grpc, tls).await?;
    let mut watched = Watched { clocks, ..Watched::default() };
    let mut fates = vec![NodeFate::Runs; processes.nodes.len()];
    // One interval for all iterations: it must elapse even if fixes arrive continuously.
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            fix = fixes.message() => {
                let fix = match fix {
                    Ok(Some(fix)) => fix,
                    broken => {
                        let why = broken.err().map_or_else(|| "it ended".into(), |status| status.to_string());
                        match reopen((grpc, tls), &mut processes.fusion, stop).await {
                            Reopened::Stream(stream) => fixes = *stream,
                            Reopened::Ended(status) => {
                                watched.fusion_ended(flags, status, stop);
                                break;
                            }
                            Reopened::Stopped => break,
                        }
                        bar.suspend(|| note(&format!("the stream of fixes broke ({why}) and is open again")));
                        continue;
                    }
                };
                watched.take(&fix, began);
                bar.set_position(watched.solved());
                bar.set_message(one_line(&fix));
                if flags.kill_node_after == Some(watched.solved()) {
                    processes.nodes.iter_mut().next_back().into_iter().for_each(Child::kill);
                    fates.iter_mut().next_back().into_iter().for_each(|fate| *fate = NodeFate::Killed);
                }
            }
            status = processes.fusion.wait() => {
                watched.fusion_ended(flags, status.ok(), stop);
                break;
            }
            status = processes.simulator.wait() => {
                let status = status?;
                if !status.success() {
                    watched.deaths.push(death("the simulator", Some(status)));
                }
                break;
            }
            () = stop.cancelled() => break,
            NodeOrder { work, answer } = supply.next() => {
                // It is not an error if nobody waits for the answer.
                let _ = answer.send(supply.work(work, &mut processes.nodes, &mut fates).await);
            }
            _ = checks.tick() => {
                if !check(processes, &mut fates, &mut watched, &bar)? {
                    break;
                }
            }
        }
    }
    if stop.is_cancelled() && processes.fusion.ended()?.is_some() {
        // The reader of the fixes has left: nobody takes what the nodes would drain.
        processes.nodes.iter_mut().for_each(Child::kill);
        fates.fill(NodeFate::Ended);
    }
    check(processes, &mut fates, &mut watched, &bar)?;
    bar.finish_and_clear();
    Ok(watched)
}

async fn open(grpc: SocketAddr, tls: Option<&ClientTls>) -> Result<Streaming<v1::Fix>, Status> {
    let mut client = FusionClient::new(connect(&grpc.to_string(), tls).await?);
    Ok(client.watch(v1::WatchRequest {}).await?.into_inner())
}

/// What became of a stream of fixes that broke.
enum Reopened {
    Stream(Box<Streaming<v1::Fix>>),
    /// The fusion center has ended, or neither ends nor answers.
    Ended(Option<ExitStatus>),
    /// The demo was interrupted.
    Stopped,
}

/// Opens the stream of fixes again, unless the fusion center has ended. A stream may break although the fusion center lives:
/// a stall of this process or of the machine for longer than the keepalive of HTTP/2 waits, 2 s, closes the connection.
async fn reopen(
    (grpc, tls): (SocketAddr, Option<&ClientTls>),
    fusion: &mut Child,
    stop: &CancellationToken,
) -> Reopened {
    let tried = async {
        loop {
            // The pause comes first: a fusion center that ends closes its streams a moment before.
            tokio::time::sleep(REOPEN_PAUSE).await;
            if let Ok(stream) = open(grpc, tls).await {
                return stream;
            }
        }
    };
    tokio::select! {
        status = fusion.wait() => Reopened::Ended(status.ok()),
        tried = tokio::time::timeout(DRAIN_TIME, tried) => match tried {
            Ok(stream) => Reopened::Stream(Box::new(stream)),
            Err(_) => Reopened::Ended(None),
        },
        () = stop.cancelled() => Reopened::Stopped,
    }
}

/// Reports processes that died since the last call; returns whether the demo can continue.
fn check(
    processes: &mut DemoProcesses,
    fates: &mut [NodeFate],
    watched: &mut Watched,
    bar: &ProgressBar,
) -> anyhow::Result<bool> {
    for (index, status) in processes.ended_nodes(fates)? {
        let code = exit::code_of_child(status);
        if watched.solved() == 0 && code != exit::SOFTWARE {
            // The node has printed the reason itself.
            bail!(Failure::new(code, format!("node {index} ended with {status}")));
        }
        let death = death(&format!("node {index}"), Some(status));
        bar.suspend(|| note(&format!("{death}: the others go on")));
        watched.deaths.push(death);
    }
    let relay = processes.relay.as_mut().map(Child::ended).transpose()?.flatten();
    watched.deaths.extend(relay.map(|status| death("the backhaul", Some(status))));
    let none_left = fates.iter().all(|fate| *fate == NodeFate::Ended);
    let too_early = fates.contains(&NodeFate::Ended) && watched.solved() == 0;
    Ok(relay.is_none() && !none_left && !too_early)
}

fn death(who: &str, status: Option<ExitStatus>) -> String {
    match status {
        Some(status) => format!("{who} died: {status}"),
        None => format!("{who} does not answer"),
    }
}

fn progress_bar(flags: &DemoFlags) -> ProgressBar {
    let mixed = flags.to_stdout() && std::io::stdout().is_terminal();
    let target = if mixed { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
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
        let found =
            v1::Fix { position: Some(v1::Point { x_m: 1.0, y_m: 2.0, z_m: 0.0 }), ..v1::Fix::default() };
        watched.take(&found, began);
        assert!(watched.first_fix_s.is_some());
        assert_eq!((watched.fixes, watched.without_fix), (1, 1));
    }
}
