//! Reductions of complex64 and complex128: of the parts where numpy returns a complex number, else of magnitudes.

use super::dd::{Dd, exponent, ldexp};
use super::float::Finished;
use super::real::{self, BLOCK, Blocks, Summary, summarise};
use super::{Counts, Op, OpSet, Reductions, Scalar};
use crate::simd::InstructionSet;
use crate::tensor::DType;

/// A complex element.
trait Complex {
    const SIZE: usize;
    const DTYPE: DType;
    const REAL: DType;
    /// Real and imaginary part.
    fn read(bytes: &[u8]) -> (f64, f64);
}

struct C64;
impl Complex for C64 {
    const SIZE: usize = 8;
    const DTYPE: DType = DType::C64;
    const REAL: DType = DType::F32;
    fn read(bytes: &[u8]) -> (f64, f64) {
        let part = |at: usize| f32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        (part(0).into(), part(4).into())
    }
}

struct C128;
impl Complex for C128 {
    const SIZE: usize = 16;
    const DTYPE: DType = DType::C128;
    const REAL: DType = DType::F64;
    fn read(bytes: &[u8]) -> (f64, f64) {
        let part = |at: usize| f64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        (part(0), part(8))
    }
}

/// The magnitude of a complex number, without intermediate overflow.
pub fn magnitude(re: f64, im: f64) -> f64 {
    let square = re * re + im * im;
    // Squares in this range are accurate; the root is then good to all but the last bit.
    if (1e-280..1e280).contains(&square) { square.sqrt() } else { re.hypot(im) }
}

/// A real number computed from each element, in blocks of f64.
struct Made<'a, C, F>(&'a [u8], F, std::marker::PhantomData<C>);

impl<C: Complex, F: Fn(f64, f64) -> f64> Blocks<f64> for Made<'_, C, F> {
    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let mut block = [0; BLOCK * 8];
        for elements in self.0.chunks(BLOCK * C::SIZE) {
            for (to, from) in block.chunks_exact_mut(8).zip(elements.chunks_exact(C::SIZE)) {
                let (re, im) = C::read(from);
                to.copy_from_slice(&(self.1)(re, im).to_le_bytes());
            }
            each(&block[..elements.len() / C::SIZE * 8], &[]);
        }
    }
}

/// Reductions of complex numbers of `dtype`.
pub fn reduce(isa: InstructionSet, dtype: DType, data: &[u8], requested: OpSet) -> Reductions {
    if dtype == DType::C64 { of::<C64>(isa, data, requested) } else { of::<C128>(isa, data, requested) }
}

fn of<C: Complex>(isa: InstructionSet, data: &[u8], requested: OpSet) -> Reductions {
    let make = |f: fn(f64, f64) -> f64, requested: OpSet| {
        summarise(isa, &Made::<C, _>(data, f, std::marker::PhantomData), requested, 53)
    };
    let sizes = make(magnitude, requested);
    let mut out = Reductions::new(C::DTYPE, Counts::default());
    let (low, high) = ends::<C>(data, &mut out.counts);
    let real = |value| Scalar::from_f64(C::REAL, value);
    if out.counts.n > 0 {
        out.set(Op::Min, false, Scalar::from_complex(C::DTYPE, low.0, low.1));
        out.set(Op::Max, false, Scalar::from_complex(C::DTYPE, high.0, high.1));
        out.set(Op::Min, true, real(sizes.min));
        out.set(Op::Max, true, real(sizes.max));
    }
    if requested.moments() {
        let (re, im) = (make(|re, _| re, requested.without_product()), make(|_, im| im, requested.without_product()));
        let (of_re, of_im) = (Finished::of(&re, false), Finished::of(&im, false));
        let of_sizes = Finished::of(&sizes, true);
        out.set(Op::Sum, false, Scalar::from_complex(C::DTYPE, of_re.sum, of_im.sum));
        out.set(Op::Mean, false, Scalar::from_complex(C::DTYPE, of_re.mean, of_im.mean));
        let finite = sizes.counts.finite() == sizes.counts.n;
        let add = |what: fn(&Summary) -> Dd| together(&re, &im, what);
        let some = finite && sizes.counts.n > 0;
        let (variance, power) = if some { add(|part| part.x.variance()) } else { (f64::NAN.into(), 0) };
        out.set(Op::Variance, false, real(ldexp(variance.to_f64(), 2 * power)));
        let root = if some { variance.sqrt().to_f64() } else { f64::NAN };
        out.set(Op::Std, false, real(ldexp(root, power)));
        let (squares, power) = add(|part| part.x.squares());
        let l2 = if finite { ldexp(squares.sqrt().to_f64(), power) } else { of_sizes.l2 };
        for abs in [false, true] {
            out.set(Op::L1, abs, real(of_sizes.l1));
            out.set(Op::L2, abs, real(l2));
        }
        out.set(Op::Sum, true, real(of_sizes.sum));
        out.set(Op::Mean, true, real(of_sizes.mean));
        out.set(Op::Variance, true, real(of_sizes.variance));
        out.set(Op::Std, true, real(of_sizes.std));
    }
    if requested.product() {
        let (re, im) = product::<C>(data, sizes.counts.finite() == sizes.counts.n);
        out.set(Op::Prod, false, Scalar::from_complex(C::DTYPE, re, im));
        out.set(Op::Prod, true, real(sizes.product));
    }
    out
}

