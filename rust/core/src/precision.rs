//! What low-precision formats make of values: exact casts, and shares of values that are flushed to zero or saturated.
//!
//! The formats are E4M3 and E5M2 with 8 bits, MXFP8 (E4M3 in blocks of 32 with a scale that is a power of two) and NVFP4
//! (E2M1 in blocks of 16 with a scale in E4M3, and a scale of the tensor). Rounding is to nearest, ties to even.

use std::thread;

/// A format of 8 bits or less without a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// 4 bits of exponent, 3 of mantissa; no infinity.
    E4M3,
    /// 5 bits of exponent, 2 of mantissa.
    E5M2,
    /// 2 bits of exponent, 1 of mantissa; neither infinity nor NaN.
    E2M1,
}

impl Element {
    /// Bits of the mantissa, the smallest exponent of a normal number, the bias, and the largest number.
    const fn layout(self) -> (i32, i32, i32, f32) {
        match self {
            Element::E4M3 => (3, -6, 7, 448.0),
            Element::E5M2 => (2, -14, 15, 57344.0),
            Element::E2M1 => (1, 0, 1, 6.0),
        }
    }

    /// The largest number.
    #[must_use]
    pub const fn largest(self) -> f32 {
        self.layout().3
    }

    /// The exponent of the largest number.
    const fn largest_exponent(self) -> i32 {
        match self {
            Element::E4M3 => 8,
            Element::E5M2 => 15,
            Element::E2M1 => 2,
        }
    }

    /// The nearest multiple of the format's step, without a limit above. The sign of zero is kept.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "the biased exponents are between 1 and 254")]
    fn round(self, value: f32) -> f32 {
        let (mantissa, least, _, _) = self.layout();
        let magnitude = f32::from_bits(value.to_bits() & 0x7fff_ffff);
        let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(least);
        // The distance of two neighbours is a power of two, so scaling by it is exact.
        let step = exponent - mantissa;
        let scaled = magnitude * f32::from_bits(((127 - step) as u32) << 23);
        // Adding 1.5 * 2^23 leaves no bits for a fraction, and the processor rounds ties to even.
        let whole = (scaled + 12_582_912.0) - 12_582_912.0;
        let rounded = whole * f32::from_bits(((127 + step) as u32) << 23);
        f32::from_bits(rounded.to_bits() | (value.to_bits() & 0x8000_0000))
    }

    /// The bits of a value in this format, as `ml_dtypes` casts it: without saturation, except for E2M1.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "codes have 8 bits")]
    pub fn cast(self, value: f32) -> u8 {
        let (mantissa, least, bias, largest) = self.layout();
        let negative = value.is_sign_negative();
        let (sign, overflow, nan) = match self {
            Element::E4M3 => (0x80, 0x7f, 0x7f),
            Element::E5M2 => (0x80, 0x7c, 0x7e),
            Element::E2M1 => (0x08, 0x07, 0x08),
        };
        if value.is_nan() {
            let flips = self == Element::E2M1; // NaN becomes a zero of the other sign
            return if flips { if negative { 0 } else { nan } } else { nan | if negative { sign } else { 0 } };
        }
        let sign = if negative { sign } else { 0 };
        if value.is_infinite() {
            return overflow | sign;
        }
        let rounded = self.round(value).abs();
        if rounded > largest {
            return overflow | sign;
        }
        let exponent = (rounded.to_bits() >> 23) as i32 - 127;
        let code = if exponent < least {
            (rounded * f32::from_bits(((127 + mantissa - least) as u32) << 23)) as u8
        } else {
            let fraction = (rounded.to_bits() & 0x007f_ffff) >> (23 - mantissa);
            (((exponent + bias) << mantissa) as u32 | fraction) as u8
        };
        code | sign
    }
}

/// A format of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// E4M3 with one scale for the tensor, or none.
    E4M3,
    /// E5M2 with one scale for the tensor, or none.
    E5M2,
    /// E4M3 in blocks of 32.
    Mxfp8,
    /// E2M1 in blocks of 16.
    Nvfp4,
}

/// What a format makes of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Number of finite values that are not zero.
    pub nonzero: u64,
    /// Zeros of both signs.
    pub zeros: u64,
    /// NaN and infinities.
    pub not_finite: u64,
    /// Values other than zero that become zero.
    pub flushed: u64,
    /// Values above the largest number.
    pub saturated: u64,
    /// Sum of squared errors, where saturated values take the largest number.
    pub error: f64,
    /// Sum of squared values.
    pub power: f64,
}

impl Loss {
    fn add(&mut self, other: &Loss) {
        self.nonzero += other.nonzero;
        self.zeros += other.zeros;
        self.not_finite += other.not_finite;
        self.flushed += other.flushed;
        self.saturated += other.saturated;
        self.error += other.error;
        self.power += other.power;
    }

    /// Adds values that share one scale.
    fn add_block(&mut self, values: &[f32], element: Element, scale: f32) {
        let largest = element.largest();
        let inverse = 1.0 / scale;
        let (mut zeros, mut odd, mut flushed, mut saturated) = (0_u32, 0_u32, 0_u32, 0_u32);
        // Squares of the scaled values do not overflow a double, and are exact.
        let (mut error, mut power) = (0.0_f64, 0.0_f64);
        for &value in values {
            let scaled = value * inverse;
            let rounded = element.round(scaled);
            let finite = value.is_finite();
            let zero = value == 0.0;
            let over = finite && rounded.abs() > largest;
            let kept = rounded.clamp(-largest, largest);
            zeros += u32::from(zero);
            odd += u32::from(!finite);
            flushed += u32::from(finite && !zero && rounded == 0.0);
            saturated += u32::from(over);
            let exact = if finite { f64::from(value) } else { 0.0 };
            let difference = if finite { f64::from(kept) * f64::from(scale) - exact } else { 0.0 };
            error += difference * difference;
            power += exact * exact;
        }
        self.zeros += u64::from(zeros);
        self.not_finite += u64::from(odd);
        self.flushed += u64::from(flushed);
        self.saturated += u64::from(saturated);
        self.nonzero += values.len() as u64 - u64::from(zeros) - u64::from(odd);
        self.error += error;
        self.power += power;
    }
}

