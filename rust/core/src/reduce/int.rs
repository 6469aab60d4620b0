//! Reductions of booleans and integers. All sums are exact; only the final step rounds.
//!
//! |x| wraps as in numpy: abs(int8 -128) is -128. Norms use true magnitudes, because numpy computes them in float64.

use super::dd::Dd;
use super::{Counts, Op, OpSet, Reductions, Scalar};
use crate::simd::{InstructionSet, Kernel};
use crate::tensor::DType;

/// Elements accumulated in 64-bit lanes before they are added to the totals: few enough for any 32-bit type.
const BLOCK: usize = 1 << 16;

/// The sums of integers.
struct Sums {
    n: u64,
    min: i128,
    max: i128,
    abs_min: i128,
    abs_max: i128,
    sum: i128,
    /// Sum of wrapped magnitudes.
    abs_sum: i128,
    /// Sum of true magnitudes.
    l1: u128,
    /// Sum of squares, in units of 1 and 2^64.
    squares: [u128; 2],
    /// Sums about an offset, for the variance of x and |x|.
    about: [Deviations; 2],
    zeros: u64,
    product: u64,
    abs_product: u64,
}

/// Sum of squared distances from k, in units of 1 and 2^64.
#[derive(Clone, Copy, Default)]
struct Deviations {
    k: i128,
    squares: [u128; 2],
}

impl Sums {
    fn new() -> Sums {
        Sums {
            n: 0,
            min: i128::MAX,
            max: i128::MIN,
            abs_min: i128::MAX,
            abs_max: i128::MIN,
            sum: 0,
            abs_sum: 0,
            l1: 0,
            squares: [0; 2],
            about: [Deviations::default(); 2],
            zeros: 0,
            product: 1,
            abs_product: 1,
        }
    }
}

/// Reductions of booleans or integers of `dtype`.
pub fn reduce(isa: InstructionSet, dtype: DType, data: &[u8], requested: OpSet) -> Reductions {
    let sums = match dtype {
        DType::I8 => narrow::<i8>(isa, data, requested),
        DType::I16 => narrow::<i16>(isa, data, requested),
        DType::I32 => narrow::<i32>(isa, data, requested),
        DType::U8 => narrow::<u8>(isa, data, requested),
        DType::U16 => narrow::<u16>(isa, data, requested),
        DType::U32 => narrow::<u32>(isa, data, requested),
        DType::I64 => wide(data, requested, i64::from_le_bytes, i64::wrapping_abs, i64::unsigned_abs),
        DType::U64 => wide(data, requested, u64::from_le_bytes, |x| x, |x| x),
        _ => truths(data),
    };
    finish(dtype, &sums, requested)
}

fn finish(dtype: DType, sums: &Sums, requested: OpSet) -> Reductions {
    let mut out = Reductions::new(dtype, Counts { n: sums.n, zeros: sums.zeros, ..Counts::default() });
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::Bool);
    let whole = |bits: u64| {
        if signed { Scalar::from_i64(DType::I64, bits as i64) } else { Scalar::from_u64(DType::U64, bits) }
    };
    let float = |value: f64| Scalar::from_f64(DType::F64, value);
    let n = Dd::from_u128(sums.n.into());
    for abs in [false, true] {
        let (min, max) = if abs { (sums.abs_min, sums.abs_max) } else { (sums.min, sums.max) };
        let sum = if abs { sums.abs_sum } else { sums.sum };
        if sums.n > 0 {
            // In two's complement, the low bytes are the value for any width and sign.
            out.set(Op::Min, abs, Scalar::from_i64(dtype, min as i64));
            out.set(Op::Max, abs, Scalar::from_i64(dtype, max as i64));
        }
        if requested.moments() {
            out.set(Op::Sum, abs, whole(sum as u64));
            out.set(Op::L1, abs, float(Dd::from_u128(sums.l1).to_f64()));
            out.set(Op::L2, abs, float(wide_total(sums.squares).sqrt().to_f64()));
            let none = sums.n == 0;
            let or_none = |value: Dd| float(if none { f64::NAN } else { value.to_f64() });
            let variance = if none { Dd::ZERO } else { variance(sums, abs) };
            out.set(Op::Mean, abs, or_none(if none { n } else { Dd::from_i128(sum).over(n) }));
            out.set(Op::Variance, abs, or_none(variance));
            out.set(Op::Std, abs, or_none(variance.sqrt()));
        }
        if requested.product() {
            out.set(Op::Prod, abs, whole(if abs { sums.abs_product } else { sums.product }));
        }
    }
    out
}

fn wide_total([units, upper]: [u128; 2]) -> Dd {
    Dd::from_u128(units) + Dd::from_u128(upper).scaled(64)
}

/// `k` is an element, so its distance from the mean is at most n times the standard deviation, and double-double precision
/// covers the cancellation.
fn variance(sums: &Sums, abs: bool) -> Dd {
    let about = &sums.about[usize::from(abs)];
    let sum = if abs { sums.abs_sum } else { sums.sum };
    let n = i128::from(sums.n);
    let shifted = Dd::from_i128(sum - about.k * n);
    let n = Dd::from_i128(n);
    let variance = (wide_total(about.squares) - shifted * shifted.over(n)).over(n);
    if variance.hi > 0.0 { variance } else { Dd::ZERO }
}

