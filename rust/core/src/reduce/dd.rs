//! Double-double arithmetic: unevaluated sums of two `f64`, about 106 bits.
//!
//! The error-free transformations are Knuth's two-sum and Dekker's two-product (or a fused multiply-add where available).
//! They make sums of `f64` as accurate as numpy's sums of `f32` are in float64.

use std::ops::{Add, Mul, Neg, Sub};

/// `a + b` and its rounding error.
#[inline(always)]
pub fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// As [`two_sum`], for `|a| >= |b|` or `a == 0`.
#[inline(always)]
pub fn quick_two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    (s, b - (s - a))
}

/// `a * b` and its rounding error. Without a fused multiply-add exact for magnitudes within 2^±480.
#[inline(always)]
pub fn two_product<const FMA: bool>(a: f64, b: f64) -> (f64, f64) {
    let p = a * b;
    if FMA {
        return (p, a.mul_add(b, -p));
    }
    let (ah, al) = split(a);
    let (bh, bl) = split(b);
    (p, ((ah * bh - p) + ah * bl + al * bh) + al * bl)
}

/// Splits the 53 bits of a float into halves.
#[inline(always)]
fn split(a: f64) -> (f64, f64) {
    let t = a * 134_217_729.0; // 2^27 + 1
    let high = t - (t - a);
    (high, a - high)
}

/// `hi + lo`, where `hi` is the sum rounded to a float.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Dd {
    pub hi: f64,
    pub lo: f64,
}

impl Dd {
    pub const ZERO: Dd = Dd { hi: 0.0, lo: 0.0 };

    /// The exact sum of two floats.
    #[inline(always)]
    pub fn sum(a: f64, b: f64) -> Dd {
        let (hi, lo) = two_sum(a, b);
        Dd { hi, lo }
    }

    /// The exact product of two floats (see [`two_product`]).
    #[inline(always)]
    pub fn product(a: f64, b: f64) -> Dd {
        let (hi, lo) = two_product::<false>(a, b);
        Dd { hi, lo }
    }

    /// Converts an integer of at most 128 bits; bits beyond 106 are rounded.
    pub fn from_u128(value: u128) -> Dd {
        let hi = value as f64;
        // `hi` can round up to 2^128, which saturates; the difference is then off by one unit in 2^128.
        let back = hi as u128;
        let lo = if back > value { -((back - value) as f64) } else { (value - back) as f64 };
        Dd::sum(hi, lo)
    }

    /// As [`Dd::from_u128`], signed.
    pub fn from_i128(value: i128) -> Dd {
        let magnitude = Dd::from_u128(value.unsigned_abs());
        if value < 0 { -magnitude } else { magnitude }
    }

    /// Multiplies by a power of two.
    pub fn scaled(self, power: i32) -> Dd {
        Dd { hi: ldexp(self.hi, power), lo: ldexp(self.lo, power) }
    }

    /// The quotient, accurate to about 104 bits.
    pub fn over(self, divisor: Dd) -> Dd {
        let first = self.hi / divisor.hi;
        let rest = self - divisor * Dd::from(first);
        let second = rest.hi / divisor.hi;
        let rest = rest - divisor * Dd::from(second);
        Dd::sum(first, second) + Dd::from(rest.hi / divisor.hi)
    }

    /// The square root, with one correction step.
    pub fn sqrt(self) -> Dd {
        if self.hi <= 0.0 {
            return Dd::ZERO;
        }
        let root = self.hi.sqrt();
        let rest = self - Dd::product(root, root);
        Dd::sum(root, rest.hi / (2.0 * root))
    }

    /// Rounds to the nearest float.
    pub fn to_f64(self) -> f64 {
        self.hi + self.lo
    }
}

impl From<f64> for Dd {
    #[inline(always)]
    fn from(hi: f64) -> Dd {
        Dd { hi, lo: 0.0 }
    }
}

impl Add for Dd {
    type Output = Dd;
    #[inline(always)]
    fn add(self, other: Dd) -> Dd {
        let (s, e) = two_sum(self.hi, other.hi);
        let (t, f) = two_sum(self.lo, other.lo);
        let (s, e) = quick_two_sum(s, e + t);
        let (hi, lo) = quick_two_sum(s, e + f);
        Dd { hi, lo }
    }
}

impl Neg for Dd {
    type Output = Dd;
    #[inline(always)]
    fn neg(self) -> Dd {
        Dd { hi: -self.hi, lo: -self.lo }
    }
}

impl Sub for Dd {
    type Output = Dd;
    #[inline(always)]
    fn sub(self, other: Dd) -> Dd {
        self + -other
    }
}

impl Mul for Dd {
    type Output = Dd;
    #[inline(always)]
    fn mul(self, other: Dd) -> Dd {
        let (p, e) = two_product::<false>(self.hi, other.hi);
        let (hi, lo) = quick_two_sum(p, e + (self.hi * other.lo + self.lo * other.hi));
        Dd { hi, lo }
    }
}

/// `value * 2^power`, with overflow to infinity and underflow to 0. Rounds once, unless `value` is far from 1 and the
/// result subnormal.
pub fn ldexp(mut value: f64, mut power: i32) -> f64 {
    // In steps that are representable; three are enough for any float.
    for _ in 0..3 {
        let step = power.clamp(-1000, 1000);
        value *= power_of_two(step);
        power -= step;
    }
    value
}

/// 2^power, for -1022 <= power <= 1023.
#[inline(always)]
pub fn power_of_two(power: i32) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

/// The exponent e with 2^e <= |value| < 2^(e+1); -1023 for zero and subnormals, 1024 for NaN and infinity.
#[inline(always)]
pub fn exponent(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_products_agree() {
        for (a, b) in [(1.0 + f64::EPSILON, 1.0 + f64::EPSILON), (3.1, -7.7e100), (1e-140, 1e139)] {
            assert_eq!(two_product::<true>(a, b), two_product::<false>(a, b));
        }
    }

    #[test]
    fn from_u128_keeps_106_bits() {
        assert_eq!(Dd::from_u128((1 << 100) + 1), Dd { hi: power_of_two(100), lo: 1.0 });
        assert_eq!(Dd::from_i128(-(1 << 60) - 3), Dd { hi: -power_of_two(60), lo: -3.0 });
        assert_eq!(Dd::from_u128(u128::MAX).hi, power_of_two(127) * 2.0);
    }

    #[test]
    fn quotient_and_root_exceed_float_precision() {
        let third = Dd::from(1.0).over(Dd::from(3.0));
        assert_eq!(third * Dd::from(3.0), Dd::from(1.0));
        let root = Dd::from(2.0).sqrt();
        assert!((root * root - Dd::from(2.0)).hi.abs() < 1e-30);
    }

    #[test]
    fn ldexp_covers_the_float_range() {
        assert_eq!(ldexp(1.0, -1074), f64::from_bits(1));
        assert_eq!(ldexp(1.0, -1076), 0.0);
        assert_eq!(ldexp(1.5, 1023), f64::MAX / (2.0 - f64::EPSILON) * 1.5);
        assert_eq!(ldexp(-1.0, 3000), f64::NEG_INFINITY);
        assert_eq!(ldexp(f64::from_bits(1), 1074), 1.0);
        assert_eq!(ldexp(f64::from_bits(1), 3000), f64::INFINITY);
        assert_eq!(ldexp(1e-294, 2934), f64::INFINITY);
    }
}
