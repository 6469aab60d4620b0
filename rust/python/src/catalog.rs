//! Bindings of the catalog.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use smdwidgets_core::catalog::{self, Kind, recorded_name};
use smdwidgets_core::checked::{self, ExpectedRecord};
use smdwidgets_core::error::Result;

use smdwidgets_core::load;
use smdwidgets_core::manifest::Folder;
use smdwidgets_core::segments;
use smdwidgets_core::source::Local;
use smdwidgets_core::step::{Mode, Step};

use crate::buffer::StableBytes;
use crate::errors::to_python;
use crate::gil::detached;
use crate::modes::filter_of;
use crate::numpy;
use crate::reduce;

/// The catalog of a run.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Catalog {
    inner: RwLock<catalog::Catalog>,
    /// The run's directory and the state of its listing.
    listing: Mutex<(PathBuf, load::Listed)>,
    /// Distinguishes the files of several catalogs.
    id: u64,
}

impl Catalog {
    fn of(inner: catalog::Catalog) -> Catalog {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Catalog { inner: RwLock::new(inner), listing: Mutex::default(), id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Queries the catalog; releases the GIL only if another thread writes to it.
    pub fn query<R: Send>(&self, py: Python<'_>, query: impl FnOnce(&catalog::Catalog) -> R + Send) -> R {
        match self.inner.try_read() {
            Some(catalog) => query(&catalog),
            None => py.detach(|| query(&self.inner.read())),
        }
    }

    /// The catalog, for work without the GIL.
    pub fn inner(&self) -> &RwLock<catalog::Catalog> {
        &self.inner
    }

    /// Distinguishes the files of several catalogs.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Runs work on the catalog without the GIL.
    fn work(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&RwLock<catalog::Catalog>) -> Result<usize> + Send,
    ) -> PyResult<usize> {
        py.detach(|| work(&self.inner)).map_err(|error| to_python(py, &error))
    }
}

#[pymethods]
impl Catalog {
    #[new]
    #[pyo3(signature = (first_step = None, end_step = None))]
    fn new(first_step: Option<Step>, end_step: Option<Step>) -> Catalog {
        Catalog::of(catalog::Catalog::new(first_step.unwrap_or(0)..end_step.unwrap_or(Step::MAX)))
    }

    #[staticmethod]
    fn from_columns(py: Python<'_>, data: &Bound<'_, PyBytes>) -> PyResult<Catalog> {
        let data = data.as_bytes();
        let read = py.detach(|| catalog::Catalog::from_columns(data));
        read.map(Catalog::of).map_err(|error| to_python(py, &error))
    }

