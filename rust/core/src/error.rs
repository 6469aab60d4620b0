//! What can go wrong, in the words of the problem. Each variant says whether reading may go on.

use std::fmt;
use std::io;

/// A place in the bytes of a run: where a person would put a finger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The file, as a person would name it; empty for bytes that came from memory.
    pub file: String,
    /// Bytes from the start of that file.
    pub offset: u64,
}

impl Place {
    /// A place in a named file.
    pub fn new(file: impl Into<String>, offset: u64) -> Self {
        Place { file: file.into(), offset }
    }

    /// A place in bytes that have no file.
    pub fn memory(offset: u64) -> Self {
        Place { file: String::new(), offset }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file.is_empty() { "<bytes>" } else { &self.file };
        // `escape_debug` keeps control characters of a hostile name out of a terminal.
        write!(f, "{}, byte {}", file.escape_debug(), self.offset)
    }
}

/// The one error of the core.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes end before the thing they began. In a growing file this means "not yet": try again when there is more.
    #[error("{place}: the data ends early: {wanted} bytes needed, {found} there")]
    Truncated {
        /// Where the unfinished thing starts.
        place: Place,
        /// How many bytes it needs.
        wanted: u64,
        /// How many there are.
        found: u64,
    },
    /// The bytes are wrong. This tensor at this step is lost; the next record of the same file may be read.
    #[error("{place}: {what}")]
    Corrupt {
        /// Where the wrong bytes start.
        place: Place,
        /// What is wrong with them.
        what: String,
    },
    /// The bytes are sound but mean something this version can't give. The next record may be read.
    #[error("{place}: {what}")]
    Unsupported {
        /// Where the record starts.
        place: Place,
        /// What it holds.
        what: String,
    },
    /// An index file is not what an index file should be. Other index files may be read.
    #[error("{place}: not a readable index file: {what}")]
    Index {
        /// The index file and how far it made sense.
        place: Place,
        /// What is wrong with it.
        what: String,
    },
    /// A name leads out of the run's directory. Nothing was opened; other entries may be read.
    #[error("{name:?} leads out of the run {root:?}: {what}")]
    OutsideRun {
        /// The run's directory.
        root: String,
        /// The name that leads out.
        name: String,
        /// In what way.
        what: String,
    },
    /// The operating system said no.
    #[error("{file}: {source}", file = file.escape_debug())]
    Io {
        /// The file that was asked for.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The caller asked for something that can't be; nothing was read.
    #[error("{0}")]
    Invalid(String),
    /// The caller's cancel flag was raised. What had been done is kept.
    #[error("cancelled")]
    Cancelled,
}

/// The result of anything in the core.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A file that is to be read whole is larger than any of its kind.
    pub(crate) fn too_large(file: &str) -> Error {
        let source = io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 GiB, and was not read");
        Error::Io { file: file.into(), source }
    }

    /// The same error, of a record that starts `base` bytes into `file`: pure functions speak of offsets in their own slice.
    #[must_use]
    pub fn within(mut self, file: &str, base: u64) -> Self {
        if let Error::Truncated { place, .. }
        | Error::Corrupt { place, .. }
        | Error::Unsupported { place, .. }
        | Error::Index { place, .. } = &mut self
            && place.file.is_empty()
        {
            file.clone_into(&mut place.file);
            place.offset = place.offset.saturating_add(base);
        }
        self
    }
}
