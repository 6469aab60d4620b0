//! Streams of records and events: what `verify` walks over and TensorBoard's logs are read with.

use pyo3::exceptions::PyIndexError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use smdwidgets_core::error::Error;
use smdwidgets_core::events::{self, Other, Problem, Walk};
use smdwidgets_core::log;
use smdwidgets_core::proto::{Kind, Value, encode};
use smdwidgets_core::record::{self, Footer};
use smdwidgets_core::tensor::{DType, Data, TensorView};

use crate::buffer::Bytes;
use crate::errors::to_python;
use crate::numpy;
use crate::records::detached;

/// What a walk over a stream of records found.
#[pyclass(frozen, get_all, module = "smdwidgets._core")]
pub struct Scan {
    offsets: Py<PyAny>,
    sizes: Py<PyAny>,
    footers: Py<PyAny>,
    problems: Py<PyList>,
    end: u64,
    wanted: u64,
}

/// Walks over the records in `data`.
#[pyfunction]
#[pyo3(signature = (data, offset = 0, check = true))]
pub fn scan(data: &Bound<'_, PyAny>, offset: usize, check: bool) -> PyResult<Scan> {
    let py = data.py();
    let bytes = Bytes::of(data)?;
    let held = bytes.as_slice();
    let (mut offsets, mut sizes, mut footers) = (Vec::new(), Vec::new(), Vec::new());
    let walk = detached(py, held.len(), || {
        let mut walk = Walk::new(held, offset);
        for (at, record) in walk.by_ref() {
            offsets.push((at as i64).to_le_bytes());
            sizes.push((record.size as i64).to_le_bytes());
            footers.push(match check.then(|| record.footer()) {
                Some(Footer::Constant) => [0u8],
                Some(Footer::TrueCrc) => [1],
                Some(Footer::Neither) => [2],
                None => [3],
            });
        }
        walk
    });
    Ok(Scan {
        offsets: numpy::column(py, DType::I64, offsets.into_iter())?,
        sizes: numpy::column(py, DType::I64, sizes.into_iter())?,
        footers: numpy::column(py, DType::U8, footers.into_iter())?,
        problems: problems(py, walk.problems)?,
        end: walk.at as u64,
        wanted: walk.wanted,
    })
}

/// What a stream of events holds.
#[pyclass(frozen, get_all, module = "smdwidgets._core")]
pub struct Events {
    version: Option<String>,
    scalars: Py<PyDict>,
    others: Py<PyList>,
    problems: Py<PyList>,
    end: u64,
    wanted: u64,
}

/// Reads the events in `data`.
#[pyfunction]
#[pyo3(signature = (data, offset = 0, check = true))]
pub fn read_events(data: &Bound<'_, PyAny>, offset: usize, check: bool) -> PyResult<Events> {
    let py = data.py();
    let bytes = Bytes::of(data)?;
    let held = bytes.as_slice();
    let found = detached(py, held.len(), || events::read(held, offset, check));
    let scalars = PyDict::new(py);
    for (tag, course) in &found.scalars {
        let steps = course.steps.iter().map(|step| step.to_le_bytes());
        let columns = (
            numpy::column(py, DType::I64, steps)?,
            numpy::doubles(py, &course.wall_times)?,
            numpy::doubles(py, &course.values)?,
        );
        scalars.set_item(tag, columns)?;
    }
    let others = PyList::empty(py);
    if !found.others.is_empty() {
        let data = numpy::held(data)?;
        for place in found.others {
            others.append(Event { data: data.clone().unbind(), place })?;
        }
    }
    Ok(Events {
        version: found.version.map(str::to_owned),
        scalars: scalars.unbind(),
        others: others.unbind(),
        problems: problems(py, found.problems)?,
        end: found.end,
        wanted: found.wanted,
    })
}

/// A value that isn't a scalar, read when asked for.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Event {
    data: Py<PyAny>,
    place: Other,
}

impl Event {
    fn with<'py, T>(&self, py: Python<'py>, work: impl FnOnce(&[u8], Option<Value<'_>>) -> PyResult<T>) -> PyResult<T> {
        let bytes = Bytes::of(self.data.bind(py))?;
        let (at, size) = (self.place.at as usize, self.place.size as usize);
        let held = bytes.as_slice();
        let Some(mine) = held.get(at..).and_then(|rest| rest.get(..size)) else {
            return Err(PyIndexError::new_err("the data this was read from has shrunk"));
        };
        if self.place.graph {
            return work(held, None);
        }
        let value = Value::parse(mine).map_err(|error| to_python(py, &error.within("", self.place.at)))?;
        work(held, Some(value))
    }
}

