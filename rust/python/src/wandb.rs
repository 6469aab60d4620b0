//! Bindings of W&B's files.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smdwidgets_core::tensor::DType;
use smdwidgets_core::wandb::{BLOCK, Column, Places, Reader, Rows, value_parts};

use crate::errors::to_python;
use crate::gil::detached;
use crate::numpy;

/// Reads the records of a file once, in pieces.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct WandbReader(Mutex<Reader>);

/// A column in Python: name, rows, numbers.
type PythonColumn = (String, Py<PyAny>, Py<PyAny>);
/// Rows in Python: steps, times, columns.
type PythonTable = (Py<PyAny>, Py<PyAny>, Vec<PythonColumn>);

fn integers(py: Python<'_>, all: &[i64]) -> PyResult<Py<PyAny>> {
    numpy::column(py, DType::I64, all.iter().map(|one| one.to_le_bytes()))
}

fn table(py: Python<'_>, Rows { steps, times, columns }: Rows) -> PyResult<PythonTable> {
    let column = |(name, Column { rows, values }): (String, Column)| {
        Ok((name, integers(py, &rows)?, numpy::doubles(py, &values)?))
    };
    let columns = columns.into_iter().map(column).collect::<PyResult<_>>()?;
    Ok((integers(py, &steps)?, numpy::doubles(py, &times)?, columns))
}

#[pymethods]
impl WandbReader {
    #[classattr]
    const BLOCK: usize = BLOCK;

    #[new]
    fn new(at: u64, most_names: usize) -> Self {
        WandbReader(Mutex::new(Reader::new(at, most_names)))
    }

    #[getter]
    fn at(&self) -> u64 {
        self.0.lock().at()
    }

    fn feed(&self, py: Python<'_>, piece: &Bound<'_, PyBytes>, start: u64) -> PyResult<()> {
        let bytes = piece.as_bytes();
        detached(py, bytes.len(), || self.0.lock().feed(bytes, start)).map_err(|error| to_python(py, &error))
    }

    /// What was read since the last call: rows of the history and of the system, (steps, times, columns); names of histograms
    /// with their rows, and offset and length of their records; summary; settings; facts; whether the run has ended.
    #[allow(clippy::type_complexity, reason = "the parts of a batch")]
    fn take(
        &self,
        py: Python<'_>,
    ) -> PyResult<(
        PythonTable,
        PythonTable,
        Vec<(String, Py<PyAny>, Vec<(u64, u64)>)>,
        Vec<(String, Option<Py<PyBytes>>)>,
        Vec<(String, Py<PyBytes>)>,
        Vec<(&'static str, String)>,
        bool,
    )> {
        let batch = self.0.lock().take();
        let bytes = |text: Vec<u8>| PyBytes::new(py, &text).unbind();
        let histogram = |(name, Places { rows, records }): (String, Places)| Ok((name, integers(py, &rows)?, records));
        Ok((
            table(py, batch.history)?,
            table(py, batch.system)?,
            batch.histograms.into_iter().map(histogram).collect::<PyResult<_>>()?,
            batch.summary.into_iter().map(|(name, text)| (name, text.map(bytes))).collect(),
            batch.settings.into_iter().map(|(name, text)| (name, bytes(text))).collect(),
            batch.facts.into_iter().map(|(fact, text)| (fact.name(), text)).collect(),
            batch.has_exit,
        ))
    }

    /// The parts of a value of the history: the rest of their names, and their JSON.
    #[staticmethod]
    fn parts(
        py: Python<'_>,
        piece: &Bound<'_, PyBytes>,
        at: usize,
        name: &str,
    ) -> PyResult<Vec<(String, Py<PyBytes>)>> {
        let found = value_parts(piece.as_bytes(), at, name).map_err(|error| to_python(py, &error))?;
        Ok(found.into_iter().map(|(rest, text)| (rest, PyBytes::new(py, &text).unbind())).collect())
    }

    /// What could not be read, (offset, reason), and the number of further faults.
    fn damage(&self) -> (Vec<(u64, String)>, usize) {
        let reader = self.0.lock();
        let (damage, more) = reader.damage();
        (damage.iter().map(|one| (one.at, one.what.clone())).collect(), more)
    }

    /// The number of checksums that match.
    #[getter]
    fn checked(&self) -> u64 {
        self.0.lock().checked()
    }

    /// Names of images and tables, which are not read.
    fn media(&self) -> Vec<String> {
        self.0.lock().media().map(str::to_owned).collect()
    }

    fn __repr__(&self) -> String {
        format!("<WandbReader at byte {}>", self.at())
    }
}
