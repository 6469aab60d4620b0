//! Bindings of W&B's files.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smdwidgets_core::tensor::DType;
use smdwidgets_core::wandb::{BLOCK, Column, Reader};

use crate::errors::to_python;
use crate::gil::detached;
use crate::numpy;

/// Reads the records of a file once, in pieces.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct WandbReader(Mutex<Reader>);

/// A column in Python: name, rows, numbers.
type PythonColumn = (String, Py<PyAny>, Py<PyAny>);

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

    /// The rows since the last call: (steps, times, columns, settings, facts, whether the run has ended).
    #[allow(clippy::type_complexity, reason = "the parts of a batch")]
    fn take(
        &self,
        py: Python<'_>,
    ) -> PyResult<(
        Py<PyAny>,
        Py<PyAny>,
        Vec<PythonColumn>,
        Vec<(String, Py<PyBytes>)>,
        Vec<(&'static str, String)>,
        bool,
    )> {
        let batch = self.0.lock().take();
        let integers = |all: &[i64]| numpy::column(py, DType::I64, all.iter().map(|one| one.to_le_bytes()));
        let column = |(name, Column { rows, values }): (String, Column)| {
            Ok((name, integers(&rows)?, numpy::doubles(py, &values)?))
        };
        let setting = |(name, text): (String, Vec<u8>)| (name, PyBytes::new(py, &text).unbind());
        Ok((
            integers(&batch.steps)?,
            numpy::doubles(py, &batch.times)?,
            batch.columns.into_iter().map(column).collect::<PyResult<_>>()?,
            batch.settings.into_iter().map(setting).collect(),
            batch.facts.into_iter().map(|(fact, text)| (fact.name(), text)).collect(),
            batch.has_exit,
        ))
    }

    /// What could not be read, (offset, reason), and the number of further faults.
    fn damage(&self) -> (Vec<(u64, String)>, usize) {
        let reader = self.0.lock();
        let (damage, more) = reader.damage();
        (damage.iter().map(|one| (one.at, one.what.clone())).collect(), more)
    }

    /// Names of histograms, images and tables, which are not read.
    fn media(&self) -> Vec<String> {
        self.0.lock().media().map(str::to_owned).collect()
    }

    fn __repr__(&self) -> String {
        format!("<WandbReader at byte {}>", self.at())
    }
}
