//! How frames become fixes: the settings that a recording must contain to be replayed.

use estimation::direct::{Combination, DirectSettings, MOST_TARGETS};
use estimation::fusion::{BatchSettings, FusionSettings, Method, PayloadKind};
use model::System;
use proto::convert::PayloadFormat;
use proto::samples::Precision;
use serde::{Deserialize, Serialize};
use settings::check::{Checked, named, within};
use tracking::{MotionModel, TrackerSettings};

/// Longest batch of frames.
pub const MOST_FRAMES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct MethodSettings {
    /// How frames become fixes: three-stage, direct, or auto (three-stage where that is safe).
    #[arg(long, default_value = "auto", value_parser = method)]
    pub method: Method,
    /// Probability of a false alarm: the share of frames without a target that may give a fix.
    #[arg(long, value_name = "P", default_value = "0.0005", value_parser = within(1e-12, 1.0))]
    pub false_alarm_probability: f64,
    /// Largest number of targets that are looked for in a frame. More than one needs spectra of all nodes, is located directly, and
    /// follows tracks.
    #[arg(long, value_name = "N", default_value = "1", value_parser = within(1, MOST_TARGETS))]
    pub max_targets: usize,
    /// How much targets accelerate, for tracks: density of the white acceleration along every axis, m^2/s^3.
    #[arg(long, value_name = "Q", default_value = "0.3", value_parser = within(1e-9, 1e6))]
    pub track_acceleration: f64,
    /// Standard deviation of the speed of a new target along every axis, for tracks, m/s.
    #[arg(long, value_name = "M_PER_S", default_value = "1.5", value_parser = within(1e-3, 1e3))]
    pub track_speed: f64,
    /// Frames that the direct method combines to estimate the position in the last of them.
    #[arg(long, value_name = "F", default_value = "1", value_parser = within(1, MOST_FRAMES))]
    pub batch_frames: usize,
    /// How frames are combined: non-coherent, or coherent if path phases are constant over the batch.
    #[arg(long, value_name = "HOW", default_value = "non-coherent",
          value_parser = named::<Combination>("non-coherent or coherent"))]
    pub batch_combination: Combination,
    /// Fastest target searched for over a batch, metres per frame.
    #[arg(long, value_name = "M", default_value = "0.5", value_parser = within(0.0, 1000.0))]
    pub batch_speed_m: f64,
}

/// The name of a method.
pub fn method(text: &str) -> Checked<Method> {
    named("auto, three-stage or direct")(text)
}

impl Default for MethodSettings {
    fn default() -> Self {
        let (direct, batch, motion) =
            (DirectSettings::default(), BatchSettings::default(), MotionModel::default());
        Self {
            method: Method::default(),
            false_alarm_probability: direct.false_alarm_probability,
            max_targets: 1,
            track_acceleration: motion.acceleration_m2_s3,
            track_speed: motion.birth_speed_m_s,
            batch_frames: batch.frames,
            batch_combination: batch.combination,
            batch_speed_m: batch.most_speed_m_per_frame,
        }
    }
}

impl MethodSettings {
    /// What nodes are asked to send. Blocks are sufficient for the three stages, and for direct fixes from 45 dBm at
    /// Table I; below that, spectra retain signal that a block loses when its delay is wrong, so that direct fixes and
    /// batches use them. Eight bits per real number cause no measurable loss.
    pub fn payload(&self, site: &System) -> PayloadFormat {
        let direct = self.method == Method::Direct || site.beyond_the_plane().is_some();
        let spectra = direct || self.batch_frames > 1 || self.max_targets > 1;
        let kind = if spectra { PayloadKind::Spectrum } else { PayloadKind::Block };
        PayloadFormat { kind, precision: Precision::Q8 }
    }

    pub fn fusion(&self) -> FusionSettings {
        let direct = DirectSettings {
            false_alarm_probability: self.false_alarm_probability,
            ..DirectSettings::default()
        };
        let batch = BatchSettings {
            frames: self.batch_frames,
            combination: self.batch_combination,
            most_speed_m_per_frame: self.batch_speed_m,
        };
        let max_targets = self.max_targets;
        FusionSettings { method: self.method, direct, batch, max_targets, ..FusionSettings::default() }
    }

    /// How targets are followed from frame to frame.
    pub fn tracker(&self) -> TrackerSettings {
        let motion = MotionModel {
            acceleration_m2_s3: self.track_acceleration,
            birth_speed_m_s: self.track_speed,
            ..MotionModel::default()
        };
        TrackerSettings { motion, ..TrackerSettings::default() }
    }
}

#[cfg(test)]
mod tests {
    use model::{Scenario, Wavefront};

    use super::*;

    #[test]
    fn nodes_are_asked_for_what_the_method_needs() {
        let mut scenario = Scenario::default();
        let site = System::new(&scenario).unwrap();
        let kind = |method, batch_frames| {
            MethodSettings { method, batch_frames, ..MethodSettings::default() }.payload(&site).kind
        };
        assert_eq!(kind(Method::Auto, 1), PayloadKind::Block);
        assert_eq!(kind(Method::ThreeStage, 1), PayloadKind::Block);
        assert_eq!(kind(Method::Direct, 1), PayloadKind::Spectrum);
        assert_eq!(kind(Method::Auto, 4), PayloadKind::Spectrum);
        let several = MethodSettings { max_targets: 2, ..MethodSettings::default() };
        assert_eq!(several.payload(&site).kind, PayloadKind::Spectrum);
        assert_eq!(MethodSettings::default().payload(&site).precision, Precision::Q8);
        scenario.signal.wavefront = Wavefront::Spherical;
        let site = System::new(&scenario).unwrap();
        assert_eq!(MethodSettings::default().payload(&site).kind, PayloadKind::Spectrum);
    }
}
