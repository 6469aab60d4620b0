//! SIMD kernels over blocks of floats.
//!
//! A block has a few thousand elements, so repeated passes read the first-level cache. Elements are read from little-endian
//! bytes at any alignment, which compiles to plain vector loads on little-endian processors.

use super::dd::{Dd, exponent, power_of_two, quick_two_sum, two_product, two_sum};
use crate::simd::{Kernel, fetch_ahead};

/// A float element. Its key is an integer with the same order: NaNs are outside the infinities, and -0 is below 0.
pub trait Float: Copy + 'static {
    /// Size in bytes.
    const SIZE: usize;
    /// The signed integer of the same size.
    type Key: Copy + Ord;
    const LOWEST: Self::Key;
    const HIGHEST: Self::Key;

    fn read(bytes: &[u8]) -> Self;
    fn wide(self) -> f64;
    fn key(self) -> Self::Key;
    /// The key of the magnitude.
    fn magnitude(self) -> Self::Key;
    fn from_key(key: Self::Key) -> Self;
}

macro_rules! float {
    ($float:ty, $int:ty, $size:literal) => {
        impl Float for $float {
            const SIZE: usize = $size;
            type Key = $int;
            const LOWEST: $int = <$int>::MIN;
            const HIGHEST: $int = <$int>::MAX;

            #[inline(always)]
            fn read(bytes: &[u8]) -> $float {
                let mut raw = [0; $size];
                raw.copy_from_slice(&bytes[..$size]);
                <$float>::from_le_bytes(raw)
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn key(self) -> $int {
                let bits = self.to_bits() as $int;
                bits ^ (bits >> ($size * 8 - 1) & <$int>::MAX)
            }
            #[inline(always)]
            fn magnitude(self) -> $int {
                self.to_bits() as $int & <$int>::MAX
            }
            #[inline(always)]
            fn from_key(key: $int) -> $float {
                <$float>::from_bits((key ^ (key >> ($size * 8 - 1) & <$int>::MAX)) as _)
            }
        }
    };
}
float!(f32, i32, 4);
float!(f64, i64, 8);

/// Calls `full` with each complete group of `LANES` elements.
#[inline(always)]
pub fn each<T: Float, const LANES: usize>(bytes: &[u8], mut full: impl FnMut([T; LANES])) {
    for group in bytes.chunks_exact(T::SIZE * LANES) {
        full(std::array::from_fn(|i| T::read(&group[i * T::SIZE..(i + 1) * T::SIZE])));
    }
}

/// The remainder that fills no group.
#[inline(always)]
pub fn left_over<T: Float, const LANES: usize>(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len() - bytes.len() % (T::SIZE * LANES)..]
}

/// Sums the lanes pairwise.
#[inline(always)]
fn total<const LANES: usize>(mut lanes: [f64; LANES]) -> f64 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Minimum, maximum and minimum magnitude.
pub struct Extremes<'a, T>(pub &'a [u8], pub std::marker::PhantomData<T>);

impl<T: Float> Kernel for Extremes<'_, T> {
    type Out = (T, T, T);

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> (T, T, T) {
        #[inline(always)]
        fn scan<T: Float, const LANES: usize>(bytes: &[u8]) -> (T, T, T) {
            let (mut low, mut high, mut near) = ([T::HIGHEST; LANES], [T::LOWEST; LANES], [T::HIGHEST; LANES]);
            each::<T, LANES>(bytes, |x| {
                for i in 0..LANES {
                    low[i] = low[i].min(x[i].key());
                    high[i] = high[i].max(x[i].key());
                    near[i] = near[i].min(x[i].magnitude());
                }
            });
            let (mut l, mut h, mut n) = (T::HIGHEST, T::LOWEST, T::HIGHEST);
            for x in left_over::<T, LANES>(bytes).chunks_exact(T::SIZE).map(T::read) {
                (l, h, n) = (l.min(x.key()), h.max(x.key()), n.min(x.magnitude()));
            }
            for i in 0..LANES {
                (l, h, n) = (l.min(low[i]), h.max(high[i]), n.min(near[i]));
            }
            (T::from_key(l), T::from_key(h), T::from_key(n))
        }
        // 32 lanes of 32 bits use as many registers as 16 of 64.
        if T::SIZE == 4 && LANES == 16 { scan::<T, 32>(self.0) } else { scan::<T, LANES>(self.0) }
    }
}

/// Counts of NaN, +inf, -inf and zero; used only for blocks that have some.
pub struct Kinds<'a, T>(pub &'a [u8], pub std::marker::PhantomData<T>);

impl<T: Float> Kernel for Kinds<'_, T> {
    type Out = [u64; 4];

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> [u64; 4] {
        let mut counts = [0u32; 4];
        for element in self.0.chunks_exact(T::SIZE) {
            let x = T::read(element).wide();
            counts[0] += u32::from(x.is_nan());
            counts[1] += u32::from(x == f64::INFINITY);
            counts[2] += u32::from(x == f64::NEG_INFINITY);
            counts[3] += u32::from(x == 0.0);
        }
        counts.map(u64::from)
    }
}