    #[pyo3(signature = (names = None, steps = None))]
    fn to_columns<'py>(
        &self,
        py: Python<'py>,
        names: Option<Vec<String>>,
        steps: Option<Vec<Step>>,
    ) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.inner.read().to_columns(names.as_deref(), steps.as_deref()));
        PyBytes::new(py, &bytes)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (steps, workers, names, unread) = self.query(py, |catalog| {
            (catalog.count_after(None), catalog.workers().len(), catalog.names().len(), !catalog.is_all_read())
        });
        let so_far = if unread { " so far" } else { "" };
        format!("<Catalog: {steps} steps, {workers} workers, {names} tensors{so_far}>")
    }

    // ------------------------------------------------------------------------------------------------------- filling

    fn list_local(&self, py: Python<'_>, root: PathBuf) -> PyResult<usize> {
        self.work(py, |catalog| {
            let mut listing = self.listing.lock();
            if listing.0 != root {
                *listing = (root.clone(), load::Listed::default());
            }
            load::list(catalog, &mut listing.1, &Local::new(root))
        })
    }

    fn add_keys(&self, py: Python<'_>, keys: Vec<String>) -> PyResult<usize> {
        self.work(py, |catalog| catalog.write().add_keys(keys.iter().map(String::as_str)))
    }

    #[pyo3(signature = (steps = None))]
    fn unread(&self, py: Python<'_>, steps: Option<Vec<Step>>) -> Vec<String> {
        py.detach(|| {
            let mut catalog = self.inner.write();
            let files = catalog.unread(steps.as_deref());
            files.into_iter().map(|file| catalog.index_key(file)).collect()
        })
    }

    #[pyo3(signature = (root, steps = None, threads = None))]
    fn load_local(
        &self,
        py: Python<'_>,
        root: PathBuf,
        steps: Option<Vec<Step>>,
        threads: Option<usize>,
    ) -> PyResult<usize> {
        self.work(py, |catalog| load::load(catalog, &Local::new(root), steps.as_deref(), threads))
    }

    fn has_local(&self, py: Python<'_>, root: PathBuf, name: &str) -> PyResult<bool> {
        if self.has(py, name) {
            return Ok(true);
        }
        py.detach(|| load::has(&self.inner, &Local::new(root), name)).map_err(|error| to_python(py, &error))
    }

    fn refresh_local(&self, py: Python<'_>, root: PathBuf, steps: Vec<Step>) -> PyResult<usize> {
        self.work(py, |catalog| {
            let mut listing = self.listing.lock();
            if listing.0 != root {
                *listing = (root.clone(), load::Listed::default());
            }
            load::refresh(catalog, &mut listing.1, &Local::new(root), &steps)
        })
    }

    fn load(&self, py: Python<'_>, key: &str, data: Bound<'_, PyBytes>) -> PyResult<bool> {
        let data = data.as_bytes();
        self.work(py, |catalog| load::load_bytes(catalog, &[(key, data)], None)).map(|read| read > 0)
    }

    #[pyo3(signature = (files, threads = None))]
    fn load_many(
        &self,
        py: Python<'_>,
        files: Vec<(String, Bound<'_, PyBytes>)>,
        threads: Option<usize>,
    ) -> PyResult<usize> {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(key, data)| (key.as_str(), data.as_bytes())).collect();
        self.work(py, |catalog| load::load_bytes(catalog, &files, threads))
    }

    fn load_segment(&self, py: Python<'_>, key: &str, data: Bound<'_, PyBytes>) -> PyResult<(usize, usize)> {
        let data = data.as_bytes();
        py.detach(|| segments::load(&self.inner, key, data)).map_err(|error| to_python(py, &error))
    }

    fn load_folder(&self, py: Python<'_>, file: &str, data: Bound<'_, PyBytes>) -> PyResult<usize> {
        let data = data.as_bytes();
        self.work(py, |catalog| load::load_folder(catalog, &Folder::parse(data, file)?))
    }

    fn problems(&self, py: Python<'_>) -> Vec<(String, String)> {
        self.query(py, catalog::Catalog::problems)
    }

    #[getter]
    fn generation(&self, py: Python<'_>) -> u64 {
        self.query(py, catalog::Catalog::generation)
    }

    // ---------------------------------------------------------------------------------------------- steps and workers

    #[pyo3(signature = (mode = None))]
    fn steps(&self, py: Python<'_>, mode: Option<i64>) -> PyResult<Vec<Step>> {
        let mode = filter_of(mode)?;
        Ok(self.query(py, |catalog| catalog.steps(mode)))
    }

    fn num_steps(&self, py: Python<'_>) -> usize {
        self.query(py, |catalog| catalog.count_after(None))
    }

    fn last_step(&self, py: Python<'_>) -> Option<Step> {
        self.query(py, catalog::Catalog::last_step)
    }

    fn has_step(&self, py: Python<'_>, step: Step) -> bool {
        self.query(py, |catalog| catalog.has_step(step))
    }

    fn workers(&self, py: Python<'_>) -> Vec<String> {
        self.query(py, |catalog| owned(catalog.workers()))
    }

    fn workers_at(&self, py: Python<'_>, step: Step) -> Vec<String> {
        self.query(py, |catalog| owned(catalog.workers_at(step)))
    }

    fn complete_until(&self, py: Python<'_>, num_workers: usize) -> Step {
        self.query(py, |catalog| catalog.complete_until(num_workers)).unwrap_or(-1)
    }

    fn count_after(&self, py: Python<'_>, step: Step) -> usize {
        self.query(py, |catalog| catalog.count_after(Some(step)))
    }

    // --------------------------------------------------------------------------------------------------------- modes

    fn modes(&self, py: Python<'_>) -> Vec<u64> {
        self.query(py, catalog::Catalog::modes).into_iter().map(|mode| mode.number().into()).collect()
    }

    fn mode_of(&self, py: Python<'_>, step: Step) -> Option<(u64, Step)> {
        let found = self.query(py, |catalog| catalog.mode_of(step));
        found.map(|(mode, mode_step)| (mode.number().into(), mode_step))
    }

    #[pyo3(signature = (mode, name = None))]
    fn mode_steps(&self, py: Python<'_>, mode: i64, name: Option<&str>) -> PyResult<Vec<Step>> {
        let filter = filter_of(Some(mode))?;
        Ok(self.query(py, |catalog| match (filter, name) {
            (Some(mode), name) => catalog.mode_steps(mode, name),
            (None, Some(name)) => catalog.steps_of(name, None),
            (None, None) => catalog.steps(None),
        }))
    }

    #[pyo3(signature = (mode, mode_step, latest = false))]
    fn global_step(&self, py: Python<'_>, mode: i64, mode_step: Step, latest: bool) -> PyResult<Option<Step>> {
        let Some(mode) = filter_of(Some(mode))? else {
            return Ok(self.has_step(py, mode_step).then_some(mode_step));
        };
        Ok(self.query(py, |catalog| {
            let mut steps = catalog.global_steps(mode, mode_step);
            if latest { steps.next_back() } else { steps.next() }
        }))
    }

    // ------------------------------------------------------------------------------------------------------- tensors

    fn names(&self, py: Python<'_>) -> Vec<String> {
        self.query(py, |catalog| owned(catalog.names()))
    }

    #[pyo3(signature = (step, worker = None))]
    fn names_at(&self, py: Python<'_>, step: Step, worker: Option<&str>) -> Vec<String> {
        self.query(py, |catalog| owned(catalog.names_at(step, worker)))
    }

    fn extents(&self, py: Python<'_>, step: Step) -> Vec<(String, u64, u64)> {
        self.query(py, |catalog| {
            let files = catalog.files_at(step, None);
            files
                .filter_map(|file| catalog.extent(file).map(|span| (catalog.event_key(file), span.start, span.end)))
                .collect()
        })
    }

    fn names_in_mode(&self, py: Python<'_>, mode: i64) -> PyResult<Vec<String>> {
        let filter = filter_of(Some(mode))?;
        Ok(self.query(py, |catalog| owned(filter.map_or_else(|| catalog.names(), |mode| catalog.names_in_mode(mode)))))
    }

    fn has(&self, py: Python<'_>, name: &str) -> bool {
        self.query(py, |catalog| catalog.has(name))
    }

    #[pyo3(signature = (name, mode = None))]
    fn steps_of(&self, py: Python<'_>, name: &str, mode: Option<i64>) -> PyResult<Vec<Step>> {
        let mode = filter_of(mode)?;
        Ok(self.query(py, |catalog| catalog.steps_of(name, mode)))
    }

    fn workers_of(&self, py: Python<'_>, name: &str, step: Step) -> Vec<String> {
        self.query(py, |catalog| owned(catalog.workers_of(name, step)))
    }

    #[pyo3(signature = (name, step, worker = None))]
    fn find(&self, py: Python<'_>, name: &str, step: Step, worker: Option<&str>) -> Option<Entry> {
        self.query(py, |catalog| {
            let found = catalog.find(name, step, worker, Kind::VALUE)?;
            Some(Entry::of(catalog, self.id, name, &found))
        })
    }

    #[pyo3(signature = (name, step, worker = None))]
    fn stored_reductions(
        &self,
        py: Python<'_>,
        name: &str,
        step: Step,
        worker: Option<&str>,
    ) -> Vec<(&'static str, bool, Entry)> {
        self.query(py, |catalog| {
            let found = catalog.stored_reductions(name, step, worker);
            found.into_iter().map(|(op, abs, at)| (op.name(), abs, Entry::of(catalog, self.id, name, &at))).collect()
        })
    }

    #[pyo3(signature = (name, step, op, abs, worker = None))]
    fn stored_reduction(
        &self,
        py: Python<'_>,
        name: &str,
        step: Step,
        op: &str,
        abs: bool,
        worker: Option<&str>,
    ) -> PyResult<Option<Entry>> {
        let kind = Kind::reduction(reduce::op(op)?, abs);
        Ok(self.query(py, |catalog| {
            let found = catalog.find(name, step, worker, kind)?;
            Some(Entry::of(catalog, self.id, name, &found))
        }))
    }

    #[pyo3(signature = (name, step, worker = None))]
    fn shape_of<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        step: Step,
        worker: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let shape = self.query(py, |catalog| catalog.shape_of(name, step, worker).map(<[u64]>::to_vec));
        shape.map(|shape| PyTuple::new(py, shape)).transpose()
    }

    fn original_name(&self, py: Python<'_>, name: &str) -> Option<String> {
        self.query(py, |catalog| catalog.original_name(name).map(str::to_owned))
    }

    #[getter]
    fn has_shards(&self, py: Python<'_>) -> bool {
        self.query(py, catalog::Catalog::has_shards)
    }

    fn shards(&self, py: Python<'_>, name: &str, step: Step) -> Vec<(String, String, String)> {
        self.query(py, |catalog| {
            let parts = catalog.shards_of(name, step);
            parts
                .map(|(file, shard)| (catalog.worker_of(file).into_owned(), catalog.index_key(file), shard.to_owned()))
                .collect()
        })
    }

    fn num_entries(&self, py: Python<'_>) -> usize {
        self.query(py, catalog::Catalog::num_entries)
    }

    fn memory(&self, py: Python<'_>) -> usize {
        self.query(py, catalog::Catalog::memory)
    }
}

