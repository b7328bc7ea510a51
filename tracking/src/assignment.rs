//! The assignment of rows to columns of least total cost, by shortest augmenting paths.
//!
//! Every row is added by one search of Dijkstra over reduced costs, with the dual variables of rows and columns (Jonker
//! and Volgenant, Computing 38, 1987; Crouse, IEEE Trans. Aerosp. Electron. Syst. 52(4), 2016). Cost: rows^2 columns.

use nalgebra::DMatrix;

/// For every row its column. There are at most as many rows as columns, and every cost is finite.
pub(crate) fn assign(costs: &DMatrix<f64>) -> Vec<usize> {
    let (rows, columns) = costs.shape();
    let (mut row_dual, mut column_dual) = (vec![0.0; rows], vec![0.0; columns]);
    let mut row_of: Vec<Option<usize>> = vec![None; columns];
    for start in 0..rows {
        let mut shortest = vec![f64::INFINITY; columns];
        let mut previous = vec![start; columns];
        let mut done = vec![false; columns];
        let (mut row, mut length) = (start, 0.0);
        let mut visited: Vec<(usize, usize)> = Vec::new();
        let end = loop {
            let mut best: Option<usize> = None;
            for column in (0..columns).filter(|&column| !done[column]) {
                let through = length + costs[(row, column)] - row_dual[row] - column_dual[column];
                if through < shortest[column] {
                    shortest[column] = through;
                    previous[column] = row;
                }
                // Among equals a free column ends the search.
                let better = best.is_none_or(|best| {
                    shortest[column] < shortest[best]
                        || (shortest[column] == shortest[best]
                            && row_of[column].is_none()
                            && row_of[best].is_some())
                });
                if better {
                    best = Some(column);
                }
            }
            let Some(column) = best else { break None };
            length = shortest[column];
            done[column] = true;
            match row_of[column] {
                Some(next) => {
                    visited.push((next, column));
                    row = next;
                }
                None => break Some(column),
            }
        };
        row_dual[start] += length;
        for &(row, column) in &visited {
            row_dual[row] += length - shortest[column];
            column_dual[column] -= length - shortest[column];
        }
        // Along the path every row takes the column by which it was left.
        let mut column = end;
        while let Some(free) = column {
            let row = previous[free];
            column = row_of.iter().position(|&holder| holder == Some(row)).filter(|_| row != start);
            row_of[free] = Some(row);
        }
    }
    let mut column_of = vec![0; rows];
    for (column, row) in row_of.iter().enumerate() {
        if let Some(row) = row {
            column_of[*row] = column;
        }
    }
    column_of
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least cost over all permutations.
    fn brute_force(costs: &DMatrix<f64>, row: usize, taken: &mut Vec<bool>) -> f64 {
        if row == costs.nrows() {
            return 0.0;
        }
        let mut least = f64::INFINITY;
        for column in 0..costs.ncols() {
            if !taken[column] {
                taken[column] = true;
                least = least.min(costs[(row, column)] + brute_force(costs, row + 1, taken));
                taken[column] = false;
            }
        }
        least
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(500))]
        #[test]
        fn the_cost_is_the_least(
            rows in 1_usize..7,
            more in 0_usize..3,
            // Few values, so that there are many ties.
            values in proptest::collection::vec(0_u8..6, 64),
            scale in 1e-6_f64..1e6,
        ) {
            let costs = DMatrix::from_fn(rows, rows + more, |i, j| f64::from(values[i * 9 + j]) * scale);
            let assigned = assign(&costs);
            let mut columns = assigned.clone();
            columns.sort_unstable();
            columns.dedup();
            assert_eq!(columns.len(), rows);
            let cost: f64 = assigned.iter().enumerate().map(|(row, &column)| costs[(row, column)]).sum();
            let least = brute_force(&costs, 0, &mut vec![false; rows + more]);
            assert!((cost - least).abs() <= 1e-9 * least.max(1e-9), "{cost} {least}");
        }
    }
}
