//! The sending side: offers frames to nodes over either transport, never waits for one, and accounts for every frame.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::EchoError;
use super::codec::EchoFrame;
use super::grpc::pusher::{self, PushTarget};
use super::hub::Hub;
use super::subscriptions::{EchoLedger, Offer, Subscriptions};
use super::zmtp::router;

/// What a publisher publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publication {
    /// Identifies this start of the simulator.
    pub run: u64,
    pub nodes: usize,
    pub site_sha256: [u8; 32],
    pub sensors: usize,
    pub subcarriers: usize,
}

/// Publishes echo frames. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct EchoPublisher {
    hub: Arc<Hub>,
    address: Option<SocketAddr>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl EchoPublisher {
    /// The hub of a publication, and the task that inspects it.
    fn open(publication: &Publication) -> (Arc<Hub>, Vec<AbortOnDropHandle<()>>) {
        let Publication { run, nodes, site_sha256, sensors, subcarriers } = *publication;
        let frame_bytes = EchoFrame::bytes(sensors, subcarriers);
        let hub = Arc::new(Hub::new(Subscriptions::new(run, site_sha256, nodes, frame_bytes)));
        let inspected = hub.clone();
        let inspection = tokio::spawn(async move { inspected.inspect().await });
        (hub, vec![AbortOnDropHandle::new(inspection)])
    }

    /// Accepts subscriptions over ZeroMQ.
    pub fn bind(listener: TcpListener, publication: &Publication) -> Result<Self, EchoError> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (hub, mut tasks) = Self::open(publication);
        let accepting = tokio::spawn(router::serve(listener, hub.clone(), publication.nodes));
        tasks.push(AbortOnDropHandle::new(accepting));
        Ok(Self { hub, address: Some(address), _tasks: tasks })
    }

    /// Pushes by gRPC into the nodes at these addresses, in any order: each tells its index.
    pub fn push(targets: Vec<PushTarget>, publication: &Publication) -> Self {
        let (hub, mut tasks) = Self::open(publication);
        let push = |target| tokio::spawn(pusher::push(target, *publication, hub.clone()));
        tasks.extend(targets.into_iter().map(push).map(AbortOnDropHandle::new));
        Self { hub, address: None, _tasks: tasks }
    }

    /// Where nodes subscribe, if they do.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Waits until all nodes are subscribed at the same time.
    pub async fn until_all_subscribed(&self) {
        self.until(Subscriptions::all_subscribed).await;
    }

    /// Waits until no frame is in flight.
    pub async fn until_settled(&self) {
        self.until(Subscriptions::settled).await;
    }

    async fn until(&self, condition: impl FnMut(&Subscriptions) -> bool) {
        // The sender lives as long as `self`.
        let _ = self.hub.subscriptions.subscribe().wait_for(condition).await;
    }

    pub fn subscribed(&self) -> usize {
        self.hub.subscriptions.borrow().subscribed()
    }

    /// Number of messages that were invalid.
    pub fn refused(&self) -> u64 {
        self.hub.subscriptions.borrow().refused
    }

    /// Number of peers that were disconnected because they were too slow.
    pub fn evicted(&self) -> u64 {
        self.hub.subscriptions.borrow().evicted
    }

    /// The ledger of each node.
    pub fn ledgers(&self) -> Vec<EchoLedger> {
        self.hub.subscriptions.borrow().ledgers()
    }

    /// Offers a frame to a node: sent if the node is subscribed and has credit, else dropped and counted.
    pub fn publish(&self, node: usize, frame: EchoFrame) -> Offer {
        self.hub.offer(node, frame)
    }

    /// Closes the publisher and returns the final ledgers: frames still in flight count as dropped.
    pub fn close(self) -> Vec<EchoLedger> {
        self.hub.subscriptions.send_modify(Subscriptions::close);
        self.ledgers()
    }
}
