//! Bindings of low-precision formats.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use smdwidgets_core::precision::{self as core, Element, Format};
use smdwidgets_core::tensor::DType;

use crate::elements::Elements;
use crate::gil::detached;

/// The float32 elements of an array.
fn floats(buffer: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    let elements = Elements::of(buffer, None, None)?;
    if elements.dtype != DType::F32 {
        return Err(PyValueError::new_err(format!("expected float32 elements, got {}", elements.dtype.name())));
    }
    Ok(elements.as_slice().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

/// What a format makes of float32 values.
#[pyfunction]
#[pyo3(signature = (buffer, format, scaled = true))]
pub fn precision_loss<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    format: &str,
    scaled: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let format = match format {
        "e4m3" => Format::E4M3,
        "e5m2" => Format::E5M2,
        "mxfp8" => Format::Mxfp8,
        "nvfp4" => Format::Nvfp4,
        _ => {
            return Err(PyValueError::new_err(format!(
                "invalid format {format:?}; choose from e4m3, e5m2, mxfp8, nvfp4"
            )));
        }
    };
    let values = floats(buffer)?;
    let loss = detached(py, values.len() * 4, || core::loss(&values, format, scaled));
    let out = PyDict::new(py);
    for (key, count) in [
        (intern!(py, "nonzero"), loss.nonzero),
        (intern!(py, "zeros"), loss.zeros),
        (intern!(py, "not_finite"), loss.not_finite),
        (intern!(py, "flushed"), loss.flushed),
        (intern!(py, "saturated"), loss.saturated),
    ] {
        out.set_item(key, count)?;
    }
    out.set_item(intern!(py, "error"), loss.error)?;
    out.set_item(intern!(py, "power"), loss.power)?;
    Ok(out)
}

/// The bits of float32 values in a format of 8 bits or less, one byte each.
#[pyfunction]
pub fn precision_cast<'py>(py: Python<'py>, buffer: &Bound<'py, PyAny>, format: &str) -> PyResult<Bound<'py, PyBytes>> {
    let element = match format {
        "e4m3" => Element::E4M3,
        "e5m2" => Element::E5M2,
        "e2m1" => Element::E2M1,
        _ => return Err(PyValueError::new_err(format!("invalid format {format:?}; choose from e4m3, e5m2, e2m1"))),
    };
    let values = floats(buffer)?;
    let codes: Vec<u8> = detached(py, values.len() * 4, || values.iter().map(|value| element.cast(*value)).collect());
    Ok(PyBytes::new(py, &codes))
}
