//! Elements at the ends of the range of a type of 8 or 4 bits.

use crate::tensor::DType;

/// The number of elements whose magnitude is the largest finite one, and of those that are subnormal; 0 for other types.
pub fn limits(dtype: DType, data: &[u8]) -> (u64, u64) {
    let Some(small) = dtype.small() else { return (0, 0) };
    let mut counts = [0u64; 256];
    data.iter().for_each(|code| counts[usize::from(*code)] += 1);
    let sum = |of: &[bool; 256]| counts.iter().zip(of).filter(|(_, is)| **is).map(|(count, _)| count).sum();
    (sum(&small.largest), sum(&small.subnormal))
}
