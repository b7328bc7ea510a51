//! The node's side: the gRPC service `Echoes`. One pusher at a time fills the queue of an [`EchoSubscriber`].

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::NamedService;
use tonic::{Extensions, Request, Response, Status, Streaming};
use trust::{Needs, Peer};

use super::super::subscriber::{EchoSubscriber, ReceivedFrame, SubscriberLink, SubscriptionState, Waiting};
use super::{AROUND_BYTES, VERSION, bytes_of, frame_of, max_message_bytes};
use crate::clock::unix_time_ns;
use crate::secret::run_identity;
use crate::site::short_hash;
use crate::v1;
use crate::v1::echoes_server::{Echoes, EchoesServer};
use crate::v1::push_echoes_reply::Content as Reply;
use crate::v1::push_echoes_request::Content;

mod seat;
mod session;

pub use seat::TAKEOVER;
use seat::{Seat, SeatTaken};
use session::EchoSession;

/// Time from the start of a call to its hello.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// Replies that wait for a pusher to read them.
const REPLIES: usize = 16;

/// The frames that a node takes.
#[derive(Debug, Clone, PartialEq)]
pub struct EchoLayout {
    pub node: u32,
    pub site_sha256: [u8; 32],
    pub sensors: usize,
    pub subcarriers: usize,
    pub bandwidth_hz: f64,
    /// Largest number of frames that wait at the node.
    pub window: u32,
}

impl EchoLayout {
    fn message(&self) -> v1::EchoLayout {
        v1::EchoLayout {
            version: VERSION,
            node: self.node,
            site_sha256: bytes_of(self.site_sha256),
            sensors: self.sensors as u32,
            subcarriers: self.subcarriers as u32,
            bandwidth_hz: self.bandwidth_hz,
            credit: self.window,
            max_message_bytes: max_message_bytes(self.sensors, self.subcarriers) as u64,
        }
    }

    /// Refuses a pusher that works with something else, by name.
    fn check(&self, hello: &v1::PushHello) -> Result<(), Status> {
        let refuse = |reason: String| Err(Status::failed_precondition(reason));
        if hello.version != VERSION {
            return refuse(format!("the pusher speaks version {}, this node {VERSION}", hello.version));
        }
        if hello.node != self.node {
            return refuse(format!("the frames are for node {}, this is node {}", hello.node, self.node));
        }
        if hello.site_sha256 != self.site_sha256.as_slice() {
            let found = <[u8; 32]>::try_from(&*hello.site_sha256).map(|hash| short_hash(&hash));
            let found = found.unwrap_or_else(|_| format!("a hash of {} bytes", hello.site_sha256.len()));
            let own = short_hash(&self.site_sha256);
            return refuse(format!("the pusher works with site {found}, the node with {own}"));
        }
        let (sensors, subcarriers) = (hello.sensors as usize, hello.subcarriers as usize);
        if (sensors, subcarriers) != (self.sensors, self.subcarriers) {
            return refuse(format!(
                "frames of {sensors} x {subcarriers}, expected {} sensors x {} subcarriers",
                self.sensors, self.subcarriers
            ));
        }
        Ok(())
    }
}

/// What the calls of one subscriber share.
#[derive(Debug)]
struct Station {
    layout: EchoLayout,
    /// Distinguishes this subscriber from earlier ones of the node.
    instance: u64,
    intake: SubscriberLink,
    seat: Mutex<Seat>,
}

impl Station {
    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service `Echoes` of a node, whichever index it has.
#[derive(Debug, Clone, Default)]
pub struct EchoesService {
    station: Arc<watch::Sender<Option<Arc<Station>>>>,
}

impl EchoesService {
    /// Takes frames of this layout until the subscriber is closed or dropped.
    pub fn open(&self, layout: EchoLayout) -> EchoSubscriber {
        let stations = self.station.clone();
        EchoSubscriber::new(layout.window, |intake| {
            let (instance, stop) = (run_identity(), intake.stop.clone());
            let mut state = intake.state.subscribe();
            let station = Arc::new(Station { layout, instance, intake, seat: Mutex::default() });
            stations.send_replace(Some(station.clone()));
            let open = OpenStation { stations, station };
            async move {
                stop.cancelled().await;
                drop(open);
                // The session of a pusher says farewell.
                let _ = state.wait_for(|state| *state != SubscriptionState::Subscribed).await;
            }
        })
    }