/// Whether the number of negative signs is odd: the sign of a product of zero or infinity.
pub struct OddSigns<'a, T>(pub &'a [u8], pub std::marker::PhantomData<T>);

impl<T: Float> Kernel for OddSigns<'_, T> {
    type Out = bool;

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> bool {
        let minuses = self.0.chunks_exact(T::SIZE).map(|element| element[T::SIZE - 1] >> 7);
        minuses.fold(0, |odd, minus| odd ^ minus) == 1
    }
}

/// A product as mantissa and exponent, which cannot overflow.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    pub mantissa: Dd,
    pub exponent: i64,
}

impl Product {
    pub const ONE: Product = Product { mantissa: Dd { hi: 1.0, lo: 0.0 }, exponent: 0 };

    /// Multiplies by another such number. Mantissas within 2^±100 of 1 are normalized to [1, 2).
    #[inline]
    pub fn times(self, mantissa: Dd, power: i64) -> Product {
        let product = self.mantissa * mantissa;
        let over = exponent(product.hi);
        Product { mantissa: product.scaled(-over), exponent: self.exponent + power + i64::from(over) }
    }
}

/// The product of f32 elements per lane, renormalized periodically.
struct Factors<const LANES: usize> {
    lanes: [f64; LANES],
    powers: [i64; LANES],
}

impl<const LANES: usize> Factors<LANES> {
    #[inline(always)]
    fn new() -> Self {
        Factors { lanes: [1.0; LANES], powers: [0; LANES] }
    }

    /// Normalizes all lanes, which are finite and nonzero, to [1, 2).
    #[inline(always)]
    fn renormalise(&mut self) {
        for i in 0..LANES {
            let bits = self.lanes[i].to_bits();
            self.powers[i] += (bits >> 52 & 0x7ff) as i64 - 1023;
            self.lanes[i] = f64::from_bits(bits & !(0x7ff << 52) | 1023 << 52);
        }
    }

    /// Multiplies the remaining elements, fewer than `LANES`.
    #[inline(always)]
    fn also(&mut self, rest: &[u8]) {
        for (i, x) in rest.chunks_exact(4).map(f32::read).enumerate() {
            self.lanes[i] *= f64::from(x);
        }
        self.renormalise();
    }

    #[inline(always)]
    fn total(self) -> Product {
        // At most 16 mantissas below 2 cannot overflow.
        let mantissa: f64 = self.lanes.iter().product();
        Product::ONE.times(mantissa.into(), self.powers.iter().sum())
    }
}

/// Sums of x, |x| and x² of f32 elements in f64, and their product unless `period` is 0. The product is renormalized after
/// every `period` factors.
pub struct SumsAboutZero<'a> {
    pub bytes: &'a [u8],
    /// The memory that follows, to be prefetched.
    pub ahead: &'a [u8],
    pub period: usize,
}

/// The result of [`SumsAboutZero`].
pub struct ZeroSums {
    pub sum: f64,
    pub magnitudes: f64,
    pub squares: f64,
    pub product: Product,
}

impl Kernel for SumsAboutZero<'_> {
    type Out = ZeroSums;

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> ZeroSums {
        let (mut s, mut a, mut q) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let mut product = Factors::<LANES>::new();
        let rest = left_over::<f32, LANES>(self.bytes);
        let mut next = 0;
        if self.period == 0 {
            each::<f32, LANES>(self.bytes, |x| {
                fetch_ahead(self.ahead, next);
                next += LANES * 4;
                for i in 0..LANES {
                    let x = f64::from(x[i]);
                    s[i] += x;
                    a[i] += x.abs();
                    q[i] = multiply_add::<FMA>(x, x, q[i]);
                }
            });
        } else {
            for some in self.bytes.chunks(self.period * LANES * 4) {
                each::<f32, LANES>(some, |x| {
                    fetch_ahead(self.ahead, next);
                    next += LANES * 4;
                    for i in 0..LANES {
                        let x = f64::from(x[i]);
                        s[i] += x;
                        a[i] += x.abs();
                        q[i] = multiply_add::<FMA>(x, x, q[i]);
                        product.lanes[i] *= x;
                    }
                });
                product.renormalise();
            }
            product.also(rest);
        }
        for (i, x) in rest.chunks_exact(4).map(f32::read).map(f64::from).enumerate() {
            s[i] += x;
            a[i] += x.abs();
            q[i] += x * x;
        }
        ZeroSums { sum: total(s), magnitudes: total(a), squares: total(q), product: product.total() }
    }
}

/// Sums of x - k and (x - k)² of f32 elements in f64, of |x| if `ABS`; and the product as in [`SumsAboutZero`].
pub struct About<'a, const ABS: bool> {
    pub bytes: &'a [u8],
    /// As in [`SumsAboutZero`].
    pub ahead: &'a [u8],
    pub k: f64,
    pub period: usize,
}

