//! A regular grid over the free coordinates of a position.

use nalgebra::DVector;

/// Equally spaced points in one to three dimensions; the first coordinate varies fastest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RegularGrid {
    pub min: Vec<f64>,
    pub step: Vec<f64>,
    pub counts: Vec<usize>,
}

impl RegularGrid {
    /// A grid from `min` to `max` whose steps are at most `longest`.
    pub fn new(min: Vec<f64>, max: &[f64], longest: &[f64]) -> Self {
        let extent = |i: usize| max[i] - min[i];
        let counts: Vec<usize> =
            (0..min.len()).map(|i| (extent(i) / longest[i]).ceil() as usize + 1).collect();
        let step = (0..min.len()).map(|i| extent(i) / (counts[i] - 1).max(1) as f64).collect();
        Self { min, step, counts }
    }

    pub fn dimensions(&self) -> usize {
        self.counts.len()
    }

    pub fn points(&self) -> usize {
        self.counts.iter().fold(1, |product: usize, count| product.saturating_mul(*count))
    }

    /// Length along a dimension.
    pub fn extent(&self, i: usize) -> f64 {
        self.step[i] * (self.counts[i] - 1) as f64
    }

    /// Volume of a cell.
    pub fn cell(&self) -> f64 {
        self.step.iter().product()
    }

    fn indices(&self, mut point: usize) -> impl Iterator<Item = usize> {
        self.counts.iter().map(move |count| {
            let index = point % count;
            point /= count;
            index
        })
    }

    /// Coordinates of a point.
    pub fn coordinates(&self, point: usize) -> DVector<f64> {
        let each =
            self.indices(point).enumerate().map(|(i, index)| self.min[i] + index as f64 * self.step[i]);
        DVector::from_iterator(self.dimensions(), each)
    }

    /// The point nearest to a place; none outside of the grid.
    pub fn nearest(&self, at: &DVector<f64>) -> Option<usize> {
        let (mut place, mut stride) = (0, 1);
        for (i, count) in self.counts.iter().enumerate() {
            let rounded = ((at[i] - self.min[i]) / self.step[i]).round();
            if !(rounded >= 0.0 && rounded < *count as f64) {
                return None;
            }
            place += rounded as usize * stride;
            stride *= count;
        }
        Some(place)
    }

    /// Whether a place is inside the grid or at most `margin` steps outside.
    pub fn holds(&self, at: &DVector<f64>, margin: f64) -> bool {
        (0..self.dimensions()).all(|i| {
            let past = margin * self.step[i];
            (self.min[i] - past..=self.min[i] + self.extent(i) + past).contains(&at[i])
        })
    }

    /// Adds `values`, shifted by `shift` rounded to the grid; beyond the grid they are zero.
    pub fn add_shifted(&self, total: &mut [f64], values: &[f64], shift: &DVector<f64>) {
        let steps: Vec<isize> =
            shift.iter().zip(&self.step).map(|(shift, step)| (shift / step).round() as isize).collect();
        let (columns, shift) = (self.counts[0] as isize, steps[0]);
        // Row by row along the first dimension.
        for row in 0..self.points() / self.counts[0] {
            let (mut rest, mut from, mut stride) = (row, 0isize, 1isize);
            let inside = self.counts[1..].iter().zip(&steps[1..]).all(|(count, step)| {
                let moved = (rest % count) as isize + step;
                rest /= count;
                from += moved * stride;
                stride *= *count as isize;
                (0..*count as isize).contains(&moved)
            });
            if inside {
                let (to, from) = (row as isize * columns, from * columns + shift);
                for i in (-shift).max(0)..(columns - shift).min(columns) {
                    total[(to + i) as usize] += values[(from + i) as usize];
                }
            }
        }
    }