#[pymethods]
impl Event {
    #[getter]
    fn offset(&self) -> u64 {
        self.place.record
    }

    #[getter]
    fn step(&self) -> i64 {
        self.place.step
    }

    #[getter]
    fn wall_time(&self) -> f64 {
        self.place.wall_time
    }

    #[getter]
    fn tag(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |_, value| Ok(value.map_or(String::new(), |value| value.tag.to_owned())))
    }

    #[getter]
    fn kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |_, value| {
            Ok(match value.map(|value| value.kind) {
                None => "graph",
                Some(Kind::None | Kind::OldHistogram(_)) => "unknown",
                Some(Kind::Scalar(_)) => "scalar",
                Some(Kind::Image(_)) => "image",
                Some(Kind::Histogram(_)) => "histogram",
                Some(Kind::Audio(_)) => "audio",
                Some(Kind::Tensor(_)) => "tensor",
            })
        })
    }

    #[getter]
    fn plugin(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |_, value| {
            let Some(metadata) = value.and_then(|value| value.metadata) else { return Ok(String::new()) };
            let last = metadata.plugins().last().transpose().map_err(|error| to_python(py, &error))?;
            Ok(last.map_or(String::new(), |(name, _)| name.to_owned()))
        })
    }

    #[getter]
    fn plugin_content<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.with(py, |_, value| {
            let Some(metadata) = value.and_then(|value| value.metadata) else { return Ok(PyBytes::new(py, &[])) };
            let last = metadata.plugins().last().transpose().map_err(|error| to_python(py, &error))?;
            Ok(PyBytes::new(py, last.map_or(&[][..], |(_, content)| content)))
        })
    }

    #[getter]
    fn display_name(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |_, value| {
            Ok(value
                .and_then(|value| value.metadata)
                .map_or(String::new(), |metadata| metadata.display_name.to_owned()))
        })
    }

    #[getter]
    fn description(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |_, value| {
            Ok(value.and_then(|value| value.metadata).map_or(String::new(), |metadata| metadata.description.to_owned()))
        })
    }

    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.with(py, |held, value| {
            let dict = PyDict::new(py);
            match value.map(|value| value.kind) {
                None => {
                    let (at, size) = (self.place.at as usize, self.place.size as usize);
                    return Ok(PyBytes::new(py, &held[at..at + size]).into_any());
                }
                Some(Kind::Tensor(proto)) => {
                    let tensor = TensorView::from_proto(proto)
                        .map_err(|error| to_python(py, &error.within("", self.place.at)))?;
                    return match &tensor.data {
                        Data::Strings(strings) => raw_strings(py, &tensor.shape, strings),
                        _ => numpy::array(py, tensor),
                    };
                }
                Some(Kind::Histogram(histogram)) => {
                    for (name, number) in [
                        ("min", histogram.min),
                        ("max", histogram.max),
                        ("num", histogram.num),
                        ("sum", histogram.sum),
                        ("sum_squares", histogram.sum_squares),
                    ] {
                        dict.set_item(name, number)?;
                    }
                    dict.set_item("limits", numpy::doubles(py, &histogram.limits)?)?;
                    dict.set_item("counts", numpy::doubles(py, &histogram.counts)?)?;
                }
                Some(Kind::Image(image)) => {
                    dict.set_item("height", image.height)?;
                    dict.set_item("width", image.width)?;
                    dict.set_item("colorspace", image.colorspace)?;
                    dict.set_item("encoded", PyBytes::new(py, image.encoded))?;
                }
                Some(Kind::Audio(audio)) => {
                    dict.set_item("sample_rate", audio.sample_rate)?;
                    dict.set_item("channels", audio.channels)?;
                    dict.set_item("frames", audio.frames)?;
                    dict.set_item("content_type", audio.content_type)?;
                    dict.set_item("encoded", PyBytes::new(py, audio.encoded))?;
                }
                Some(Kind::Scalar(number)) => return Ok(number.into_pyobject(py)?.into_any()),
                Some(Kind::OldHistogram(_) | Kind::None) => return Ok(py.None().into_bound(py)),
            }
            Ok(dict.into_any())
        })
    }

    /// A histogram's buckets.
    #[getter]
    fn buckets<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.with(py, |_, value| match value.map(|value| value.kind) {
            Some(Kind::Histogram(histogram)) => {
                let buckets =
                    log::buckets(&histogram).map_err(|error| to_python(py, &error.within("", self.place.at)))?;
                numpy::bucket_array(py, buckets).map(Some)
            }
            _ => Ok(None),
        })
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let tag = PyString::new(py, &self.tag(py)?).repr()?;
        Ok(PyString::new(py, &format!("<Event {} {tag} at step {}>", self.kind(py)?, self.place.step)))
    }
}

