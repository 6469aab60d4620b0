//! The entries of all index files. Those of a file are a section, sorted by tensor and kind.
//!
//! Most files of a run have the same tensors, in records of the same lengths at the same places. Sections share these
//! lists, so that a record of such a run takes the four bytes of its checksum.

use super::FileId;
use super::keys::Kind;
use super::lists::Lists;
use super::sorted::reserve;

const HAS_CRC: u8 = 0x80;
/// The places of a section that need more than 32 bits.
const WIDE: u32 = 1 << 31;
/// Checksums are counted up to each row of this number.
const STRIDE: usize = 256;

/// The number of a section.
pub type SectionId = u32;

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

/// The rows of a file.
#[derive(Clone, Copy)]
struct Section {
    names: u32,
    kinds: u32,
    places: u32,
    /// The first of its checksums.
    crcs: u32,
    /// The lowest offset of its records, from which theirs are counted.
    base: u64,
}

/// The sections.
#[derive(Default)]
pub struct EntryTable {
    sections: Vec<Section>,
    names: Lists<u32>,
    /// Kinds, with `HAS_CRC`.
    kinds: Lists<u8>,
    /// For each list of kinds, the number of checksums before every `STRIDE`th row.
    ranks: Vec<Box<[u32]>>,
    /// Offsets and lengths.
    narrow: Lists<(u32, u32)>,
    wide: Lists<(u64, u64)>,
    crcs: Vec<u32>,
    /// For each list of names, the files that have it.
    files: Vec<Vec<FileId>>,
    /// For each name, the lists that contain it.
    lists: Vec<Vec<u32>>,
    /// The number of rows.
    len: usize,
}

impl EntryTable {
    /// The number of rows, also of sections that were replaced.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of rows of a section.
    pub fn len_of(&self, section: SectionId) -> usize {
        self.names(section).len()
    }

    /// The tensor of each row of a section.
    pub fn names(&self, section: SectionId) -> &[u32] {
        self.names.get(self.sections[section as usize].names)
    }

