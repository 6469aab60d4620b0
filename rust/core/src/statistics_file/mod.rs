//! Statistics files: the statistics of a run's tensors at every step, one growing Arrow stream per worker.
//!
//! A segment is three files: an Arrow IPC stream with zstd-compressed record batches, a commit file with a fixed-size record
//! per batch, and the names of the tensors. A batch counts once its commit record is complete; what follows the last one
//! is ignored. docs/format.md specifies all of them.

mod arrow;
mod commit;
mod flatbuffer;
mod name;
pub mod pyramid;
mod reader;
mod round;
mod segment;
mod segment_index;
#[cfg(test)]
mod tests;
mod writer;

pub use arrow::{decode_batch, encode_batch, is_schema, schema};
pub use commit::{COMMIT_SIZE, Commit};
pub use name::Name;
pub use reader::{Covered, Dropped, Found, Reader, Scanned, Selection};
pub use round::as_stored;
pub use writer::{Limits, StatisticsWriter};
pub use zstd::bulk::{Compressor, Decompressor};

use crate::statistics::Statistics;
use crate::step::{Mode, Step};

/// The directory of a run that has the statistics, with one directory per worker.
pub const DIRECTORY: &str = "statistics";
/// The version in the metadata of the schema.
pub const VERSION: &str = "1";
/// The end of an Arrow stream.
pub const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Limit on the rows of a batch, so that a small file cannot decompress to more than a hundred megabytes.
pub const MAX_ROWS: usize = 1 << 20;
/// Limit on the size of a batch.
pub const MAX_BLOCK: u64 = 256 << 20;

/// The reasons why numbers of a row are NaN.
pub mod flags {
    /// The tensor had no value at this step.
    pub const ABSENT: u16 = 1;
    /// The step was not an update, such as one that a gradient scaler skipped.
    pub const SKIPPED: u16 = 2;
    /// The numbers are of a sample of the elements.
    pub const SAMPLED: u16 = 4;
    /// Reading the tensor failed.
    pub const FAILED: u16 = 8;
}

/// A row: the statistics of one tensor at one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The global step.
    pub step: Step,
    /// The mode.
    pub mode: Mode,
    /// The step of the mode.
    pub mode_step: Step,
    /// The number of the tensor in its segment.
    pub tensor: u32,
    /// See [`flags`].
    pub flags: u16,
    /// The numbers. A file does not store `l2` and `abs_max`, which are derived when it is read.
    pub statistics: Statistics,
}
