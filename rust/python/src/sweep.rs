//! Bindings of sweeps: many records at once, each read once, into columns.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use smdwidgets_core::checked;
use smdwidgets_core::error::{Error, Result};
use smdwidgets_core::reduce::{Op, OpSet};
use smdwidgets_core::source::{Local, Source};
use smdwidgets_core::statistics_file::as_stored;
use smdwidgets_core::sweep::{self as core_sweep, Failed, Options, Rows, Workers};
use smdwidgets_core::tensor::DType;

use crate::catalog::{Catalog, Entry};
use crate::errors::to_python;
use crate::files::{Fetched, Files, Remote};
use crate::numpy;
use crate::records::decode;
use crate::statistics;

/// A flag that cancels a sweep, from any thread.
#[pyclass(frozen, module = "smdwidgets._core")]
#[derive(Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Cancel {
        Cancel::default()
    }

    fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

/// The source of the bytes.
pub enum RecordSource {
    Local(Local),
    Remote(Remote),
}

impl RecordSource {
    pub fn of(files: &Bound<'_, PyAny>) -> PyResult<RecordSource> {
        if let Ok(fetched) = files.cast::<Fetched>() {
            Ok(RecordSource::Remote(fetched.get().source()))
        } else {
            Ok(RecordSource::Local(files.cast::<Files>()?.get().run().clone()))
        }
    }

    pub fn as_dyn(&self) -> &dyn Source {
        match self {
            RecordSource::Local(run) => run,
            RecordSource::Remote(remote) => remote,
        }
    }

    pub fn shared(self) -> Arc<dyn Source> {
        match self {
            RecordSource::Local(run) => Arc::new(run),
            RecordSource::Remote(remote) => Arc::new(remote),
        }
    }
}

/// Threads, progress callback and cancellation of a sweep.
pub struct SweepControl<'py> {
    pub threads: Option<usize>,
    pub progress: Option<Bound<'py, PyAny>>,
    pub cancel: Option<Bound<'py, Cancel>>,
}

/// Runs `work` without the GIL. Signals and the progress function are handled at intervals in this thread.
pub fn run<R: Send>(
    py: Python<'_>,
    control: &SweepControl<'_>,
    work: impl FnOnce(&Options<'_>) -> Result<R> + Send,
) -> PyResult<R> {
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let progress = control.progress.as_ref().map(|function| function.clone().unbind());
    let cancel = control.cancel.as_ref().map(|cancel| cancel.get().flag.clone());
    let threads = control.threads;
    let outcome = py.detach(|| {
        let report = |done: u64, all: u64| {
            Python::attach(|py| {
                let reported = py.check_signals().and_then(|()| match &progress {
                    Some(function) => function.call1(py, (done, all)).map(drop),
                    None => Ok(()),
                });
                reported.map_err(|error| *raised.lock() = Some(error)).is_ok()
            })
        };
        work(&Options { threads, progress: Some(&report), cancel: cancel.as_deref() })
    });
    if let Some(error) = raised.into_inner() {
        return Err(error);
    }
    outcome.map_err(|error| match error {
        Error::Cancelled => PyKeyboardInterrupt::new_err("cancelled"),
        error => to_python(py, &error),
    })
}

/// Parses the name of a reduction as in collections' configurations: "min", "abs_mean", "l2", "abs_l2_norm".
fn reduction_of(name: &str) -> PyResult<(Op, bool)> {
    let (op, abs) = name.strip_prefix("abs_").map_or((name, false), |op| (op, true));
    Op::from_name(op.strip_suffix("_norm").unwrap_or(op)).map(|op| (op, abs)).ok_or_else(|| {
        let known = Op::ALL.map(Op::name).join(", ");
        PyValueError::new_err(format!(
            "invalid reduction {name:?}; choose from {known}, each optionally with the prefix abs_"
        ))
    })
}

/// The requested reductions with the names of their columns.
fn parse_operations(reductions: Option<Vec<String>>) -> PyResult<Vec<(String, (Op, bool))>> {
    match reductions {
        Some(names) => names.into_iter().map(|name| reduction_of(&name).map(|reduction| (name, reduction))).collect(),
        None => Ok([false, true]
            .into_iter()
            .flat_map(|abs| Op::ALL.map(|op| (format!("{}{}", if abs { "abs_" } else { "" }, op.name()), (op, abs))))
            .collect()),
    }
}

pub fn failures<'py>(py: Python<'py>, failed: &Failed) -> PyResult<Bound<'py, PyList>> {
    let list = failed.iter().map(|(row, error)| (*row, to_python(py, error)));
    PyList::new(py, list.map(|(row, error)| (row, error.into_value(py))))
}

/// A new array with these bytes.
fn array<'py>(py: Python<'py>, dtype: DType, shape: &[u64], bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    numpy::own(py, dtype, shape, bytes.to_vec(), 0)
}

