//! Bindings of reductions.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyComplex, PyDict, PyList};
use smdwidgets_core::reduce::{self as core, Op, OpSet, Reductions, Scalar, Value};
use smdwidgets_core::tensor::DType;

use crate::dlpack::Tensors;
use crate::elements::Elements;
use crate::errors::to_python;
use crate::gil::detached;
use crate::numpy;

/// Converts a scalar to a numpy scalar. Without ml_dtypes, bfloat16 becomes float32, which is lossless.
pub fn scalar<'py>(py: Python<'py>, number: &Scalar) -> PyResult<Bound<'py, PyAny>> {
    static CLASSES: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();
    let classes = CLASSES.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        DType::ALL
            .into_iter()
            .map(|dtype| {
                let name = match dtype {
                    DType::Bool => "bool_",
                    DType::Str => "str_",
                    DType::BF16 => {
                        let guest = py.import("ml_dtypes").and_then(|module| module.getattr("bfloat16"));
                        return guest.or_else(|_| numpy.getattr("float32")).map(Bound::unbind);
                    }
                    // Scalars of smaller floats are float32.
                    other if other.small().is_some() => "float32",
                    other => other.name(),
                };
                Ok(numpy.getattr(name)?.unbind())
            })
            .collect::<PyResult<Vec<_>>>()
    })?;
    let at = DType::ALL.into_iter().position(|dtype| dtype == number.dtype()).unwrap_or_default();
    let class = classes[at].bind(py);
    match number.value() {
        Value::Bool(value) => class.call1((value,)),
        Value::Int(value) => class.call1((value,)),
        Value::UInt(value) => class.call1((value,)),
        Value::Float(value) => class.call1((value,)),
        Value::Complex(re, im) => class.call1((PyComplex::from_doubles(py, re, im),)),
    }
}

/// Parses the name of a reduction.
pub fn op(name: &str) -> PyResult<Op> {
    Op::from_name(name).ok_or_else(|| {
        let known = Op::ALL.map(Op::name).join(", ");
        PyValueError::new_err(format!("invalid reduction {name:?}; choose from {known}"))
    })
}

fn reduced(py: Python<'_>, elements: &Elements, requested: OpSet) -> PyResult<Reductions> {
    let data = elements.as_slice();
    detached(py, data.len(), || core::reduce_some(elements.dtype, data, requested))
        .map_err(|error| to_python(py, &error))
}

/// All reductions of an array, or those in `names`, as numpy scalars by (name, of |x|).
#[pyfunction]
#[pyo3(signature = (buffer, dtype = None, names = None))]
pub fn reduce<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    dtype: Option<&str>,
    names: Option<Vec<(String, bool)>>,
) -> PyResult<Bound<'py, PyDict>> {
    let requested: Vec<(Op, bool)> = match names {
        None => Op::ALL.into_iter().flat_map(|op| [(op, false), (op, true)]).collect(),
        Some(names) => names.iter().map(|(name, abs)| Ok((op(name)?, *abs))).collect::<PyResult<_>>()?,
    };
    let elements = Elements::of(buffer, dtype, None)?;
    let reductions = reduced(py, &elements, requested.iter().copied().collect())?;
    let out = PyDict::new(py);
    for (op, abs) in requested {
        let value = reductions.try_get(op, abs).map(|number| scalar(py, &number)).transpose()?;
        out.set_item((op.name(), abs), value)?;
    }
    Ok(out)
}

/// One reduction as a numpy scalar.
#[pyfunction]
#[pyo3(signature = (buffer, name, abs = false, dtype = None))]
pub fn reduction<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    name: &str,
    abs: bool,
    dtype: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let op = op(name)?;
    let elements = Elements::of(buffer, dtype, None)?;
    let reductions = reduced(py, &elements, OpSet::NONE.with(op, abs))?;
    let number = reductions.try_get(op, abs).ok_or_else(|| {
        PyValueError::new_err(format!("{name} of an empty tensor (shape {:?}) is undefined", elements.shape))
    })?;
    scalar(py, &number)
}

/// Counts, extremes, mean and deviation, as Python numbers.
#[pyfunction]
#[pyo3(signature = (buffer, dtype = None))]
pub fn stats<'py>(py: Python<'py>, buffer: &Bound<'py, PyAny>, dtype: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
    let elements = Elements::of(buffer, dtype, None)?;
    let r = reduced(py, &elements, OpSet::CHEAP)?;
    let out = PyDict::new(py);
    for (key, count) in [
        (intern!(py, "n"), r.counts.n),
        (intern!(py, "nan"), r.counts.nan),
        (intern!(py, "pos_inf"), r.counts.pos_inf),
        (intern!(py, "neg_inf"), r.counts.neg_inf),
        (intern!(py, "zeros"), r.counts.zeros),
    ] {
        out.set_item(key, count)?;
    }
    let complex = matches!(r.dtype, DType::C64 | DType::C128);
    for (key, op) in [
        (intern!(py, "min"), Op::Min),
        (intern!(py, "max"), Op::Max),
        (intern!(py, "mean"), Op::Mean),
        (intern!(py, "std"), Op::Std),
        (intern!(py, "l2"), Op::L2),
    ] {
        out.set_item(key, r.get(op, complex).to_f64())?;
    }
    Ok(out)
}

/// The l2 norm in double precision.
#[pyfunction]
#[pyo3(signature = (buffer, dtype = None))]
pub fn norm(py: Python<'_>, buffer: &Bound<'_, PyAny>, dtype: Option<&str>) -> PyResult<f64> {
    let elements = Elements::of(buffer, dtype, None)?;
    let data = elements.as_slice();
    detached(py, data.len(), || core::norm(elements.dtype, data)).map_err(|error| to_python(py, &error))
}

/// The l2 norm of the gradients of parameters of PyTorch, in double precision, as of one tensor.
///
/// None if a gradient is missing, not of this class, not a contiguous one of float32 on the CPU, or freed, if they have
/// more elements than `most`, or if this release of PyTorch cannot give them so.
#[pyfunction]
pub fn norm_of_gradients(
    py: Python<'_>,
    parameters: &Bound<'_, PyList>,
    class_: Bound<'_, PyAny>,
    most: usize,
) -> PyResult<Option<f64>> {
    let Some(tensors) = Tensors::of(class_)? else { return Ok(None) };
    let mut data: Vec<u8> = Vec::new();
    for parameter in parameters {
        let gradient = parameter.getattr(intern!(py, "grad"))?;
        // SAFETY: the bytes are used before any other code runs. A gradient that is smaller than its shape says would
        // harm the update, too, which reads it next.
        let Some(bytes) = (unsafe { tensors.float32(&gradient) }) else { return Ok(None) };
        if bytes.len() / size_of::<f32>() > most - data.len() / size_of::<f32>() {
            return Ok(None);
        }
        data.extend_from_slice(bytes);
    }
    if data.is_empty() {
        return Ok(None);
    }
    core::norm(DType::F32, &data).map(Some).map_err(|error| to_python(py, &error))
}

/// Elements of a type that numpy lacks, as an array of float32.
#[pyfunction]
pub fn widen<'py>(py: Python<'py>, buffer: &Bound<'py, PyAny>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    let elements = Elements::of(buffer, Some(dtype), None)?;
    let data = elements.as_slice();
    let Some(wide) = detached(py, data.len(), || elements.dtype.widen(data)) else {
        return Err(PyValueError::new_err(format!("numpy has the dtype {dtype}")));
    };
    numpy::own(py, DType::F32, &elements.shape, wide.into_iter().flat_map(f32::to_le_bytes).collect(), 0)
}
