//! Small values that were asked for lately: made into arrays once, handed out as fresh views.
//!
//! Such a value is a copy of a few numbers in memory of its own. Asking for it again costs no look at its file, and a view of
//! it stays sound whatever becomes of the file.

use hashbrown::HashMap;
use parking_lot::Mutex;
use pyo3::prelude::*;
use smdwidgets_core::checked::Promise;

/// Contents up to this size count as small.
pub const SMALL: usize = 4 << 10;

/// Bytes of one generation of values, with what is spent around each of them.
const GENERATION: usize = 4 << 20;
const AROUND: usize = 512;

/// Which record: a file's key, and where it starts.
type Place<K> = (K, u64);

struct Value {
    tensor: Box<str>,
    length: u64,
    crc: Option<u32>,
    array: Py<PyAny>,
}

/// The values of two generations: when the young one is full the old one goes.
pub struct Recent<K> {
    generations: Mutex<Generations<K>>,
}

struct Generations<K> {
    young: HashMap<Place<K>, Value>,
    old: HashMap<Place<K>, Value>,
    size: usize,
}

impl<K: Copy + Eq + std::hash::Hash> Recent<K> {
    /// None yet.
    pub fn new() -> Recent<K> {
        let (young, old) = (HashMap::new(), HashMap::new());
        Recent { generations: Mutex::new(Generations { young, old, size: 0 }) }
    }

    /// The value of a record, if it is here and was promised in the same way.
    pub fn get<'py>(&self, py: Python<'py>, place: Place<K>, promise: &Promise<'_>) -> Option<Bound<'py, PyAny>> {
        let mut generations = self.generations.lock();
        if !generations.young.contains_key(&place) {
            let value = generations.old.remove(&place)?;
            generations.young.insert(place, value);
        }
        let value = generations.young.get(&place)?;
        let same = (value.length, value.crc) == (promise.length, promise.crc) && *value.tensor == *promise.tensor;
        same.then(|| value.array.bind(py).clone())
    }

    /// Keep the value of a record.
    pub fn put(&self, place: Place<K>, promise: &Promise<'_>, size: usize, array: &Bound<'_, PyAny>) {
        let value = Value {
            tensor: promise.tensor.into(),
            length: promise.length,
            crc: promise.crc,
            array: array.clone().unbind(),
        };
        let mut generations = self.generations.lock();
        generations.size += size + AROUND + promise.tensor.len();
        generations.young.insert(place, value);
        let mut gone = HashMap::new();
        if generations.size > GENERATION {
            generations.size = 0;
            let young = std::mem::take(&mut generations.young);
            gone = std::mem::replace(&mut generations.old, young);
        }
        // Python's part in their end is not under the lock.
        drop(generations);
        drop(gone);
    }

    /// Let go of all.
    pub fn clear(&self) {
        let mut generations = self.generations.lock();
        generations.size = 0;
        let gone = (std::mem::take(&mut generations.young), std::mem::take(&mut generations.old));
        drop(generations);
        drop(gone);
    }
}
