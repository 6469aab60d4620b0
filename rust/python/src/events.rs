//! Reading and writing TensorBoard events.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use smdwidgets_core::error::Error;
use smdwidgets_core::log::{self, Cell, Scanner, Series, ValueLocation};
use smdwidgets_core::proto::{Kind, Value, encode};
use smdwidgets_core::record;
use smdwidgets_core::tensor::{DType, Data, TensorView};

use crate::buffer::StableBytes;
use crate::errors::to_python;
use crate::gil::detached;
use crate::numpy;

/// Bytes read at a time from a log in memory.
const PIECE: u64 = 1 << 20;

/// The content of a TensorBoard log: scalars as columns, every other value as an [`Event`].
#[pyclass(frozen, get_all, module = "smdwidgets._core")]
pub struct Events {
    version: Option<String>,
    scalars: Py<PyDict>,
    others: Py<PyList>,
    problems: Vec<(u64, String)>,
    end: u64,
}

/// Reads the events of a TensorBoard log in memory.
#[pyfunction]
pub fn read_events(data: &Bound<'_, PyAny>) -> PyResult<Events> {
    let py = data.py();
    let bytes = StableBytes::of(data)?;
    let log = bytes.as_slice(py);
    let mut scanner = Scanner::default();
    detached(py, log.len(), || scanner.read(&log, PIECE)).map_err(|error| to_python(py, &error))?;
    let scalars = PyDict::new(py);
    let mut others: Vec<(ValueLocation, i64, f64)> = Vec::new();
    for Series { tag, column, .. } in scanner.series() {
        if let Some(numbers) = column.numbers() {
            let steps = column.steps().iter().map(|step| step.to_le_bytes());
            let steps = numpy::column(py, DType::I64, steps)?;
            scalars.set_item(tag, (steps, numpy::doubles(py, column.wall_times())?, numpy::doubles(py, numbers)?))?;
            continue;
        }
        let times = column.steps().iter().zip(column.wall_times());
        others.extend(times.enumerate().filter_map(|(row, (step, wall_time))| match column.cell(row)? {
            Cell::ValueLocation(location) => Some((location, *step, *wall_time)),
            Cell::Number(_) => None,
        }));
    }
    others.sort_by_key(|(location, ..)| location.at);
    let list = PyList::empty(py);
    for (location, step, wall_time) in others {
        let written = log.get(location.at as usize..).and_then(|rest| rest.get(..location.size as usize));
        list.append(event_of(&PyBytes::new(py, written.unwrap_or_default()), step, wall_time))?;
    }
    Ok(Events {
        version: scanner.version().map(str::to_owned),
        scalars: scalars.unbind(),
        others: list.unbind(),
        problems: scanner.problems().collect(),
        end: scanner.end(),
    })
}

/// A value that is not a scalar, decoded on access.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Event {
    /// The encoded `Summary.Value`.
    data: Py<PyBytes>,
    step: i64,
    wall_time: f64,
}

impl Event {
    /// Calls `work` with the parsed value.
    fn with<'py, T>(&self, py: Python<'py>, work: impl FnOnce(Value<'_>) -> PyResult<T>) -> PyResult<T> {
        let data = self.data.bind(py).as_bytes();
        work(Value::parse(data).map_err(|error| to_python(py, &error))?)
    }
}

/// The content of the last plugin in a value's metadata, and the plugin's name.
fn last_plugin<'a>(py: Python<'_>, value: &Value<'a>) -> PyResult<(&'a str, &'a [u8])> {
    let Some(metadata) = &value.metadata else { return Ok(("", &[])) };
    let last = metadata.plugins().last().transpose().map_err(|error| to_python(py, &error))?;
    Ok(last.unwrap_or(("", &[])))
}

#[pymethods]
impl Event {
    #[getter]
    fn step(&self) -> i64 {
        self.step
    }

    #[getter]
    fn wall_time(&self) -> f64 {
        self.wall_time
    }

