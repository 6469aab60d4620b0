//! The elements of whatever Python hands in: an array of any layout, or plain bytes with a dtype's name beside them.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use smdwidgets_core::tensor::DType;

use crate::buffer::Bytes;

/// Little-endian elements in C order, and what they are.
pub struct Elements {
    /// Their dtype.
    pub dtype: DType,
    /// The shape of the array, or one dimension for plain bytes.
    pub shape: Vec<u64>,
    bytes: Bytes,
}

impl Elements {
    /// The elements of `object`. An array says what it holds; a dtype's name beside it must agree in size, and is needed
    /// for plain bytes. What lies in the wrong order (strided, big-endian) is copied first.
    pub fn of(object: &Bound<'_, PyAny>, dtype: Option<&str>, shape: Option<Vec<u64>>) -> PyResult<Self> {
        let py = object.py();
        let array_dtype = object.getattr_opt(intern!(py, "dtype"))?;
        let dtype = match (dtype, &array_dtype) {
            (Some(name), _) => named(name)?,
            (None, Some(dtype)) => of_array(dtype)?,
            (None, None) => return Err(PyTypeError::new_err("plain bytes need a dtype's name beside them")),
        };
        let (bytes, own_shape) = if let Some(array_dtype) = array_dtype {
            let size: usize = array_dtype.getattr(intern!(py, "itemsize"))?.extract()?;
            if dtype != DType::Str && size != dtype.item_size() && size != 1 {
                let name = dtype.name();
                return Err(PyValueError::new_err(format!(
                    "the array's elements have {size} bytes, which {name} has not"
                )));
            }
            let shape: Vec<u64> = object.getattr(intern!(py, "shape"))?.extract()?;
            let bytes = if dtype == DType::Str {
                Bytes::of(&empty(py)?)?
            } else {
                Bytes::of(&in_order(object, &array_dtype)?)?
            };
            (bytes, if size == dtype.item_size() { Some(shape) } else { None })
        } else {
            (Bytes::of(object)?, None)
        };
        let n = (bytes.as_slice().len() / dtype.item_size().max(1)) as u64;
        let shape = match shape.or(own_shape) {
            None => vec![n],
            Some(shape) if dtype == DType::Str => shape,
            Some(shape) => {
                if shape.iter().try_fold(1, |all: u64, d| all.checked_mul(*d)) != Some(n) {
                    return Err(PyValueError::new_err(format!("{n} elements have no shape {shape:?}")));
                }
                shape
            }
        };
        Ok(Elements { dtype, shape, bytes })
    }

    /// Their bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

/// The dtype of a name.
pub fn named(name: &str) -> PyResult<DType> {
    let known = || DType::ALL.map(DType::name).join(", ");
    DType::ALL
        .into_iter()
        .find(|dtype| dtype.name() == name)
        .ok_or_else(|| PyValueError::new_err(format!("{name:?} is no dtype known here; these are: {}", known())))
}

fn of_array(dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    let py = dtype.py();
    let kind: String = dtype.getattr(intern!(py, "kind"))?.extract()?;
    if kind == "U" || kind == "S" || kind == "O" || kind == "T" {
        return Ok(DType::Str);
    }
    named(&dtype.getattr(intern!(py, "name"))?.extract::<String>()?)
}

/// The array itself, or a copy of it in little-endian C order; as bytes, because some dtypes (bfloat16) export no buffer.
fn in_order<'py>(array: &Bound<'py, PyAny>, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let contiguous: bool =
        array.getattr(intern!(py, "flags"))?.getattr(intern!(py, "c_contiguous"))?.extract().unwrap_or(false);
    let order: String = dtype.getattr(intern!(py, "byteorder"))?.extract()?;
    let swapped = order == ">" || order == "=" && cfg!(target_endian = "big");
    if contiguous && !swapped && Bytes::of(array).is_ok() {
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
