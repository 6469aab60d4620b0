//! Rounding of numbers to the precision of a float32 without its range: the sums of a training that diverges do not fit.

use crate::statistics::Statistics;

/// Rounds to 24 significant bits, to the nearest, ties to even. A finite number stays finite.
pub fn to_24_bits(value: f64) -> f64 {
    const DROPPED: u32 = 53 - 24;
    let bits = value.to_bits();
    if !value.is_finite() {
        return value;
    }
    let half = (1u64 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
    let rounded = f64::from_bits((bits + half) >> DROPPED << DROPPED);
    if rounded.is_finite() { rounded } else { f64::from_bits(bits >> DROPPED << DROPPED) }
}

/// The statistics as a file returns them, so that computed ones are the same whether they were cached or not.
pub fn as_stored(found: &Statistics) -> Statistics {
    let mut stored = Statistics {
        mean: to_24_bits(found.mean),
        std: to_24_bits(found.std),
        l1: to_24_bits(found.l1),
        update: to_24_bits(found.update),
        ..*found
    };
    stored.l2 = stored.derived_l2();
    stored.abs_max = stored.derived_abs_max();
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_normal_size_round_as_float32() {
        for value in [0.1, -1.0 / 3.0, 123_456_789.123, 1.0, 0.0, -0.0, 1e-20, 16_777_217.0, 16_777_219.0] {
            assert_eq!(to_24_bits(value).to_bits(), f64::from(value as f32).to_bits(), "{value}");
        }
    }

    #[test]
    fn numbers_beyond_float32_stay_finite() {
        assert!((to_24_bits(1e300) / 1e300 - 1.0).abs() < 6e-8);
        assert!(to_24_bits(f64::MAX).is_finite());
        assert_eq!(to_24_bits(f64::NEG_INFINITY), f64::NEG_INFINITY);
        assert!(to_24_bits(f64::NAN).is_nan());
    }
}
