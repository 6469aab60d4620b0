//! Exact percentiles in bounded memory.
//!
//! The bits of a float, with the sign mapped, are an integer in the order of the floats. One pass counts elements by the
//! upper 16 bits of that integer, which finds the bucket of each rank among 65,536; the next pass counts within these
//! buckets by the next 16 bits, and so on until the values are exact.

use super::values;
use crate::error::{Error, Result};
use crate::tensor::DType;

/// Up to this many elements are sorted in 1 MB; counting would take 8 MB, which each thread's allocator then retains.
const SORTED: u64 = 1 << 17;
/// Buckets that are refined in one pass, at half a megabyte each.
const AT_ONCE: usize = 16;

/// Computes percentiles (0 to 100) of the elements that are not NaN, with numpy's linear interpolation. NaN without
/// elements.
pub fn percentiles(dtype: DType, data: &[u8], requested: &[f64]) -> Result<Vec<f64>> {
    let all = values::count(dtype, data)?;
    if let Some(bad) = requested.iter().find(|p| !(0.0..=100.0).contains(*p)) {
        return Err(Error::Invalid(format!("invalid percentile {bad}; must be from 0 to 100")));
    }
    if all <= SORTED {
        let mut elements = Vec::with_capacity(all as usize);
        values::blocks(dtype, data, |block| elements.extend(block.iter().filter(|x| !x.is_nan())));
        elements.sort_unstable_by(f64::total_cmp);
        return Ok(between(requested, elements.len() as u64, |rank| elements[rank as usize]));
    }
    let mut upper = vec![0u64; 1 << 16];
    let mut n = 0;
    values::blocks(dtype, data, |block| {
        for x in block {
            let counts = u64::from(!x.is_nan());
            n += counts;
            upper[(key(*x) >> 48) as usize] += counts;
        }
    });
    let mut ranks: Vec<u64> = requested.iter().flat_map(|p| [rank_of(*p, n).0, rank_of(*p, n).0 + 1]).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.retain(|rank| *rank < n);
    // For each rank, the known upper bits of its key and its rank among elements that share them.
    let mut known: Vec<(u64, u64)> = ranks.iter().map(|rank| step(0, *rank, &upper)).collect();
    for shift in [32, 16, 0] {
        let mut prefixes: Vec<u64> = known.iter().map(|(prefix, _)| *prefix).collect();
        prefixes.dedup();
        let before = known.clone();
        for some in prefixes.chunks(AT_ONCE) {
            let mut counts = vec![0u64; some.len() << 16];
            values::blocks(dtype, data, |block| {
                for x in block {
                    let key = key(*x);
                    if !x.is_nan()
                        && let Ok(which) = some.binary_search(&(key >> (shift + 16)))
                    {
                        counts[which << 16 | (key >> shift & 0xffff) as usize] += 1;
                    }
                }
            });
            for ((prefix, rank), now) in before.iter().zip(&mut known) {
                if let Ok(which) = some.binary_search(prefix) {
                    *now = step(*prefix, *rank, &counts[which << 16..][..1 << 16]);
                }
            }
        }
    }
    let element = |rank: u64| ranks.binary_search(&rank).map_or(f64::NAN, |i| value(known[i].0));
    Ok(between(requested, n, element))
}

/// The next 16 bits of the key of a rank, and its rank among elements that share them.
fn step(prefix: u64, mut rank: u64, counts: &[u64]) -> (u64, u64) {
    for (bits, count) in counts.iter().enumerate() {
        if rank < *count {
            return (prefix << 16 | bits as u64, rank);
        }
        rank -= count;
    }
    (prefix << 16 | 0xffff, rank)
}

fn key(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn value(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

/// The rank at or below a percentile, and the fraction to the next one.
fn rank_of(percentile: f64, n: u64) -> (u64, f64) {
    let rank = percentile / 100.0 * n.saturating_sub(1) as f64;
    (rank.floor() as u64, rank - rank.floor())
}

fn between(requested: &[f64], n: u64, element: impl Fn(u64) -> f64) -> Vec<f64> {
    let one = |percentile: &f64| {
        if n == 0 {
            return f64::NAN;
        }
        let (rank, share) = rank_of(*percentile, n);
        let low = element(rank);
        if share == 0.0 || rank + 1 >= n {
            return low;
        }
        let high = element(rank + 1);
        if low == high {
            return low;
        }
        if share < 0.5 { low + (high - low) * share } else { high - (high - low) * (1.0 - share) }
    };
    requested.iter().map(one).collect()
}
