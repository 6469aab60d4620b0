//! Bindings of pictures.

use std::ops::Range;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use smdwidgets_core::error::Error;
use smdwidgets_core::picture::{self as core, Axes, Binning, MAX_BINS, MAX_SIDE, Plane, Pool, Scale};
use smdwidgets_core::tensor::DType;

use crate::elements::Elements;
use crate::errors::to_python;
use crate::gil::detached;
use crate::numpy;

/// Runs `work` on the elements without the GIL.
fn on<T: Send>(
    py: Python<'_>,
    elements: &Elements,
    work: impl FnOnce(&[u8]) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let data = elements.as_slice();
    detached(py, data.len(), || work(data)).map_err(|error| to_python(py, &error))
}

/// Creates an array.
fn array<'py>(py: Python<'py>, dtype: DType, shape: &[u64], bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    numpy::own(py, dtype, shape, bytes.to_vec(), 0)
}

fn floats<'py>(py: Python<'py>, values: &[f64]) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    array(py, DType::F64, &[values.len() as u64], &bytes)
}

/// Computes a histogram.
#[pyfunction]
#[pyo3(signature = (buffer, bins = None, range = None, scale = "linear", linear = 0.0, magnitude = false, dtype = None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn histogram<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    bins: Option<&Bound<'py, PyAny>>,
    range: Option<(f64, f64)>,
    scale: &str,
    linear: f64,
    magnitude: bool,
    dtype: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let scale = match scale {
        "linear" => Scale::Linear,
        "log" => Scale::Log,
        "symlog" => Scale::SymLog { linear },
        "auto" => Scale::Auto,
        other => {
            let what = format!("invalid scale {other:?}; choose from linear, log, symlog, auto");
            return Err(PyValueError::new_err(what));
        }
    };
    let count = match bins {
        None => Ok(256),
        Some(bins) => bins.extract::<i64>(),
    };
    let binning = match (count, range, bins) {
        (Ok(bins), range, _) => {
            let bins = usize::try_from(bins).unwrap_or(0);
            match range {
                None => Binning::Auto { bins, scale },
                Some((low, high)) => Binning::Range { low, high, bins, scale },
            }
        }
        (Err(_), None, Some(edges)) => {
            // Checked before copying, so that a huge sequence costs nothing.
            if edges.len().is_ok_and(|len| len > MAX_BINS + 1) {
                return Err(PyValueError::new_err(format!("too many histogram bins; the limit is {MAX_BINS}")));
            }
            let edges = edges.extract::<Vec<f64>>();
            Binning::Edges(edges.map_err(|_| PyTypeError::new_err("bins must be a number of bins or their edges"))?)
        }
        _ => return Err(PyValueError::new_err("bins as edges and range are mutually exclusive")),
    };
    let elements = Elements::of(buffer, dtype, None)?;
    let h = on(py, &elements, |data| core::histogram(elements.dtype, data, &binning, magnitude))?;
    let counts: Vec<u8> = h.bins.iter().flat_map(|count| count.to_le_bytes()).collect();
    let out = PyDict::new(py);
    out.set_item(intern!(py, "edges"), floats(py, &h.edges)?)?;
    out.set_item(intern!(py, "counts"), array(py, DType::U64, &[h.bins.len() as u64], &counts)?)?;
    out.set_item(intern!(py, "under"), h.under)?;
    out.set_item(intern!(py, "over"), h.over)?;
    out.set_item(intern!(py, "n"), h.counts.n)?;
    out.set_item(intern!(py, "nan"), h.counts.nan)?;
    out.set_item(intern!(py, "pos_inf"), h.counts.pos_inf)?;
    out.set_item(intern!(py, "neg_inf"), h.counts.neg_inf)?;
    out.set_item(intern!(py, "zeros"), h.counts.zeros)?;
    let (name, linear) = match h.scale {
        Scale::Log => ("log", None),
        Scale::SymLog { linear } => ("symlog", Some(linear)),
        Scale::Linear | Scale::Auto => ("linear", None),
    };
    out.set_item(intern!(py, "scale"), name)?;
    out.set_item(intern!(py, "linear"), linear)?;
    Ok(out)
}