pub fn ints<'py>(py: Python<'py>, numbers: impl ExactSizeIterator<Item = i64>) -> PyResult<Bound<'py, PyAny>> {
    Ok(numpy::column(py, DType::I64, numbers.map(i64::to_le_bytes))?.into_bound(py))
}

/// Creates an array of str objects, one per distinct key.
pub fn texts<'py, K: std::hash::Hash + Eq + Copy>(
    py: Python<'py>,
    keys: impl ExactSizeIterator<Item = K>,
    text: impl Fn(&K) -> String,
) -> PyResult<Bound<'py, PyAny>> {
    let mut made: HashMap<K, i64> = HashMap::new();
    let strings = PyList::empty(py);
    let mut places = Vec::with_capacity(keys.len());
    let mut last: Option<(K, i64)> = None;
    for key in keys {
        let place = match last {
            Some((before, place)) if before == key => place, // rows of one text mostly follow each other
            _ => match made.entry(key) {
                Occupied(place) => *place.get(),
                Vacant(place) => {
                    strings.append(text(place.key()))?;
                    let next = strings.len() as i64 - 1;
                    *place.insert(next)
                }
            },
        };
        last = Some((key, place));
        places.push(place);
    }
    let module = py.import(intern!(py, "numpy"))?;
    let distinct = module.call_method1(intern!(py, "empty"), (strings.len(), "O"))?;
    if !strings.is_empty() {
        distinct.set_item(pyo3::types::PySlice::full(py), strings)?;
    }
    // NumPy copies references faster than it takes them out of a list.
    distinct.call_method1(intern!(py, "take"), (ints(py, places.into_iter())?,))
}

/// The selection of workers: by default the first that has the tensor, all if the list is empty.
fn which(workers: Option<&Vec<String>>) -> Workers<'_> {
    match workers {
        None => Workers::First,
        Some(workers) if workers.is_empty() => Workers::Every,
        Some(workers) => Workers::These(workers),
    }
}

/// Reductions of many tensors at many steps, as columns.
#[pyfunction]
#[pyo3(signature = (catalog, files, names, steps = None, workers = None, reductions = None, *, counts = false,
                    recompute = false, threads = None, progress = None, cancel = None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn sweep<'py>(
    py: Python<'py>,
    catalog: &Bound<'py, Catalog>,
    files: &Bound<'py, PyAny>,
    names: Vec<String>,
    steps: Option<Vec<i64>>,
    workers: Option<Vec<String>>,
    reductions: Option<Vec<String>>,
    counts: bool,
    recompute: bool,
    threads: Option<usize>,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, Cancel>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (operations, source) = (parse_operations(reductions)?, RecordSource::of(files)?);
    let (column_names, operations): (Vec<String>, Vec<(Op, bool)>) = operations.into_iter().unzip();
    let requested: OpSet = operations.iter().copied().collect();
    let which = which(workers.as_ref());
    let catalog = catalog.get();
    let (rows, reduced) = run(py, &SweepControl { threads, progress, cancel }, |options| {
        let rows = Rows::of(&catalog.inner().read(), names, steps.as_deref(), which, requested, recompute);
        let reduced = core_sweep::reductions(&rows, source.as_dyn(), options, &operations, counts)?;
        Ok((rows, reduced))
    })?;
    let table = keys(py, catalog, &rows)?;
    for (name, column) in column_names.iter().zip(&reduced.columns) {
        table.set_item(name, array(py, column.dtype, &[rows.rows.len() as u64], &column.bytes)?)?;
    }
    for (name, column) in ["size", "nan", "pos_inf", "neg_inf", "zero"].into_iter().zip(reduced.counts.iter().flatten())
    {
        table.set_item(name, ints(py, column.iter().copied())?)?;
    }
    table.set_item("error", failures(py, &reduced.failed)?)?;
    Ok(table)
}

/// The columns that identify rows: name, step, mode, mode step and worker.
fn keys<'py>(py: Python<'py>, catalog: &Catalog, rows: &Rows) -> PyResult<Bound<'py, PyDict>> {
    let table = PyDict::new(py);
    let all = &rows.rows;
    table.set_item("name", texts(py, all.iter().map(|row| row.name), |name| rows.names[*name as usize].clone())?)?;
    let (about, workers) = catalog.query(py, |known| {
        let about: Vec<_> = all
            .iter()
            .map(|row| known.about(row.file))
            .map(|about| (about.step, i64::from(about.mode.number()), about.mode_step, about.worker_id))
            .collect();
        let workers: HashMap<u32, String> =
            all.iter().zip(&about).map(|(row, about)| (about.3, known.worker_of(row.file).into_owned())).collect();
        (about, workers)
    });
    table.set_item("step", ints(py, about.iter().map(|about| about.0))?)?;
    table.set_item("mode", ints(py, about.iter().map(|about| about.1))?)?;
    table.set_item("mode_step", ints(py, about.iter().map(|about| about.2))?)?;
    table.set_item("worker", texts(py, about.iter().map(|about| about.3), |id| workers[id].clone())?)?;
    Ok(table)
}

