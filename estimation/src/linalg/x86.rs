//! [`Register`] on AVX-512 and on AVX2 with FMA.
//!
//! The types here are named only by the kernel's entries in `project`, which run only after the
//! instruction set has been found on the machine: that is what every `unsafe` below rests on.

use std::arch::x86_64::*;
use std::ops::{Add, Mul, Neg, Sub};

use super::lanes::{LANES, Lanes};
use super::register::Register;

/// Eight numbers in one AVX-512 register.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512d);

/// Eight numbers in two AVX registers.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256d, __m256d);

/// Implements an operator by one expression per instruction set.
macro_rules! operator {
    ($kind:ident, $trait:ident, $method:ident, |$a:ident, $b:ident| $body:expr) => {
        impl $trait for $kind {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                // SAFETY: the instruction set is there, see the module.
                unsafe { $body }
            }
        }
    };
}

operator!(Avx512, Add, add, |a, b| Self(_mm512_add_pd(a.0, b.0)));
operator!(Avx512, Sub, sub, |a, b| Self(_mm512_sub_pd(a.0, b.0)));
operator!(Avx512, Mul, mul, |a, b| Self(_mm512_mul_pd(a.0, b.0)));
operator!(Avx2, Add, add, |a, b| Self(_mm256_add_pd(a.0, b.0), _mm256_add_pd(a.1, b.1)));
operator!(Avx2, Sub, sub, |a, b| Self(_mm256_sub_pd(a.0, b.0), _mm256_sub_pd(a.1, b.1)));
operator!(Avx2, Mul, mul, |a, b| Self(_mm256_mul_pd(a.0, b.0), _mm256_mul_pd(a.1, b.1)));

impl Neg for Avx512 {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_sub_pd(_mm512_set1_pd(-0.0), self.0)) }
    }
}

impl Neg for Avx2 {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe {
            let zero = _mm256_set1_pd(-0.0);
            Self(_mm256_xor_pd(zero, self.0), _mm256_xor_pd(zero, self.1))
        }
    }
}

impl Register for Avx512 {
    type Mask = __mmask8;

    const MANY: bool = true;

    #[inline(always)]
    fn load(from: &Lanes) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_load_pd(from.0.as_ptr())) }
    }

    #[inline(always)]
    fn store(self, to: &mut Lanes) {
        // SAFETY: the instruction set is there, see the module.
        unsafe { _mm512_store_pd(to.0.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_set1_pd(value)) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_fmadd_pd(self.0, factor.0, term.0)) }
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_fnmadd_pd(self.0, factor.0, term.0)) }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_sqrt_pd(self.0)) }
    }

    #[inline(always)]
    fn recip(self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_div_pd(_mm512_set1_pd(1.0), self.0)) }
    }

    #[inline(always)]
    fn recip_and_recip_sqrt(self) -> (Self, Self) {
        // SAFETY: the instruction set is there, see the module.
        let (mut inverse, mut root) =
            unsafe { (Self(_mm512_rcp14_pd(self.0)), Self(_mm512_rsqrt14_pd(self.0))) };
        // Newton's step doubles the 14 correct bits, twice.
        for _ in 0..2 {
            let rest = inverse.neg_mul_add(self, Self::splat(1.0));
            inverse = inverse.mul_add(rest, inverse);
            let rest = (self * root).neg_mul_add(root, Self::splat(1.0));
            root = (root * Self::splat(0.5)).mul_add(rest, root);
        }
        (inverse, root)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_abs_pd(self.0)) }
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe {
            Self(_mm512_castsi512_pd(_mm512_ternarylogic_epi64::<0xd8>(
                _mm512_castpd_si512(self.0),
                _mm512_castpd_si512(sign.0),
                _mm512_set1_epi64(i64::MIN),
            )))
        }
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_max_pd(self.0, other.0)) }
    }

    #[inline(always)]
    fn greater(self, other: Self) -> Self::Mask {
        // SAFETY: the instruction set is there, see the module.
        unsafe { _mm512_cmp_pd_mask::<_CMP_GT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn both(first: Self::Mask, second: Self::Mask) -> Self::Mask {
        first & second
    }

    #[inline(always)]
    fn any(mask: Self::Mask) -> bool {
        mask != 0
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm512_mask_blend_pd(mask, no.0, yes.0)) }
    }
}

impl Register for Avx2 {
    type Mask = Self;

    const MANY: bool = false;

    #[inline(always)]
    fn load(from: &Lanes) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm256_load_pd(from.0.as_ptr()), _mm256_load_pd(from.0.as_ptr().add(LANES / 2))) }
    }

    #[inline(always)]
    fn store(self, to: &mut Lanes) {
        // SAFETY: the instruction set is there, see the module.
        unsafe {
            _mm256_store_pd(to.0.as_mut_ptr(), self.0);
            _mm256_store_pd(to.0.as_mut_ptr().add(LANES / 2), self.1);
        }
    }

    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm256_set1_pd(value), _mm256_set1_pd(value)) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm256_fmadd_pd(self.0, factor.0, term.0), _mm256_fmadd_pd(self.1, factor.1, term.1)) }
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe {
            Self(_mm256_fnmadd_pd(self.0, factor.0, term.0), _mm256_fnmadd_pd(self.1, factor.1, term.1))
        }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm256_sqrt_pd(self.0), _mm256_sqrt_pd(self.1)) }
    }

    #[inline(always)]
    fn recip(self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe {
            let one = _mm256_set1_pd(1.0);
            Self(_mm256_div_pd(one, self.0), _mm256_div_pd(one, self.1))
        }
    }

    #[inline(always)]
    fn recip_and_recip_sqrt(self) -> (Self, Self) {
        let inverse = self.recip();
        (inverse, inverse * self.sqrt())
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe {
            let sign = _mm256_set1_pd(-0.0);
            Self(_mm256_andnot_pd(sign, self.0), _mm256_andnot_pd(sign, self.1))
        }
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe {
            let bit = _mm256_set1_pd(-0.0);
            Self(
                _mm256_or_pd(_mm256_andnot_pd(bit, self.0), _mm256_and_pd(bit, sign.0)),
                _mm256_or_pd(_mm256_andnot_pd(bit, self.1), _mm256_and_pd(bit, sign.1)),
            )
        }
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm256_max_pd(self.0, other.0), _mm256_max_pd(self.1, other.1)) }
    }

    #[inline(always)]
    fn greater(self, other: Self) -> Self::Mask {
        // SAFETY: the instruction set is there, see the module.
        unsafe {
            Self(_mm256_cmp_pd::<_CMP_GT_OQ>(self.0, other.0), _mm256_cmp_pd::<_CMP_GT_OQ>(self.1, other.1))
        }
    }

    #[inline(always)]
    fn both(first: Self::Mask, second: Self::Mask) -> Self::Mask {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm256_and_pd(first.0, second.0), _mm256_and_pd(first.1, second.1)) }
    }

    #[inline(always)]
    fn any(mask: Self::Mask) -> bool {
        // SAFETY: the instruction set is there, see the module.
        unsafe { _mm256_movemask_pd(_mm256_or_pd(mask.0, mask.1)) != 0 }
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: the instruction set is there, see the module.
        unsafe { Self(_mm256_blendv_pd(no.0, yes.0, mask.0), _mm256_blendv_pd(no.1, yes.1, mask.1)) }
    }
}
