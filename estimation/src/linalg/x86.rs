//! [`Register`] on AVX-512 and on AVX2 with FMA, in both precisions: as many machine registers as hold all lanes.
//!
//! The types here are named only by the kernel's entries in `dispatch`, which run only after the instruction set has been found
//! on the machine: that is what every `unsafe` block below relies on.

use std::arch::x86_64::*;
use std::ops::{Add, Mul, Neg, Sub};

use super::lanes::{LANES, Lanes, Scalar};
use super::register::Register;

/// All lanes in registers of AVX-512.
pub type Avx512<T> = <T as Vectors>::Avx512;

/// All lanes in registers of AVX2.
pub type Avx2<T> = <T as Vectors>::Avx2;

/// The registers of a precision.
pub trait Vectors {
    /// In AVX-512.
    type Avx512;
    /// In AVX2.
    type Avx2;
}

impl Vectors for f32 {
    type Avx512 = AllLanes<__m512>;
    type Avx2 = AllLanes<RegisterPair<__m256>>;
}

impl Vectors for f64 {
    type Avx512 = AllLanes<RegisterPair<__m512d>>;
    type Avx2 = AllLanes<RegisterPair<RegisterPair<__m256d>>>;
}

/// A register, or a pair of them, and its instructions. They must exist on the machine.
pub trait Vector: Copy {
    /// One of its numbers.
    type Scalar: Scalar;
    /// A boolean for each of its numbers.
    type Mask: Copy;
    /// Its numbers.
    const WIDTH: usize;
    /// Whether the machine has 32 of them.
    const MANY: bool;

