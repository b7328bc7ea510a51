//! The channels of a recording: number, topic and message of each.
//!
//! | topic | message | content |
//! | --- | --- | --- |
//! | `/reports` | `hyloc.v1.FrameReport` | every checked report, as received, with the node that sent it |
//! | `/frames` | `hyloc.v1.RecordedFrame` | the frames that were solved, in order, with the reports that each was made from |
//! | `/truth` | `hyloc.v1.TruthRecord` | the simulator's truth, for error statistics |
//! | `/holes` | `hyloc.v1.RecordedHole` | the frames whose entries could not be written before this point |
//! | `/fixes` | `hyloc.v1.Fix` | every fix with its targets and tracks, as watchers receive it |
//! | `/pose` | `foxglove.PoseInFrame` | the position of the fix, a few times per second |
//! | `/site` | `foxglove.SceneUpdate` | panels, base station and coverage area, once per file |
//! | `/scene` | `foxglove.SceneUpdate` | fix, tracks and truth, a few times per second |
//! | `/log` | `foxglove.Log` | runs, changes of status and holes in words |
//!
//! A replay needs the first four. The others follow from them, for readers without a solver.

use std::collections::BTreeMap;

use proto::schema::schema;

/// The channels in the order of their numbers, which begin at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingChannel {
    Reports,
    Frames,
    Truth,
    Holes,
    Fixes,
    Pose,
    Site,
    Scene,
    Log,
}

impl RecordingChannel {
    pub const ALL: [Self; 9] = [
        Self::Reports,
        Self::Frames,
        Self::Truth,
        Self::Holes,
        Self::Fixes,
        Self::Pose,
        Self::Site,
        Self::Scene,
        Self::Log,
    ];

    /// The channel of a topic.
    fn of_topic(topic: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.topic() == topic)
    }

    /// The channel that the recorder gives this number.
    fn of_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.number() == number)
    }

    pub fn number(self) -> u16 {
        1 + self as u16
    }

    pub fn topic(self) -> &'static str {
        match self {
            Self::Reports => "/reports",
            Self::Frames => "/frames",
            Self::Truth => "/truth",
            Self::Holes => "/holes",
            Self::Fixes => "/fixes",
            Self::Pose => "/pose",
            Self::Site => "/site",
            Self::Scene => "/scene",
            Self::Log => "/log",
        }
    }

    /// Name of its message.
    pub fn message(self) -> &'static str {
        match self {
            Self::Reports => "hyloc.v1.FrameReport",
            Self::Frames => "hyloc.v1.RecordedFrame",
            Self::Truth => "hyloc.v1.TruthRecord",
            Self::Holes => "hyloc.v1.RecordedHole",
            Self::Fixes => "hyloc.v1.Fix",
            Self::Pose => "foxglove.PoseInFrame",
            Self::Site | Self::Scene => "foxglove.SceneUpdate",
            Self::Log => "foxglove.Log",
        }
    }

    /// Schema of its message.
    pub fn schema(self) -> Vec<u8> {
        schema(self.message()).expect("a message that was compiled into this program")
    }
}

/// The numbers of the channels of a file. Those of the recorder are known even if the chunk that defines them is damaged.
#[derive(Debug, Default)]
pub struct Channels(BTreeMap<u16, Option<RecordingChannel>>);

impl Channels {
    pub fn define(&mut self, id: u16, topic: &str) {
        self.0.insert(id, RecordingChannel::of_topic(topic));
    }

    pub fn get(&self, id: u16) -> Option<RecordingChannel> {
        self.0.get(&id).copied().unwrap_or_else(|| RecordingChannel::of_number(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_channel_has_a_schema_and_a_number_of_its_own() {
        for channel in RecordingChannel::ALL {
            assert!(!channel.schema().is_empty());
            assert_eq!(RecordingChannel::of_number(channel.number()), Some(channel));
            assert_eq!(RecordingChannel::of_topic(channel.topic()), Some(channel));
        }
        let mut channels = Channels::default();
        channels.define(3, "/fixes");
        channels.define(4, "/of-others");
        let found = [1, 3, 4, 5].map(|number| channels.get(number));
        use RecordingChannel::{Fixes, Reports};
        assert_eq!(found, [Some(Reports), Some(Fixes), None, Some(Fixes)]);
    }
}
