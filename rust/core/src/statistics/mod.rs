//! The statistics of a tensor: one record of numbers for hooks, the statistics file, queries and the diagnosis.
//!
//! Moments are of finite elements only, so a single NaN does not blank the rest. They are the sums of
//! [`reduce`](crate::reduce), not rounded to the tensor's dtype.

mod change;
mod combine;
mod limits;
#[cfg(test)]
mod tests;

pub use combine::combine;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::pool;
use crate::reduce::finite_moments;
use crate::simd::InstructionSet;
use crate::tensor::DType;

/// The statistics of a tensor. Complex elements count by kind as in [`Counts`](crate::reduce::Counts), and by magnitude
/// otherwise.
///
/// Without finite elements, `min`, `max`, `mean`, `std` and `abs_max` are NaN and the norms are 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// All elements.
    pub count: u64,
    /// NaN elements.
    pub nan: u64,
    /// Elements equal to -inf.
    pub neg_inf: u64,
    /// Elements equal to +inf.
    pub pos_inf: u64,
    /// Elements equal to 0 or -0.
    pub zeros: u64,
    /// Elements whose magnitude is the largest finite one of a type of 8 or 4 bits; 0 for other types.
    pub saturated: u64,
    /// Elements between zero and the least normal number of a type of 8 or 4 bits; 0 for other types.
    pub subnormal: u64,
    /// The minimum of the finite elements.
    pub min: f64,
    /// Their maximum.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, over n.
    pub std: f64,
    /// Their L1 norm.
    pub l1: f64,
    /// Their L2 norm.
    pub l2: f64,
    /// The maximum of their magnitudes.
    pub abs_max: f64,
    /// The L2 norm of the change since the previous tensor, of elements that are finite in both; NaN without one.
    pub update: f64,
}

impl Statistics {
    /// Finite elements.
    pub fn finite(&self) -> u64 {
        self.count.saturating_sub(self.nan).saturating_sub(self.neg_inf).saturating_sub(self.pos_inf)
    }

    /// The L2 norm that follows from the other numbers, for records that do not store it.
    pub fn derived_l2(&self) -> f64 {
        if self.finite() == 0 { 0.0 } else { (self.finite() as f64).sqrt() * self.mean.hypot(self.std) }
    }

    /// The largest magnitude that follows from the extremes.
    pub fn derived_abs_max(&self) -> f64 {
        self.min.abs().max(self.max.abs())
    }
}

/// Computes the statistics of a tensor in one pass. `previous` has the same dtype and shape.
///
/// ```
/// use smdwidgets_core::statistics::statistics;
/// use smdwidgets_core::tensor::DType;
/// let bytes = |values: [f32; 3]| values.map(f32::to_le_bytes).concat();
/// let s = statistics(DType::F32, &bytes([3.0, f32::NAN, -4.0]), Some(&bytes([0.0, 1.0, 0.0])))?;
/// assert_eq!((s.count, s.nan, s.min, s.max, s.l2, s.update), (3, 1, -4.0, 3.0, 5.0, 5.0));
/// # Ok::<(), smdwidgets_core::error::Error>(())
/// ```
pub fn statistics(dtype: DType, data: &[u8], previous: Option<&[u8]>) -> Result<Statistics> {
    statistics_by(InstructionSet::best(), dtype, data, previous)
}

/// A tensor: its dtype, its bytes and those of the previous one.
pub type Given<'t> = (DType, &'t [u8], Option<&'t [u8]>);

/// The statistics of many tensors, by a number of threads.
pub fn statistics_of(tensors: &[Given<'_>], threads: usize) -> Result<Vec<Statistics>> {
    let each = |(dtype, data, previous): &Given<'_>| statistics(*dtype, data, *previous);
    if threads <= 1 || tensors.len() <= 1 {
        return tensors.iter().map(each).collect();
    }
    pool::run(Some(threads), || tensors.par_iter().map(each).collect())?
}

/// As [`statistics`] with a given instruction set, for tests.
pub fn statistics_by(isa: InstructionSet, dtype: DType, data: &[u8], previous: Option<&[u8]>) -> Result<Statistics> {
    if let Some(previous) = previous.filter(|previous| previous.len() != data.len()) {
        let (had, has) = (previous.len(), data.len());
        return Err(Error::Invalid(format!(
            "the previous tensor has {had} bytes and this one {has}; sizes must match"
        )));
    }
    let mut change = change::Change::new(isa, dtype, previous);
    let moments = finite_moments(isa, dtype, data, &mut |block| change.add(block))?;
    let counts = moments.counts;
    let (saturated, subnormal) = limits::limits(dtype, data);
    Ok(Statistics {
        count: counts.n,
        nan: counts.nan,
        neg_inf: counts.neg_inf,
        pos_inf: counts.pos_inf,
        zeros: counts.zeros,
        saturated,
        subnormal,
        min: moments.min,
        max: moments.max,
        mean: moments.mean,
        std: moments.std,
        l1: moments.l1,
        l2: moments.l2,
        abs_max: moments.min.abs().max(moments.max.abs()),
        update: change.finish(data),
    })
}
