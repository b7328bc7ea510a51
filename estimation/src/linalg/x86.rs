//! [`Register`] on AVX-512 and on AVX2 with FMA.
//!
//! The types here are named only by the kernel's entries in `project`, which run only after the
//! instruction set has been found on the machine: that is what every `unsafe` block below relies on.

use std::arch::x86_64::*;
use std::ops::{Add, Mul, Neg, Sub};

use super::lanes::{LANES, Lanes};
use super::register::{Register, operations, operators};

/// Eight numbers in one AVX-512 register.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512d);

/// Eight numbers in two AVX registers.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256d, __m256d);

/// An instruction on both halves of its operands.
macro_rules! halves {
    ($instruction:ident $(::<$constant:ident>)?: $($operand:ident),+) => {
        unsafe {
            Self($instruction$(::<$constant>)?($($operand.0),+), $instruction$(::<$constant>)?($($operand.1),+))
        }
    };
}

// SAFETY, here and below: the instruction set is present, see the module.
operators! { Avx512:
    Add add |a, b| unsafe { Self(_mm512_add_pd(a.0, b.0)) };
    Sub sub |a, b| unsafe { Self(_mm512_sub_pd(a.0, b.0)) };
    Mul mul |a, b| unsafe { Self(_mm512_mul_pd(a.0, b.0)) };
    Neg neg |a| unsafe { Self(_mm512_sub_pd(_mm512_set1_pd(-0.0), a.0)) };
}

operators! { Avx2:
    Add add |a, b| halves!(_mm256_add_pd: a, b);
    Sub sub |a, b| halves!(_mm256_sub_pd: a, b);
    Mul mul |a, b| halves!(_mm256_mul_pd: a, b);
    Neg neg |a| {
        let sign = Self::splat(-0.0);
        halves!(_mm256_xor_pd: sign, a)
    };
}

impl Register for Avx512 {
    type Mask = __mmask8;

    const MANY: bool = true;

    operations! {
        fn load(from: &Lanes) -> Self { unsafe { Self(_mm512_load_pd(from.0.as_ptr())) } }
        fn splat(value: f64) -> Self { unsafe { Self(_mm512_set1_pd(value)) } }
        fn both(first: Self::Mask, second: Self::Mask) -> Self::Mask { first & second }
        fn any(mask: Self::Mask) -> bool { mask != 0 }
        fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
            unsafe { Self(_mm512_mask_blend_pd(mask, no.0, yes.0)) }
        }
    }
    operations! { self a:
        fn store(to: &mut Lanes) -> () { unsafe { _mm512_store_pd(to.0.as_mut_ptr(), a.0) } }
        fn mul_add(factor: Self, term: Self) -> Self { unsafe { Self(_mm512_fmadd_pd(a.0, factor.0, term.0)) } }
        fn neg_mul_add(factor: Self, term: Self) -> Self {
            unsafe { Self(_mm512_fnmadd_pd(a.0, factor.0, term.0)) }
        }
        fn sqrt() -> Self { unsafe { Self(_mm512_sqrt_pd(a.0)) } }
        fn recip() -> Self { unsafe { Self(_mm512_div_pd(_mm512_set1_pd(1.0), a.0)) } }
        fn recip_and_recip_sqrt() -> (Self, Self) {
            let (mut inverse, mut root) =
                unsafe { (Self(_mm512_rcp14_pd(a.0)), Self(_mm512_rsqrt14_pd(a.0))) };
            // Newton's step doubles the 14 correct bits, twice.
            for _ in 0..2 {
                let rest = inverse.neg_mul_add(a, Self::splat(1.0));
                inverse = inverse.mul_add(rest, inverse);
                let rest = (a * root).neg_mul_add(root, Self::splat(1.0));
                root = (root * Self::splat(0.5)).mul_add(rest, root);
            }
            (inverse, root)
        }
        fn abs() -> Self { unsafe { Self(_mm512_abs_pd(a.0)) } }
        fn copysign(sign: Self) -> Self {
            unsafe {
                let (a, sign) = (_mm512_castpd_si512(a.0), _mm512_castpd_si512(sign.0));
                Self(_mm512_castsi512_pd(_mm512_ternarylogic_epi64::<0xd8>(a, sign, _mm512_set1_epi64(i64::MIN))))
            }
        }
        fn max(other: Self) -> Self { unsafe { Self(_mm512_max_pd(a.0, other.0)) } }
        fn greater(other: Self) -> Self::Mask { unsafe { _mm512_cmp_pd_mask::<_CMP_GT_OQ>(a.0, other.0) } }
    }
}

impl Register for Avx2 {
    type Mask = Self;

    const MANY: bool = false;

    operations! {
        fn load(from: &Lanes) -> Self {
            unsafe { Self(_mm256_load_pd(from.0.as_ptr()), _mm256_load_pd(from.0.as_ptr().add(LANES / 2))) }
        }
        fn splat(value: f64) -> Self { unsafe { Self(_mm256_set1_pd(value), _mm256_set1_pd(value)) } }
        fn both(first: Self::Mask, second: Self::Mask) -> Self::Mask { halves!(_mm256_and_pd: first, second) }
        fn any(mask: Self::Mask) -> bool { unsafe { _mm256_movemask_pd(_mm256_or_pd(mask.0, mask.1)) != 0 } }
        fn select(mask: Self::Mask, yes: Self, no: Self) -> Self { halves!(_mm256_blendv_pd: no, yes, mask) }
    }
    operations! { self a:
        fn store(to: &mut Lanes) -> () {
            unsafe {
                _mm256_store_pd(to.0.as_mut_ptr(), a.0);
                _mm256_store_pd(to.0.as_mut_ptr().add(LANES / 2), a.1);
            }
        }
        fn mul_add(factor: Self, term: Self) -> Self { halves!(_mm256_fmadd_pd: a, factor, term) }
        fn neg_mul_add(factor: Self, term: Self) -> Self { halves!(_mm256_fnmadd_pd: a, factor, term) }
        fn sqrt() -> Self { halves!(_mm256_sqrt_pd: a) }
        fn recip() -> Self {
            let one = Self::splat(1.0);
            halves!(_mm256_div_pd: one, a)
        }
        fn abs() -> Self {
            let sign = Self::splat(-0.0);
            halves!(_mm256_andnot_pd: sign, a)
        }
        fn copysign(sign: Self) -> Self {
            let (bit, size) = (Self::splat(-0.0), a.abs());
            let sign = halves!(_mm256_and_pd: bit, sign);
            halves!(_mm256_or_pd: size, sign)
        }
        fn max(other: Self) -> Self { halves!(_mm256_max_pd: a, other) }
        fn greater(other: Self) -> Self::Mask { halves!(_mm256_cmp_pd::<_CMP_GT_OQ>: a, other) }
    }
}