fn owned<S: Into<String>>(list: Vec<S>) -> Vec<String> {
    list.into_iter().map(Into::into).collect()
}

/// The location of a record and its expected metadata.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Entry {
    /// The tensor.
    pub tensor: String,
    /// The entry of the catalog.
    pub at: catalog::Entry,
    /// The event file.
    pub event_key: Arc<str>,
    /// The catalog to which the file number belongs.
    pub catalog: u64,
    index_key: Arc<str>,
    worker: String,
    step: Step,
    mode: Mode,
    mode_step: Step,
}

impl Entry {
    fn of(catalog: &catalog::Catalog, id: u64, tensor: &str, at: &catalog::Entry) -> Entry {
        let about = catalog.about(at.file);
        Entry {
            tensor: tensor.to_owned(),
            at: *at,
            event_key: catalog.event_key(at.file).into(),
            catalog: id,
            index_key: catalog.index_key(at.file).into(),
            worker: catalog.worker_of(at.file).into_owned(),
            step: about.step,
            mode: about.mode,
            mode_step: about.mode_step,
        }
    }

    /// What the index file says about the record.
    pub fn expected(&self) -> ExpectedRecord<'_> {
        let when = catalog::SavedAt { step: self.step, mode: self.mode, mode_step: self.mode_step };
        ExpectedRecord { tensor: &self.tensor, kind: self.at.kind, when, length: self.at.length, crc: self.at.crc }
    }
}

