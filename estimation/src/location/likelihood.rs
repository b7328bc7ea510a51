//! The log-likelihood of a position, its Gauss-Newton expansion, and its maximum.
//!
//! Minus twice the log-likelihood of independent Gaussian errors is the cost
//! `sum w (z - h(x))^2` over cascade ranges, `h = d_l + d_k` with gradient
//! `u_l + u_k`, and bearings, `h = atan2` with gradient `(-sin b, cos b) / d` (Section 4 of the
//! corrected mathematics; the paper stops at its third stage). Working on the cascade ranges is
//! the same as working on the segment delays of stage 1 with their full
//! covariance, since the ranges depend on the position through the segments only, but needs no
//! segment to be observable. A missing or excluded measurement has weight zero.
//!
//! One expansion costs `O(K^2)`: about 10 flops per path and one `atan2` per bearing.

use model::MOST_IRS;
use model::geometry::PlanePoint;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::Matrix2;

use super::faults::{Fault, FaultTerms};
use super::measurements::Measurements;

/// Shortest distance to an IRS at which directions are computed.
const CLOSEST_M: f64 = 1e-6;
/// A step shorter than this ends the iteration; the remaining error is much smaller.
const SETTLED_STEP_M: f64 = 1e-8;
const MOST_STEPS: usize = 60;
/// Smallest ratio of the information's eigenvalues that counts as observable.
const SMALLEST_EIGENVALUE_RATIO: f64 = 1e-10;

/// The measurements as weighted ranges and directions.
#[derive(Debug, Clone)]
pub(super) struct Likelihood {
    pub nodes: Vec<PlanePoint>,
    /// Cascade ranges, row-major over (sensor, reflector).
    pub range_m: Vec<f64>,
    /// Inverse variances of the ranges, 1/m^2; zero where there is none.
    pub range_weight: Vec<f64>,
    /// Measured bearings as unit vectors.
    pub bearing_direction: Vec<PlanePoint>,
    /// Inverse variances of the bearings, 1/rad^2; zero where there is none.
    pub bearing_weight: Vec<f64>,
}

/// Distances and unit vectors from every IRS to one position.
pub(super) struct Rays {
    distance_m: [f64; MOST_IRS],
    direction: [PlanePoint; MOST_IRS],
}

/// One measurement at one position: weight, measured minus predicted value, and gradient of the prediction.
#[derive(Clone, Copy)]
pub(super) struct Residual {
    pub weight: f64,
    pub residual: f64,
    pub gradient: PlanePoint,
}

/// Cost, its downhill direction `J^T W r` and the information `J^T W J` at one position.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LikelihoodExpansion {
    pub cost: f64,
    pub gradient: PlanePoint,
    pub information: Matrix2<f64>,
}

/// Result of the iteration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Minimum {
    pub position_m: PlanePoint,
    pub expansion: LikelihoodExpansion,
    pub converged: bool,
}

impl Likelihood {
    pub fn new(measurements: &Measurements) -> Self {
        let count = measurements.nodes();
        let range = |path: usize| match measurements.cascade_delay(path / count, path % count) {
            Some(delay) => (
                SPEED_OF_LIGHT_M_S * delay.delay_s,
                1.0 / (SPEED_OF_LIGHT_M_S * SPEED_OF_LIGHT_M_S * delay.variance_s2),
            ),
            None => (0.0, 0.0),
        };
        let bearing = |node: usize| match measurements.bearing(node) {
            Some(bearing) => {
                let (sin, cos) = bearing.bearing_rad.sin_cos();
                (PlanePoint::new(cos, sin), 1.0 / bearing.variance_rad2)
            }
            None => (PlanePoint::zeros(), 0.0),
        };
        let (range_m, range_weight) = (0..count * count).map(range).unzip();
        let (bearing_direction, bearing_weight) = (0..count).map(bearing).unzip();
        let nodes = measurements.irs_position_m().to_vec();
        Self { nodes, range_m, range_weight, bearing_direction, bearing_weight }
    }

    /// Number of measurements in use.
    pub fn measurement_count(&self) -> usize {
        self.range_weight.iter().chain(&self.bearing_weight).filter(|w| **w > 0.0).count()
    }

    /// Number of bearings in use.
    pub fn bearing_count(&self) -> usize {
        self.bearing_weight.iter().filter(|w| **w > 0.0).count()
    }

    /// Index of a path in `range_m` and `range_weight`.
    pub fn path(&self, sensor: usize, reflector: usize) -> usize {
        sensor * self.nodes.len() + reflector
    }

    pub fn rays(&self, position_m: PlanePoint) -> Rays {
        let mut rays = Rays { distance_m: [0.0; MOST_IRS], direction: [PlanePoint::zeros(); MOST_IRS] };
        for (k, node) in self.nodes.iter().enumerate() {
            let offset = position_m - node;
            let distance_m = offset.norm();
            rays.distance_m[k] = distance_m;
            rays.direction[k] = offset / distance_m.max(CLOSEST_M);
        }
        rays
    }

