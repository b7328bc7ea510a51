//! The projection of one group, and the choice of instructions for it.

use super::compose::{Composition, choose_side, gather, load_scaled};
use super::dispatch::{Kernel, dispatch};
use super::lanes::{ComplexLanes, LANES, Lanes, Scalar, triangle_index};
use super::ql::decompose;
use super::register::Register;
use super::tridiagonal::{back_transform, reduce};

/// Positive eigenvalues of the matrices of one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupSpectrum {
    /// How many eigenvalues are positive: above `n` units of rounding times the largest entry.
    pub positive: [usize; LANES],
    /// The sum of these eigenvalues, the trace of the projected matrix.
    pub trace: [f64; LANES],
}

/// The instruction sets the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// Instructions that every machine of the target has.
    Baseline,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512F.
    Avx512,
}

impl Instructions {
    /// The best instructions of this machine.
    pub fn detect() -> Self {
        let best = [Self::Avx512, Self::Avx2].into_iter().find(|set| set.is_available());
        best.unwrap_or(Self::Baseline)
    }

    /// Whether this machine has these instructions.
    pub fn is_available(self) -> bool {
        match self {
            Self::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }
}

/// Projects groups of matrices of one order onto the positive semidefinite cone.
///
/// Holds the scratch, so that a projection allocates nothing; one per thread.
#[derive(Clone, Debug)]
pub struct PsdProjector<T> {
    order: usize,
    instructions: Instructions,
    scratch: Scratch<T>,
}

#[derive(Clone, Debug)]
struct Scratch<T> {
    matrix: Vec<ComplexLanes<T>>,
    tau: Vec<ComplexLanes<T>>,
    products: Vec<ComplexLanes<T>>,
    diagonal: Vec<Lanes<T>>,
    subdiagonal: Vec<Lanes<T>>,
    vectors: Vec<Lanes<T>>,
    chosen: Vec<[usize; LANES]>,
    roots: Vec<Lanes<T>>,
    factor: Vec<ComplexLanes<T>>,
}

impl<T: Scalar> PsdProjector<T> {
    /// For matrices of order `order` with the best instructions there are; none if the order is zero.
    pub fn new(order: usize) -> Option<Self> {
        Self::with_instructions(order, Instructions::detect())
    }

    /// As [`Self::new`] with the given instructions; none if the machine does not have them.
    pub fn with_instructions(order: usize, instructions: Instructions) -> Option<Self> {
        (order > 0 && instructions.is_available()).then(|| Self::available(order, instructions))
    }

    /// For a positive order and instructions that the machine has.
    pub(crate) fn available(order: usize, instructions: Instructions) -> Self {
        let half = order / 2;
        let scratch = Scratch {
            matrix: vec![ComplexLanes::ZERO; triangle_index(order, 0)],
            tau: vec![ComplexLanes::ZERO; order],
            products: vec![ComplexLanes::ZERO; 2 * order],
            diagonal: vec![Lanes::ZERO; order],
            subdiagonal: vec![Lanes::ZERO; order],
            vectors: vec![Lanes::ZERO; order * order],
            chosen: vec![[0; LANES]; half],
            roots: vec![Lanes::ZERO; half],
            factor: vec![ComplexLanes::ZERO; order * half],
        };
        Self { order, instructions, scratch }
    }

    /// Replaces every matrix of a group (see [`triangle_index`] for its layout) by its projection.
    ///
    /// A matrix with an entry that is not finite becomes NaN throughout, with a trace of NaN; its
    /// neighbours are not affected. None if the group is of another order.
    pub fn project_group(&mut self, group: &mut [ComplexLanes<T>]) -> Option<GroupSpectrum> {
        let fits = group.len() == triangle_index(self.order, 0);
        fits.then(|| dispatch(self.instructions, Projection { scratch: &mut self.scratch, group }))
    }
}

/// The projection as a kernel.
struct Projection<'a, T> {
    scratch: &'a mut Scratch<T>,
    group: &'a mut [ComplexLanes<T>],
}

impl<T: Scalar> Kernel<T> for Projection<'_, T> {
    type Output = GroupSpectrum;

    #[inline(always)]
    fn run<R: Register<Scalar = T>>(self) -> GroupSpectrum {
        self.scratch.project::<R>(self.group)
    }
}

impl<T: Scalar> Scratch<T> {
    #[inline(always)]
    fn project<R: Register<Scalar = T>>(&mut self, group: &mut [ComplexLanes<T>]) -> GroupSpectrum {
        let order = self.tau.len();
        let (unscale, flaw) = load_scaled::<R>(group, &mut self.matrix);
        let Self { matrix, tau, diagonal, subdiagonal, vectors, .. } = self;
        reduce::<R>(matrix, diagonal, subdiagonal, tau, &mut self.products);
        decompose::<R>(diagonal, subdiagonal, vectors);
        let side = choose_side(diagonal, &mut self.chosen, &mut self.roots);
        let factor = &mut self.factor[..order * side.width];
        gather::<R>(vectors, &self.chosen[..side.width], &self.roots, factor);
        back_transform::<R>(matrix, tau, factor, side.width);
        let keep = R::load(&side.keep).greater(R::zero());
        Composition { factor, width: side.width, keep, unscale, flaw }.store(order, group);
        let mut trace = Lanes::<T>::ZERO;
        R::load(&side.trace).mul_add(unscale, flaw).store(&mut trace);
        GroupSpectrum { positive: side.positive, trace: trace.0.map(Into::into) }
    }
}
