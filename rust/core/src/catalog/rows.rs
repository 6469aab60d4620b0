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

/// Offsets or lengths: four bytes each until one needs eight.
enum Sizes {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes::Narrow(Vec::new())
    }
}

impl Sizes {
    fn get(&self, at: usize) -> u64 {
        match self {
            Sizes::Narrow(list) => list[at].into(),
            Sizes::Wide(list) => list[at],
        }
    }

    fn extend(&mut self, more: impl ExactSizeIterator<Item = u64> + Clone) {
        if let Sizes::Narrow(list) = self {
            if more.clone().all(|size| u32::try_from(size).is_ok()) {
                reserve(list, more.len());
                list.extend(more.map(|size| size as u32));
                return;
            }
            *self = Sizes::Wide(list.iter().map(|size| u64::from(*size)).collect());
        }
        if let Sizes::Wide(list) = self {
            reserve(list, more.len());
            list.extend(more);
        }
    }

    fn memory(&self) -> usize {
        match self {
            Sizes::Narrow(list) => list.capacity() * 4,
            Sizes::Wide(list) => list.capacity() * 8,
        }
    }
}

/// The columns.
#[derive(Default)]
pub struct EntryTable {
    names: Vec<u32>,
    kinds: Vec<u8>,
    offsets: Sizes,
    lengths: Sizes,
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
            offset: self.offsets.get(at),
            length: self.lengths.get(at),
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
            + self.offsets.memory()
            + self.lengths.memory()
            + self.crcs.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_beyond_four_gigabytes_are_kept_among_others() {
        let row = |offset, length| EntryRow { name: 1, kind: Kind::VALUE, offset, length, crc: Some(7) };
        let mut table = EntryTable::default();
        let rows =
            [row(0, 5), row(5, 9), row(14, u64::from(u32::MAX) + 1), row(u64::from(u32::MAX) + 15, 3), row(1, 2)];
        for (at, row) in rows.iter().enumerate() {
            let before = table.memory();
            assert_eq!(table.push(&[*row]), at);
            assert!(table.memory() > before);
        }
        for (at, row) in rows.iter().enumerate() {
            assert_eq!(table.get(at), *row);
        }
    }
}
