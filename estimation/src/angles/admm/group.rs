//! The part of an ADMM iteration that concerns one group of blocks.
//!
//! A group holds [`LANES`] blocks of one order in the layout of [`triangle_index`]: lower triangles, entry by entry,
//! one lane per block, so that every step vectorises over blocks. Rows below `sensors` and columns left of it hold X^H.

use model::CMatrix;
use num_complex::Complex64;

use super::super::problem::{DepartureForm, JointProblem};
use super::steps::{After, Before, SumDiagonals};
use super::stopping::Norms;
use crate::linalg::{
    ComplexLanes, Instructions, LANES, Lanes, PsdProjector, Scalar, dispatch, triangle_index,
};

/// What the blocks of a group have in common: order of the lower right corner, and its form.
pub type GroupKind = (usize, DepartureForm);

/// Position of a path in the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub l: usize,
    pub k: usize,
    pub group: usize,
    pub lane: usize,
}

/// Blocks of one order and form.
#[derive(Debug)]
pub struct Group<T> {
    pub(super) sensors: usize,
    /// Order of the lower right corner.
    pub(super) corner: usize,
    pub(super) form: DepartureForm,
    instructions: Instructions,
    projector: PsdProjector<T>,
    /// Z, U, B and scratch for B^ - U, in triangles.
    pub(super) point: Vec<ComplexLanes<T>>,
    pub(super) multiplier: Vec<ComplexLanes<T>>,
    pub(super) model: Vec<ComplexLanes<T>>,
    pub(super) work: Vec<ComplexLanes<T>>,
    /// lambda (R S^H)^H, corner x sensors, row by row.
    pub(super) data: Vec<ComplexLanes<T>>,
    /// (lambda S S^H + 2 rho I)^-1, corner x corner.
    pub(super) inverse: Vec<ComplexLanes<T>>,
    /// First columns of T(v_l) and T(u_k), and the sums along the diagonals of Z + U.
    pub(super) arrival: Vec<ComplexLanes<T>>,
    pub(super) departure: Vec<ComplexLanes<T>>,
    pub(super) arrival_sums: Vec<ComplexLanes<T>>,
    pub(super) departure_sums: Vec<ComplexLanes<T>>,
    /// <U, Z - B> of each block: its remaining infeasibility in units of 2 rho e_lk.
    pub(super) infeasibility: Lanes<T>,
    /// `lambda (||X S - R||^2 - ||R||^2)` of each block.
    pub(super) fit: Lanes<T>,
    /// e_lk of each block, zero in lanes that are not in use.
    pub(super) weight: [f64; LANES],
    pub norms: Norms,
}

/// Distributes the paths of a problem over groups of equal order and form: the kind of every group, and the place of every path.
pub fn arrange(problem: &JointProblem) -> (Vec<GroupKind>, Vec<Place>) {
    let kind = |k: usize| -> GroupKind { (problem.departures[k].signal.nrows(), problem.departures[k].form) };
    let mut kinds: Vec<GroupKind> = problem.paths.iter().map(|path| kind(path.k)).collect();
    kinds.sort_unstable_by_key(|&(corner, form)| (corner, form == DepartureForm::Free));
    kinds.dedup();
    let mut groups = Vec::new();
    let mut places = vec![Place { l: 0, k: 0, group: 0, lane: 0 }; problem.paths.len()];
    for each in kinds {
        let members: Vec<usize> =
            (0..problem.paths.len()).filter(|&i| kind(problem.paths[i].k) == each).collect();
        for members in members.chunks(LANES) {
            for (lane, &i) in members.iter().enumerate() {
                places[i] = Place { l: problem.paths[i].l, k: problem.paths[i].k, group: groups.len(), lane };
            }
            groups.push(each);
        }
    }
    (groups, places)
}

pub fn get<T: Scalar>(entry: &ComplexLanes<T>, lane: usize) -> Complex64 {
    Complex64::new(entry.re.0[lane].into(), entry.im.0[lane].into())
}

fn set<T: Scalar>(entry: &mut ComplexLanes<T>, lane: usize, value: Complex64) {
    entry.re.0[lane] = T::rounded(value.re);
    entry.im.0[lane] = T::rounded(value.im);
}

