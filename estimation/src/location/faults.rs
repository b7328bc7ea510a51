//! The fault hypotheses about a set of measurements.
//!
//! A fault is one event. Its members are the measurements that it affects; in a test it is
//! one unknown size `b` that adds `f b` to them:
//!
//! | fault | members | `f` | cause |
//! | --- | --- | --- | --- |
//! | path `(l, k)` | one delay | 1 | a wrong correlation peak |
//! | sensor `l` | row `l` | 1 | clock of the node |
//! | reflector `k` | column `k` | 1 | wrong BS-IRS delay |
//! | node `k` | row and column `k` | 1, and 2 on `(k, k)` | surveyed position, own delay |
//! | bearing `k` | one bearing | 1 | wrong peak, orientation |
//!
//! The paper has no such step; its delay errors are drawn from the bound. All sums that any test
//! needs are gathered in one pass, `O(K^2)` for all `K^2 + 4K` hypotheses together.

use std::fmt;

use model::geometry::PlanePoint;
use nalgebra::Matrix2;

use super::likelihood::{Likelihood, Rays, Residual};

/// One event that affects one or more measurements; indices of IRSs start at zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "all fields are indices of IRSs")]
pub enum Fault {
    /// One cascade delay.
    Path { sensor: usize, reflector: usize },
    /// All delays sensed at one IRS.
    SensorDelays { node: usize },
    /// All delays reflected by one IRS.
    ReflectorDelays { node: usize },
    /// All delays in which one IRS takes part.
    NodeDelays { node: usize },
    /// The bearing of one IRS.
    Bearing { node: usize },
}

impl Fault {
    /// Whether the fault affects the delay of a path.
    pub fn spoils_path(&self, at_sensor: usize, from_reflector: usize) -> bool {
        match *self {
            Self::Path { sensor, reflector } => sensor == at_sensor && reflector == from_reflector,
            Self::SensorDelays { node } => node == at_sensor,
            Self::ReflectorDelays { node } => node == from_reflector,
            Self::NodeDelays { node } => node == at_sensor || node == from_reflector,
            Self::Bearing { .. } => false,
        }
    }

    /// Whether the fault affects the bearing of an IRS.
    pub fn spoils_bearing(&self, of_node: usize) -> bool {
        matches!(*self, Self::Bearing { node } if node == of_node)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { sensor, reflector } => {
                write!(f, "delay of path (sensor {sensor}, reflector {reflector})")
            }
            Self::SensorDelays { node } => write!(f, "delays sensed at IRS {node}"),
            Self::ReflectorDelays { node } => write!(f, "delays reflected by IRS {node}"),
            Self::NodeDelays { node } => write!(f, "all delays of IRS {node}"),
            Self::Bearing { node } => write!(f, "bearing of IRS {node}"),
        }
    }
}

/// Sums over the members of a fault at one position.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct FaultTerms {
    /// Number of members in use.
    pub members: usize,
    /// `J^T W f`.
    pub common_gradient: PlanePoint,
    /// `f^T W f`.
    pub common_weight: f64,
    /// `f^T W r`.
    pub common_residual: f64,
    /// Sum of the members in `J^T W J`.
    pub information: Matrix2<f64>,
    /// Sum of the members in `J^T W r`.
    pub gradient: PlanePoint,
    /// Sum of the members in the cost.
    pub cost: f64,
}

impl FaultTerms {
    /// The sums of a single member with `f = 1`.
    fn single(term: Residual) -> Self {
        let Residual { weight, residual, gradient } = term;
        if weight <= 0.0 {
            return Self::default();
        }
        Self {
            members: 1,
            common_gradient: gradient * weight,
            common_weight: weight,
            common_residual: weight * residual,
            information: gradient * gradient.transpose() * weight,
            gradient: gradient * (weight * residual),
            cost: weight * residual * residual,
        }
    }

    fn add(&mut self, other: &Self) {
        self.members += other.members;
        self.common_gradient += other.common_gradient;
        self.common_weight += other.common_weight;
        self.common_residual += other.common_residual;
        self.information += other.information;
        self.gradient += other.gradient;
        self.cost += other.cost;
    }

    /// Row and column of one node: the path to itself is in both, with `f = 2`.
    fn row_and_column(row: &Self, column: &Self, own: &Self) -> Self {
        let mut both = *row;
        both.add(column);
        both.members -= own.members;
        both.common_weight += 2.0 * own.common_weight;
        both.information -= own.information;
        both.gradient -= own.gradient;
        both.cost -= own.cost;
        both
    }

    /// The sums of one fault.
    pub fn gather(likelihood: &Likelihood, rays: &Rays, fault: Fault) -> Self {
        let path = |l, k| Self::single(likelihood.path_term(rays, l, k));
        let nodes = 0..likelihood.nodes.len();
        let total = |terms: &mut dyn Iterator<Item = Self>| {
            terms.fold(Self::default(), |mut sum, term| {
                sum.add(&term);
                sum
            })
        };
        match fault {
            Fault::Path { sensor, reflector } => path(sensor, reflector),
            Fault::SensorDelays { node } => total(&mut nodes.map(|k| path(node, k))),
            Fault::ReflectorDelays { node } => total(&mut nodes.map(|l| path(l, node))),
            Fault::NodeDelays { node } => {
                let row = total(&mut nodes.clone().map(|k| path(node, k)));
                let column = total(&mut nodes.map(|l| path(l, node)));
                Self::row_and_column(&row, &column, &path(node, node))
            }
            Fault::Bearing { node } => Self::single(likelihood.bearing_term(rays, node)),
        }
    }
}

