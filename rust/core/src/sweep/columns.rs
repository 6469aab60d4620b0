//! A table of numbers, filled concurrently, and its columns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::reduce::Scalar;
use crate::tensor::DType;

/// The dtype of empty cells. Numbers are never strings, so that dtype is free.
const EMPTY: u8 = DType::Str as u8;

/// A table under construction: nine bytes per cell, row by row, because one record fills one row.
pub struct Cells {
    columns: usize,
    dtypes: Vec<AtomicU8>,
    bits: Vec<AtomicU64>,
    /// Upper halves of complex128 cells.
    rest: Mutex<HashMap<usize, u64>>,
}

/// A finished column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The dtype of all cells.
    pub dtype: DType,
    /// The cells, as in an array.
    pub bytes: Vec<u8>,
}

impl Cells {
    /// An empty table.
    pub fn new(rows: usize, columns: usize) -> Cells {
        let count = rows * columns;
        Cells {
            columns,
            dtypes: (0..count).map(|_| AtomicU8::new(EMPTY)).collect(),
            bits: (0..count).map(|_| AtomicU64::new(0)).collect(),
            rest: Mutex::default(),
        }
    }

    /// Sets a cell.
    pub fn set(&self, row: usize, column: usize, number: &Scalar) {
        if number.dtype() == DType::BF16 {
            // numpy has no bfloat16.
            return self.set(row, column, &Scalar::from_f64(DType::F32, number.to_f64()));
        }
        let at = row * self.columns + column;
        let mut raw = [0; 16];
        raw[..number.as_bytes().len()].copy_from_slice(number.as_bytes());
        let whole = u128::from_le_bytes(raw);
        self.bits[at].store(whole as u64, Ordering::Relaxed);
        if whole >> 64 != 0 {
            self.rest.lock().insert(at, (whole >> 64) as u64);
        }
        self.dtypes[at].store(number.dtype().number(), Ordering::Relaxed);
    }

    fn get(&self, at: usize) -> Option<Scalar> {
        let dtype = self.dtypes[at].load(Ordering::Relaxed);
        if dtype == EMPTY {
            return None;
        }
        let dtype = DType::from_number(dtype.into())?;
        let low = self.bits[at].load(Ordering::Relaxed);
        let high = if dtype == DType::C128 { self.rest.lock().get(&at).copied().unwrap_or(0) } else { 0 };
        let raw = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
        Some(Scalar::from_raw(dtype, &raw[..dtype.item_size()]))
    }

    /// The columns: each has the dtype of its cells, or the narrowest one that holds all. Empty cells become NaN, which
    /// makes the column a float one.
    pub fn finish(self) -> Vec<Column> {
        let rows = self.bits.len().checked_div(self.columns).unwrap_or(0);
        let mut columns: Vec<Column> = (0..self.columns)
            .map(|column| {
                let dtype = self.dtype_of(column);
                Column { dtype, bytes: Vec::with_capacity(rows * dtype.item_size()) }
            })
            .collect();
        for row in 0..rows {
            for (at, column) in columns.iter_mut().enumerate() {
                self.push(row * self.columns + at, column);
            }
        }
        columns
    }

    fn push(&self, at: usize, column: &mut Column) {
        let dtype = column.dtype;
        if dtype.item_size() <= 8 && self.dtypes[at].load(Ordering::Relaxed) == dtype.number() {
            let bits = self.bits[at].load(Ordering::Relaxed).to_le_bytes();
            return column.bytes.extend_from_slice(&bits[..dtype.item_size()]);
        }
        let cell = self.get(at).unwrap_or_else(|| Scalar::from_f64(dtype, f64::NAN));
        let cell = if cell.dtype() == dtype { cell } else { convert(&cell, dtype) };
        column.bytes.extend_from_slice(cell.as_bytes());
    }

