//! The constants of a system, and a point as every IRS sees it.

use std::f64::consts::PI;
use std::ops::Range;

use model::{Point, System};

use super::layout::{Layout, View};

/// Constants of a system.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    system: System,
    layout: Layout,
}

/// A point as one IRS sees it, in a few numbers.
#[derive(Debug, Clone)]
pub(super) struct IrsView {
    pub distance_m: f64,
    pub bearing_rad: f64,
    /// `||b_k||`.
    pub strength: f64,
    /// Root mean square width of the spectrum that the IRS sends to the point, rad/s.
    pub width_rad_s: f64,
}

impl Scene {
    pub fn new(system: &System) -> Self {
        Self { system: system.clone(), layout: Layout::of_system(system) }
    }

    pub fn system(&self) -> &System {
        &self.system
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn irs_count(&self) -> usize {
        self.layout.irs().len()
    }

    /// Where the subcarriers of IRS `k` are.
    pub fn range(&self, k: usize) -> Range<usize> {
        self.layout.range(k)
    }

    /// SNR of a path after the matched filter for a cross-section of one square metre, with the strength of the
    /// illumination and both distances.
    pub fn unit_snr(&self, strength: f64, sensor_m: f64, reflector_m: f64) -> f64 {
        let system = &self.system;
        let energy = system.sensors() as f64 * strength.powi(2) / system.noise_power_w;
        let spread = (64.0 * PI.powi(3)) * (sensor_m * reflector_m).powi(2);
        energy * system.wavelength_m.powi(2) / spread
    }

    /// The point as every IRS sees it, into buffers that exist, with derivatives if `expand` says so.
    pub fn look(&self, point: Point, expand: bool, views: &mut Vec<View>) {
        views.resize_with(self.irs_count(), View::default);
        self.layout.look_all(&point, expand, views);
    }

    /// What [`View`]s of a point come down to.
    pub fn summaries(&self, point: Point, views: &[View]) -> Vec<IrsView> {
        let summary = |(k, view): (usize, &View)| {
            let pose = &self.system.irs[k].pose;
            let strength = view.strength();
            IrsView {
                distance_m: view.distance_m,
                bearing_rad: pose.bearing_rad(point),
                strength,
                width_rad_s: self.layout.spectral_variance(k, view)[0].sqrt(),
            }
        };
        views.iter().enumerate().map(summary).collect()
    }
}
