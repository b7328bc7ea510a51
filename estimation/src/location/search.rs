//! Search of the likelihood over the scene, where the stages give no start or where two positions
//! explain the measurements equally well.
//!
//! Delays alone from two IRSs (or from IRSs on one line) have a mirror image; a single bearing
//! may cut an ellipse twice. The search walks a grid over IRSs and coverage area,
//! refines the best local minima and the mirror image of the best, and keeps those whose
//! likelihood is within 1 : 1000 of the best. The coverage area then decides, and the fix has a
//! caution. The paper always has all bearings and needs no search. Cost: 256 expansions
//! and a few minimisations, run only with fewer than two bearings or without stage 3.

use model::geometry::PlanePoint;
use nalgebra::Matrix2;

use super::likelihood::{Likelihood, Minimum, smallest_eigenvalue};

const GRID: usize = 16;
const MOST_REFINED: usize = 8;
/// Twice the logarithm of a likelihood ratio of 1000.
const COMPARABLE_COST: f64 = 13.8;
/// Minima nearer than this, or than three standard deviations, are one.
const SAME_PLACE_M: f64 = 0.05;

/// The rectangle in which targets are expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoverageArea {
    /// Corner with the smallest coordinates.
    pub min_m: PlanePoint,
    /// Corner with the largest coordinates.
    pub max_m: PlanePoint,
}

impl CoverageArea {
    /// Distance from the area, zero inside.
    fn distance_m(&self, position_m: PlanePoint) -> f64 {
        let outside = (self.min_m - position_m).sup(&(position_m - self.max_m)).sup(&PlanePoint::zeros());
        outside.norm()
    }

    /// Whether a fix may lie inside: no farther out than three of its standard deviations.
    pub(super) fn holds(&self, minimum: &Minimum) -> bool {
        self.distance_m(minimum.position_m) <= spread_m(minimum)
    }

    fn around(points: impl Iterator<Item = PlanePoint>) -> Self {
        let empty =
            Self { min_m: PlanePoint::repeat(f64::INFINITY), max_m: PlanePoint::repeat(f64::NEG_INFINITY) };
        points
            .fold(empty, |area, point| Self { min_m: area.min_m.inf(&point), max_m: area.max_m.sup(&point) })
    }
}

/// A second position that explains the measurements about as well as the fix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ambiguity {
    /// The best of the other positions, metres.
    pub alternative_m: PlanePoint,
    /// Whether the coverage area rules out all other positions. If not, the fix is the more probable
    /// position, and the protection level includes the alternative.
    pub resolved_by_coverage: bool,
}

/// The chosen minimum, and the ambiguity if there is one.
pub(super) struct SearchResult {
    pub minimum: Minimum,
    pub ambiguity: Option<Ambiguity>,
}

/// Searches the scene, also from `start_m` if given.
pub(super) fn search(
    likelihood: &Likelihood,
    start_m: Option<PlanePoint>,
    coverage: Option<&CoverageArea>,
) -> SearchResult {
    let mut minima: Vec<Minimum> = Vec::with_capacity(MOST_REFINED + 2);
    for start_m in start_m.into_iter().chain(grid_minima(likelihood, coverage)) {
        keep(&mut minima, likelihood.minimise(start_m));
    }
    if let Some(best) = minima.iter().min_by(|a, b| a.expansion.cost.total_cmp(&b.expansion.cost)) {
        let mirrored_m = mirrored(&likelihood.nodes, best.position_m);
        keep(&mut minima, likelihood.minimise(mirrored_m));
    }
    choose(minima, coverage)
}

/// Local minima of the cost over a grid, lowest first.
fn grid_minima(likelihood: &Likelihood, coverage: Option<&CoverageArea>) -> Vec<PlanePoint> {
    let scene = scene(likelihood, coverage);
    let step_m = (scene.max_m - scene.min_m) / (GRID - 1) as f64;
    let at = |i: usize, j: usize| scene.min_m + PlanePoint::new(step_m.x * i as f64, step_m.y * j as f64);
    let cost: Vec<f64> = (0..GRID * GRID).map(|n| likelihood.expand(at(n / GRID, n % GRID)).cost).collect();
    let near = |i: usize| i.saturating_sub(1)..GRID.min(i + 2);
    let is_minimum =
        |&n: &usize| near(n / GRID).all(|a| near(n % GRID).all(|b| cost[n] <= cost[a * GRID + b]));
    let mut starts: Vec<(f64, PlanePoint)> =
        (0..GRID * GRID).filter(is_minimum).map(|n| (cost[n], at(n / GRID, n % GRID))).collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let centre_m = coverage.map(|area| (area.min_m + area.max_m) * 0.5);
    centre_m.into_iter().chain(starts.into_iter().take(MOST_REFINED).map(|(_, start_m)| start_m)).collect()
}

