//! Bindings of the step writer.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyString};
use smdwidgets_core::error::Result;
use smdwidgets_core::step::Step;
use smdwidgets_core::tensor::DType;
use smdwidgets_core::writer;
use smdwidgets_core::writer::segment::{self, Cut};

use crate::buffer::SharedBytes;
use crate::errors::to_python;
use crate::gil::locked;
use crate::modes::mode_of;
use crate::numpy;
use crate::reduce::op;

/// Writes one step of one worker: its event file and its index file.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct StepWriter {
    inner: Mutex<Option<writer::StepWriter>>,
    in_memory: bool,
}

impl StepWriter {
    /// Runs `work` on the unfinished writer, which does not wait for the disk while the step is in memory.
    fn in_memory<T: Send>(
        &self,
        py: Python<'_>,
        size: usize,
        work: impl FnOnce(&mut writer::StepWriter) -> Result<T> + Send,
    ) -> PyResult<T> {
        let size = if self.in_memory { size } else { usize::MAX };
        locked(py, &self.inner, size, |writer| writer.as_mut().map(work))
            .ok_or_else(|| PyValueError::new_err("the step is already finished"))?
            .map_err(|error| to_python(py, &error))
    }

    /// Runs `work` on the unfinished writer without the GIL, since it waits for the disk or for another thread.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Option<writer::StepWriter>) -> Option<Result<T>> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner)))
            .ok_or_else(|| PyValueError::new_err("the step is already finished"))?
            .map_err(|error| to_python(py, &error))
    }
}

#[pymethods]
impl StepWriter {
    #[new]
    #[pyo3(signature = (root, step, worker = "worker_0", mode = 4, mode_step = None, fsync = false, in_memory = false))]
    #[expect(clippy::too_many_arguments)] // of the Python constructor
    fn new(
        py: Python<'_>,
        root: PathBuf,
        step: Step,
        worker: &str,
        mode: i64,
        mode_step: Option<Step>,
        fsync: bool,
        in_memory: bool,
    ) -> PyResult<Self> {
        let writer = writer::StepWriter::new(&root, step, worker, mode_of(mode)?, mode_step.unwrap_or(step), fsync);
        let writer = writer.map_err(|error| to_python(py, &error))?;
        let inner = Mutex::new(Some(if in_memory { writer.in_memory() } else { writer }));
        Ok(StepWriter { inner, in_memory })
    }

    #[getter]
    fn is_in_memory(&self, py: Python<'_>) -> PyResult<bool> {
        self.in_memory(py, 0, |writer| Ok(writer.is_in_memory()))
    }

    #[getter]
    fn first(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.in_memory(py, 0, |writer| Ok(writer.first().map(str::to_owned)))
    }

    #[pyo3(signature = (name, value, dtype = None))]
    fn tensor(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>, dtype: Option<&str>) -> PyResult<()> {
        let module = py.import("numpy")?;
        let array = module.call_method1("asarray", (value,))?;
        let shape: Vec<u64> = array.getattr("shape")?.extract()?;
        let given = array.getattr("dtype")?;
        let kind: String = given.getattr("kind")?.extract()?;
        if matches!(kind.as_str(), "U" | "S" | "O" | "T") {
            let strings = strings(&array)?;
            return self.with(py, |writer| {
                Some(writer.as_mut()?.text(name, &shape, strings.iter().map(Vec::as_slice).collect()))
            });
        }
        let given_name: String = given.getattr("name")?.extract()?;
        let Some(held) = DType::from_name(&given_name) else {
            return Err(PyTypeError::new_err(format!("{name:?}: cannot save an array of dtype {given_name}")));
        };
        let dtype = match dtype.map(DType::from_name) {
            None => held,
            Some(Some(dtype)) if dtype.item_size() == held.item_size() => dtype,
            Some(_) => {
                let message = format!(
                    "{name:?}: an array of dtype {given_name} cannot be saved as {}",
                    dtype.unwrap_or_default()
                );
                return Err(PyTypeError::new_err(message));
            }
        };
        let contiguous = module.call_method1("ascontiguousarray", (array, numpy::dtype(py, held)?))?;
        let content = SharedBytes::of(&contiguous.call_method1("reshape", (-1,))?.call_method1("view", ("u1",))?)?;
        self.with(py, |writer| Some(writer.as_mut()?.tensor(name, dtype, &shape, &content)))
    }

