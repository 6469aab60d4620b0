//! Bindings of TensorBoard logs.

use std::path::PathBuf;

use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use smdwidgets_core::error::Result as CoreResult;
use smdwidgets_core::log::{Cache, Cell, Directory, ExternalRows, Found, Log, NewRows, Orphans, Values};
use smdwidgets_core::source::Local;
use smdwidgets_core::step::Step;
use smdwidgets_core::tensor::DType;

use crate::buffer::SharedBytes;
use crate::errors::to_python;
use crate::files::Fetched;
use crate::logged::{Logged, as_array, as_list};
use crate::modes::{filter_of, mode_of};
use crate::numpy;
use crate::sweep::{self, Cancel, RecordSource, RowRequests, SweepControl};

/// The log of a TensorBoard run.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct EventLog {
    inner: RwLock<Log>,
}

/// A position in the scalars of a log.
#[pyclass(frozen, module = "smdwidgets._core")]
#[derive(Default)]
pub struct ScalarCursor {
    inner: Mutex<smdwidgets_core::log::ScalarCursor>,
}

#[pymethods]
impl ScalarCursor {
    #[new]
    fn new() -> ScalarCursor {
        ScalarCursor::default()
    }

    /// Moves to the end of the log: (name, directory number, steps, values, whole, superseded) of each scalar with new rows.
    #[allow(clippy::type_complexity, reason = "six columns")]
    fn advance(
        &self,
        py: Python<'_>,
        log: &EventLog,
    ) -> PyResult<Vec<(String, u32, Py<PyAny>, Py<PyAny>, bool, usize)>> {
        let found = py.detach(|| {
            let log = log.inner.read();
            let rows = self.inner.lock().advance(&log);
            let named = |rows: NewRows| Some((log.names().get(rows.name as usize)?.name.clone(), rows));
            rows.into_iter().filter_map(named).collect::<Vec<_>>()
        });
        let columns = |(name, rows): (String, NewRows)| {
            let steps = numpy::column(py, DType::I64, rows.steps.iter().map(|one| one.to_le_bytes()))?;
            let values = numpy::column(py, DType::F64, rows.values.iter().map(|one| one.to_le_bytes()))?;
            Ok((name, rows.lane, steps, values, rows.whole, rows.superseded))
        };
        found.into_iter().map(columns).collect()
    }
}

impl EventLog {
    /// Queries the log; releases the GIL only if another thread writes to it.
    fn query<R: Send>(&self, py: Python<'_>, query: impl FnOnce(&Log) -> R + Send) -> R {
        match self.inner.try_read() {
            Some(log) => query(&log),
            None => py.detach(|| query(&self.inner.read())),
        }
    }

    /// Queries a name; the default value if it is unknown.
    fn of<R: Send + Default>(&self, py: Python<'_>, name: &str, query: impl FnOnce(&Log, u32) -> R + Send) -> R {
        self.query(py, |log| log.id(name).map_or_else(R::default, |id| query(log, id)))
    }

    fn sorted(&self, py: Python<'_>, query: impl FnOnce(&Log) -> Vec<u32> + Send) -> Vec<String> {
        self.query(py, |log| {
            let name = |id: u32| log.names().get(id as usize).map(|name| name.name.clone());
            let mut names: Vec<String> = query(log).into_iter().filter_map(name).collect();
            names.sort_unstable();
            names
        })
    }
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

/// Directories in Python: (path, worker, mode, suffix of tags).
type Directories = Vec<(String, String, i64, String)>;

fn directories_of(directories: Directories) -> PyResult<Vec<Directory>> {
    let one = |(path, worker, mode, suffix)| Ok(Directory { path, worker, mode: mode_of(mode)?, suffix });
    directories.into_iter().map(one).collect()
}

/// Rows of a series in Python: name, steps, wall times, numbers; places instead of numbers, and whether these are of histograms.
type PythonRows<'py> =
    (String, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Option<Vec<(u64, u64)>>, bool);

/// The elements of an array of 8-byte numbers.
fn words<T>(array: &Bound<'_, PyAny>, number: fn([u8; 8]) -> T) -> PyResult<Vec<T>> {
    let bytes = SharedBytes::of(array)?;
    Ok(bytes.as_chunks().0.iter().map(|word| number(*word)).collect())
}

fn external_rows((tag, steps, wall_times, numbers, places, are_histograms): PythonRows<'_>) -> PyResult<ExternalRows> {
    Ok(ExternalRows {
        tag,
        steps: words(&steps, i64::from_le_bytes)?,
        wall_times: words(&wall_times, f64::from_le_bytes)?,
        numbers: numbers.map(|numbers| words(&numbers, f64::from_le_bytes)).transpose()?,
        places: places.unwrap_or_default(),
        are_histograms,
    })
}

#[pymethods]
impl EventLog {
    #[new]
    #[pyo3(signature = (directories, keep_orphans = false, first_step = None, end_step = None, cache = None, hold = false, files = None))]
    fn new(
        directories: Directories,
        keep_orphans: bool,
        first_step: Option<i64>,
        end_step: Option<i64>,
        cache: Option<(PathBuf, String)>,
        hold: bool,
        files: Option<Vec<String>>,
    ) -> PyResult<EventLog> {
        let orphans = if keep_orphans { Orphans::Kept } else { Orphans::Dropped };
        let range = (first_step.unwrap_or(Step::MIN), end_step.unwrap_or(Step::MAX));
        let log = Log::new(directories_of(directories)?, orphans, range);
        let log = match cache {
            Some((directory, name)) => log.cached(Cache::new(directory, name)),
            None => log,
        };
        let log = match files {
            Some(files) => log.only(files),
            None => log,
        };
        Ok(EventLog { inner: RwLock::new(if hold { log.storing_values() } else { log }) })
    }