    /// The rows of a section.
    pub fn rows(&self, section: SectionId) -> impl Iterator<Item = EntryRow> + '_ {
        self.from(section, 0)
    }

    /// The rows of a tensor in a section.
    pub fn of(&self, section: SectionId, name: u32) -> impl Iterator<Item = EntryRow> + '_ {
        let start = self.names(section).partition_point(|other| *other < name);
        self.from(section, start).take_while(move |row| row.name == name)
    }

    /// The row of a tensor and kind in a section.
    pub fn find(&self, section: SectionId, name: u32, kind: Kind) -> Option<EntryRow> {
        self.of(section, name).find(|row| row.kind == kind)
    }

    fn from(&self, section: SectionId, start: usize) -> impl Iterator<Item = EntryRow> + '_ {
        let Section { names, kinds, places, crcs, base } = self.sections[section as usize];
        let names = &self.names.get(names)[start..];
        let mut crc = crcs as usize + self.crcs_before(kinds, start);
        let of_rows = names.iter().zip(&self.kinds.get(kinds)[start..]);
        of_rows.zip(start..).map(move |((name, flagged), at)| {
            let kind = Kind(flagged & !HAS_CRC);
            let (offset, length) = self.place(places, at);
            let offset = if kind.is_record() { base + offset } else { offset };
            let has_crc = flagged & HAS_CRC != 0;
            crc += usize::from(has_crc);
            EntryRow { name: *name, kind, offset, length, crc: has_crc.then(|| self.crcs[crc - 1]) }
        })
    }

    fn place(&self, places: u32, at: usize) -> (u64, u64) {
        if places & WIDE != 0 {
            return self.wide.get(places & !WIDE)[at];
        }
        let (offset, length) = self.narrow.get(places)[at];
        (offset.into(), length.into())
    }

    /// The number of checksums before a row, which may be the end.
    fn crcs_before(&self, kinds: u32, at: usize) -> usize {
        let Some(rank) = self.ranks[kinds as usize].get(at / STRIDE) else { return 0 };
        *rank as usize + count_crcs(&self.kinds.get(kinds)[at / STRIDE * STRIDE..at])
    }

    /// Appends the rows of a file. `None` if there are too many.
    pub fn push(&mut self, file: FileId, rows: &[EntryRow]) -> Option<SectionId> {
        let section = SectionId::try_from(self.sections.len()).ok()?;
        let flag = |row: &EntryRow| row.kind.0 | if row.crc.is_some() { HAS_CRC } else { 0 };
        let names = self.names.intern(&rows.iter().map(|row| row.name).collect::<Vec<_>>())?;
        let kinds = self.kinds.intern(&rows.iter().map(flag).collect::<Vec<_>>())?;
        if kinds as usize == self.ranks.len() {
            let mut before = 0;
            let rank = |part: &[u8]| {
                let after = before + count_crcs(part) as u32;
                std::mem::replace(&mut before, after)
            };
            self.ranks.push(self.kinds.get(kinds).chunks(STRIDE).map(rank).collect());
        }
        let offsets = rows.iter().filter(|row| row.kind.is_record()).map(|row| row.offset);
        let base = offsets.min().unwrap_or_default();
        let place = |row: &EntryRow| (row.offset - if row.kind.is_record() { base } else { 0 }, row.length);
        let is_narrow = |(offset, length): (u64, u64)| offset.max(length) <= u32::MAX.into();
        let places = if rows.iter().map(place).all(is_narrow) {
            let narrow = rows.iter().map(place).map(|(offset, length)| (offset as u32, length as u32));
            self.narrow.intern(&narrow.collect::<Vec<_>>()).filter(|places| *places < WIDE)?
        } else {
            self.wide.intern(&rows.iter().map(place).collect::<Vec<_>>()).filter(|places| *places < WIDE)? | WIDE
        };
        let crcs = u32::try_from(self.crcs.len()).ok()?;
        reserve(&mut self.crcs, rows.iter().filter(|row| row.crc.is_some()).count());
        self.crcs.extend(rows.iter().filter_map(|row| row.crc));
        self.add_file(names, file);
        self.len += rows.len();
        reserve(&mut self.sections, 1);
        self.sections.push(Section { names, kinds, places, crcs, base });
        Some(section)
    }

    fn add_file(&mut self, names: u32, file: FileId) {
        if names as usize == self.files.len() {
            self.files.push(Vec::new());
            let EntryTable { names: known, lists, .. } = self;
            for group in known.get(names).chunk_by(|a, b| a == b) {
                let name = group[0] as usize;
                if lists.len() <= name {
                    reserve(lists, name + 1 - lists.len());
                    lists.resize(name + 1, Vec::new());
                }
                reserve(&mut lists[name], 1);
                lists[name].push(names);
            }
        }
        let files = &mut self.files[names as usize];
        reserve(files, 1);
        files.push(file);
    }

    /// Leaves a file out of those of its tensors. Its rows stay.
    pub fn leave_out(&mut self, section: SectionId, file: FileId) {
        self.files[self.sections[section as usize].names as usize].retain(|other| *other != file);
    }

    /// The files that have a tensor, grouped by the tensors that they have.
    pub fn files_of(&self, name: u32) -> impl Iterator<Item = &[FileId]> + '_ {
        let lists = self.lists.get(name as usize).into_iter().flatten();
        lists.map(|list| self.files[*list as usize].as_slice())
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.sections.capacity() * size_of::<Section>()
            + self.names.memory()
            + self.kinds.memory()
            + self.ranks.iter().map(|ranks| size_of_val(ranks) + ranks.len() * 4).sum::<usize>()
            + self.narrow.memory()
            + self.wide.memory()
            + self.crcs.capacity() * 4
            + memory_of(&self.files)
            + memory_of(&self.lists)
    }
}

fn memory_of(lists: &Vec<Vec<u32>>) -> usize {
    lists.capacity() * size_of::<Vec<u32>>() + lists.iter().map(|list| list.capacity() * 4).sum::<usize>()
}

