//! When the iterations end: an estimate of the error of the objective from both residuals and the way of the iterates.
//!
//! B minimises f(B) + rho ||B - Z - U||^2, so that with `d = Z + U - B - U'` (Z, U before the iteration, Z', U' after it) its
//! gradient is 2 rho (d + U'), and Z', U' are complementary and positive semidefinite. With the Lagrangian
//! `L = f(B) + 2 rho <U', Z' - B>`, which is reported as the objective, and any solution B*, U*, convexity and complementarity give
//!
//! ```text
//! f* - L >= 2 rho <d, B* - B>         >= -2 rho ||d|| ||B - B*||
//! f* - L <= 2 rho <U' - U*, B - Z'>   <=  2 rho ||Z' - B|| ||U' - U*||
//! ```
//!
//! all products weighted by e_lk. The error is of second order: a residual times a distance to the solution. The distances are unknown;
//! each is estimated by the steps s_j of the iterates, `T_k = k / (k + 2) T_{k-1} + s_k`. Where the distance falls as 1 / k this is
//! the distance itself, where it falls faster it is more. [`SAFETY`] covers what is slower for a while.
//!
//! A limit on the residuals alone does not do this: at three times the tolerance the objectives of the reference vectors are off by up to
//! 1.8 times the tolerance at 1e-2 and 1.2 times at 1e-3, and Table I takes twice the iterations that 1e-4 needs.

/// Largest allowed error over the estimated one.
const SAFETY: f64 = 2.0;

/// Sums over blocks, each weighted by e_lk, of one iteration.
#[derive(Debug, Clone, Copy, Default)]
pub struct Norms {
    /// `||Z' - B||^2` and `||d||^2`.
    pub primal: f64,
    pub dual: f64,
    /// `||Z'||^2` and `||U'||^2`.
    pub point: f64,
    pub multiplier: f64,
    /// `||Z' - Z||^2` and `||U' - U||^2`.
    pub point_step: f64,
    pub multiplier_step: f64,
    /// The Lagrangian without what does not depend on the iterate.
    pub lagrangian: f64,
}

impl Norms {
    pub fn add(&mut self, other: &Self) {
        self.primal += other.primal;
        self.dual += other.dual;
        self.point += other.point;
        self.multiplier += other.multiplier;
        self.point_step += other.point_step;
        self.multiplier_step += other.multiplier_step;
        self.lagrangian += other.lagrangian;
    }

    /// Relative primal residual, and the step of Z relative to U: the dual residual where nothing is relaxed. With over-relaxation
    /// it balances the penalty better than d.
    pub fn relative(&self) -> (f64, f64) {
        let ratio = |a: f64, b: f64| if a == 0.0 { 0.0 } else { (a / b.max(f64::MIN_POSITIVE)).sqrt() };
        (ratio(self.primal, self.point), ratio(self.point_step, self.multiplier))
    }

    /// Whether all sums are numbers.
    pub fn is_finite(&self) -> bool {
        [self.primal, self.dual, self.point, self.multiplier].iter().all(|norm| norm.is_finite())
    }
}

/// How far the solution may still be, from the way so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Travel {
    steps: f64,
    point: f64,
    /// In units of rho U, which does not jump where rho is changed.
    multiplier: f64,
}

impl Travel {
    /// Adds the steps of an iteration.
    pub fn add(&mut self, norms: &Norms, rho: f64) {
        self.steps += 1.0;
        let kept = self.steps / (self.steps + 2.0);
        self.point = self.point * kept + norms.point_step.sqrt();
        self.multiplier = self.multiplier * kept + rho * norms.multiplier_step.sqrt();
    }

    /// Estimated relative error of the Lagrangian. `constant` is what [`Norms::lagrangian`] lacks, and `rounding` the share of it by
    /// which their sum may be off: for strong signals the two nearly cancel.
    pub fn relative_error(&self, norms: &Norms, rho: f64, constant: f64, rounding: f64) -> f64 {
        let below = rho * norms.dual.sqrt() * self.point;
        let above = norms.primal.sqrt() * self.multiplier;
        let error = SAFETY * 2.0 * below.max(above);
        let least = norms.lagrangian + constant - rounding * constant;
        if error == 0.0 {
            0.0
        } else if least > 0.0 && least.is_finite() {
            error / least
        } else {
            f64::INFINITY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances that fall as 1 / k are found, those that fall faster are overestimated.
    #[test]
    fn distances_are_estimated_from_steps() {
        let travelled = |distance: &dyn Fn(f64) -> f64, count: usize| {
            let mut travel = Travel::default();
            for k in 1..=count {
                let step = distance(k as f64) - distance(k as f64 + 1.0);
                let norms =
                    Norms { point_step: step * step, multiplier_step: 4.0 * step * step, ..Norms::default() };
                travel.add(&norms, 3.0);
            }
            assert!((travel.multiplier / travel.point / 6.0 - 1.0).abs() < 1e-12);
            travel.point / distance(count as f64 + 1.0)
        };
        for count in [30, 100, 1000] {
            let ratio = travelled(&|k| 1.0 / k, count);
            // (k + 2 H_k) / (k + 2) with the harmonic number H_k, by summation.
            let harmonic: f64 = (1..=count).map(|k| 1.0 / k as f64).sum();
            let expected = (count as f64 + 2.0 * harmonic) / (count as f64 + 2.0);
            assert!((ratio - expected).abs() < 1e-9, "{count}: {ratio}");
            // A geometric sequence falls faster than 1 / k from k = 1 / (1 - rate) on.
            for rate in [0.5f64, 0.9, 1.0 - 3.0 / count as f64] {
                let ratio = travelled(&|k| rate.powf(k), count);
                assert!(ratio > 1.0, "{count} at {rate}: {ratio}");
            }
        }
    }

    /// The error is a residual times a distance, whichever pair is larger, over the Lagrangian.
    #[test]
    fn errors_are_of_second_order() {
        let travel = Travel { steps: 9.0, point: 0.5, multiplier: 0.25 };
        let norms = Norms { primal: 4.0, dual: 9.0, lagrangian: 60.0, ..Norms::default() };
        assert_eq!(travel.relative_error(&norms, 0.1, 40.0, 0.0), SAFETY * 2.0 * 2.0 * 0.25 / 100.0);
        assert_eq!(travel.relative_error(&norms, 1.0, 40.0, 0.5), SAFETY * 2.0 * 3.0 * 0.5 / 80.0);
        // A Lagrangian that is not positive, or lost in rounding, says nothing about relative errors.
        assert_eq!(travel.relative_error(&norms, 1.0, -70.0, 0.0), f64::INFINITY);
        assert_eq!(travel.relative_error(&norms, 1.0, 1e9, 1.0001), f64::INFINITY);
        assert_eq!(travel.relative_error(&norms, 1.0, f64::INFINITY, 0.0), f64::INFINITY);
        assert_eq!(travel.relative_error(&Norms::default(), 1.0, 0.0, 0.0), 0.0);
    }
}
