//! Reductions of a tensor, all 18 in one pass over its bytes.
//!
//! Results have numpy's dtypes and numpy's treatment of NaN and infinity. std and variance divide by n; norms are over all
//! elements for any rank. Results are at least as accurate as numpy's: within one unit in the last place of the exact
//! value, also where numpy overflows in an intermediate result.

mod complex;
mod dd;
mod exact;
mod float;
mod int;
mod lanes;
mod norm;
mod real;
mod scalar;
#[cfg(test)]
mod tests;

pub(crate) use complex::magnitude;
pub(crate) use dd::{Dd, exponent, ldexp, power_of_two};
pub(crate) use float::block as float_block;
pub(crate) use lanes::{Float, each as each_group, left_over};
pub use norm::norm;
pub(crate) use real::BLOCK;
pub use scalar::{Scalar, Value};

use crate::error::{Error, Result};
use crate::simd::InstructionSet;
use crate::tensor::DType;

/// A reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// The minimum; NaN if any element is NaN.
    Min,
    /// The maximum; NaN if any element is NaN.
    Max,
    /// The mean.
    Mean,
    /// The product of all elements.
    Prod,
    /// The standard deviation, over n.
    Std,
    /// The sum of all elements.
    Sum,
    /// The variance, over n.
    Variance,
    /// The L1 norm.
    L1,
    /// The L2 norm.
    L2,
}

impl Op {
    /// All reductions, in the order of smdebug's names.
    pub const ALL: [Op; 9] = [Op::Min, Op::Max, Op::Mean, Op::Prod, Op::Std, Op::Sum, Op::Variance, Op::L1, Op::L2];

    /// The name in the format: "min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2".
    pub fn name(self) -> &'static str {
        match self {
            Op::Min => "min",
            Op::Max => "max",
            Op::Mean => "mean",
            Op::Prod => "prod",
            Op::Std => "std",
            Op::Sum => "sum",
            Op::Variance => "variance",
            Op::L1 => "l1",
            Op::L2 => "l2",
        }
    }

    /// The reduction of a name in the format.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// A set of reductions, so that only requested ones are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpSet(u32);

impl OpSet {
    /// All 18.
    pub const ALL: OpSet = OpSet((1 << 18) - 1);
    /// No reductions, only the counts.
    pub const NONE: OpSet = OpSet(0);
    /// All but the two products, which need extra work per element.
    pub const CHEAP: OpSet = OpSet(OpSet::ALL.0 & !(0b11 << (2 * Op::Prod as u32)));

    /// The set with one more reduction.
    #[must_use]
    pub fn with(self, op: Op, abs: bool) -> OpSet {
        OpSet(self.0 | 1 << OpSet::bit(op, abs))
    }

    /// The set without one reduction.
    #[must_use]
    pub fn without(self, op: Op, abs: bool) -> OpSet {
        OpSet(self.0 & !(1 << OpSet::bit(op, abs)))
    }

    /// Whether the set has a reduction.
    pub fn has(self, op: Op, abs: bool) -> bool {
        self.0 >> OpSet::bit(op, abs) & 1 == 1
    }

    fn bit(op: Op, abs: bool) -> u32 {
        2 * op as u32 + u32::from(abs)
    }

    fn without_product(self) -> OpSet {
        OpSet(self.0 & OpSet::CHEAP.0)
    }

    fn product(self) -> bool {
        self.0 & !OpSet::CHEAP.0 != 0
    }

    fn moments(self) -> bool {
        let extremes = 0b1111;
        self.0 & OpSet::CHEAP.0 & !extremes != 0
    }
}

impl FromIterator<(Op, bool)> for OpSet {
    fn from_iter<I: IntoIterator<Item = (Op, bool)>>(requested: I) -> OpSet {
        requested.into_iter().fold(OpSet::NONE, |set, (op, abs)| set.with(op, abs))
    }
}

/// Counts of elements by kind. A complex element is NaN if a part is, else infinite (counted as positive) if a part is,
/// else zero if both are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All elements.
    pub n: u64,
    /// NaN elements.
    pub nan: u64,
    /// Elements equal to +inf.
    pub pos_inf: u64,
    /// Elements equal to -inf.
    pub neg_inf: u64,
    /// Elements equal to 0 or -0.
    pub zeros: u64,
}

impl Counts {
    /// Finite elements.
    pub fn finite(&self) -> u64 {
        self.n - self.nan - self.pos_inf - self.neg_inf
    }
}

/// The reductions and counts of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Reductions {
    /// The dtype of the tensor.
    pub dtype: DType,
    /// The counts.
    pub counts: Counts,
    values: [[Option<Scalar>; 2]; 9],
}

