//! The bytes of any Python object that has them in one piece.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// Bytes held by a Python object: `bytes`, `bytearray`, `memoryview`, `mmap`, an array.
///
/// The object can't be resized or closed while this lives. It may be written to by other threads of a careless caller; then
/// what is read here is as torn as it would be in numpy, and no more: every reader in the core checks what it reads.
pub struct Bytes(PyUntypedBuffer);

impl Bytes {
    /// The bytes of `object`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the data must lie in one piece (C-contiguous)"));
        }
        Ok(Bytes(buffer))
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `length` bytes at this address until the buffer is released, which dropping `self` does;
        // the buffer is in one piece, as checked in `of`.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast_const().cast(), length) }
    }
}