/// An integer of at most 32 bits.
trait Narrow: Copy + Ord + Into<i64> + 'static {
    const SIZE: usize;
    const LOWEST: Self;
    const HIGHEST: Self;
    fn read(bytes: &[u8]) -> Self;
    fn wrapped(self) -> Self;
}

macro_rules! narrow {
    ($($int:ty, $size:literal, $wrapped:expr;)*) => {$(
        impl Narrow for $int {
            const SIZE: usize = $size;
            const LOWEST: $int = <$int>::MIN;
            const HIGHEST: $int = <$int>::MAX;
            #[inline(always)]
            fn read(bytes: &[u8]) -> $int {
                let mut raw = [0; $size];
                raw.copy_from_slice(&bytes[..$size]);
                <$int>::from_le_bytes(raw)
            }
            #[inline(always)]
            fn wrapped(self) -> $int {
                $wrapped(self)
            }
        }
    )*};
}
narrow! {
    i8, 1, i8::wrapping_abs;
    i16, 2, i16::wrapping_abs;
    i32, 4, i32::wrapping_abs;
    u8, 1, std::convert::identity;
    u16, 2, std::convert::identity;
    u32, 4, std::convert::identity;
}

/// The sums of one block.
struct Block<I> {
    min: I,
    max: I,
    abs_min: I,
    abs_max: I,
    sum: i64,
    abs_sum: i64,
    l1: i64,
    squares: [u64; 2],
    zeros: u64,
}

struct Look<'a, I>(&'a [u8], std::marker::PhantomData<I>);

impl<I: Narrow> Kernel for Look<'_, I> {
    type Out = Block<I>;

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> Block<I> {
        let mut block = Block {
            min: I::HIGHEST,
            max: I::LOWEST,
            abs_min: I::HIGHEST,
            abs_max: I::LOWEST,
            sum: 0,
            abs_sum: 0,
            l1: 0,
            squares: [0; 2],
            zeros: 0,
        };
        for x in self.0.chunks_exact(I::SIZE).map(I::read) {
            let wrapped = x.wrapped();
            block.min = block.min.min(x);
            block.max = block.max.max(x);
            block.abs_min = block.abs_min.min(wrapped);
            block.abs_max = block.abs_max.max(wrapped);
            let wide: i64 = x.into();
            let magnitude = wide.wrapping_abs();
            block.sum = block.sum.wrapping_add(wide);
            block.abs_sum = block.abs_sum.wrapping_add(wrapped.into());
            block.l1 = block.l1.wrapping_add(magnitude);
            // 32-bit factors use the vector multiplication that every processor has.
            let square = (magnitude as u64 & 0xffff_ffff).wrapping_mul(magnitude as u64 & 0xffff_ffff);
            if I::SIZE < 4 {
                block.squares[0] = block.squares[0].wrapping_add(square);
            } else {
                block.squares[0] = block.squares[0].wrapping_add(square & 0xffff_ffff);
                block.squares[1] = block.squares[1].wrapping_add(square >> 32);
            }
            block.zeros += u64::from(wide == 0);
        }
        block
    }
}

/// Sum of (x - k)², in units of 1 and 2^32. |x - k| fits in 32 bits, as x and k have the same type.
struct Squares<'a, I>(&'a [u8], i64, bool, std::marker::PhantomData<I>);

impl<I: Narrow> Kernel for Squares<'_, I> {
    type Out = [u64; 2];

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> [u64; 2] {
        let mut squares = [0u64; 2];
        let (k, abs) = (self.1, self.2);
        for x in self.0.chunks_exact(I::SIZE).map(I::read) {
            let x: i64 = if abs { x.wrapped().into() } else { x.into() };
            let distance = x.wrapping_sub(k).wrapping_abs() as u64 & 0xffff_ffff;
            let square = distance.wrapping_mul(distance);
            squares[0] = squares[0].wrapping_add(square & 0xffff_ffff);
            squares[1] = squares[1].wrapping_add(square >> 32);
        }
        squares
    }
}

/// The wrapping products of x and of wrapped |x|.
struct Products<'a, I>(&'a [u8], std::marker::PhantomData<I>);

impl<I: Narrow> Kernel for Products<'_, I> {
    type Out = (u64, u64);

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> (u64, u64) {
        let (mut product, mut abs) = ([1u64; LANES], [1u64; LANES]);
        let groups = self.0.chunks_exact(I::SIZE * LANES);
        let rest = groups.remainder();
        let mut times = |i: usize, x: I| {
            let (wide, wrapped): (i64, i64) = (x.into(), x.wrapped().into());
            product[i] = product[i].wrapping_mul(wide as u64);
            abs[i] = abs[i].wrapping_mul(wrapped as u64);
        };
        for group in groups {
            for i in 0..LANES {
                times(i, I::read(&group[i * I::SIZE..(i + 1) * I::SIZE]));
            }
        }
        rest.chunks_exact(I::SIZE).map(I::read).enumerate().for_each(|(i, x)| times(i, x));
        let all = |lanes: [u64; LANES]| lanes.into_iter().fold(1, u64::wrapping_mul);
        (all(product), all(abs))
    }
}