    /// Changes the set of directories.
    fn lay_out(&self, py: Python<'_>, directories: Directories) -> PyResult<()> {
        let directories = directories_of(directories)?;
        py.detach(|| self.inner.write().set_directories(directories));
        Ok(())
    }

    #[pyo3(signature = (root, threads = None))]
    fn refresh_local(&self, py: Python<'_>, root: PathBuf, threads: Option<usize>) -> PyResult<bool> {
        let read = py.detach(|| -> CoreResult<bool> {
            let mut log = self.inner.write();
            log.list_local(&root)?;
            log.read(&Local::new(root.clone()), Some(&root), threads)
        });
        read.map_err(|error| to_python(py, &error))
    }

    fn add_keys(&self, py: Python<'_>, keys: Vec<String>) {
        py.detach(|| self.inner.write().add_keys(&keys));
    }

    /// Sets the rows of a file in another format.
    fn set_rows(&self, py: Python<'_>, directory: &str, key: &str, rows: Vec<PythonRows<'_>>) -> PyResult<bool> {
        let rows = rows.into_iter().map(external_rows).collect::<PyResult<Vec<_>>>()?;
        Ok(py.detach(|| self.inner.write().set_rows(directory, key, rows)))
    }

    #[pyo3(signature = (source, threads = None))]
    fn refresh(&self, py: Python<'_>, source: &Fetched, threads: Option<usize>) -> PyResult<bool> {
        let source = source.source();
        let read = py.detach(|| self.inner.write().read(&source, None, threads));
        read.map_err(|error| to_python(py, &error))
    }

    #[getter]
    fn generation(&self, py: Python<'_>) -> u64 {
        self.query(py, Log::generation)
    }

    #[pyo3(signature = (mode = None))]
    fn steps(&self, py: Python<'_>, mode: Option<i64>) -> PyResult<Vec<Step>> {
        let mode = filter_of(mode)?;
        Ok(self.query(py, |log| log.steps(mode).to_vec()))
    }

    fn num_steps(&self, py: Python<'_>) -> usize {
        self.query(py, |log| log.steps(None).len())
    }

    fn last_step(&self, py: Python<'_>) -> Option<i64> {
        self.query(py, Log::last_step)
    }

    fn has_step(&self, py: Python<'_>, step: i64) -> bool {
        self.query(py, |log| log.has_step(step))
    }

    fn count_after(&self, py: Python<'_>, step: i64) -> usize {
        self.query(py, |log| {
            if log.last_step().is_none_or(|last| last <= step) {
                return 0;
            }
            let steps = log.steps(None);
            steps.len() - steps.partition_point(|one| *one <= step)
        })
    }

    #[allow(unused_variables, reason = "steps of a log are complete once written")]
    fn complete_until(&self, py: Python<'_>, num_workers: usize) -> i64 {
        self.query(py, |log| log.last_step().unwrap_or(-1))
    }

    fn workers(&self, py: Python<'_>) -> Vec<String> {
        self.query(py, |log| {
            let mut workers = owned(log.workers());
            workers.sort_unstable();
            workers
        })
    }

    fn workers_at(&self, py: Python<'_>, step: i64) -> Vec<String> {
        self.query(py, |log| owned(log.workers_at(step)))
    }

    fn modes(&self, py: Python<'_>) -> Vec<u64> {
        self.query(py, Log::modes).into_iter().map(|mode| mode.number().into()).collect()
    }

    fn mode_of(&self, py: Python<'_>, step: i64) -> Option<(u8, Step)> {
        self.query(py, |log| log.mode_of(step)).map(|(mode, own)| (mode.number(), own))
    }

