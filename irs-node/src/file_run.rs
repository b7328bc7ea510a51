//! What is different about a node that reads its echoes from a file: it starts when all nodes are there, waits for the fusion
//! center instead of dropping, and ends.

use std::path::PathBuf;
use std::time::Duration;

use proto::channel::connect;
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::outbox::Outbox;
use crate::worker::NodeContext;

/// Reports of a file that are not decided yet: half of the frames that a fusion center lets wait for a solver by default, so that it
/// sheds none.
const MOST_UNDECIDED: usize = 8;

/// How often the fusion center is asked who is connected.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// How often the wait is logged.
const NOTICE: Duration = Duration::from_secs(2);

/// How the file of a node ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileEnd {
    pub file: PathBuf,
    /// Frames that were read, all of which were processed.
    pub frames: u64,
    /// What ended it, if it was not the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Waits until the fusion center has decided on enough reports, for files; other sources have credit of their own.
pub(crate) struct ReportRoom(Option<watch::Receiver<Outbox>>);

impl ReportRoom {
    /// `next`, once there is room. Cancel safe if `next` is.
    pub async fn then<T>(&mut self, next: impl Future<Output = T>) -> T {
        if let Some(outbox) = &mut self.0 {
            // The sender lives as long as the node.
            let _ = outbox.wait_for(|outbox| outbox.undecided() < MOST_UNDECIDED).await;
        }
        next.await
    }
}

impl NodeContext {
    /// Room for reports of the source of this node.
    pub(crate) fn room(&self) -> ReportRoom {
        ReportRoom(self.options.echoes.as_ref().map(|_| self.outbox.subscribe()))
    }

    /// Waits until every IRS has a connected node, or until `start_after_s` has passed: frames of a file come at once, and those that
    /// a node sends before the others are there would be fused without them.
    pub(crate) async fn until_all_connected(&self) {
        let begun = Instant::now();
        let (mut noticed, mut client) = (None, None);
        loop {
            match self.connected(&mut client).await {
                Ok((there, of)) if there >= of => return,
                Ok((there, of)) => {
                    let start_after = self.options.start_after;
                    if !start_after.is_zero() && begun.elapsed() >= start_after {
                        tracing::warn!(there, of, "starting with the file without all nodes");
                        return;
                    }
                    if noticed.is_none_or(|at: Instant| at.elapsed() >= NOTICE) {
                        tracing::info!(there, of, "waiting for the other nodes before the file is read");
                        noticed = Some(Instant::now());
                    }
                }
                Err(status) if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) => {
                    let wait = self.options.start_after;
                    tracing::warn!(
                        wait_s = wait.as_secs_f64(),
                        "a node is not told who else is connected: starting with the file after start_after_s"
                    );
                    return sleep(wait).await;
                }
                // The reporter tells of a fusion center that does not answer.
                Err(_) => {}
            }
            sleep(ASK_INTERVAL).await;
        }
    }

    /// Number of nodes that are connected to the fusion center, and how many there may be. The client is made once.
    async fn connected(&self, client: &mut Option<FusionClient<Channel>>) -> Result<(usize, usize), Status> {
        let client = match client {
            Some(client) => client,
            none => {
                let channel = connect(&self.options.fusion, self.credentials.to_fusion().as_ref()).await?;
                none.insert(FusionClient::new(channel))
            }
        };
        let status = client.status(v1::StatusRequest {}).await?.into_inner();
        let there = status.nodes.iter().filter(|node| node.connected).count();
        Ok((there, status.irs_count as usize))
    }
}
