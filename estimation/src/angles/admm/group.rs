//! The part of an ADMM iteration that concerns one group of blocks.
//!
//! A group holds [`LANES`] blocks of one order in the layout of [`triangle_index`]: lower triangles, entry by entry,
//! one lane per block, so that every step vectorises over blocks. Rows below `sensors` and columns left of it hold X^H.

use model::CMatrix;
use num_complex::Complex64;

use super::super::problem::{DepartureForm, JointProblem};
use super::Norms;
use super::steps::{After, Before, SumDiagonals};
use crate::linalg::{ComplexLanes, Instructions, LANES, Lanes, PsdProjector, dispatch, triangle_index};

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
pub struct Group {
    pub(super) sensors: usize,
    /// Order of the lower right corner.
    pub(super) corner: usize,
    pub(super) form: DepartureForm,
    instructions: Instructions,
    projector: PsdProjector,
    /// Z, U, B and scratch for B^ - U, in triangles.
    pub(super) point: Vec<ComplexLanes>,
    pub(super) multiplier: Vec<ComplexLanes>,
    pub(super) model: Vec<ComplexLanes>,
    pub(super) work: Vec<ComplexLanes>,
    /// lambda (R S^H)^H, corner x sensors, row by row.
    pub(super) data: Vec<ComplexLanes>,
    /// (lambda S S^H + 2 rho I)^-1, corner x corner.
    pub(super) inverse: Vec<ComplexLanes>,
    /// First columns of T(v_l) and T(u_k), and the sums along the diagonals of Z + U.
    pub(super) arrival: Vec<ComplexLanes>,
    pub(super) departure: Vec<ComplexLanes>,
    pub(super) arrival_sums: Vec<ComplexLanes>,
    pub(super) departure_sums: Vec<ComplexLanes>,
    /// <U, Z - B> of each block: its remaining infeasibility in units of 2 rho e_lk.
    pub(super) infeasibility: Lanes,
    /// One for lanes in use, zero for others.
    pub(super) used: Lanes,
    pub norms: Norms,
}

/// Distributes the paths of a problem over groups of equal order and form, lanes filled evenly.
pub fn arrange(problem: &JointProblem) -> (Vec<Group>, Vec<Place>) {
    let kind =
        |k: usize| (problem.departures[k].signal.nrows(), problem.departures[k].form == DepartureForm::Free);
    let mut kinds: Vec<_> = problem.paths.iter().map(|path| kind(path.k)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut groups = Vec::new();
    let mut places = vec![Place { l: 0, k: 0, group: 0, lane: 0 }; problem.paths.len()];
    for (corner, free) in kinds {
        let members: Vec<usize> =
            (0..problem.paths.len()).filter(|&i| kind(problem.paths[i].k) == (corner, free)).collect();
        let form = if free { DepartureForm::Free } else { DepartureForm::Structured };
        for members in members.chunks(LANES) {
            let mut group = Group::new(problem.sensors, corner, form);
            for (lane, &i) in members.iter().enumerate() {
                group.used.0[lane] = 1.0;
                places[i] = Place { l: problem.paths[i].l, k: problem.paths[i].k, group: groups.len(), lane };
            }
            groups.push(group);
        }
    }
    (groups, places)
}

pub fn get(entry: &ComplexLanes, lane: usize) -> Complex64 {
    Complex64::new(entry.re.0[lane], entry.im.0[lane])
}

fn set(entry: &mut ComplexLanes, lane: usize, value: Complex64) {
    entry.re.0[lane] = value.re;
    entry.im.0[lane] = value.im;
}

impl Group {
    fn new(sensors: usize, corner: usize, form: DepartureForm) -> Self {
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
            used: Lanes::ZERO,
            norms: Norms::default(),
        }
    }

    /// Sets lambda R S^H (M x corner) of one block.
    pub fn load(&mut self, lane: usize, data: &CMatrix) {
        for n in 0..self.corner {
            for m in 0..self.sensors {
                set(&mut self.data[n * self.sensors + m], lane, data[(m, n)].conj());
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
            entry.re.0.iter_mut().chain(&mut entry.im.0).for_each(|v| *v *= factor);
        }
        dispatch(self.instructions, SumDiagonals { group: self });
    }

    /// X_lk (M x corner) of one block.
    pub fn denoised(&self, lane: usize) -> CMatrix {
        let adjoint = |n, m| get(&self.model[triangle_index(self.sensors + n, m)], lane);
        CMatrix::from_fn(self.sensors, self.corner, |m, n| adjoint(n, m).conj())
    }

    /// tr T(v_l) + tr T(u_k) (or tr P_lk) of one block.
    pub fn traces(&self, lane: usize) -> f64 {
        let order = self.sensors + self.corner;
        (0..order).map(|i| self.model[triangle_index(i, i)].re.0[lane]).sum()
    }

    /// Steps 2 to 4 of the iteration for all lanes, and the sums that step 1 of the next one needs.
    pub fn update(&mut self, rho: f64, relaxation: f64) {
        dispatch(self.instructions, Before { group: self, rho, relaxation });
        self.projector.project_group(&mut self.work);
        dispatch(self.instructions, After { group: self, relaxation });
    }
}