impl<const ABS: bool> Kernel for About<'_, ABS> {
    type Out = (f64, f64, Product);

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> (f64, f64, Product) {
        let (mut s, mut q) = ([0.0; LANES], [0.0; LANES]);
        let mut product = Factors::<LANES>::new();
        let rest = left_over::<f32, LANES>(self.bytes);
        let k = self.k;
        let mut next = 0;
        if self.period == 0 {
            each::<f32, LANES>(self.bytes, |x| {
                fetch_ahead(self.ahead, next);
                next += LANES * 4;
                for i in 0..LANES {
                    let x = f64::from(x[i]);
                    let d = if ABS { x.abs() } else { x } - k;
                    s[i] += d;
                    q[i] = multiply_add::<FMA>(d, d, q[i]);
                }
            });
        } else {
            for some in self.bytes.chunks(self.period * LANES * 4) {
                each::<f32, LANES>(some, |x| {
                    fetch_ahead(self.ahead, next);
                    next += LANES * 4;
                    for i in 0..LANES {
                        let x = f64::from(x[i]);
                        let d = if ABS { x.abs() } else { x } - k;
                        s[i] += d;
                        q[i] = multiply_add::<FMA>(d, d, q[i]);
                        product.lanes[i] *= x;
                    }
                });
                product.renormalise();
            }
            product.also(rest);
        }
        for (i, x) in rest.chunks_exact(4).map(f32::read).map(f64::from).enumerate() {
            let d = if ABS { x.abs() } else { x } - k;
            s[i] += d;
            q[i] += d * d;
        }
        (total(s), total(q), product.total())
    }
}

#[inline(always)]
fn multiply_add<const FMA: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Sums of x·scale - k and its square of f64 elements in double-double, of magnitudes if `ABS`.
pub struct WideAbout<'a, const ABS: bool> {
    pub bytes: &'a [u8],
    pub scale: f64,
    pub k: f64,
}

impl<const ABS: bool> Kernel for WideAbout<'_, ABS> {
    type Out = (Dd, Dd);

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> (Dd, Dd) {
        #[inline(always)]
        fn step<const FMA: bool>(x: f64, k: f64, s: &mut f64, sl: &mut f64, q: &mut f64, ql: &mut f64) {
            let (d, dl) = two_sum(x, -k);
            let (sum, lost) = two_sum(*s, d);
            *s = sum;
            *sl += lost + dl;
            let (square, low) = two_product::<FMA>(d, d);
            let (sum, lost) = two_sum(*q, square);
            *q = sum;
            *ql += lost + (low + 2.0 * d * dl);
        }
        let (mut s, mut sl, mut q, mut ql) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let (k, scale) = (self.k, self.scale);
        each::<f64, LANES>(self.bytes, |x| {
            for i in 0..LANES {
                let x = if ABS { x[i].abs() } else { x[i] } * scale;
                step::<FMA>(x, k, &mut s[i], &mut sl[i], &mut q[i], &mut ql[i]);
            }
        });
        for (i, x) in left_over::<f64, LANES>(self.bytes).chunks_exact(8).map(f64::read).enumerate() {
            let x = if ABS { x.abs() } else { x } * scale;
            step::<FMA>(x, k, &mut s[i], &mut sl[i], &mut q[i], &mut ql[i]);
        }
        let mut out = (Dd::ZERO, Dd::ZERO);
        for i in 0..LANES {
            out.0 = out.0 + Dd::sum(s[i], sl[i]);
            out.1 = out.1 + Dd::sum(q[i], ql[i]);
        }
        out
    }
}

/// The product of nonzero f64 elements in double-double.
pub struct WideProduct<'a> {
    pub bytes: &'a [u8],
}

impl Kernel for WideProduct<'_> {
    type Out = Product;

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> Product {
        let (mut high, mut low, mut powers) = ([1.0; LANES], [0.0; LANES], [0; LANES]);
        #[inline(always)]
        fn step<const FMA: bool>(x: f64, high: &mut f64, low: &mut f64, power: &mut i64) {
            // Subnormals have no exponent to extract, so they are scaled by 2^64.
            let subnormal = x.to_bits() >> 52 & 0x7ff == 0;
            let lifted = x * if subnormal { power_of_two(64) } else { 1.0 };
            let bits = lifted.to_bits();
            *power += (bits >> 52 & 0x7ff) as i64 - 1023 - if subnormal { 64 } else { 0 };
            let x = f64::from_bits(bits & !(0x7ff << 52) | 1023 << 52);
            let (product, lost) = two_product::<FMA>(*high, x);
            (*high, *low) = quick_two_sum(product, lost + *low * x);
            // Mantissas are below 2, so a product is below 4 and one halving suffices.
            let half = if high.abs() >= 2.0 { 0.5 } else { 1.0 };
            *power += i64::from(half != 1.0);
            *high *= half;
            *low *= half;
        }
        each::<f64, LANES>(self.bytes, |x| {
            for i in 0..LANES {
                step::<FMA>(x[i], &mut high[i], &mut low[i], &mut powers[i]);
            }
        });
        for (i, x) in left_over::<f64, LANES>(self.bytes).chunks_exact(8).map(f64::read).enumerate() {
            step::<FMA>(x, &mut high[i], &mut low[i], &mut powers[i]);
        }
        let mut product = Product::ONE;
        for i in 0..LANES {
            product = product.times(Dd { hi: high[i], lo: low[i] }, powers[i]);
        }
        product
    }
}