fn narrow<I: Narrow>(isa: InstructionSet, data: &[u8], requested: OpSet) -> Sums {
    use std::marker::PhantomData;
    let mut sums = Sums::new();
    if let Some(first) = data.get(..I::SIZE).map(I::read) {
        sums.about = [first.into(), first.wrapped().into()].map(|k: i64| Deviations { k: k.into(), squares: [0; 2] });
    }
    for bytes in data.chunks(BLOCK * I::SIZE) {
        sums.n += (bytes.len() / I::SIZE) as u64;
        let block = isa.run(Look::<I>(bytes, PhantomData));
        let wide = |x: I| -> i128 { Into::<i64>::into(x).into() };
        sums.min = sums.min.min(wide(block.min));
        sums.max = sums.max.max(wide(block.max));
        sums.abs_min = sums.abs_min.min(wide(block.abs_min));
        sums.abs_max = sums.abs_max.max(wide(block.abs_max));
        sums.sum += i128::from(block.sum);
        sums.abs_sum += i128::from(block.abs_sum);
        sums.l1 += u128::from(block.l1 as u64);
        sums.squares[0] += u128::from(block.squares[0]) + (u128::from(block.squares[1]) << 32);
        sums.zeros += block.zeros;
        if requested.moments() {
            for (abs, about) in sums.about.iter_mut().enumerate() {
                let [units, upper] = isa.run(Squares::<I>(bytes, about.k as i64, abs == 1, PhantomData));
                about.squares[0] += u128::from(units) + (u128::from(upper) << 32);
            }
        }
        if requested.product() && (sums.product != 0 || sums.abs_product != 0) {
            let (product, abs) = if sums.zeros > 0 { (0, 0) } else { isa.run(Products::<I>(bytes, PhantomData)) };
            sums.product = sums.product.wrapping_mul(product);
            sums.abs_product = sums.abs_product.wrapping_mul(abs);
        }
    }
    sums
}

/// 64-bit integers, one by one in 128 bits: no vector holds their squares.
fn wide<I: Copy + Into<i128>>(
    data: &[u8],
    requested: OpSet,
    read: fn([u8; 8]) -> I,
    wrapped: fn(I) -> I,
    magnitude: fn(I) -> u64,
) -> Sums {
    let mut sums = Sums::new();
    let element = |raw: &[u8]| read(std::array::from_fn(|i| raw[i]));
    if let Some(first) = data.get(..8).map(element) {
        sums.about = [first.into(), wrapped(first).into()].map(|k| Deviations { k, squares: [0; 2] });
    }
    let add_square = |squares: &mut [u128; 2], distance: u64| {
        let square = u128::from(distance) * u128::from(distance);
        squares[0] += square & u128::from(u64::MAX);
        squares[1] += square >> 64;
    };
    for x in data.chunks_exact(8).map(element) {
        let (value, shrunk): (i128, i128) = (x.into(), wrapped(x).into());
        sums.n += 1;
        sums.min = sums.min.min(value);
        sums.max = sums.max.max(value);
        sums.abs_min = sums.abs_min.min(shrunk);
        sums.abs_max = sums.abs_max.max(shrunk);
        sums.zeros += u64::from(value == 0);
        if requested.moments() {
            sums.sum += value;
            sums.abs_sum += shrunk;
            sums.l1 += u128::from(magnitude(x));
            add_square(&mut sums.squares, magnitude(x));
            let [of_x, of_abs] = &mut sums.about;
            add_square(&mut of_x.squares, (value - of_x.k).unsigned_abs() as u64);
            add_square(&mut of_abs.squares, (shrunk - of_abs.k).unsigned_abs() as u64);
        }
        if requested.product() {
            sums.product = sums.product.wrapping_mul(value as u64);
            sums.abs_product = sums.abs_product.wrapping_mul(shrunk as u64);
        }
    }
    sums
}

/// Booleans: the number of true elements determines everything. Any nonzero byte is true, as in numpy.
fn truths(data: &[u8]) -> Sums {
    let zeros = data.iter().map(|byte| u64::from(*byte == 0)).sum::<u64>();
    let n = data.len() as u64;
    let ones = n - zeros;
    let (min, max) = (i128::from(zeros == 0), i128::from(ones > 0));
    let about = Deviations { k: 0, squares: [ones.into(), 0] };
    let product = u64::from(zeros == 0);
    Sums {
        n,
        min,
        max,
        abs_min: min,
        abs_max: max,
        sum: ones.into(),
        abs_sum: ones.into(),
        l1: ones.into(),
        squares: [ones.into(), 0],
        about: [about; 2],
        zeros,
        product,
        abs_product: product,
    }
}