/// The statistics of many tensors at many steps, as columns.
#[pyfunction]
#[pyo3(signature = (catalog, files, names, steps = None, workers = None, *, threads = None, progress = None, cancel = None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn sweep_statistics<'py>(
    py: Python<'py>,
    catalog: &Bound<'py, Catalog>,
    files: &Bound<'py, PyAny>,
    names: Vec<String>,
    steps: Option<Vec<i64>>,
    workers: Option<Vec<String>>,
    threads: Option<usize>,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, Cancel>>,
) -> PyResult<Bound<'py, PyDict>> {
    let source = RecordSource::of(files)?;
    let which = which(workers.as_ref());
    let catalog = catalog.get();
    let (mut rows, found, failed) = run(py, &SweepControl { threads, progress, cancel }, |options| {
        // The catalog grows during a long sweep, so it is locked only to select the rows.
        let known = catalog.inner().read();
        let rows = Rows::of(&known, names, steps.as_deref(), which, OpSet::NONE, false);
        let chains = core_sweep::chains(&rows, &known);
        drop(known);
        let (found, failed) = core_sweep::tensor_statistics(&rows, &chains, source.as_dyn(), options)?;
        Ok((rows, found, failed))
    })?;
    let failed: Failed = failed.into_iter().filter(|(row, _)| found[*row as usize].is_none()).collect();
    let errors = PyList::empty(py);
    for (row, error) in &failed {
        let row = rows.rows[*row as usize];
        let (step, worker) =
            catalog.query(py, |known| (known.about(row.file).step, known.worker_of(row.file).into_owned()));
        errors.append((&rows.names[row.name as usize], step, worker, to_python(py, error).into_value(py)))?;
    }
    // Rows without a value have no statistics.
    let (kept, found): (Vec<_>, Vec<_>) =
        rows.rows.iter().zip(found).filter_map(|(row, found)| Some((*row, as_stored(&found?)))).unzip();
    rows.rows = kept;
    let table = keys(py, catalog, &rows)?;
    table.update(statistics::columns(py, found.iter())?.as_mapping())?;
    table.set_item("error", errors)?;
    Ok(table)
}

pub type RowRequests = Vec<(String, i64, Option<String>)>;

fn rows_of(catalog: &Catalog, requests: RowRequests) -> Rows {
    Rows::of_values(&catalog.inner().read(), requests)
}

/// Failed rows, by the index of the request.
fn by_request(rows: &Rows, failed: Failed) -> Failed {
    failed.into_iter().map(|(row, error)| (rows.rows[row as usize].name, error)).collect()
}

/// Dtypes and shapes of many rows.
#[pyfunction]
#[pyo3(signature = (catalog, files, rows, *, threads = None, progress = None, cancel = None))]
pub fn heads<'py>(
    py: Python<'py>,
    catalog: &Bound<'py, Catalog>,
    files: &Bound<'py, PyAny>,
    rows: RowRequests,
    threads: Option<usize>,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, Cancel>>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let (source, count) = (RecordSource::of(files)?, rows.len());
    let catalog = catalog.get();
    let (rows, heads, failed) = run(py, &SweepControl { threads, progress, cancel }, |options| {
        let mut rows = rows_of(catalog, rows);
        let (heads, failed) = core_sweep::heads(&mut rows, source.as_dyn(), options)?;
        Ok((rows, heads, failed))
    })?;
    let list = PyList::new(py, (0..count).map(|_| py.None()))?;
    for (row, head) in rows.rows.iter().zip(heads) {
        if let Some((dtype, shape)) = head {
            list.set_item(row.name as usize, (dtype.name(), PyTuple::new(py, shape)?))?;
        }
    }
    Ok((list, failures(py, &by_request(&rows, failed))?))
}

/// Some rows of one tensor, along its first axis; None if they are no byte range of the record.
#[pyfunction]
#[pyo3(signature = (files, entry, first, end, verify = true))]
pub fn part<'py>(
    py: Python<'py>,
    files: &Bound<'py, PyAny>,
    entry: &Bound<'py, Entry>,
    first: u64,
    end: u64,
    verify: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (source, entry) = (RecordSource::of(files)?, entry.get());
    let (key, at) = (&*entry.event_key, entry.at.offset);
    let read = py.detach(|| checked::rows_in(source.as_dyn(), key, at, &entry.expected(), (first, end), verify));
    match read.map_err(|error| to_python(py, &error))? {
        Some(rows) => numpy::own(py, rows.dtype, &rows.shape, rows.bytes, 0).map(Some),
        None => Ok(None),
    }
}