    unsafe fn load(from: *const Self::Scalar) -> Self;
    unsafe fn store(self, to: *mut Self::Scalar);
    unsafe fn splat(value: Self::Scalar) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    unsafe fn neg(self) -> Self;
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self;
    unsafe fn neg_mul_add(self, factor: Self, term: Self) -> Self;
    unsafe fn sqrt(self) -> Self;
    unsafe fn recip_and_recip_sqrt(self) -> (Self, Self);
    unsafe fn abs(self) -> Self;
    unsafe fn copysign(self, sign: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;
    unsafe fn greater(self, other: Self) -> Self::Mask;
    unsafe fn both(first: Self::Mask, second: Self::Mask) -> Self::Mask;
    unsafe fn any(mask: Self::Mask) -> bool;
    unsafe fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
}

/// Implements [`Vector`]: what all registers have alike by the names of the instructions, the rest as written.
macro_rules! vector {
    ($vector:ty: [$scalar:ty; $width:literal], $load:ident $store:ident $splat:ident $add:ident $sub:ident $mul:ident
     $div:ident $fmadd:ident $fnmadd:ident $sqrt:ident $max:ident; $($own:tt)*) => {
        // SAFETY: the instruction set is present, see the module.
        impl Vector for $vector {
            type Scalar = $scalar;

            const WIDTH: usize = $width;

            #[inline(always)]
            unsafe fn load(from: *const $scalar) -> Self {
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $scalar) {
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn splat(value: $scalar) -> Self {
                unsafe { $splat(value) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                unsafe { $add(self, other) }
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                unsafe { $sub(self, other) }
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                unsafe { $mul(self, other) }
            }
            #[inline(always)]
            unsafe fn div(self, other: Self) -> Self {
                unsafe { $div(self, other) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
                unsafe { $fmadd(self, factor, term) }
            }
            #[inline(always)]
            unsafe fn neg_mul_add(self, factor: Self, term: Self) -> Self {
                unsafe { $fnmadd(self, factor, term) }
            }
            #[inline(always)]
            unsafe fn sqrt(self) -> Self {
                unsafe { $sqrt(self) }
            }
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self {
                unsafe { $max(self, other) }
            }
            $($own)*
        }
    };
}

/// What registers of AVX-512 have alike; `STEPS` of Newton's method double the 14 correct bits of the estimates each.
macro_rules! masked {
    ($mask:ty, $steps:literal, $set:ident $inverse:ident $root:ident $abs:ident $blend:ident $compare:ident) => {
        type Mask = $mask;

        const MANY: bool = true;

        #[inline(always)]
        unsafe fn neg(self) -> Self {
            unsafe { Self::splat(-0.0).sub(self) }
        }
        #[inline(always)]
        unsafe fn recip_and_recip_sqrt(self) -> (Self, Self) {
            unsafe {
                let (mut inverse, mut root) = ($inverse(self), $root(self));
                for _ in 0..$steps {
                    let rest = inverse.neg_mul_add(self, $set(1.0));
                    inverse = inverse.mul_add(rest, inverse);
                    let rest = self.mul(root).neg_mul_add(root, $set(1.0));
                    root = root.mul($set(0.5)).mul_add(rest, root);
                }
                (inverse, root)
            }
        }
        #[inline(always)]
        unsafe fn abs(self) -> Self {
            unsafe { $abs(self) }
        }
        #[inline(always)]
        unsafe fn greater(self, other: Self) -> $mask {
            unsafe { $compare::<_CMP_GT_OQ>(self, other) }
        }
        #[inline(always)]
        unsafe fn both(first: $mask, second: $mask) -> $mask {
            first & second
        }
        #[inline(always)]
        unsafe fn any(mask: $mask) -> bool {
            mask != 0
        }
        #[inline(always)]
        unsafe fn select(mask: $mask, yes: Self, no: Self) -> Self {
            unsafe { $blend(mask, no, yes) }
        }
    };
}

/// What registers of AVX2 have alike; masks are registers.
macro_rules! unmasked {
    ($and:ident $andnot:ident $or:ident $xor:ident $blend:ident $compare:ident $bits:ident) => {
        type Mask = Self;

        const MANY: bool = false;

        #[inline(always)]
        unsafe fn neg(self) -> Self {
            unsafe { $xor(Self::splat(-0.0), self) }
        }
        #[inline(always)]
        unsafe fn recip_and_recip_sqrt(self) -> (Self, Self) {
            unsafe {
                let inverse = Self::splat(1.0).div(self);
                (inverse, inverse.mul(self.sqrt()))
            }
        }
        #[inline(always)]
        unsafe fn abs(self) -> Self {
            unsafe { $andnot(Self::splat(-0.0), self) }
        }
        #[inline(always)]
        unsafe fn copysign(self, sign: Self) -> Self {
            unsafe { $or(self.abs(), $and(Self::splat(-0.0), sign)) }
        }
        #[inline(always)]
        unsafe fn greater(self, other: Self) -> Self {
            unsafe { $compare::<_CMP_GT_OQ>(self, other) }
        }
        #[inline(always)]
        unsafe fn both(first: Self, second: Self) -> Self {
            unsafe { $and(first, second) }
        }
        #[inline(always)]
        unsafe fn any(mask: Self) -> bool {
            unsafe { $bits(mask) != 0 }
        }
        #[inline(always)]
        unsafe fn select(mask: Self, yes: Self, no: Self) -> Self {
            unsafe { $blend(no, yes, mask) }
        }
    };
}

vector! { __m512d: [f64; 8],
    _mm512_loadu_pd _mm512_storeu_pd _mm512_set1_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd _mm512_div_pd _mm512_fmadd_pd
    _mm512_fnmadd_pd _mm512_sqrt_pd _mm512_max_pd;
    masked! { __mmask8, 2,
        _mm512_set1_pd _mm512_rcp14_pd _mm512_rsqrt14_pd _mm512_abs_pd _mm512_mask_blend_pd _mm512_cmp_pd_mask
    }

    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        unsafe {
            let (a, sign) = (_mm512_castpd_si512(self), _mm512_castpd_si512(sign));
            _mm512_castsi512_pd(_mm512_ternarylogic_epi64::<0xd8>(a, sign, _mm512_set1_epi64(i64::MIN)))
        }
    }
}

vector! { __m512: [f32; 16],
    _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_div_ps _mm512_fmadd_ps
    _mm512_fnmadd_ps _mm512_sqrt_ps _mm512_max_ps;
    masked! { __mmask16, 1,
        _mm512_set1_ps _mm512_rcp14_ps _mm512_rsqrt14_ps _mm512_abs_ps _mm512_mask_blend_ps _mm512_cmp_ps_mask
    }

    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        unsafe {
            let (a, sign) = (_mm512_castps_si512(self), _mm512_castps_si512(sign));
            _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xd8>(a, sign, _mm512_set1_epi32(i32::MIN)))
        }
    }
}

vector! { __m256d: [f64; 4],
    _mm256_loadu_pd _mm256_storeu_pd _mm256_set1_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd _mm256_div_pd _mm256_fmadd_pd
    _mm256_fnmadd_pd _mm256_sqrt_pd _mm256_max_pd;
    unmasked! {
        _mm256_and_pd _mm256_andnot_pd _mm256_or_pd _mm256_xor_pd _mm256_blendv_pd _mm256_cmp_pd _mm256_movemask_pd
    }
}

vector! { __m256: [f32; 8],
    _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_div_ps _mm256_fmadd_ps
    _mm256_fnmadd_ps _mm256_sqrt_ps _mm256_max_ps;
    unmasked! {
        _mm256_and_ps _mm256_andnot_ps _mm256_or_ps _mm256_xor_ps _mm256_blendv_ps _mm256_cmp_ps _mm256_movemask_ps
    }
}

/// Two registers that work alike.
#[derive(Clone, Copy)]
pub struct RegisterPair<V>(V, V);

/// Methods that apply an instruction to both registers.
macro_rules! to_both {
    ($($name:ident($($operand:ident),*);)*) => {$(
        #[inline(always)]
        unsafe fn $name(self $(, $operand: Self)*) -> Self {
            unsafe { Self(self.0.$name($($operand.0),*), self.1.$name($($operand.1),*)) }
        }
    )*};
}

// SAFETY: the instruction set is present, see the module; both halves of what is loaded and stored are within it.
impl<V: Vector> Vector for RegisterPair<V> {
    type Scalar = V::Scalar;
    type Mask = (V::Mask, V::Mask);

