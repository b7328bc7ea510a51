//! Ascent to a maximum of the likelihood from exact gradients and Gauss-Newton information.
//!
//! The information is positive semidefinite everywhere, so that every step is an ascent; a step that does not increase the
//! value is halved. Near the maximum, what Gauss-Newton leaves out (the curvature of the atoms against the residual) is
//! learnt from the gradients themselves by symmetric rank-one updates (Dennis, Gay and Welsch 1981), which makes the
//! convergence superlinear.

use nalgebra::{DMatrix, DVector};

const MOST_STEPS: usize = 40;
const MOST_HALVINGS: usize = 12;
/// The ascent ends where the predicted gain is below this share of the value.
const LEAST_GAIN: f64 = 1e-13;
/// Relative rounding of values.
const ROUNDING: f64 = 1e-14;

/// Value, gradient and information of a log-likelihood ratio.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expansion {
    pub value: f64,
    pub gradient: DVector<f64>,
    /// Minus the expected second derivatives: positive semidefinite.
    pub information: DMatrix<f64>,
}

impl Expansion {
    pub fn zeros(parameters: usize) -> Self {
        Self {
            value: 0.0,
            gradient: DVector::zeros(parameters),
            information: DMatrix::zeros(parameters, parameters),
        }
    }

    /// The expansion in a state of which the parameters are the linear function `map`.
    pub fn mapped(&self, map: &DMatrix<f64>) -> Self {
        Self {
            value: self.value,
            gradient: map.tr_mul(&self.gradient),
            information: map.tr_mul(&self.information) * map,
        }
    }

    /// Adds the expansion of a term whose parameter `i` is parameter `places[i]` of this one. Several may be the same.
    pub fn add(&mut self, term: &Self, places: &[usize]) {
        self.value += term.value;
        for (i, &a) in places.iter().enumerate() {
            self.gradient[a] += term.gradient[i];
            for (j, &b) in places.iter().enumerate() {
                self.information[(a, b)] += term.information[(i, j)];
            }
        }
    }
}

impl std::ops::AddAssign for Expansion {
    fn add_assign(&mut self, other: Self) {
        self.value += other.value;
        self.gradient += other.gradient;
        self.information += other.information;
    }
}

/// The maximum found.
#[derive(Debug, Clone)]
pub(crate) struct Summit {
    pub at: DVector<f64>,
    pub value: f64,
}

/// Climbs from `start` to the nearest maximum; no step is longer than `longest` in any variable.
pub(crate) fn climb(
    start: DVector<f64>,
    longest: &DVector<f64>,
    expand: impl FnMut(&DVector<f64>) -> Expansion,
) -> Summit {
    climb_until(0.0, start, longest, expand).0
}

/// [`climb`] to the neighbourhood of a maximum, where one more step would gain less than `least`. That step is taken; the expansion
/// is the one before it.
pub(crate) fn climb_roughly(
    least: f64,
    start: DVector<f64>,
    longest: &DVector<f64>,
    expand: impl FnMut(&DVector<f64>) -> Expansion,
) -> (Summit, Expansion) {
    climb_until(least, start, longest, expand)
}

fn climb_until(
    least: f64,
    start: DVector<f64>,
    longest: &DVector<f64>,
    mut expand: impl FnMut(&DVector<f64>) -> Expansion,
) -> (Summit, Expansion) {
    let count = start.len();
    let mut at = start;
    let mut here = expand(&at);
    let mut correction = DMatrix::zeros(count, count);
    for _ in 0..MOST_STEPS {
        let newton = (&here.information + &correction).cholesky().map(|factor| factor.solve(&here.gradient));
        let step = newton.filter(|step| step.dot(&here.gradient) > 0.0);
        let step = limited(step.unwrap_or_else(|| damped(&here)), longest);
        let gain = here.gradient.dot(&step);
        if gain < least.max(LEAST_GAIN * (1.0 + here.value.abs())) {
            // The value no longer shows the step, but the gradient does.
            if gain > 0.0 {
                at += step;
            }
            break;
        }
        let Some((taken, next)) = shortened(&at, &here, &step, &mut expand) else { break };
        let change = &here.gradient - &next.gradient;
        let missing = change - (&next.information + &correction) * &taken;
        let along = missing.dot(&taken);
        if along.abs() > 1e-8 * missing.norm() * taken.norm() {
            correction += &missing * missing.transpose() / along;
        }
        at += taken;
        here = next;
    }
    (Summit { at, value: here.value }, here)
}

/// The Gauss-Newton step, damped where the information is singular.
fn damped(here: &Expansion) -> DVector<f64> {
    let scale = here.information.diagonal().amax();
    let mut share = 1e-9;
    while share < 1e3 && scale > 0.0 {
        let damping = DMatrix::from_diagonal_element(here.gradient.len(), here.gradient.len(), share * scale);
        if let Some(factor) = (&here.information + damping).cholesky() {
            return factor.solve(&here.gradient);
        }
        share *= 10.0;
    }
    here.gradient.clone()
}

fn limited(step: DVector<f64>, longest: &DVector<f64>) -> DVector<f64> {
    let excess = step.iter().zip(longest.iter()).map(|(s, most)| s.abs() / most).fold(1.0, f64::max);
    step / excess
}

/// The first halving of the step that increases the value, up to rounding.
fn shortened(
    at: &DVector<f64>,
    here: &Expansion,
    step: &DVector<f64>,
    expand: &mut impl FnMut(&DVector<f64>) -> Expansion,
) -> Option<(DVector<f64>, Expansion)> {
    let mut share = 1.0;
    for _ in 0..MOST_HALVINGS {
        let taken = step * share;
        let next = expand(&(at + &taken));
        if next.value > here.value - ROUNDING * here.value.abs() {
            return Some((taken, next));
        }
        share *= 0.5;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Gaussian hill with an information that is wrong by a third.
    #[test]
    fn the_top_of_a_hill_is_found_with_rough_information() {
        let curvature = DMatrix::from_row_slice(2, 2, &[40.0, 12.0, 12.0, 9.0]);
        let top = DVector::from_row_slice(&[1.5, -0.25]);
        let mut calls = 0;
        let hill = |x: &DVector<f64>| {
            calls += 1;
            let d = x - &top;
            let value = 100.0 * (-d.dot(&(&curvature * &d)) / 200.0).exp();
            Expansion {
                value,
                gradient: -(&curvature * &d) * (value / 100.0),
                information: &curvature * (1.3 * value / 100.0),
            }
        };
        let summit = climb(DVector::from_row_slice(&[-0.5, 1.5]), &DVector::repeat(2, 0.5), hill);
        assert!((summit.at - top).norm() < 1e-7 && (summit.value - 100.0).abs() < 1e-9);
        assert!(calls < 20, "{calls}");
    }
}
