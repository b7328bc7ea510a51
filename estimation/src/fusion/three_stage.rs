//! Delays and bearings of a frame for the three-stage locator.

use model::{CVector, System};

use super::FrameBlocks;
use crate::angles::AngleEstimate;
use crate::delay::{BlockExpansion, MatchedFilter, coherent_refinement};
use crate::direct::ClockPrior;
use crate::location::{Bearing, CascadeDelay, MeasurementError, Measurements};

/// Blocks with their derivatives, `[l][k]`; none where no block was received.
pub(super) type Expansions = Vec<Vec<Option<BlockExpansion>>>;

/// Delays, refined where block and angles are known, corrected by the offsets of the clocks where these are not trusted, and bearings from the joint angles where there are any, otherwise from
/// the AOA that the node reports.
pub(super) fn measurements(
    system: &System,
    filters: &[MatchedFilter],
    frame: &FrameBlocks,
    expansions: &Expansions,
    angles: Option<&AngleEstimate>,
    clocks: Option<&ClockPrior>,
) -> Result<Measurements, MeasurementError> {
    let count = system.irs_count();
    let sensors = system.sensor_array();
    let angle = |k: usize| angles.and_then(|angles| angles.irs[k].angle_rad);
    let arrivals: Vec<Option<CVector>> =
        (0..count).map(|l| angle(l).map(|angle| sensors.steering(angle))).collect();
    let lights: Vec<Option<(CVector, f64)>> =
        (0..count).map(|k| angle(k).and_then(|angle| illumination(system, &filters[k], k, angle))).collect();
    let delays = (0..count * count).map(|path| {
        let (l, k) = (path / count, path % count);
        let report = frame.path(l, k)?;
        let as_reported = CascadeDelay { delay_s: report.delay_s, variance_s2: report.delay_variance_s2 };
        let (Some(arrival), Some((light, bandwidth)), Some(expansion)) =
            (&arrivals[l], &lights[k], &expansions[l][k])
        else {
            return Some(as_reported);
        };
        let noise_power_w = frame.node(l)?.noise_power_w + report.quantisation_power_w;
        let refined = coherent_refinement(expansion, arrival, light, noise_power_w, *bandwidth);
        Some(refined.map_or(as_reported, |refined| CascadeDelay {
            delay_s: refined.delay_s,
            variance_s2: refined.delay_variance_s2,
        }))
    });
    let corrected = |(path, delay): (usize, Option<CascadeDelay>)| {
        let (delay, Some(clocks)) = (delay?, clocks) else { return delay };
        let l = path / count;
        Some(CascadeDelay {
            delay_s: delay.delay_s - clocks.mean_s()[l],
            variance_s2: delay.variance_s2 + clocks.covariance_s2()[(l, l)],
        })
    };
    let delays: Vec<Option<CascadeDelay>> = delays.enumerate().map(corrected).collect();
    let bearings = (0..count).map(|k| {
        let joint = angles.and_then(|angles| {
            let irs = &angles.irs[k];
            Some(Bearing { bearing_rad: irs.angle_rad?, variance_rad2: irs.variance_rad2? })
        });
        let local = joint.or_else(|| frame.node(k).and_then(|node| node.arrival))?;
        Some(Bearing { bearing_rad: local.bearing_rad + system.irs[k].pose.broadside_rad(), ..local })
    });
    let positions = system.irs.iter().map(|irs| irs.pose.position_m.xy()).collect();
    Measurements::new(positions, delays, bearings.collect())
}

/// `b_k = S_k^H a(theta)` and the effective bandwidth of the spectrum that it makes.
fn illumination(system: &System, filter: &MatchedFilter, k: usize, angle_rad: f64) -> Option<(CVector, f64)> {
    let steering = system.element_array().steering(angle_rad);
    let light = system.irs[k].reflected_signal.ad_mul(&steering);
    let bandwidth = filter.effective_bandwidth_rad_s(&light).ok()?;
    Some((light, bandwidth))
}
