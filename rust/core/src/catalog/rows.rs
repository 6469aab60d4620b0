//! The entries of all index files as columns. The rows of a file are contiguous and sorted by tensor and kind.

use std::ops::Range;

use super::keys::Kind;
use super::sorted::reserve;

const HAS_CRC: u8 = 0x80;

/// An entry. For a shape, `offset` is the number of the shape and `length` that of the framework's name. For a shard, `offset`
/// is the number of its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRow {
    pub name: u32,
    pub kind: Kind,
    pub offset: u64,
    pub length: u64,
    pub crc: Option<u32>,
}

/// The columns.
#[derive(Default)]
pub struct EntryTable {
    names: Vec<u32>,
    kinds: Vec<u8>,
    offsets: Vec<u64>,
    lengths: Vec<u64>,
    /// Empty while no entry has a checksum, as in runs of smdebug.
    crcs: Vec<u32>,
}

impl EntryTable {
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn get(&self, at: usize) -> EntryRow {
        let kind = self.kinds[at];
        EntryRow {
            name: self.names[at],
            kind: Kind(kind & !HAS_CRC),
            offset: self.offsets[at],
            length: self.lengths[at],
            crc: (kind & HAS_CRC != 0).then(|| self.crcs[at]),
        }
    }

    pub fn names(&self, range: Range<usize>) -> &[u32] {
        &self.names[range]
    }

    /// The rows of a tensor in a range.
    pub fn of(&self, range: Range<usize>, name: u32) -> impl Iterator<Item = EntryRow> + '_ {
        let start = range.start + self.names[range.clone()].partition_point(|other| *other < name);
        (start..range.end).take_while(move |at| self.names[*at] == name).map(|at| self.get(at))
    }

    /// The row of a tensor and kind in a range.
    pub fn find(&self, range: Range<usize>, name: u32, kind: Kind) -> Option<EntryRow> {
        self.of(range, name).find(|row| row.kind == kind)
    }

    /// Appends rows and returns the index of the first.
    pub fn push(&mut self, rows: &[EntryRow]) -> usize {
        let start = self.len();
        reserve(&mut self.names, rows.len());
        reserve(&mut self.kinds, rows.len());
        reserve(&mut self.offsets, rows.len());
        reserve(&mut self.lengths, rows.len());
        if !self.crcs.is_empty() || rows.iter().any(|row| row.crc.is_some()) {
            let more = start + rows.len() - self.crcs.len();
            reserve(&mut self.crcs, more);
            self.crcs.resize(start, 0);
            self.crcs.extend(rows.iter().map(|row| row.crc.unwrap_or(0)));
        }
        self.names.extend(rows.iter().map(|row| row.name));
        self.kinds.extend(rows.iter().map(|row| row.kind.0 | if row.crc.is_some() { HAS_CRC } else { 0 }));
        self.offsets.extend(rows.iter().map(|row| row.offset));
        self.lengths.extend(rows.iter().map(|row| row.length));
        start
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.names.capacity() * 4
            + self.kinds.capacity()
            + (self.offsets.capacity() + self.lengths.capacity()) * 8
            + self.crcs.capacity() * 4
    }
}
