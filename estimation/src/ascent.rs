//! Ascent to a maximum of the likelihood from exact gradients and Gauss-Newton information.
//!
//! The information is positive semidefinite everywhere, so that every step is an ascent; a step that does not increase the
//! value is halved. Near the maximum, what Gauss-Newton leaves out (the curvature of the atoms against the residual) is
//! learnt from the gradients themselves by symmetric rank-one updates (Dennis, Gay and Welsch 1981), which makes the
//! convergence superlinear.

use nalgebra::{DMatrix, DVector};

use crate::dense::{factorise, set_zeros, solve_factorised};

const MOST_STEPS: usize = 40;
const MOST_HALVINGS: usize = 12;
/// The ascent ends where the predicted gain is below this share of the value.
const LEAST_GAIN: f64 = 1e-13;
/// Relative rounding of values.
const ROUNDING: f64 = 1e-14;

/// Value, gradient and information of a log-likelihood ratio.
#[derive(Debug, Clone, Default, PartialEq)]
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

    /// Makes all of it zero, in the memory that it has.
    pub fn set_zeros(&mut self, parameters: usize) {
        self.value = 0.0;
        set_zeros(&mut self.gradient, (parameters, 1));
        set_zeros(&mut self.information, (parameters, parameters));
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

impl std::ops::AddAssign<&Self> for Expansion {
    fn add_assign(&mut self, other: &Self) {
        self.value += other.value;
        self.gradient += &other.gradient;
        self.information += &other.information;
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
    climb_roughly(0.0, start, longest, expand).0
}

/// [`climb`] to the neighbourhood of a maximum, where one more step would gain less than `least`. That step is taken; the expansion
/// is the one before it.
pub(crate) fn climb_roughly(
    least: f64,
    mut start: DVector<f64>,
    longest: &DVector<f64>,
    mut expand: impl FnMut(&DVector<f64>) -> Expansion,
) -> (Summit, Expansion) {
    let mut ascent = Ascent::default();
    let value = ascent.climb(least, &mut start, longest, |at, here| *here = expand(at));
    (Summit { at: start, value }, ascent.here)
}

/// An ascent and its memory: the next one of as many variables allocates nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ascent {
    here: Expansion,
    next: Expansion,
    /// What the information lacks.
    correction: DMatrix<f64>,
    /// Information and correction, and the Cholesky factor of their sum.
    factor: DMatrix<f64>,
    step: DVector<f64>,
    /// Where the step leads to.
    tried: DVector<f64>,
    /// Change of the gradient that information and correction do not explain.
    missing: DVector<f64>,
}

impl Ascent {
    /// Climbs from `at` to the neighbourhood of a maximum, where one more step would gain less than `least`, and takes that step.
    /// The result is the value before it.
    pub fn climb(
        &mut self,
        least: f64,
        at: &mut DVector<f64>,
        longest: &DVector<f64>,
        mut expand: impl FnMut(&DVector<f64>, &mut Expansion),
    ) -> f64 {
        let count = at.len();
        for vector in [&mut self.step, &mut self.tried, &mut self.missing] {
            set_zeros(vector, (count, 1));
        }
        set_zeros(&mut self.correction, (count, count));
        set_zeros(&mut self.factor, (count, count));
        expand(at, &mut self.here);
        for _ in 0..MOST_STEPS {
            self.set_step(longest);
            let gain = self.here.gradient.dot(&self.step);
            if gain < least.max(LEAST_GAIN * (1.0 + self.here.value.abs())) {
                // The value no longer shows the step, but the gradient does.
                if gain > 0.0 {
                    *at += &self.step;
                }
                break;
            }
            if !self.shorten_step(at, &mut expand) {
                break;
            }
            self.learn();
            at.copy_from(&self.tried);
            std::mem::swap(&mut self.here, &mut self.next);
        }
        self.here.value
    }

    /// The Newton step, or that of Gauss and Newton, damped where the information is singular.
    fn set_step(&mut self, longest: &DVector<f64>) {
        let Self { here, correction, factor, step, .. } = self;
        let mut solve = |share: f64, correction: Option<&DMatrix<f64>>| {
            factor.copy_from(&here.information);
            match correction {
                Some(correction) => *factor += correction,
                None => (0..step.len()).for_each(|i| factor[(i, i)] += share),
            }
            step.copy_from(&here.gradient);
            let positive = factorise(factor);
            if positive {
                solve_factorised(factor, step);
            }
            positive && step.dot(&here.gradient) > 0.0
        };
        if !solve(0.0, Some(correction)) {
            let scale = (0..here.gradient.len()).map(|i| here.information[(i, i)].abs()).fold(0.0, f64::max);
            let mut share = 1e-9;
            while share < 1e3 && scale > 0.0 && !solve(share * scale, None) {
                share *= 10.0;
            }
            if scale == 0.0 {
                step.copy_from(&here.gradient);
            }
        }
        let excess = step.iter().zip(longest.iter()).map(|(s, most)| s.abs() / most).fold(1.0, f64::max);
        *step /= excess;
    }

    /// Takes the first halving of the step that increases the value, up to rounding; false where none does.
    fn shorten_step(
        &mut self,
        at: &DVector<f64>,
        expand: &mut impl FnMut(&DVector<f64>, &mut Expansion),
    ) -> bool {
        for _ in 0..MOST_HALVINGS {
            self.tried.copy_from(at);
            self.tried += &self.step;
            expand(&self.tried, &mut self.next);
            if self.next.value > self.here.value - ROUNDING * self.here.value.abs() {
                return true;
            }
            self.step *= 0.5;
        }
        false
    }

    /// Corrects the information by what the gradients before and after the step say.
    fn learn(&mut self) {
        let Self { here, next, correction, factor, step, missing, .. } = self;
        factor.copy_from(&next.information);
        *factor += &*correction;
        missing.copy_from(&here.gradient);
        *missing -= &next.gradient;
        missing.gemv(-1.0, factor, step, 1.0);
        let along = missing.dot(step);
        if along.abs() > 1e-8 * missing.norm() * step.norm() {
            correction.ger(1.0 / along, missing, missing, 1.0);
        }
    }
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
