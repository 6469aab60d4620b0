//! Conversion of core errors to Python exceptions.

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use smdwidgets_core::error::Error;

/// Converts a core error. The exception classes are defined in Python (`smdwidgets.exceptions`) and looked up by name.
pub fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    // A Python exception from a callback passes through the core unchanged.
    if let Error::Io { source, .. } = error
        && let Some(exception) = source.get_ref().and_then(|inner| inner.downcast_ref::<PyErr>())
    {
        return exception.clone_ref(py);
    }
    let class = match error {
        Error::Truncated { .. } => "TruncatedDataError",
        Error::Corrupt { .. } => "CorruptDataError",
        Error::Unsupported { .. } => "UnsupportedDataError",
        Error::Index { .. } => "IndexReaderException",
        Error::OutsideRun { .. } => "OutsideRunError",
        Error::Io { .. } => "RunIOError",
        Error::Invalid(what) => return PyValueError::new_err(what.clone()),
        Error::Cancelled => return PyKeyboardInterrupt::new_err("cancelled"),
    };
    let made =
        py.import("smdwidgets.exceptions").and_then(|module| module.getattr(class)).and_then(|class| match error {
            // With three arguments, OSError sets `errno`.
            Error::Io { file, source } if source.raw_os_error().is_some() => {
                let errno = source.raw_os_error();
                let reason = py.import("os")?.call_method1("strerror", (errno,))?;
                class.call1((errno, reason, file))
            }
            error => class.call1((error.to_string(),)),
        });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(lookup_failed) => lookup_failed,
    }
}
