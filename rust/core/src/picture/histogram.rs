//! Histograms.

use super::values;
use crate::error::{Error, Result};
use crate::reduce::Counts;
use crate::simd::{InstructionSet, Kernel};
use crate::tensor::DType;

/// Limit on the number of bins.
pub const MAX_BINS: usize = 1 << 16;

/// The spacing of bin edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic. The range is that of the positive elements; others count as below it.
    Log,
    /// Symmetric logarithmic: linear in sign(x)·ln(1 + |x| / linear). With `linear` 0, a typical magnitude is chosen.
    SymLog {
        /// The magnitude up to which the scale is approximately linear.
        linear: f64,
    },
    /// Linear, or symmetric logarithmic if most elements would share a few linear bins.
    Auto,
}

/// The bins of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub enum Binning {
    /// Explicit edges, increasing.
    Edges(Vec<f64>),
    /// A number of bins in a range.
    Range {
        /// The lower end.
        low: f64,
        /// The upper end, which belongs to the last bin.
        high: f64,
        /// The number of bins.
        bins: usize,
        /// The spacing.
        scale: Scale,
    },
    /// A number of bins from the smallest to the largest finite element.
    Auto {
        /// The number of bins.
        bins: usize,
        /// The spacing.
        scale: Scale,
    },
}

/// A histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// The edges, one more than bins. A bin includes its lower edge; only the last includes its upper one.
    pub edges: Vec<f64>,
    /// The counts of the bins.
    pub bins: Vec<u64>,
    /// Finite elements below the first edge.
    pub under: u64,
    /// Finite elements above the last edge.
    pub over: u64,
    /// Counts of all, NaN, infinite and zero elements. Zeros are also in their bin.
    pub counts: Counts,
    /// The spacing; linear for explicit edges.
    pub scale: Scale,
}

/// Computes the histogram of the elements in `data`, of their magnitudes if `abs`.
///
/// ```
/// use smdwidgets_core::picture::{Binning, Scale, histogram};
/// use smdwidgets_core::tensor::DType;
/// let data: Vec<u8> = [0.0f32, 1.0, 1.0, 4.0, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
/// let h = histogram(DType::F32, &data, &Binning::Auto { bins: 2, scale: Scale::Linear }, false)?;
/// assert_eq!((h.edges, h.bins, h.counts.nan), (vec![0.0, 2.0, 4.0], vec![3, 1], 1));
/// # Ok::<(), smdwidgets_core::error::Error>(())
/// ```
pub fn histogram(dtype: DType, data: &[u8], binning: &Binning, abs: bool) -> Result<Histogram> {
    let n = values::count(dtype, data)?;
    let finder = BinFinder::of(dtype, data, binning, abs)?;
    let bins = finder.edges.len() - 1;
    // Two tables break the dependency between successive elements of one bin. The slots after the bins: under, over, NaN,
    // ±inf.
    let mut tables = vec![0u64; 2 * (bins + 5)];
    let mut zeros = 0;
    let isa = InstructionSet::best();
    values::blocks(dtype, data, |block| {
        zeros += isa.run(CountBlock { finder: &finder, block, abs, tables: &mut tables });
    });
    let (first, second) = tables.split_at(bins + 5);
    let total = |slot: usize| first[slot] + second[slot];
    Ok(Histogram {
        bins: (0..bins).map(total).collect(),
        under: total(bins),
        over: total(bins + 1),
        counts: Counts { n, nan: total(bins + 2), pos_inf: total(bins + 3), neg_inf: total(bins + 4), zeros },
        edges: finder.edges,
        scale: finder.scale,
    })
}

/// Edges with a fast estimate of the bin of a value. The edges decide near a boundary.
struct BinFinder {
    edges: Vec<f64>,
    scale: Scale,
    guess: Estimate,
    /// Distance to an edge, in bins, within which the estimate is checked.
    margin: f64,
}

#[derive(Clone, Copy)]
enum Estimate {
    /// Linear from `low`.
    Even { low: f64, per: f64 },
    /// `log2(x) * per - offset`.
    Log { offset: f64, per: f64 },
    /// `sign(x) * log2(1 + |x| * inverse) * per - offset`.
    SymLog { inverse: f64, offset: f64, per: f64 },
    /// No estimate: binary search.
    Search,
}