/// IRSs and coverage area with a margin, or the reach of the delays where no area is known.
fn scene(likelihood: &Likelihood, coverage: Option<&CoverageArea>) -> CoverageArea {
    let corners = coverage.into_iter().flat_map(|area| [area.min_m, area.max_m]);
    let around = CoverageArea::around(likelihood.nodes.iter().copied().chain(corners));
    let size_m = (around.max_m - around.min_m).norm().max(1.0);
    let in_use = likelihood.range_m.iter().zip(&likelihood.range_weight).filter(|(_, w)| **w > 0.0);
    let reach_m = in_use.map(|(range_m, _)| 0.5 * range_m.abs()).fold(0.0, f64::max);
    let margin_m = if coverage.is_some() { 0.25 * size_m } else { (0.25 * size_m).max(reach_m) };
    let margin = PlanePoint::repeat(margin_m);
    CoverageArea { min_m: around.min_m - margin, max_m: around.max_m + margin }
}

/// Mirror image about the line that fits the IRSs best.
fn mirrored(nodes: &[PlanePoint], position_m: PlanePoint) -> PlanePoint {
    let centre_m = nodes.iter().sum::<PlanePoint>() / nodes.len() as f64;
    let scatter: Matrix2<f64> = nodes.iter().map(|p| (p - centre_m) * (p - centre_m).transpose()).sum();
    let half_angle = 0.5 * (2.0 * scatter.m12).atan2(scatter.m11 - scatter.m22);
    let along = PlanePoint::new(half_angle.cos(), half_angle.sin());
    let offset = position_m - centre_m;
    centre_m + along * (2.0 * along.dot(&offset)) - offset
}

/// Adds a minimum unless it failed or is known already.
fn keep(minima: &mut Vec<Minimum>, found: Minimum) {
    if !(found.expansion.cost.is_finite() && found.position_m.iter().all(|v| v.is_finite())) {
        return;
    }
    match minima.iter_mut().find(|known| same_place(known, &found)) {
        Some(known) if found.expansion.cost < known.expansion.cost => *known = found,
        Some(_) => {}
        None => minima.push(found),
    }
}

fn same_place(a: &Minimum, b: &Minimum) -> bool {
    (a.position_m - b.position_m).norm() < SAME_PLACE_M.max(spread_m(a)).max(spread_m(b))
}

/// Three standard deviations along the least certain direction, zero where that is not observed.
fn spread_m(minimum: &Minimum) -> f64 {
    smallest_eigenvalue(&minimum.expansion.information).map_or(0.0, |smallest| 3.0 / smallest.sqrt())
}

fn choose(mut minima: Vec<Minimum>, coverage: Option<&CoverageArea>) -> SearchResult {
    minima.sort_by(|a, b| a.expansion.cost.total_cmp(&b.expansion.cost));
    let Some(best) = minima.first().copied() else {
        let nowhere = Minimum {
            position_m: PlanePoint::repeat(f64::NAN),
            expansion: Default::default(),
            converged: false,
        };
        return SearchResult { minimum: nowhere, ambiguity: None };
    };
    minima.retain(|m| m.expansion.cost <= best.expansion.cost + COMPARABLE_COST);
    let covered = |m: &Minimum| coverage.is_none_or(|area| area.holds(m));
    let covered_count = minima.iter().filter(|m| covered(m)).count();
    let chosen = minima.iter().position(covered).unwrap_or(0);
    let minimum = minima.remove(chosen);
    let other = minima.iter().find(|m| covered(m)).or(minima.first());
    let ambiguity = other
        .map(|other| Ambiguity { alternative_m: other.position_m, resolved_by_coverage: covered_count == 1 });
    SearchResult { minimum, ambiguity }
}

