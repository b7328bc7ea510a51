//! One direction of a link with real sockets: bytes are read, held until they are due, and written.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use telemetry::{Counter, Histogram, Metrics};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use crate::profile::{Direction, SEGMENT_BYTES};
use crate::timer;
use crate::wire::Wire;

/// One read takes what the line carries in this time, within the two limits.
const CHUNK_S: f64 = 0.5e-3;
const SMALLEST_CHUNK: usize = SEGMENT_BYTES;
const LARGEST_CHUNK: usize = 65_536;

/// One direction of a link; all its connections share it.
#[derive(Debug)]
pub struct Lane {
    wire: Mutex<Wire>,
    epoch: Instant,
    queued: AtomicUsize,
    room: Notify,
    metrics: LaneMetrics,
}

/// Metrics of one direction, over all links.
#[derive(Debug, Clone)]
pub struct LaneMetrics {
    bytes: Counter,
    losses: Counter,
    late: Histogram,
}

impl LaneMetrics {
    pub fn new(metrics: &Metrics, direction: &str) -> Self {
        let labels = [("direction", direction)];
        Self {
            bytes: metrics.counter("hyloc_backhaul_bytes_total", "Bytes relayed.", &labels),
            losses: metrics.counter("hyloc_backhaul_losses_total", "Segments lost and sent again.", &labels),
            late: metrics.seconds(
                "hyloc_backhaul_late_seconds",
                "How much later than due bytes were written.",
                &labels,
            ),
        }
    }
}

/// Bytes in transit; dropping a parcel frees its space in the lane.
#[derive(Debug)]
struct Parcel {
    bytes: Bytes,
    due: Instant,
    lane: Arc<Lane>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.lane.queued.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        self.lane.room.notify_waiters();
    }
}

impl Lane {
    /// A lane whose times count from `epoch`.
    pub fn new(wire: Wire, epoch: Instant, metrics: LaneMetrics) -> Self {
        Self { wire: Mutex::new(wire), epoch, queued: AtomicUsize::new(0), room: Notify::new(), metrics }
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the parameters for bytes that enter from now on.
    pub fn change(&self, direction: Direction, seed: u64, link: &str) {
        self.wire().change(direction, seed, link, self.epoch.elapsed());
        self.room.notify_waiters();
    }

    /// Bytes in transit.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Acquire)
    }

    /// Waits until there is room; returns the maximum number of bytes to read.
    async fn room(&self) -> usize {
        loop {
            let more = self.room.notified();
            let direction = *self.wire().direction();
            if self.queued() < direction.buffer_kib * 1024 {
                let share = direction.bytes_per_s().map_or(LARGEST_CHUNK as f64, |rate| rate * CHUNK_S);
                return (share as usize).clamp(SMALLEST_CHUNK, LARGEST_CHUNK);
            }
            more.await;
        }
    }

    fn enter(self: &Arc<Self>, bytes: Bytes) -> Parcel {
        let now = self.epoch.elapsed();
        self.queued.fetch_add(bytes.len(), Ordering::AcqRel);
        self.metrics.bytes.inc_by(bytes.len() as u64);
        let mut wire = self.wire();
        let before = wire.losses;
        let due = self.epoch + wire.release(now, bytes.len());
        self.metrics.losses.inc_by(wire.losses - before);
        drop(wire);
        Parcel { bytes, due, lane: self.clone() }
    }

    /// Carries bytes until `from` ends, then ends `to`.
    pub async fn carry(
        self: &Arc<Self>,
        from: impl AsyncRead + Unpin,
        to: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        // Bounded by `room`.
        let (parcels, incoming) = mpsc::unbounded_channel();
        tokio::try_join!(self.take_in(from, parcels), self.hand_out(incoming, to)).map(|_| ())
    }

    async fn take_in(
        self: &Arc<Self>,
        mut from: impl AsyncRead + Unpin,
        parcels: mpsc::UnboundedSender<Parcel>,
    ) -> std::io::Result<()> {
        let mut buffer = BytesMut::new();
        loop {
            let most = self.room().await;
            buffer.reserve(most);
            if from.read_buf(&mut (&mut buffer).limit(most)).await? == 0 {
                return Ok(());
            }
            if parcels.send(self.enter(buffer.split().freeze())).is_err() {
                return Ok(());
            }
        }
    }

    async fn hand_out(
        &self,
        mut incoming: mpsc::UnboundedReceiver<Parcel>,
        mut to: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        while let Some(parcel) = incoming.recv().await {
            timer::until(parcel.due).await?;
            self.metrics.late.observe(parcel.due.elapsed().as_secs_f64());
            to.write_all(&parcel.bytes).await?;
        }
        to.shutdown().await
    }
}
