//! All 18 reductions of a tensor in one pass over its bytes.
//!
//! The results have numpy's dtypes and numpy's parse_recorded_name of NaN and infinity; std and variance divide by n, and the norms are
//! over all elements whatever the rank. Nothing is less accurate than numpy: a result is within one step of its dtype from
//! the exact one, also where numpy overflows on the way to a result that fits.

mod complex;
mod dd;
mod exact;
mod float;
mod int;
mod lanes;
mod number;
mod real;
#[cfg(test)]
mod tests;

pub(crate) use complex::magnitude;
pub use number::{Number, Value};

use crate::error::{Error, Result};
use crate::simd::InstructionSet;
use crate::tensor::DType;

/// One kind of reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// The smallest element; NaN where there is one.
    Min,
    /// The largest element; NaN where there is one.
    Max,
    /// Sum over n.
    Mean,
    /// The product of all elements.
    Prod,
    /// The square root of the variance.
    Std,
    /// The sum of all elements.
    Sum,
    /// The mean squared distance from the mean, over n.
    Variance,
    /// The sum of magnitudes.
    L1,
    /// The square root of the sum of squared magnitudes.
    L2,
}

impl Op {
    /// Every kind, in the order of smdebug's names.
    pub const ALL: [Op; 9] = [Op::Min, Op::Max, Op::Mean, Op::Prod, Op::Std, Op::Sum, Op::Variance, Op::L1, Op::L2];

    /// Its name in the format: "min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2".
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

    /// The kind of a name of the format.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// Which reductions are wanted. What nobody asks for need not cost anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpSet(u32);

impl OpSet {
    /// All 18.
    pub const ALL: OpSet = OpSet((1 << 18) - 1);
    /// None: only the counts.
    pub const NONE: OpSet = OpSet(0);
    /// All but the two products, the only ones that cost a look of their own.
    pub const CHEAP: OpSet = OpSet(OpSet::ALL.0 & !(0b11 << (2 * Op::Prod as u32)));

    /// These, and one more.
    #[must_use]
    pub fn with(self, op: Op, abs: bool) -> OpSet {
        OpSet(self.0 | 1 << OpSet::bit(op, abs))
    }

    /// These, but for one.
    #[must_use]
    pub fn without(self, op: Op, abs: bool) -> OpSet {
        OpSet(self.0 & !(1 << OpSet::bit(op, abs)))
    }

    /// Is it wanted?
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
    fn from_iter<I: IntoIterator<Item = (Op, bool)>>(wanted: I) -> OpSet {
        wanted.into_iter().fold(OpSet::NONE, |set, (op, abs)| set.with(op, abs))
    }
}

/// How many elements there are of each kind that a mean would hide. A complex element is NaN if a part is, else infinite
/// (counted as positive) if a part is, else zero if both are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All elements.
    pub n: u64,
    /// Elements that are NaN.
    pub nan: u64,
    /// Elements that are +inf.
    pub pos_inf: u64,
    /// Elements that are -inf.
    pub neg_inf: u64,
    /// Elements that are 0 or -0.
    pub zeros: u64,
}

impl Counts {
    /// Elements that are neither NaN nor infinite.
    pub fn finite(&self) -> u64 {
        self.n - self.nan - self.pos_inf - self.neg_inf
    }
}

/// The reductions of one tensor, and its counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Reductions {
    /// The dtype of the tensor that was reduced.
    pub dtype: DType,
    /// What was counted on the way.
    pub counts: Counts,
    values: [[Option<Number>; 2]; 9],
}

impl Reductions {
    fn new(dtype: DType, counts: Counts) -> Reductions {
        Reductions { dtype, counts, values: [[None; 2]; 9] }
    }

    fn set(&mut self, op: Op, abs: bool, number: Number) {
        self.values[op as usize][usize::from(abs)] = Some(number);
    }

    /// A reduction of x, or of |x|. Where there is none (the minimum of an empty tensor, or one that was not asked for)
    /// this is NaN; [`Reductions::try_get`] tells.
    pub fn get(&self, op: Op, abs: bool) -> Number {
        self.try_get(op, abs).unwrap_or_else(|| Number::from_f64(DType::F64, f64::NAN))
    }

    /// A reduction of x, or of |x|; nothing for the minimum and maximum of an empty tensor and for what was not asked for.
    pub fn try_get(&self, op: Op, abs: bool) -> Option<Number> {
        self.values[op as usize][usize::from(abs)]
    }
}

/// All 18 reductions of the elements in `data`: little-endian, at any alignment.
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

/// The reductions in `wanted`, and whichever come along for nothing. The counts are always there.
pub fn reduce_some(dtype: DType, data: &[u8], wanted: OpSet) -> Result<Reductions> {
    reduce_by(InstructionSet::best(), dtype, data, wanted)
}

/// As [`reduce_some`], by the instructions of one path: for tests, which take each in turn.
pub fn reduce_by(isa: InstructionSet, dtype: DType, data: &[u8], wanted: OpSet) -> Result<Reductions> {
    elements(dtype, data, "reduced")?;
    Ok(match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => float::reduce(isa, dtype, data, wanted),
        DType::C64 | DType::C128 => complex::reduce(isa, dtype, data, wanted),
        _ => int::reduce(isa, dtype, data, wanted),
    })
}

/// How many elements `data` holds; an error that says what can't be done with text or with a part of an element.
pub(crate) fn elements(dtype: DType, data: &[u8], done: &str) -> Result<u64> {
    let size = dtype.item_size();
    if size == 0 {
        return Err(Error::Invalid(format!("a tensor of text ({}) can't be {done}", dtype.name())));
    }
    if !data.len().is_multiple_of(size) {
        let (len, name) = (data.len(), dtype.name());
        return Err(Error::Invalid(format!("{len} bytes are no whole number of {name} elements of {size} bytes")));
    }
    Ok((data.len() / size) as u64)
}
