//! Entries of a recording as bytes and back.
//!
//! They are protobuf messages. Older recordings have JSON in their place, which is read, too: no message
//! begins with a brace, which would be the beginning of a group.

use std::fmt;

use estimation::direct::ClockPrior;
use nalgebra::{DMatrix, DVector};
use prost::Message;
use proto::convert::FrameId;
use proto::v1;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::place::FixPlace;
use crate::told::{ToldTarget, TrueFrame};

/// Largest entry of a channel other than those of reports and fixes.
const MOST_ENTRY_BYTES: usize = 1 << 20;

/// Largest fix.
const MOST_FIX_BYTES: usize = 1 << 18;

/// A solved frame.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FrameEntry {
    pub run: u64,
    pub frame: u64,
    /// Sequence numbers on `/reports`, in the order in which the reports were assembled.
    pub reports: Vec<u32>,
    /// Numbers of the earlier frames that it was solved with.
    #[serde(default)]
    pub earlier: Vec<u64>,
    /// What was known about the clocks; none where they are trusted.
    #[serde(default)]
    pub clocks: Option<ClockEntry>,
    /// When the frame was taken, for the tracks; none where there are none.
    #[serde(default)]
    pub time_s: Option<f64>,
}

impl FrameEntry {
    pub fn frame_id(&self) -> FrameId {
        FrameId { run: self.run, frame: self.frame }
    }

    pub fn encode(self) -> Vec<u8> {
        let Self { run, frame, reports, earlier, clocks, time_s } = self;
        let clocks =
            clocks.map(|ClockEntry { mean_s, covariance_s2 }| v1::RecordedClocks { mean_s, covariance_s2 });
        v1::RecordedFrame { run, frame, reports, earlier, clocks, time_s }.encode_to_vec()
    }

    /// An error says what is wrong.
    pub fn decode(data: &[u8]) -> Result<Self, String> {
        entry(data, |message: v1::RecordedFrame| {
            let v1::RecordedFrame { run, frame, reports, earlier, clocks, time_s } = message;
            let clocks = clocks
                .map(|v1::RecordedClocks { mean_s, covariance_s2 }| ClockEntry { mean_s, covariance_s2 });
            Ok(Self { run, frame, reports, earlier, clocks, time_s })
        })
    }
}

/// What was known about the clocks of all nodes before a frame.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ClockEntry {
    pub mean_s: Vec<f64>,
    /// Covariance, row by row.
    pub covariance_s2: Vec<f64>,
}

impl From<&ClockPrior> for ClockEntry {
    fn from(prior: &ClockPrior) -> Self {
        Self {
            mean_s: prior.mean_s().as_slice().to_vec(),
            covariance_s2: prior.covariance_s2().transpose().as_slice().to_vec(),
        }
    }
}

impl ClockEntry {
    /// The law that was recorded, for so many nodes; an error says what is wrong with it.
    pub fn prior(&self, nodes: usize) -> Result<ClockPrior, String> {
        if self.mean_s.len() != nodes || self.covariance_s2.len() != nodes * nodes {
            return Err("its clocks are not those of the site".into());
        }
        let covariance = DMatrix::from_row_slice(nodes, nodes, &self.covariance_s2);
        let mean = DVector::from_row_slice(&self.mean_s);
        ClockPrior::new(mean, covariance).map_err(|error| error.to_string())
    }
}

/// The truth of a frame in JSON.
#[derive(Debug, Deserialize)]
struct TruthEntry {
    run: u64,
    frame: u64,
    /// None where targets are listed.
    #[serde(default)]
    position_m: Option<FixPlace>,
    /// 1 m^2 in recordings of protocol version 2, which did not contain it.
    #[serde(default = "unit_cross_section_m2")]
    rcs_m2: f64,
    /// All targets, unless there is exactly one.
    #[serde(default)]
    targets: Option<Vec<ToldTarget>>,
    /// Offset of the clock of every node; none where clocks are trusted, and in recordings that did not contain it.
    #[serde(default)]
    clock_offset_s: Vec<f64>,
}

fn unit_cross_section_m2() -> f64 {
    1.0
}

/// The truth of a frame for a site of so many nodes.
pub fn decode_truth(data: &[u8], nodes: usize) -> Result<(FrameId, TrueFrame), String> {
    if !is_json(data) {
        return message(data, MOST_ENTRY_BYTES).and_then(|record| TrueFrame::from_wire(record, nodes));
    }
    let TruthEntry { run, frame, position_m, rcs_m2, targets, mut clock_offset_s } = json(data)?;
    if clock_offset_s.len() != nodes {
        clock_offset_s.clear();
    }
    let told = match (targets, position_m) {
        (Some(targets), _) => TrueFrame { targets, listed: true, clock_offset_s },
        (None, Some(position_m)) => TrueFrame::one(position_m.point(), rcs_m2, clock_offset_s),
        (None, None) => return Err("an entry of the truth has neither a position nor targets".into()),
    };
    Ok((FrameId { run, frame }, told))
}

/// A fix.
pub fn decode_fix(data: &[u8]) -> Result<v1::Fix, String> {
    message(data, MOST_FIX_BYTES)
}