    const WIDTH: usize = 2 * V::WIDTH;
    const MANY: bool = false;

    to_both! {
        add(other);
        sub(other);
        mul(other);
        div(other);
        neg();
        mul_add(factor, term);
        neg_mul_add(factor, term);
        sqrt();
        abs();
        copysign(sign);
        max(other);
    }

    #[inline(always)]
    unsafe fn load(from: *const V::Scalar) -> Self {
        unsafe { Self(V::load(from), V::load(from.add(V::WIDTH))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut V::Scalar) {
        unsafe {
            self.0.store(to);
            self.1.store(to.add(V::WIDTH));
        }
    }
    #[inline(always)]
    unsafe fn splat(value: V::Scalar) -> Self {
        unsafe { Self(V::splat(value), V::splat(value)) }
    }
    #[inline(always)]
    unsafe fn recip_and_recip_sqrt(self) -> (Self, Self) {
        unsafe {
            let (first, second) = (self.0.recip_and_recip_sqrt(), self.1.recip_and_recip_sqrt());
            (Self(first.0, second.0), Self(first.1, second.1))
        }
    }
    #[inline(always)]
    unsafe fn greater(self, other: Self) -> Self::Mask {
        unsafe { (self.0.greater(other.0), self.1.greater(other.1)) }
    }
    #[inline(always)]
    unsafe fn both(first: Self::Mask, second: Self::Mask) -> Self::Mask {
        unsafe { (V::both(first.0, second.0), V::both(first.1, second.1)) }
    }
    #[inline(always)]
    unsafe fn any(mask: Self::Mask) -> bool {
        unsafe { V::any(mask.0) | V::any(mask.1) }
    }
    #[inline(always)]
    unsafe fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        unsafe { Self(V::select(mask.0, yes.0, no.0), V::select(mask.1, yes.1, no.1)) }
    }
}

/// A register, or several, as wide as [`Lanes`].
#[derive(Clone, Copy)]
pub struct AllLanes<V>(V);

/// Implements operators by instructions.
macro_rules! operators {
    ($($trait:ident $method:ident($($operand:ident),*);)*) => {$(
        impl<V: Vector> $trait for AllLanes<V> {
            type Output = Self;

            #[inline(always)]
            fn $method(self $(, $operand: Self)*) -> Self {
                // SAFETY: the instruction set is present, see the module.
                unsafe { Self(self.0.$method($($operand.0),*)) }
            }
        }
    )*};
}

operators! {
    Add add(other);
    Sub sub(other);
    Mul mul(other);
    Neg neg();
}

/// Methods of [`Register`] that are instructions.
macro_rules! instructions {
    ($($name:ident($($operand:ident),*);)*) => {$(
        #[inline(always)]
        fn $name(self $(, $operand: Self)*) -> Self {
            // SAFETY: the instruction set is present, see the module.
            unsafe { Self(self.0.$name($($operand.0),*)) }
        }
    )*};
}

// SAFETY, throughout: the instruction set is present, see the module; a vector is as wide as the lanes.
impl<V: Vector> Register for AllLanes<V> {
    type Scalar = V::Scalar;
    type Mask = V::Mask;

    const MANY: bool = V::MANY;

    instructions! {
        mul_add(factor, term);
        neg_mul_add(factor, term);
        sqrt();
        abs();
        copysign(sign);
        max(other);
    }

    #[inline(always)]
    fn load(from: &Lanes<V::Scalar>) -> Self {
        const { assert!(V::WIDTH == LANES) };
        unsafe { Self(V::load(from.0.as_ptr())) }
    }
    #[inline(always)]
    fn store(self, to: &mut Lanes<V::Scalar>) {
        const { assert!(V::WIDTH == LANES) };
        unsafe { self.0.store(to.0.as_mut_ptr()) }
    }
    #[inline(always)]
    fn splat(value: f64) -> Self {
        unsafe { Self(V::splat(V::Scalar::rounded(value))) }
    }
    #[inline(always)]
    fn recip(self) -> Self {
        unsafe { Self(V::splat(V::Scalar::ONE).div(self.0)) }
    }
    #[inline(always)]
    fn recip_and_recip_sqrt(self) -> (Self, Self) {
        let (inverse, root) = unsafe { self.0.recip_and_recip_sqrt() };
        (Self(inverse), Self(root))
    }
    #[inline(always)]
    fn greater(self, other: Self) -> V::Mask {
        unsafe { self.0.greater(other.0) }
    }
    #[inline(always)]
    fn both(first: V::Mask, second: V::Mask) -> V::Mask {
        unsafe { V::both(first, second) }
    }
    #[inline(always)]
    fn any(mask: V::Mask) -> bool {
        unsafe { V::any(mask) }
    }
    #[inline(always)]
    fn select(mask: V::Mask, yes: Self, no: Self) -> Self {
        unsafe { Self(V::select(mask, yes.0, no.0)) }
    }
}
