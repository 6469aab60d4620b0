//! The difference of two tensors, element by element, and the elements that changed most.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::values::{self, BLOCK};
use crate::error::{Error, Result};
use crate::reduce::magnitude;
use crate::tensor::DType;

/// Limit on the elements that are listed as changed.
pub const MAX_CHANGED: usize = 1 << 16;

/// `a - b`, as 64-bit floats; complex if one of them is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// F64 or C128.
    pub dtype: DType,
    /// The elements.
    pub bytes: Vec<u8>,
    /// Number of elements that changed.
    pub changed: u64,
    /// The positions of those that changed most, in C order, the largest change first and equal ones by position.
    /// An element that is not finite in one tensor, or is another infinity, changed most of all.
    pub top: Vec<u64>,
}

/// Subtracts `b` from `a`, which have the same number of elements, and finds the `most` that changed most.
///
/// Each difference is rounded once. 64-bit integers are subtracted from integers as such.
///
/// ```
/// use smdwidgets_core::picture::difference;
/// use smdwidgets_core::tensor::DType;
/// let bytes = |values: [f32; 3]| values.map(f32::to_le_bytes).concat();
/// let found = difference((DType::F32, &bytes([1.0, 2.0, 5.0])), (DType::F32, &bytes([1.0, 4.0, 4.0])), 8)?;
/// assert_eq!(found.bytes, [0.0, -2.0, 1.0].map(f64::to_le_bytes).concat());
/// assert_eq!((found.changed, found.top), (2, vec![1, 2]));
/// # Ok::<(), smdwidgets_core::error::Error>(())
/// ```
pub fn difference(a: (DType, &[u8]), b: (DType, &[u8]), most: usize) -> Result<Difference> {
    let n = values::count(a.0, a.1)?;
    let others = values::count(b.0, b.1)?;
    if n != others {
        return Err(Error::Invalid(format!("cannot subtract {others} elements from {n}")));
    }
    if most > MAX_CHANGED {
        return Err(Error::Invalid(format!("too many changed elements: {most}; the limit is {MAX_CHANGED}")));
    }
    let mut top = Top::new(most);
    let complex = is_complex(a.0) || is_complex(b.0);
    let mut bytes = Vec::with_capacity(n as usize * if complex { 16 } else { 8 });
    if complex {
        for at in 0..n as usize {
            let (x, y) = (parts(a, at), parts(b, at));
            let (re, im) = (x.0 - y.0, x.1 - y.1);
            let same = unchanged(x.0, y.0) && unchanged(x.1, y.1);
            top.add(at as u64, if same { 0.0 } else { magnitude(re, im) });
            bytes.extend_from_slice(&re.to_le_bytes());
            bytes.extend_from_slice(&im.to_le_bytes());
        }
        return Ok(Difference { dtype: DType::C128, bytes, changed: top.changed, top: top.sorted() });
    }
    if is_integer(a.0) && is_integer(b.0) && (is_long(a.0) || is_long(b.0)) {
        for at in 0..n as usize {
            let apart = (integer(a, at) - integer(b, at)) as f64;
            top.add(at as u64, apart.abs());
            bytes.extend_from_slice(&apart.to_le_bytes());
        }
        return Ok(Difference { dtype: DType::F64, bytes, changed: top.changed, top: top.sorted() });
    }
    let (mut left, mut right) = ([0.0; BLOCK], [0.0; BLOCK]);
    let (size, other) = (a.0.item_size(), b.0.item_size());
    for first in (0..n as usize).step_by(BLOCK) {
        let end = (first + BLOCK).min(n as usize);
        let (left, right) = (&mut left[..end - first], &mut right[..end - first]);
        values::read(a.0, &a.1[first * size..end * size], left);
        values::read(b.0, &b.1[first * other..end * other], right);
        let floor = top.floor();
        let mut any = false;
        for (x, y) in left.iter().zip(right.iter()) {
            let apart = x - y;
            bytes.extend_from_slice(&apart.to_le_bytes());
            any |= apart.is_nan() || apart.abs() > floor;
            top.changed += u64::from(apart != 0.0);
        }
        if !any {
            continue;
        }
        for (at, (x, y)) in (first..end).zip(left.iter().zip(right.iter())) {
            let apart = x - y;
            if apart.is_nan() && unchanged(*x, *y) {
                top.changed -= 1; // was counted above
            } else {
                top.keep(at as u64, apart.abs());
            }
        }
    }
    Ok(Difference { dtype: DType::F64, bytes, changed: top.changed, top: top.sorted() })
}

