//! One call of `Push`: frames into the queue, acknowledgements out.

use std::time::Instant;

use super::seat::HolderId;
use super::{
    Arc, CancellationToken, Content, ReceivedFrame, Reply, Station, Status, Streaming, SubscriptionState,
    Waiting, frame_of, mpsc, unix_time_ns, v1,
};

/// A pusher that holds the seat.
pub(super) struct EchoSession {
    pub station: Arc<Station>,
    pub holder: HolderId,
    pub run: u64,
    /// Cancelled when another call takes the seat.
    pub end: CancellationToken,
    pub replies: mpsc::Sender<Result<v1::PushEchoesReply, Status>>,
}

/// Why a call ends, other than on request of the pusher.
type Ended = Option<Status>;

impl EchoSession {
    pub async fn run(self, incoming: Streaming<v1::PushEchoesRequest>) {
        self.station.intake.state.send_replace(SubscriptionState::Subscribed);
        let ended = self.exchange(incoming).await;
        if let Some(status) = ended {
            telemetry::warn_limited!(reason = status.message(), "the call of a pusher of echoes has ended");
            let _ = self.replies.try_send(Err(status));
        }
        // A pusher that has taken over is subscribed in its turn.
        if self.station.seat().leave(self.holder) {
            self.station.intake.state.send_replace(SubscriptionState::Connecting);
        }
    }

    async fn exchange(&self, mut incoming: Streaming<v1::PushEchoesRequest>) -> Ended {
        let intake = &self.station.intake;
        let (mut position, queue) = (intake.position.clone(), intake.queue.clone());
        let received = self.station.seat().received();
        let processed = position.borrow_and_update().consumed_of(self.run);
        let (credit, instance) = (self.station.layout.window, self.station.instance);
        self.reply(Reply::Welcome(v1::PushWelcome { credit, instance, received, processed })).await;
        // A message is read only while the queue has room for a frame: HTTP/2 holds back the rest.
        let (mut room, mut more) = (None, true);
        loop {
            tokio::select! {
                biased;
                () = self.end.cancelled() => return Some(Status::aborted("another call has taken over")),
                () = intake.stop.cancelled() => {
                    let processed = position.borrow_and_update().consumed_of(self.run);
                    let farewell = Reply::Farewell(v1::EchoAcknowledgement { processed });
                    let _ = self.replies.try_send(Ok(v1::PushEchoesReply { content: Some(farewell) }));
                    return None;
                }
                () = self.replies.closed() => return None,
                Ok(()) = position.changed() => {
                    let processed = position.borrow_and_update().consumed_of(self.run);
                    self.reply(Reply::Acknowledgement(v1::EchoAcknowledgement { processed })).await;
                    if !more && processed == self.station.seat().received() {
                        return None;
                    }
                }
                permit = queue.reserve(), if room.is_none() => match permit {
                    Ok(permit) => room = Some(permit),
                    Err(_) => return Some(Status::unavailable("the node takes no more frames")),
                },
                message = incoming.message(), if more && room.is_some() => match message {
                    Ok(Some(message)) => match self.frame(message).await {
                        Ok(waiting) => if let Some(permit) = room.take() { permit.send(waiting) },
                        Err(status) => return Some(status),
                    },
                    Ok(None) => {
                        more = false;
                        let processed = position.borrow().consumed_of(self.run);
                        if processed == self.station.seat().received() {
                            return None;
                        }
                    }
                    // Too long, undecodable, or the connection broke.
                    Err(status) => return Some(status),
                },
            }
        }
    }

    /// The frame of a message; one that is malformed is refused and queued as an error, so that it is counted.
    async fn frame(&self, message: v1::PushEchoesRequest) -> Result<Waiting, Status> {
        let received_ns = unix_time_ns();
        let Some(Content::Frame(message)) = message.content else {
            return Err(Status::invalid_argument("a message after the hello must be a frame"));
        };
        let sequence = message.sequence;
        self.station.seat().receive(self.holder, sequence, Instant::now()).map_err(
            |expected| match expected {
                Some(expected) => Status::invalid_argument(format!(
                    "frame with sequence number {sequence}, expected {expected}"
                )),
                None => Status::aborted("another call has taken over"),
            },
        )?;
        let layout = &self.station.layout;
        let frame = frame_of(message, self.run, layout.node, layout.sensors, layout.subcarriers);
        if let Err(error) = &frame {
            self.reply(Reply::Refusal(v1::EchoRefusal { sequence, reason: error.to_string() })).await;
        }
        Ok(Waiting { source: self.run, sequence, payload: ReceivedFrame::Decoded(frame), received_ns })
    }

    /// Sends a reply, unless the call has to end before the pusher takes it.
    async fn reply(&self, content: Reply) {
        let reply = v1::PushEchoesReply { content: Some(content) };
        tokio::select! {
            _ = self.replies.send(Ok(reply)) => {}
            () = self.end.cancelled() => {}
            () = self.station.intake.stop.cancelled() => {}
        }
    }
}
