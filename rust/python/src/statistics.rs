//! Bindings of the statistics of tensors.

use std::collections::HashMap;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use smdwidgets_core::statistics::{self as core, Statistics};
use smdwidgets_core::tensor::DType;

use crate::elements::Elements;
use crate::errors::to_python;
use crate::gil::detached;
use crate::numpy;

/// The names of the columns: counts, then numbers.
pub const COUNTS: [&str; 7] = ["count", "nan", "neg_inf", "pos_inf", "zeros", "saturated", "subnormal"];
pub const NUMBERS: [&str; 8] = ["min", "max", "mean", "std", "l1", "l2", "abs_max", "update"];

pub fn counts(of: &Statistics) -> [u64; 7] {
    [of.count, of.nan, of.neg_inf, of.pos_inf, of.zeros, of.saturated, of.subnormal]
}

pub fn numbers(of: &Statistics) -> [f64; 8] {
    [of.min, of.max, of.mean, of.std, of.l1, of.l2, of.abs_max, of.update]
}

fn from_columns(counts: [u64; 7], numbers: [f64; 8]) -> Statistics {
    let [count, nan, neg_inf, pos_inf, zeros, saturated, subnormal] = counts;
    let [min, max, mean, std, l1, l2, abs_max, update] = numbers;
    Statistics {
        count,
        nan,
        neg_inf,
        pos_inf,
        zeros,
        saturated,
        subnormal,
        min,
        max,
        mean,
        std,
        l1,
        l2,
        abs_max,
        update,
    }
}

/// The statistics of one array, as Python numbers.
#[pyfunction]
#[pyo3(signature = (array, previous = None, dtype = None))]
pub fn tensor_statistics<'py>(
    py: Python<'py>,
    array: &Bound<'py, PyAny>,
    previous: Option<&Bound<'py, PyAny>>,
    dtype: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let pair = Pair::of(array, previous, dtype)?;
    let (dtype, now, before) = pair.slices();
    let found =
        detached(py, pair.size(), || core::statistics(dtype, now, before)).map_err(|error| to_python(py, &error))?;
    let out = PyDict::new(py);
    for (name, count) in COUNTS.into_iter().zip(counts(&found)) {
        out.set_item(PyString::intern(py, name), count)?;
    }
    for (name, number) in NUMBERS.into_iter().zip(numbers(&found)) {
        out.set_item(PyString::intern(py, name), number)?;
    }
    Ok(out)
}

/// The statistics of many arrays, as columns.
#[pyfunction]
#[pyo3(signature = (arrays, previous = None, dtypes = None, threads = 1))]
pub fn statistics_of<'py>(
    py: Python<'py>,
    arrays: Vec<Bound<'py, PyAny>>,
    previous: Option<Vec<Option<Bound<'py, PyAny>>>>,
    dtypes: Option<Vec<String>>,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let all = arrays.len();
    for (what, given) in
        [("previous", previous.as_ref().map_or(all, Vec::len)), ("dtypes", dtypes.as_ref().map_or(all, Vec::len))]
    {
        if given != all {
            return Err(PyValueError::new_err(format!("{what} has {given} elements for {all} arrays")));
        }
    }
    let before = |at: usize| previous.as_ref().and_then(|previous| previous[at].as_ref());
    let dtype = |at: usize| dtypes.as_ref().map(|dtypes| dtypes[at].as_str());
    let pairs: Vec<Pair> =
        arrays.iter().enumerate().map(|(at, array)| Pair::of(array, before(at), dtype(at))).collect::<PyResult<_>>()?;
    let (size, slices) = (pairs.iter().map(Pair::size).sum(), pairs.iter().map(Pair::slices).collect::<Vec<_>>());
    let found = detached(py, size, || core::statistics_of(&slices, threads)).map_err(|error| to_python(py, &error))?;
    columns(py, found.iter())
}

/// Combines statistics of parts: columns, and the number of the whole to which each row belongs.
#[pyfunction]
#[pyo3(signature = (columns, wholes = None))]
pub fn combine_statistics<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyDict>,
    wholes: Option<Vec<usize>>,
) -> PyResult<Bound<'py, PyDict>> {
    let parts = rows(columns)?;
    let wholes = wholes.unwrap_or_else(|| vec![0; parts.len()]);
    if wholes.len() != parts.len() {
        let message = format!("{} numbers of wholes for {} rows", wholes.len(), parts.len());
        return Err(PyValueError::new_err(message));
    }
    let mut groups: HashMap<usize, Vec<Statistics>> = HashMap::new();
    for (whole, part) in wholes.iter().zip(parts) {
        groups.entry(*whole).or_default().push(part);
    }
    let mut numbers: Vec<usize> = groups.keys().copied().collect();
    numbers.sort_unstable();
    let combined: Vec<Statistics> = numbers.iter().filter_map(|whole| core::combine(&groups[whole])).collect();
    self::columns(py, combined.iter())
}

