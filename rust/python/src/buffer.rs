//! Access to the bytes of Python objects with a contiguous buffer.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// The buffer of a Python object: `bytes`, `bytearray`, `memoryview`, `mmap`, an array.
///
/// While this exists, the object cannot be resized or closed. Other threads can still write to it; the core validates
/// everything it reads, so torn data leads to errors or wrong values, as in numpy.
pub struct Bytes(PyUntypedBuffer);

impl Bytes {
    /// Gets the buffer of `object`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the data must be C-contiguous"));
        }
        Ok(Bytes(buffer))
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `length` bytes at this address until the buffer is released on drop; `of` checked that
        // it is contiguous.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast_const().cast(), length) }
    }
}

/// The writable buffer of a Python object.
///
/// Other threads can read and write it meanwhile, as with [`Bytes`].
pub struct Room(PyUntypedBuffer);

impl Room {
    /// Gets the buffer of `object`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the memory must be writable and C-contiguous"));
        }
        Ok(Room(buffer))
    }

    /// The bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &mut [];
        }
        // SAFETY: as for `Bytes`; `of` checked that it is writable.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), length) }
    }
}