    /// Local maxima among all neighbours, highest first.
    pub fn peaks(&self, values: &[f64]) -> Vec<(usize, f64)> {
        // Steps along every dimension, and the change of the index that they make.
        let dimensions = self.dimensions();
        let neighbours: Vec<([isize; 3], isize)> = (0..3usize.pow(dimensions as u32))
            .map(|code| {
                let (mut code, mut stride, mut steps, mut change) = (code, 1, [0; 3], 0);
                for (step, count) in steps.iter_mut().zip(&self.counts) {
                    *step = (code % 3) as isize - 1;
                    change += *step * stride;
                    stride *= *count as isize;
                    code /= 3;
                }
                (steps, change)
            })
            .collect();
        let is_peak = |point: usize| {
            let mut at = [0; 3];
            at.iter_mut().zip(self.indices(point)).for_each(|(at, index)| *at = index as isize);
            neighbours.iter().all(|(steps, change)| {
                let outside = |i: usize| !(0..self.counts[i] as isize).contains(&(at[i] + steps[i]));
                values[point.wrapping_add_signed(*change).min(values.len() - 1)] <= values[point]
                    || (0..dimensions).any(outside)
            })
        };
        let mut peaks: Vec<(usize, f64)> =
            (0..values.len()).filter(|&point| is_peak(point)).map(|point| (point, values[point])).collect();
        peaks.sort_by(|a, b| b.1.total_cmp(&a.1));
        peaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> RegularGrid {
        RegularGrid::new(vec![0.0, 0.0], &[4.0, 3.0], &[1.0, 1.0])
    }

    #[test]
    fn peaks_are_higher_than_their_neighbours() {
        let mut total = vec![0.0; 20];
        // Two peaks, one of them in a corner, and a shoulder beside the higher one.
        (total[7], total[8], total[15]) = (5.0, 4.0, 3.0);
        let found = grid().peaks(&total);
        let above: Vec<(usize, f64)> = found.iter().copied().filter(|(_, value)| *value > 0.0).collect();
        assert_eq!(above, [(7, 5.0), (15, 3.0)]);
        // On a plateau every point counts, and beside a peak none does.
        assert!(!found.iter().any(|(point, _)| [1, 2, 3, 6, 8, 11, 12, 13, 10, 16].contains(point)));
        assert!(found.iter().any(|(point, _)| *point == 19));
    }

    #[test]
    fn points_are_found_where_they_are() {
        let space = RegularGrid::new(vec![-1.0, 2.0, 0.5], &[1.0, 5.0, 1.5], &[0.5, 0.75, 0.6]);
        assert_eq!((space.counts.clone(), space.cell()), (vec![5, 5, 3], 0.5 * 0.75 * 0.5));
        for grid in [grid(), space] {
            for point in 0..grid.points() {
                let shift =
                    DVector::from_iterator(grid.dimensions(), grid.step.iter().map(|step| 0.4 * step));
                assert_eq!(grid.nearest(&(grid.coordinates(point) + &shift)), Some(point));
                assert!(grid.holds(&(grid.coordinates(point) + &shift), 0.5));
                assert!(!grid.holds(&(grid.coordinates(point) + &shift * 30.0), 1.0));
            }
        }
        assert_eq!(grid().nearest(&DVector::from_row_slice(&[-0.6, 1.0])), None);
        assert_eq!(grid().nearest(&DVector::from_row_slice(&[1.0, 3.6])), None);
    }

    /// A shift moves what it moves by whole steps in every dimension.
    #[test]
    fn shifted_values_come_from_where_the_shift_points() {
        let grid = RegularGrid::new(vec![0.0; 3], &[3.0, 2.0, 2.0], &[1.0; 3]);
        let values: Vec<f64> = (0..grid.points()).map(|point| 1.0 + point as f64).collect();
        for shift in [[1.0, -1.0, 0.0], [-2.0, 0.0, 1.0], [0.2, 1.4, -1.6], [9.0, 0.0, 0.0]] {
            let shift = DVector::from_row_slice(&shift);
            let mut total = vec![0.0; grid.points()];
            grid.add_shifted(&mut total, &values, &shift);
            for (point, total) in total.iter().enumerate() {
                let from = grid.nearest(&(grid.coordinates(point) + shift.map(f64::round)));
                assert_eq!(*total, from.map_or(0.0, |from| values[from]));
            }
        }
    }
}
