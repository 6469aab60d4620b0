//! The error type of the core. Each variant states whether reading can continue.

use std::fmt;
use std::io;

/// A file and a byte offset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// The file; empty for bytes in memory.
    pub file: String,
    /// Offset from the start of the file.
    pub offset: u64,
}

impl Location {
    /// A location in a file.
    pub fn new(file: impl Into<String>, offset: u64) -> Self {
        Location { file: file.into(), offset }
    }

    /// A location in bytes that belong to no file.
    pub fn memory(offset: u64) -> Self {
        Location { file: String::new(), offset }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file.is_empty() { "<bytes>" } else { &self.file };
        // Control characters in a hostile file name must not reach a terminal.
        write!(f, "{}, byte {}", file.escape_debug(), self.offset)
    }
}

/// An error of the core.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data ends inside a record or message. In a growing file: retry when there is more.
    #[error("{location}: truncated data: expected {needed} bytes, got {found}")]
    Truncated {
        /// Where the incomplete item starts.
        location: Location,
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        found: u64,
    },
    /// The bytes are invalid. This tensor at this step is lost; the next record of the file can be read.
    #[error("{location}: {what}")]
    Corrupt {
        /// Where the invalid bytes start.
        location: Location,
        /// The fault.
        what: String,
    },
    /// The bytes are valid, but this version does not support their content. The next record can be read.
    #[error("{location}: {what}")]
    Unsupported {
        /// Where the record starts.
        location: Location,
        /// The unsupported content.
        what: String,
    },
    /// An index file is malformed. Other index files can be read.
    #[error("{location}: invalid index file: {what}")]
    Index {
        /// The index file, and the offset of the fault.
        location: Location,
        /// The fault.
        what: String,
    },
    /// A key points outside the run's directory. No file was opened; other entries can be read.
    #[error("key {name:?} points outside the run {root:?}: {what}")]
    OutsideRun {
        /// The run's directory.
        root: String,
        /// The key.
        name: String,
        /// The reason.
        what: String,
    },
    /// The operating system reported an error.
    #[error("{file}: {source}", file = file.escape_debug())]
    Io {
        /// The file.
        file: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// Invalid arguments; no data was read.
    #[error("{0}")]
    Invalid(String),
    /// The operation was cancelled. Completed work is kept.
    #[error("cancelled")]
    Cancelled,
}

/// The result type of the core.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error for a file that exceeds the limit for reading whole files.
    pub(crate) fn too_large(file: &str) -> Error {
        let source = io::Error::new(io::ErrorKind::FileTooLarge, "file is larger than 1 GiB");
        Error::Io { file: file.into(), source }
    }

    /// Adds a file and a base offset to an error of a function that only knows a slice.
    #[must_use]
    pub fn within(mut self, file: &str, base: u64) -> Self {
        if let Error::Truncated { location, .. }
        | Error::Corrupt { location, .. }
        | Error::Unsupported { location, .. }
        | Error::Index { location, .. } = &mut self
            && location.file.is_empty()
        {
            file.clone_into(&mut location.file);
            location.offset = location.offset.saturating_add(base);
        }
        self
    }
}
