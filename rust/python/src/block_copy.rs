//! Binding of copies of large blocks.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smdwidgets_core::block_copy;

use crate::buffer::{SharedBytes, WritableBuffer};
use crate::gil::detached;

/// Addresses of two blocks that a thread without the GIL copies.
struct Blocks {
    from: *const u8,
    into: *mut u8,
}

// SAFETY: the buffers that keep both blocks in place outlive the copy, which is all that happens with the addresses.
unsafe impl Send for Blocks {}

/// Copies the bytes of one object into another, which has the same number of them.
#[pyfunction]
pub fn copy(py: Python<'_>, source: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<()> {
    let (source, target) = (SharedBytes::of(source)?, WritableBuffer::of(target)?);
    let ((from, length), (into, capacity)) = (source.as_ptr(), target.as_ptr());
    if length != capacity {
        return Err(PyValueError::new_err(format!("cannot copy {length} bytes into {capacity}")));
    }
    if length == 0 {
        return Ok(());
    }
    if from.addr() < into.addr() + length && into.addr() < from.addr() + length {
        return Err(PyValueError::new_err("the source and the target share memory"));
    }
    let blocks = Blocks { from, into };
    detached(py, length, move || {
        let Blocks { from, into } = { blocks };
        // SAFETY: both buffers hold `length` bytes until they are dropped after this, and do not overlap.
        unsafe { block_copy::copy(from, into, length) };
    });
    Ok(())
}