/// Computes percentiles of the elements that are not NaN.
#[pyfunction]
#[pyo3(signature = (buffer, q, dtype = None))]
pub fn percentiles<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    q: Vec<f64>,
    dtype: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let elements = Elements::of(buffer, dtype, None)?;
    floats(py, &on(py, &elements, |data| core::percentiles(elements.dtype, data, &q))?)
}

type Cut = Option<(u64, u64)>;

fn cut(range: Cut) -> Option<Range<u64>> {
    range.map(|(start, end)| start..end)
}

/// Resolves a negative axis, as in numpy.
fn axis(axis: Option<i64>, rank: usize) -> PyResult<Option<usize>> {
    let Some(axis) = axis else { return Ok(None) };
    let counted = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(counted)
        .ok()
        .filter(|counted| *counted < rank)
        .map(Some)
        .ok_or_else(|| PyValueError::new_err(format!("axis {axis} is out of range for a tensor of {rank} dimensions")))
}

fn axes(row_axis: Option<i64>, column_axis: Option<i64>, fixed: Option<Vec<u64>>, rank: usize) -> PyResult<Axes> {
    Ok(Axes { row: axis(row_axis, rank)?, column: axis(column_axis, rank)?, fixed: fixed.unwrap_or_default() })
}

/// Pools a plane through an array to an image of at most `size` cells.
#[pyfunction]
#[pyo3(signature = (
    buffer, size = None, pool = "mean", row_axis = None, column_axis = None, fixed = None, rows = None,
    columns = None, codes = None, limits = None, shape = None, dtype = None
))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn pooled<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    size: Option<(u64, u64)>,
    pool: &str,
    row_axis: Option<i64>,
    column_axis: Option<i64>,
    fixed: Option<Vec<u64>>,
    rows: Cut,
    columns: Cut,
    codes: Option<&str>,
    limits: Option<(f64, f64)>,
    shape: Option<Vec<u64>>,
    dtype: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let pool = Pool::from_name(pool)
        .ok_or_else(|| PyValueError::new_err(format!("invalid pool {pool:?}; choose from mean, min, max, maxabs")))?;
    if !matches!(codes, None | Some("uint8" | "uint16")) {
        return Err(PyValueError::new_err("invalid codes; choose from 'uint8', 'uint16', or None for float32 cells"));
    }
    let size = size.unwrap_or((1024, 1024));
    let size = (size.0.min(MAX_SIDE), size.1.min(MAX_SIDE));
    let elements = Elements::of(buffer, dtype, shape)?;
    let axes = axes(row_axis, column_axis, fixed, elements.shape.len())?;
    let image = on(py, &elements, |data| {
        let plane = Plane::of(elements.dtype, &elements.shape, data, &axes)?;
        core::pooled(elements.dtype, data, &plane, cut(rows), cut(columns), size, pool)
    })?;
    let (low, high) = limits.unwrap_or((image.ends.0.into(), image.ends.1.into()));
    let (cells, of): (Vec<u8>, DType) = match codes {
        None => (image.cells.iter().flat_map(|cell| cell.to_le_bytes()).collect(), DType::F32),
        Some("uint8") => (image.codes_u8(low, high), DType::U8),
        Some(_) => (image.codes_u16(low, high).into_iter().flat_map(u16::to_le_bytes).collect(), DType::U16),
    };
    let out = PyDict::new(py);
    out.set_item(intern!(py, "image"), array(py, of, &[image.height as u64, image.width as u64], &cells)?)?;
    out.set_item(intern!(py, "rows"), (image.rows.start, image.rows.end))?;
    out.set_item(intern!(py, "columns"), (image.columns.start, image.columns.end))?;
    out.set_item(intern!(py, "min"), image.ends.0)?;
    out.set_item(intern!(py, "max"), image.ends.1)?;
    out.set_item(intern!(py, "limits"), (low, high))?;
    Ok(out)
}

