//! Tensors as numpy arrays, made by calling numpy from outside: no C API, so one build serves every numpy.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use smdwidgets_core::error::{Error, Place};
use smdwidgets_core::tensor::{DType, Data, TensorView};

use crate::errors::to_python;

/// Text arrays are padded to the longest string. Past this many bytes, and mostly padding, they hold Python strings instead.
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
                DType::BF16 => Ok(None),
                // Little-endian, whatever this machine is.
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

/// numpy's dtype for one of ours. bfloat16 is a guest there: it comes from ml_dtypes, where that is installed.
pub fn dtype(py: Python<'_>, of: DType) -> PyResult<Bound<'_, PyAny>> {
    if let Some(dtype) = &numpy(py)?.dtypes[usize::from(of.number())] {
        return Ok(dtype.bind(py).clone());
    }
    static BFLOAT16: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let found = BFLOAT16.get_or_try_init(py, || {
        let class = py.import("ml_dtypes")?.getattr("bfloat16")?;
        Ok::<_, PyErr>(py.import("numpy")?.getattr("dtype")?.call1((class,))?.unbind())
    });
    found.map(|dtype| dtype.bind(py).clone()).map_err(|_| {
        let what = "a bfloat16 tensor; numpy shows one when ml_dtypes is installed (pip install ml_dtypes)";
        unsupported(py, what.to_owned())
    })
}

/// An array over `shape` elements that start `offset` bytes into `buffer`, which should be read-only.
///
/// numpy keeps `buffer` alive but does not keep it from being closed or resized: for what can be, pass [`held`].
pub fn over<'py>(
    py: Python<'py>,
    of: DType,
    shape: &[u64],
    buffer: &Bound<'py, PyAny>,
    offset: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let shape = PyTuple::new(py, shape)?;
    let made = numpy(py)?.ndarray.bind(py).call1((&shape, dtype(py, of)?, buffer, offset));
    made.map_err(|error| unsupported(py, format!("numpy can't hold a {} tensor of shape {shape}: {error}", of.name())))
}

/// A tensor whose raw content lies in `held`, the bytes of `buffer`, as an array: a read-only view of them, or a copy to write to.
pub fn array<'py>(
    py: Python<'py>,
    tensor: &TensorView<'_>,
    buffer: &Bound<'py, PyAny>,
    held: &[u8],
    copy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let array = match &tensor.data {
        Data::Raw([]) => over(py, tensor.dtype, &tensor.shape, PyBytes::new(py, &[]).as_any(), 0)?,
        Data::Raw(content) => {
            let offset = content.as_ptr().addr() - held.as_ptr().addr();
            over(py, tensor.dtype, &tensor.shape, buffer, offset)?
        }
        Data::Owned(content) => over(py, tensor.dtype, &tensor.shape, PyBytes::new(py, content).as_any(), 0)?,
        Data::Strings(strings) => {
            let array = text(py, &tensor.shape, strings)?;
            if !copy {
                array.getattr(intern!(py, "flags"))?.setattr(intern!(py, "writeable"), false)?;
            }
            return Ok(array);
        }
    };
    if copy { array.call_method0(intern!(py, "copy")) } else { Ok(array) }
}

/// `data` as something that can't be written through, and that keeps it from being closed or resized while it is in use.
pub fn held<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if data.is_exact_instance_of::<PyBytes>() {
        return Ok(data.clone());
    }
    // A memoryview would not do: numpy looks through it to the object behind, and lets go of the view.
    let bytes = data.py().import("numpy")?.call_method1(intern!(data.py(), "frombuffer"), (data, "u1"))?;
    bytes.getattr(intern!(data.py(), "flags"))?.setattr(intern!(data.py(), "writeable"), false)?;
    Ok(bytes)
}

fn text<'py>(py: Python<'py>, shape: &[u64], strings: &[&[u8]]) -> PyResult<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    let (mut longest, mut all) = (0, 0);
    for string in strings {
        let string = std::str::from_utf8(string).map_err(|error| {
            let what = format!("a tensor of text that is not UTF-8: {error}");
            to_python(py, &Error::Corrupt { place: Place::memory(0), what })
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
        .map_err(|error| unsupported(py, format!("numpy can't hold text of shape {shape}: {error}")))
}

fn unsupported(py: Python<'_>, what: String) -> PyErr {
    to_python(py, &Error::Unsupported { place: Place::memory(0), what })
}