/// Columns of statistics.
pub fn columns<'a, 'py>(
    py: Python<'py>,
    found: impl ExactSizeIterator<Item = &'a Statistics> + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let rows = found.len();
    // All columns in one pass: millions of rows are not in the cache for a second one.
    let (whole, real) = detached(py, rows * size_of::<Statistics>(), move || {
        let mut whole: [Vec<[u8; 8]>; COUNTS.len()] = std::array::from_fn(|_| Vec::with_capacity(rows));
        let mut real: [Vec<[u8; 8]>; NUMBERS.len()] = std::array::from_fn(|_| Vec::with_capacity(rows));
        for one in found {
            whole.iter_mut().zip(counts(one)).for_each(|(column, value)| column.push(value.to_le_bytes()));
            real.iter_mut().zip(numbers(one)).for_each(|(column, value)| column.push(value.to_le_bytes()));
        }
        (whole, real)
    });
    let out = PyDict::new(py);
    for (name, column) in COUNTS.into_iter().zip(whole) {
        out.set_item(PyString::intern(py, name), numpy::whole_column(py, DType::I64, column)?)?;
    }
    for (name, column) in NUMBERS.into_iter().zip(real) {
        out.set_item(PyString::intern(py, name), numpy::whole_column(py, DType::F64, column)?)?;
    }
    Ok(out)
}

/// Statistics from columns. Those that follow from others, and counts of types of 8 bits, may be missing.
pub fn rows(columns: &Bound<'_, PyDict>) -> PyResult<Vec<Statistics>> {
    let py = columns.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    let column = |name: &str, dtype: &str| -> PyResult<Option<Elements>> {
        let Some(given) = columns.get_item(name)? else { return Ok(None) };
        let array = numpy.call_method1(intern!(py, "ascontiguousarray"), (given, dtype))?;
        // NumPy computes the name of a dtype at every call, which takes longer than all else here.
        Elements::of(&array, Some(dtype), None).map(Some)
    };
    let missing = |name: &str| PyKeyError::new_err(format!("no column {name:?}"));
    let mut whole = Vec::with_capacity(COUNTS.len());
    for name in COUNTS {
        let cells = column(name, "int64")?;
        if cells.is_none() && !matches!(name, "saturated" | "subnormal") {
            return Err(missing(name));
        }
        whole.push(cells);
    }
    let mut real = Vec::with_capacity(NUMBERS.len());
    for name in NUMBERS {
        let found = column(name, "float64")?;
        if found.is_none() && !matches!(name, "l2" | "abs_max" | "update") {
            return Err(missing(name));
        }
        real.push(found);
    }
    let n = whole[0].as_ref().map_or(0, |column| column.as_slice().len());
    if whole.iter().chain(&real).flatten().any(|column| column.as_slice().len() != n) {
        return Err(PyValueError::new_err("the columns have different lengths"));
    }
    let raw = |column: &Elements, row: usize| -> [u8; 8] { std::array::from_fn(|i| column.as_slice()[row * 8 + i]) };
    let row = |row: usize| {
        let count =
            |at: usize| whole[at].as_ref().map_or(0, |column| i64::from_le_bytes(raw(column, row)).max(0) as u64);
        let counts = std::array::from_fn(count);
        let number = |at: usize| real[at].as_ref().map_or(f64::NAN, |column| f64::from_le_bytes(raw(column, row)));
        let found = from_columns(counts, std::array::from_fn(number));
        let (l2, abs_max) = (found.derived_l2(), found.derived_abs_max());
        Statistics {
            l2: if real[5].is_some() { found.l2 } else { l2 },
            abs_max: if real[6].is_some() { found.abs_max } else { abs_max },
            ..found
        }
    };
    Ok((0..n / 8).map(row).collect())
}

/// A tensor and the previous one.
struct Pair {
    now: Elements,
    before: Option<Elements>,
}

impl Pair {
    fn of(array: &Bound<'_, PyAny>, previous: Option<&Bound<'_, PyAny>>, dtype: Option<&str>) -> PyResult<Pair> {
        let now = Elements::of(array, dtype, None)?;
        let before = previous.map(|previous| Elements::of(previous, dtype, None)).transpose()?;
        if let Some(before) = before.as_ref().filter(|before| (before.dtype, &before.shape) != (now.dtype, &now.shape))
        {
            let message = format!(
                "the previous array is {} of shape {:?}, this one {} of shape {:?}",
                before.dtype.name(),
                before.shape,
                now.dtype.name(),
                now.shape
            );
            return Err(PyValueError::new_err(message));
        }
        Ok(Pair { now, before })
    }

    fn size(&self) -> usize {
        self.now.as_slice().len()
    }

    fn slices(&self) -> (DType, &[u8], Option<&[u8]>) {
        (self.now.dtype, self.now.as_slice(), self.before.as_ref().map(Elements::as_slice))
    }
}
