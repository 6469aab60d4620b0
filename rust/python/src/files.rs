//! Event files of a run, and their values as numpy arrays.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use smdwidgets_core::catalog::{self as core_catalog, Kind};
use smdwidgets_core::checked::{self, ExpectedRecord};
use smdwidgets_core::error::{Error, Location, Result};
use smdwidgets_core::load;
use smdwidgets_core::source::{Blob, Local, Reach, Source, inside};
use smdwidgets_core::tensor::Data;
use smdwidgets_stores::error::Code;

use crate::catalog::{Catalog, Entry};
use crate::errors::to_python;
use crate::gil::detached;
use crate::numpy;
use crate::open_files::{OpenFiles, Opened};
use crate::recent::{LARGEST_CACHED, Recent, SMALL};
use crate::stores::{self, ObjectStore};

/// Catalog, file and stamp.
type FileKey = (u64, core_catalog::FileId, u32);

/// Reads a record.
fn record_of(file: &Opened, offset: u64, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let found = file.blob.read_at(offset, length, &mut bytes)? as u64;
    if found < length {
        return Err(Error::Truncated { location: Location::memory(0), needed: length, found });
    }
    Ok(bytes)
}

/// Local event files of a run. Keeps recently used files open and recent values cached.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Files {
    run: Local,
    open: OpenFiles<FileKey>,
    recent: Recent<FileKey>,
}

impl Files {
    /// The run.
    pub fn run(&self) -> &Local {
        &self.run
    }

    fn file(&self, py: Python<'_>, which: FileKey, key: &dyn Fn() -> String) -> Result<Arc<Opened>> {
        if let Some(file) = self.open.get(which) {
            return Ok(file);
        }
        let key = key();
        let blob = py.detach(|| self.run.open(&key))?;
        let file = Arc::new(Opened::new(blob, key));
        self.open.add(which, file.clone());
        Ok(file)
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        which: FileKey,
        key: &dyn Fn() -> String,
        offset: u64,
        expected: &ExpectedRecord<'_>,
        cache: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let record = (which, offset);
        if let Some(cached) = self.recent.get(py, record, expected) {
            return numpy::copy(&cached);
        }
        let file = self.file(py, which, key).map_err(|error| to_python(py, &error))?;
        // A private copy is verified and returned, so that no one can change it in between.
        let checked = detached(py, usize::try_from(expected.length).unwrap_or(usize::MAX), || {
            let bytes = record_of(&file, offset, expected.length)?;
            checked::decode(&bytes, expected).map(drop)?;
            Ok(bytes)
        });
        let wrong = |error: Error| to_python(py, &error.within(&file.key, offset));
        let bytes = checked.map_err(wrong)?;
        let tensor = checked::decode_verified(&bytes, expected).map_err(wrong)?;
        match tensor.data {
            Data::Raw(raw) if !raw.is_empty() => {
                let (at, size) = (raw.as_ptr().addr() - bytes.as_ptr().addr(), raw.len());
                let (dtype, shape) = (tensor.dtype, tensor.shape);
                // The record becomes the memory of the array: no copy.
                let value = numpy::own(py, dtype, &shape, bytes, at)?;
                if size > if cache { LARGEST_CACHED } else { SMALL } {
                    return Ok(value);
                }
                // Memory in the cache is never returned to the caller.
                self.recent.put(record, expected, size, &value);
                numpy::copy(&value)
            }
            _ => numpy::array(py, tensor),
        }
    }
}

#[pymethods]
impl Files {
    #[new]
    #[pyo3(signature = (root, max_open = 256))]
    fn new(root: PathBuf, max_open: usize) -> Files {
        Files { run: Local::new(root), open: OpenFiles::new(max_open), recent: Recent::new() }
    }

    #[getter]
    fn root(&self) -> PathBuf {
        self.run.path().to_owned()
    }

    fn value<'py>(&self, py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyAny>> {
        let which = (entry.catalog, entry.at.file, entry.at.stamp);
        self.read(py, which, &|| entry.event_key.to_string(), entry.at.offset, &entry.expected(), true)
    }

    #[pyo3(signature = (catalog, name, step, worker = None, cache = true))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        catalog: &Catalog,
        name: &str,
        step: i64,
        worker: Option<&str>,
        cache: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let find = |known: &core_catalog::Catalog| {
            // No single record holds the value of a sharded tensor.
            let whole = worker.is_some() || known.shards_of(name, step).next().is_none();
            let found = if whole { known.find(name, step, worker, Kind::VALUE) } else { None };
            (known.has_unread(step), found.map(|at| (at, known.when(at.file))))
        };
        let (unread, mut found) = catalog.query(py, find);
        if unread {
            let read = py.detach(|| load::load(catalog.inner(), &self.run, Some(&[step]), None));
            read.map_err(|error| to_python(py, &error))?;
            found = catalog.query(py, find).1;
        }
        let Some((at, when)) = found else { return Ok(None) };
        let expected = ExpectedRecord { tensor: name, kind: at.kind, when, length: at.length, crc: at.crc };
        let key = || catalog.query(py, |known| known.event_key(at.file));
        self.read(py, (catalog.id(), at.file, at.stamp), &key, at.offset, &expected, cache).map(Some)
    }

    fn head<'py>(&self, py: Python<'py>, entry: &Entry) -> PyResult<(&'static str, Bound<'py, PyTuple>)> {
        let head = py.detach(|| checked::head_in(&self.run, &entry.event_key, entry.at.offset, &entry.expected()));
        let (dtype, shape) = head.map_err(|error| to_python(py, &error))?;
        Ok((dtype.name(), PyTuple::new(py, shape)?))
    }

    fn exists(&self, py: Python<'_>, entry: &Entry) -> PyResult<bool> {
        match py.detach(|| self.run.open_file(&entry.event_key)) {
            Ok(_) => Ok(true),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(to_python(py, &error)),
        }
    }

    fn release(&self) {
        self.open.clear();
        self.recent.clear();
    }

    fn __repr__(&self) -> String {
        format!("<Files {}, {} open>", self.run.path().display(), self.open.len())
    }
}

