//! Binding of copies of large blocks.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smdwidgets_core::block_copy;

use crate::buffer::{Bytes, Room};
use crate::gil::detached;

/// Copies the bytes of one object into another, which has the same number of them.
#[pyfunction]
pub fn copy(py: Python<'_>, source: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<()> {
    let (source, mut target) = (Bytes::of(source)?, Room::of(target)?);
    let (from, into) = (source.as_slice(), target.as_mut_slice());
    if from.len() != into.len() {
        return Err(PyValueError::new_err(format!("cannot copy {} bytes into {}", from.len(), into.len())));
    }
    let (first, second) = (from.as_ptr_range(), into.as_ptr_range());
    if first.start < second.end && second.start < first.end {
        return Err(PyValueError::new_err("the source and the target share memory"));
    }
    detached(py, from.len(), || block_copy::copy(from, into));
    Ok(())
}
