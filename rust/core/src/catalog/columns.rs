//! A catalog as bytes, for another process: columns that compress well, and are checked when they are read.
//!
//! Numbers are little-endian. Steps, names and offsets are stored as differences from what the row before suggests, which
//! makes the columns of a regular run constant. The last four bytes are a CRC32C.

use std::collections::HashMap;

use super::keys::{Kind, display_worker, parse_key};
use super::rows::EntryRow;
use super::sorted::reserve;
use super::{Catalog, File, FileId, State, too_many};
use crate::crc::crc32c;
use crate::error::{Error, Location, Result};
use crate::proto::MAX_RANK;
use crate::step::{Mode, Step};

const MAGIC: [u8; 8] = *b"SMDCAT\x01\n";
const HAS_CRC: u8 = 0x80;

// ------------------------------------------------------------------------------------------------------------- writing

#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u32s(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.0.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
    }

    fn u64s(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.0.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    }

    fn texts(&mut self, texts: &[&str]) {
        self.u32s([texts.len() as u32]);
        self.u32s(texts.iter().map(|text| text.len() as u32));
        texts.iter().for_each(|text| self.0.extend_from_slice(text.as_bytes()));
    }

    /// Texts of some files.
    fn notes(&mut self, mut notes: Vec<(u32, &str)>) {
        notes.sort_unstable();
        self.texts(&notes.iter().map(|(_, text)| *text).collect::<Vec<_>>());
        self.u32s(notes.iter().map(|(file, _)| *file));
    }
}

/// New consecutive numbers for those of a table that are used, in their order.
struct Renumbered(Vec<u32>);

impl Renumbered {
    fn new(count: usize, used: impl IntoIterator<Item = u32>) -> Renumbered {
        let mut numbers = vec![u32::MAX; count];
        used.into_iter().for_each(|id| numbers[id as usize] = 0);
        let used = numbers.iter_mut().filter(|number| **number == 0);
        used.zip(0..).for_each(|(number, next)| *number = next);
        Renumbered(numbers)
    }

    fn of(&self, id: u64) -> u32 {
        usize::try_from(id).ok().and_then(|id| self.0.get(id)).copied().unwrap_or(u32::MAX)
    }

    fn used(&self) -> impl Iterator<Item = u32> {
        (0..self.0.len() as u32).filter(|id| self.0[*id as usize] != u32::MAX)
    }
}

