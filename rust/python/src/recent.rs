//! A cache of recent values: verified arrays, returned as copies.
//!
//! A rule that compares each step with the previous one reads every value twice, and users run cells again. A repeated read
//! takes no file access.

use hashbrown::HashMap;
use parking_lot::Mutex;
use pyo3::prelude::*;
use smdwidgets_core::checked::ExpectedRecord;

/// Contents up to this size are cached even where the caller will not ask for them again.
pub const SMALL: usize = 4 << 10;

/// Contents up to this size are cached. For larger ones a copy costs almost as much as reading the file again (from the page
/// cache), and the first read would pay for both.
pub const LARGEST_CACHED: usize = 64 << 10;

/// Bytes per generation of values, and overhead per value.
const GENERATION: usize = 8 << 20;
const OVERHEAD: usize = 512;

/// A record: file and offset.
type RecordKey<K> = (K, u64);

struct Value {
    tensor: Box<str>,
    length: u64,
    crc: Option<u32>,
    array: Py<PyAny>,
    size: usize,
}

/// The values of two generations: when the young one is full, the old one is dropped.
pub struct Recent<K> {
    generations: Mutex<Generations<K>>,
}

struct Generations<K> {
    young: HashMap<RecordKey<K>, Value>,
    old: HashMap<RecordKey<K>, Value>,
    /// Size of the young generation.
    size: usize,
}

impl<K: Copy + Eq + std::hash::Hash> Generations<K> {
    /// Adds to the young generation. Returns evicted values, which must be dropped outside the lock because that can run
    /// Python code.
    fn add(&mut self, key: RecordKey<K>, value: Value) -> (Option<Value>, HashMap<RecordKey<K>, Value>) {
        self.size += value.size;
        let replaced = self.young.insert(key, value);
        self.size -= replaced.as_ref().map_or(0, |value| value.size);
        let mut evicted = HashMap::new();
        if self.size > GENERATION {
            self.size = 0;
            evicted = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        }
        (replaced, evicted)
    }
}

impl<K: Copy + Eq + std::hash::Hash> Recent<K> {
    /// An empty cache.
    pub fn new() -> Recent<K> {
        let (young, old) = (HashMap::new(), HashMap::new());
        Recent { generations: Mutex::new(Generations { young, old, size: 0 }) }
    }

    /// The cached value of a record, if it was expected to have the same length and checksum.
    pub fn get<'py>(
        &self,
        py: Python<'py>,
        key: RecordKey<K>,
        expected: &ExpectedRecord<'_>,
    ) -> Option<Bound<'py, PyAny>> {
        let same = |value: &Value| {
            let same =
                (value.length, value.crc) == (expected.length, expected.crc) && *value.tensor == *expected.tensor;
            same.then(|| value.array.bind(py).clone())
        };
        let mut generations = self.generations.lock();
        if let Some(value) = generations.young.get(&key) {
            return same(value);
        }
        let value = generations.old.remove(&key)?;
        let found = same(&value);
        let evicted = generations.add(key, value);
        drop(generations);
        drop(evicted);
        found
    }

    /// Caches a value.
    pub fn put(&self, key: RecordKey<K>, expected: &ExpectedRecord<'_>, size: usize, array: &Bound<'_, PyAny>) {
        let value = Value {
            tensor: expected.tensor.into(),
            length: expected.length,
            crc: expected.crc,
            array: array.clone().unbind(),
            size: size + OVERHEAD + expected.tensor.len(),
        };
        let evicted = self.generations.lock().add(key, value);
        drop(evicted);
    }

    /// Removes all values.
    pub fn clear(&self) {
        let mut generations = self.generations.lock();
        generations.size = 0;
        let evicted = (std::mem::take(&mut generations.young), std::mem::take(&mut generations.old));
        drop(generations);
        drop(evicted);
    }
}
