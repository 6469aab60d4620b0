//! Object stores. A thread that waits for one has released the GIL, and looks for signals and due credentials in between.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use smdwidgets_stores::client::{Client, Condition, Entry, Page};
use smdwidgets_stores::credentials::Credentials;
use smdwidgets_stores::error::{Code, Error, Result};
use smdwidgets_stores::store::{Arriving, Store};

pyo3::create_exception!(
    smdwidgets._core,
    StoreError,
    PyException,
    "A failed operation of an object store: its arguments are the key, a code and the reason."
);

/// Between two looks at signals and credentials.
const TICK: Duration = Duration::from_millis(50);
/// The longest wait for threads at the end of the interpreter.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Threads that wait for a store.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Raised at the end of the interpreter; waits that began before it end.
static ENDINGS: AtomicU64 = AtomicU64::new(0);

struct Waiting;

impl Waiting {
    fn begin() -> Waiting {
        WAITING.fetch_add(1, Ordering::AcqRel);
        Waiting
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ends all waits, so that no thread of Python is in the core when the interpreter ends.
#[pyfunction]
pub fn end_waits(py: Python<'_>) {
    ENDINGS.fetch_add(1, Ordering::AcqRel);
    py.detach(|| {
        let start = Instant::now();
        while WAITING.load(Ordering::Acquire) > 0 && start.elapsed() < LAST_WAIT {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

thread_local! {
    /// Ends the waits of this thread.
    static CANCELLED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs `work`, whose waits for stores end once `flag` is set. A sweep reads on threads that no signal reaches.
pub fn cancelled_by<R>(flag: &Arc<AtomicBool>, work: impl FnOnce() -> R) -> R {
    let before = CANCELLED.replace(Some(flag.clone()));
    let result = work();
    CANCELLED.set(before);
    result
}

fn is_cancelled() -> bool {
    CANCELLED.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}

/// The text of an exception without its class; the class of one without text.
fn reason(py: Python<'_>, error: &PyErr) -> String {
    Some(error.value(py).to_string()).filter(|text| !text.is_empty()).unwrap_or_else(|| error.to_string())
}

pub fn to_python(error: Error) -> PyErr {
    StoreError::new_err((error.key, error.code.name(), error.message))
}

type Listed = (String, u64, f64, String);

fn listed(entry: Entry) -> Listed {
    (entry.key, entry.size, entry.modified, entry.etag)
}

fn bytes_or_error(py: Python<'_>, read: Result<Vec<u8>>) -> Py<PyAny> {
    match read {
        Ok(bytes) => PyBytes::new(py, &bytes).into_any().unbind(),
        Err(error) => to_python(error).into_value(py).into_any(),
    }
}

/// A bucket or a web server's directory.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct ObjectStore {
    store: Store,
    credentials: Option<Py<PyAny>>,
}

impl ObjectStore {
    /// Whether this thread must ask the callback for credentials.
    fn claim(&self) -> Result<bool> {
        Ok(self.credentials.is_some() && self.store.client()?.credentials().is_some_and(Credentials::claim))
    }

    /// Asks the callback for credentials if that is due. It runs on the waiting thread, so that an interrupt reaches it,
    /// and no thread of the core ever enters Python.
    fn renew(&self, py: Python<'_>) -> PyResult<()> {
        if self.claim().map_err(to_python)? { self.ask(py) } else { Ok(()) }
    }

    /// Logs why requests are repeated, each cause once for this store.
    fn log_repeats(&self, py: Python<'_>) -> PyResult<()> {
        for cause in self.store.new_causes() {
            let logger = py.import("logging")?.call_method1("getLogger", ("smdwidgets",))?;
            let message = format!("{}: {cause}; the request is repeated", self.store.place());
            logger.call_method1("warning", ("%s", message))?;
        }
        Ok(())
    }

    /// Asks the callback for credentials, after `claim`.
    fn ask(&self, py: Python<'_>) -> PyResult<()> {
        let Some(callback) = &self.credentials else { return Ok(()) };
        let client = self.store.client().map_err(to_python)?;
        let Some(credentials) = client.credentials() else { return Ok(()) };
        match callback.call0(py).and_then(|found| found.extract::<HashMap<String, Option<String>>>(py)) {
            Ok(found) => {
                let present = |(name, value): (_, Option<_>)| value.map(|value| (name, value));
                credentials.provide(Ok(found.into_iter().filter_map(present).collect()));
            }
            Err(error) if error.is_instance_of::<PyException>(py) => credentials.provide(Err(reason(py, &error))),
            Err(interrupt) => {
                credentials.release();
                return Err(interrupt);
            }
        }
        Ok(())
    }

    /// Waits for `step` to return a result.
    fn wait<T: Send>(&self, py: Python<'_>, mut step: impl FnMut(Duration) -> Option<Result<T>> + Send) -> PyResult<T> {
        let _waiting = Waiting::begin();
        let endings = ENDINGS.load(Ordering::Acquire);
        loop {
            self.renew(py)?;
            let result = py.detach(|| step(TICK));
            self.log_repeats(py)?;
            if let Some(result) = result {
                return result.map_err(to_python);
            }
            py.check_signals()?;
            if ENDINGS.load(Ordering::Acquire) != endings || is_cancelled() {
                return Err(to_python(Error::cancelled("")));
            }
        }
    }

    /// The bytes of a range that exist, for a thread that does not hold the GIL. Only new credentials need Python.
    pub fn read(&self, key: &str, range: Range<u64>, cancelled: &AtomicBool) -> Result<Vec<u8>> {
        let whole = key.to_owned();
        let mut running = self.store.start(|client| async move { Ok(client.get_range(&whole, range, "").await?.0) })?;
        let _waiting = Waiting::begin();
        let endings = ENDINGS.load(Ordering::Acquire);
        loop {
            if self.claim()? {
                Python::attach(|py| self.ask(py))
                    .map_err(|error| Error::new(key, Code::Credentials, Python::attach(|py| reason(py, &error))))?;
            }
            if let Some(result) = running.wait(TICK) {
                return result;
            }
            if ENDINGS.load(Ordering::Acquire) != endings || cancelled.load(Ordering::Relaxed) {
                return Err(Error::cancelled(key));
            }
        }
    }

    /// Runs an operation.
    fn run<T, F>(&self, py: Python<'_>, operation: impl FnOnce(Arc<Client>) -> F) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut running = self.store.start(operation).map_err(to_python)?;
        self.wait(py, |time| running.wait(time))
    }

    fn page(&self, py: Python<'_>, prefix: &str, start_after: &str, token: Option<String>) -> PyResult<Page> {
        let (prefix, start_after) = (prefix.to_owned(), start_after.to_owned());
        self.run(py, |client| async move { client.page(&prefix, &start_after, token.as_deref()).await })
    }
}

fn range(offset: u64, length: u64) -> PyResult<Range<u64>> {
    let end = offset.checked_add(length).ok_or_else(|| PyValueError::new_err("the range ends above 2**64"))?;
    Ok(offset..end)
}

#[pymethods]
impl ObjectStore {
    #[new]
    #[pyo3(signature = (url, options = BTreeMap::new(), *, credentials = None, concurrency = 64))]
    fn new(
        url: &str,
        options: BTreeMap<String, String>,
        credentials: Option<Py<PyAny>>,
        concurrency: usize,
    ) -> PyResult<ObjectStore> {
        let store = Store::new(url, options, concurrency, credentials.is_some()).map_err(to_python)?;
        Ok(ObjectStore { store, credentials })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.credentials)
    }

    #[pyo3(signature = (prefix, start_after = "", limit = 0))]
    fn list(&self, py: Python<'_>, prefix: &str, start_after: &str, limit: usize) -> PyResult<Vec<Listed>> {
        let mut found = Vec::new();
        let mut token = None;
        loop {
            let page = self.page(py, prefix, start_after, token)?;
            found.extend(page.entries.into_iter().map(listed));
            token = page.next;
            if limit > 0 && found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
            if token.is_none() {
                return Ok(found);
            }
        }
    }

    #[pyo3(signature = (prefix, start_after = ""))]
    fn pages(slf: Py<Self>, prefix: String, start_after: &str) -> Pages {
        let next = Mutex::new(Next::First);
        Pages { store: slf, prefix, start_after: start_after.to_owned(), next }
    }

    fn head(&self, py: Python<'_>, key: String) -> PyResult<Option<(u64, f64, String)>> {
        let found = self.run(py, |client| async move { client.head(&key).await })?;
        Ok(found.map(|entry| (entry.size, entry.modified, entry.etag)))
    }

    fn get<'py>(&self, py: Python<'py>, key: String, limit: u64) -> PyResult<(Bound<'py, PyBytes>, String)> {
        let (bytes, etag) = self.run(py, |client| async move { client.get(&key, limit).await })?;
        Ok((PyBytes::new(py, &bytes), etag))
    }

    #[pyo3(signature = (key, offset, length, etag = ""))]
    fn get_range<'py>(
        &self,
        py: Python<'py>,
        key: String,
        offset: u64,
        length: u64,
        etag: &str,
    ) -> PyResult<(Bound<'py, PyBytes>, String)> {
        let (range, etag) = (range(offset, length)?, etag.to_owned());
        let (bytes, etag) = self.run(py, |client| async move { client.get_range(&key, range, &etag).await })?;
        Ok((PyBytes::new(py, &bytes), etag))
    }

    fn get_many(slf: Bound<'_, Self>, keys: Vec<String>, limit: u64) -> PyResult<Contents> {
        let arriving = slf.get().store.start_many(|client| client.get_many(keys, limit)).map_err(to_python)?;
        Ok(Contents { store: slf.unbind(), arriving: Mutex::new(Some(arriving)) })
    }

    #[pyo3(signature = (ranges, etags = HashMap::new()))]
    fn get_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(String, u64, u64)>,
        etags: HashMap<String, String>,
    ) -> PyResult<Bound<'py, PyList>> {
        let ranges = ranges.into_iter().map(|(key, offset, length)| Ok((key, range(offset, length)?)));
        let ranges: Vec<_> = ranges.collect::<PyResult<_>>()?;
        let read = self.run(py, |client| async move { Ok(client.get_ranges(ranges, &etags).await) })?;
        let found = PyList::empty(py);
        // One at a time, so that each is in memory twice for a short time only.
        for read in read {
            match read {
                Ok((bytes, etag)) => found.append((PyBytes::new(py, &bytes), etag))?,
                Err(error) => found.append(to_python(error).into_value(py))?,
            }
        }
        Ok(found)
    }

    #[pyo3(signature = (key, content, if_match = None))]
    fn put(&self, py: Python<'_>, key: String, content: &[u8], if_match: Option<String>) -> PyResult<String> {
        let condition = match if_match {
            None => Condition::Always,
            Some(etag) if etag.is_empty() => Condition::Absent,
            Some(etag) => Condition::Unchanged(etag),
        };
        let content = content.to_vec().into();
        self.run(py, |client| async move { client.put(&key, content, condition).await })
    }

    fn put_file(&self, py: Python<'_>, key: String, path: PathBuf) -> PyResult<String> {
        self.run(py, |client| async move { client.put_file(&key, path).await })
    }

    fn delete(&self, py: Python<'_>, keys: Vec<String>) -> PyResult<()> {
        self.run(py, |client| async move { client.delete(keys).await })
    }

    fn folder(&self, py: Python<'_>, folder: &str) -> PyResult<(Vec<String>, Vec<Listed>)> {
        let (mut folders, mut entries, mut token) = (Vec::new(), Vec::new(), None);
        loop {
            let of = folder.to_owned();
            let page = self.run(py, |client| async move { client.folder(&of, token.as_deref()).await })?;
            folders.extend(page.folders);
            entries.extend(page.entries.into_iter().map(listed));
            token = page.next;
            if token.is_none() {
                return Ok((folders, entries));
            }
        }
    }

    fn requests(&self) -> (u64, u64, u64, u64, u64, u64, u64) {
        self.store.requests().into()
    }

    fn close(&self) {
        self.store.close();
    }
}

enum Next {
    First,
    Token(String),
    End,
}

/// The pages of a listing.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Pages {
    store: Py<ObjectStore>,
    prefix: String,
    start_after: String,
    next: Mutex<Next>,
}