impl Catalog {
    /// The catalog, or the part of it that belongs to some tensors and steps, as bytes for [`Catalog::from_columns`].
    pub fn to_columns(&self, names: Option<&[String]>, steps: Option<&[Step]>) -> Vec<u8> {
        let files: Vec<FileId> = match steps {
            None => self.order.clone(),
            Some(steps) => {
                let mut steps = steps.to_vec();
                steps.sort_unstable();
                steps.dedup();
                steps.iter().flat_map(|step| self.at_step(*step)).copied().collect()
            }
        };
        let mut wanted: Option<Vec<u32>> = None;
        if let Some(names) = names {
            let mut ids: Vec<u32> = names.iter().filter_map(|name| self.names.find(name)).collect();
            ids.sort_unstable();
            ids.dedup();
            wanted = Some(ids);
        }
        let mut counts = Vec::with_capacity(files.len());
        let mut rows: Vec<EntryRow> = Vec::new();
        for file in &files {
            let before = rows.len();
            if let Some(section) = self.files[*file as usize].section {
                match &wanted {
                    None => rows.extend(self.rows.rows(section)),
                    Some(ids) => ids.iter().for_each(|id| rows.extend(self.rows.of(section, *id))),
                }
            }
            counts.push((rows.len() - before) as u32);
        }
        let of_kind = |kind: Kind| rows.iter().filter(move |row| row.kind == kind);
        let originals = of_kind(Kind::SHAPE).map(|row| row.length as u32);
        let names = Renumbered::new(self.names.len(), rows.iter().map(|row| row.name).chain(originals));
        let shapes = Renumbered::new(self.shapes.len(), of_kind(Kind::SHAPE).map(|row| row.offset as u32));
        let shards = Renumbered::new(self.shards.len(), of_kind(Kind::SHARD).map(|row| row.offset as u32));

        let mut out = Out(MAGIC.to_vec());
        out.u64s([self.range.start, self.range.end].map(Step::cast_unsigned));
        out.texts(&names.used().map(|id| self.names.get(id)).collect::<Vec<_>>());
        out.texts(&(0..self.workers.len() as u32).map(|id| self.workers.get(id)).collect::<Vec<_>>());
        out.texts(&shards.used().map(|id| self.shards.get(id)).collect::<Vec<_>>());
        let shape = |id: u32| self.shapes[id as usize].iter().copied();
        out.u32s([shapes.used().count() as u32]);
        out.u32s(shapes.used().map(|id| shape(id).len() as u32));
        out.u64s(shapes.used().flat_map(shape));

        let each = || files.iter().map(|file| &self.files[*file as usize]);
        out.u32s([files.len() as u32]);
        let mut before = 0;
        out.u64s(each().map(|file| file.step.wrapping_sub(std::mem::replace(&mut before, file.step)).cast_unsigned()));
        out.u64s(each().map(|file| file.mode_step.wrapping_sub(file.step).cast_unsigned()));
        out.u32s(each().map(|file| file.worker));
        out.u32s(each().map(|file| file.stamp));
        out.u32s(counts.iter().copied());
        out.0.extend(each().map(|file| file.mode.number()));
        out.0.extend(each().map(|file| file.state as u8));
        let place: HashMap<FileId, u32> = files.iter().copied().zip(0..).collect();
        let of = |(file, text)| place.get(file).map(|place| (*place, text));
        out.notes(self.unusual_index_keys.iter().map(|(file, key)| (file, key.as_ref())).filter_map(of).collect());
        out.notes(self.unusual_event_keys.iter().map(|(file, key)| (file, key.as_ref())).filter_map(of).collect());
        out.notes(self.problems.iter().map(|(file, what)| (file, what.as_str())).filter_map(of).collect());

        out.u32s([rows.len() as u32]);
        let mut before = 0;
        out.u32s(rows.iter().map(|row| {
            let name = names.of(row.name.into());
            name.wrapping_sub(std::mem::replace(&mut before, name))
        }));
        out.0.extend(rows.iter().map(|row| row.kind.0 | if row.crc.is_some() { HAS_CRC } else { 0 }));
        let mut end = 0;
        out.u64s(rows.iter().map(|row| match row.kind {
            Kind::SHAPE => shapes.of(row.offset).into(),
            Kind::SHARD => shards.of(row.offset).into(),
            _ => row.offset.wrapping_sub(std::mem::replace(&mut end, row.offset.wrapping_add(row.length))),
        }));
        out.u64s(rows.iter().map(|row| match row.kind {
            Kind::SHAPE => names.of(row.length).into(),
            _ => row.length,
        }));
        out.u32s(rows.iter().filter_map(|row| row.crc));
        let crc = crc32c(&out.0);
        out.u32s([crc]);
        out.0
    }
}

// ------------------------------------------------------------------------------------------------------------- reading

struct In<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> In<'b> {
    fn wrong(&self, what: impl Into<String>) -> Error {
        let what = format!("invalid catalog: {}", what.into());
        Error::Corrupt { location: Location::memory(self.at as u64), what }
    }

    /// `count` items of `width` bytes. Nothing is allocated for a count that exceeds the bytes.
    fn items(&mut self, count: usize, width: usize) -> Result<&'b [u8]> {
        let end = count.checked_mul(width).and_then(|size| size.checked_add(self.at));
        let Some(items) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return Err(self.wrong(format!("{count} items of {width} bytes exceed it")));
        };
        self.at += items.len();
        Ok(items)
    }

    fn u32s(&mut self, count: usize) -> Result<impl ExactSizeIterator<Item = u32> + Clone + use<'b>> {
        let items = self.items(count, 4)?.as_chunks::<4>().0;
        Ok(items.iter().map(|item| u32::from_le_bytes(*item)))
    }

    fn u64s(&mut self, count: usize) -> Result<impl ExactSizeIterator<Item = u64> + Clone + use<'b>> {
        let items = self.items(count, 8)?.as_chunks::<8>().0;
        Ok(items.iter().map(|item| u64::from_le_bytes(*item)))
    }

    fn count(&mut self) -> Result<usize> {
        let mut one = self.u32s(1)?;
        Ok(one.next().unwrap_or_default() as usize)
    }

    fn texts(&mut self) -> Result<Vec<&'b str>> {
        let count = self.count()?;
        let lengths = self.u32s(count)?;
        let text = |length: u32| {
            let bytes = self.items(length as usize, 1)?;
            std::str::from_utf8(bytes).map_err(|_| self.wrong("a text is not UTF-8"))
        };
        lengths.map(text).collect()
    }

    /// Texts of some files.
    fn notes(&mut self, files: usize) -> Result<Vec<(FileId, &'b str)>> {
        let texts = self.texts()?;
        let places = self.u32s(texts.len())?;
        let ascending = places.clone().zip(places.clone().skip(1)).all(|(one, next)| one < next);
        if !ascending || places.clone().any(|place| place as usize >= files) {
            return Err(self.wrong("a note belongs to no file"));
        }
        Ok(places.zip(texts).collect())
    }
}

