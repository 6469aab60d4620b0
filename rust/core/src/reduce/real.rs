//! Summaries of streams of floats: the driver over blocks, and the sums from which all reductions follow.

use std::marker::PhantomData;

use super::dd::{Dd, exponent, ldexp, power_of_two};
use super::exact::ExactSum;
use super::lanes::{About, Extremes, Float, Kinds, OddSigns, Product, SumsAboutZero, WideAbout, WideProduct};
use super::{Counts, OpSet};
use crate::simd::InstructionSet;

/// Elements per block. Its 16 or 32 KiB stay in the first-level cache between passes.
pub const BLOCK: usize = 4096;

/// Floats that can be iterated repeatedly, in blocks of at most [`BLOCK`] little-endian elements.
pub trait Blocks<T> {
    /// Calls `each` with every block and with the memory after it, if known, for prefetching.
    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8]));
}

/// Floats stored contiguously.
pub struct InPlace<'a>(pub &'a [u8]);

impl<T: Float> Blocks<T> for InPlace<'_> {
    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let mut rest = self.0;
        while !rest.is_empty() {
            let (block, after) = rest.split_at(rest.len().min(BLOCK * T::SIZE));
            each(block, after);
            rest = after;
        }
    }
}

/// Sums about an offset `k`: of x - k and (x - k)².
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    k: f64,
    s: Dd,
    q: Dd,
}

impl Part {
    fn negated(self) -> Part {
        Part { k: -self.k, s: -self.s, q: self.q }
    }
}

/// Sums of all blocks about the offset of the first. The offset lies within (or at most four times as far from 0 as) the
/// elements, so the subtraction in the variance loses at most a factor n of the available 2^104.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moments {
    n: f64,
    k: f64,
    s: Dd,
    q: Dd,
}

impl Moments {
    fn add(&mut self, part: Part, n: usize) {
        let n = n as f64;
        if self.n == 0.0 {
            self.k = part.k;
        }
        self.n += n;
        if part.k == self.k {
            self.s = self.s + part.s;
            self.q = self.q + part.q;
            return;
        }
        let (shift, n) = (Dd::sum(part.k, -self.k), Dd::from(n));
        self.s = self.s + (part.s + shift * n);
        self.q = self.q + (part.q + shift * (part.s + part.s + shift * n));
    }

    /// The sum of x.
    pub fn sum(&self) -> Dd {
        self.s + Dd::product(self.k, self.n)
    }

    /// The sum of x².
    pub fn squares(&self) -> Dd {
        let k = Dd::from(self.k);
        self.q + k * (self.s + self.s + k * Dd::from(self.n))
    }

    /// The variance.
    pub fn variance(&self) -> Dd {
        let n = Dd::from(self.n);
        let variance = (self.q - self.s * self.s.over(n)).over(n);
        if variance.hi > 0.0 { variance } else { Dd::ZERO }
    }
}

/// The result of one pass. Sums are of x·2^power, and undefined unless all elements are finite.
pub struct Summary {
    pub counts: Counts,
    pub min: f64,
    pub max: f64,
    /// The minimum of |x|.
    pub near: f64,
    /// The maximum of |x|.
    pub far: f64,
    pub power: i32,
    pub x: Moments,
    pub abs: Moments,
    /// The sum of x, correctly rounded in the result's dtype.
    pub sum: Dd,
    /// The product, signed also if zero or infinite.
    pub product: f64,
}

/// The sums of a block for one float type.
pub trait BlockSums: Float {
    /// The power of two such that a sum smaller than it, relative to the sum of magnitudes, has lost more than a quarter of
    /// the last bit of a result of `precision` bits. f64 lanes accumulate at most 520 elements each.
    fn cancelled(precision: i32) -> i32;

    /// The sums of a finite block for x and |x|, given its minimum, maximum and minimum magnitude, and its product if
    /// requested. The memory after the block is prefetched.
    fn sums(
        isa: InstructionSet,
        bytes_and_ahead: (&[u8], &[u8]),
        power: i32,
        ends: (f64, f64, f64),
        product: bool,
    ) -> (Part, Part, Product);
}

/// The offset of a block's sums: its center if all elements are near it, so that later subtractions lose nothing.
fn middle(low: f64, high: f64) -> f64 {
    if low >= 0.25 * high { 0.5 * (low + high) } else { 0.0 }
}

impl BlockSums for f32 {
    fn cancelled(precision: i32) -> i32 {
        precision + 2 - 44
    }

