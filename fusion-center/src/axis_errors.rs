//! Errors along the coordinates, where positions have a height, which is usually less accurate than the horizontal position.

use std::collections::BTreeMap;

use model::units::db_from_ratio;
use serde::Serialize;

use crate::fix::FixRecord;
use crate::place::symmetric;

const NAMES: [&str; 3] = ["x", "y", "z"];

/// Sums of squared errors and bounds along x, y and z.
#[derive(Debug, Clone, Default)]
pub struct AxisErrors {
    count: u64,
    error_m2: [f64; 3],
    bound_m2: [f64; 3],
}

/// Error along one coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AxisFigures {
    pub rms_m: f64,
    /// Rms of the exact bound.
    pub bound_rms_m: f64,
    /// Ratio of the mean squared error to the mean bound.
    pub gap_db: f64,
}

impl AxisErrors {
    /// Adds a fix that has a height and whose truth and bound are known.
    pub fn add(&mut self, fix: &FixRecord) {
        let truth = fix.truth.as_ref();
        let bound = truth.and_then(|truth| symmetric(truth.bound_m2.as_deref()?));
        let truth_m = truth.and_then(|truth| truth.position_m);
        let (Some(position), Some(truth_m), Some(bound)) = (fix.position_m, truth_m, bound) else { return };
        if bound.nrows() < 3 {
            return;
        }
        let error = position.point() - truth_m.point();
        self.count += 1;
        for axis in 0..3 {
            self.error_m2[axis] += error[axis].powi(2);
            self.bound_m2[axis] += bound[(axis, axis)];
        }
    }

    /// By the name of the coordinate; none without such fixes.
    pub fn figures(&self) -> Option<BTreeMap<&'static str, AxisFigures>> {
        let rms_m = |sum: f64| (sum / self.count as f64).sqrt();
        let figures = |axis: usize| AxisFigures {
            rms_m: rms_m(self.error_m2[axis]),
            bound_rms_m: rms_m(self.bound_m2[axis]),
            gap_db: db_from_ratio(self.error_m2[axis] / self.bound_m2[axis]),
        };
        (self.count > 0).then(|| (0..3).map(|axis| (NAMES[axis], figures(axis))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::{Source, Truth};
    use crate::place::{Axes, FixPlace};
    use estimation::fusion::FrameBlocks;
    use model::Point;

    fn judged(error: Point, bound_m2: Vec<f64>) -> FixRecord {
        let none = Err(estimation::location::Unobservable::NoMeasurements.into());
        let record = FixRecord::new(Default::default(), &FrameBlocks::new(2), None, &none, Source::Simulated);
        let truth = Truth {
            position_m: Some(FixPlace::new(Point::zeros(), Axes::Xyz)),
            error_m: Some(error.norm()),
            bound_rms_m: None,
            bound_m2: Some(bound_m2),
            nees: None,
            clock_offset_ns: Vec::new(),
            targets: None,
        };
        FixRecord { position_m: Some(FixPlace::new(error, Axes::Xyz)), truth: Some(truth), ..record }
    }

    #[test]
    fn every_coordinate_has_its_own_gap() {
        let mut errors = AxisErrors::default();
        errors.add(&judged(Point::new(1.0, 1.0, 0.0), vec![1.0, 0.0, 1.0]));
        assert_eq!(errors.figures(), None, "flat");
        errors.add(&judged(Point::new(1.0, 2.0, 6.0), vec![1.0, 9.0, 9.0, 4.0, 9.0, 9.0]));
        errors.add(&judged(Point::new(1.0, -2.0, 0.0), vec![1.0, 9.0, 9.0, 4.0, 9.0, 9.0]));
        let figures = errors.figures().unwrap();
        let shown = |axis: &str| (figures[axis].rms_m, figures[axis].bound_rms_m, figures[axis].gap_db);
        assert_eq!((shown("x"), shown("y")), ((1.0, 1.0, 0.0), (2.0, 2.0, 0.0)));
        assert_eq!((shown("z").0, shown("z").1), (18f64.sqrt(), 3.0));
        assert!((shown("z").2 - 10.0 * 2f64.log10()).abs() < 1e-12);
    }
}
