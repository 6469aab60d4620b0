//! Access to a run's files: a directory, or any backend that can read byte ranges.
//!
//! Keys are relative to the run, with `/` as separator. A key that points outside the run is rejected by every source.
//!
//! Files are read by position, not mapped: another process could truncate a mapped file, which kills this process on the
//! next access, or change values that were already verified.

mod listing;
mod local;
#[cfg(any(test, fuzzing))]
mod memory;
mod watch;

pub use listing::Listing;
pub use local::{Local, open_files_limit};
#[cfg(any(test, fuzzing))]
pub use memory::Memory;

use std::time::Duration;

use crate::error::Result;

/// The files of a run.
pub trait Source: Send + Sync {
    /// The name of the run in error messages.
    fn root(&self) -> String;

    /// Opens a file.
    fn open(&self, key: &str) -> Result<Box<dyn Blob>>;

    /// The preferred read sizes.
    fn reach(&self) -> Reach {
        Reach::LOCAL
    }

    /// How many reads wait at the same time; `None` if a read takes no longer than computing on its bytes.
    fn reads_at_once(&self) -> Option<usize> {
        None
    }

    /// Ends reads that wait, with an error: their results are not needed any more.
    fn cancel_reads(&self) {}
}

/// Coarsest resolution of file times: FAT and some network file systems round them to two seconds.
pub const FILE_TIME_GRANULARITY: Duration = Duration::from_secs(2);

/// The size limit of files that are read whole, such as index files. The index of a step with a million tensors takes a
/// fifth of it. Larger files are likely made to exhaust memory; sparse ones take no disk space.
pub const LARGEST_WHOLE: u64 = 1 << 30;

/// Preferred read sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Size of one read; adjacent records are merged up to this size.
    pub piece: u64,
    /// Gaps up to this size are read rather than skipped.
    pub gap: u64,
}

impl Reach {
    /// For reads of microseconds: pieces that fit in a core's cache.
    pub const LOCAL: Reach = Reach { piece: 1 << 20, gap: 32 << 10 };
    /// For reads that take a network round trip.
    pub const REMOTE: Reach = Reach { piece: 8 << 20, gap: 1 << 20 };
}

/// An open file.
pub trait Blob: Send + Sync {
    /// Reads up to `length` bytes at `offset` into the front of `buffer`, which grows as needed, above 64 KiB never beyond
    /// the available bytes. Returns the number of bytes read, which is smaller only at the end of the file.
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

/// Splits a key into its parts, or returns why it points outside the run.
///
/// Both slashes separate and drive letters are rejected on every system, so that a run is equally safe everywhere.
pub fn inside(key: &str) -> Result<impl Iterator<Item = &str>, &'static str> {
    let parts = || key.split(['/', '\\']);
    if key.is_empty() {
        Err("the key is empty")
    } else if key.contains('\0') {
        Err("it contains a NUL character")
    } else if key.starts_with(['/', '\\']) {
        Err("it is an absolute path")
    } else if key.as_bytes()[0].is_ascii_alphabetic() && key.as_bytes().get(1) == Some(&b':') {
        Err("it contains a drive letter")
    } else if parts().any(|part| part == "..") {
        Err("it contains '..'")
    } else {
        Ok(parts().filter(|part| !part.is_empty() && *part != "."))
    }
}

#[cfg(test)]
mod tests;