    fn current(&self) -> Result<Arc<Station>, Status> {
        let station = self.station.borrow().clone();
        station.ok_or_else(|| Status::unavailable("the node is not registered with a fusion center"))
    }

    fn max_message_bytes(&self) -> usize {
        let station = self.station.borrow();
        let layout = station.as_ref().map(|station| &station.layout);
        layout.map_or(AROUND_BYTES, |layout| max_message_bytes(layout.sensors, layout.subcarriers))
    }
}

/// A station that calls can reach; no longer when this is dropped.
struct OpenStation {
    stations: Arc<watch::Sender<Option<Arc<Station>>>>,
    station: Arc<Station>,
}

impl Drop for OpenStation {
    fn drop(&mut self) {
        self.station.intake.stop.cancel();
        self.stations.send_if_modified(|current| {
            current.take_if(|current| Arc::ptr_eq(current, &self.station)).is_some()
        });
    }
}

#[tonic::async_trait]
impl Echoes for EchoesService {
    type PushStream = ReceiverStream<Result<v1::PushEchoesReply, Status>>;

    async fn describe(
        &self,
        request: Request<v1::DescribeEchoesRequest>,
    ) -> Result<Response<v1::EchoLayout>, Status> {
        allowed(request.extensions())?;
        Ok(Response::new(self.current()?.layout.message()))
    }

    async fn push(
        &self,
        request: Request<Streaming<v1::PushEchoesRequest>>,
    ) -> Result<Response<Self::PushStream>, Status> {
        let peer = allowed(request.extensions())?;
        let station = self.current()?;
        let mut incoming = request.into_inner();
        let first = timeout(HELLO_TIMEOUT, incoming.message()).await;
        let first = first.map_err(|_| {
            Status::deadline_exceeded(format!("no hello within {} s", HELLO_TIMEOUT.as_secs()))
        })??;
        let Some(Content::Hello(hello)) = first.and_then(|message| message.content) else {
            return Err(Status::invalid_argument("the first message must be a hello"));
        };
        station.layout.check(&hello).inspect_err(|status| {
            telemetry::warn_limited!(peer, reason = status.message(), "a pusher of echoes was refused");
        })?;
        let name = printable(&hello.name);
        let taken = station.seat().take(&name, hello.run, std::time::Instant::now());
        let (holder, end) = taken.map_err(|SeatTaken { holder }| {
            let node = station.layout.node;
            telemetry::warn_limited!(peer, name, holder, "a second pusher of echoes was refused");
            Status::already_exists(format!("node {node} takes echoes from '{holder}' already"))
        })?;
        let (replies, receiver) = mpsc::channel(REPLIES);
        telemetry::info_limited!(peer, name, run = hello.run, "a pusher of echoes is connected");
        let session = EchoSession { station, holder, run: hello.run, end, replies };
        tokio::spawn(session.run(incoming));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Who pushes, for logs; with TLS, only the certificate of a simulator may.
fn allowed(extensions: &Extensions) -> Result<String, Status> {
    let peer = Peer::of(extensions)?;
    peer.require(Needs::Simulator)?;
    Ok(match peer {
        Peer::Named(name) => name.to_string(),
        _ => "without certificate".into(),
    })
}

/// The printable characters of a name, for logs.
fn printable(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(128).collect()
}

/// The service with the message limit of the layout in force.
#[derive(Debug, Clone, Default)]
pub struct EchoesEndpoint(pub EchoesService);

impl NamedService for EchoesEndpoint {
    const NAME: &'static str = <EchoesServer<EchoesService> as NamedService>::NAME;
}

impl<B> Service<http::Request<B>> for EchoesEndpoint
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let limit = self.0.max_message_bytes();
        EchoesServer::new(self.0.clone()).max_decoding_message_size(limit).call(request)
    }
}
