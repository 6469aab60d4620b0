//! Releasing the GIL for work that is worth it.

use std::sync::{Mutex, PoisonError, TryLockError};

use pyo3::prelude::*;

/// Work on smaller data takes less time than releasing the GIL.
const WORTH_DETACHING: usize = 64 << 10;

/// Runs `work`, without the GIL if the data is large.
pub fn detached<T: Send>(py: Python<'_>, size: usize, work: impl FnOnce() -> T + Send) -> T {
    if size < WORTH_DETACHING { work() } else { py.detach(work) }
}

/// Runs `work` on what a mutex holds, without the GIL if the data is large or another thread holds the mutex.
///
/// `work` does not wait for a disk. A thread that gives the GIL up for less waits for the threads that take it.
pub fn locked<S: Send, T: Send>(
    py: Python<'_>,
    mutex: &Mutex<S>,
    size: usize,
    work: impl FnOnce(&mut S) -> T + Send,
) -> T {
    if size < WORTH_DETACHING {
        match mutex.try_lock() {
            Ok(mut held) => return work(&mut held),
            Err(TryLockError::Poisoned(held)) => return work(&mut held.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    py.detach(|| work(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner)))
}
