//! Elements of Python arguments: arrays of any layout, or bytes with a dtype.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use smdwidgets_core::tensor::DType;

use crate::buffer::SharedBytes;

/// Little-endian elements in C order.
pub struct Elements {
    /// The dtype.
    pub dtype: DType,
    /// The shape; one-dimensional for bytes.
    pub shape: Vec<u64>,
    bytes: SharedBytes,
}

impl Elements {
    /// Gets the elements of `object`. The dtype comes from an array, or from `dtype`, which bytes require and which must
    /// match an array's item size. Strided and big-endian data is copied.
    pub fn of(object: &Bound<'_, PyAny>, dtype: Option<&str>, shape: Option<Vec<u64>>) -> PyResult<Self> {
        let py = object.py();
        let array_dtype = object.getattr_opt(intern!(py, "dtype"))?;
        let dtype = match (dtype, &array_dtype) {
            (Some(name), _) => named(name)?,
            (None, Some(dtype)) => of_array(dtype)?,
            (None, None) => return Err(PyTypeError::new_err("bytes require a dtype")),
        };
        let (bytes, own_shape) = if let Some(array_dtype) = array_dtype {
            let size: usize = array_dtype.getattr(intern!(py, "itemsize"))?.extract()?;
            if dtype != DType::Str && size != dtype.item_size() && size != 1 {
                let name = dtype.name();
                return Err(PyValueError::new_err(format!(
                    "dtype {name} does not match the array's item size of {size} bytes"
                )));
            }
            let shape: Vec<u64> = object.getattr(intern!(py, "shape"))?.extract()?;
            let bytes = if dtype == DType::Str {
                SharedBytes::of(&empty(py)?)?
            } else {
                SharedBytes::of(&in_order(object, &array_dtype)?)?
            };
            (bytes, if size == dtype.item_size() { Some(shape) } else { None })
        } else {
            (SharedBytes::of(object)?, None)
        };
        let n = (bytes.len() / dtype.item_size().max(1)) as u64;
        let shape = match shape.or(own_shape) {
            None => vec![n],
            Some(shape) if dtype == DType::Str => shape,
            Some(shape) => {
                if shape.iter().try_fold(1, |all: u64, d| all.checked_mul(*d)) != Some(n) {
                    return Err(PyValueError::new_err(format!("{n} elements do not match shape {shape:?}")));
                }
                shape
            }
        };
        Ok(Elements { dtype, shape, bytes })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

/// Parses the name of a dtype.
pub fn named(name: &str) -> PyResult<DType> {
    let known = || DType::ALL.map(DType::name).join(", ");
    DType::ALL
        .into_iter()
        .find(|dtype| dtype.name() == name)
        .ok_or_else(|| PyValueError::new_err(format!("unknown dtype {name:?}; choose from {}", known())))
}

fn of_array(dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    let py = dtype.py();
    let kind: String = dtype.getattr(intern!(py, "kind"))?.extract()?;
    if kind == "U" || kind == "S" || kind == "O" || kind == "T" {
        return Ok(DType::Str);
    }
    // NumPy composes the name of a dtype at each call, which takes longer than to reduce a small array. Its numbers of
    // dtypes are part of its ABI.
    let size: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
    match (dtype.getattr(intern!(py, "num"))?.extract::<i64>()?, size) {
        (5 | 7 | 9, 4) => Ok(DType::I32),
        (5 | 7 | 9, 8) => Ok(DType::I64),
        (11, _) => Ok(DType::F32),
        (12, _) => Ok(DType::F64),
        _ => named(&dtype.getattr(intern!(py, "name"))?.extract::<String>()?),
    }
}

/// The array, or a copy in little-endian C order; as bytes, because some dtypes (bfloat16, float8) export no buffer.
fn in_order<'py>(array: &Bound<'py, PyAny>, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let contiguous: bool =
        array.getattr(intern!(py, "flags"))?.getattr(intern!(py, "c_contiguous"))?.extract().unwrap_or(false);
    let order: String = dtype.getattr(intern!(py, "byteorder"))?.extract()?;
    let swapped = order == ">";
    if contiguous && !swapped && SharedBytes::of(array).is_ok() {
        return Ok(array.clone());
    }
    let numpy = py.import(intern!(py, "numpy"))?;
    let mut array = numpy.call_method1(intern!(py, "ascontiguousarray"), (array,))?;
    if swapped {
        let little = dtype.call_method1(intern!(py, "newbyteorder"), ("<",))?;
        array = array.call_method1(intern!(py, "astype"), (little,))?;
    }
    array.call_method1(intern!(py, "reshape"), (-1,))?.call_method1(intern!(py, "view"), ("u1",))
}

fn empty(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Ok(pyo3::types::PyBytes::new(py, &[]).into_any())
}