impl Catalog {
    /// The catalog in bytes of [`Catalog::to_columns`], which may come from anywhere: everything is checked.
    pub fn from_columns(bytes: &[u8]) -> Result<Catalog> {
        let mut input = In { bytes, at: 0 };
        let Some((content, crc)) = bytes.split_last_chunk::<4>().filter(|_| bytes.starts_with(&MAGIC)) else {
            return Err(input.wrong("it begins differently"));
        };
        if crc32c(content) != u32::from_le_bytes(*crc) {
            return Err(input.wrong("checksum mismatch"));
        }
        input.bytes = content;
        input.items(MAGIC.len(), 1)?;
        let range: Vec<Step> = input.u64s(2)?.map(u64::cast_signed).collect();
        let mut catalog = Catalog::new(range[0]..range[1]);
        let tables = catalog.read_tables(&mut input)?;
        let counts = catalog.read_files(&mut input, &tables.workers)?;
        catalog.read_notes(&mut input)?;
        catalog.read_rows(&mut input, &tables, &counts)?;
        if input.at != content.len() {
            return Err(input.wrong("bytes follow it"));
        }
        let first_read =
            |group: &[FileId]| group.iter().copied().find(|file| catalog.files[*file as usize].state == State::Read);
        let by_step = catalog.order.chunk_by(|a, b| catalog.files[*a as usize].step == catalog.files[*b as usize].step);
        let representatives: Vec<FileId> = by_step.filter_map(first_read).collect();
        catalog.modes.add(&catalog.files, &representatives);
        catalog.generation = 1;
        Ok(catalog)
    }

    fn read_tables(&mut self, input: &mut In<'_>) -> Result<Tables> {
        let mut tables = Tables::default();
        for text in input.texts()? {
            tables.names.push(self.name(text, tables.names.last().map_or(0, |last| last + 1))?);
        }
        for text in input.texts()? {
            tables.workers.push(self.workers.intern(text, 0).ok_or_else(too_many)?);
        }
        for text in input.texts()? {
            tables.shards.push(self.shards.intern(text, 0).ok_or_else(too_many)?);
        }
        let count = input.count()?;
        let ranks = input.u32s(count)?;
        for rank in ranks {
            if rank as usize > MAX_RANK {
                return Err(input.wrong(format!("a shape of {rank} dimensions")));
            }
            let shape: Vec<u64> = input.u64s(rank as usize)?.collect();
            tables.shapes.push(self.shape(&shape)?);
        }
        Ok(tables)
    }

    /// Reads the files; returns their numbers of rows.
    fn read_files(&mut self, input: &mut In<'_>, workers: &[u32]) -> Result<Vec<u32>> {
        let count = input.count()?;
        let (steps, mode_steps) = (input.u64s(count)?, input.u64s(count)?);
        let (of_workers, stamps, counts) = (input.u32s(count)?, input.u32s(count)?, input.u32s(count)?);
        let (modes, states) = (input.items(count, 1)?, input.items(count, 1)?);
        reserve(&mut self.files, count);
        let (mut step, mut before) = (0, None);
        let about = steps.zip(mode_steps).zip(of_workers.zip(stamps)).zip(modes.iter().zip(states));
        for (((more, mode_step), (worker, stamp)), (mode, state)) in about {
            step = Step::wrapping_add(step, more.cast_signed());
            let mode_step = step.wrapping_add(mode_step.cast_signed());
            let mode = Mode::from_number(*mode).ok_or_else(|| input.wrong(format!("mode {mode}")))?;
            let state = [State::Unread, State::Read, State::Bad].into_iter().find(|known| *known as u8 == *state);
            let state = state.ok_or_else(|| input.wrong("an unknown state of a file"))?;
            let worker = workers.get(worker as usize).ok_or_else(|| input.wrong("an unknown worker"))?;
            if step < 0 || !self.range.contains(&step) {
                return Err(input.wrong(format!("step {step} is out of its range")));
            }
            let shown = display_worker(self.workers.get(*worker)).into_owned();
            let order = Some((step, shown, *worker));
            if before >= order {
                return Err(input.wrong("files are not in order"));
            }
            before = order;
            self.files.push(File { step, mode_step, section: None, worker: *worker, stamp, mode, state });
        }
        let files = 0..FileId::try_from(count).map_err(|_| too_many())?;
        self.order = files.clone().collect();
        self.pending = files.filter(|file| self.files[*file as usize].state == State::Unread).collect();
        self.unread = self.pending.len();
        Ok(counts.collect())
    }

