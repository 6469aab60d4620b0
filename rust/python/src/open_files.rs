//! Files that stay open, the least recently used of which are closed.

use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use hashbrown::HashMap;
use parking_lot::Mutex;
use smdwidgets_core::source::{Blob, open_files_limit};

/// How many files all caches of the process may keep open together, beyond `FEW` of each: a quarter of what the process may
/// open, so that the training in it is not affected.
static LIMIT: LazyLock<usize> = LazyLock::new(|| open_files_limit() / 4);
/// How many are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// What every cache may keep open.
const FEW: usize = 32;

/// An open file and its key.
pub struct Opened {
    pub blob: Box<dyn Blob>,
    pub key: String,
}

impl Opened {
    /// An open file, which counts as such until it is dropped.
    pub fn new(blob: Box<dyn Blob>, key: String) -> Opened {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Opened { blob, key }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A cache of open files.
pub struct OpenFiles<K> {
    most: usize,
    files: Mutex<Used<K>>,
}

struct Used<K> {
    /// With the time of the last use.
    files: HashMap<K, (Arc<Opened>, u64)>,
    clock: u64,
}

impl<K: Copy + Eq + Hash> OpenFiles<K> {
    /// A cache of at most `most` files.
    pub fn new(most: usize) -> OpenFiles<K> {
        OpenFiles { most: most.max(1), files: Mutex::new(Used { files: HashMap::new(), clock: 0 }) }
    }

    /// Returns a file if it is open.
    pub fn get(&self, which: K) -> Option<Arc<Opened>> {
        let mut used = self.files.lock();
        let Used { files, clock } = &mut *used;
        let (file, last) = files.get_mut(&which)?;
        *clock += 1;
        *last = *clock;
        Some(file.clone())
    }

    /// Adds a file, and closes others if there are too many.
    pub fn add(&self, which: K, file: Arc<Opened>) {
        let mut used = self.files.lock();
        used.clock += 1;
        let now = used.clock;
        let mut closed = vec![used.files.insert(which, (file, now))];
        if used.files.len() > self.allowed() {
            let oldest = used.files.iter().min_by_key(|(_, (_, last))| *last).map(|(which, _)| *which);
            closed.push(oldest.and_then(|which| used.files.remove(&which)));
        }
        // Files are closed outside the lock, which can take time.
        drop(used);
        drop(closed);
    }

    /// Closes all files.
    pub fn clear(&self) {
        let closed = std::mem::take(&mut self.files.lock().files);
        drop(closed);
    }

    /// The number of open files.
    pub fn len(&self) -> usize {
        self.files.lock().files.len()
    }

    fn allowed(&self) -> usize {
        if OPEN.load(Ordering::Relaxed) > *LIMIT { self.most.min(FEW) } else { self.most }
    }
}
