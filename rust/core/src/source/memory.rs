//! A run in memory, for tests and fuzzing.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::{Blob, Source, inside};
use crate::error::{Error, Result};

/// Files by key.
#[derive(Default, Clone)]
pub struct Memory {
    files: BTreeMap<String, Arc<[u8]>>,
}

impl Memory {
    /// Adds a file.
    pub fn insert(&mut self, key: impl Into<String>, bytes: impl Into<Arc<[u8]>>) {
        self.files.insert(key.into(), bytes.into());
    }

    /// Removes a file.
    pub fn remove(&mut self, key: &str) {
        self.files.remove(key);
    }
}

impl Source for Memory {
    fn root(&self) -> String {
        "<memory>".into()
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        if let Err(what) = inside(key) {
            return Err(Error::OutsideRun { root: self.root(), name: key.into(), what: what.into() });
        }
        let missing = || Error::Io { file: key.into(), source: io::ErrorKind::NotFound.into() };
        Ok(Box::new(self.files.get(key).ok_or_else(missing)?.clone()))
    }
}

impl Blob for Arc<[u8]> {
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        (&**self).read_at(offset, length, buffer)
    }
}
