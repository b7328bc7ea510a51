//! The truth of a frame as the simulator tells it.

use model::{CMatrix, Point};
use num_complex::Complex64;
use proto::convert::FrameId;
use proto::v1;
use serde::{Deserialize, Serialize};

use crate::place::{Axes, FixPlace};

/// Largest number of targets of a frame.
const MOST_TARGETS: usize = 64;
/// Largest identity: statistics keep every target that they have seen.
const MOST_IDENTITY: u64 = 1023;

/// One target as told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToldTarget {
    pub identity: u64,
    pub position_m: FixPlace,
    pub rcs_m2: f64,
    /// Gains of all paths, row by row over sensors, real and imaginary parts in turn; empty for a single target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<f64>,
}

impl ToldTarget {
    /// The gains `alpha_lk`, if they are those of a site of `count` IRSs.
    pub fn gains(&self, count: usize) -> Option<CMatrix> {
        let gain = |l: usize, k: usize| {
            let place = 2 * (l * count + k);
            Complex64::new(self.gains[place], self.gains[place + 1])
        };
        (self.gains.len() == 2 * count * count).then(|| CMatrix::from_fn(count, count, gain))
    }
}

/// The targets and the clocks in one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct TrueFrame {
    pub targets: Vec<ToldTarget>,
    /// Whether the simulator lists targets; otherwise there is exactly one.
    pub listed: bool,
    /// Offset of the clock of every node; empty where clocks are trusted.
    pub clock_offset_s: Vec<f64>,
}

impl TrueFrame {
    /// The truth of one target.
    pub fn one(position_m: Point, rcs_m2: f64, clock_offset_s: Vec<f64>) -> Self {
        let position_m = FixPlace::new(position_m, Axes::Xy);
        let target = ToldTarget { identity: 0, position_m, rcs_m2, gains: Vec::new() };
        Self { targets: vec![target], listed: false, clock_offset_s }
    }

    /// Checks a record for a site of `count` IRSs; the error says what is wrong with it.
    pub fn from_wire(record: v1::TruthRecord, count: usize) -> Result<(FrameId, Self), String> {
        let v1::TruthRecord { run, frame, x_m, y_m, z_m, rcs_m2, clock_offset_s, targets } = record;
        if ![0, count].contains(&clock_offset_s.len()) {
            return Err("clock_offset_s of the truth must be empty or have an entry per node".into());
        }
        if !clock_offset_s.iter().all(|offset_s| offset_s.is_finite()) {
            return Err("clock_offset_s of the truth must be finite".into());
        }
        let told = match targets {
            None => {
                let at = checked(Point::new(x_m, y_m, z_m), rcs_m2)?;
                Self::one(at, rcs_m2, clock_offset_s)
            }
            Some(v1::TrueTargets { targets }) => {
                if targets.len() > MOST_TARGETS {
                    return Err(format!("the truth must have at most {MOST_TARGETS} targets"));
                }
                let targets = targets.into_iter().map(|target| told_target(target, count));
                let targets = targets.collect::<Result<Vec<_>, _>>()?;
                let repeated = |(i, target): (usize, &ToldTarget)| {
                    targets[..i].iter().any(|other| other.identity == target.identity)
                };
                if targets.iter().enumerate().any(repeated) {
                    return Err("the identities of the true targets must differ".into());
                }
                Self { targets, listed: true, clock_offset_s }
            }
        };
        Ok((FrameId { run, frame }, told))
    }

    /// The record that [`Self::from_wire`] reads.
    pub fn to_wire(&self, FrameId { run, frame }: FrameId) -> v1::TruthRecord {
        let Self { targets, listed, clock_offset_s } = self;
        let record =
            v1::TruthRecord { run, frame, clock_offset_s: clock_offset_s.clone(), ..Default::default() };
        let told = |target: &ToldTarget| v1::TrueTarget {
            identity: target.identity,
            position: Some(target.position_m.into()),
            rcs_m2: target.rcs_m2,
            gains: target.gains.clone(),
        };
        match targets.first().filter(|_| !listed) {
            Some(one) => {
                let [x_m, y_m, z_m] = one.position_m.point().into();
                v1::TruthRecord { x_m, y_m, z_m, rcs_m2: one.rcs_m2, ..record }
            }
            None => {
                let targets = Some(v1::TrueTargets { targets: targets.iter().map(told).collect() });
                v1::TruthRecord { targets, ..record }
            }
        }
    }
}

fn checked(position_m: Point, rcs_m2: f64) -> Result<Point, String> {
    if !position_m.iter().all(|v| v.is_finite()) {
        return Err("the truth must be finite".into());
    }
    if !(rcs_m2.is_finite() && rcs_m2 > 0.0) {
        return Err("rcs_m2 of the truth must be above 0 and finite".into());
    }
    Ok(position_m)
}

fn told_target(target: v1::TrueTarget, count: usize) -> Result<ToldTarget, String> {
    let v1::TrueTarget { identity, position, rcs_m2, gains } = target;
    let v1::Point { x_m, y_m, z_m } = position.ok_or("a true target must have a position")?;
    let position_m = FixPlace::new(checked(Point::new(x_m, y_m, z_m), rcs_m2)?, Axes::Xy);
    if identity > MOST_IDENTITY {
        return Err(format!("the identity of a true target must be at most {MOST_IDENTITY}"));
    }
    if ![0, 2 * count * count].contains(&gains.len()) || !gains.iter().all(|gain| gain.is_finite()) {
        return Err("gains of a true target must be empty or two finite numbers per path".into());
    }
    Ok(ToldTarget { identity, position_m, rcs_m2, gains })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(identity: u64, gains: usize) -> v1::TrueTarget {
        let position = Some(v1::Point { x_m: 1.0, y_m: 2.0, z_m: 0.0 });
        v1::TrueTarget { identity, position, rcs_m2: 3.0, gains: vec![0.5; gains] }
    }

    fn record(targets: Vec<v1::TrueTarget>) -> v1::TruthRecord {
        v1::TruthRecord { run: 1, targets: Some(v1::TrueTargets { targets }), ..v1::TruthRecord::default() }
    }

    #[test]
    fn targets_are_checked() {
        let told = |targets| TrueFrame::from_wire(record(targets), 2).map(|(_, told)| told);
        assert_eq!(told(vec![]).unwrap().targets, []);
        let two = told(vec![target(3, 8), target(0, 8)]).unwrap();
        assert!(two.listed && two.targets[0].gains(2).is_some() && two.targets[0].gains(3).is_none());
        assert!(told(vec![target(3, 0), target(3, 0)]).unwrap_err().contains("differ"));
        assert!(told(vec![target(3, 7)]).unwrap_err().contains("gains"));
        assert!(told(vec![target(1024, 0)]).unwrap_err().contains("1023"));
        assert!(told((0..65).map(|i| target(i, 0)).collect()).unwrap_err().contains("64"));
        let nowhere = v1::TrueTarget { position: None, ..target(0, 0) };
        assert!(told(vec![nowhere]).unwrap_err().contains("position"));
        let infinite = v1::TrueTarget { gains: vec![f64::NAN; 8], ..target(0, 0) };
        assert!(told(vec![infinite]).is_err());
    }
}
