//! The thread pool for parallel work.
//!
//! Rayon's global pool does not survive a fork (as PyTorch's data loaders do): work submitted to it in the child never
//! runs. This pool is created again in each process.

use std::process;
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

static SHARED: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);

/// Runs `work` in a pool of `threads` threads; by default as many as there are cores.
pub fn run<R: Send>(threads: Option<usize>, work: impl FnOnce() -> R + Send) -> Result<R> {
    let wrong = |e| Error::Invalid(format!("cannot start threads: {e}"));
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
                // The threads of the parent's pool do not exist in this process, so it must not be dropped.
                std::mem::forget(shared.replace((process::id(), pool.clone())));
                pool
            }
        }
    };
    Ok(pool.install(work))
}