impl BinFinder {
    fn of(dtype: DType, data: &[u8], binning: &Binning, abs: bool) -> Result<BinFinder> {
        match binning {
            Binning::Edges(edges) => BinFinder::with_edges(edges),
            Binning::Range { low, high, bins, scale } => {
                let scale = resolved(*scale, dtype, data, abs);
                BinFinder::with_range(*low, *high, *bins, scale)
            }
            Binning::Auto { bins, scale } => {
                let scale = resolved(*scale, dtype, data, abs);
                let (low, high) = range(dtype, data, scale, abs);
                BinFinder::with_range(low, high, *bins, scale)
            }
        }
    }

    fn with_edges(edges: &[f64]) -> Result<BinFinder> {
        if edges.len() < 2 || edges.len() > MAX_BINS + 1 {
            return Err(Error::Invalid(format!(
                "invalid number of histogram edges {}; needs 2 to {}",
                edges.len(),
                MAX_BINS + 1
            )));
        }
        if edges.iter().any(|edge| !edge.is_finite()) || edges.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::Invalid("histogram edges must be finite and increasing".to_owned()));
        }
        let (low, high, bins) = (edges[0], edges[edges.len() - 1], edges.len() - 1);
        let width = high / bins as f64 - low / bins as f64;
        let even = |(i, edge): (usize, &f64)| (low + width * i as f64 - edge).abs() <= 0.5 * width;
        let guess = if width.is_normal() && edges.iter().enumerate().all(even) {
            Estimate::Even { low, per: 1.0 / width }
        } else {
            Estimate::Search
        };
        let off = |(i, edge): (usize, &f64)| (low + width * i as f64 - edge).abs() / width;
        let margin = rounding(low, high, 1.0 / width) + edges.iter().enumerate().map(off).fold(0.0, f64::max);
        Ok(BinFinder { edges: edges.to_vec(), scale: Scale::Linear, guess, margin })
    }

    fn with_range(low: f64, high: f64, bins: usize, scale: Scale) -> Result<BinFinder> {
        if bins == 0 || bins > MAX_BINS {
            return Err(Error::Invalid(format!("invalid number of histogram bins {bins}; needs 1 to {MAX_BINS}")));
        }
        if !low.is_finite() || !high.is_finite() || low > high {
            return Err(Error::Invalid(format!("invalid histogram range {low} to {high}")));
        }
        if scale == Scale::Log && low <= 0.0 {
            return Err(Error::Invalid(format!("a logarithmic range must start above 0, got {low}")));
        }
        let (low, high) = widened(low, high, bins, scale);
        let at = |share: f64, from: f64, to: f64| from * (1.0 - share) + to * share;
        let shares = (0..=bins).map(|i| i as f64 / bins as f64);
        let count = bins as f64;
        let (mut edges, guess): (Vec<f64>, Estimate) = match scale {
            Scale::Linear | Scale::Auto => {
                let width = high / count - low / count;
                let guess = Estimate::Even { low, per: 1.0 / width };
                (shares.map(|share| at(share, low, high)).collect(), guess)
            }
            Scale::Log => {
                let (from, to) = (low.log2(), high.log2());
                let per = count / (to - from);
                (shares.map(|share| at(share, from, to).exp2()).collect(), Estimate::Log { offset: from * per, per })
            }
            Scale::SymLog { linear } => {
                let bend = |x: f64| (x.abs() / linear).ln_1p().copysign(x) / std::f64::consts::LN_2;
                let (from, to) = (bend(low), bend(high));
                let per = count / (to - from);
                let unbend = |y: f64| ((y.abs() * std::f64::consts::LN_2).exp_m1() * linear).copysign(y);
                let guess = Estimate::SymLog { inverse: 1.0 / linear, offset: from * per, per };
                (shares.map(|share| unbend(at(share, from, to))).collect(), guess)
            }
        };
        (edges[0], edges[bins]) = (low, high);
        // Edges can coincide if the range spans only a few floats.
        if edges.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::Invalid(format!(
                "{bins} bins from {low} to {high} are narrower than the spacing of floats"
            )));
        }
        // An overflowing estimate is useless.
        let usable = |per: f64| per.is_finite() && per > 0.0;
        let guess = match guess {
            Estimate::Even { per, .. } | Estimate::Log { per, .. } if usable(per) => guess,
            Estimate::SymLog { per, inverse, .. } if usable(per) && usable(inverse) => guess,
            _ => Estimate::Search,
        };
        let margin = match guess {
            Estimate::Even { per, .. } => rounding(low, high, per),
            Estimate::Log { per, offset } | Estimate::SymLog { per, offset, .. } => {
                LOG2_ERROR * per + 1e-9 + 1e-15 * offset.abs()
            }
            Estimate::Search => 1.0,
        };
        Ok(BinFinder { edges, scale, guess, margin })
    }
}

