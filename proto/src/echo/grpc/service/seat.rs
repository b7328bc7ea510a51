//! Who may push into a node: one pusher at a time. Pure; time is passed in.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// After this time without a message of the pusher, another may take over.
pub const TAKEOVER: Duration = Duration::from_secs(10);

/// Identifies a call that holds, or has held, the seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HolderId(u64);

#[derive(Debug)]
struct Holder {
    id: HolderId,
    name: String,
    run: u64,
    heard: Instant,
    end: CancellationToken,
}

/// The seat is taken by a pusher of this name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SeatTaken {
    pub holder: String,
}

/// The place of the one pusher, and what has come of its run.
#[derive(Debug, Default)]
pub(super) struct Seat {
    holder: Option<Holder>,
    last: HolderId,
    run: u64,
    /// Sequence number of the last frame of the run that was received.
    received: u64,
}

impl Seat {
    /// Takes the seat. A call of the same run replaces the one before it, which may be a broken connection; another
    /// pusher has to wait until the first has been silent for [`TAKEOVER`].
    pub fn take(
        &mut self,
        name: &str,
        run: u64,
        now: Instant,
    ) -> Result<(HolderId, CancellationToken), SeatTaken> {
        if let Some(holder) = &self.holder {
            let silent = now.saturating_duration_since(holder.heard) >= TAKEOVER;
            if holder.run != run && !silent {
                return Err(SeatTaken { holder: holder.name.clone() });
            }
            holder.end.cancel();
        }
        if self.run != run {
            (self.run, self.received) = (run, 0);
        }
        self.last = HolderId(self.last.0 + 1);
        let (id, end) = (self.last, CancellationToken::new());
        self.holder = Some(Holder { id, name: name.to_owned(), run, heard: now, end: end.clone() });
        Ok((id, end))
    }

    pub fn received(&self) -> u64 {
        self.received
    }

    /// Records the frame `sequence` of a holder; otherwise returns the sequence number that was expected, or none if
    /// the call does not hold the seat any more.
    pub fn receive(&mut self, id: HolderId, sequence: u64, now: Instant) -> Result<(), Option<u64>> {
        let holder = self.holder.as_mut().filter(|holder| holder.id == id).ok_or(None)?;
        holder.heard = now;
        let expected = self.received.saturating_add(1);
        if sequence != expected {
            return Err(Some(expected));
        }
        self.received = sequence;
        Ok(())
    }

    /// Frees the seat if `id` holds it; false if it does not.
    pub fn leave(&mut self, id: HolderId) -> bool {
        self.holder.take_if(|holder| holder.id == id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pusher_at_a_time() {
        let (mut seat, now) = (Seat::default(), Instant::now());
        let (first, end) = seat.take("first", 1, now).unwrap();
        assert_eq!(seat.take("second", 2, now).unwrap_err(), SeatTaken { holder: "first".into() });
        // Frames prove that it is alive.
        assert_eq!(seat.receive(first, 1, now + TAKEOVER), Ok(()));
        assert!(seat.take("second", 2, now + TAKEOVER).is_err() && !end.is_cancelled());
        let (second, _) = seat.take("second", 2, now + TAKEOVER * 2).unwrap();
        assert!(end.is_cancelled());
        assert_eq!(seat.receive(first, 2, now), Err(None));
        assert!(!seat.leave(first) && seat.leave(second));
        assert!(seat.take("third", 3, now).is_ok());
    }

    #[test]
    fn a_run_continues_over_calls_and_another_starts_at_one() {
        let (mut seat, now) = (Seat::default(), Instant::now());
        let (id, _) = seat.take("a", 1, now).unwrap();
        assert_eq!(seat.receive(id, 2, now), Err(Some(1)));
        for sequence in 1..=3 {
            seat.receive(id, sequence, now).unwrap();
        }
        assert_eq!(seat.receive(id, 3, now), Err(Some(4)));
        let (again, _) = seat.take("a", 1, now).unwrap();
        assert_eq!(seat.received(), 3);
        assert_eq!((seat.receive(id, 4, now), seat.receive(again, 4, now)), (Err(None), Ok(())));
        seat.leave(again);
        seat.take("a", 2, now).unwrap();
        assert_eq!(seat.received(), 0);
    }
}
