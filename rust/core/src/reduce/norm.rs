//! The l2 norm alone, for which a plain sum of squares in double precision is enough.

use super::{Op, OpSet, reduce_some};
use crate::error::Result;
use crate::simd::{InstructionSet, Kernel, fetch_ahead};
use crate::tensor::DType;

const SIZE: usize = size_of::<f32>();
/// Sums that do not wait for each other.
const SUMS: usize = 4;
/// Bytes to prefetch ahead.
const AHEAD: usize = 2048;

/// Computes the l2 norm of all elements.
///
/// The squares of f32 are exact in double precision, so that the result is as good as the sum. Other dtypes are reduced as
/// by [`super::reduce_some`].
pub fn norm(dtype: DType, data: &[u8]) -> Result<f64> {
    if dtype == DType::F32 && data.len().is_multiple_of(SIZE) {
        return Ok(InstructionSet::best().run(Squares(data)).sqrt());
    }
    Ok(reduce_some(dtype, data, OpSet::NONE.with(Op::L2, false))?.get(Op::L2, false).to_f64())
}

/// The sum of the squares of f32.
struct Squares<'a>(&'a [u8]);

impl Kernel for Squares<'_> {
    type Out = f64;

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> f64 {
        let mut sums = [[0.0; LANES]; SUMS];
        let mut rows = self.0.chunks_exact(SIZE * LANES * SUMS);
        let mut at = 0;
        for row in &mut rows {
            fetch_ahead(self.0, at + AHEAD);
            at += row.len();
            for (sum, part) in sums.iter_mut().zip(row.chunks_exact(SIZE * LANES)) {
                for (sum, element) in sum.iter_mut().zip(part.chunks_exact(SIZE)) {
                    let wide = wide(element);
                    *sum = if FMA { wide.mul_add(wide, *sum) } else { *sum + wide * wide };
                }
            }
        }
        let rest: f64 = rows.remainder().chunks_exact(SIZE).map(|element| wide(element) * wide(element)).sum();
        sums.iter().flatten().sum::<f64>() + rest
    }
}

#[inline(always)]
fn wide(element: &[u8]) -> f64 {
    let mut raw = [0; SIZE];
    raw.copy_from_slice(&element[..SIZE]);
    f32::from_le_bytes(raw).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_is_that_of_the_exact_reduction() {
        for n in [0, 1, 3, 31, 64, 1000, 70_001] {
            let values: Vec<f32> = (0..n).map(|at| (at as f32 * 0.37).sin() * 1e3).collect();
            let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let exact: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
            for isa in InstructionSet::available() {
                let found = isa.run(Squares(&data)).sqrt();
                assert!((found - exact).abs() <= 1e-13 * exact, "{n}: {found} is not {exact} ({isa:?})");
            }
            let wide: Vec<u8> = values.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect();
            assert!((norm(DType::F64, &wide).unwrap() - exact).abs() <= 1e-13 * exact);
        }
    }

    #[test]
    fn values_that_are_not_finite_stay_visible() {
        let norm_of = |values: [f32; 3]| norm(DType::F32, &values.map(f32::to_le_bytes).concat()).unwrap();
        assert!(norm_of([1.0, f32::NAN, 2.0]).is_nan());
        assert_eq!(norm_of([1.0, f32::NEG_INFINITY, 2.0]), f64::INFINITY);
        assert!(norm_of([f32::MAX; 3]).is_finite());
    }
}
