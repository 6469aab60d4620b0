//! Exact summation: a fixed-point accumulator that covers all exponents of f64.
//!
//! Slow compared to the kernels (about 2 ns per element), so it is used only where cancellation makes their last bit
//! unreliable.

use super::dd::{Dd, ldexp};

/// Each digit has 32 bits and can grow to 63 before a carry is needed.
const DIGITS: usize = 70;
/// Exponent of the lowest bit of digit 0, below that of any `f64`.
const LOWEST: i32 = -1088;

/// The accumulator.
pub struct ExactSum {
    digits: [i64; DIGITS],
    remaining: u32,
}

impl ExactSum {
    const CAPACITY: u32 = 1 << 30;

    pub fn new() -> ExactSum {
        ExactSum { digits: [0; DIGITS], remaining: ExactSum::CAPACITY }
    }

    /// Adds a finite float.
    #[inline]
    pub fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let biased = (bits >> 52 & 0x7ff) as usize;
        let fraction = bits & ((1 << 52) - 1);
        let mantissa = if biased == 0 { fraction } else { fraction | 1 << 52 };
        // The lowest bit of the mantissa has exponent max(biased, 1) - 1075, this many bits above LOWEST.
        let shift = biased.max(1) + 13;
        let wide = u128::from(mantissa) << (shift % 32);
        let sign = 1 - 2 * (bits >> 63) as i64;
        let at = shift / 32;
        self.digits[at] += sign * (wide & 0xffff_ffff) as i64;
        self.digits[at + 1] += sign * (wide >> 32 & 0xffff_ffff) as i64;
        self.digits[at + 2] += sign * (wide >> 64) as i64;
        self.remaining -= 1;
        if self.remaining == 0 {
            self.carry();
        }
    }

    /// Normalizes all digits to 0..2^32 but the last, which has the sign.
    fn carry(&mut self) {
        for i in 0..DIGITS - 1 {
            let over = self.digits[i] >> 32;
            self.digits[i] -= over << 32;
            self.digits[i + 1] += over;
        }
        self.remaining = ExactSum::CAPACITY;
    }

    /// The sum times 2^power, so that a sum beyond the range of floats can still be divided.
    pub fn total(mut self, power: i32) -> Dd {
        self.carry();
        let negative = self.digits[DIGITS - 1] < 0;
        if negative {
            self.digits.iter_mut().for_each(|digit| *digit = -*digit);
            self.carry();
        }
        let mut total = Dd::ZERO;
        for (i, digit) in self.digits.iter().enumerate().rev() {
            if *digit != 0 {
                total = total + Dd::from(ldexp(*digit as f64, LOWEST + 32 * i as i32 + power));
            }
        }
        if negative { -total } else { total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> f64 {
        let mut exact = ExactSum::new();
        values.iter().for_each(|value| exact.add(*value));
        exact.total(0).to_f64()
    }

    #[test]
    fn intermediate_cancellation_is_exact() {
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum(&[1e300, 1.0, -1e300, f64::from_bits(1), -1.0]), f64::from_bits(1));
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[-0.1; 10]), -1.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
        assert_eq!(sum(&[f64::MIN_POSITIVE, -f64::from_bits(1)]), f64::MIN_POSITIVE - f64::from_bits(1));
    }

    #[test]
    fn overflowing_sum_can_be_scaled() {
        let mut exact = ExactSum::new();
        (0..4).for_each(|_| exact.add(f64::MAX));
        assert_eq!(exact.total(-2).to_f64(), f64::MAX);
    }

    #[test]
    fn carries_before_overflow() {
        let mut exact = ExactSum::new();
        exact.remaining = 3;
        (0..10).for_each(|_| exact.add(-1.5));
        assert_eq!(exact.total(0).to_f64(), -15.0);
    }
}
