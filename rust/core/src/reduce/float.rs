//! Reductions of floats of 4 to 64 bits.

use std::marker::PhantomData;

use half::slice::HalfFloatSliceExt;

use super::dd::ldexp;
use super::real::{BLOCK, BlockSums, Blocks, InPlace, Summary, summarise};
use super::{Counts, Op, OpSet, Reductions, Scalar};
use crate::simd::InstructionSet;
use crate::tensor::{DType, SmallFloat};

/// 16-bit floats, converted to f32 block by block.
struct Widened<'a, H>(&'a [u8], PhantomData<H>);

trait Half: Copy {
    fn widen(bytes: &[u8], wide: &mut [f32]);
}

impl Half for half::f16 {
    fn widen(bytes: &[u8], wide: &mut [f32]) {
        let mut narrow = [half::f16::ZERO; BLOCK];
        let narrow = &mut narrow[..wide.len()];
        for (element, raw) in narrow.iter_mut().zip(bytes.chunks_exact(2)) {
            *element = half::f16::from_le_bytes([raw[0], raw[1]]);
        }
        narrow.convert_to_f32_slice(wide);
    }
}

impl Half for half::bf16 {
    fn widen(bytes: &[u8], wide: &mut [f32]) {
        for (element, raw) in wide.iter_mut().zip(bytes.chunks_exact(2)) {
            *element = f32::from_bits(u32::from(u16::from_le_bytes([raw[0], raw[1]])) << 16);
        }
    }
}

impl<H: Half> Blocks<f32> for Widened<'_, H> {
    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let mut wide = [0.0; BLOCK];
        let mut bytes = [0; BLOCK * 4];
        for block in self.0.chunks(BLOCK * 2) {
            let n = block.len() / 2;
            H::widen(block, &mut wide[..n]);
            for (to, from) in bytes.chunks_exact_mut(4).zip(&wide[..n]) {
                to.copy_from_slice(&from.to_le_bytes());
            }
            each(&bytes[..n * 4], &[]);
        }
    }
}

/// Floats of 8 or 4 bits, converted to f32 block by block.
struct Decoded<'a>(&'a [u8], &'static SmallFloat);

impl Blocks<f32> for Decoded<'_> {
    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let mut bytes = [0; BLOCK * 4];
        for block in self.0.chunks(BLOCK) {
            for (to, code) in bytes.chunks_exact_mut(4).zip(block) {
                to.copy_from_slice(&self.1.values[usize::from(*code)].to_le_bytes());
            }
            each(&bytes[..block.len() * 4], &[]);
        }
    }
}

/// Reductions of floats of `dtype`.
pub fn reduce(isa: InstructionSet, dtype: DType, data: &[u8], requested: OpSet) -> Reductions {
    if let Some(small) = dtype.small() {
        return real(isa, dtype, &Decoded(data, small), requested, 24);
    }
    match dtype {
        DType::F16 => real(isa, dtype, &Widened::<half::f16>(data, PhantomData), requested, 11),
        DType::BF16 => real(isa, dtype, &Widened::<half::bf16>(data, PhantomData), requested, 8),
        DType::F32 => real::<f32>(isa, dtype, &InPlace(data), requested, 24),
        _ => real::<f64>(isa, DType::F64, &InPlace(data), requested, 53),
    }
}

fn real<T: BlockSums>(
    isa: InstructionSet,
    dtype: DType,
    blocks: &dyn Blocks<T>,
    requested: OpSet,
    precision: i32,
) -> Reductions {
    let summary = summarise(isa, blocks, requested, precision);
    let mut out = Reductions::new(dtype, summary.counts);
    let mut set = |op, abs, value| out.set(op, abs, Scalar::from_f64(dtype, value));
    for abs in [false, true] {
        let values = Finished::of(&summary, abs);
        if summary.counts.n > 0 {
            set(Op::Min, abs, if abs { summary.near } else { summary.min });
            set(Op::Max, abs, if abs { summary.far } else { summary.max });
        }
        if requested.moments() {
            set(Op::Sum, abs, values.sum);
            set(Op::Mean, abs, values.mean);
            set(Op::Variance, abs, values.variance);
            set(Op::Std, abs, values.std);
            set(Op::L1, abs, values.l1);
            set(Op::L2, abs, values.l2);
        }
        if requested.product() {
            set(Op::Prod, abs, if abs { summary.product.abs() } else { summary.product });
        }
    }
    out
}