#[cfg(test)]
mod tests {
    use super::super::likelihood::LikelihoodExpansion;
    use super::super::test_scene::{TARGET_M, exact};
    use super::*;

    /// A minimum with this cost and standard deviations along x and y.
    fn minimum(x_m: f64, y_m: f64, cost: f64, deviations_m: [f64; 2]) -> Minimum {
        let information = Matrix2::from_diagonal(&PlanePoint::from(deviations_m).map(|v| 1.0 / (v * v)));
        let expansion = LikelihoodExpansion { cost, gradient: PlanePoint::zeros(), information };
        Minimum { position_m: PlanePoint::new(x_m, y_m), expansion, converged: true }
    }

    fn area(min_m: [f64; 2], max_m: [f64; 2]) -> CoverageArea {
        CoverageArea { min_m: min_m.into(), max_m: max_m.into() }
    }

    #[test]
    fn mirror_image_about_two_nodes() {
        let nodes = [PlanePoint::new(10.0, 50.0), PlanePoint::new(10.0, -50.0)];
        let image_m = mirrored(&nodes, PlanePoint::new(4.0, 7.0));
        assert!((image_m - PlanePoint::new(16.0, 7.0)).norm() < 1e-9);
    }

    #[test]
    fn distance_from_the_area() {
        let area = CoverageArea { min_m: PlanePoint::zeros(), max_m: PlanePoint::new(10.0, 10.0) };
        assert_eq!(area.distance_m(PlanePoint::new(5.0, 10.0)), 0.0);
        assert!((area.distance_m(PlanePoint::new(13.0, -4.0)) - 5.0).abs() < 1e-12);
    }

    #[test]
    fn a_fix_may_lie_outside_by_three_standard_deviations() {
        let area = area([0.0, 0.0], [10.0, 10.0]);
        let at = |x_m| area.holds(&minimum(x_m, 5.0, 0.0, [0.1, 0.5]));
        assert!(at(3.0) && at(11.4) && !at(11.6) && at(-1.4) && !at(-1.6));
        assert!((spread_m(&minimum(0.0, 0.0, 0.0, [0.1, 0.5])) - 1.5).abs() < 1e-12);
        let unobserved =
            Minimum { expansion: LikelihoodExpansion::default(), ..minimum(10.1, 5.0, 0.0, [1.0; 2]) };
        assert!(!area.holds(&unobserved));
    }

    #[test]
    fn near_minima_are_one_and_the_better_stays() {
        let mut minima = Vec::new();
        keep(&mut minima, minimum(0.0, 0.0, 2.0, [0.001; 2]));
        keep(&mut minima, minimum(0.04, 0.0, 1.0, [0.001; 2]));
        keep(&mut minima, minimum(0.05, 0.0, 1.5, [0.001; 2]));
        assert_eq!((minima.len(), minima[0].expansion.cost, minima[0].position_m.x), (1, 1.0, 0.04));
        keep(&mut minima, minimum(0.1, 0.0, 3.0, [0.001; 2]));
        assert_eq!(minima.len(), 2);
        // Both within three standard deviations of it: it is the first one, and worse.
        keep(&mut minima, minimum(2.0, 0.0, 9.0, [1.0; 2]));
        keep(&mut minima, minimum(f64::NAN, 0.0, 0.0, [1.0; 2]));
        keep(&mut minima, minimum(50.0, 0.0, f64::INFINITY, [1.0; 2]));
        assert_eq!(minima.len(), 2);
        keep(&mut minima, minimum(4.0, 0.0, 9.0, [1.0; 2]));
        assert_eq!(minima.len(), 3);
    }