fn count_crcs(kinds: &[u8]) -> usize {
    kinds.iter().filter(|kind| **kind & HAS_CRC != 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(name: u32, kind: Kind, offset: u64, length: u64, crc: Option<u32>) -> EntryRow {
        EntryRow { name, kind, offset, length, crc }
    }

    #[test]
    fn files_with_the_same_tensors_share_all_but_checksums() {
        let mut table = EntryTable::default();
        let of_file = |file: u32| -> Vec<EntryRow> {
            let value = |name| row(name, Kind::VALUE, u64::from(file * 100_000 + name * 70), 70, Some(file ^ name));
            (0..1000).flat_map(|name| [value(name), row(name, Kind::SHAPE, 3, name.into(), None)]).collect()
        };
        for file in 0..1000 {
            assert_eq!(table.push(file, &of_file(file)), Some(file));
        }
        for file in [0, 7, 999] {
            assert!(table.rows(file).eq(of_file(file)));
            assert_eq!(table.find(file, 500, Kind::VALUE), Some(of_file(file)[1000]));
        }
        let records = 1_000_000;
        assert!(table.memory() < 5 * records, "{} bytes", table.memory());
    }

    #[test]
    fn entries_beyond_four_gigabytes_are_kept_among_others() {
        let far = u64::from(u32::MAX);
        let rows = [
            row(1, Kind::VALUE, far, 9, Some(7)),
            row(2, Kind::VALUE, 14, far + 1, None),
            row(3, Kind::VALUE, 2 * far + 15, 3, Some(2)),
            row(3, Kind::SHAPE, 5, 3, None),
        ];
        let mut table = EntryTable::default();
        assert_eq!(table.push(0, &rows), Some(0));
        assert_eq!(table.push(1, &rows[2..]), Some(1));
        assert!(table.rows(0).eq(rows) && table.rows(1).eq(rows[2..].iter().copied()));
    }

    #[test]
    fn a_file_is_left_out() {
        let mut table = EntryTable::default();
        let both = [row(1, Kind::VALUE, 0, 1, None), row(4, Kind::VALUE, 1, 1, None)];
        for (file, rows) in [(8, &both[..]), (9, &both[..1]), (10, &both[..])] {
            table.push(file, rows);
        }
        assert_eq!(table.files_of(1).collect::<Vec<_>>(), [&[8, 10][..], &[9]]);
        table.leave_out(2, 10);
        table.leave_out(1, 9);
        assert_eq!(table.files_of(1).collect::<Vec<_>>(), [&[8][..], &[]]);
        assert_eq!(table.files_of(4).collect::<Vec<_>>(), [&[8]]);
        assert_eq!(table.files_of(2).count() + table.files_of(99).count(), 0);
    }

    proptest! {
        #[test]
        fn rows_are_those_that_were_pushed(
            sections in prop::collection::vec(prop::collection::vec((0..600u32, 0..40u64, 0..3u64, any::<Option<u32>>()), 0..700), 1..6),
        ) {
            let mut table = EntryTable::default();
            let mut expected = Vec::new();
            for (file, rows) in sections.into_iter().enumerate() {
                let mut rows: Vec<EntryRow> = rows
                    .into_iter()
                    .map(|(name, offset, length, crc)| row(name, if crc.is_none() { Kind::SHAPE } else { Kind::VALUE }, offset << 30, length, crc))
                    .collect();
                rows.sort_by_key(|row| (row.name, row.kind));
                rows.dedup_by_key(|row| (row.name, row.kind));
                prop_assert_eq!(table.push(file as FileId, &rows), Some(file as SectionId));
                expected.push(rows);
            }
            for (file, rows) in expected.iter().enumerate() {
                prop_assert!(table.rows(file as SectionId).eq(rows.iter().copied()));
                for row in rows {
                    prop_assert_eq!(table.find(file as SectionId, row.name, row.kind), Some(*row));
                }
            }
        }
    }
}