/// Every fault that the measurements in use could have, with its sums at
/// `position_m`. Faults with a single member appear once, as that path.
pub(super) fn all_faults(likelihood: &Likelihood, position_m: PlanePoint) -> Vec<(Fault, FaultTerms)> {
    let count = likelihood.nodes.len();
    let rays = likelihood.rays(position_m);
    let mut faults = Vec::with_capacity(count * (count + 4));
    let mut rows = vec![FaultTerms::default(); count];
    let mut columns = vec![FaultTerms::default(); count];
    let mut own = vec![FaultTerms::default(); count];
    for sensor in 0..count {
        for (reflector, column) in columns.iter_mut().enumerate() {
            if likelihood.range_weight[likelihood.path(sensor, reflector)] > 0.0 {
                let terms = FaultTerms::single(likelihood.path_term(&rays, sensor, reflector));
                faults.push((Fault::Path { sensor, reflector }, terms));
                rows[sensor].add(&terms);
                column.add(&terms);
                if sensor == reflector {
                    own[sensor] = terms;
                }
            }
        }
    }
    for node in 0..count {
        let both = FaultTerms::row_and_column(&rows[node], &columns[node], &own[node]);
        let shared = [
            (Fault::SensorDelays { node }, rows[node]),
            (Fault::ReflectorDelays { node }, columns[node]),
            (Fault::NodeDelays { node }, both),
        ];
        faults.extend(shared.into_iter().filter(|(_, terms)| terms.members > 1));
        if likelihood.bearing_weight[node] > 0.0 {
            faults.push((Fault::Bearing { node }, FaultTerms::single(likelihood.bearing_term(&rays, node))));
        }
    }
    faults
}

impl Likelihood {
    /// Sets the weights of the members of a fault to zero.
    pub fn exclude(&mut self, fault: Fault) {
        let count = self.nodes.len();
        for sensor in 0..count {
            for reflector in 0..count {
                if fault.spoils_path(sensor, reflector) {
                    self.range_weight[sensor * count + reflector] = 0.0;
                }
            }
            if fault.spoils_bearing(sensor) {
                self.bearing_weight[sensor] = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likelihood() -> Likelihood {
        let nodes =
            vec![PlanePoint::new(10.0, 50.0), PlanePoint::new(10.0, -50.0), PlanePoint::new(50.0, 0.0)];
        Likelihood {
            range_m: (0..9).map(|p| 95.0 + 1.3 * p as f64).collect(),
            range_weight: (0..9).map(|p| if p == 5 { 0.0 } else { 1.0 + 0.2 * p as f64 }).collect(),
            bearing_direction: nodes.iter().map(|p| -p / p.norm()).collect(),
            bearing_weight: vec![1e5, 0.0, 2e5],
            nodes,
        }
    }

    #[test]
    fn one_pass_equals_fault_by_fault() {
        let likelihood = likelihood();
        let position_m = PlanePoint::new(4.0, 3.0);
        let faults = all_faults(&likelihood, position_m);
        assert_eq!(faults.len(), 8 + 9 + 2);
        let rays = likelihood.rays(position_m);
        for (fault, terms) in faults {
            let gathered = FaultTerms::gather(&likelihood, &rays, fault);
            assert_eq!(terms.members, gathered.members, "{fault}");
            assert!((terms.common_weight - gathered.common_weight).abs() < 1e-9, "{fault}");
            assert!((terms.common_residual - gathered.common_residual).abs() < 1e-9, "{fault}");
            assert!(
                (terms.information - gathered.information).norm() < 1e-9 * terms.information.norm(),
                "{fault}"
            );
        }
    }

    #[test]
    fn sums_are_what_exclusion_takes_away() {
        let likelihood = likelihood();
        let position_m = PlanePoint::new(4.0, 3.0);
        let whole = likelihood.expand(position_m);
        for (fault, terms) in all_faults(&likelihood, position_m) {
            let mut without = likelihood.clone();
            without.exclude(fault);
            let rest = without.expand(position_m);
            assert!((whole.cost - terms.cost - rest.cost).abs() < 1e-9 * whole.cost, "{fault}");
            assert!((whole.gradient - terms.gradient - rest.gradient).norm() < 1e-9 * whole.cost, "{fault}");
            let gap = whole.information - terms.information - rest.information;
            assert!(gap.norm() < 1e-9 * whole.information.norm(), "{fault}");
            assert_eq!(
                likelihood.measurement_count() - terms.members,
                without.measurement_count(),
                "{fault}"
            );
        }
    }

    #[test]
    fn a_node_fault_moves_one_segment() {
        // f of a node fault: 1 on its row and column, 2 on the path to itself.
        let likelihood = likelihood();
        let rays = likelihood.rays(PlanePoint::new(4.0, 3.0));
        let terms = FaultTerms::gather(&likelihood, &rays, Fault::NodeDelays { node: 0 });
        let weight = &likelihood.range_weight;
        let expected = 4.0 * weight[0] + weight[1] + weight[2] + weight[3] + weight[6];
        assert!((terms.common_weight - expected).abs() < 1e-12);
        assert_eq!(terms.members, 5);
    }
}