/// Summarizes the finite elements of real floats of `dtype`. `observe` sees each block once, smaller floats as f32.
pub fn summarise_finite(
    isa: InstructionSet,
    dtype: DType,
    data: &[u8],
    observe: &mut dyn FnMut(&[u8]),
) -> (Counts, Summary) {
    if let Some(small) = dtype.small() {
        return super::real::summarise_finite(isa, &Decoded(data, small), 24, observe);
    }
    match dtype {
        DType::F16 => super::real::summarise_finite(isa, &Widened::<half::f16>(data, PhantomData), 24, observe),
        DType::BF16 => super::real::summarise_finite(isa, &Widened::<half::bf16>(data, PhantomData), 24, observe),
        DType::F32 => super::real::summarise_finite::<f32>(isa, &InPlace(data), 24, observe),
        _ => super::real::summarise_finite::<f64>(isa, &InPlace(data), 53, observe),
    }
}

/// At most [`BLOCK`] elements as `observe` of [`summarise_finite`] sees them.
pub fn block<'b>(dtype: DType, bytes: &'b [u8], buffer: &'b mut Vec<u8>) -> &'b [u8] {
    fn widen<'b, H: Half>(bytes: &[u8], buffer: &'b mut Vec<u8>) -> &'b [u8] {
        buffer.clear();
        Widened::<H>(bytes, PhantomData).each(&mut |block, _| buffer.extend_from_slice(block));
        buffer
    }
    if let Some(small) = dtype.small() {
        buffer.clear();
        Decoded(bytes, small).each(&mut |block, _| buffer.extend_from_slice(block));
        return buffer;
    }
    match dtype {
        DType::F16 => widen::<half::f16>(bytes, buffer),
        DType::BF16 => widen::<half::bf16>(bytes, buffer),
        _ => bytes,
    }
}

/// The moments of x or |x|, rescaled, with numpy's treatment of non-finite values.
pub struct Finished {
    pub sum: f64,
    pub mean: f64,
    pub variance: f64,
    pub std: f64,
    pub l1: f64,
    pub l2: f64,
}

impl Finished {
    pub fn of(summary: &Summary, abs: bool) -> Finished {
        let counts = &summary.counts;
        let (nan, pos, neg) = (counts.nan > 0, counts.pos_inf > 0, counts.neg_inf > 0);
        if nan || pos || neg {
            let magnitude = if nan { f64::NAN } else { f64::INFINITY };
            let sum = match (abs || !neg, abs || !pos) {
                _ if nan => f64::NAN,
                (true, _) => f64::INFINITY,
                (_, true) => f64::NEG_INFINITY,
                _ => f64::NAN,
            };
            let spread = f64::NAN;
            return Finished { sum, mean: sum, variance: spread, std: spread, l1: magnitude, l2: magnitude };
        }
        let moments = if abs { &summary.abs } else { &summary.x };
        let total = if abs { summary.abs.sum() } else { summary.sum };
        let back = -summary.power;
        let l1 = ldexp(summary.abs.sum().to_f64(), back);
        let l2 = ldexp(summary.x.squares().sqrt().to_f64(), back);
        let sum = ldexp(total.to_f64(), back);
        if counts.n == 0 {
            let none = f64::NAN;
            return Finished { sum, mean: none, variance: none, std: none, l1, l2 };
        }
        let variance = moments.variance();
        Finished {
            sum,
            mean: ldexp(total.over((counts.n as f64).into()).to_f64(), back),
            variance: ldexp(variance.to_f64(), 2 * back),
            std: ldexp(variance.sqrt().to_f64(), back),
            l1,
            l2,
        }
    }
}
