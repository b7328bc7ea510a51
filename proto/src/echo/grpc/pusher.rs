//! The simulator's side: pushes frames into one node, and connects again whenever the call ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::Failures;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;
use trust::{Identity, Role};

use super::super::hub::{ConnectionQueue, Hub, QueuedMessage};
use super::super::messages::{Hello, Resume, ToNode};
use super::super::publisher::Publication;
use super::super::subscriptions::ConnectionId;
use super::{VERSION, bytes_of, message_of};
use crate::backoff::Backoff;
use crate::channel::connect;
use crate::site::short_hash;
use crate::v1;
use crate::v1::echoes_client::EchoesClient;
use crate::v1::push_echoes_reply::Content as Reply;
use crate::v1::push_echoes_request::Content;

/// Time for a reply other than acknowledgements.
const CALL: Duration = Duration::from_secs(4);

/// A node that takes echoes.
#[derive(Debug, Clone)]
pub struct PushTarget {
    /// host:port.
    pub address: String,
    /// What the pusher proves itself with; with it, the node has to prove the index that it tells.
    pub identity: Option<Identity>,
}

impl PushTarget {
    /// Connects to a server of this role, any if none.
    async fn connect(&self, role: Option<Role>) -> Result<EchoesClient<Channel>, Status> {
        let tls = self.identity.as_ref().map(|identity| identity.client(role));
        Ok(EchoesClient::new(connect(&self.address, tls.as_ref()).await?))
    }
}

/// Pushes the frames of a publication into `target`, for ever.
pub(in super::super) async fn push(target: PushTarget, publication: Publication, hub: Arc<Hub>) {
    let (mut backoff, mut failures) = (Backoff::new(), Failures::default());
    loop {
        let opened = Instant::now();
        let status = session(&target, &publication, &hub).await;
        if opened.elapsed() > CALL {
            backoff.reset();
            failures.succeeded(Instant::now());
        }
        let (address, reason) = (&target.address, status.message());
        if let Some(notice) = failures.failed(Instant::now(), reason) {
            let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
            tracing::warn!(address, reason, attempts, failing_for_s, "no echoes to a node: trying again");
        }
        backoff.wait().await;
    }
}

/// A connection that leaves the hub however its session ends.
struct Presence<'a>(&'a Hub, ConnectionId);

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// One call; returns why it ended.
async fn session(target: &PushTarget, publication: &Publication, hub: &Hub) -> Status {
    let ended = async {
        let mut client = target.connect(None).await?;
        let layout = in_time(client.describe(v1::DescribeEchoesRequest {})).await?.into_inner();
        check(&layout, publication)?;
        if target.identity.is_some() {
            client = target.connect(Some(Role::Node(layout.node))).await?;
        }
        let ConnectionQueue { id, queue, end } = hub.connect(target.address.clone());
        let _presence = Presence(hub, id);
        let hello = Content::Hello(v1::PushHello {
            version: VERSION,
            name: "simulator".into(),
            run: publication.run,
            node: layout.node,
            site_sha256: bytes_of(publication.site_sha256),
            sensors: publication.sensors as u32,
            subcarriers: publication.subcarriers as u32,
        });
        let frames = ReceiverStream::new(queue).filter_map(|message| match message {
            QueuedMessage::Frame { sequence, frame } => Some(Content::Frame(message_of(sequence, &frame))),
            QueuedMessage::Reply(_) => None,
        });
        let requests = tokio_stream::once(hello).chain(frames);
        let requests = requests.map(|content| v1::PushEchoesRequest { content: Some(content) });
        let mut replies = in_time(client.push(requests)).await?.into_inner();
        let first = in_time(replies.message()).await?.and_then(|reply| reply.content);
        let Some(Reply::Welcome(welcome)) = first else {
            return Err(Status::internal("another message instead of a welcome"));
        };
        subscribe(hub, id, publication, &layout, &welcome)?;
        tracing::info!(address = target.address, node = layout.node, "pushing echoes to a node");
        loop {
            let reply = tokio::select! {
                reply = replies.message() => reply?,
                () = end.cancelled() => return Err(Status::cancelled("the node is too slow")),
            };
            match reply.map(|reply| reply.content) {
                Some(Some(reply)) => heard(hub, id, publication.run, reply),
                Some(None) => {}
                None => return Err(Status::unavailable("the node has ended the call")),
            }
        }
    };
    let ended: Result<std::convert::Infallible, Status> = ended.await;
    match ended {
        Ok(never) => match never {},
        Err(status) => status,
    }
}

async fn in_time<T>(reply: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded(format!("no reply within {} s", CALL.as_secs()));
    timeout(CALL, reply).await.map_err(late)?
}

/// Refuses a node that works with something else.
fn check(layout: &v1::EchoLayout, publication: &Publication) -> Result<(), Status> {
    let refuse = |reason: String| Err(Status::failed_precondition(reason));
    if layout.version != VERSION {
        return refuse(format!("the node speaks version {}, this process {VERSION}", layout.version));
    }
    if layout.site_sha256 != publication.site_sha256.as_slice() {
        let found =
            <[u8; 32]>::try_from(&*layout.site_sha256).map_or_else(|_| "?".into(), |h| short_hash(&h));
        let own = short_hash(&publication.site_sha256);
        return refuse(format!("the node works with site {found}, the simulator with {own}"));
    }
    if layout.node as usize >= publication.nodes {
        let (node, count) = (layout.node, publication.nodes);
        return refuse(format!("node {node} does not exist: the site has {count} IRSs"));
    }
    Ok(())
}

/// Enters the welcome of a node into the books.
fn subscribe(
    hub: &Hub,
    id: ConnectionId,
    publication: &Publication,
    layout: &v1::EchoLayout,
    welcome: &v1::PushWelcome,
) -> Result<(), Status> {
    let hello = Hello {
        node: layout.node,
        instance: welcome.instance,
        site_sha256: publication.site_sha256,
        window: welcome.credit,
        resume: Some(Resume {
            source: publication.run,
            received: welcome.received,
            consumed: welcome.processed,
        }),
    };
    let mut reply = ToNode::Pong;
    hub.subscriptions.send_modify(|books| reply = books.hello(id, &hello, Instant::now()));
    match reply {
        ToNode::Refused { reason } => Err(Status::already_exists(reason)),
        _ => Ok(()),
    }
}

fn heard(hub: &Hub, id: ConnectionId, run: u64, reply: Reply) {
    let now = Instant::now();
    match reply {
        Reply::Acknowledgement(v1::EchoAcknowledgement { processed }) => {
            hub.subscriptions.send_modify(|books| {
                books.heard(id, now);
                books.acknowledge(id, run, processed, now);
            })
        }
        Reply::Farewell(v1::EchoAcknowledgement { processed }) => {
            hub.subscriptions.send_modify(|books| books.goodbye(id, run, processed, now));
        }
        Reply::Refusal(v1::EchoRefusal { sequence, reason }) => {
            hub.refused(&"a node", &format!("frame with sequence number {sequence}: {reason}"));
        }
        Reply::Welcome(_) => {}
    }
}
