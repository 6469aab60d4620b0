//! Tensors as numpy arrays, created through numpy's Python API so that one build supports every numpy version.
//!
//! Every array created here owns its memory and is writable. A read-only flag would not protect shared memory: frameworks
//! take the address of an array and write through it (`torch.from_numpy` does).

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString, PyTuple};
use pyo3::{PyErr, ffi, intern};
use smdwidgets_core::error::{Error, Location};
use smdwidgets_core::tensor::{DType, Data, TensorView};

use crate::errors::to_python;
use crate::gil::detached;

/// String arrays are padded to the longest string. Beyond this size, if mostly padding, they hold Python strings.
const MAX_PADDED: usize = 64 << 20;

struct Numpy {
    ndarray: Py<PyAny>,
    array: Py<PyAny>,
    dtypes: Vec<Option<Py<PyAny>>>,
}

fn numpy(py: Python<'_>) -> PyResult<&Numpy> {
    static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
    NUMPY.get_or_try_init(py, || {
        let module = py.import("numpy")?;
        let dtype = module.getattr("dtype")?;
        let known = |of: DType| -> PyResult<Option<Py<PyAny>>> {
            match of {
                of if is_extended(of) => Ok(None),
                // Little-endian on every machine.
                of => {
                    let named = dtype.call1((of.name(),))?;
                    Ok(Some(named.call_method1("newbyteorder", ("<",))?.unbind()))
                }
            }
        };
        let mut dtypes: Vec<Option<Py<PyAny>>> = Vec::new();
        dtypes.resize_with(usize::from(u8::MAX) + 1, || None);
        for of in DType::ALL {
            dtypes[usize::from(of.number())] = known(of)?;
        }
        Ok::<_, PyErr>(Numpy {
            ndarray: module.getattr("ndarray")?.unbind(),
            array: module.getattr("array")?.unbind(),
            dtypes,
        })
    })
}

/// Whether numpy has the dtype only with ml_dtypes.
pub fn is_extended(of: DType) -> bool {
    of == DType::BF16 || of.small().is_some()
}

/// The numpy dtype. bfloat16 and floats of 8 and 4 bits need ml_dtypes.
pub fn dtype(py: Python<'_>, of: DType) -> PyResult<Bound<'_, PyAny>> {
    if let Some(dtype) = &numpy(py)?.dtypes[usize::from(of.number())] {
        return Ok(dtype.bind(py).clone());
    }
    static EXTENDED: [PyOnceLock<Py<PyAny>>; 256] = [const { PyOnceLock::new() }; 256];
    let found = EXTENDED[usize::from(of.number())].get_or_try_init(py, || {
        let class = py.import("ml_dtypes")?.getattr(of.name())?;
        Ok::<_, PyErr>(py.import("numpy")?.getattr("dtype")?.call1((class,))?.unbind())
    });
    found.map(|dtype| dtype.bind(py).clone()).map_err(|_| {
        let version = if of == DType::BF16 { "" } else { ">=0.5" };
        unsupported(py, format!("{} tensors require ml_dtypes{version} (pip install ml_dtypes)", of.name()))
    })
}

/// The memory of one array. Unlike a `bytearray` it cannot be resized under the array, which does not lock its buffer.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Memory {
    start: *mut u8,
    length: usize,
    capacity: usize,
}

// SAFETY: `Memory` owns its bytes as the `Vec` did that it was made of. Rust neither reads nor writes them until they are
// freed; threads of Python that write to one array synchronize, as with any array.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: Vec<u8>) -> Memory {
        let mut bytes = ManuallyDrop::new(bytes);
        Memory { start: bytes.as_mut_ptr(), length: bytes.len(), capacity: bytes.capacity() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: these are the parts of the vector given to `new`, and no buffer is in use any more: each holds on to `self`.
        drop(unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) });
    }
}

