//! The pyramid of a worker's statistics: what a map of all tensors over all steps shows, at every zoom.
//!
//! A series is one tensor in one mode. Bin `k` of level `j` covers the steps `k << j` to `(k + 1) << j`, the end
//! exclusive, and keeps of each measure the minimum, the mean and the maximum as codes, with the number of records and
//! their flags, so that no event of a single step disappears. Bins are stored in tiles: [`BLOCK`] bins of [`GROUP`]
//! series. Beside them are the records that findings are made of. docs/format.md specifies the file.

mod build;
mod file;
mod measure;
mod read;
mod seen;
#[cfg(test)]
mod tests;
mod tile;
mod window;

pub use build::{Extent, Progress, build};
pub use measure::{MEASURES, Record};
pub use read::{Bins, Pyramid, Series, Wanted};

/// The name of the file in the directory of a worker.
pub const FILE: &str = "survey.pyramid";
/// The version of the format.
pub const VERSION: u32 = 2;
/// Bins of a tile.
const BLOCK: usize = 16;
/// Series of a tile.
const GROUP: usize = 256;
/// The lowest level of large runs. Bins of 16 steps are a tenth as large as the statistics.
const BASE: u8 = 4;
/// Records that all levels from the lowest one on may have, before that level rises to [`BASE`].
const FINE: u64 = 2_000_000;
/// Bins of the highest level, at most.
const COARSEST: u64 = 32;
/// The key of a worker's pyramid.
pub fn key(worker: &str) -> String {
    format!("{}/{worker}/{FILE}", super::DIRECTORY)
}