impl Reductions {
    fn new(dtype: DType, counts: Counts) -> Reductions {
        Reductions { dtype, counts, values: [[None; 2]; 9] }
    }

    fn set(&mut self, op: Op, abs: bool, number: Scalar) {
        self.values[op as usize][usize::from(abs)] = Some(number);
    }

    /// A reduction of x or |x|; NaN where [`Reductions::try_get`] is `None`.
    pub fn get(&self, op: Op, abs: bool) -> Scalar {
        self.try_get(op, abs).unwrap_or_else(|| Scalar::from_f64(DType::F64, f64::NAN))
    }

    /// A reduction of x or |x|; `None` for the minimum and maximum of an empty tensor and for reductions that were not
    /// requested.
    pub fn try_get(&self, op: Op, abs: bool) -> Option<Scalar> {
        self.values[op as usize][usize::from(abs)]
    }
}

/// Reductions of a tensor, all 18 in one pass over its bytes.
///
/// Results have numpy's dtypes and numpy's treatment of NaN and infinity. std and variance divide by n; norms are over all
/// elements for any rank. Results are at least as accurate as numpy's: within one unit in the last place of the exact
/// value, also where numpy overflows in an intermediate result.
///
/// ```
/// use smdwidgets_core::reduce::{reduce, Op};
/// use smdwidgets_core::tensor::DType;
/// let data: Vec<u8> = [3.0f32, -4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// let r = reduce(DType::F32, &data)?;
/// assert_eq!(r.get(Op::L2, false).to_f64(), 5.0);
/// assert_eq!(r.get(Op::Min, true).to_f64(), 3.0);
/// # Ok::<(), smdwidgets_core::error::Error>(())
/// ```
pub fn reduce(dtype: DType, data: &[u8]) -> Result<Reductions> {
    reduce_some(dtype, data, OpSet::ALL)
}

/// Computes the reductions in `requested`, and others that cost nothing extra. The counts are always included.
pub fn reduce_some(dtype: DType, data: &[u8], requested: OpSet) -> Result<Reductions> {
    reduce_by(InstructionSet::best(), dtype, data, requested)
}

/// As [`reduce_some`] with a given instruction set, for tests.
pub fn reduce_by(isa: InstructionSet, dtype: DType, data: &[u8], requested: OpSet) -> Result<Reductions> {
    elements(dtype, data, "reduced")?;
    Ok(match dtype {
        dtype if dtype.is_float() => float::reduce(isa, dtype, data, requested),
        DType::C64 | DType::C128 => complex::reduce(isa, dtype, data, requested),
        _ => int::reduce(isa, dtype, data, requested),
    })
}

/// The moments of the finite elements of a tensor, as f64; magnitudes of complex elements. Values other than the counts and
/// norms are NaN without finite elements.
pub(crate) struct FiniteMoments {
    /// Counts of all elements.
    pub counts: Counts,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub std: f64,
    pub l1: f64,
    pub l2: f64,
}

/// Moments of the finite elements, with the sums of [`reduce`]. `observe` sees each [`float_block`] of a real float tensor.
pub(crate) fn finite_moments(
    isa: InstructionSet,
    dtype: DType,
    data: &[u8],
    observe: &mut dyn FnMut(&[u8]),
) -> Result<FiniteMoments> {
    elements(dtype, data, "reduced")?;
    let (counts, summary) = match dtype {
        dtype if dtype.is_float() => float::summarise_finite(isa, dtype, data, observe),
        DType::C64 | DType::C128 => complex::summarise_finite(isa, dtype, data),
        _ => {
            let all = int::reduce(isa, dtype, data, OpSet::CHEAP);
            let of = |op| all.get(op, false).to_f64();
            let (min, max, mean, std) = (of(Op::Min), of(Op::Max), of(Op::Mean), of(Op::Std));
            return Ok(FiniteMoments { counts: all.counts, min, max, mean, std, l1: of(Op::L1), l2: of(Op::L2) });
        }
    };
    let float::Finished { mean, std, l1, l2, .. } = float::Finished::of(&summary, false);
    Ok(FiniteMoments { counts, min: summary.min, max: summary.max, mean, std, l1, l2 })
}

/// The number of elements in `data`; an error for strings and incomplete elements.
pub(crate) fn elements(dtype: DType, data: &[u8], done: &str) -> Result<u64> {
    let size = dtype.item_size();
    if size == 0 {
        return Err(Error::Invalid(format!("a string tensor ({}) cannot be {done}", dtype.name())));
    }
    if !data.len().is_multiple_of(size) {
        let (len, name) = (data.len(), dtype.name());
        return Err(Error::Invalid(format!("{len} bytes are not a multiple of the {size} bytes of a {name} element")));
    }
    Ok((data.len() / size) as u64)
}