    fn sums(
        isa: InstructionSet,
        (bytes, ahead): (&[u8], &[u8]),
        _: i32,
        (low, high, near): (f64, f64, f64),
        product: bool,
    ) -> (Part, Part, Product) {
        let far = high.max(-low);
        // A lane starts within [1, 2), takes `period` factors and possibly one remainder, and must stay within 2^±1020.
        let reach = exponent(far).abs().max(exponent(near).abs()).max(0) as usize + 1;
        let period = if product { (1018 / reach - 1).min(BLOCK) } else { 0 };
        let part = |k: f64, s: f64, q: f64| Part { k, s: s.into(), q: q.into() };
        let one_sign = low >= 0.0 || high <= 0.0;
        let k = middle(near, far);
        if one_sign && k > 0.0 {
            let k = if low < 0.0 { -k } else { k };
            let (s, q, product) = isa.run(About::<false> { bytes, ahead, k, period });
            let x = part(k, s, q);
            return (x, if low < 0.0 { x.negated() } else { x }, product);
        }
        let sums = isa.run(SumsAboutZero { bytes, ahead, period });
        let abs = if k > 0.0 {
            let (s, q, _) = isa.run(About::<true> { bytes, ahead: &[], k, period: 0 });
            part(k, s, q)
        } else {
            part(0.0, sums.magnitudes, sums.squares)
        };
        (part(0.0, sums.sum, sums.squares), abs, sums.product)
    }
}

impl BlockSums for f64 {
    fn cancelled(_: i32) -> i32 {
        // Double-double lanes lose at most (520·2^-53)² of the magnitudes.
        55 - 87
    }

    fn sums(
        isa: InstructionSet,
        (bytes, _): (&[u8], &[u8]),
        power: i32,
        (low, high, near): (f64, f64, f64),
        product: bool,
    ) -> (Part, Part, Product) {
        let scale = power_of_two(power);
        let (low, high, near) = (low * scale, high * scale, near * scale);
        let one_sign = low >= 0.0 || high <= 0.0;
        let magnitude = middle(near, high.max(-low));
        let k = if !one_sign {
            0.0
        } else if low < 0.0 {
            -magnitude
        } else {
            magnitude
        };
        let (s, q) = isa.run(WideAbout::<false> { bytes, scale, k });
        let x = Part { k, s, q };
        let abs = if low >= 0.0 {
            x
        } else if one_sign {
            x.negated()
        } else {
            let (s, q) = isa.run(WideAbout::<true> { bytes, scale, k: magnitude });
            Part { k: magnitude, s, q }
        };
        (x, abs, if product { isa.run(WideProduct { bytes }) } else { Product::ONE })
    }
}

/// Which elements are summarized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Among {
    /// All. Sums are undefined unless all are finite.
    All,
    /// Finite ones only.
    Finite,
}

/// Summarizes the floats in one pass, or two if their squares need scaling.
///
/// `precision` is that of the result's dtype, in bits.
pub fn summarise<T: BlockSums>(
    isa: InstructionSet,
    blocks: &dyn Blocks<T>,
    requested: OpSet,
    precision: i32,
) -> Summary {
    summarise_among(isa, blocks, requested, precision, Among::All, &mut |_| {}).1
}

/// As [`summarise`] for the finite elements only, with the counts of all elements. `observe` sees each block once.
pub fn summarise_finite<T: BlockSums>(
    isa: InstructionSet,
    blocks: &dyn Blocks<T>,
    precision: i32,
    observe: &mut dyn FnMut(&[u8]),
) -> (Counts, Summary) {
    summarise_among(isa, blocks, OpSet::CHEAP, precision, Among::Finite, observe)
}

fn summarise_among<T: BlockSums>(
    isa: InstructionSet,
    blocks: &dyn Blocks<T>,
    requested: OpSet,
    precision: i32,
    among: Among,
    observe: &mut dyn FnMut(&[u8]),
) -> (Counts, Summary) {
    let (counts, first) = pass(isa, blocks, requested, precision, 0, among, observe);
    let power = -exponent(first.far);
    if T::SIZE == 8
        && requested.moments()
        && first.counts.finite() == first.counts.n
        && first.counts.n > 0
        && first.far != 0.0
        && power.abs() > 400
    {
        let power = power.clamp(-1022, 1023);
        let (_, scaled) = pass(isa, blocks, requested.without_product(), precision, power, among, &mut |_| {});
        return (counts, Summary { product: first.product, ..scaled });
    }
    (counts, first)
}