fn in_use() -> PyErr {
    PyValueError::new_err("another thread waits for this iterator")
}

#[pymethods]
impl Pages {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.store)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<Listed>>> {
        let mut next = self.next.try_lock().ok_or_else(in_use)?;
        let token = match &*next {
            Next::First => None,
            Next::Token(token) => Some(token.clone()),
            Next::End => return Ok(None),
        };
        let page = self.store.get().page(py, &self.prefix, &self.start_after, token)?;
        *next = page.next.map_or(Next::End, Next::Token);
        Ok(Some(page.entries.into_iter().map(listed).collect()))
    }
}

/// A key and what was read.
type Content = (String, Result<Vec<u8>>);

/// The contents of objects, in the order of arrival.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct Contents {
    store: Py<ObjectStore>,
    arriving: Mutex<Option<Arriving<Content>>>,
}

#[pymethods]
impl Contents {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.store)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<(String, Py<PyAny>)>> {
        let mut guard = self.arriving.try_lock().ok_or_else(in_use)?;
        let Some(arriving) = &mut *guard else { return Ok(None) };
        match self.store.get().wait(py, |time| arriving.wait(time)) {
            Ok(Some((key, read))) => Ok(Some((key, bytes_or_error(py, read)))),
            ended => {
                *guard = None;
                ended.map(|_| None)
            }
        }
    }

    fn close(&self) -> PyResult<()> {
        *self.arriving.try_lock().ok_or_else(in_use)? = None;
        Ok(())
    }
}