/// The event that a value in `data`, which holds nothing else, makes with a step and a time.
#[pyfunction]
#[pyo3(signature = (data, step = 0, wall_time = 0.0))]
pub fn event_of(data: &Bound<'_, PyBytes>, step: i64, wall_time: f64) -> Event {
    let size = data.as_bytes().len() as u64;
    let place = Other { record: 0, at: 0, size, step, wall_time, graph: false };
    Event { data: data.clone().into_any().unbind(), place }
}

/// A whole record around a payload, with the payload's true checksum.
#[pyfunction]
pub fn write_record<'py>(payload: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = Bytes::of(payload)?;
    Ok(PyBytes::new(payload.py(), &record::frame(bytes.as_slice())))
}

/// The first record of a TensorBoard log.
#[pyfunction]
pub fn version_record(py: Python<'_>, wall_time: f64) -> Bound<'_, PyBytes> {
    let mut event = Vec::new();
    encode::double(&mut event, 1, wall_time);
    encode::bytes(&mut event, 3, b"brain.Event:2");
    PyBytes::new(py, &record::frame(&event))
}

/// A record with a scalar, as TensorBoard reads it.
#[pyfunction]
pub fn scalar_record<'py>(py: Python<'py>, tag: &str, step: i64, wall_time: f64, value: f32) -> Bound<'py, PyBytes> {
    let mut of = Vec::new();
    encode::bytes(&mut of, 1, tag.as_bytes());
    encode::float(&mut of, 2, value);
    framed(py, step, wall_time, &of)
}

/// A record with a histogram, as TensorBoard reads it.
#[pyfunction]
#[pyo3(signature = (tag, step, wall_time, limits, counts, *, min, max, num, sum, sum_squares))]
#[allow(clippy::too_many_arguments, reason = "the histogram's own fields, by keyword")]
pub fn histogram_record<'py>(
    py: Python<'py>,
    tag: &str,
    step: i64,
    wall_time: f64,
    limits: Vec<f64>,
    counts: Vec<f64>,
    min: f64,
    max: f64,
    num: f64,
    sum: f64,
    sum_squares: f64,
) -> PyResult<Bound<'py, PyBytes>> {
    if limits.len() != counts.len() {
        let what = format!("a histogram of {} limits and {} counts", limits.len(), counts.len());
        return Err(to_python(py, &Error::Invalid(what)));
    }
    let mut histogram = Vec::new();
    for (number, value) in (1..).zip([min, max, num, sum, sum_squares]) {
        encode::double(&mut histogram, number, value);
    }
    for (number, values) in [(6, limits), (7, counts)] {
        let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        encode::bytes(&mut histogram, number, &packed);
    }
    let mut of = Vec::new();
    encode::bytes(&mut of, 1, tag.as_bytes());
    encode::bytes(&mut of, 5, &histogram);
    Ok(framed(py, step, wall_time, &of))
}

fn framed<'py>(py: Python<'py>, step: i64, wall_time: f64, value: &[u8]) -> Bound<'py, PyBytes> {
    let mut summary = Vec::new();
    encode::bytes(&mut summary, 1, value);
    let mut event = Vec::new();
    encode::double(&mut event, 1, wall_time);
    if step != 0 {
        encode::int(&mut event, 2, step.cast_unsigned());
    }
    encode::bytes(&mut event, 5, &summary);
    PyBytes::new(py, &record::frame(&event))
}

/// TensorFlow's strings are bytes: of pictures as often as of text.
fn raw_strings<'py>(py: Python<'py>, shape: &[u64], strings: &[&[u8]]) -> PyResult<Bound<'py, PyAny>> {
    let array = py.import("numpy")?.call_method1("empty", (strings.len(), "O"))?;
    for (i, string) in strings.iter().enumerate() {
        array.set_item(i, PyBytes::new(py, string))?;
    }
    array.call_method1(intern!(py, "reshape"), (PyTuple::new(py, shape)?,))
}

fn problems(py: Python<'_>, problems: Vec<Problem>) -> PyResult<Py<PyList>> {
    let list = PyList::empty(py);
    for Problem { at, error, resumed } in problems {
        list.append((at, to_python(py, &error), resumed))?;
    }
    Ok(list.unbind())
}