    #[pyo3(signature = (mode, name = None))]
    fn mode_steps(&self, py: Python<'_>, mode: i64, name: Option<&str>) -> PyResult<Vec<Step>> {
        let mode = mode_of(mode)?;
        Ok(match name {
            Some(name) => self.of(py, name, |log, id| log.mode_steps(mode, Some(id))),
            None => self.query(py, |log| log.mode_steps(mode, None)),
        })
    }

    #[allow(unused_variables, reason = "a mode step has one global step in a log")]
    #[pyo3(signature = (mode, mode_step, latest = false))]
    fn global_step(&self, py: Python<'_>, mode: i64, mode_step: Step, latest: bool) -> PyResult<Option<Step>> {
        let mode = mode_of(mode)?;
        Ok(self.query(py, |log| log.global_step(mode, mode_step)))
    }

    fn names(&self, py: Python<'_>) -> Vec<String> {
        self.sorted(py, |log| (0..log.names().len() as u32).collect())
    }

    #[pyo3(signature = (step, worker = None))]
    fn names_at(&self, py: Python<'_>, step: i64, worker: Option<&str>) -> Vec<String> {
        self.sorted(py, |log| log.names_at(step, worker))
    }

    fn names_in_mode(&self, py: Python<'_>, mode: i64) -> PyResult<Vec<String>> {
        let mode = mode_of(mode)?;
        Ok(self.sorted(py, |log| log.names_in_mode(mode)))
    }

    fn has(&self, py: Python<'_>, name: &str) -> bool {
        self.query(py, |log| log.id(name).is_some())
    }

    #[pyo3(signature = (name, mode = None))]
    fn steps_of(&self, py: Python<'_>, name: &str, mode: Option<i64>) -> PyResult<Vec<Step>> {
        let mode = filter_of(mode)?;
        Ok(self.of(py, name, |log, id| log.steps_of(id, mode)))
    }

    fn workers_of(&self, py: Python<'_>, name: &str, step: i64) -> Vec<String> {
        self.of(py, name, |log, id| owned(log.workers_of(id, step)))
    }

    #[pyo3(signature = (name, step, worker = None))]
    fn find(&self, py: Python<'_>, name: &str, step: i64, worker: Option<&str>) -> Option<Logged> {
        self.of(py, name, |log, id| {
            let found = log.find(id, step, worker)?;
            Some(Logged::of(name, log.names().get(id as usize)?.class, step, &found))
        })
    }

    /// Superseded values of a name.
    fn orphans(&self, py: Python<'_>, name: &str) -> Vec<Logged> {
        self.of(py, name, |log, id| {
            let Some(class) = log.names().get(id as usize).map(|name| name.class) else { return Vec::new() };
            let logged = |(step, found): (i64, Found<'_>)| Logged::of(name, class, step, &found);
            log.orphans(id).into_iter().map(logged).collect()
        })
    }

    /// Names with superseded values, and their number.
    fn superseded(&self, py: Python<'_>) -> Vec<(String, usize)> {
        self.query(py, |log| {
            let of =
                |(id, name): (usize, &smdwidgets_core::log::Name)| (name.name.clone(), log.num_superseded(id as u32));
            log.names().iter().enumerate().map(of).filter(|(_, count)| *count > 0).collect()
        })
    }

    /// The encoded value, if it is in memory.
    fn stored_value<'py>(&self, py: Python<'py>, location: &Logged) -> Option<Bound<'py, PyBytes>> {
        let of =
            |log: &Log| log.stored_value(&location.event_key, location.location, &mut Vec::new()).map(<[u8]>::to_vec);
        let written = self.query(py, of);
        written.map(|written| PyBytes::new(py, &written))
    }

    /// The value of a scalar; faster than `find`.
    #[pyo3(signature = (name, step, worker = None))]
    fn number(&self, py: Python<'_>, name: &str, step: i64, worker: Option<&str>) -> Option<f64> {
        self.of(py, name, |log, id| match log.find(id, step, worker)?.cell {
            Cell::Number(number) => Some(number),
            Cell::ValueLocation(_) => None,
        })
    }

    #[allow(unused_variables, reason = "a log holds no reductions")]
    #[pyo3(signature = (name, step, worker = None))]
    fn stored_reductions(&self, name: &str, step: i64, worker: Option<&str>) -> Vec<(String, bool, i64)> {
        Vec::new()
    }

    #[allow(unused_variables, reason = "a log holds no reductions")]
    #[pyo3(signature = (name, step, op, abs, worker = None))]
    fn stored_reduction(&self, name: &str, step: i64, op: &str, abs: bool, worker: Option<&str>) -> Option<i64> {
        None
    }

