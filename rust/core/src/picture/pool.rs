//! Pooling of a plane through a tensor to a small image.

use std::ops::Range;

use super::values::{self, BLOCK};
use super::window::Plane;
use crate::error::{Error, Result};
use crate::simd::{InstructionSet, Kernel};
use crate::tensor::DType;

/// Limit on the cells per side.
pub const MAX_SIDE: u64 = 4096;

/// The pooling of the elements under a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// The mean.
    Mean,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The element of largest magnitude, signed, so that outliers stay visible.
    MaxAbs,
}

impl Pool {
    /// The pooling of a name: "mean", "min", "max" or "maxabs".
    pub fn from_name(name: &str) -> Option<Pool> {
        Some(match name {
            "mean" => Pool::Mean,
            "min" => Pool::Min,
            "max" => Pool::Max,
            "maxabs" => Pool::MaxAbs,
            _ => return None,
        })
    }
}

/// A pooled image. A cell with a NaN is NaN, else one with an infinity is that infinity (+inf before -inf).
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// Height in cells.
    pub height: usize,
    /// Width in cells.
    pub width: usize,
    /// The cells, row by row.
    pub cells: Vec<f32>,
    /// The rows of the plane that the image shows.
    pub rows: Range<u64>,
    /// The columns of the plane that the image shows.
    pub columns: Range<u64>,
    /// Minimum and maximum of the finite cells; NaN without any.
    pub ends: (f32, f32),
}

impl Image {
    /// The 8-bit code of NaN; +inf and -inf are one and two less, finite values range from 0 to three less.
    pub const NAN_U8: u8 = u8::MAX;
    /// The 8-bit code of NaN; +inf and -inf are one and two less, finite values range from 0 to three less.
    pub const NAN_U16: u16 = u16::MAX;

    /// The cells as indices in a palette of 253 colors from `low` to `high`.
    pub fn codes_u8(&self, low: f64, high: f64) -> Vec<u8> {
        self.codes(low, high, Image::NAN_U8.into()).map(|code| code as u8).collect()
    }

    /// The cells as indices in a palette of 65,533 colors from `low` to `high`.
    pub fn codes_u16(&self, low: f64, high: f64) -> Vec<u16> {
        self.codes(low, high, Image::NAN_U16.into()).map(|code| code as u16).collect()
    }

    fn codes(&self, low: f64, high: f64, nan: u32) -> impl Iterator<Item = u32> + '_ {
        let top = f64::from(nan - 3);
        // An empty range maps to the middle color.
        let (per, middle) = if high > low { (top / (high - low), 0.0) } else { (0.0, top / 2.0) };
        self.cells.iter().map(move |cell| match f64::from(*cell) {
            x if x.is_nan() => nan,
            f64::INFINITY => nan - 1,
            f64::NEG_INFINITY => nan - 2,
            x => ((x - low) * per + middle).round().clamp(0.0, top) as u32,
        })
    }
}

/// Pools rows and columns of a plane to at most `height` x `width` cells. If there are fewer elements than cells, each
/// element is a cell.
pub fn pooled(
    dtype: DType,
    data: &[u8],
    plane: &Plane,
    rows: Option<Range<u64>>,
    columns: Option<Range<u64>>,
    (height, width): (u64, u64),
    pool: Pool,
) -> Result<Image> {
    if !(1..=MAX_SIDE).contains(&height) || !(1..=MAX_SIDE).contains(&width) {
        return Err(Error::Invalid(format!(
            "invalid image size {height} x {width}; each side needs 1 to {MAX_SIDE} cells"
        )));
    }
    let (rows, columns) = plane.cut(rows, columns);
    if plane.row_step < plane.column_step && plane.rows > 1 && plane.columns > 1 {
        // If columns are contiguous, the transposed plane is pooled, in the order of memory.
        let transposed = plane.transposed();
        let lying = pooled(dtype, data, &transposed, Some(columns.clone()), Some(rows.clone()), (width, height), pool)?;
        let (height, width) = (lying.width, lying.height);
        let cells = (0..height * width).map(|at| lying.cells[at % width * height + at / width]).collect();
        return Ok(Image { height, width, cells, rows, columns, ends: lying.ends });
    }
    let (all_rows, all_columns) = (rows.end - rows.start, columns.end - columns.start);
    let (height, width) = (height.min(all_rows), width.min(all_columns));
    // Start of cell `i` of `cells` among `all`.
    let edge = |i: u64, cells: u64, all: u64| (u128::from(i) * u128::from(all) / u128::from(cells)) as u64;
    let mut cells = Vec::with_capacity((height * width) as usize);
    let isa = InstructionSet::best();
    let mut row_of_cells = vec![Cell::NONE; width as usize];
    let mut so_far = Box::new(Columns::NONE);
    for i in 0..height {
        let down = rows.start + edge(i, height, all_rows)..rows.start + edge(i + 1, height, all_rows);
        row_of_cells.fill(Cell::NONE);
        let (mut j, mut left) = (0, 0);
        let mut next = if width > 0 { edge(1, width, all_columns) } else { 0 };
        while left < all_columns {
            let n = (all_columns - left).min(BLOCK as u64) as usize;
            // First down all columns at once, then across the results.
            so_far.clear(n, pool);
            for row in down.clone() {
                let bytes = &data[plane.pixel_of(row, columns.start + left)..];
                isa.run(Down { dtype, bytes, step: plane.column_step, pool, so_far: &mut so_far, n });
            }
            for k in 0..n {
                while left + k as u64 >= next {
                    j += 1;
                    next = edge(j + 1, width, all_columns);
                }
                row_of_cells[j as usize].join(&so_far, k, pool);
            }
            left += n as u64;
        }
        let height = down.end - down.start;
        cells.extend(row_of_cells.iter().zip(0..).map(|(cell, j)| {
            let width = edge(j + 1, width, all_columns) - edge(j, width, all_columns);
            cell.value((height * width) as f64, pool)
        }));
    }
    let finite = || cells.iter().copied().filter(|cell| cell.is_finite());
    let ends = (finite().fold(f32::NAN, f32::min), finite().fold(f32::NAN, f32::max));
    Ok(Image { height: height as usize, width: width as usize, cells, rows, columns, ends })
}