/// Copies the elements of rows and columns of a plane.
#[pyfunction]
#[pyo3(signature = (
    buffer, rows = None, columns = None, row_axis = None, column_axis = None, fixed = None, shape = None, dtype = None
))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn window<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    rows: Cut,
    columns: Cut,
    row_axis: Option<i64>,
    column_axis: Option<i64>,
    fixed: Option<Vec<u64>>,
    shape: Option<Vec<u64>>,
    dtype: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let elements = Elements::of(buffer, dtype, shape)?;
    let axes = axes(row_axis, column_axis, fixed, elements.shape.len())?;
    let (bytes, height, width) = on(py, &elements, |data| {
        let plane = Plane::of(elements.dtype, &elements.shape, data, &axes)?;
        core::window(elements.dtype, data, &plane, cut(rows), cut(columns))
    })?;
    array(py, elements.dtype, &[height, width], &bytes)
}

/// Subtracts arrays of the same shape, and finds the elements that changed most.
#[pyfunction]
#[pyo3(signature = (a, b, most = 0, dtypes = None))]
pub fn difference<'py>(
    py: Python<'py>,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    most: usize,
    dtypes: Option<(&str, &str)>,
) -> PyResult<Bound<'py, PyDict>> {
    let a = Elements::of(a, dtypes.map(|names| names.0), None)?;
    let b = Elements::of(b, dtypes.map(|names| names.1), None)?;
    if a.shape != b.shape {
        let what = format!("cannot subtract an array of shape {:?} from one of shape {:?}", b.shape, a.shape);
        return Err(PyValueError::new_err(what));
    }
    let found = on(py, &a, |data| core::difference((a.dtype, data), (b.dtype, b.as_slice()), most))?;
    let top: Vec<u8> = found.top.iter().flat_map(|at| at.to_le_bytes()).collect();
    let out = PyDict::new(py);
    out.set_item(intern!(py, "value"), numpy::own(py, found.dtype, &a.shape, found.bytes, 0)?)?;
    out.set_item(intern!(py, "changed"), found.changed)?;
    out.set_item(intern!(py, "top"), array(py, DType::U64, &[found.top.len() as u64], &top)?)?;
    Ok(out)
}

/// Encodes an array (height, width, 3) of uint8 as a PNG.
#[pyfunction]
pub fn encode_png<'py>(py: Python<'py>, pixels: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let elements = Elements::of(pixels, None, None)?;
    let size = match elements.shape.as_slice() {
        [height, width, 3] if elements.dtype == DType::U8 => {
            u32::try_from(*height).ok().zip(u32::try_from(*width).ok())
        }
        _ => None,
    };
    let Some((height, width)) = size else {
        let (dtype, shape) = (elements.dtype.name(), &elements.shape);
        let what = format!("pixels must be a uint8 array of shape (height, width, 3), got {dtype} of shape {shape:?}");
        return Err(PyValueError::new_err(what));
    };
    let encoded = on(py, &elements, |data| core::png::encode(width, height, data))?;
    Ok(PyBytes::new(py, &encoded))
}

/// Samples at most `most` elements and returns them with their stride.
#[pyfunction]
#[pyo3(signature = (buffer, most = 1000, dtype = None))]
pub fn sample<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    most: u64,
    dtype: Option<&str>,
) -> PyResult<(Bound<'py, PyAny>, u64)> {
    let elements = Elements::of(buffer, dtype, None)?;
    let sample = on(py, &elements, |data| core::sample(elements.dtype, data, most))?;
    Ok((floats(py, &sample.values)?, sample.stride))
}