impl<T: Scalar> Group<T> {
    pub fn new(sensors: usize, (corner, form): GroupKind) -> Self {
        let order = sensors + corner;
        let zeros = |count: usize| vec![ComplexLanes::ZERO; count];
        let triangle = triangle_index(order, 0);
        let instructions = Instructions::detect();
        Self {
            sensors,
            corner,
            form,
            instructions,
            projector: PsdProjector::available(order, instructions),
            point: zeros(triangle),
            multiplier: zeros(triangle),
            model: zeros(triangle),
            work: zeros(triangle),
            data: zeros(corner * sensors),
            inverse: zeros(corner * corner),
            arrival: zeros(sensors),
            departure: zeros(corner),
            arrival_sums: zeros(sensors),
            departure_sums: zeros(corner),
            infeasibility: Lanes::ZERO,
            fit: Lanes::ZERO,
            weight: [0.0; LANES],
            norms: Norms::default(),
        }
    }

    /// Begins a new problem at zero; lanes are in use once they are loaded.
    pub fn clear(&mut self) {
        let lists = [
            &mut self.point,
            &mut self.multiplier,
            &mut self.data,
            &mut self.arrival_sums,
            &mut self.departure_sums,
        ];
        lists.into_iter().for_each(|list| list.fill(ComplexLanes::ZERO));
        self.weight = [0.0; LANES];
    }

    /// Sets lambda R S^H (M x corner) of one block, given R S^H, and its weight.
    pub fn load(&mut self, lane: usize, product: &CMatrix, lambda: f64, weight: f64) {
        self.weight[lane] = weight;
        for n in 0..self.corner {
            for m in 0..self.sensors {
                set(&mut self.data[n * self.sensors + m], lane, product[(m, n)].conj() * lambda);
            }
        }
    }

    /// Goes on where the same group has come in another precision.
    pub fn continue_from<S: Scalar>(&mut self, other: &Group<S>) {
        let lists = [
            (&mut self.point, &other.point),
            (&mut self.multiplier, &other.multiplier),
            (&mut self.arrival_sums, &other.arrival_sums),
            (&mut self.departure_sums, &other.departure_sums),
        ];
        for (to, from) in lists.into_iter().flat_map(|(to, from)| to.iter_mut().zip(from)) {
            for lane in 0..LANES {
                set(to, lane, get(from, lane));
            }
        }
    }

    pub fn set_inverse(&mut self, lane: usize, inverse: &CMatrix) {
        for i in 0..self.corner {
            for j in 0..self.corner {
                set(&mut self.inverse[i * self.corner + j], lane, inverse[(i, j)]);
            }
        }
    }

    pub fn set_corners(&mut self, lane: usize, arrival: &[Complex64], departure: &[Complex64]) {
        let corners = [(&mut self.arrival, arrival), (&mut self.departure, departure)];
        for (entry, &value) in
            corners.into_iter().flat_map(|(entries, values)| entries.iter_mut().zip(values))
        {
            set(entry, lane, value);
        }
    }

    pub fn rescale_multiplier(&mut self, factor: f64) {
        for entry in &mut self.multiplier {
            for value in entry.re.0.iter_mut().chain(&mut entry.im.0) {
                *value = T::rounded((*value).into() * factor);
            }
        }
        dispatch(self.instructions, SumDiagonals { group: self });
    }

    /// Writes X_lk (M x corner) of one block, times a factor.
    pub fn denoised(&self, lane: usize, scale: f64, to: &mut CMatrix) {
        for n in 0..self.corner {
            for m in 0..self.sensors {
                let adjoint = get(&self.model[triangle_index(self.sensors + n, m)], lane);
                to[(m, n)] = adjoint.conj() * scale;
            }
        }
    }

    /// tr T(v_l) + tr T(u_k) (or tr P_lk) of one block.
    pub fn traces(&self, lane: usize) -> f64 {
        let order = self.sensors + self.corner;
        (0..order).map(|i| self.model[triangle_index(i, i)].re.0[lane].into()).sum()
    }

    /// Steps 2 to 4 of the iteration for all lanes, and the sums that step 1 of the next one needs.
    pub fn update(&mut self, rho: f64, relaxation: f64) {
        dispatch(self.instructions, Before { group: self, rho, relaxation });
        self.projector.project_group(&mut self.work);
        dispatch(self.instructions, After { group: self, rho, relaxation });
    }
}