/// The values of many rows.
#[pyfunction]
#[pyo3(signature = (catalog, files, rows, *, threads = None, progress = None, cancel = None))]
pub fn values<'py>(
    py: Python<'py>,
    catalog: &Bound<'py, Catalog>,
    files: &Bound<'py, PyAny>,
    rows: RowRequests,
    threads: Option<usize>,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, Cancel>>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
    let (source, count) = (RecordSource::of(files)?, rows.len());
    let catalog = catalog.get();
    let control = SweepControl { threads, progress, cancel };
    let (rows, like) = py.detach(|| {
        let rows = rows_of(catalog, rows);
        let like = core_sweep::first_head(&rows, source.as_dyn());
        (rows, like)
    });
    // Values with dtype and shape of the first one are stacked in one array, others are kept separately.
    let like = like.unwrap_or((DType::Str, Vec::new()));
    let size = content_size(&like);
    let fits = rows.plan.items.iter().all(|item| item.length >= size);
    let capacity = if fits { rows.rows.len().saturating_mul(usize::try_from(size).unwrap_or(0)) } else { 0 };
    let mut stack = vec![0; capacity];
    let work = |options: &Options<'_>| core_sweep::stack(&rows, &like, &mut stack, source.as_dyn(), options);
    let (others, failed) = run(py, &control, work)?;
    let mut stacked = None;
    if capacity > 0 {
        let shape: Vec<u64> = std::iter::once(rows.rows.len() as u64).chain(like.1).collect();
        let stack = numpy::own(py, like.0, &shape, stack, 0)?;
        if others.is_empty() && failed.is_empty() && rows.rows.len() == count {
            return Ok((stack, PyList::empty(py)));
        }
        stacked = Some(stack);
    }
    let list = PyList::new(py, (0..count).map(|_| py.None()))?;
    for (at, row) in rows.rows.iter().enumerate() {
        let number = at as u32;
        let value = match (others.get(&number), &stacked) {
            (Some(record), _) => decode(PyBytes::new(py, record).as_any(), 0)?,
            // A row of the stack as an array, also where rows are single numbers.
            (None, Some(stack)) if failed.binary_search_by_key(&number, |(row, _)| *row).is_err() => {
                stack.get_item((at, py.Ellipsis()))?
            }
            _ => continue,
        };
        list.set_item(row.name as usize, value)?;
    }
    Ok((list.into_any(), failures(py, &by_request(&rows, failed))?))
}

/// The size of a value with this dtype and shape; 0 if it overflows.
fn content_size((dtype, shape): &core_sweep::Head) -> u64 {
    shape.iter().try_fold(dtype.item_size() as u64, |all, size| all.checked_mul(*size)).unwrap_or(0)
}

/// Verifies every record.
#[pyfunction]
#[pyo3(signature = (catalog, files, steps = None, *, threads = None, progress = None, cancel = None))]
pub fn verify<'py>(
    py: Python<'py>,
    catalog: &Bound<'py, Catalog>,
    files: &Bound<'py, PyAny>,
    steps: Option<Vec<i64>>,
    threads: Option<usize>,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, Cancel>>,
) -> PyResult<Bound<'py, PyDict>> {
    let source = RecordSource::of(files)?;
    let catalog = catalog.get();
    let (rows, verified, failed) = run(py, &SweepControl { threads, progress, cancel }, |options| {
        let known = catalog.inner().read();
        let steps = steps.unwrap_or_else(|| known.steps(None));
        let files: Vec<_> = steps.iter().flat_map(|step| known.files_at(*step, None)).collect();
        let rows = Rows::of_files(&known, &files);
        drop(known);
        let (verified, failed) = core_sweep::verify(&rows, source.as_dyn(), options)?;
        Ok((rows, verified, failed))
    })?;
    let found = PyDict::new(py);
    found.set_item("records", verified.records)?;
    found.set_item("bytes", verified.bytes)?;
    found.set_item("footer_crc", verified.by_footer)?;
    found.set_item("footer_constant", verified.records - verified.by_footer)?;
    found.set_item("index_crc", verified.by_index)?;
    found.set_item("unverifiable", verified.unverifiable)?;
    let errors = PyList::empty(py);
    for (at, error) in &failed {
        let row = rows.rows[*at as usize];
        let (step, worker) =
            catalog.query(py, |known| (known.about(row.file).step, known.worker_of(row.file).into_owned()));
        errors.append((&rows.names[row.name as usize], step, worker, to_python(py, error).into_value(py)))?;
    }
    found.set_item("errors", errors)?;
    Ok(found)
}
