//! Releasing the GIL for work that is worth it.

use pyo3::prelude::*;

/// Work on smaller data takes less time than releasing the GIL.
const WORTH_DETACHING: usize = 64 << 10;

/// Runs `work`, without the GIL if the data is large.
pub fn detached<T: Send>(py: Python<'_>, size: usize, work: impl FnOnce() -> T + Send) -> T {
    if size < WORTH_DETACHING { work() } else { py.detach(work) }
}