#[pymethods]
impl Memory {
    // SAFETY: Python calls this with a buffer to fill and keeps `slf` for as long as the buffer is in use.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer to fill"));
        }
        let memory = slf.get();
        let length = ffi::Py_ssize_t::try_from(memory.length)?;
        // SAFETY: the bytes are neither moved nor freed while `slf` lives, which the buffer holds on to. They may be written
        // to (read-only: 0): `start` is the vector's own pointer, and Rust makes no references to them.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.start.cast(), length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        format!("<Memory, {} bytes>", self.length)
    }
}

/// A writable array over `shape` elements that start `offset` bytes into `bytes`, which become its own.
pub fn own<'py>(
    py: Python<'py>,
    of: DType,
    shape: &[u64],
    bytes: Vec<u8>,
    offset: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let shape = PyTuple::new(py, shape)?;
    let dtype = dtype(py, of)?;
    let made = numpy(py)?.ndarray.bind(py).call1((&shape, dtype, Memory::new(bytes), offset));
    made.map_err(|error| {
        unsupported(py, format!("cannot convert a {} tensor of shape {shape} to numpy: {error}", of.name()))
    })
}

/// A tensor as an array. Content that lies in a buffer is copied.
pub fn array<'py>(py: Python<'py>, tensor: TensorView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let content = match tensor.data {
        Data::Raw(content) => detached(py, content.len(), || content.to_vec()),
        Data::Owned(content) => content,
        Data::Strings(strings) => return text(py, &tensor.shape, &strings),
    };
    own(py, tensor.dtype, &tensor.shape, content, 0)
}

/// A copy of the array with separate memory.
pub fn copy<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    array.call_method0(intern!(array.py(), "copy"))
}

/// A column of float64.
pub fn doubles(py: Python<'_>, values: &[f64]) -> PyResult<Py<PyAny>> {
    column(py, DType::F64, values.iter().map(|value| value.to_le_bytes()))
}

/// A one-dimensional array of these elements.
pub fn column<const N: usize>(py: Python<'_>, of: DType, values: impl Iterator<Item = [u8; N]>) -> PyResult<Py<PyAny>> {
    whole_column(py, of, values.collect())
}

/// Numbers as an array that has one axis and takes them over.
pub fn whole_column<const N: usize>(py: Python<'_>, of: DType, values: Vec<[u8; N]>) -> PyResult<Py<PyAny>> {
    Ok(own(py, of, &[values.len() as u64], values.into_flattened(), 0)?.unbind())
}

/// Buckets as an array (buckets, 3).
pub fn bucket_array(py: Python<'_>, buckets: impl ExactSizeIterator<Item = [f64; 3]>) -> PyResult<Bound<'_, PyAny>> {
    let shape = [buckets.len() as u64, 3];
    let bytes: Vec<u8> = buckets.flatten().flat_map(f64::to_le_bytes).collect();
    own(py, DType::F64, &shape, bytes, 0)
}

fn text<'py>(py: Python<'py>, shape: &[u64], strings: &[&[u8]]) -> PyResult<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    let (mut longest, mut all) = (0, 0);
    for string in strings {
        let string = std::str::from_utf8(string).map_err(|error| {
            let what = format!("string tensor is not valid UTF-8: {error}");
            to_python(py, &Error::Corrupt { location: Location::memory(0), what })
        })?;
        longest = longest.max(string.len());
        all += string.len();
        list.append(PyString::new(py, string))?;
    }
    let padded = longest.saturating_mul(4).saturating_mul(strings.len());
    let dtype = if padded > MAX_PADDED && padded / 32 > all { "O" } else { "U" };
    let made = numpy(py)?.array.bind(py).call1((list, dtype))?;
    let shape = PyTuple::new(py, shape)?;
    made.call_method1(intern!(py, "reshape"), (&shape,))
        .map_err(|error| unsupported(py, format!("cannot convert strings of shape {shape} to numpy: {error}")))
}

fn unsupported(py: Python<'_>, what: String) -> PyErr {
    to_python(py, &Error::Unsupported { location: Location::memory(0), what })
}
