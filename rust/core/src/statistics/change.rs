//! The L2 norm of the change between two tensors, of elements that are finite in both.

use crate::reduce::{BLOCK, Dd, Float, each_group, exponent, float_block, ldexp, left_over, power_of_two};
use crate::simd::{InstructionSet, Kernel};
use crate::tensor::DType;

/// The change of a tensor, collected block by block while its moments are computed.
pub struct Change<'p> {
    isa: InstructionSet,
    dtype: DType,
    previous: Option<&'p [u8]>,
    /// Bytes of `previous` that were compared.
    at: usize,
    sum: Sum,
    buffer: Vec<u8>,
}

/// The sum of squared differences, and the largest difference.
#[derive(Clone, Copy, Default)]
struct Sum {
    squares: Dd,
    largest: f64,
}

impl Sum {
    fn add(&mut self, (squares, largest): (f64, f64)) {
        self.squares = self.squares + squares.into();
        self.largest = self.largest.max(largest);
    }
}

impl<'p> Change<'p> {
    pub fn new(isa: InstructionSet, dtype: DType, previous: Option<&'p [u8]>) -> Self {
        Change { isa, dtype, previous, at: 0, sum: Sum::default(), buffer: Vec::new() }
    }

    /// Compares the next block of a tensor of real floats.
    pub fn add(&mut self, block: &[u8]) {
        let Some(previous) = self.previous else { return };
        let wide = if self.dtype == DType::F64 { 8 } else { 4 };
        let length = block.len() / wide * self.dtype.item_size();
        let before = float_block(self.dtype, &previous[self.at..self.at + length], &mut self.buffer);
        self.at += length;
        self.sum.add(if wide == 8 {
            self.isa.run(Differences::<f64>::new(block, before, 1.0))
        } else {
            self.isa.run(Differences::<f32>::new(block, before, 1.0))
        });
    }

    /// The norm, given the whole tensor; NaN without a previous one.
    pub fn finish(self, data: &[u8]) -> f64 {
        let Some(previous) = self.previous else { return f64::NAN };
        let norm = |sum: Sum| sum.squares.sqrt().to_f64();
        match self.dtype {
            DType::F64 => {
                let far = exponent(self.sum.largest);
                if far.abs() <= 400 || self.sum.largest == 0.0 {
                    return norm(self.sum);
                }
                // Squares would overflow or underflow. An infinite difference has finite elements too.
                let power = (-far).clamp(-1022, 1022);
                let mut sum = Sum::default();
                let blocks = data.chunks(BLOCK * 8).zip(previous.chunks(BLOCK * 8));
                blocks.for_each(|(now, before)| {
                    sum.add(self.isa.run(Differences::<f64>::new(now, before, power_of_two(power))));
                });
                ldexp(norm(sum), -power)
            }
            dtype if dtype.is_float() => norm(self.sum),
            DType::C64 => parts::<f32>(data, previous),
            DType::C128 => parts::<f64>(data, previous),
            dtype => integers(dtype, data, previous),
        }
    }
}

/// Squares and the largest of the differences, scaled.
struct Differences<'a, T> {
    now: &'a [u8],
    before: &'a [u8],
    scale: f64,
    element: std::marker::PhantomData<T>,
}

impl<'a, T> Differences<'a, T> {
    fn new(now: &'a [u8], before: &'a [u8], scale: f64) -> Self {
        Differences { now, before, scale, element: std::marker::PhantomData }
    }
}

impl<T: Float> Kernel for Differences<'_, T> {
    type Out = (f64, f64);

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) -> (f64, f64) {
        if T::SIZE == 4 {
            // Differences of finite f32 and their squares are finite as f64, so a finite sum needs no look at each element.
            let squares = squares_of_all::<T, LANES, FMA>(self.now, self.before);
            if squares.is_finite() {
                return (squares, 0.0);
            }
        }
        let scale = self.scale;
        let difference = |now: T, before: T| {
            let (now, before) = (now.wide(), before.wide());
            let both = now.is_finite() & before.is_finite();
            let d = if T::SIZE == 4 { now - before } else { now * scale - before * scale };
            if both { d } else { 0.0 }
        };
        let (mut squares, mut largest) = ([0.0; LANES], [0.0f64; LANES]);
        let mut others = self.before.chunks_exact(T::SIZE * LANES);
        each_group::<T, LANES>(self.now, |now| {
            let Some(other) = others.next() else { return };
            for i in 0..LANES {
                let d = difference(now[i], T::read(&other[i * T::SIZE..(i + 1) * T::SIZE]));
                squares[i] = if FMA { d.mul_add(d, squares[i]) } else { d * d + squares[i] };
                if T::SIZE == 8 {
                    largest[i] = if d.abs() > largest[i] { d.abs() } else { largest[i] };
                }
            }
        });
        let rest = left_over::<T, LANES>(self.now).chunks_exact(T::SIZE);
        for (i, (now, before)) in rest.zip(left_over::<T, LANES>(self.before).chunks_exact(T::SIZE)).enumerate() {
            let d = difference(T::read(now), T::read(before));
            squares[i] += d * d;
            largest[i] = largest[i].max(d.abs());
        }
        (squares.iter().sum(), largest.iter().fold(0.0, |most, one| most.max(*one)))
    }
}

