//! Numbers of several matrices side by side, in registers.
//!
//! The kernel is written once over [`Register`] and compiled for each instruction set. No operation
//! mixes lanes, so the result for a matrix cannot depend on its neighbours.

use std::array;
use std::ops::{Add, Mul, Neg, Sub};

use num_complex::Complex32;

use super::lanes::{ComplexLanes, LANES, Lanes, Scalar};

/// [`LANES`] numbers and the operations on them, each lane by lane.
///
/// Every method is always inlined, so that it takes the instruction set of the kernel's entry.
pub trait Register:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self>
{
    /// One number.
    type Scalar: Scalar;
    /// A boolean for each lane.
    type Mask: Copy;

    /// Whether there are enough registers for loops that keep some thirty values at hand.
    const MANY: bool;

    /// Loads from memory.
    fn load(from: &Lanes<Self::Scalar>) -> Self;
    /// Stores to memory.
    fn store(self, to: &mut Lanes<Self::Scalar>);
    /// The same number in every lane.
    fn splat(value: f64) -> Self;
    /// `self * factor + term`.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// `term - self * factor`.
    fn neg_mul_add(self, factor: Self, term: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// The reciprocals.
    fn recip(self) -> Self;
    /// The reciprocals and the reciprocal square roots, to two units in the last place.
    #[inline(always)]
    fn recip_and_recip_sqrt(self) -> (Self, Self) {
        let inverse = self.recip();
        (inverse, inverse * self.sqrt())
    }
    /// Magnitude.
    fn abs(self) -> Self;
    /// The magnitude of `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// The larger of both; `other` if `self` is not a number.
    fn max(self, other: Self) -> Self;
    /// Whether `self > other`.
    fn greater(self, other: Self) -> Self::Mask;
    /// Whether both masks are set.
    fn both(first: Self::Mask, second: Self::Mask) -> Self::Mask;
    /// Whether the mask is set in any lane.
    fn any(mask: Self::Mask) -> bool;
    /// `yes` where the mask is set, else `no`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Zero in every lane.
    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    /// As an array.
    #[inline(always)]
    fn to_array(self) -> [Self::Scalar; LANES] {
        let mut lanes = Lanes::ZERO;
        self.store(&mut lanes);
        lanes.0
    }
}

/// Arithmetic of a precision on plain numbers.
pub trait Arithmetic:
    Scalar + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self> + PartialOrd
{
    /// `self * factor + term`, rounded once.
    fn fused(self, factor: Self, term: Self) -> Self;
    /// Square root.
    fn root(self) -> Self;
    /// Reciprocal.
    fn inverse(self) -> Self;
    /// Magnitude with the sign of another number.
    fn signed(self, sign: Self) -> Self;
}

macro_rules! arithmetic {
    ($($scalar:ident)*) => {$(
        impl Arithmetic for $scalar {
            #[inline(always)]
            fn fused(self, factor: Self, term: Self) -> Self {
                self.mul_add(factor, term)
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn inverse(self) -> Self {
                self.recip()
            }
            #[inline(always)]
            fn signed(self, sign: Self) -> Self {
                self.copysign(sign)
            }
        }
    )*};
}

arithmetic! { f32 f64 }

/// Plain arrays, for every machine.
#[derive(Clone, Copy)]
pub struct Portable<T>([T; LANES]);

impl<T: Arithmetic> Portable<T> {
    /// Whether every machine of the target can fuse a product with a sum; without hardware for it
    /// that takes a hundred times as long.
    const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

    #[inline(always)]
    fn map(self, op: impl Fn(T) -> T) -> Self {
        Self(array::from_fn(|k| op(self.0[k])))
    }

    #[inline(always)]
    fn zip(self, other: Self, op: impl Fn(T, T) -> T) -> Self {
        Self(array::from_fn(|k| op(self.0[k], other.0[k])))
    }
}

/// Implements an operator lane by lane.
macro_rules! operators {
    ($($trait:ident $method:ident |$a:ident $(, $b:ident)?| $body:expr;)*) => {$(
        impl<T: Arithmetic> $trait for Portable<T> {
            type Output = Self;

            #[inline(always)]
            fn $method(self $(, $b: Self)?) -> Self {
                let $a = self;
                $body
            }
        }
    )*};
}

operators! {
    Add add |a, b| a.zip(b, |a, b| a + b);
    Sub sub |a, b| a.zip(b, |a, b| a - b);
    Mul mul |a, b| a.zip(b, |a, b| a * b);
    Neg neg |a| a.map(|a| -a);
}

impl<T: Arithmetic> Register for Portable<T> {
    type Scalar = T;
    type Mask = [bool; LANES];

    const MANY: bool = false;

    #[inline(always)]
    fn load(from: &Lanes<T>) -> Self {
        Self(from.0)
    }
    #[inline(always)]
    fn store(self, to: &mut Lanes<T>) {
        to.0 = self.0;
    }
    #[inline(always)]
    fn splat(value: f64) -> Self {
        Self([T::rounded(value); LANES])
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        if Self::FUSED {
            Self(array::from_fn(|k| self.0[k].fused(factor.0[k], term.0[k])))
        } else {
            self * factor + term
        }
    }
    #[inline(always)]
    fn neg_mul_add(self, factor: Self, term: Self) -> Self {
        if Self::FUSED { (-self).mul_add(factor, term) } else { term - self * factor }
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.map(T::root)
    }
    #[inline(always)]
    fn recip(self) -> Self {
        self.map(T::inverse)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.map(|a| a.signed(T::ONE))
    }
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        self.zip(sign, T::signed)
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn greater(self, other: Self) -> [bool; LANES] {
        array::from_fn(|k| self.0[k] > other.0[k])
    }
    #[inline(always)]
    fn both(first: [bool; LANES], second: [bool; LANES]) -> [bool; LANES] {
        array::from_fn(|k| first[k] & second[k])
    }
    #[inline(always)]
    fn any(mask: [bool; LANES]) -> bool {
        mask.contains(&true)
    }
    #[inline(always)]
    fn select(mask: [bool; LANES], yes: Self, no: Self) -> Self {
        Self(array::from_fn(|k| if mask[k] { yes.0[k] } else { no.0[k] }))
    }
}

/// Numbers in memory, as a register loads them.
pub(crate) type RealValues<R> = Lanes<<R as Register>::Scalar>;
/// Complex numbers in memory, as registers load them.
pub(crate) type ComplexValues<R> = ComplexLanes<<R as Register>::Scalar>;

/// One complex number per lane.
#[derive(Clone, Copy)]
pub(crate) struct Complexes<R> {
    pub(crate) re: R,
    pub(crate) im: R,
}

/// Methods that add a complex product to `self`: how the products with `a.re` and then with `a.im` are fused into each part.
macro_rules! fused_products {
    ($($(#[$doc:meta])* $name:ident: re($rr:ident, $ii:ident), im($ri:ident, $ir:ident);)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(self, a: Self, b: Self) -> Self {
            Self { re: a.im.$ii(b.im, a.re.$rr(b.re, self.re)), im: a.im.$ir(b.re, a.re.$ri(b.im, self.im)) }
        }
    )* };
}

impl<R: Register> Complexes<R> {
    #[inline(always)]
    pub(crate) fn zero() -> Self {
        Self { re: R::zero(), im: R::zero() }
    }

    #[inline(always)]
    pub(crate) fn load(from: &ComplexValues<R>) -> Self {
        Self { re: R::load(&from.re), im: R::load(&from.im) }
    }

    #[inline(always)]
    pub(crate) fn store(self, to: &mut ComplexValues<R>) {
        self.re.store(&mut to.re);
        self.im.store(&mut to.im);
    }

    /// Both parts times a real number.
    #[inline(always)]
    pub(crate) fn scaled(self, factor: R) -> Self {
        Self { re: self.re * factor, im: self.im * factor }
    }

    fused_products! {
        /// `self + a b`.
        plus: re(mul_add, neg_mul_add), im(mul_add, mul_add);
        /// `self - a b`.
        minus: re(neg_mul_add, mul_add), im(neg_mul_add, neg_mul_add);
        /// `self + conj(a) b`.
        plus_conjugate: re(mul_add, mul_add), im(mul_add, neg_mul_add);
        /// `self - a conj(b)`.
        minus_by_conjugate: re(neg_mul_add, neg_mul_add), im(mul_add, neg_mul_add);
    }

    /// `self * factor + term` for a real factor.
    #[inline(always)]
    pub(crate) fn scaled_plus(self, factor: R, term: Self) -> Self {
        Self { re: self.re.mul_add(factor, term.re), im: self.im.mul_add(factor, term.im) }
    }

    /// `a^H x` of vectors `a`, one in each lane, and one vector x.
    #[inline(always)]
    pub(crate) fn inner(a: &[ComplexValues<R>], x: &[Complex32]) -> Self {
        let mut sum = Self::zero();
        for (a, x) in a.iter().zip(x) {
            let x = Self { re: R::splat(x.re.into()), im: R::splat(x.im.into()) };
            sum = sum.plus_conjugate(Self::load(a), x);
        }
        sum
    }

    /// The squared magnitude.
    #[inline(always)]
    pub(crate) fn energy(self) -> R {
        self.im.mul_add(self.im, self.re * self.re)
    }

    /// The real part of `conj(self) other`.
    #[inline(always)]
    pub(crate) fn along(self, other: Self) -> R {
        self.im.mul_add(other.im, self.re * other.re)
    }
}

impl<R: Register> Add for Complexes<R> {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl<R: Register> Sub for Complexes<R> {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}
