//! Input of the locator: IRS positions, cascade delays and bearings, each with its
//! variance. Any delay or bearing may be missing.
//!
//! All values are checked here once: they are finite, and variances are positive.

use model::MOST_IRS;
use model::geometry::PlanePoint;
use thiserror::Error;

/// Measured delay reflector -> target -> sensor, the BS-IRS part removed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CascadeDelay {
    /// Cascade delay tau_lk.
    pub delay_s: f64,
    /// Variance of the error of the delay.
    pub variance_s2: f64,
}

/// Measured global bearing of the target from one IRS.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bearing {
    /// Global bearing; any multiple of a full turn may be added.
    pub bearing_rad: f64,
    /// Variance of the error of the bearing.
    pub variance_rad2: f64,
}

/// Why measurements cannot be used; indices start at zero.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum MeasurementError {
    #[error("{count} IRSs: give 1 to {MOST_IRS}")]
    NodeCount { count: usize },
    #[error(
        "{found} cascade delays for {expected} paths: give one entry per (sensor, reflector), None where missing"
    )]
    DelayCount { expected: usize, found: usize },
    #[error("{found} bearings for {expected} IRSs: give one entry per IRS, None where missing")]
    BearingCount { expected: usize, found: usize },
    #[error("position of IRS {node} is not finite")]
    Position { node: usize },
    #[error(
        "path (sensor {sensor}, reflector {reflector}): delay {delay_s} s with variance {variance_s2} s^2; the delay \
         must be finite, the variance finite and positive"
    )]
    Delay { sensor: usize, reflector: usize, delay_s: f64, variance_s2: f64 },
    #[error(
        "IRS {node}: bearing {bearing_rad} rad with variance {variance_rad2} rad^2; the bearing must be finite, the \
         variance finite and positive"
    )]
    Bearing { node: usize, bearing_rad: f64, variance_rad2: f64 },
}

/// Checked measurements of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurements {
    irs_position_m: Vec<PlanePoint>,
    cascade_delays: Vec<Option<CascadeDelay>>,
    bearings: Vec<Option<Bearing>>,
}

impl Measurements {
    /// Checks the measurements. `cascade_delays` runs over sensors, and for
    /// each sensor over reflectors (row-major `K x K`); `bearings` over IRSs.
    pub fn new(
        irs_position_m: Vec<PlanePoint>,
        cascade_delays: Vec<Option<CascadeDelay>>,
        bearings: Vec<Option<Bearing>>,
    ) -> Result<Self, MeasurementError> {
        let count = irs_position_m.len();
        if count == 0 || count > MOST_IRS {
            return Err(MeasurementError::NodeCount { count });
        }
        if cascade_delays.len() != count * count {
            let (expected, found) = (count * count, cascade_delays.len());
            return Err(MeasurementError::DelayCount { expected, found });
        }
        if bearings.len() != count {
            return Err(MeasurementError::BearingCount { expected: count, found: bearings.len() });
        }
        if let Some(node) = irs_position_m.iter().position(|p| !p.iter().all(|v| v.is_finite())) {
            return Err(MeasurementError::Position { node });
        }
        for (path, delay) in cascade_delays.iter().enumerate() {
            if let Some(CascadeDelay { delay_s, variance_s2 }) = *delay
                && !(delay_s.is_finite() && is_variance(variance_s2))
            {
                let (sensor, reflector) = (path / count, path % count);
                return Err(MeasurementError::Delay { sensor, reflector, delay_s, variance_s2 });
            }
        }
        for (node, bearing) in bearings.iter().enumerate() {
            if let Some(Bearing { bearing_rad, variance_rad2 }) = *bearing
                && !(bearing_rad.is_finite() && is_variance(variance_rad2))
            {
                return Err(MeasurementError::Bearing { node, bearing_rad, variance_rad2 });
            }
        }
        Ok(Self { irs_position_m, cascade_delays, bearings })
    }

    /// Number of IRSs, `K`.
    pub fn nodes(&self) -> usize {
        self.irs_position_m.len()
    }

    /// Positions of the IRSs.
    pub fn irs_position_m(&self) -> &[PlanePoint] {
        &self.irs_position_m
    }

    /// Delay of the path reflected by `reflector` and sensed at `sensor`, where there is one.
    pub fn cascade_delay(&self, sensor: usize, reflector: usize) -> Option<CascadeDelay> {
        if sensor.max(reflector) >= self.nodes() {
            return None;
        }
        self.cascade_delays[sensor * self.nodes() + reflector]
    }

    /// Bearing of the target from `node`, where there is one.
    pub fn bearing(&self, node: usize) -> Option<Bearing> {
        self.bearings.get(node).copied().flatten()
    }
}

fn is_variance(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: CascadeDelay = CascadeDelay { delay_s: 3e-7, variance_s2: 1e-18 };
    const BEARING: Bearing = Bearing { bearing_rad: 1.0, variance_rad2: 1e-6 };

    fn two_nodes() -> Vec<PlanePoint> {
        vec![PlanePoint::new(10.0, 50.0), PlanePoint::new(50.0, 0.0)]
    }

    #[test]
    fn errors_name_the_path_and_the_node() {
        let mut delays = vec![Some(DELAY); 4];
        delays[2] = Some(CascadeDelay { variance_s2: 0.0, ..DELAY });
        let refused = Measurements::new(two_nodes(), delays, vec![None; 2]).unwrap_err();
        assert!(matches!(refused, MeasurementError::Delay { sensor: 1, reflector: 0, .. }));
        assert!(refused.to_string().contains("sensor 1, reflector 0"));

        let bearings = vec![Some(BEARING), Some(Bearing { bearing_rad: f64::NAN, ..BEARING })];
        let refused = Measurements::new(two_nodes(), vec![None; 4], bearings).unwrap_err();
        assert!(matches!(refused, MeasurementError::Bearing { node: 1, .. }));

        let mut nodes = two_nodes();
        nodes[1].y = f64::INFINITY;
        let refused = Measurements::new(nodes, vec![None; 4], vec![None; 2]).unwrap_err();
        assert_eq!(refused, MeasurementError::Position { node: 1 });
    }

    #[test]
    fn shapes_are_checked() {
        let refused = Measurements::new(vec![], vec![], vec![]).unwrap_err();
        assert_eq!(refused, MeasurementError::NodeCount { count: 0 });
        let refused = Measurements::new(two_nodes(), vec![None; 3], vec![None; 2]).unwrap_err();
        assert_eq!(refused, MeasurementError::DelayCount { expected: 4, found: 3 });
        let refused = Measurements::new(two_nodes(), vec![None; 4], vec![None; 1]).unwrap_err();
        assert_eq!(refused, MeasurementError::BearingCount { expected: 2, found: 1 });
    }

    #[test]
    fn rows_are_sensors() {
        let mut delays = vec![None; 4];
        delays[1] = Some(DELAY);
        let measurements = Measurements::new(two_nodes(), delays, vec![None; 2]).unwrap();
        assert_eq!(measurements.cascade_delay(0, 1), Some(DELAY));
        assert_eq!(measurements.cascade_delay(1, 0), None);
        assert_eq!(measurements.cascade_delay(0, 2), None);
        assert_eq!(measurements.cascade_delay(2, 0), None);
    }
}
