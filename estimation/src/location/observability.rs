//! Observability of the position from a set of measurements.
//!
//! The paper assumes all `K^2` delays and all `K` bearings. If some are missing, two
//! questions must be answered first. Which segment delays follow from the cascade delays?
//! Path `(l, k)` is an edge between `l` and `k` of a graph, path `(k, k)` a loop: the
//! segments of a connected component are determined exactly when it contains a cycle
//! of odd length (a loop counts as one), since in a bipartite component adding a
//! constant on one side and subtracting it on the other changes no sum. And are
//! there two independent constraints for two coordinates? Both cost `O(K^2)`.

use model::geometry::PlanePoint;
use nalgebra::Matrix2;
use thiserror::Error;

use super::likelihood::{Likelihood, smallest_eigenvalue};

/// Why there is no fix.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum Unobservable {
    #[error("no delay and no bearing")]
    NoMeasurements,
    #[error(
        "{delays} delays and {bearings} bearings hold a single independent constraint; two coordinates need two"
    )]
    TooFewConstraints { delays: usize, bearings: usize },
    #[error(
        "the geometry leaves the position open along {direction_rad:.3} rad (standard deviation {standard_deviation_m:.3e} m)"
    )]
    Geometry { direction_rad: f64, standard_deviation_m: f64 },
    #[error("no finite position fits the measurements")]
    NoSolution,
}

/// The segments that the delays in use determine, and the number of independent
/// constraints.
pub(super) struct SegmentGraph {
    /// Nodes whose segment delay is determined, ascending.
    pub determined: Vec<usize>,
    /// Rank of the delays as equations in the segments.
    pub rank: usize,
}

impl SegmentGraph {
    pub fn new(likelihood: &Likelihood) -> Self {
        let count = likelihood.nodes.len();
        let linked = |a: usize, b: usize| {
            likelihood.range_weight[likelihood.path(a, b)] > 0.0
                || likelihood.range_weight[likelihood.path(b, a)] > 0.0
        };
        let mut side: Vec<Option<bool>> = vec![None; count];
        let mut determined = Vec::with_capacity(count);
        let mut rank = 0;
        let mut component = Vec::with_capacity(count);
        for first in 0..count {
            if side[first].is_some() {
                continue;
            }
            side[first] = Some(false);
            component.clear();
            component.push(first);
            let mut bipartite = true;
            let mut next = 0;
            while next < component.len() {
                let node = component[next];
                for other in (0..count).filter(|other| linked(node, *other)) {
                    match side[other] {
                        None => {
                            side[other] = side[node].map(|s| !s);
                            component.push(other);
                        }
                        Some(_) => bipartite &= side[other] != side[node],
                    }
                }
                next += 1;
            }
            rank += component.len() - usize::from(bipartite);
            if !bipartite {
                determined.extend(&component);
            }
        }
        determined.sort_unstable();
        Self { determined, rank }
    }
}

/// Checks that there are enough constraints for any position of the target.
pub(super) fn check_constraints(likelihood: &Likelihood) -> Result<(), Unobservable> {
    let bearings = likelihood.bearing_count();
    let delays = likelihood.measurement_count() - bearings;
    match SegmentGraph::new(likelihood).rank + bearings {
        0 => Err(Unobservable::NoMeasurements),
        1 => Err(Unobservable::TooFewConstraints { delays, bearings }),
        _ => Ok(()),
    }
}

/// Largest standard deviation of a fix, as a share of the distance to the farthest IRS. Between
/// two bearings along one line noise alone makes this share `1 / |z|`, `z` standard
/// normal: a fifth lets such a chance crossing pass once in two million.
const LARGEST_DEVIATION_SHARE: f64 = 0.2;

