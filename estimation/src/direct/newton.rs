//! Newton's method on a smooth function of a few variables, derivatives by central differences.
//!
//! The likelihood of every kind of evidence is smooth on the scale of the resolution (metres), and differences over
//! millimetres give its derivatives to seven digits: analytic second derivatives would only add code. A step that
//! does not increase the function is shortened; where the curvature is not that of a maximum, its eigenvalues are made
//! positive, so that every step is an ascent.

use nalgebra::{SMatrix, SVector};

const MOST_STEPS: usize = 30;
const SHORTEST: f64 = 1.0 / 1024.0;

/// Settings of the ascent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Climb<const N: usize> {
    /// Step of the central differences in each variable.
    pub difference: SVector<f64, N>,
    /// Longest step in each variable.
    pub longest: SVector<f64, N>,
}

/// The maximum found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summit<const N: usize> {
    pub at: SVector<f64, N>,
    pub value: f64,
}

impl<const N: usize> Climb<N> {
    /// Climbs from `start` to the nearest maximum.
    pub fn climb(&self, start: SVector<f64, N>, f: impl Fn(&SVector<f64, N>) -> f64) -> Summit<N> {
        let (mut at, mut value) = (start, f(&start));
        for _ in 0..MOST_STEPS {
            let (gradient, information) = self.derivatives(&at, value, &f);
            let step = self.limited(ascent(&gradient, &information));
            // A smaller predicted gain is rounding.
            if gradient.dot(&step).abs() < 1e-9 * (1.0 + value.abs()) {
                break;
            }
            let Some((next, higher)) = shortened(&at, value, &step, &f) else { break };
            (at, value) = (next, higher);
        }
        Summit { at, value }
    }

    fn derivatives(
        &self,
        at: &SVector<f64, N>,
        value: f64,
        f: &impl Fn(&SVector<f64, N>) -> f64,
    ) -> (SVector<f64, N>, SMatrix<f64, N, N>) {
        let mut all = derivatives(&self.difference, at, &[value], |point| vec![f(point)]);
        let Derivatives { gradient, information } = all.remove(0);
        (gradient, information)
    }

    fn limited(&self, step: SVector<f64, N>) -> SVector<f64, N> {
        let excess = step.iter().zip(self.longest.iter()).map(|(s, most)| s.abs() / most).fold(1.0, f64::max);
        step / excess
    }
}

/// First and second derivatives of one function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Derivatives<const N: usize> {
    pub gradient: SVector<f64, N>,
    /// Minus the second derivatives.
    pub information: SMatrix<f64, N, N>,
}

/// Central differences over `h` of several functions at once, whose values at `at` are known.
pub(super) fn derivatives<const N: usize>(
    h: &SVector<f64, N>,
    at: &SVector<f64, N>,
    here: &[f64],
    f: impl Fn(&SVector<f64, N>) -> Vec<f64>,
) -> Vec<Derivatives<N>> {
    let moved = |i: usize, j: usize, sign: f64| {
        let mut point = *at;
        point[i] += sign * h[i];
        if i != j {
            point[j] += sign * h[j];
        }
        f(&point)
    };
    let ahead: Vec<Vec<f64>> = (0..N).map(|i| moved(i, i, 1.0)).collect();
    let behind: Vec<Vec<f64>> = (0..N).map(|i| moved(i, i, -1.0)).collect();
    let empty = Derivatives { gradient: SVector::zeros(), information: SMatrix::zeros() };
    let mut all = vec![empty; here.len()];
    for (n, (function, value)) in all.iter_mut().zip(here).enumerate() {
        for i in 0..N {
            function.gradient[i] = (ahead[i][n] - behind[i][n]) / (2.0 * h[i]);
            function.information[(i, i)] = -(ahead[i][n] - 2.0 * value + behind[i][n]) / h[i].powi(2);
        }
    }
    for (i, j) in (0..N).flat_map(|i| (0..i).map(move |j| (i, j))) {
        let (both, neither) = (moved(i, j, 1.0), moved(i, j, -1.0));
        for (n, (function, value)) in all.iter_mut().zip(here).enumerate() {
            let single = ahead[i][n] + behind[i][n] + ahead[j][n] + behind[j][n];
            let mixed = -(both[n] + neither[n] - single + 2.0 * value) / (2.0 * h[i] * h[j]);
            function.information[(i, j)] = mixed;
            function.information[(j, i)] = mixed;
        }
    }
    all
}

/// `|H|^-1 g`: the Newton step with the eigenvalues of the information made positive.
fn ascent<const N: usize>(gradient: &SVector<f64, N>, information: &SMatrix<f64, N, N>) -> SVector<f64, N> {
    if let Some(factor) = information.cholesky() {
        return factor.solve(gradient);
    }
    let dynamic = nalgebra::DMatrix::from_fn(N, N, |i, j| information[(i, j)]);
    let eigen = dynamic.symmetric_eigen();
    let floor = eigen.eigenvalues.amax() * 1e-6;
    let mut step: SVector<f64, N> = SVector::zeros();
    for (value, vector) in eigen.eigenvalues.iter().zip(eigen.eigenvectors.column_iter()) {
        let slope: f64 = vector.iter().zip(gradient.iter()).map(|(v, g)| v * g).sum();
        let length = slope / value.abs().max(floor).max(f64::MIN_POSITIVE);
        step.iter_mut().zip(vector.iter()).for_each(|(s, v)| *s += length * v);
    }
    step
}

/// The first halving of the step that increases the function.
fn shortened<const N: usize>(
    at: &SVector<f64, N>,
    value: f64,
    step: &SVector<f64, N>,
    f: &impl Fn(&SVector<f64, N>) -> f64,
) -> Option<(SVector<f64, N>, f64)> {
    let mut share = 1.0;
    while share >= SHORTEST {
        let next = at + step * share;
        let higher = f(&next);
        if higher > value {
            return Some((next, higher));
        }
        share *= 0.5;
    }
    None
}

#[cfg(test)]
mod tests {
    use nalgebra::{Matrix2, Vector2};

    use super::*;

    #[test]
    fn the_top_of_a_hill_and_its_curvature() {
        let information = Matrix2::new(40.0, 12.0, 12.0, 9.0);
        let top = Vector2::new(1.5, -0.25);
        let climb = Climb { difference: Vector2::repeat(1e-3), longest: Vector2::repeat(0.5) };
        let hill = |x: &Vector2<f64>| 100.0 * (-(x - top).dot(&(information * (x - top))) / 200.0).exp();
        // From where the curvature is already negative in one direction.
        let summit = climb.climb(Vector2::new(-0.5, 1.5), hill);
        assert!((summit.at - top).norm() < 1e-5, "{summit:?}");
        let curvature = climb.derivatives(&summit.at, summit.value, &hill).1;
        assert!((curvature - information).norm() < 1e-4 * information.norm());
    }
}