/// Whether an element kept its value: a NaN did if it is still one.
fn unchanged(x: f64, y: f64) -> bool {
    x == y || (x.is_nan() && y.is_nan())
}

fn is_complex(dtype: DType) -> bool {
    matches!(dtype, DType::C64 | DType::C128)
}

/// Whether f64 does not have all values.
fn is_long(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::U64)
}

fn is_integer(dtype: DType) -> bool {
    is_long(dtype)
        || matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 | DType::U32 | DType::Bool)
}

fn integer((dtype, data): (DType, &[u8]), at: usize) -> i128 {
    let size = dtype.item_size();
    let raw = &data[at * size..(at + 1) * size];
    let long = || std::array::from_fn(|i| raw[i]);
    match dtype {
        DType::U64 => u64::from_le_bytes(long()).into(),
        DType::I64 => i64::from_le_bytes(long()).into(),
        _ => {
            let mut out = [0.0];
            values::read(dtype, raw, &mut out);
            out[0] as i128
        }
    }
}

/// The real and imaginary part of an element.
fn parts((dtype, data): (DType, &[u8]), at: usize) -> (f64, f64) {
    let size = dtype.item_size();
    let part = if dtype == DType::C64 { DType::F32 } else { DType::F64 };
    let mut out = [0.0; 2];
    if is_complex(dtype) {
        values::read(part, &data[at * size..(at + 1) * size], &mut out);
    } else {
        values::read(dtype, &data[at * size..(at + 1) * size], &mut out[..1]);
    }
    (out[0], out[1])
}

/// A change of an element; the larger one is greater, of equal ones that of the first element.
#[derive(PartialEq)]
struct Change(f64, Reverse<u64>);

impl Eq for Change {}
impl PartialOrd for Change {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Change {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// The largest changes so far.
struct Top {
    most: usize,
    changed: u64,
    heap: BinaryHeap<Reverse<Change>>,
}

impl Top {
    fn new(most: usize) -> Top {
        Top { most, changed: 0, heap: BinaryHeap::with_capacity(most) }
    }

    /// A change that is not larger than this is not among the largest.
    fn floor(&self) -> f64 {
        match self.heap.peek() {
            _ if self.most == 0 => f64::INFINITY,
            Some(Reverse(least)) if self.heap.len() == self.most => least.0,
            _ => 0.0,
        }
    }

    fn add(&mut self, at: u64, change: f64) {
        self.changed += u64::from(change != 0.0);
        self.keep(at, change);
    }

    fn keep(&mut self, at: u64, change: f64) {
        let change = if change.is_nan() { f64::INFINITY } else { change };
        if change == 0.0 || self.most == 0 {
            return;
        }
        // Positions rise, so that an equal change never comes before one that is kept.
        if self.heap.len() < self.most {
            self.heap.push(Reverse(Change(change, Reverse(at))));
        } else if change > self.floor() {
            self.heap.pop();
            self.heap.push(Reverse(Change(change, Reverse(at))));
        }
    }