/// Frames of a run of which at least one entry is missing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HoleEntry {
    pub run: u64,
    /// First and last frame.
    pub first: u64,
    pub last: u64,
    /// Number of entries.
    pub entries: u64,
}

impl fmt::Display for HoleEntry {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { run, first, last, entries } = self;
        write!(f, "{entries} entries of frames {first} to {last} of run {run} were not recorded")
    }
}

impl HoleEntry {
    pub fn encode(&self) -> Vec<u8> {
        let Self { run, first, last, entries } = *self;
        v1::RecordedHole { run, first, last, entries }.encode_to_vec()
    }

    /// An error says what is wrong.
    pub fn decode(data: &[u8]) -> Result<Self, String> {
        entry(data, |message: v1::RecordedHole| {
            let v1::RecordedHole { run, first, last, entries } = message;
            Ok(Self { run, first, last, entries })
        })
    }
}

/// Runs that a list of holes tells apart; the last one takes what exceeds it.
const MOST_HOLES: usize = 16;

/// Adds a missing entry of a frame to a list of holes.
pub fn add_to_holes(holes: &mut Vec<HoleEntry>, frame: FrameId) {
    let full = holes.len() == MOST_HOLES;
    match holes.last_mut() {
        Some(hole) if hole.run == frame.run || full => {
            hole.first = hole.first.min(frame.frame);
            hole.last = hole.last.max(frame.frame);
            hole.entries += 1;
        }
        _ => holes.push(HoleEntry { run: frame.run, first: frame.frame, last: frame.frame, entries: 1 }),
    }
}

fn is_json(data: &[u8]) -> bool {
    data.first() == Some(&b'{')
}

/// An entry in either form.
fn entry<T: DeserializeOwned, M: Message + Default>(
    data: &[u8],
    of_message: impl Fn(M) -> Result<T, String>,
) -> Result<T, String> {
    if is_json(data) { json(data) } else { message(data, MOST_ENTRY_BYTES).and_then(of_message) }
}

fn json<T: DeserializeOwned>(data: &[u8]) -> Result<T, String> {
    sized(data, MOST_ENTRY_BYTES)?;
    serde_json::from_slice(data).map_err(|error| format!("an entry is invalid: {error}"))
}

fn message<M: Message + Default>(data: &[u8], most: usize) -> Result<M, String> {
    sized(data, most)?;
    M::decode(data).map_err(|error| format!("an entry is invalid: {error}"))
}

fn sized(data: &[u8], most: usize) -> Result<(), String> {
    match data.len() > most {
        true => Err(format!("an entry has more than {most} bytes")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Point;

    #[test]
    fn entries_are_read_as_they_are_written_and_as_older_releases_wrote_them() {
        let clocks =
            Some(ClockEntry { mean_s: vec![1e-9, 1e-9 / 3.0], covariance_s2: vec![1.0, 0.5, 0.5, 2.0] });
        let frame = FrameEntry {
            run: u64::MAX,
            frame: 3,
            reports: vec![7, 4],
            earlier: vec![1, 2],
            clocks,
            time_s: Some(0.1),
        };
        assert_eq!(FrameEntry::decode(&frame.clone().encode()), Ok(frame.clone()));
        let old = br#"{"run":18446744073709551615,"frame":3,"reports":[7,4],"earlier":[1,2],"clocks":{"mean_s":[1e-9,3.3333333333333337e-10],"covariance_s2":[1.0,0.5,0.5,2.0]},"time_s":0.1}"#;
        assert_eq!(FrameEntry::decode(old), Ok(frame));
        let bare =
            FrameEntry { run: 0, frame: 0, reports: vec![], earlier: vec![], clocks: None, time_s: None };
        assert_eq!(FrameEntry::decode(&bare.clone().encode()), Ok(bare), "no byte at all");
        let hole = HoleEntry { run: 7, first: 3, last: 4, entries: 2 };
        assert_eq!(HoleEntry::decode(&hole.encode()), Ok(hole.clone()));
        assert_eq!(HoleEntry::decode(br#"{"run":7,"first":3,"last":4,"entries":2}"#), Ok(hole));
        for broken in [&b"{"[..], b"\xff", b"{\"run\":1}"] {
            assert!(FrameEntry::decode(broken).unwrap_err().contains("an entry is invalid"), "{broken:?}");
        }
        assert!(decode_fix(&vec![0; MOST_FIX_BYTES + 1]).unwrap_err().contains("more than 262144 bytes"));
    }

    #[test]
    fn truth_without_a_cross_section_or_clocks_can_be_read() {
        let id = FrameId { run: 1, frame: 2 };
        let told = TrueFrame::one(Point::new(3.0, 4.0, 0.0), 1.0, Vec::new());
        let old = br#"{"run": 1, "frame": 2, "position_m": [3.0, 4.0]}"#;
        assert_eq!(decode_truth(old, 3), Ok((id, told.clone())));
        assert_eq!(decode_truth(&told.to_wire(id).encode_to_vec(), 3), Ok((id, told)));
        assert!(decode_truth(br#"{"run": 1, "frame": 2}"#, 3).unwrap_err().contains("neither"));
    }
}