/// Summarizes the magnitudes of the elements of which both parts are finite.
pub fn summarise_finite(isa: InstructionSet, dtype: DType, data: &[u8]) -> (Counts, Summary) {
    fn of<C: Complex>(isa: InstructionSet, data: &[u8]) -> (Counts, Summary) {
        let sizes = Made::<C, _>(data, size, std::marker::PhantomData);
        real::summarise_finite(isa, &sizes, 53, &mut |_| {})
    }
    if dtype == DType::C64 { of::<C64>(isa, data) } else { of::<C128>(isa, data) }
}

/// The magnitude, NaN if a part is, and finite if both parts are.
fn size(re: f64, im: f64) -> f64 {
    let size = magnitude(re, im);
    match (re.is_nan() || im.is_nan(), re.is_finite() && im.is_finite()) {
        (true, _) => f64::NAN,
        (_, true) => size.min(f64::MAX),
        _ => size,
    }
}

/// Adds a quadratic quantity of both parts, and returns the power of two whose square scales it.
fn together(re: &Summary, im: &Summary, what: fn(&Summary) -> Dd) -> (Dd, i32) {
    let (of_re, of_im) = (what(re), what(im));
    // A part that contributes nothing must not set the scale: if large and constant, it would underflow the other.
    let power = match (of_re.hi == 0.0, of_im.hi == 0.0) {
        (true, false) => im.power,
        (false, true) => re.power,
        _ => re.power.min(im.power),
    };
    let sum = of_re.scaled(2 * (power - re.power)) + of_im.scaled(2 * (power - im.power));
    (sum, -power)
}

/// Minimum and maximum in lexicographic order; the first NaN if there is one. Updates the counts.
fn ends<C: Complex>(data: &[u8], counts: &mut Counts) -> ((f64, f64), (f64, f64)) {
    let mut ends: Option<((f64, f64), (f64, f64))> = None;
    let mut nan = None;
    for z in data.chunks_exact(C::SIZE).map(C::read) {
        counts.n += 1;
        if z.0.is_nan() || z.1.is_nan() {
            counts.nan += 1;
            nan = nan.or(Some(z));
            continue;
        }
        counts.pos_inf += u64::from(z.0.is_infinite() || z.1.is_infinite());
        counts.zeros += u64::from(z == (0.0, 0.0));
        let (low, high) = ends.unwrap_or((z, z));
        ends = Some((if z < low { z } else { low }, if z > high { z } else { high }));
    }
    nan.map(|nan| (nan, nan)).or(ends).unwrap_or_default()
}

/// The product: with mantissas in double-double and exponents if all is finite, else as numpy multiplies.
fn product<C: Complex>(data: &[u8], finite: bool) -> (f64, f64) {
    let all = data.chunks_exact(C::SIZE).map(C::read);
    if !finite {
        let times = |(a, b): (f64, f64), (c, d): (f64, f64)| (a * c - b * d, a * d + b * c);
        return all.reduce(times).unwrap_or((1.0, 0.0));
    }
    if C::REAL == DType::F32 {
        return narrow_product(all);
    }
    let (mut re, mut im, mut powers) = (Dd::from(1.0), Dd::ZERO, 0i64);
    for (c, d) in all {
        let lift = exponent(c).max(exponent(d)).clamp(-1022, 1022);
        let (c, d) = (Dd::from(ldexp(c, -lift)), Dd::from(ldexp(d, -lift)));
        (re, im) = (re * c - im * d, re * d + im * c);
        let over = exponent(re.hi).max(exponent(im.hi));
        if over < -1000 {
            return (0.0, 0.0); // Only a factor of 0 leads here.
        }
        (re, im) = (re.scaled(-over), im.scaled(-over));
        powers += i64::from(lift) + i64::from(over);
    }
    let power = powers.clamp(-3000, 3000) as i32;
    (ldexp(re.to_f64(), power), ldexp(im.to_f64(), power))
}

/// The product of complex64 elements in f64, whose range allows renormalizing only occasionally.
fn narrow_product(all: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (mut re, mut im, mut powers) = (1.0f64, 0.0f64, 0i64);
    for (c, d) in all {
        (re, im) = (re * c - im * d, re * d + im * c);
        let size = re.abs().max(im.abs());
        if !(1e-150..1e150).contains(&size) {
            if size == 0.0 {
                return (0.0, 0.0);
            }
            let over = exponent(size);
            (re, im) = (ldexp(re, -over), ldexp(im, -over));
            powers += i64::from(over);
        }
    }
    let power = powers.clamp(-3000, 3000) as i32;
    (ldexp(re, power), ldexp(im, power))
}