/// Bound, in bins, on the rounding errors of value, edge and quotient.
fn rounding(low: f64, high: f64, per: f64) -> f64 {
    8.0 * f64::EPSILON * (low.abs().max(high.abs()) * per + 1.0) + 1e-9
}

/// Widens a range until its bins differ: a single value gets half a unit, or half of itself, on each side.
fn widened(low: f64, high: f64, bins: usize, scale: Scale) -> (f64, f64) {
    let magnitude = low.abs().max(high.abs());
    let finest = magnitude * f64::EPSILON * 4.0 * bins as f64;
    if high - low > finest && high - low > f64::MIN_POSITIVE {
        return (low, high);
    }
    if scale == Scale::Log {
        return (low * 0.5, (high * 2.0).min(f64::MAX));
    }
    let margin = (magnitude * 0.5).clamp(f64::MIN_POSITIVE * bins as f64, 0.5).max(finest);
    ((low - margin).max(f64::MIN), (high + margin).min(f64::MAX))
}

/// log2 of a positive normal number within [`LOG2_ERROR`]: the exponent plus a polynomial of the mantissa.
#[inline(always)]
fn rough_log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // Interpolates log2 at the Chebyshev points of [1, 2].
    let curve = ((((0.043_004_958 * m - 0.402_513_394) * m + 1.589_474_295) * m - 3.489_878_551) * m + 5.047_855_413)
        * m
        - 2.787_926_207;
    (bits >> 52 & 0x7ff) as i32 as f64 - 1023.0 + curve
}

const LOG2_ERROR: f64 = 2e-5;

/// Counts the elements of a block; returns the number of zeros.
struct CountBlock<'a> {
    finder: &'a BinFinder,
    block: &'a [f64],
    abs: bool,
    tables: &'a mut [u64],
}

impl Kernel for CountBlock<'_> {
    type Out = u64;

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> u64 {
        let CountBlock { finder, block, abs, tables } = self;
        let (edges, bins) = (finder.edges.as_slice(), finder.edges.len() - 1);
        let mut magnitudes = [0.0; values::BLOCK];
        let block = if abs {
            let magnitudes = &mut magnitudes[..block.len()];
            magnitudes.iter_mut().zip(block).for_each(|(to, from)| *to = from.abs());
            magnitudes
        } else {
            block
        };
        // Estimates first, which vectorize: a slot, or its complement if it must be checked.
        let mut guesses = [0i32; values::BLOCK];
        let guesses = &mut guesses[..block.len()];
        let (low, high, last) = (edges[0], edges[bins], (bins - 1) as f64);
        let (near, far) = (finder.margin, 1.0 - finder.margin);
        let settle = |x: f64, t: f64| {
            // Two selects instead of `clamp`: NaN becomes 0.
            let t = if t > 0.0 { t } else { 0.0 };
            let within = if t < last { t } else { last };
            let slot = within.floor();
            let beyond = t - slot;
            let sure = (x >= low) & (x <= high) & ((beyond > near) | (slot == 0.0)) & ((beyond < far) | (slot == last));
            let slot = if sure { slot as i32 } else { !(slot as i32) };
            // Finite values outside the range have the slots after the bins.
            let slot = if (x < low) & (x >= f64::MIN) { bins as i32 } else { slot };
            if (x > high) & (x <= f64::MAX) { bins as i32 + 1 } else { slot }
        };
        match finder.guess {
            Estimate::Even { low, per } => {
                guesses.iter_mut().zip(block).for_each(|(to, x)| *to = settle(*x, (x - low) * per));
            }
            Estimate::Log { offset, per } => {
                guesses.iter_mut().zip(block).for_each(|(to, x)| *to = settle(*x, rough_log2(*x) * per - offset));
            }
            Estimate::SymLog { inverse, offset, per } => {
                guesses.iter_mut().zip(block).for_each(|(to, x)| {
                    let bent = rough_log2(1.0 + x.abs() * inverse).copysign(*x);
                    *to = settle(*x, bent * per - offset);
                });
            }
            Estimate::Search => {
                for (to, x) in guesses.iter_mut().zip(block) {
                    let slot = edges.partition_point(|edge| edge <= x).saturating_sub(1).min(bins - 1) as i32;
                    *to = if *x >= low && *x <= high { slot } else { !slot };
                }
            }
        }
        // Then counting, which does not vectorize.
        let (first, second) = tables.split_at_mut(bins + 5);
        let count = |table: &mut [u64], guess: i32, x: f64| {
            let slot = if guess >= 0 { guess as usize } else { exact_slot(edges, !guess as usize, x) };
            table[slot] += 1;
        };
        let pairs = block.chunks_exact(2).zip(guesses.chunks_exact(2));
        for (x, guess) in pairs {
            count(first, guess[0], x[0]);
            count(second, guess[1], x[1]);
        }
        if block.len() % 2 == 1 {
            count(first, guesses[block.len() - 1], block[block.len() - 1]);
        }
        block.iter().map(|x| u64::from(*x == 0.0)).sum()
    }
}

