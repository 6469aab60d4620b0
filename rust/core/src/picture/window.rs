//! Planes through tensors of any rank, and exact values from them.

use std::ops::Range;

use super::values;
use crate::error::{Error, Result};
use crate::tensor::DType;

/// Limit on the elements of a window or sample.
pub const MAX_WINDOW: u64 = 1 << 22;

/// The axes of a plane.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Axes {
    /// The row axis; by default the last but one.
    pub row: Option<usize>,
    /// The column axis; by default the last.
    pub column: Option<usize>,
    /// The indices on the other axes, in order; 0 by default.
    pub fixed: Vec<u64>,
}

/// A plane through a tensor: the layout of its elements. A vector is one row, a scalar one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plane {
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    pub(super) start: usize,
    pub(super) row_step: usize,
    pub(super) column_step: usize,
}

impl Plane {
    /// The plane of `axes` through a tensor of `shape` with the bytes `data`.
    pub fn of(dtype: DType, shape: &[u64], data: &[u8], axes: &Axes) -> Result<Plane> {
        let n = values::count(dtype, data)?;
        if shape.iter().try_fold(1u64, |all, size| all.checked_mul(*size)) != Some(n) {
            return Err(Error::Invalid(format!("{n} elements do not match shape {shape:?}")));
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
        // The product of `shape` is `n`, so strides overflow only in an empty tensor.
        let mut steps = vec![dtype.item_size(); rank];
        for axis in (1..rank).rev() {
            steps[axis - 1] = steps[axis].saturating_mul(shape[axis] as usize);
        }
        let others: Vec<usize> = (0..rank).filter(|axis| Some(*axis) != row && Some(*axis) != column).collect();
        if axes.fixed.len() > others.len() {
            let (given, there) = (axes.fixed.len(), others.len());
            return Err(Error::Invalid(format!(
                "{given} fixed indices given, but shape {shape:?} has only {there} other axes"
            )));
        }
        let mut start = 0;
        for (axis, index) in others.into_iter().zip(axes.fixed.iter().copied().chain(std::iter::repeat(0))) {
            if index >= shape[axis] && n > 0 {
                return Err(Error::Invalid(format!("index {index} is out of range on axis {axis} of shape {shape:?}")));
            }
            start += index as usize * if n > 0 { steps[axis] } else { 0 };
        }
        let along =
            |axis: Option<usize>| if n == 0 { (0, 0) } else { axis.map_or((1, 0), |axis| (shape[axis], steps[axis])) };
        let ((rows, row_step), (columns, column_step)) = (along(row), along(column));
        Ok(Plane { rows, columns, start, row_step, column_step })
    }

    /// Clips ranges of rows and columns to the plane.
    pub fn cut(&self, rows: Option<Range<u64>>, columns: Option<Range<u64>>) -> (Range<u64>, Range<u64>) {
        let cut = |requested: Option<Range<u64>>, there: u64| {
            let requested = requested.unwrap_or(0..there);
            let start = requested.start.min(there);
            start..requested.end.min(there).max(start)
        };
        (cut(rows, self.rows), cut(columns, self.columns))
    }

    /// The transposed plane.
    pub(super) fn transposed(&self) -> Plane {
        Plane {
            rows: self.columns,
            columns: self.rows,
            start: self.start,
            row_step: self.column_step,
            column_step: self.row_step,
        }
    }

    pub(super) fn pixel_of(&self, row: u64, column: u64) -> usize {
        self.start + row as usize * self.row_step + column as usize * self.column_step
    }
}

/// Copies the elements of rows and columns in C order. Returns their bytes and the numbers of rows and columns.
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
        return Err(Error::Invalid(format!("window of {height} x {width} elements exceeds the limit of {MAX_WINDOW}")));
    }
    let mut out = Vec::with_capacity((height * width) as usize * size);
    for row in rows {
        if plane.column_step == size && width > 0 {
            let at = plane.pixel_of(row, columns.start);
            out.extend_from_slice(&data[at..at + width as usize * size]);
        } else {
            for column in columns.clone() {
                let at = plane.pixel_of(row, column);
                out.extend_from_slice(&data[at..at + size]);
            }
        }
    }
    Ok((out, height, width))
}

/// An evenly spaced sample of the elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Distance between sampled elements, starting with the first.
    pub stride: u64,
    /// The values.
    pub values: Vec<f64>,
}

/// Samples at most `most` elements, evenly spaced in C order.
pub fn sample(dtype: DType, data: &[u8], most: u64) -> Result<Sample> {
    let n = values::count(dtype, data)?;
    if most == 0 || most > MAX_WINDOW {
        return Err(Error::Invalid(format!("invalid sample size {most}; needs 1 to {MAX_WINDOW}")));
    }
    let stride = n.div_ceil(most).max(1);
    let mut picked = vec![0.0; n.div_ceil(stride) as usize];
    values::strided(dtype, data, stride as usize * dtype.item_size(), &mut picked);
    Ok(Sample { stride, values: picked })
}