/// The sum of the squared differences of all elements.
#[inline(always)]
fn squares_of_all<T: Float, const LANES: usize, const FMA: bool>(now: &[u8], before: &[u8]) -> f64 {
    let mut squares = [0.0; LANES];
    let mut add = |i: usize, now: T, before: T| {
        let d = now.wide() - before.wide();
        squares[i] = if FMA { d.mul_add(d, squares[i]) } else { d * d + squares[i] };
    };
    let mut others = before.chunks_exact(T::SIZE * LANES);
    each_group::<T, LANES>(now, |now| {
        let Some(other) = others.next() else { return };
        for i in 0..LANES {
            add(i, now[i], T::read(&other[i * T::SIZE..(i + 1) * T::SIZE]));
        }
    });
    let rest = left_over::<T, LANES>(now).chunks_exact(T::SIZE);
    for (i, (now, before)) in rest.zip(left_over::<T, LANES>(before).chunks_exact(T::SIZE)).enumerate() {
        add(i, T::read(now), T::read(before));
    }
    squares.iter().sum()
}

/// The norm of the change of complex elements with parts of type `T`.
fn parts<T: Float>(data: &[u8], previous: &[u8]) -> f64 {
    let mut change = Scaled::default();
    for (now, before) in data.chunks_exact(2 * T::SIZE).zip(previous.chunks_exact(2 * T::SIZE)) {
        let part = |bytes: &[u8], at: usize| T::read(&bytes[at * T::SIZE..]).wide();
        let (re, im) = ((part(now, 0), part(before, 0)), (part(now, 1), part(before, 1)));
        if [re.0, re.1, im.0, im.1].into_iter().all(f64::is_finite) {
            change.add(re.0, re.1);
            change.add(im.0, im.1);
        }
    }
    change.norm()
}

/// A norm that is rescaled as larger differences are found.
struct Scaled {
    power: i32,
    squares: Dd,
}

impl Default for Scaled {
    fn default() -> Self {
        Scaled { power: -1022, squares: Dd::ZERO }
    }
}

impl Scaled {
    fn add(&mut self, now: f64, before: f64) {
        // Halves, because the difference of two finite elements can be infinite.
        let half = 0.5 * now - 0.5 * before;
        if half == 0.0 {
            return;
        }
        let over = exponent(half).max(-1022);
        if over > self.power {
            self.squares = self.squares.scaled(2 * (self.power - over));
            self.power = over;
        }
        let d = ldexp(half, -self.power);
        self.squares = self.squares + Dd::from(d * d);
    }

    fn norm(self) -> f64 {
        ldexp(self.squares.sqrt().to_f64(), self.power + 1)
    }
}

/// The norm of the change of integers or booleans.
fn integers(dtype: DType, data: &[u8], previous: &[u8]) -> f64 {
    macro_rules! sum {
        ($int:ty) => {{
            const SIZE: usize = size_of::<$int>();
            let read = |bytes: &[u8]| <$int>::from_le_bytes(std::array::from_fn(|i| bytes[i]));
            let mut sum = Dd::ZERO;
            for (now, before) in data.chunks(BLOCK * SIZE).zip(previous.chunks(BLOCK * SIZE)) {
                let pairs = now.chunks_exact(SIZE).zip(before.chunks_exact(SIZE));
                let squares = pairs.map(|(now, before)| read(now).abs_diff(read(before)) as f64).map(|d| d * d);
                sum = sum + Dd::from(squares.sum::<f64>());
            }
            sum.sqrt().to_f64()
        }};
    }
    match dtype {
        DType::I8 => sum!(i8),
        DType::I16 => sum!(i16),
        DType::I32 => sum!(i32),
        DType::I64 => sum!(i64),
        DType::U16 => sum!(u16),
        DType::U32 => sum!(u32),
        DType::U64 => sum!(u64),
        _ => sum!(u8),
    }
}
