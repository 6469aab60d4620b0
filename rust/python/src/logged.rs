//! Values of TensorBoard logs as Python objects: locations, bucket arrays, hyperparameters, pixels.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use smdwidgets_core::log::{Cell, Class, Found, LoggedValue, ValueLocation, Values};
use smdwidgets_core::picture::png;
use smdwidgets_core::proto::{self, Hparam};
use smdwidgets_core::tensor::DType;

use crate::errors::to_python;
use crate::events::event_of;
use crate::gil::detached;
use crate::numpy;
use crate::sweep::RowRequests;

/// A value of a log and its location.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Logged {
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    kind: &'static str,
    #[pyo3(get)]
    pub event_key: String,
    #[pyo3(get)]
    worker: String,
    #[pyo3(get)]
    step: i64,
    #[pyo3(get)]
    wall_time: f64,
    #[pyo3(get)]
    number: Option<f64>,
    pub location: ValueLocation,
}

impl Logged {
    /// The value of a name at a global step.
    pub fn of(name: &str, class: Class, step: i64, found: &Found<'_>) -> Logged {
        let (number, location) = match found.cell {
            Cell::Number(number) => (Some(number), ValueLocation::default()),
            Cell::ValueLocation(location) => (None, location),
        };
        let (event_key, worker) = (found.key.to_owned(), found.worker.to_owned());
        let (name, kind, wall_time) = (name.to_owned(), class.name(), found.wall_time);
        Logged { name, kind, event_key, worker, step, wall_time, number, location }
    }
}

#[pymethods]
impl Logged {
    /// Offset of its record.
    #[getter]
    fn offset(&self) -> u64 {
        self.location.record
    }

    /// Size of its record.
    #[getter]
    fn length(&self) -> u64 {
        self.location.length
    }

    /// Verifies the current bytes of the record and returns the encoded value.
    fn checked<'py>(&self, record: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyBytes>> {
        let (py, bytes) = (record.py(), record.as_bytes());
        let value = detached(py, bytes.len(), || self.location.checked(bytes));
        let value = value.map_err(|error| to_python(py, &error.within(&self.event_key, self.location.record)))?;
        Ok(PyBytes::new(py, value))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = PyString::new(py, &self.name).repr()?;
        Ok(format!("<Logged {} {name} at step {} of {}>", self.kind, self.step, self.worker))
    }
}

/// All values as one array, if their kinds and sizes agree.
pub fn as_array<'py>(py: Python<'py>, values: &Values) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut shape = vec![values.contents.len() as u64];
    let like = values.contents.first().and_then(|first| match first {
        Some(LoggedValue::Buckets(buckets)) => Some(buckets.len()),
        _ => None,
    });
    shape.extend(like.into_iter().flat_map(|buckets| [buckets as u64, 3]));
    let rows = values.contents.iter().map(|content| match (content, like) {
        (Some(LoggedValue::Number(number)), None) => Some(std::slice::from_ref(number)),
        (Some(LoggedValue::Buckets(own)), Some(count)) if own.len() == count => {
            values.buckets.get(own.clone()).map(<[_]>::as_flattened)
        }
        _ => None,
    });
    if rows.clone().any(|row| row.is_none()) {
        return Ok(None);
    }
    let row = 8 * like.map_or(1, |buckets| 3 * buckets);
    let mut bytes = vec![0; row * values.contents.len()];
    for (chunk, numbers) in bytes.chunks_exact_mut(row.max(1)).zip(rows.flatten()) {
        chunk.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(location, number)| *location = number.to_le_bytes());
    }
    numpy::own(py, DType::F64, &shape, bytes, 0).map(Some)
}

/// All values as a list.
pub fn as_list(py: Python<'_>, rows: RowRequests, values: Values) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    let Values { rows: found, contents, buckets, .. } = values;
    for ((content, request), (name, step, worker)) in contents.into_iter().zip(found).zip(rows) {
        match (content, request) {
            (Some(LoggedValue::Number(number)), _) => list.append(number)?,
            (Some(LoggedValue::Buckets(own)), _) => {
                list.append(numpy::bucket_array(py, buckets[own].iter().copied())?)?;
            }
            (Some(LoggedValue::Written(bytes)), Some(request)) => {
                let event = event_of(&PyBytes::new(py, &bytes), step, request.wall_time);
                let logged = Logged {
                    name,
                    kind: request.class.name(),
                    event_key: request.key,
                    worker: worker.unwrap_or_default(),
                    step,
                    wall_time: request.wall_time,
                    number: None,
                    location: request.location,
                };
                list.append((logged, event))?;
            }
            _ => list.append(py.None())?,
        }
    }
    Ok(list)
}

/// Parses hyperparameters from the content of TensorBoard's plugin.
#[pyfunction]
pub fn hparams<'py>(content: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyDict>> {
    let py = content.py();
    let found = proto::hparams(content.as_bytes()).map_err(|error| to_python(py, &error))?;
    let dict = PyDict::new(py);
    for (name, value) in found {
        match value {
            Hparam::Null => dict.set_item(name, py.None())?,
            Hparam::Number(number) => dict.set_item(name, number)?,
            Hparam::Text(text) => dict.set_item(name, text)?,
            Hparam::Bool(truth) => dict.set_item(name, truth)?,
        }
    }
    Ok(dict)
}

/// Decodes a PNG to an array (height, width, channels).
#[pyfunction]
pub fn decode_png<'py>(encoded: &Bound<'py, PyBytes>, max_pixels: u64) -> PyResult<Bound<'py, PyAny>> {
    let py = encoded.py();
    let bytes = encoded.as_bytes();
    let image = detached(py, bytes.len(), || png::decode(bytes, max_pixels));
    let image = image.map_err(|error| to_python(py, &error))?;
    numpy::own(py, image.dtype, &image.shape, image.data, 0)
}