    pub fn path_term(&self, rays: &Rays, sensor: usize, reflector: usize) -> Residual {
        let path = self.path(sensor, reflector);
        Residual {
            weight: self.range_weight[path],
            residual: self.range_m[path] - rays.distance_m[sensor] - rays.distance_m[reflector],
            gradient: rays.direction[sensor] + rays.direction[reflector],
        }
    }

    /// The residual is the angle between two directions, so it never needs wrapping.
    pub fn bearing_term(&self, rays: &Rays, node: usize) -> Residual {
        let (measured, predicted) = (self.bearing_direction[node], rays.direction[node]);
        Residual {
            weight: self.bearing_weight[node],
            residual: predicted.perp(&measured).atan2(predicted.dot(&measured)),
            gradient: PlanePoint::new(-predicted.y, predicted.x) / rays.distance_m[node].max(CLOSEST_M),
        }
    }

    pub fn expand(&self, position_m: PlanePoint) -> LikelihoodExpansion {
        let rays = self.rays(position_m);
        let mut expansion = LikelihoodExpansion::default();
        for sensor in 0..self.nodes.len() {
            for reflector in 0..self.nodes.len() {
                expansion.add(self.path_term(&rays, sensor, reflector));
            }
            if self.bearing_weight[sensor] > 0.0 {
                expansion.add(self.bearing_term(&rays, sensor));
            }
        }
        expansion
    }

    /// The cost with the share of every measurement limited to `most`, so that gross errors do not dominate.
    pub fn capped_cost(&self, position_m: PlanePoint, most: f64) -> f64 {
        let rays = self.rays(position_m);
        let share = |term: Residual| (term.weight * term.residual * term.residual).min(most);
        let nodes = 0..self.nodes.len();
        let paths = nodes.clone().flat_map(|l| nodes.clone().map(move |k| (l, k)));
        paths.map(|(l, k)| share(self.path_term(&rays, l, k))).sum::<f64>()
            + nodes.clone().map(|k| share(self.bearing_term(&rays, k))).sum::<f64>()
    }

    /// Gauss-Newton from `start_m`, damped where a step would raise the cost.
    pub fn minimise(&self, start_m: PlanePoint) -> Minimum {
        minimise(start_m, |position_m| self.expand(position_m))
    }

    /// As [`Self::minimise`], with the size of one fault as a further unknown.
    pub fn minimise_with_fault(&self, start_m: PlanePoint, fault: Fault) -> Minimum {
        minimise(start_m, |position_m| {
            let terms = FaultTerms::gather(self, &self.rays(position_m), fault);
            self.expand(position_m).profile(&terms)
        })
    }
}

impl LikelihoodExpansion {
    fn add(&mut self, term: Residual) {
        let Residual { weight, residual, gradient } = term;
        self.cost += weight * residual * residual;
        self.gradient += gradient * (weight * residual);
        self.information += gradient * gradient.transpose() * weight;
    }

    /// The expansion with the size of a fault as a further unknown, which is eliminated.
    fn profile(self, terms: &FaultTerms) -> Self {
        if terms.common_weight <= 0.0 {
            return self;
        }
        let common = terms.common_gradient;
        let size = terms.common_residual / terms.common_weight;
        Self {
            cost: self.cost - terms.common_residual * size,
            gradient: self.gradient - common * size,
            information: self.information - common * common.transpose() / terms.common_weight,
        }
    }

    /// `information^-1 vector`, or `None` where a direction is not observed.
    pub fn solve(&self, vector: &PlanePoint) -> Option<PlanePoint> {
        solve_observable(&self.information, vector)
    }
}

fn minimise(start_m: PlanePoint, expand: impl Fn(PlanePoint) -> LikelihoodExpansion) -> Minimum {
    let mut position_m = start_m;
    let mut expansion = expand(position_m);
    let mut damping = 0.0;
    for _ in 0..MOST_STEPS {
        let floor = expansion.information.trace() * (damping + 1e-14);
        let damped = expansion.information + Matrix2::from_diagonal_element(floor);
        let Some(step) = damped.cholesky().map(|factor| factor.solve(&expansion.gradient)) else { break };
        let trial = expand(position_m + step);
        if trial.cost <= expansion.cost * (1.0 + 1e-12) {
            position_m += step;
            expansion = trial;
            damping = if damping < 1e-4 { 0.0 } else { 0.1 * damping };
        } else if step.norm() >= SETTLED_STEP_M {
            damping = (10.0 * damping).max(1e-3);
            continue;
        }
        if step.norm() < SETTLED_STEP_M {
            return Minimum { position_m, expansion, converged: true };
        }
    }
    Minimum { position_m, expansion, converged: false }
}

/// Solves with a symmetric matrix that must be well away from singular.
pub(super) fn solve_observable(information: &Matrix2<f64>, vector: &PlanePoint) -> Option<PlanePoint> {
    smallest_eigenvalue(information)?;
    information.cholesky().map(|factor| factor.solve(vector))
}