/// The largest magnitude of the finite values.
fn largest_of(values: &[f32]) -> f32 {
    values.iter().fold(0.0_f32, |most, value| if value.is_finite() { most.max(value.abs()) } else { most })
}

/// A power of two, within the normal numbers.
#[expect(clippy::cast_sign_loss, reason = "the exponent is at least -126")]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent.clamp(-126, 127) + 127) as u32) << 23)
}

fn usable(scale: f32) -> f32 {
    if scale.is_normal() { scale } else { 1.0 }
}

/// What a format makes of values.
///
/// With `scaled`, E4M3 and E5M2 have a scale by which the largest value becomes the largest number. The other formats
/// always have theirs.
#[must_use]
pub fn loss(values: &[f32], format: Format, scaled: bool) -> Loss {
    let most = parallel(values, largest_of, 0.0_f32, |all, one| *all = all.max(*one));
    let scale = |element: Element| if scaled { usable(most / element.largest()) } else { 1.0 };
    let of_tensor = usable(most / (Element::E2M1.largest() * Element::E4M3.largest()));
    let judge = |part: &[f32]| {
        let mut total = Loss::default();
        match format {
            Format::E4M3 | Format::E5M2 => {
                let element = if format == Format::E4M3 { Element::E4M3 } else { Element::E5M2 };
                let scale = scale(element);
                // Counters of blocks have 32 bits.
                part.chunks(1 << 16).for_each(|block| total.add_block(block, element, scale));
            }
            Format::Mxfp8 => {
                for block in part.chunks(32) {
                    let exponent = (largest_of(block).to_bits() >> 23) as i32 - 127;
                    total.add_block(block, Element::E4M3, power_of_two(exponent - Element::E4M3.largest_exponent()));
                }
            }
            Format::Nvfp4 => {
                for block in part.chunks(16) {
                    let wanted = largest_of(block) / Element::E2M1.largest() / of_tensor;
                    let stored = Element::E4M3.round(wanted).min(Element::E4M3.largest());
                    // A block whose scale is flushed has only zeros.
                    let scale = if stored > 0.0 { stored * of_tensor } else { f32::MAX };
                    total.add_block(block, Element::E2M1, scale);
                }
            }
        }
        total
    };
    parallel(values, judge, Loss::default(), Loss::add)
}

/// Values of a thread at least; a multiple of all sizes of blocks.
const PART: usize = 1 << 20;

/// Computes something of parts of the values in several threads, and joins it in order.
fn parallel<T: Send>(values: &[f32], compute: impl Fn(&[f32]) -> T + Sync, first: T, join: impl Fn(&mut T, &T)) -> T {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(values.len() / PART + 1).min(8);
    let size = values.len().div_ceil(threads).next_multiple_of(PART).max(PART);
    let mut total = first;
    if threads < 2 {
        join(&mut total, &compute(values));
        return total;
    }
    let compute = &compute;
    let parts: Vec<T> = thread::scope(|scope| {
        let running: Vec<_> = values.chunks(size).map(|part| scope.spawn(move || compute(part))).collect();
        running.into_iter().filter_map(|one| one.join().ok()).collect()
    });
    parts.iter().for_each(|one| join(&mut total, one));
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_keep_every_number_of_the_format() {
        for (element, codes) in [(Element::E4M3, 0x7e_u8), (Element::E5M2, 0x7b), (Element::E2M1, 0x07)] {
            let (mantissa, least, bias, largest) = element.layout();
            for code in 0..=codes {
                let (exponent, fraction) = (i32::from(code) >> mantissa, i32::from(code) & ((1 << mantissa) - 1));
                let value = if exponent == 0 {
                    f64::from(fraction) * f64::from(least - mantissa).exp2()
                } else {
                    f64::from((1 << mantissa) + fraction) * f64::from(exponent - bias - mantissa).exp2()
                };
                #[expect(clippy::cast_possible_truncation, reason = "numbers of 8 bits are exact")]
                let value = value as f32;
                assert_eq!(element.cast(value), code);
                assert!(value <= largest);
            }
        }
    }

    #[test]
    fn ties_are_rounded_to_even_and_small_values_flushed() {
        assert_eq!(Element::E2M1.cast(0.25), 0);
        assert_eq!(Element::E2M1.cast(0.75), 2);
        assert_eq!(Element::E2M1.cast(-0.0), 0x08);
        assert_eq!(Element::E4M3.cast(464.0), 0x7e);
        assert_eq!(Element::E4M3.cast(465.0), 0x7f);
        assert_eq!(Element::E5M2.cast(61440.0), 0x7c);
        assert_eq!(Element::E4M3.cast(f32::from_bits(1)), 0);
    }

    #[test]
    fn shares_are_counted_apart_from_zeros_and_odd_values() {
        let values = [0.0, -0.0, 1.0, 1e-9, -1e-9, 1e9, f32::NAN, f32::INFINITY];
        let counts = loss(&values, Format::E4M3, false);
        assert_eq!((counts.zeros, counts.not_finite, counts.nonzero), (2, 2, 4));
        assert_eq!((counts.flushed, counts.saturated), (2, 1));
        assert_eq!(loss(&[], Format::Nvfp4, true), Loss::default());
        assert_eq!(loss(&[0.0; 40], Format::Mxfp8, true).flushed, 0);
    }
}