/// The slot of a value near an edge or outside all bins.
#[inline(never)]
fn exact_slot(edges: &[f64], mut slot: usize, x: f64) -> usize {
    let bins = edges.len() - 1;
    if !(x >= edges[0] && x <= edges[bins]) {
        return bins + outside(x, edges[0]);
    }
    while x < edges[slot] {
        slot -= 1;
    }
    while slot + 1 < bins && x >= edges[slot + 1] {
        slot += 1;
    }
    slot
}

/// The slot of a value outside all bins.
fn outside(x: f64, low: f64) -> usize {
    if x.is_nan() {
        2
    } else if x.is_infinite() {
        if x > 0.0 { 3 } else { 4 }
    } else {
        usize::from(x >= low)
    }
}

/// The range of the finite elements, of the positive ones for a logarithmic scale; 0 to 1 without any.
fn range(dtype: DType, data: &[u8], scale: Scale, abs: bool) -> (f64, f64) {
    struct Ends<'a>(&'a [f64], bool, bool);
    impl Kernel for Ends<'_> {
        type Out = (f64, f64);
        #[inline(always)]
        fn run<const LANES: usize, const FMA: bool>(self) -> (f64, f64) {
            let (mut low, mut high) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
            let floor = if self.2 { f64::from_bits(1) } else { f64::MIN };
            let mut look = |i: usize, x: f64| {
                let x = if self.1 { x.abs() } else { x };
                let counts = x >= floor && x <= f64::MAX;
                let (l, h) = if counts { (x, x) } else { (f64::INFINITY, f64::NEG_INFINITY) };
                low[i] = if l < low[i] { l } else { low[i] };
                high[i] = if h > high[i] { h } else { high[i] };
            };
            let groups = self.0.chunks_exact(LANES);
            groups.remainder().iter().enumerate().for_each(|(i, x)| look(i, *x));
            for group in groups {
                group.iter().enumerate().for_each(|(i, x)| look(i, *x));
            }
            (low.into_iter().fold(f64::INFINITY, f64::min), high.into_iter().fold(f64::NEG_INFINITY, f64::max))
        }
    }
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    let isa = InstructionSet::best();
    values::blocks(dtype, data, |block| {
        let (l, h) = isa.run(Ends(block, abs, scale == Scale::Log));
        (low, high) = (low.min(l), high.max(h));
    });
    if low <= high {
        (low, high)
    } else if scale == Scale::Log {
        (0.1, 1.0)
    } else {
        (0.0, 1.0)
    }
}

/// Resolves automatic choices of the scale from a sample.
fn resolved(scale: Scale, dtype: DType, data: &[u8], abs: bool) -> Scale {
    let chooses =
        matches!(scale, Scale::Auto) || matches!(scale, Scale::SymLog { linear } if linear.is_nan() || linear <= 0.0);
    if !chooses {
        return scale;
    }
    let size = dtype.item_size();
    let n = data.len() / size;
    let stride = n.div_ceil(4096).max(1);
    let mut sample = vec![0.0; n.div_ceil(stride)];
    values::strided(dtype, data, stride * size, &mut sample);
    sample.retain(|x| x.is_finite());
    if abs {
        sample.iter_mut().for_each(|x| *x = x.abs());
    }
    let mut sizes: Vec<f64> = sample.iter().map(|x| x.abs()).filter(|x| *x > 0.0).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    // A tenth of the magnitudes is in the linear part.
    let linear = sizes.get(sizes.len() / 10).copied().filter(|x| x.is_normal()).unwrap_or(1.0);
    if scale != Scale::Auto {
        return Scale::SymLog { linear };
    }
    sample.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| sample.get(sample.len() * share / 100).or(sample.last()).copied().unwrap_or(0.0);
    let (low, high) = range(dtype, data, Scale::Linear, abs);
    let core = at(95) - at(5);
    if core > 0.0 && (high - low) / core > 50.0 { Scale::SymLog { linear } } else { Scale::Linear }
}
