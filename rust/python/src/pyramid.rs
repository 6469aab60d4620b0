//! Bindings of the pyramid of a worker's statistics.

use std::collections::HashSet;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use smdwidgets_core::statistics_file::pyramid::{self as core, Extent, MEASURES, Wanted};
use smdwidgets_core::tensor::DType;

use crate::errors::to_python;
use crate::numpy;
use crate::statistics_file::{StatisticsReader, reporting};
use crate::sweep::{RecordSource, ints};

/// The bins of a worker's tensors at all levels.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Pyramid(core::Pyramid);

fn floats(py: Python<'_>, values: impl Iterator<Item = f32>) -> PyResult<Py<PyAny>> {
    numpy::column(py, DType::F32, values.map(f32::to_le_bytes))
}

fn bytes(py: Python<'_>, values: impl Iterator<Item = u8>) -> PyResult<Py<PyAny>> {
    numpy::column(py, DType::U8, values.map(|value| [value]))
}

#[pymethods]
impl Pyramid {
    #[new]
    fn new(py: Python<'_>, files: &Bound<'_, PyAny>, worker: &str) -> PyResult<Pyramid> {
        let source = RecordSource::of(files)?;
        py.detach(|| core::Pyramid::open(source.shared(), worker)).map(Pyramid).map_err(|error| to_python(py, &error))
    }

    /// Writes or continues the pyramid of a worker, and returns its size. `progress` is called with the rows done and
    /// their total.
    #[staticmethod]
    #[pyo3(signature = (files, reader, worker, path, whole = Vec::new(), progress = None, growing = None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn write(
        py: Python<'_>,
        files: &Bound<'_, PyAny>,
        reader: &StatisticsReader,
        worker: &str,
        path: PathBuf,
        whole: Vec<String>,
        progress: Option<Py<PyAny>>,
        growing: Option<u64>,
    ) -> PyResult<u64> {
        let source = RecordSource::of(files)?;
        let extent = growing.map_or(Extent::WHOLE, |rows| Extent { growing: true, rows });
        let whole: HashSet<&str> = whole.iter().map(String::as_str).collect();
        reporting(py, progress, |report| {
            reader.with(|reader| core::build(reader, source.as_dyn(), worker, &path, &whole, extent, report))
        })
    }

    /// Whether it was made of these statistics, which may have later steps.
    fn belongs_to(&self, py: Python<'_>, reader: &StatisticsReader, worker: &str) -> bool {
        py.detach(|| reader.with(|reader| self.0.belongs_to(reader, worker)))
    }

    /// Whether it has all of these statistics.
    fn is_current(&self, py: Python<'_>, reader: &StatisticsReader, worker: &str) -> bool {
        py.detach(|| reader.with(|reader| self.0.is_current(reader, worker)))
    }

    /// Number, batches, end and checksum of each segment whose tensors it has, for `StatisticsReader.names`.
    #[getter]
    fn covered(&self) -> Vec<(u64, u64, u64, u32)> {
        self.0.covered().iter().map(|each| (each.segment, each.batches, each.end, each.crc)).collect()
    }

    #[getter]
    fn levels(&self) -> (u8, u8) {
        self.0.levels()
    }

    #[getter]
    fn ends(&self) -> (i64, i64) {
        self.0.ends()
    }

    #[getter]
    fn size(&self) -> u64 {
        self.0.size()
    }

    #[getter]
    fn rows(&self) -> (u64, u64) {
        self.0.rows()
    }

    fn names(&self) -> Vec<&str> {
        self.0.names.iter().map(String::as_str).collect()
    }

    /// The number of the tensor, and the mode, of each series.
    fn series<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Py<PyAny>)> {
        let tensors = ints(py, self.0.series.iter().map(|one| one.tensor.into()))?;
        Ok((tensors, bytes(py, self.0.series.iter().map(|one| one.mode))?))
    }

    /// By tensor: whether it has several elements, and the first size and norm with their steps.
    fn starts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        let all = &self.0.seen;
        found.set_item("several", bytes(py, all.iter().map(|seen| seen.several.into()))?)?;
        for (at, name) in ["size", "l2"].into_iter().enumerate() {
            let starts = || all.iter().map(|seen| seen.starts[at].unwrap_or((i64::MAX, 0.0)));
            found.set_item(format!("{name}.step"), ints(py, starts().map(|start| start.0))?)?;
            found.set_item(name, floats(py, starts().map(|start| start.1))?)?;
        }
        Ok(found)
    }

    /// The last sizes of each series, one series after the other.
    fn sizes(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let all: Vec<f32> = self.0.sizes.as_flattened().to_vec();
        floats(py, all.into_iter())
    }

    /// The records that findings are made of, as columns.
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        let all = &self.0.records;
        found.set_item("tensor", ints(py, all.iter().map(|one| one.tensor.into()))?)?;
        found.set_item("step", ints(py, all.iter().map(|one| one.step))?)?;
        found.set_item("mode", bytes(py, all.iter().map(|one| one.mode))?)?;
        found.set_item("flag", bytes(py, all.iter().map(|one| one.flag))?)?;
        for (at, (name, ..)) in MEASURES.iter().enumerate() {
            found.set_item(*name, floats(py, all.iter().map(|one| one.values[at]))?)?;
        }
        found.set_item("mean", floats(py, all.iter().map(|one| one.mean))?)?;
        found.set_item("elements", floats(py, all.iter().map(|one| one.elements))?)?;
        found.set_item("usual", floats(py, all.iter().map(|one| one.usual))?)?;
        Ok(found)
    }

    /// Merges series into bins: lo, mid, hi, n and flag, row by row.
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn bins<'py>(
        &self,
        py: Python<'py>,
        series: Vec<u32>,
        owners: Vec<u32>,
        measure: &Bound<'_, PyString>,
        level: u8,
        first: u64,
        rows: usize,
        count: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let measure = number_of(measure)?;
        let pairs: Vec<(u32, u32)> = series.into_iter().zip(owners).collect();
        let wanted = Wanted { series: &pairs, measure, level, first, shape: (rows, count) };
        let bins = py.detach(|| self.0.bins(&wanted)).map_err(|error| to_python(py, &error))?;
        let found = PyDict::new(py);
        for (name, plane) in ["lo", "mid", "hi"].into_iter().zip(bins.values) {
            found.set_item(name, floats(py, plane.into_iter())?)?;
        }
        found.set_item("n", ints(py, bins.n.into_iter())?)?;
        found.set_item("flag", bytes(py, bins.flag.into_iter())?)?;
        Ok(found)
    }

    /// Reads from a store at once what `bins` will ask for in several parts.
    fn read_ahead(
        &self,
        py: Python<'_>,
        series: Vec<u32>,
        measure: &Bound<'_, PyString>,
        level: u8,
        first: u64,
        count: usize,
    ) -> PyResult<()> {
        let measure = number_of(measure)?;
        let pairs: Vec<(u32, u32)> = series.into_iter().map(|series| (series, 0)).collect();
        let wanted = Wanted { series: &pairs, measure, level, first, shape: (1, count) };
        py.detach(|| self.0.read_ahead(&wanted)).map_err(|error| to_python(py, &error))
    }
}

fn number_of(measure: &Bound<'_, PyString>) -> PyResult<usize> {
    let name = measure.to_str()?;
    let measure = MEASURES.iter().position(|(each, ..)| *each == name);
    measure.ok_or_else(|| PyValueError::new_err(format!("unknown measure {name:?}")))
}