/// Bits for non-finite elements.
const NAN: u64 = 1;
const POS_INF: u64 = 2;
const NEG_INF: u64 = 4;

/// The initial value of a pooling.
fn start(pool: Pool) -> f64 {
    match pool {
        Pool::Mean | Pool::MaxAbs => 0.0,
        Pool::Min => f64::INFINITY,
        Pool::Max => f64::NEG_INFINITY,
    }
}

#[inline(always)]
fn joined(pool: Pool, so_far: f64, x: f64) -> f64 {
    match pool {
        Pool::Mean => so_far + x,
        Pool::Min => {
            if x < so_far {
                x
            } else {
                so_far
            }
        }
        Pool::Max => {
            if x > so_far {
                x
            } else {
                so_far
            }
        }
        Pool::MaxAbs => {
            if x.abs() > so_far.abs() {
                x
            } else {
                so_far
            }
        }
    }
}

/// The pooled finite elements and the non-finite bits of a block of columns.
struct Columns {
    pooled: [f64; BLOCK],
    odd: [u64; BLOCK],
}

impl Columns {
    const NONE: Columns = Columns { pooled: [0.0; BLOCK], odd: [0; BLOCK] };

    fn clear(&mut self, n: usize, pool: Pool) {
        self.pooled[..n].fill(start(pool));
        self.odd[..n].fill(0);
    }
}

/// The pooled elements and the non-finite bits of a cell.
#[derive(Clone, Copy)]
struct Cell(Option<f64>, u64);

impl Cell {
    const NONE: Cell = Cell(None, 0);

    fn join(&mut self, columns: &Columns, k: usize, pool: Pool) {
        let x = columns.pooled[k];
        self.0 = Some(self.0.map_or(x, |so_far| joined(pool, so_far, x)));
        self.1 |= columns.odd[k];
    }

    fn value(&self, n: f64, pool: Pool) -> f32 {
        match self.1 {
            odd if odd & NAN != 0 => f32::NAN,
            odd if odd & POS_INF != 0 => f32::INFINITY,
            odd if odd & NEG_INF != 0 => f32::NEG_INFINITY,
            _ => {
                let value = self.0.unwrap_or(0.0) / if pool == Pool::Mean { n } else { 1.0 };
                // Finite float64 values beyond float32 saturate, as they are not infinite.
                value.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
            }
        }
    }
}

/// Pools one more row of `n` elements into the columns.
struct Down<'a> {
    dtype: DType,
    bytes: &'a [u8],
    step: usize,
    pool: Pool,
    so_far: &'a mut Columns,
    n: usize,
}

impl Kernel for Down<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..self.n];
        values::strided(self.dtype, self.bytes, self.step, block);
        let (pooled, odd) = (&mut self.so_far.pooled[..self.n], &mut self.so_far.odd[..self.n]);
        #[inline(always)]
        fn join(block: &[f64], pooled: &mut [f64], odd: &mut [u64], with: impl Fn(f64, f64) -> f64) {
            for ((x, so_far), odd) in block.iter().zip(pooled).zip(odd) {
                let next = with(*so_far, *x);
                *so_far = if x.is_finite() { next } else { *so_far };
                *odd |= if x.is_nan() { NAN } else { 0 };
                *odd |= if *x == f64::INFINITY { POS_INF } else { 0 };
                *odd |= if *x == f64::NEG_INFINITY { NEG_INF } else { 0 };
            }
        }
        // A loop per pooling avoids a branch per element.
        match self.pool {
            Pool::Mean => join(block, pooled, odd, |a, x| joined(Pool::Mean, a, x)),
            Pool::Min => join(block, pooled, odd, |a, x| joined(Pool::Min, a, x)),
            Pool::Max => join(block, pooled, odd, |a, x| joined(Pool::Max, a, x)),
            Pool::MaxAbs => join(block, pooled, odd, |a, x| joined(Pool::MaxAbs, a, x)),
        }
    }
}