    /// Writes many tensors, releasing the GIL once.
    #[pyo3(signature = (ready, raw = true, reductions = Vec::new()))]
    fn tensors(
        &self,
        py: Python<'_>,
        ready: Vec<(PyBackedStr, PyBackedStr, Vec<u64>, Bound<'_, PyAny>)>,
        raw: bool,
        reductions: Vec<(PyBackedStr, bool)>,
    ) -> PyResult<()> {
        let mut held = Vec::with_capacity(ready.len());
        for (name, dtype, shape, content) in ready {
            let Some(dtype) = DType::from_name(&dtype) else {
                return Err(PyTypeError::new_err(format!("{name:?}: cannot save a tensor of dtype {dtype}")));
            };
            held.push((name, dtype, shape, SharedBytes::of(&content)?));
        }
        let requested: Vec<_> = reductions.iter().map(|(name, abs)| Ok((op(name)?, *abs))).collect::<PyResult<_>>()?;
        let size = held.iter().map(|(.., bytes)| bytes.len()).sum();
        self.in_memory(py, size, |writer| {
            held.iter().try_for_each(|(name, dtype, shape, bytes)| {
                if !requested.is_empty() && !bytes.is_empty() {
                    writer.reductions(name, *dtype, bytes, &requested)?;
                }
                if raw { writer.tensor(name, *dtype, shape, bytes) } else { Ok(()) }
            })
        })
    }

    fn shape(&self, py: Python<'_>, name: &str, original: &str, shape: Vec<u64>) -> PyResult<()> {
        self.with(py, |writer| Some(writer.as_mut()?.shape(name, original, &shape)))
    }

    fn shard(&self, py: Python<'_>, name: &str, shard: &str) -> PyResult<()> {
        self.with(py, |writer| Some(writer.as_mut()?.shard(name, shard)))
    }

    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |writer| Some(writer.as_mut()?.publish()))
    }

    fn finish(&self, py: Python<'_>) -> PyResult<(Option<String>, Option<String>, u64)> {
        let written = self.with(py, |writer| Some(writer.take()?.finish()))?;
        Ok((written.event_key, written.index_key, written.bytes))
    }

    fn discard(&self, py: Python<'_>) {
        let size = if self.in_memory { 0 } else { usize::MAX };
        drop(locked(py, &self.inner, size, Option::take));
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Finishes the step, unless the block failed or finished it: a step is complete or absent.
    #[pyo3(signature = (class_, error, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        class_: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (error, traceback);
        if !class_.is_none() {
            self.discard(py);
            return Ok(());
        }
        self.with(py, |writer| Some(writer.take().map_or(Ok(()), |writer| writer.finish().map(drop))))
    }
}

/// Appends steps of one worker to segments.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct SegmentWriter {
    root: PathBuf,
    worker: String,
    inner: Mutex<segment::SegmentWriter>,
}

impl SegmentWriter {
    /// Runs `work` without the GIL on a run whose last segment has ended.
    fn ended<T: Send>(&self, py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
        let done = py.detach(|| {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.end();
            work()
        });
        done.map_err(|error| to_python(py, &error))
    }
}

/// The steps of which something is deleted: the first tensor that is, in the order of writing; `None` for all.
type Cuts = HashMap<Step, Option<String>>;

#[pymethods]
impl SegmentWriter {
    #[new]
    #[pyo3(signature = (root, worker = "worker_0"))]
    fn new(py: Python<'_>, root: PathBuf, worker: &str) -> PyResult<Self> {
        let inner = segment::SegmentWriter::new(&root, worker).map_err(|error| to_python(py, &error))?;
        Ok(SegmentWriter { root, worker: worker.to_owned(), inner: Mutex::new(inner) })
    }

    fn append(&self, py: Python<'_>, step: &StepWriter) -> PyResult<(String, u64)> {
        step.with(py, |step| {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            Some(inner.append(step.as_mut()?))
        })
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.ended(py, || Ok(()))
    }

    fn rewrite(&self, py: Python<'_>, segments: Vec<(String, Cuts)>) -> PyResult<Option<(String, u64)>> {
        let cuts = |cuts: Cuts| -> HashMap<Step, Cut> {
            cuts.into_iter().map(|(step, first)| (step, first.map_or(Cut::All, Cut::From))).collect()
        };
        let segments: Vec<_> = segments.into_iter().map(|(key, of_key)| (key, cuts(of_key))).collect();
        let borrowed: Vec<_> = segments.iter().map(|(key, cuts)| (key.as_str(), cuts)).collect();
        self.ended(py, || segment::rewrite(&self.root, &borrowed))
    }

    fn cut_steps(&self, py: Python<'_>, first: Step) -> PyResult<()> {
        self.ended(py, || segment::cut_steps(&self.root, &self.worker, first))
    }

    fn show_steps(&self, py: Python<'_>, steps: Vec<Step>) -> PyResult<()> {
        self.ended(py, || segment::show_steps(&self.root, &self.worker, &steps))
    }
}

/// The file-name form of a worker's name.
#[pyfunction]
pub fn worker_file_name(py: Python<'_>, worker: &str) -> PyResult<String> {
    writer::worker_file_name(worker).map_err(|error| to_python(py, &error))
}

/// The name of a stored reduction.
#[pyfunction]
#[pyo3(signature = (op, abs, tensor))]
pub fn reduction_name(op: &str, abs: bool, tensor: &str) -> String {
    writer::reduction_name(op, abs, tensor)
}

/// The elements of a string array, as UTF-8.
fn strings(array: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    let flat = array.call_method1("reshape", (-1,))?.call_method0("tolist")?;
    let encoded = |element: PyResult<Bound<'_, PyAny>>| -> PyResult<Vec<u8>> {
        let element = element?;
        if let Ok(text) = element.cast::<PyString>() {
            Ok(text.to_cow()?.into_owned().into_bytes())
        } else if let Ok(bytes) = element.cast::<PyBytes>() {
            Ok(bytes.as_bytes().to_vec())
        } else {
            Err(PyTypeError::new_err(format!(
                "object arrays can only be saved if all elements are str, got {}",
                element.get_type()
            )))
        }
    };
    flat.try_iter()?.map(encoded).collect()
}