#[pymethods]
impl Entry {
    #[getter]
    fn name(&self) -> String {
        recorded_name(&self.tensor, self.at.kind)
    }

    #[getter]
    fn event_key(&self) -> &str {
        &self.event_key
    }

    #[getter]
    fn index_key(&self) -> &str {
        &self.index_key
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.at.offset
    }

    #[getter]
    fn length(&self) -> u64 {
        self.at.length
    }

    #[getter]
    fn worker(&self) -> &str {
        &self.worker
    }

    #[getter]
    fn step(&self) -> Step {
        self.step
    }

    #[getter]
    fn mode(&self) -> u64 {
        self.mode.number().into()
    }

    #[getter]
    fn mode_step(&self) -> Step {
        self.mode_step
    }

    #[getter]
    fn crc(&self) -> Option<u32> {
        self.at.crc
    }

    /// Decodes the value from the record's bytes.
    fn decode<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = data.py();
        let bytes = StableBytes::of(data)?;
        let held = bytes.as_slice(py);
        let tensor = detached(py, held.len(), || checked::decode(held, &self.expected()))
            .map_err(|error| to_python(py, &error.within(&self.event_key, self.at.offset)))?;
        numpy::array(py, tensor)
    }

    fn __repr__(&self) -> String {
        let (at, name) = (&self.at, self.name());
        format!(
            "<Entry {name:?} of step {} in {}, bytes {} to {}>",
            self.step,
            self.event_key,
            at.offset,
            at.offset.saturating_add(at.length)
        )
    }
}