    #[allow(unused_variables, reason = "a log holds no shapes without values")]
    #[pyo3(signature = (name, step, worker = None))]
    fn shape_of(&self, name: &str, step: i64, worker: Option<&str>) -> Option<Vec<u64>> {
        None
    }

    fn original_name(&self, py: Python<'_>, name: &str) -> Option<String> {
        self.of(py, name, |log, id| log.names().get(id as usize).map(|name| name.tag.clone()))
    }

    fn problems(&self, py: Python<'_>) -> Vec<(String, String)> {
        self.query(py, |log| {
            let message = |(key, at, what): (&str, u64, String)| {
                (key.to_owned(), format!("{}, byte {at}: {what}", key.escape_debug()))
            };
            log.problems().into_iter().map(message).collect()
        })
    }

    /// The series: (name, tag, kind, plugin, description), in the order of first appearance.
    fn series(&self, py: Python<'_>) -> Vec<(String, String, &'static str, String, String)> {
        self.query(py, |log| {
            let of = |name: &smdwidgets_core::log::Name| {
                let (plugin, description) = (name.plugin.clone(), name.description.clone());
                (name.name.clone(), name.tag.clone(), name.class.name(), plugin, description)
            };
            log.names().iter().map(of).collect()
        })
    }

    fn num_names(&self, py: Python<'_>) -> usize {
        self.query(py, |log| log.names().len())
    }

    /// The rows of a name: (steps, mode steps, wall times, values, directory numbers).
    #[pyo3(signature = (name, mode = None, orphans = false))]
    #[allow(clippy::type_complexity, reason = "five columns")]
    fn course(
        &self,
        py: Python<'_>,
        name: &str,
        mode: Option<i64>,
        orphans: bool,
    ) -> PyResult<(Py<PyAny>, Py<PyAny>, Py<PyAny>, Py<PyAny>, Py<PyAny>)> {
        let mode = filter_of(mode)?;
        let course = py.detach(|| {
            let log = self.inner.read();
            log.id(name).map(|id| log.course(id, mode, orphans)).unwrap_or_default()
        });
        let integers = |all: &[i64]| numpy::column(py, DType::I64, all.iter().map(|one| one.to_le_bytes()));
        let floats = |all: &[f64]| numpy::column(py, DType::F64, all.iter().map(|one| one.to_le_bytes()));
        Ok((
            integers(&course.steps)?,
            integers(&course.mode_steps)?,
            floats(&course.wall_times)?,
            floats(&course.values)?,
            numpy::column(py, DType::U32, course.lanes.iter().map(|one| one.to_le_bytes()))?,
        ))
    }

    /// The values of many rows, (name, global step, worker or the first), in one pass over the files: one array if all are
    /// numbers or histograms of equal size, else a list.
    #[pyo3(signature = (files, rows, *, threads = None, progress = None, cancel = None))]
    fn values<'py>(
        &self,
        py: Python<'py>,
        files: &Bound<'py, PyAny>,
        rows: RowRequests,
        threads: Option<usize>,
        progress: Option<Bound<'py, PyAny>>,
        cancel: Option<Bound<'py, Cancel>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
        let source = RecordSource::of(files)?;
        let (values, failed) = sweep::run(py, &SweepControl { threads, progress, cancel }, |options| {
            let requests = rows.iter().map(|(name, step, worker)| (name.as_str(), *step, worker.as_deref()));
            let mut values = Values::of(&self.inner.read(), requests);
            let failed = values.read(source.as_dyn(), options)?;
            Ok((values, failed))
        })?;
        let found = match as_array(py, &values)? {
            Some(array) => array,
            None => as_list(py, rows, values)?.into_any(),
        };
        Ok((found, sweep::failures(py, &failed)?))
    }

    /// The directories: (worker, mode).
    fn directories(&self, py: Python<'_>) -> Vec<(String, u8)> {
        self.query(py, |log| log.lanes().map(|(worker, mode)| (worker.to_owned(), mode.number())).collect())
    }

    /// The files: (key, bytes read, version of the writer).
    fn files(&self, py: Python<'_>) -> Vec<(String, u64, Option<String>)> {
        self.query(py, |log| {
            log.files().map(|(key, read, version)| (key.to_owned(), read, version.map(str::to_owned))).collect()
        })
    }

    /// Bytes that were restored from the cache.
    fn cached_bytes(&self, py: Python<'_>) -> u64 {
        self.query(py, Log::cached_bytes)
    }

    fn memory(&self, py: Python<'_>) -> usize {
        self.query(py, Log::memory)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.query(py, |log| format!("<EventLog: {} files, {} names>", log.files().count(), log.names().len()))
    }
}