/// The smaller eigenvalue, or `None` where the matrix is singular to working
/// accuracy: the position is then not observed along some direction.
pub(super) fn smallest_eigenvalue(information: &Matrix2<f64>) -> Option<f64> {
    let (a, b, c) = (information.m11, information.m12, information.m22);
    let largest = 0.5 * (a + c) + (0.25 * (a - c) * (a - c) + b * b).sqrt();
    let smallest = (a * c - b * b) / largest;
    (smallest.is_finite() && smallest > SMALLEST_EIGENVALUE_RATIO * largest).then_some(smallest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::measurements::{Bearing, CascadeDelay};
    use model::geometry::{bearing_rad, wrap_angle};

    fn measurements(target_m: PlanePoint) -> Measurements {
        let nodes =
            vec![PlanePoint::new(10.0, 50.0), PlanePoint::new(10.0, -50.0), PlanePoint::new(50.0, 0.0)];
        let range = |k: usize| (target_m - nodes[k]).norm();
        let delays = (0..9)
            .map(|p| {
                let delay_s = (range(p / 3) + range(p % 3)) / SPEED_OF_LIGHT_M_S;
                Some(CascadeDelay { delay_s, variance_s2: 1e-18 })
            })
            .collect();
        let bearings = nodes
            .iter()
            .map(|p| Some(Bearing { bearing_rad: bearing_rad(*p, target_m), variance_rad2: 1e-5 }))
            .collect();
        Measurements::new(nodes, delays, bearings).unwrap()
    }

    #[test]
    fn finds_the_target_from_afar() {
        let target_m = PlanePoint::new(3.0, 7.0);
        let likelihood = Likelihood::new(&measurements(target_m));
        for start_m in [PlanePoint::new(30.0, -30.0), PlanePoint::new(-60.0, 20.0), PlanePoint::new(0.0, 0.0)]
        {
            let minimum = likelihood.minimise(start_m);
            assert!(minimum.converged);
            assert!((minimum.position_m - target_m).norm() < 1e-7);
        }
    }

    #[test]
    fn bearing_residual_is_the_wrapped_difference() {
        let likelihood = Likelihood::new(&measurements(PlanePoint::new(3.0, 7.0)));
        // From (50, 0) the bearing crosses the seam at 180 degrees between the two points.
        for y in [-1.0, 1.0] {
            let position_m = PlanePoint::new(3.0, y);
            let rays = likelihood.rays(position_m);
            let node = likelihood.nodes[2];
            let expected =
                wrap_angle(bearing_rad(node, PlanePoint::new(3.0, 7.0)) - bearing_rad(node, position_m));
            assert!((likelihood.bearing_term(&rays, 2).residual - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn a_fault_as_unknown_equals_leaving_its_path_out() {
        let mut likelihood = Likelihood::new(&measurements(PlanePoint::new(3.0, 7.0)));
        likelihood.range_m[1] += 30.0;
        likelihood.range_m[5] += 0.4;
        let fault = Fault::Path { sensor: 0, reflector: 1 };
        let profiled = likelihood.minimise_with_fault(PlanePoint::new(5.0, 5.0), fault);
        likelihood.range_weight[1] = 0.0;
        let without = likelihood.minimise(PlanePoint::new(5.0, 5.0));
        assert!((profiled.position_m - without.position_m).norm() < 1e-6);
        assert!((profiled.expansion.cost - without.expansion.cost).abs() < 1e-6);
    }

    #[test]
    fn a_singular_information_is_told() {
        assert!(smallest_eigenvalue(&Matrix2::new(1.0, 1.0, 1.0, 1.0)).is_none());
        assert!(smallest_eigenvalue(&Matrix2::zeros()).is_none());
        assert!((smallest_eigenvalue(&Matrix2::new(2.0, 0.0, 0.0, 3.0)).unwrap() - 2.0).abs() < 1e-12);
    }

    /// Every share counts up to the limit, delays and bearings alike.
    #[test]
    fn gross_errors_count_up_to_the_limit() {
        let target_m = PlanePoint::new(3.0, 7.0);
        let mut likelihood = Likelihood::new(&measurements(target_m));
        assert!(likelihood.capped_cost(target_m, 9.0) < 1e-9);
        let deviation_m = SPEED_OF_LIGHT_M_S * 1e-9;
        likelihood.range_m[1] += 2.0 * deviation_m;
        likelihood.range_m[5] += 50.0 * deviation_m;
        let (sin, cos) = (2.0 * 1e-5_f64.sqrt()).sin_cos();
        let direction = likelihood.bearing_direction[2];
        likelihood.bearing_direction[2] =
            PlanePoint::new(cos * direction.x - sin * direction.y, sin * direction.x + cos * direction.y);
        assert!((likelihood.capped_cost(target_m, 9.0) - (4.0 + 9.0 + 4.0)).abs() < 1e-6);
        assert_eq!((likelihood.measurement_count(), likelihood.bearing_count()), (12, 3));
    }
}