/// Checks that the information at a fix determines both coordinates to a fraction of the size
/// of the scene, within which the linearisation is valid.
pub(super) fn check_information(
    likelihood: &Likelihood,
    position_m: PlanePoint,
    information: &Matrix2<f64>,
) -> Result<(), Unobservable> {
    if !position_m.iter().chain(information.iter()).all(|v| v.is_finite()) {
        return Err(Unobservable::NoSolution);
    }
    let extent_m = likelihood.nodes.iter().map(|node| (position_m - node).norm()).fold(0.0, f64::max);
    let standard_deviation_m =
        smallest_eigenvalue(information).map_or(f64::INFINITY, |smallest| 1.0 / smallest.sqrt());
    if standard_deviation_m < LARGEST_DEVIATION_SHARE * extent_m {
        return Ok(());
    }
    // Eigenvector of the smaller eigenvalue.
    let (a, b, c) = (information.m11, information.m12, information.m22);
    let direction_rad = 0.5 * (-2.0 * b).atan2(c - a);
    Err(Unobservable::Geometry { direction_rad, standard_deviation_m })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(count: usize, paths: &[(usize, usize)]) -> SegmentGraph {
        let mut likelihood = Likelihood {
            nodes: vec![PlanePoint::zeros(); count],
            range_m: vec![1.0; count * count],
            range_weight: vec![0.0; count * count],
            bearing_direction: vec![PlanePoint::x(); count],
            bearing_weight: vec![0.0; count],
        };
        for &(l, k) in paths {
            likelihood.range_weight[l * count + k] = 1.0;
        }
        SegmentGraph::new(&likelihood)
    }

    /// Rank of the equations by singular values.
    fn rank_of(count: usize, paths: &[(usize, usize)]) -> usize {
        let mut matrix = nalgebra::DMatrix::<f64>::zeros(paths.len().max(1), count);
        for (row, &(l, k)) in paths.iter().enumerate() {
            matrix[(row, l)] += 1.0;
            matrix[(row, k)] += 1.0;
        }
        matrix.rank(1e-9)
    }

    #[test]
    fn odd_cycles_determine_segments() {
        assert_eq!(graph(3, &[(0, 1), (1, 0)]).determined, Vec::<usize>::new());
        assert_eq!(graph(3, &[(0, 1), (1, 1)]).determined, vec![0, 1]);
        assert_eq!(graph(3, &[(0, 1), (1, 2), (2, 0)]).determined, vec![0, 1, 2]);
        assert_eq!(graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]).determined, Vec::<usize>::new());
        assert_eq!(graph(4, &[(0, 0), (2, 3), (3, 2)]).determined, vec![0]);
    }

    #[test]
    fn rank_agrees_with_singular_values_for_every_set_of_paths() {
        let all: Vec<_> = (0..9).map(|p| (p / 3, p % 3)).collect();
        for set in 0..512usize {
            let paths: Vec<_> =
                all.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, p)| *p).collect();
            assert_eq!(graph(3, &paths).rank, rank_of(3, &paths), "{paths:?}");
        }
    }

    #[test]
    fn the_open_direction_is_named() {
        let likelihood = Likelihood {
            nodes: vec![PlanePoint::zeros()],
            range_m: vec![0.0],
            range_weight: vec![0.0],
            bearing_direction: vec![PlanePoint::x()],
            bearing_weight: vec![1.0],
        };
        // Known along y only: open along x.
        let found =
            check_information(&likelihood, PlanePoint::new(9.0, 0.0), &Matrix2::new(0.0, 0.0, 0.0, 4.0));
        let Err(Unobservable::Geometry { direction_rad, standard_deviation_m }) = found else {
            panic!("{found:?}")
        };
        assert!(direction_rad.sin().abs() < 1e-9 && standard_deviation_m.is_infinite());
        // Known along x only.
        let found =
            check_information(&likelihood, PlanePoint::new(9.0, 0.0), &Matrix2::new(4.0, 0.0, 0.0, 0.0));
        let Err(Unobservable::Geometry { direction_rad, .. }) = found else { panic!("{found:?}") };
        assert!(direction_rad.cos().abs() < 1e-9);
        // Known along the diagonal: open across it.
        let found =
            check_information(&likelihood, PlanePoint::new(9.0, 0.0), &Matrix2::new(1.0, 1.0, 1.0, 1.0));
        let Err(Unobservable::Geometry { direction_rad, .. }) = found else { panic!("{found:?}") };
        assert!((direction_rad.tan() + 1.0).abs() < 1e-9, "{direction_rad}");
    }
}
