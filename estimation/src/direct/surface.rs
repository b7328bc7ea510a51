//! The likelihood of a frame over the coverage area, for display: why a fix is sure, or what else explains the data.

use super::locate::DirectLocator;
use super::survey::Survey;

/// The likelihood on the points of the coarse grid.
#[derive(Debug, Clone, PartialEq)]
pub struct LikelihoodMap {
    /// The first point.
    pub min_m: [f64; 2],
    /// Distance between neighbours along x and y.
    pub step_m: [f64; 2],
    /// Number of points along x.
    pub columns: usize,
    /// Number of points along y.
    pub rows: usize,
    /// Log-likelihood ratio of one target at a point to noise alone, row by row from the least y. In space, the highest of all
    /// heights.
    pub values: Vec<f64>,
}

impl DirectLocator {
    /// The likelihood of a frame on the coarse grid; none for a survey of another system, or where the area is a line.
    pub fn likelihood_map(&self, survey: &Survey) -> Option<LikelihoodMap> {
        let places = &self.grid.places;
        let (&[columns, rows, ..], true) = (places.counts.as_slice(), self.fits(survey)) else { return None };
        let mut values = vec![f64::NEG_INFINITY; columns * rows];
        for layer in self.all_totals(survey).chunks(columns * rows) {
            values.iter_mut().zip(layer).for_each(|(highest, value)| *highest = highest.max(*value));
        }
        let of = |list: &[f64]| [list[0], list[1]];
        Some(LikelihoodMap { min_m: of(&places.min), step_m: of(&places.step), columns, rows, values })
    }
}

#[cfg(test)]
mod tests {
    use crate::direct::test_scene::{Kind, TARGET_M, TestScene};

    /// The highest point is next to the target, and its value is close to the likelihood there.
    #[test]
    fn the_peak_is_where_the_target_is() {
        let scene = TestScene::new(60.0);
        let survey = scene.locator.survey(scene.evidence(0, TARGET_M, |_, _| Kind::Spectrum));
        let map = scene.locator.likelihood_map(&survey).unwrap();
        assert_eq!(map.values.len(), map.columns * map.rows);
        let peak = (0..map.values.len()).max_by(|&a, &b| map.values[a].total_cmp(&map.values[b])).unwrap();
        for (axis, index) in [(0, peak % map.columns), (1, peak / map.columns)] {
            let off_m = map.min_m[axis] + index as f64 * map.step_m[axis] - TARGET_M[axis];
            assert!(off_m.abs() <= map.step_m[axis], "{off_m} along {axis}");
        }
        let there = scene.locator.log_likelihood(&survey, TARGET_M);
        assert!(map.values[peak] > 0.8 * there && map.values[peak] < 1.02 * there, "{there}");
    }
}