/// Event files that a Python function reads, or that lie in an object store.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Fetched {
    shared: Arc<Shared>,
}

/// What reads the files.
struct Shared {
    fetch: Py<PyAny>,
    concurrency: Option<usize>,
    direct: Option<Direct>,
}

/// Files in an object store, which are read without Python: threads of the core would otherwise compete for the GIL, and
/// some Python profilers stop while such threads end.
struct Direct {
    store: Py<ObjectStore>,
    /// Precedes the keys of files.
    prefix: String,
    /// Converts a `StoreError`.
    converted: Py<PyAny>,
}

#[pymethods]
impl Fetched {
    #[new]
    #[pyo3(signature = (fetch, concurrency = None, direct = None))]
    fn new(
        fetch: Bound<'_, PyAny>,
        concurrency: Option<usize>,
        direct: Option<(Py<ObjectStore>, String, Py<PyAny>)>,
    ) -> PyResult<Fetched> {
        if !fetch.is_callable() {
            return Err(PyTypeError::new_err("fetch must be callable as fetch(key, offset, length) and return bytes"));
        }
        let direct = direct.map(|(store, prefix, converted)| Direct { store, prefix, converted });
        Ok(Fetched { shared: Arc::new(Shared { fetch: fetch.unbind(), concurrency, direct }) })
    }
}

impl Fetched {
    /// The source for the core.
    pub fn source(&self) -> Remote {
        Remote { shared: self.shared.clone(), cancelled: Arc::default() }
    }
}

/// A source that reads an object store, or through a Python function.
pub struct Remote {
    shared: Arc<Shared>,
    cancelled: Arc<AtomicBool>,
}

struct RemoteFile {
    shared: Arc<Shared>,
    cancelled: Arc<AtomicBool>,
    key: String,
}

impl Source for Remote {
    fn root(&self) -> String {
        "<bucket>".into()
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        if let Err(what) = inside(key) {
            return Err(Error::OutsideRun { root: self.root(), name: key.into(), what: what.into() });
        }
        let (shared, cancelled) = (self.shared.clone(), self.cancelled.clone());
        Ok(Box::new(RemoteFile { shared, cancelled, key: key.into() }))
    }

    fn reach(&self) -> Reach {
        Reach::REMOTE
    }

    fn reads_at_once(&self) -> Option<usize> {
        self.shared.concurrency
    }

    fn cancel_reads(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl RemoteFile {
    /// Reads through the Python function.
    fn fetch(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> PyResult<usize> {
        Python::attach(|py| {
            let fetch = self.shared.fetch.bind(py);
            let bytes = stores::cancelled_by(&self.cancelled, || fetch.call1((&self.key, offset, length)))?;
            let bytes = bytes.cast_into::<PyBytes>()?;
            let bytes = bytes.as_bytes();
            let count = usize::try_from(length).map_or(bytes.len(), |length| length.min(bytes.len()));
            if buffer.len() < count {
                buffer.resize(count, 0);
            }
            buffer[..count].copy_from_slice(&bytes[..count]);
            Ok(count)
        })
    }

    /// Reads an object store.
    fn read(&self, direct: &Direct, offset: u64, length: u64, buffer: &mut Vec<u8>) -> PyResult<usize> {
        let key = format!("{}{}", direct.prefix, self.key);
        match direct.store.get().read(&key, offset..offset.saturating_add(length), &self.cancelled) {
            Ok(bytes) => {
                *buffer = bytes;
                Ok(buffer.len())
            }
            // The file ends before the range.
            Err(error) if error.code == Code::Range => Ok(0),
            Err(error) => Python::attach(|py| {
                let error = stores::to_python(error).into_value(py);
                Err(PyErr::from_value(direct.converted.bind(py).call1((error,))?))
            }),
        }
    }
}

impl Blob for RemoteFile {
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        let read = match &self.shared.direct {
            Some(direct) => self.read(direct, offset, length, buffer),
            None => self.fetch(offset, length, buffer),
        };
        // The Python exception is passed through the core.
        read.map_err(|error| Error::Io { file: self.key.clone(), source: std::io::Error::other(error) })
    }
}