    fn dtype_of(&self, column: usize) -> DType {
        let mut seen = [false; 256];
        let of_column = self.dtypes.iter().skip(column).step_by(self.columns);
        of_column.for_each(|dtype| seen[usize::from(dtype.load(Ordering::Relaxed))] = true);
        let has_gaps = std::mem::replace(&mut seen[usize::from(EMPTY)], false);
        common(DType::ALL.into_iter().filter(|dtype| seen[usize::from(dtype.number())]), has_gaps)
    }
}

fn is_complex(dtype: DType) -> bool {
    matches!(dtype, DType::C64 | DType::C128)
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

fn common(mut dtypes: impl Iterator<Item = DType>, has_gaps: bool) -> DType {
    let Some(first) = dtypes.next() else { return DType::F64 };
    let all: Vec<DType> = std::iter::once(first).chain(dtypes).collect();
    let has_nan = |dtype: DType| is_complex(dtype) || dtype.is_float();
    match all.as_slice() {
        [one] if !has_gaps || has_nan(*one) => *one,
        _ if all.iter().any(|dtype| is_complex(*dtype)) => DType::C128,
        _ if has_gaps || all.iter().any(|dtype| dtype.is_float()) => DType::F64,
        _ if all.iter().all(|dtype| is_signed(*dtype)) => DType::I64,
        _ if all.iter().all(|dtype| !is_signed(*dtype)) => DType::U64,
        _ => DType::F64,
    }
}

fn convert(number: &Scalar, dtype: DType) -> Scalar {
    use crate::reduce::Value;
    match (number.value(), dtype) {
        (Value::Complex(re, im), DType::C128) => Scalar::from_complex(dtype, re, im),
        (Value::Int(value), DType::I64) => Scalar::from_i64(dtype, value),
        (Value::UInt(value), DType::U64) => Scalar::from_u64(dtype, value),
        _ => Scalar::from_f64(dtype, number.to_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(numbers: &[Option<Scalar>]) -> Column {
        let cells = Cells::new(numbers.len(), 2);
        for (at, number) in numbers.iter().enumerate() {
            number.iter().for_each(|number| cells.set(at, 1, number));
        }
        let mut columns = cells.finish();
        assert_eq!(columns[0].dtype, DType::F64);
        columns.remove(1)
    }

    #[test]
    fn column_keeps_common_dtype() {
        let one = Scalar::from_i64(DType::I64, i64::MIN + 1);
        let column = filled(&[Some(one), Some(one)]);
        assert_eq!((column.dtype, &column.bytes[..8]), (DType::I64, one.as_bytes()));
        let complex = Scalar::from_complex(DType::C128, 1.5, -2.5);
        assert_eq!(filled(&[Some(complex)]), Column { dtype: DType::C128, bytes: complex.as_bytes().to_vec() });
    }

    #[test]
    fn mixed_dtypes_are_promoted() {
        let (f, i, u) =
            (Scalar::from_f64(DType::F32, 0.5), Scalar::from_i64(DType::I8, -1), Scalar::from_u64(DType::U64, 7));
        for (cells, dtype) in [
            (vec![Some(f), Some(i)], DType::F64),
            (vec![Some(i), Some(Scalar::from_i64(DType::I64, 3))], DType::I64),
            (vec![Some(u), Some(Scalar::from_u64(DType::U8, 3))], DType::U64),
            (vec![Some(u), Some(i)], DType::F64),
            (vec![Some(f), Some(Scalar::from_complex(DType::C64, 1.0, 2.0))], DType::C128),
            (vec![Some(f), None], DType::F32),
            (vec![Some(i), None], DType::F64),
            (vec![None], DType::F64),
        ] {
            assert_eq!(filled(&cells).dtype, dtype, "{cells:?}");
        }
        let with_gap = filled(&[Some(i), None]);
        assert_eq!(with_gap.bytes[..8], (-1f64).to_le_bytes());
        assert!(f64::from_le_bytes(with_gap.bytes[8..].try_into().unwrap()).is_nan());
    }
}