/// One pass: the counts of all elements, and the summary of those selected.
fn pass<T: BlockSums>(
    isa: InstructionSet,
    blocks: &dyn Blocks<T>,
    requested: OpSet,
    precision: i32,
    power: i32,
    among: Among,
    observe: &mut dyn FnMut(&[u8]),
) -> (Counts, Summary) {
    let mut counts = Counts::default();
    let (mut low, mut high, mut near) = (T::HIGHEST, T::LOWEST, T::HIGHEST);
    let (mut x, mut abs, mut product) = (Moments::default(), Moments::default(), Product::ONE);
    let mut finite_elements = Vec::new();
    blocks.each(&mut |bytes, ahead| {
        observe(bytes);
        counts.n += (bytes.len() / T::SIZE) as u64;
        let (mut l, mut h, mut m) = isa.run(Extremes::<T>(bytes, PhantomData));
        let is_finite = l.wide().is_finite() && h.wide().is_finite();
        if !is_finite || m.wide() == 0.0 {
            let [nan, pos_inf, neg_inf, zeros] = isa.run(Kinds::<T>(bytes, PhantomData));
            counts.nan += nan;
            counts.pos_inf += pos_inf;
            counts.neg_inf += neg_inf;
            counts.zeros += zeros;
        }
        let bytes = if among == Among::Finite && !is_finite {
            keep_finite::<T>(bytes, &mut finite_elements);
            (l, h, m) = isa.run(Extremes::<T>(&finite_elements, PhantomData));
            &finite_elements
        } else {
            bytes
        };
        let n = bytes.len() / T::SIZE;
        (low, high, near) = (low.min(l.key()), high.max(h.key()), near.min(m.magnitude()));
        let finite = among == Among::Finite || counts.nan + counts.pos_inf + counts.neg_inf == 0;
        let multiply = requested.product() && counts.zeros == 0;
        if n > 0 && finite && (requested.moments() || multiply) {
            let ends = (l.wide(), h.wide(), m.wide());
            let (of_x, of_abs, of_product) = T::sums(isa, (bytes, ahead), power, ends, multiply);
            x.add(of_x, n);
            abs.add(of_abs, n);
            product = product.times(of_product.mantissa, of_product.exponent);
        }
    });
    let of = match among {
        Among::All => counts,
        Among::Finite => Counts { n: counts.finite(), zeros: counts.zeros, ..Counts::default() },
    };
    let nan = of.nan > 0;
    let not_nan = |value: f64| if nan || of.n == 0 { f64::NAN } else { value };
    let (min, max) = (not_nan(T::from_key(low).wide()), not_nan(T::from_key(high).wide()));
    let near = not_nan(T::from_key(near).wide());
    let far = if nan { f64::NAN } else { min.abs().max(max.abs()) };
    let mut summary = Summary { counts: of, min, max, near, far, power, x, abs, sum: x.sum(), product: 1.0 };
    let finite = of.finite() == of.n;
    if requested.moments() && finite && summary.sum.hi.abs() < ldexp(abs.sum().hi, T::cancelled(precision)) {
        let mut exact = ExactSum::new();
        blocks.each(&mut |bytes, _| {
            let elements = bytes.chunks_exact(T::SIZE).map(|element| T::read(element).wide());
            elements.filter(|element| element.is_finite()).for_each(|element| exact.add(element));
        });
        summary.sum = exact.total(power);
    }
    if requested.product() {
        summary.product = finish_product::<T>(isa, blocks, &summary, product);
    }
    (counts, summary)
}

/// Copies the finite elements of a block.
fn keep_finite<T: Float>(bytes: &[u8], kept: &mut Vec<u8>) {
    kept.clear();
    kept.resize(bytes.len(), 0);
    let mut end = 0;
    for element in bytes.chunks_exact(T::SIZE) {
        kept[end..end + T::SIZE].copy_from_slice(element);
        end += if T::read(element).wide().is_finite() { T::SIZE } else { 0 };
    }
    kept.truncate(end);
}

fn finish_product<T: BlockSums>(
    isa: InstructionSet,
    blocks: &dyn Blocks<T>,
    summary: &Summary,
    product: Product,
) -> f64 {
    let Counts { nan, pos_inf, neg_inf, zeros, .. } = summary.counts;
    let infinite = pos_inf + neg_inf > 0;
    if nan > 0 || infinite && zeros > 0 {
        return f64::NAN;
    }
    if !infinite && zeros == 0 {
        let power = product.exponent.clamp(-3000, 3000) as i32;
        return ldexp(product.mantissa.to_f64(), power);
    }
    let magnitude = if infinite { f64::INFINITY } else { 0.0 };
    let mut odd = false;
    if summary.min.is_sign_negative() {
        blocks.each(&mut |bytes, _| odd ^= isa.run(OddSigns::<T>(bytes, PhantomData)));
    }
    if odd { -magnitude } else { magnitude }
}
