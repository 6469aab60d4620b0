//! Files of W&B runs: protobuf messages in the framing of LevelDB's logs. History is read into columns.
//!
//! The caller gives pieces of a file in order, and takes the rows that they held. Damaged blocks are skipped and noted.

mod frames;
mod history;
mod reader;
#[cfg(test)]
mod tests;

pub use frames::BLOCK;
pub use history::{Batch, Column, Fact, Places, Rows};
pub use reader::{Damage, LARGEST_RECORD, Reader, value_parts};
