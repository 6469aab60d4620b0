//! How many threads read at the same time, and how many of them compute.
//!
//! A thread that waits for the network computes nothing, so a remote source is read by more threads than there are cores.
//! The number of those that compute, and the bytes that all of them hold, are limited.

use std::num::NonZero;

use parking_lot::{Condvar, Mutex};

use super::{KEPT, Options};
use crate::source::Source;

/// Bytes that the threads of a remote sweep hold.
const MEMORY: u64 = 64 << 20;

/// The threads of a sweep.
pub struct Readers {
    /// Their number; `None` for the shared pool.
    pub threads: Option<usize>,
    /// The most that one thread keeps for its next read.
    pub kept: usize,
    limits: Option<Limits>,
}

struct Limits {
    computing: Permits,
    memory: Permits,
}

impl Readers {
    /// The threads that read so many pieces of a source.
    pub fn new(source: &dyn Source, options: &Options<'_>, pieces: usize) -> Readers {
        let Some(at_once) = source.reads_at_once() else {
            return Readers { threads: options.threads, kept: KEPT, limits: None };
        };
        let cores = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get));
        let threads = at_once.max(cores).min(pieces).max(1);
        let limits = Limits { computing: Permits::new(cores.max(1) as u64), memory: Permits::new(MEMORY) };
        Readers { threads: Some(threads), kept: (MEMORY as usize / threads).min(KEPT), limits: Some(limits) }
    }

    /// The number of threads, if it is known.
    pub fn count(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    /// Whether a thread may wait for the network.
    pub fn is_remote(&self) -> bool {
        self.limits.is_some()
    }

    /// Runs `work`, which holds so many bytes, once there is room for them.
    pub fn holding<R>(&self, bytes: u64, work: impl FnOnce() -> R) -> R {
        match &self.limits {
            Some(Limits { memory, .. }) => memory.with(bytes, work),
            None => work(),
        }
    }

    /// Runs `work`, which computes, once a core is free.
    pub fn computing<R>(&self, work: impl FnOnce() -> R) -> R {
        match &self.limits {
            Some(Limits { computing, .. }) => computing.with(1, work),
            None => work(),
        }
    }
}

/// A number of permits that threads share.
struct Permits {
    all: u64,
    free: Mutex<u64>,
    returned: Condvar,
}

impl Permits {
    fn new(all: u64) -> Permits {
        Permits { all, free: Mutex::new(all), returned: Condvar::new() }
    }

    /// Runs `work` with so many permits, or with all of them if it needs more.
    fn with<R>(&self, wanted: u64, work: impl FnOnce() -> R) -> R {
        let wanted = wanted.min(self.all);
        let mut free = self.free.lock();
        self.returned.wait_while(&mut free, |free| *free < wanted);
        *free -= wanted;
        drop(free);
        let _taken = Taken(self, wanted);
        work()
    }
}

/// Returns permits, also after a panic.
struct Taken<'p>(&'p Permits, u64);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += self.1;
        self.0.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn permits_are_never_exceeded_and_all_come_back() {
        let permits = Permits::new(10);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (permits, now, most) = (&permits, &now, &most);
                scope.spawn(move || {
                    for round in 0..200u64 {
                        let wanted = 1 + (thread * 7 + round) % 13;
                        permits.with(wanted, || {
                            let held = now.fetch_add(wanted.min(10), Ordering::SeqCst) + wanted.min(10);
                            most.fetch_max(held, Ordering::SeqCst);
                            std::thread::yield_now();
                            now.fetch_sub(wanted.min(10), Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert!(most.into_inner() <= 10);
        assert_eq!(*permits.free.lock(), 10);
    }

    #[test]
    fn permits_come_back_after_a_panic() {
        let permits = Permits::new(3);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| permits.with(2, || panic!("as asked"))));
        assert!(ended.is_err());
        assert_eq!(*permits.free.lock(), 3);
    }
}