    fn sorted(self) -> Vec<u64> {
        // Ascending in the reversed order: the largest change first.
        self.heap.into_sorted_vec().into_iter().map(|Reverse(Change(_, Reverse(at)))| at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values as floats of `N` bytes.
    fn bytes<const N: usize>(values: &[f64]) -> Vec<u8> {
        values
            .iter()
            .flat_map(
                |value| if N == 4 { (*value as f32).to_le_bytes().to_vec() } else { value.to_le_bytes().to_vec() },
            )
            .collect()
    }

    fn floats(found: &Difference) -> Vec<f64> {
        found.bytes.as_chunks::<8>().0.iter().map(|raw| f64::from_le_bytes(*raw)).collect()
    }

    #[test]
    fn differences_of_dtypes_are_exact() {
        let a = bytes::<4>(&[1.5, -2.0, 0.25]);
        let b: Vec<u8> = [1i8, -2, 3].iter().map(|value| *value as u8).collect();
        let found = difference((DType::F32, &a), (DType::I8, &b), 4).unwrap();
        assert_eq!((found.dtype, floats(&found)), (DType::F64, vec![0.5, 0.0, -2.75]));
        assert_eq!((found.changed, found.top), (2, vec![2, 0]));
    }

    #[test]
    fn long_integers_are_subtracted_before_they_are_rounded() {
        let a: Vec<u8> = [i64::MAX, i64::MIN].iter().flat_map(|value| value.to_le_bytes()).collect();
        let b: Vec<u8> = [i64::MAX as u64 - 1, 0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = difference((DType::I64, &a), (DType::U64, &b), 4).unwrap();
        assert_eq!(floats(&found), [1.0, i64::MIN as f64]);
    }

    #[test]
    fn changes_that_are_not_finite_come_first_and_unchanged_ones_not_at_all() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let a = bytes::<8>(&[9.0, nan, nan, inf, inf, 1.0, 2.0]);
        let b = bytes::<8>(&[0.0, nan, 1.0, inf, -inf, 1.0, 1.0]);
        let found = difference((DType::F64, &a), (DType::F64, &b), 8).unwrap();
        assert_eq!(found.changed, 4);
        assert_eq!(found.top, [2, 4, 0, 6]);
        assert!(floats(&found)[1].is_nan() && floats(&found)[3].is_nan());
    }

    #[test]
    fn the_largest_changes_are_those_of_a_full_sort() {
        let n = 3 * BLOCK + 17;
        let a: Vec<f64> = (0..n).map(|i| ((i * 7919) % 1009) as f64).collect();
        let b = vec![500.0; n];
        for most in [0, 1, 12, 64, n] {
            let found = difference((DType::F64, &bytes::<8>(&a)), (DType::F64, &bytes::<8>(&b)), most).unwrap();
            let mut order: Vec<u64> = (0..n as u64).filter(|i| a[*i as usize] != 500.0).collect();
            order.sort_by(|i, j| {
                let change = |at: u64| (a[at as usize] - 500.0).abs();
                change(*j).total_cmp(&change(*i)).then(i.cmp(j))
            });
            assert_eq!(found.changed, order.len() as u64);
            assert_eq!(found.top, order[..most.min(order.len())]);
        }
    }

    #[test]
    fn complex_numbers_change_by_magnitude() {
        let a = bytes::<4>(&[3.0, 4.0, 1.0, 1.0, f64::NAN, 0.0]);
        let b = bytes::<8>(&[0.0, 1.0, f64::NAN]);
        let found = difference((DType::C64, &a), (DType::F64, &b), 8).unwrap();
        assert_eq!((found.dtype, found.changed), (DType::C128, 2));
        assert_eq!(floats(&found)[..4], [3.0, 4.0, 0.0, 1.0]);
        assert_eq!(found.top, [0, 1]);
    }

    #[test]
    fn text_and_other_lengths_are_refused() {
        let two = bytes::<8>(&[1.0, 2.0]);
        assert!(difference((DType::F64, &two), (DType::F64, &two[..8]), 4).is_err());
        assert!(difference((DType::Str, &[]), (DType::F64, &[]), 4).is_err());
        assert!(difference((DType::F64, &two), (DType::F64, &two), MAX_CHANGED + 1).is_err());
        assert!(difference((DType::F64, &[]), (DType::F32, &[]), 4).unwrap().top.is_empty());
    }
}
