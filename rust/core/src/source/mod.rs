//! Where a run's bytes are: a directory, memory, or whatever else can list names and read ranges.
//!
//! Keys are relative to the run, with `/` between their parts. A key that leads out of the run is refused, whatever the
//! source.
//!
//! Files are read by position, never mapped: whoever else can write to a file can cut it short under a map, which ends the
//! process at the next touch, or change numbers that somebody holds and that were checked.

mod listing;
mod local;
#[cfg(any(test, fuzzing))]
mod memory;
mod watch;

pub use listing::Listing;
pub use local::Local;
#[cfg(any(test, fuzzing))]
pub use memory::Memory;

use std::time::Duration;

use crate::error::Result;

/// A run's files.
pub trait Source: Send + Sync {
    /// What a person would call the run.
    fn root(&self) -> String;

    /// Open a file.
    fn open(&self, key: &str) -> Result<Box<dyn Blob>>;

    /// What is best read in one go.
    fn reach(&self) -> Reach {
        Reach::LOCAL
    }
}

/// Coarsest resolution of file times: FAT and some network file systems round them to two seconds.
pub const FILE_TIME_GRANULARITY: Duration = Duration::from_secs(2);

/// The most bytes of a file that is read whole, as index files are. The index of a step with a million tensors is a fifth of it: what
/// is larger was made to fill the memory of whoever opens the run, and a file with holes takes no disk to do so.
pub const LARGEST_WHOLE: u64 = 1 << 30;

/// How much is best read in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Bytes of one read, which what lies side by side is gathered into.
    pub piece: u64,
    /// Bytes between two records that are read along rather than jumped over.
    pub gap: u64,
}

impl Reach {
    /// Where a read costs microseconds: pieces that stay in a core's cache.
    pub const LOCAL: Reach = Reach { piece: 1 << 20, gap: 32 << 10 };
    /// Where it costs a round trip.
    pub const REMOTE: Reach = Reach { piece: 8 << 20, gap: 1 << 20 };
}

/// An open file.
pub trait Blob: Send + Sync {
    /// Read up to `length` bytes at `offset` into the front of `buffer`, which is made longer where it is too short (but never
    /// longer than there are bytes to read). How many were read: fewer only where the file ends.
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize>;
}

impl Blob for &[u8] {
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = usize::try_from(length).map_or(rest.len(), |length| length.min(rest.len()));
        if buffer.len() < count {
            buffer.resize(count, 0);
        }
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// The parts of a key that stays inside its run; otherwise in what way it leads out.
///
/// Both slashes separate, and drives count, on every system: a run that is harmless here must be harmless elsewhere.
pub fn inside(key: &str) -> Result<impl Iterator<Item = &str>, &'static str> {
    let parts = || key.split(['/', '\\']);
    if key.is_empty() {
        Err("it names no file")
    } else if key.contains('\0') {
        Err("it has a NUL in it")
    } else if key.starts_with(['/', '\\']) {
        Err("it is an absolute path")
    } else if key.as_bytes()[0].is_ascii_alphabetic() && key.as_bytes().get(1) == Some(&b':') {
        Err("it names a drive")
    } else if parts().any(|part| part == "..") {
        Err("it goes up")
    } else {
        Ok(parts().filter(|part| !part.is_empty() && *part != "."))
    }
}

#[cfg(test)]
mod tests;
