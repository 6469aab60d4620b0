//! Values that belong to one process: runtimes and connections, which a forked child must not touch.
//!
//! No lock guards them, since another thread may hold it at the fork. The child forgets the parent's value without
//! dropping it: dropping would write to the parent's connections and wait for threads that the child lacks.

use std::collections::HashMap;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Code, Error, Result};
use crate::limiter::Limiter;

struct Held<T> {
    process: u32,
    value: Arc<T>,
}

/// A value that each process makes for itself.
pub struct PerProcess<T>(AtomicPtr<Held<T>>);

impl<T> PerProcess<T> {
    /// No value yet.
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value of this process, if it was made.
    #[expect(unsafe_code, reason = "the pointer is shared with other threads and with the parent process")]
    pub fn get(&self) -> Option<Arc<T>> {
        // SAFETY: a pointer is stored once it is valid, and freed by `drop` only, which has no other user.
        let held = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        (held.process == process::id()).then(|| held.value.clone())
    }

    /// The value of this process.
    pub fn get_or_make(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let before = self.0.load(Ordering::Acquire);
        let value = Arc::new(make()?);
        let made = Box::into_raw(Box::new(Held { process: process::id(), value: value.clone() }));
        if self.0.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return Ok(value);
        }
        Self::free(made);
        // Another thread was faster. Only a fork could have made its value useless again.
        self.get().ok_or_else(|| Error::new("", Code::Other, "the process was forked while a store was opened"))
    }

    #[expect(unsafe_code, reason = "the pointer is raw, see `get`")]
    fn free(held: *mut Held<T>) {
        // SAFETY: the pointer comes from a box, and no one else has it.
        drop(unsafe { Box::from_raw(held) });
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if self.get().is_some() {
            Self::free(*self.0.get_mut());
        }
    }
}

/// The runtime of a process, and what its stores share.
pub struct Shared {
    runtime: Option<Runtime>,
    limiters: Mutex<HashMap<String, Weak<Limiter>>>,
}

static SHARED: PerProcess<Shared> = PerProcess::new();

impl Shared {
    /// The runtime of this process; the first use starts it.
    pub fn current() -> Result<Arc<Shared>> {
        SHARED.get_or_make(|| {
            let runtime =
                Builder::new_multi_thread().worker_threads(2).thread_name("smdwidgets-stores").enable_all().build();
            let runtime =
                runtime.map_err(|error| Error::new("", Code::Other, format!("cannot start threads: {error}")))?;
            Ok(Shared { runtime: Some(runtime), limiters: Mutex::default() })
        })
    }

    /// Runs tasks.
    pub fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("taken only by drop").handle()
    }

    /// The limiter of a bucket, for all stores that read it.
    pub fn limiter(&self, bucket: &str) -> Arc<Limiter> {
        let mut limiters = self.limiters.lock();
        limiters.retain(|_, limiter| limiter.strong_count() > 0);
        if let Some(limiter) = limiters.get(bucket).and_then(Weak::upgrade) {
            return limiter;
        }
        let limiter = Arc::new(Limiter::new());
        limiters.insert(bucket.to_owned(), Arc::downgrade(&limiter));
        limiter
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Another thread was faster to start the process's runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A value that is dropped only by the process that made it.
pub struct Own<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Own<T> {
    /// A value of this process.
    pub fn new(value: T) -> Own<T> {
        Own { process: process::id(), value: Some(value) }
    }

    /// The value, unless another process made it.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| self.process == process::id())
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
