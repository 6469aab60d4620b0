//! Floats of 8 and 4 bits: the value of each code, and which codes are at the ends of the range.

use super::dtype::DType;

/// What the codes with the largest exponent, and negative zero, mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinities and NaN, as in IEEE 754.
    Ieee,
    /// NaN if all bits below the sign are set.
    NanAtEnds,
    /// NaN in place of negative zero.
    NanAtNegativeZero,
    /// Every code is a number.
    Finite,
}

/// The layout of a format: bits of exponent and mantissa, the bias, whether there is a sign, and the special codes.
struct Layout {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    signed: bool,
    special: Special,
}

/// A float type whose codes are single bytes. A type of 4 bits uses the lower half of a byte.
pub struct SmallFloat {
    /// The value of each code. float32 holds all of them exactly.
    pub values: [f32; 256],
    /// Whether the magnitude of each code is the largest finite one.
    pub largest: [bool; 256],
    /// Whether each code is a subnormal number; zero is not.
    pub subnormal: [bool; 256],
}

static E5M2: SmallFloat = SmallFloat::of(&Layout::of(5, 2, 15, Special::Ieee));
static E4M3FN: SmallFloat = SmallFloat::of(&Layout::of(4, 3, 7, Special::NanAtEnds));
static E4M3FNUZ: SmallFloat = SmallFloat::of(&Layout::of(4, 3, 8, Special::NanAtNegativeZero));
static E4M3B11FNUZ: SmallFloat = SmallFloat::of(&Layout::of(4, 3, 11, Special::NanAtNegativeZero));
static E5M2FNUZ: SmallFloat = SmallFloat::of(&Layout::of(5, 2, 16, Special::NanAtNegativeZero));
static E2M1FN: SmallFloat = SmallFloat::of(&Layout::of(2, 1, 1, Special::Finite));
/// A power of two: neither sign nor mantissa, and no zero.
static E8M0FNU: SmallFloat = SmallFloat::of(&Layout { signed: false, ..Layout::of(8, 0, 127, Special::NanAtEnds) });

impl Layout {
    const fn of(exponent: u32, mantissa: u32, bias: i32, special: Special) -> Layout {
        Layout { exponent, mantissa, bias, signed: true, special }
    }

    /// The magnitude of a code without its sign.
    #[expect(clippy::cast_possible_truncation, reason = "a code has 8 bits")]
    const fn magnitude(&self, code: usize, is_negative: bool) -> f32 {
        let (exponent, fraction) = (code >> self.mantissa, code & ((1 << self.mantissa) - 1));
        let highest = (1 << self.exponent) - 1;
        match self.special {
            Special::Ieee if exponent == highest => return if fraction == 0 { f32::INFINITY } else { f32::NAN },
            Special::NanAtEnds if code == (1 << (self.exponent + self.mantissa)) - 1 => return f32::NAN,
            Special::NanAtNegativeZero if is_negative && code == 0 => return f32::NAN,
            _ => {}
        }
        // Without a mantissa, there are no subnormal numbers.
        if exponent == 0 && self.mantissa > 0 {
            return fraction as f32 * power_of_two(1 - self.bias - self.mantissa as i32);
        }
        ((1 << self.mantissa) + fraction) as f32 * power_of_two(exponent as i32 - self.bias - self.mantissa as i32)
    }
}

impl SmallFloat {
    const fn of(layout: &Layout) -> SmallFloat {
        let magnitudes = 1 << (layout.exponent + layout.mantissa);
        let codes = if layout.signed { 2 * magnitudes } else { magnitudes };
        let mut small = SmallFloat { values: [0.0; 256], largest: [false; 256], subnormal: [false; 256] };
        let mut most = 0.0;
        let mut byte = 0;
        while byte < 256 {
            let code = byte % codes;
            let magnitude = code % magnitudes;
            let value = layout.magnitude(magnitude, code >= magnitudes);
            small.values[byte] = if code >= magnitudes { -value } else { value };
            small.subnormal[byte] = layout.mantissa > 0 && magnitude >> layout.mantissa == 0 && value > 0.0;
            if value.is_finite() && value > most {
                most = value;
            }
            byte += 1;
        }
        byte = 0;
        while byte < 256 {
            small.largest[byte] = small.values[byte].abs() == most;
            byte += 1;
        }
        small
    }
}

/// A power of two. The least one, 2^-127, is subnormal.
const fn power_of_two(exponent: i32) -> f32 {
    if exponent == -127 { f32::from_bits(1 << 22) } else { f32::from_bits(((exponent + 127) as u32) << 23) }
}

impl DType {
    /// The codes of a type of 8 or 4 bits.
    #[must_use]
    pub fn small(self) -> Option<&'static SmallFloat> {
        Some(match self {
            DType::F8E5M2 => &E5M2,
            DType::F8E4M3FN => &E4M3FN,
            DType::F8E4M3FNUZ => &E4M3FNUZ,
            DType::F8E4M3B11FNUZ => &E4M3B11FNUZ,
            DType::F8E5M2FNUZ => &E5M2FNUZ,
            DType::F8E8M0FNU => &E8M0FNU,
            DType::F4E2M1FN => &E2M1FN,
            _ => return None,
        })
    }

    /// Elements of a type that NumPy lacks, as float32, which holds all of them exactly; `None` for other types.
    #[must_use]
    pub fn widen(self, bytes: &[u8]) -> Option<Vec<f32>> {
        if self == DType::BF16 {
            let (pairs, _) = bytes.as_chunks::<2>();
            return Some(pairs.iter().map(|pair| f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16)).collect());
        }
        let small = self.small()?;
        Some(bytes.iter().map(|code| small.values[usize::from(*code)]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_each_type() {
        for (dtype, most, normal, infinite, nan) in [
            (DType::F8E5M2, 57344.0, 2f32.powi(-14), 2, 6),
            (DType::F8E4M3FN, 448.0, 2f32.powi(-6), 0, 2),
            (DType::F8E4M3FNUZ, 240.0, 2f32.powi(-7), 0, 1),
            (DType::F8E4M3B11FNUZ, 30.0, 2f32.powi(-10), 0, 1),
            (DType::F8E5M2FNUZ, 57344.0, 2f32.powi(-15), 0, 1),
            (DType::F8E8M0FNU, 2f32.powi(127), 2f32.powi(-127), 0, 1),
            (DType::F4E2M1FN, 6.0, 1.0, 0, 0),
        ] {
            let small = dtype.small().unwrap();
            let codes = if dtype == DType::F4E2M1FN { 16 } else { 256 };
            let count = |of: &dyn Fn(usize) -> bool| (0..codes).filter(|code| of(*code)).count();
            let value = |code: usize| small.values[code];
            let signs = if dtype == DType::F8E8M0FNU { 1 } else { 2 };
            assert_eq!(count(&|code| value(code).is_infinite()), infinite, "{dtype:?}");
            assert_eq!(count(&|code| value(code).is_nan()), nan, "{dtype:?}");
            assert_eq!(count(&|code| small.largest[code]), signs, "{dtype:?}");
            for code in 0..codes {
                assert_eq!(small.largest[code], value(code).abs() == most, "{dtype:?} {code}");
                let is_subnormal = value(code) != 0.0 && value(code).abs() < normal;
                assert_eq!(small.subnormal[code], is_subnormal, "{dtype:?} {code}");
            }
        }
    }
}
