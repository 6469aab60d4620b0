//! Access to the bytes of Python objects with a contiguous buffer.
//!
//! A buffer keeps its memory in place, but other threads can write to it while the GIL is released. Parsers therefore get
//! [`StableBytes`], which nobody can change. Kernels that convert elements to numbers get [`SharedBytes`].

use std::ops::Deref;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes of a record beside its payload: the length and two checksums.
const FRAMING: usize = 16;

fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the data must be C-contiguous"));
    }
    Ok(buffer)
}

/// Copies the bytes from `offset`, at most `most` of them.
fn copied(buffer: &PyUntypedBuffer, offset: usize, most: usize) -> Vec<u8> {
    let mut copy = vec![0; buffer.len_bytes().saturating_sub(offset).min(most)];
    if !copy.is_empty() {
        // SAFETY: the exporter keeps these bytes in place until the buffer is released on drop, and `copy` has space for
        // them. Addresses: no reference to memory that others may write exists.
        unsafe {
            let from = buffer.buf_ptr().cast_const().cast::<u8>().add(offset);
            copy.as_mut_ptr().copy_from_nonoverlapping(from, copy.len());
        }
    }
    copy
}

/// Bytes that do not change: those of a `bytes` object without a copy, a copy of any other buffer.
///
/// A parser checks a length or a character once and relies on it afterwards.
pub enum StableBytes {
    /// A `bytes` object, which is immutable.
    Bytes(Py<PyBytes>),
    /// A copy of a buffer that can be written to.
    Copy(Vec<u8>),
}

impl StableBytes {
    /// Gets the bytes of `object`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(StableBytes::Bytes(bytes.clone().unbind()));
        }
        Ok(StableBytes::Copy(copied(&contiguous(object)?, 0, usize::MAX)))
    }

    /// Gets at least the record that begins at `offset`, without copying all of a large file that is mapped into memory.
    /// The result begins at the offset.
    pub fn record_at(object: &Bound<'_, PyAny>, offset: usize) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        let mut length = [0; 8];
        let header = copied(&buffer, offset, length.len());
        length[..header.len()].copy_from_slice(&header);
        let framed = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX).saturating_add(FRAMING);
        Ok(StableBytes::Copy(copied(&buffer, offset, framed)))
    }

    /// The bytes.
    pub fn as_slice<'py>(&'py self, py: Python<'py>) -> &'py [u8] {
        match self {
            StableBytes::Bytes(bytes) => bytes.as_bytes(py),
            StableBytes::Copy(copy) => copy,
        }
    }
}

/// The buffer of an array of numbers, which other threads may write meanwhile.
///
/// While this exists, the object cannot be resized or closed. The core turns the elements into numbers one by one; every
/// pattern of bits is a number, so elements that are written meanwhile give one of the values that they had, as in NumPy.
/// Nothing may parse these bytes: see [`StableBytes`].
pub struct SharedBytes(PyUntypedBuffer);

impl SharedBytes {
    /// Gets the buffer of `object`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(SharedBytes(contiguous(object)?))
    }

    /// The address and the number of bytes.
    pub fn as_ptr(&self) -> (*const u8, usize) {
        (self.0.buf_ptr().cast_const().cast(), self.0.len_bytes())
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let (address, length) = self.as_ptr();
        if length == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `length` bytes at this address until the buffer is released on drop; `of` checked that
        // it is contiguous. That no other thread writes them is the caller's promise, as it is NumPy's: kernels only convert
        // the elements, so a broken promise can change a result and nothing else that is observable.
        unsafe { std::slice::from_raw_parts(address, length) }
    }
}

/// The writable buffer of a Python object. Other threads may read and write it meanwhile, so it gives no slice.
pub struct WritableBuffer(PyUntypedBuffer);

impl WritableBuffer {
    /// Gets the buffer of `object`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the memory must be writable and C-contiguous"));
        }
        Ok(WritableBuffer(buffer))
    }

    /// The address and the number of bytes.
    pub fn as_ptr(&self) -> (*mut u8, usize) {
        (self.0.buf_ptr().cast(), self.0.len_bytes())
    }
}
