//! The joint atomic-norm problem over all present paths, problem (P3) of the paper for all IRSs at once.
//!
//! ```text
//! min over v_l, u_k, X_lk of  sum_lk e_lk [ tr T(v_l) + tr T(u_k) + lambda || X_lk S_k - R_lk ||_F^2 ]
//! s.t.  [[T(v_l), X_lk], [X_lk^H, T(u_k)]]  positive semidefinite for every present (l, k)
//! ```
//!
//! Departures from the paper. It poses 2K problems; here every T(v_l) and T(u_k) is shared by its K blocks in
//! one. It calls the fit with S_k inside non-convex and substitutes `X - R S^+`; the fit is a convex quadratic,
//! and the substitution amplifies the noise by the condition of S_k (1e3 to 1e7). Where the departure
//! side is *free*, T(u_k) is a Hermitian P_lk of its own per block and S_k the identity: the data are then
//! `R V`, whitened and not divided by the singular values.

use model::CMatrix;
use num_complex::Complex64;

/// Structure of the lower right corner of the blocks of an IRS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepartureForm {
    /// T(u_k), Hermitian Toeplitz, shared by all blocks of IRS k.
    Structured,
    /// P_lk, any Hermitian matrix, one for each block.
    Free,
}

/// Departure side of one IRS.
#[derive(Debug, Clone, PartialEq)]
pub struct Departure {
    /// Structure of the lower right corner.
    pub form: DepartureForm,
    /// S_k, rows = order of the corner.
    pub signal: CMatrix,
}

/// One present path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathData {
    /// Index of the sensing IRS.
    pub l: usize,
    /// Index of the reflecting IRS.
    pub k: usize,
    /// e_lk > 0.
    pub weight: f64,
    /// R_lk, M x columns of S_k.
    pub block: CMatrix,
}

/// A joint problem, in any unit of the data.
#[derive(Debug, Clone, PartialEq)]
pub struct JointProblem {
    /// Weight of the fit, positive.
    pub lambda: f64,
    /// Number of sensors M.
    pub sensors: usize,
    /// Departure sides by IRS.
    pub departures: Vec<Departure>,
    /// Present paths, at least one, each (l, k) at most once.
    pub paths: Vec<PathData>,
}

/// Solution of a joint problem.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JointSolution {
    /// Objective at the returned point, corrected to first order for its infeasibility.
    pub objective: f64,
    /// Estimated relative error of the objective.
    pub objective_error: f64,
    /// Iterations until convergence or the limit.
    pub iterations: usize,
    /// Whether the estimated error of the objective fell below the tolerance before the iteration limit.
    pub converged: bool,
    /// Relative primal residual of the returned point.
    pub primal_residual: f64,
    /// Relative dual residual of the returned point.
    pub dual_residual: f64,
    /// First row of T(v_l) for each IRS l; none where no path is sensed.
    pub arrival: Vec<Option<Vec<Complex64>>>,
    /// First row of T(u_k) for each structured IRS k; none where it is free or reflects no present path.
    pub departure: Vec<Option<Vec<Complex64>>>,
    /// X_lk of every path, in the order of the problem.
    pub denoised: Vec<CMatrix>,
}

/// Why a problem cannot be solved.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum ProblemError {
    #[error("the joint problem has no path")]
    Empty,
    #[error("{name} = {value}: must be positive and finite")]
    Scalar { name: &'static str, value: f64 },
    #[error("relaxation is {0}; it must be above 0 and below 2")]
    Relaxation(f64),
    #[error("the reflected signal of IRS {k} is empty or not finite")]
    Signal { k: usize },
    #[error("block ({l}, {k}): {problem}")]
    Path { l: usize, k: usize, problem: &'static str },
}

impl JointProblem {
    /// Checks scalars, shapes and values.
    pub(super) fn validate(&self) -> Result<(), ProblemError> {
        let scalar = |name, value: f64| {
            if value.is_finite() && value > 0.0 { Ok(()) } else { Err(ProblemError::Scalar { name, value }) }
        };
        scalar("lambda", self.lambda)?;
        scalar("sensors", self.sensors as f64)?;
        if self.paths.is_empty() {
            return Err(ProblemError::Empty);
        }
        let finite = |m: &CMatrix| m.iter().all(|v| v.is_finite());
        let unusable = |side: &Departure| side.signal.is_empty() || !finite(&side.signal);
        if let Some(k) = self.departures.iter().position(unusable) {
            return Err(ProblemError::Signal { k });
        }
        for path in &self.paths {
            let (l, k) = (path.l, path.k);
            let refuse = |problem| Err(ProblemError::Path { l, k, problem });
            scalar("weight", path.weight)?;
            if l >= self.departures.len() || k >= self.departures.len() {
                return refuse("names an IRS that does not exist");
            }
            let signal = &self.departures[k].signal;
            if path.block.shape() != (self.sensors, signal.ncols()) {
                return refuse("its shape fits neither the sensors nor the reflected signal");
            }
            if !finite(&path.block) {
                return refuse("holds a value that is not finite");
            }
        }
        let pair = |i: usize| (self.paths[i].l, self.paths[i].k);
        if (1..self.paths.len()).all(|i| pair(i - 1) < pair(i)) {
            return Ok(());
        }
        let mut seen: Vec<(usize, usize)> = self.paths.iter().map(|p| (p.l, p.k)).collect();
        seen.sort_unstable();
        match seen.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ProblemError::Path { l: pair[0].0, k: pair[0].1, problem: "is given twice" }),
            None => Ok(()),
        }
    }
}
