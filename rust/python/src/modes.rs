//! Modes by their number in Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smdwidgets_core::step::Mode;

/// The mode of a number; ValueError if there is none.
pub fn mode_of(number: i64) -> PyResult<Mode> {
    let mode = u8::try_from(number).ok().and_then(Mode::from_number);
    mode.ok_or_else(|| {
        PyValueError::new_err(format!("invalid mode {number}; choose from 1 TRAIN, 2 EVAL, 3 PREDICT, 4 GLOBAL"))
    })
}

/// The mode to filter by: None and GLOBAL both mean all global steps.
pub fn filter_of(number: Option<i64>) -> PyResult<Option<Mode>> {
    Ok(number.map(mode_of).transpose()?.filter(|mode| *mode != Mode::Global))
}