    #[test]
    fn the_coverage_area_decides_among_comparable_minima() {
        let place = |x_m: f64, cost: f64| minimum(x_m, 5.0, cost, [0.1; 2]);
        let inside = area([0.0, 0.0], [10.0, 10.0]);
        let chosen = |places: &[(f64, f64)], coverage: Option<&CoverageArea>| {
            let result = choose(places.iter().map(|&(x_m, cost)| place(x_m, cost)).collect(), coverage);
            let other = result.ambiguity.map(|a| (a.alternative_m.x, a.resolved_by_coverage));
            (result.minimum.position_m.x, other)
        };
        assert_eq!(chosen(&[(5.0, 3.0), (20.0, 1.0)], Some(&inside)), (5.0, Some((20.0, true))));
        assert_eq!(chosen(&[(5.0, 3.0), (20.0, 1.0)], None), (20.0, Some((5.0, false))));
        assert_eq!(chosen(&[(5.0, 3.0), (8.0, 1.0), (20.0, 2.0)], Some(&inside)), (8.0, Some((5.0, false))));
        // A thousand times less probable: not an alternative, not even inside the area.
        assert_eq!(chosen(&[(5.0, 15.0), (20.0, 1.0)], Some(&inside)), (20.0, None));
        assert_eq!(chosen(&[(5.0, 14.7), (20.0, 1.0)], Some(&inside)), (5.0, Some((20.0, true))));
        let nowhere = choose(Vec::new(), None);
        assert!(nowhere.minimum.position_m.x.is_nan() && nowhere.ambiguity.is_none());
    }

    #[test]
    fn the_scene_holds_irss_area_and_the_reach_of_the_delays() {
        let mut likelihood = exact();
        likelihood.nodes = vec![PlanePoint::new(0.0, 0.0), PlanePoint::new(30.0, 40.0)];
        likelihood.range_m = vec![20.0, 60.0, 60.0, 1000.0];
        likelihood.range_weight = vec![100.0, 100.0, 100.0, 0.0];
        // A quarter of the diagonal of 50 m, or half of the longest delay in use.
        assert_eq!(scene(&likelihood, None), area([-30.0, -30.0], [60.0, 70.0]));
        likelihood.range_m = vec![20.0, 10.0, 10.0, 1000.0];
        assert_eq!(scene(&likelihood, None), area([-12.5, -12.5], [42.5, 52.5]));
        let wide = area([-30.0, 0.0], [0.0, 5.0]);
        let found = scene(&likelihood, Some(&wide));
        let margin_m = 0.25 * 60f64.hypot(40.0);
        assert!((found.min_m - PlanePoint::new(-30.0 - margin_m, -margin_m)).norm() < 1e-12);
        assert!((found.max_m - PlanePoint::new(30.0 + margin_m, 40.0 + margin_m)).norm() < 1e-12);
        likelihood.nodes = vec![PlanePoint::zeros(); 2];
        likelihood.range_weight.fill(0.0);
        assert_eq!(scene(&likelihood, None), area([-0.25, -0.25], [0.25, 0.25]), "a size of 1 m at least");
    }

    /// The lowest local minimum of the grid is the grid point next to the target, and all others are local minima too.
    #[test]
    fn the_grid_finds_the_neighbourhood_of_the_target() {
        let (likelihood, coverage) = (exact(), area([-10.0, -10.0], [10.0, 12.0]));
        let starts = grid_minima(&likelihood, Some(&coverage));
        assert_eq!(starts[0], PlanePoint::new(0.0, 1.0), "the centre of the area");
        let scene = scene(&likelihood, Some(&coverage));
        let step_m = (scene.max_m - scene.min_m) / 15.0;
        let cost = |place: PlanePoint| likelihood.expand(place).cost;
        assert!(starts[1..].iter().map(|start| cost(*start)).is_sorted() && starts.len() <= 1 + MOST_REFINED);
        assert!((starts[1] - TARGET_M).abs() <= step_m);
        let on_grid = (starts[1] - scene.min_m).component_div(&step_m);
        assert!((on_grid - on_grid.map(f64::round)).norm() < 1e-9);
        for start in &starts[1..] {
            for (i, j) in [(-1.0, -1.0), (-1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
                let next = start + PlanePoint::new(i * step_m.x, j * step_m.y);
                let inside = next >= scene.min_m - step_m * 0.01 && next <= scene.max_m + step_m * 0.01;
                assert!(!inside || cost(next) >= cost(*start));
            }
        }
        let found = search(&likelihood, None, Some(&coverage));
        assert!((found.minimum.position_m - TARGET_M).norm() < 1e-6 && found.ambiguity.is_none());
    }
}
