//! Bindings of statistics files.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use parking_lot::RwLock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use smdwidgets_core::error::{Error, Result};
use smdwidgets_core::statistics_file::{self as core, Covered, Limits, Name, Row, Selection};
use smdwidgets_core::step::Step;
use smdwidgets_core::tensor::DType;

use crate::errors::to_python;
use crate::gil::locked;
use crate::modes::{filter_of, mode_of};
use crate::numpy;
use crate::statistics;
use crate::sweep::{RecordSource, ints, texts};

/// A worker, number, batches, end and checksum of the segments that its pyramid covers, and its last step.
type OfPyramid = (String, Vec<(u64, u64, u64, u32)>, Step);

/// Writes the statistics of one worker's tensors.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct StatisticsWriter(Mutex<Option<core::StatisticsWriter>>);

impl StatisticsWriter {
    /// Runs `work` on the open writer without the GIL, since it waits for the disk or for another thread.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut core::StatisticsWriter) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            writer.as_mut().map(work)
        })
        .ok_or_else(closed)?
        .map_err(|error| to_python(py, &error))
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the statistics file is closed")
}

#[pymethods]
impl StatisticsWriter {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (root, worker = "worker_0", *, steps = 64, size = 256 << 10, seconds = 2.0, segment = 64 << 20,
                        fsync = false))]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        worker: &str,
        steps: usize,
        size: usize,
        seconds: f64,
        segment: u64,
        fsync: bool,
    ) -> PyResult<Self> {
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(format!("invalid seconds {seconds}: {error}")))?;
        let limits = Limits { steps, bytes: size, time, segment };
        let writer = core::StatisticsWriter::new(&root, worker, limits, fsync);
        Ok(StatisticsWriter(Mutex::new(Some(writer.map_err(|error| to_python(py, &error))?))))
    }

    #[pyo3(signature = (name, dtype = "", shape = Vec::new(), collection = "", order = None))]
    fn add(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        shape: Vec<u64>,
        collection: &str,
        order: Option<u64>,
    ) -> PyResult<u32> {
        self.with(py, |writer| {
            Ok(writer.add(name, |id| Name {
                id,
                name: name.into(),
                dtype: dtype.into(),
                shape,
                collection: collection.into(),
                order,
            }))
        })
    }

    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (step, tensors, columns, mode = 4, mode_step = None, flags = None))]
    fn append(
        &self,
        py: Python<'_>,
        step: Step,
        tensors: Vec<u32>,
        columns: &Bound<'_, PyDict>,
        mode: i64,
        mode_step: Option<Step>,
        flags: Option<Vec<u16>>,
    ) -> PyResult<()> {
        let (mode, rows) = (mode_of(mode)?, statistics::rows(columns)?);
        for (what, given) in [("columns", rows.len()), ("flags", flags.as_ref().map_or(tensors.len(), Vec::len))] {
            if given != tensors.len() {
                let message = format!("{what} have {given} rows for {} tensors", tensors.len());
                return Err(PyValueError::new_err(message));
            }
        }
        let row = |(at, statistics)| Row {
            step,
            mode,
            mode_step: mode_step.unwrap_or(step),
            tensor: tensors[at],
            flags: flags.as_ref().map_or(0, |flags| flags[at]),
            statistics,
        };
        let is_due = locked(py, &self.0, rows.len() * size_of::<Row>(), |writer| {
            writer.as_mut().map(|writer| writer.add_rows(step, rows.into_iter().enumerate().map(row)))
        });
        let is_due = is_due.ok_or_else(closed)?.map_err(|error| to_python(py, &error))?;
        if is_due { self.flush(py) } else { Ok(()) }
    }

    /// Appends rows of several steps; those of one step follow each other.
    fn append_steps(
        &self,
        py: Python<'_>,
        steps: Vec<Step>,
        modes: Vec<i64>,
        mode_steps: Vec<Step>,
        tensors: Vec<u32>,
        columns: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let rows = statistics::rows(columns)?;
        for (what, given) in
            [("steps", steps.len()), ("modes", modes.len()), ("mode_steps", mode_steps.len()), ("columns", rows.len())]
        {
            if given != tensors.len() {
                let message = format!("{what} have {given} rows for {} tensors", tensors.len());
                return Err(PyValueError::new_err(message));
            }
        }
        let modes = modes.into_iter().map(mode_of).collect::<PyResult<Vec<_>>>()?;
        self.with(py, |writer| {
            let mut rows = rows.into_iter().enumerate().map(|(at, statistics)| Row {
                step: steps[at],
                mode: modes[at],
                mode_step: mode_steps[at],
                tensor: tensors[at],
                flags: 0,
                statistics,
            });
            for of_step in steps.chunk_by(|one, next| one == next) {
                writer.append(of_step[0], rows.by_ref().take(of_step.len()))?;
            }
            Ok(())
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, core::StatisticsWriter::flush)
    }

    fn seconds_until_flush(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.with(py, |writer| Ok(writer.seconds_until_flush()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // After an error the writer is still open, so that closing can be repeated.
            writer.as_mut().map_or(Ok(()), core::StatisticsWriter::close)?;
            *writer = None;
            Ok(())
        })
        .map_err(|error: Error| to_python(py, &error))
    }

    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<Option<PathBuf>> {
        self.with(py, |writer| Ok(writer.path().map(PathBuf::from)))
    }

    #[getter]
    fn written(&self, py: Python<'_>) -> PyResult<u64> {
        locked(py, &self.0, 0, |writer| writer.as_ref().map(core::StatisticsWriter::written)).ok_or_else(closed)
    }

    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |writer| Ok(writer.pending()))
    }

    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |writer| Ok(writer.lost()))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (class_, error, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        class_: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (class_, error, traceback);
        self.close(py)
    }
}

