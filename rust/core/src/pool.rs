//! Threads for work in parallel.
//!
//! Not rayon's own global pool: that one is lost in a process that was forked, as PyTorch's data loaders are, and work given
//! to it there would never be done.

use std::process;
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

static SHARED: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);

/// Run `work` where rayon's parallel iterators use so many threads; as many as there are cores if nothing is said.
pub fn run<R: Send>(threads: Option<usize>, work: impl FnOnce() -> R + Send) -> Result<R> {
    let wrong = |e| Error::Invalid(format!("threads can't be started: {e}"));
    if let Some(threads) = threads {
        let pool = ThreadPoolBuilder::new().num_threads(threads.max(1)).build().map_err(wrong)?;
        return Ok(pool.install(work));
    }
    let pool = {
        let mut shared = SHARED.lock();
        match &*shared {
            Some((process, pool)) if *process == process::id() => pool.clone(),
            _ => {
                let name = |at| format!("smdwidgets-{at}");
                let pool = Arc::new(ThreadPoolBuilder::new().thread_name(name).build().map_err(wrong)?);
                // The parent's pool has no threads here to end, so it is left alone.
                std::mem::forget(shared.replace((process::id(), pool.clone())));
                pool
            }
        }
    };
    Ok(pool.install(work))
}
