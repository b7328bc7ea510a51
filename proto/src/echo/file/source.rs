//! A file as the source of a node's echoes.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::super::subscriber::{EchoSubscriber, ReceivedFrame, SubscriberLink, SubscriptionState, Waiting};
use super::{EchoFileError, read_echoes};
use crate::clock::unix_time_ns;
use crate::echo::EchoFrame;
use crate::echo::grpc::service::EchoLayout;

/// A file that is read frame by frame, as fast as the node takes them or at a rate.
#[derive(Debug, Clone, PartialEq)]
pub struct EchoFileSource {
    pub file: PathBuf,
    /// Frames per second, at most; none reads as fast as frames are taken.
    pub rate_hz: Option<f64>,
}

impl EchoFileSource {
    /// A subscriber that gets the frames of the file, then [`SubscriptionState::Ended`].
    pub fn open(self, layout: EchoLayout) -> EchoSubscriber {
        EchoSubscriber::new(layout.window, |link| async move {
            let state = link.state.clone();
            let read = tokio::task::spawn_blocking(move || self.read(&layout, &link));
            let fault = match read.await {
                Ok(read) => read.err().map(|error| error.to_string()),
                Err(error) => Some(format!("the reader failed: {error}")),
            };
            state.send_replace(SubscriptionState::Ended { fault });
        })
    }

    /// Reads on a thread that may block.
    fn read(&self, layout: &EchoLayout, link: &SubscriberLink) -> Result<u64, EchoFileError> {
        let runtime = Handle::current();
        let begun = Instant::now();
        link.state.send_replace(SubscriptionState::Subscribed);
        let mut sequence = 0;
        read_echoes(&self.file, layout, &mut |frame| {
            sequence += 1;
            let due =
                self.rate_hz.map(|rate_hz| begun + Duration::from_secs_f64((sequence - 1) as f64 / rate_hz));
            runtime.block_on(deliver(link, sequence, frame, due))
        })
    }
}

/// Waits until the frame is due and there is room for it.
async fn deliver(
    link: &SubscriberLink,
    sequence: u64,
    frame: EchoFrame,
    due: Option<Instant>,
) -> ControlFlow<()> {
    let deliver = async {
        if let Some(due) = due {
            sleep_until(due).await;
        }
        let received_ns = unix_time_ns();
        let payload = ReceivedFrame::Decoded(Ok(frame));
        link.queue.send(Waiting { source: 0, sequence, payload, received_ns }).await
    };
    tokio::select! {
        sent = deliver => if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) },
        () = link.stop.cancelled() => ControlFlow::Break(()),
    }
}