    #[getter]
    fn tag(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |value| Ok(value.tag.to_owned()))
    }

    #[getter]
    fn kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |value| {
            Ok(match value.kind {
                Kind::None | Kind::OldHistogram(_) => "unknown",
                Kind::Scalar(_) => "scalar",
                Kind::Image(_) => "image",
                Kind::Histogram(_) => "histogram",
                Kind::Audio(_) => "audio",
                Kind::Tensor(_) => "tensor",
            })
        })
    }

    #[getter]
    fn plugin(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |value| last_plugin(py, &value).map(|(name, _)| name.to_owned()))
    }

    #[getter]
    fn plugin_content<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.with(py, |value| last_plugin(py, &value).map(|(_, content)| PyBytes::new(py, content)))
    }

    #[getter]
    fn display_name(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |value| Ok(value.metadata.map_or("", |metadata| metadata.display_name).to_owned()))
    }

    #[getter]
    fn description(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |value| Ok(value.metadata.map_or("", |metadata| metadata.description).to_owned()))
    }

    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.with(py, |value| {
            let dict = PyDict::new(py);
            match value.kind {
                Kind::Tensor(proto) => {
                    let tensor = TensorView::from_proto(proto).map_err(|error| to_python(py, &error))?;
                    return match &tensor.data {
                        Data::Strings(strings) => raw_strings(py, &tensor.shape, strings),
                        _ => numpy::array(py, tensor),
                    };
                }
                Kind::Histogram(histogram) => {
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
                Kind::Image(image) => {
                    dict.set_item("height", image.height)?;
                    dict.set_item("width", image.width)?;
                    dict.set_item("colorspace", image.colorspace)?;
                    dict.set_item("encoded", PyBytes::new(py, image.encoded))?;
                }
                Kind::Audio(audio) => {
                    dict.set_item("sample_rate", audio.sample_rate)?;
                    dict.set_item("channels", audio.channels)?;
                    dict.set_item("frames", audio.frames)?;
                    dict.set_item("content_type", audio.content_type)?;
                    dict.set_item("encoded", PyBytes::new(py, audio.encoded))?;
                }
                Kind::Scalar(number) => return Ok(number.into_pyobject(py)?.into_any()),
                Kind::OldHistogram(_) | Kind::None => return Ok(py.None().into_bound(py)),
            }
            Ok(dict.into_any())
        })
    }

    /// The buckets of a histogram; None for any other kind.
    #[getter]
    fn buckets<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.with(py, |value| match value.kind {
            Kind::Histogram(histogram) => {
                let buckets = log::buckets(&histogram).map_err(|error| to_python(py, &error))?;
                numpy::bucket_array(py, buckets).map(Some)
            }
            _ => Ok(None),
        })
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let tag = PyString::new(py, &self.tag(py)?).repr()?;
        Ok(PyString::new(py, &format!("<Event {} {tag} at step {}>", self.kind(py)?, self.step)))
    }
}

/// Whether a key names an event file of TensorBoard.
#[pyfunction]
pub fn is_event_file(key: &str) -> bool {
    log::is_event_file(key)
}

/// An event from the encoded `Summary.Value`, a step and a time.
#[pyfunction]
#[pyo3(signature = (data, step = 0, wall_time = 0.0))]
pub fn event_of(data: &Bound<'_, PyBytes>, step: i64, wall_time: f64) -> Event {
    Event { data: data.clone().unbind(), step, wall_time }
}

/// Encodes a record with the payload's checksum.
#[pyfunction]
pub fn write_record<'py>(payload: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = StableBytes::of(payload)?;
    Ok(PyBytes::new(payload.py(), &record::encode(bytes.as_slice(payload.py()))))
}

/// Encodes the first record of a TensorBoard log.
#[pyfunction]
pub fn version_record(py: Python<'_>, wall_time: f64) -> Bound<'_, PyBytes> {
    let mut event = Vec::new();
    encode::double(&mut event, 1, wall_time);
    encode::bytes(&mut event, 3, b"brain.Event:2");
    PyBytes::new(py, &record::encode(&event))
}

/// Encodes a record with a scalar for TensorBoard.
#[pyfunction]
pub fn scalar_record<'py>(py: Python<'py>, tag: &str, step: i64, wall_time: f64, value: f32) -> Bound<'py, PyBytes> {
    let mut of = Vec::new();
    encode::bytes(&mut of, 1, tag.as_bytes());
    encode::float(&mut of, 2, value);
    framed(py, step, wall_time, &of)
}

/// Encodes a record with a histogram for TensorBoard.
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
        let what = format!("histogram with {} limits but {} counts", limits.len(), counts.len());
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
    PyBytes::new(py, &record::encode(&event))
}

/// TensorFlow strings are arbitrary bytes, such as encoded images.
fn raw_strings<'py>(py: Python<'py>, shape: &[u64], strings: &[&[u8]]) -> PyResult<Bound<'py, PyAny>> {
    let array = py.import("numpy")?.call_method1("empty", (strings.len(), "O"))?;
    for (i, string) in strings.iter().enumerate() {
        array.set_item(i, PyBytes::new(py, string))?;
    }
    array.call_method1(intern!(py, "reshape"), (PyTuple::new(py, shape)?,))
}
