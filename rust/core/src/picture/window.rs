//! A plane through a tensor of any rank, and exact values from it.

use std::ops::Range;

use super::values;
use crate::error::{Error, Result};
use crate::tensor::DType;

/// The most elements of a window or a sample.
pub const MAX_WINDOW: u64 = 1 << 22;

/// Which plane of a tensor is meant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Axes {
    /// The axis whose index grows downwards; the last but one where nothing is said.
    pub row: Option<usize>,
    /// The axis whose index grows to the right; the last where nothing is said.
    pub column: Option<usize>,
    /// The index on each of the other axes, in their order; 0 where nothing is said.
    pub fixed: Vec<u64>,
}

/// A plane through a tensor: where its elements lie. A tensor of one dimension is one row, a single number one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plane {
    /// Rows in it.
    pub rows: u64,
    /// Columns in it.
    pub columns: u64,
    pub(super) start: usize,
    pub(super) row_step: usize,
    pub(super) column_step: usize,
}

impl Plane {
    /// The plane of `axes` through a tensor of `shape` whose bytes are `data`.
    pub fn of(dtype: DType, shape: &[u64], data: &[u8], axes: &Axes) -> Result<Plane> {
        let n = values::count(dtype, data)?;
        if shape.iter().try_fold(1u64, |all, size| all.checked_mul(*size)) != Some(n) {
            return Err(Error::Invalid(format!("{n} elements have no shape {shape:?}")));
        }
        let rank = shape.len();
        let column = axes.column.or_else(|| (0..rank).rev().find(|axis| Some(*axis) != axes.row));
        let row = axes.row.or_else(|| (0..rank).rev().find(|axis| Some(*axis) != column));
        if let Some(axis) = [row, column].into_iter().flatten().find(|axis| *axis >= rank) {
            return Err(Error::Invalid(format!("a tensor of shape {shape:?} has no axis {axis}")));
        }
        if row.is_some() && row == column {
            return Err(Error::Invalid("rows and columns must be different axes".to_owned()));
        }
        // `shape` multiplies to `n`, so no step overflows unless there is no element anyway.
        let mut steps = vec![dtype.item_size(); rank];
        for axis in (1..rank).rev() {
            steps[axis - 1] = steps[axis].saturating_mul(shape[axis] as usize);
        }
        let others: Vec<usize> = (0..rank).filter(|axis| Some(*axis) != row && Some(*axis) != column).collect();
        if axes.fixed.len() > others.len() {
            let (given, there) = (axes.fixed.len(), others.len());
            return Err(Error::Invalid(format!("{given} indices for the {there} other axes of shape {shape:?}")));
        }
        let mut start = 0;
        for (axis, index) in others.into_iter().zip(axes.fixed.iter().copied().chain(std::iter::repeat(0))) {
            if index >= shape[axis] && n > 0 {
                return Err(Error::Invalid(format!("index {index} on axis {axis} of a tensor of shape {shape:?}")));
            }
            start += index as usize * if n > 0 { steps[axis] } else { 0 };
        }
        let along =
            |axis: Option<usize>| if n == 0 { (0, 0) } else { axis.map_or((1, 0), |axis| (shape[axis], steps[axis])) };
        let ((rows, row_step), (columns, column_step)) = (along(row), along(column));
        Ok(Plane { rows, columns, start, row_step, column_step })
    }

    /// A range of its rows and one of its columns, cut to what is there.
    pub fn cut(&self, rows: Option<Range<u64>>, columns: Option<Range<u64>>) -> (Range<u64>, Range<u64>) {
        let cut = |wanted: Option<Range<u64>>, there: u64| {
            let wanted = wanted.unwrap_or(0..there);
            let start = wanted.start.min(there);
            start..wanted.end.min(there).max(start)
        };
        (cut(rows, self.rows), cut(columns, self.columns))
    }

    /// The same plane with rows and columns exchanged.
    pub(super) fn turned(&self) -> Plane {
        Plane {
            rows: self.columns,
            columns: self.rows,
            start: self.start,
            row_step: self.column_step,
            column_step: self.row_step,
        }
    }

    pub(super) fn place(&self, row: u64, column: u64) -> usize {
        self.start + row as usize * self.row_step + column as usize * self.column_step
    }
}

/// The exact elements of some rows and columns of a plane, in C order: their bytes, and how many rows and columns there are.
pub fn window(
    dtype: DType,
    data: &[u8],
    plane: &Plane,
    rows: Option<Range<u64>>,
    columns: Option<Range<u64>>,
) -> Result<(Vec<u8>, u64, u64)> {
    let (rows, columns) = plane.cut(rows, columns);
    let (height, width) = (rows.end - rows.start, columns.end - columns.start);
    let size = dtype.item_size();
    if height.saturating_mul(width) > MAX_WINDOW {
        return Err(Error::Invalid(format!("a window of {height} x {width} elements; the most is {MAX_WINDOW}")));
    }
    let mut out = Vec::with_capacity((height * width) as usize * size);
    for row in rows {
        if plane.column_step == size && width > 0 {
            let at = plane.place(row, columns.start);
            out.extend_from_slice(&data[at..at + width as usize * size]);
        } else {
            for column in columns.clone() {
                let at = plane.place(row, column);
                out.extend_from_slice(&data[at..at + size]);
            }
        }
    }
    Ok((out, height, width))
}

/// Some of the elements, evenly picked.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The first is the first element, the others follow so many after each other.
    pub stride: u64,
    /// Their values.
    pub values: Vec<f64>,
}

/// At most `most` elements, evenly picked in C order.
pub fn sample(dtype: DType, data: &[u8], most: u64) -> Result<Sample> {
    let n = values::count(dtype, data)?;
    if most == 0 || most > MAX_WINDOW {
        return Err(Error::Invalid(format!("a sample has 1 to {MAX_WINDOW} elements, not {most}")));
    }
    let stride = n.div_ceil(most).max(1);
    let mut picked = vec![0.0; n.div_ceil(stride) as usize];
    values::strided(dtype, data, stride as usize * dtype.item_size(), &mut picked);
    Ok(Sample { stride, values: picked })
}
