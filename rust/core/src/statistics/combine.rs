//! Statistics of a tensor from those of its shards.

use super::Statistics;
use crate::reduce::{Dd, exponent, ldexp};

/// Combines the statistics of distinct parts of a tensor. Counts and extremes are exact; norms, mean and deviation (Chan's
/// formula) are within four units in the last place of those of the given numbers. `None` without parts.
///
/// `update` is NaN unless every part with elements has one.
pub fn combine(parts: &[Statistics]) -> Option<Statistics> {
    if let [only] = parts {
        return Some(*only);
    }
    let count = |of: fn(&Statistics) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    let with_elements = || parts.iter().filter(|part| part.count > 0);
    let n = count(Statistics::finite);
    let weighted = || parts.iter().filter(|part| part.finite() > 0).map(|part| (part, part.finite() as f64 / n as f64));
    let mean = sum(weighted().map(|(part, weight)| part.mean * weight));
    // Halves, because the difference of two means can be infinite.
    let apart = |part: &Statistics| (0.5 * part.mean - 0.5 * mean) * 2.0;
    let spreads = weighted().flat_map(|(part, weight)| [part.std, apart(part)].map(|value| value * weight.sqrt()));
    // `min` and `max` of floats ignore NaN.
    let extreme = |of: fn(&Statistics) -> f64, better: fn(f64, f64) -> f64| parts.iter().map(of).reduce(better);
    let of_some = |value: f64| if n == 0 { f64::NAN } else { value };
    Some(Statistics {
        count: count(|part| part.count),
        nan: count(|part| part.nan),
        neg_inf: count(|part| part.neg_inf),
        pos_inf: count(|part| part.pos_inf),
        zeros: count(|part| part.zeros),
        saturated: count(|part| part.saturated),
        subnormal: count(|part| part.subnormal),
        min: extreme(|part| part.min, f64::min)?,
        max: extreme(|part| part.max, f64::max)?,
        mean: of_some(mean),
        std: of_some(norm(spreads)),
        l1: sum(parts.iter().map(|part| part.l1)),
        l2: norm(parts.iter().map(|part| part.l2)),
        abs_max: extreme(|part| part.abs_max, f64::max)?,
        update: if with_elements().next().is_none() { f64::NAN } else { norm(with_elements().map(|part| part.update)) },
    })
}

fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut exact, mut plain) = (Dd::ZERO, 0.0);
    for value in values {
        exact = exact + Dd::from(value);
        plain += value;
    }
    // The error terms of an infinite sum are NaN.
    if exact.to_f64().is_nan() { plain } else { exact.to_f64() }
}

/// The root of the sum of squares, without overflow in between.
fn norm(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = values.clone().map(f64::abs).fold(0.0, f64::max);
    if values.clone().any(f64::is_nan) {
        return f64::NAN;
    }
    if largest == 0.0 || largest.is_infinite() {
        return largest;
    }
    let power = exponent(largest).max(-1022);
    let squares = values.map(|value| ldexp(value, -power)).fold(Dd::ZERO, |all, value| all + Dd::product(value, value));
    ldexp(squares.sqrt().to_f64(), power)
}
