//! Commit records: each states that a batch and the names it needs are complete.

use std::ops::RangeInclusive;

use crate::crc::crc32c;
use crate::step::Step;

/// The size of a commit record.
pub const COMMIT_SIZE: usize = 48;

/// A commit record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Commit {
    /// Offset of the batch in the stream.
    pub offset: u64,
    /// Size of the batch.
    pub length: u32,
    /// CRC32C of the batch.
    pub crc: u32,
    /// First global step of the batch, or `u32::MAX` if it is larger.
    pub first: u32,
    /// Last global step of the batch, or `u32::MAX` if it is at least that.
    pub last: u32,
    /// Rows of the batch.
    pub rows: u32,
    /// Size of the names file that the batch needs.
    pub names_length: u32,
    /// When it was written, in Unix seconds.
    pub time: f64,
}

impl Commit {
    /// The bytes of the record.
    pub fn encode(&self) -> [u8; COMMIT_SIZE] {
        let mut bytes = [0; COMMIT_SIZE];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        let numbers = [self.length, self.crc, self.first, self.last, self.rows, self.names_length];
        bytes[8..32].copy_from_slice(numbers.map(u32::to_le_bytes).as_flattened());
        bytes[32..40].copy_from_slice(&self.time.to_le_bytes());
        let crc = crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The record in these bytes; `None` if its checksum is wrong.
    pub fn decode(bytes: &[u8; COMMIT_SIZE]) -> Option<Commit> {
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        (crc32c(&bytes[..44]) == number(44)).then(|| Commit {
            offset: long(0),
            length: number(8),
            crc: number(12),
            first: number(16),
            last: number(20),
            rows: number(24),
            names_length: number(28),
            time: f64::from_bits(long(32)),
        })
    }

    /// The steps that the batch may have rows of.
    pub fn steps(&self) -> RangeInclusive<Step> {
        self.first.into()..=if self.last == u32::MAX { Step::MAX } else { self.last.into() }
    }
}