    fn read_notes(&mut self, input: &mut In<'_>) -> Result<()> {
        for (file, key) in input.notes(self.files.len())? {
            let File { step, worker, .. } = self.files[file as usize];
            if parse_key(key) != Some((step, self.workers.get(worker))) {
                return Err(input.wrong(format!("{key:?} is not the key of its index file")));
            }
            self.unusual_index_keys.insert(file, key.into());
        }
        for (file, key) in input.notes(self.files.len())? {
            self.unusual_event_keys.insert(file, key.into());
        }
        for (file, what) in input.notes(self.files.len())? {
            self.problems.insert(file, what.to_owned());
        }
        let bad = |file: &FileId| self.files[*file as usize].state == State::Bad;
        let count = self.order.iter().filter(|file| bad(file)).count();
        if count != self.problems.len() || !self.problems.keys().all(bad) {
            return Err(input.wrong("its problems are not those of its files"));
        }
        Ok(())
    }

    fn read_rows(&mut self, input: &mut In<'_>, tables: &Tables, counts: &[u32]) -> Result<()> {
        let count = input.count()?;
        if counts.iter().map(|count| u64::from(*count)).sum::<u64>() != count as u64 {
            return Err(input.wrong("the rows are not those of its files"));
        }
        let names = input.u32s(count)?;
        let kinds = input.items(count, 1)?;
        let (offsets, lengths) = (input.u64s(count)?, input.u64s(count)?);
        let crcs = kinds.iter().filter(|kind| **kind & HAS_CRC != 0).count();
        let mut crcs = input.u32s(crcs)?;
        let (mut name, mut end) = (0u32, 0u64);
        let mut rows = names.zip(kinds).zip(offsets.zip(lengths)).map(|((more, kind), (offset, length))| {
            name = name.wrapping_add(more);
            let id = Tables::find(&tables.names, name.into());
            let crc = if kind & HAS_CRC == 0 { None } else { crcs.next() };
            let kind = Kind(kind & !HAS_CRC);
            let (offset, length) = match kind {
                Kind::SHAPE => (
                    Tables::find(&tables.shapes, offset).map(u64::from),
                    Tables::find(&tables.names, length).map(u64::from),
                ),
                Kind::SHARD => (Tables::find(&tables.shards, offset).map(u64::from), Some(length)),
                kind if kind.is_record() => {
                    let offset = end.wrapping_add(offset);
                    end = offset.wrapping_add(length);
                    (Some(offset), Some(length))
                }
                _ => (None, None),
            };
            Some(EntryRow { name: id?, kind, offset: offset?, length: length?, crc })
        });
        let mut of_file: Vec<EntryRow> = Vec::new();
        for (file, count) in counts.iter().enumerate() {
            of_file.clear();
            for _ in 0..*count {
                of_file.push(rows.next().flatten().ok_or_else(|| input.wrong("a row refers to nothing"))?);
            }
            let key = |row: &EntryRow| (row.name, row.kind);
            of_file.sort_unstable_by_key(key);
            let unique = of_file.is_sorted_by(|a, b| key(a) < key(b));
            if !unique || *count > 0 && self.files[file].state != State::Read {
                return Err(input.wrong("a file has rows that it cannot have"));
            }
            if self.files[file].state == State::Read {
                let section = self.rows.push(file as FileId, &of_file).ok_or_else(too_many)?;
                self.files[file].section = Some(section);
            }
        }
        Ok(())
    }
}

/// The numbers that texts and shapes have in the new catalog.
#[derive(Default)]
struct Tables {
    names: Vec<u32>,
    workers: Vec<u32>,
    shards: Vec<u32>,
    shapes: Vec<u32>,
}

impl Tables {
    fn find(table: &[u32], number: u64) -> Option<u32> {
        usize::try_from(number).ok().and_then(|number| table.get(number)).copied()
    }
}