/// Reads the statistics of a run.
#[pyclass(frozen, module = "smdwidgets._core")]
#[derive(Default)]
pub struct StatisticsReader(RwLock<core::Reader>);

impl StatisticsReader {
    /// Calls `work` with the reader.
    pub fn with<T>(&self, work: impl FnOnce(&core::Reader) -> T) -> T {
        work(&self.0.read())
    }
}

#[pymethods]
impl StatisticsReader {
    #[new]
    fn new() -> StatisticsReader {
        StatisticsReader::default()
    }

    #[pyo3(signature = (files, keys, sizes = None))]
    fn refresh(
        &self,
        py: Python<'_>,
        files: &Bound<'_, PyAny>,
        keys: Vec<String>,
        sizes: Option<Vec<Option<u64>>>,
    ) -> PyResult<bool> {
        let (source, sizes) = (RecordSource::of(files)?, sizes.unwrap_or_default());
        let sizes = sizes.into_iter().chain(std::iter::repeat(None));
        py.detach(|| self.0.write().refresh_listed(source.as_dyn(), keys.iter().map(String::as_str).zip(sizes)))
            .map_err(|error| to_python(py, &error))
    }

    fn segment_index<'py>(&self, py: Python<'py>, worker: &str) -> Option<Bound<'py, PyBytes>> {
        let content = py.detach(|| self.0.read().segment_index(worker));
        content.map(|content| PyBytes::new(py, &content))
    }

    fn workers(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.0.read().workers())
    }

    /// (name, dtype, shape, collection, order) of each tensor, but those of segments that the pyramids of workers have.
    #[pyo3(signature = (files, pyramids = Vec::new()))]
    fn names<'py>(
        &self,
        py: Python<'py>,
        files: &Bound<'py, PyAny>,
        pyramids: Vec<OfPyramid>,
    ) -> PyResult<Bound<'py, PyList>> {
        let source = RecordSource::of(files)?;
        let names = py.detach(|| {
            let of_worker = |(worker, all, until): OfPyramid| {
                let segments =
                    all.into_iter().map(|(segment, batches, end, crc)| Covered { segment, batches, end, crc });
                (worker, (segments.collect::<Vec<_>>(), until))
            };
            let pyramids: Vec<_> = pyramids.into_iter().map(of_worker).collect();
            let mut covered: HashMap<&str, (&[Covered], Step)> = HashMap::new();
            for (worker, (segments, until)) in &pyramids {
                covered.insert(worker.as_str(), (segments.as_slice(), *until));
            }
            self.0.read().names(source.as_dyn(), &covered)
        });
        let names = names.map_err(|error| to_python(py, &error))?;
        let list = PyList::empty(py);
        for Name { name, dtype, shape, collection, order, .. } in names {
            list.append((name, dtype, PyTuple::new(py, shape)?, collection, order))?;
        }
        Ok(list)
    }

    /// Numbers of batches, rows and bytes.
    fn size(&self, py: Python<'_>) -> (u64, u64, u64) {
        py.detach(|| self.0.read().size())
    }

    #[pyo3(signature = (files, names = None, steps = None, workers = None, mode = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        files: &Bound<'py, PyAny>,
        names: Option<Vec<String>>,
        steps: Option<Vec<Step>>,
        workers: Option<Vec<String>>,
        mode: Option<i64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (source, mode) = (RecordSource::of(files)?, filter_of(mode)?);
        fn texts_of<'g, C: FromIterator<&'g str>>(given: Option<&'g Vec<String>>) -> Option<C> {
            given.map(|given| given.iter().map(String::as_str).collect())
        }
        let found = py
            .detach(|| {
                let selection = Selection {
                    names: texts_of(names.as_ref()),
                    steps: steps.map(BTreeSet::from_iter),
                    workers: texts_of(workers.as_ref()),
                    mode,
                };
                self.0.read().read(source.as_dyn(), &selection)
            })
            .map_err(|error| to_python(py, &error))?;
        let rows = &found.rows;
        let table = PyDict::new(py);
        table.set_item("name", texts(py, rows.iter().map(|row| row.0), |at| found.names[*at as usize].clone())?)?;
        table.set_item("step", ints(py, rows.iter().map(|(_, _, row)| row.step))?)?;
        table.set_item("mode", ints(py, rows.iter().map(|(_, _, row)| row.mode.number().into()))?)?;
        table.set_item("mode_step", ints(py, rows.iter().map(|(_, _, row)| row.mode_step))?)?;
        table.set_item("worker", texts(py, rows.iter().map(|row| row.1), |at| found.workers[*at as usize].clone())?)?;
        let flags = rows.iter().map(|(_, _, row)| row.flags.to_le_bytes());
        table.set_item("flags", numpy::column(py, DType::U16, flags)?)?;
        table.update(statistics::columns(py, rows.iter().map(|(_, _, row)| &row.statistics))?.as_mapping())?;
        table.set_item("error", errors(py, &found.failed)?)?;
        Ok(table)
    }

    /// Steps with rows after a step, and those at which values of a tensor are not finite for the first time.
    #[pyo3(signature = (files, after = -1, progress = None))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        files: &Bound<'py, PyAny>,
        after: Step,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let source = RecordSource::of(files)?;
        let scanned = reporting(py, progress, |report| self.0.read().scan(source.as_dyn(), after, report))?;
        Ok((ints(py, scanned.steps.into_iter())?, ints(py, scanned.broken.into_iter())?))
    }

    /// (key, bytes, whether a later segment follows) of each segment with bytes after its last complete batch.
    fn dropped(&self, py: Python<'_>, files: &Bound<'_, PyAny>) -> PyResult<Vec<(String, u64, bool)>> {
        let source = RecordSource::of(files)?;
        let found = py.detach(|| self.0.read().dropped(source.as_dyn())).map_err(|error| to_python(py, &error))?;
        Ok(found.into_iter().map(|one| (one.key, one.bytes, one.superseded)).collect())
    }

    /// (key, reason) of each segment that cannot be read.
    fn problems(&self, py: Python<'_>) -> Vec<(String, String)> {
        py.detach(|| self.0.read().problems())
    }

    fn verify<'py>(&self, py: Python<'py>, files: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let source = RecordSource::of(files)?;
        let found = py.detach(|| self.0.read().verify(source.as_dyn())).map_err(|error| to_python(py, &error))?;
        errors(py, &found)
    }
}

/// Does work without the interpreter that reports its progress, to a Python callable. What that raises ends the work, and
/// so does Ctrl-C.
pub fn reporting<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> Result<()>) -> Result<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let outcome = py.detach(|| {
        work(&mut |done, total| {
            let called = Python::attach(|py| {
                py.check_signals()?;
                progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, total)).map(drop))
            });
            called.map_err(|error| {
                raised = Some(error);
                Error::Cancelled
            })
        })
    });
    match raised {
        Some(error) => Err(error),
        None => outcome.map_err(|error| to_python(py, &error)),
    }
}

fn errors<'py>(py: Python<'py>, errors: &[Error]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, errors.iter().map(|error| to_python(py, error).into_value(py)))
}
