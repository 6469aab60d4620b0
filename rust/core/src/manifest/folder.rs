//! A folder file: the content of up to 1,000 steps' index files as columns of differences.
//!
//! Names, offsets and sizes repeat from step to step, so nearly all differences are zero and compress to almost nothing.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;

use super::numbers::{Cursor, put, put_bytes, put_difference};
use super::{MAX_DIMENSIONS, MAX_ENTRIES, MAX_FOLDER, MAX_STRINGS, STEPS_PER_FOLDER, damaged, packed, unpacked};
use crate::catalog::{event_key, index_key, parse_key};
use crate::error::{Error, Result};
use crate::index::{Index, LARGEST, MOST_DIMENSIONS, ShapeEntry, ShardEntry, TensorEntry, is_ascii_json};
use crate::step::{Mode, Step};

const MAGIC: [u8; 8] = *b"smdwfold";

/// How an index file names its event file.
const NO_EVENTS: u64 = 0;
const USUAL_EVENTS: u64 = 1;
const OTHER_EVENTS: u64 = 2;

/// The content of one index file.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactedFile<'a> {
    /// The global step.
    pub step: Step,
    /// The worker as spelled in file names.
    pub worker: &'a str,
    /// The content.
    pub index: Index<'a>,
}

/// The number of a string or a shape in the order of first use, and whether it is new.
fn number<Q: Hash + Eq + ToOwned + ?Sized>(table: &mut HashMap<Q::Owned, u64>, item: &Q) -> (u64, bool)
where
    Q::Owned: Hash + Eq,
{
    let next = table.len() as u64;
    match table.get(item) {
        Some(known) => (*known, false),
        None => {
            table.insert(item.to_owned(), next);
            (next, true)
        }
    }
}

/// Predictions of the columns. Writer and reader update them in the same way.
#[derive(Default)]
struct Predictions {
    step: u64,
    mode_step: u64,
    first_offset: u64,
    /// The last length of each name.
    lengths: Vec<u64>,
    /// The last shape of each name.
    shapes: Vec<u64>,
}

/// The number last used with a name.
fn last(list: &mut Vec<u64>, name: u64) -> &mut u64 {
    let at = name as usize;
    if list.len() <= at {
        list.resize(at + 1, 0);
    }
    &mut list[at]
}

/// Builds a folder file.
#[derive(Default)]
pub struct FolderBuilder {
    folder: Option<Step>,
    strings: HashMap<String, u64>,
    string_column: Vec<u8>,
    shapes: HashMap<Vec<u64>, u64>,
    shape_column: Vec<u8>,
    files: u64,
    /// One column for each kind of number, in the order in which they are stored.
    columns: [Vec<u8>; 8],
    predicted: Predictions,
}

// The columns.
const FILES: usize = 0;
const NAMES: usize = 1;
const OFFSETS: usize = 2;
const LENGTHS: usize = 3;
const CHECKED: usize = 4;
const CHECKSUMS: usize = 5;
const SHAPES: usize = 6;
const SHARDS: usize = 7;

impl FolderBuilder {
    fn string(&mut self, text: &str) -> u64 {
        let (number, is_new) = number(&mut self.strings, text);
        if is_new {
            put_bytes(&mut self.string_column, text.as_bytes());
        }
        number
    }

    /// Adds an index file. All files of a folder have steps of the same thousand.
    pub fn add(&mut self, step: Step, worker: &str, index: &Index<'_>) -> Result<()> {
        let folder = step / STEPS_PER_FOLDER;
        let is_own = parse_key(&index_key(step, worker)) == Some((step, worker));
        if !is_own || *self.folder.get_or_insert(folder) != folder {
            return Err(Error::Invalid(format!("step {step} of worker {worker:?} is not of this folder")));
        }
        let count = index.entries.len() + index.shapes.len() + index.shards.len();
        let dimensions: usize = index.shapes.iter().map(|shaped| shaped.shape.len()).sum();
        if count > MAX_ENTRIES || dimensions > MAX_DIMENSIONS {
            return Err(Error::Invalid(format!("the index file of step {step}, worker {worker:?} is too large")));
        }
        let worker_id = self.string(worker);
        let events = match index.event_file.as_deref() {
            None => NO_EVENTS,
            Some(key) if key == event_key(step, worker) => USUAL_EVENTS,
            Some(key) => OTHER_EVENTS + self.string(key),
        };
        self.files += 1;
        let predicted = &mut self.predicted;
        let files = &mut self.columns[FILES];
        put_difference(files, step as u64, predicted.step + 1);
        put(files, worker_id);
        put(files, index.mode.number().into());
        put_difference(files, index.mode_step as u64, predicted.mode_step.wrapping_add(1));
        put(files, events);
        put(files, index.entries.len() as u64);
        put(files, index.shapes.len() as u64);
        put(files, index.shards.len() as u64);
        (predicted.step, predicted.mode_step) = (step as u64, index.mode_step as u64);

        let mut next_name = 0;
        let mut next_offset = self.predicted.first_offset;
        for (at, entry) in index.entries.iter().enumerate() {
            let name = self.string(&entry.name);
            put_difference(&mut self.columns[NAMES], name, next_name);
            next_name = name + 1;
            put_difference(&mut self.columns[OFFSETS], entry.offset, next_offset);
            next_offset = entry.offset.wrapping_add(entry.length);
            if at == 0 {
                self.predicted.first_offset = entry.offset;
            }
            let length = last(&mut self.predicted.lengths, name);
            put_difference(&mut self.columns[LENGTHS], entry.length, *length);
            *length = entry.length;
            self.columns[CHECKED].push(entry.crc.is_some().into());
            self.columns[CHECKSUMS].extend(entry.crc.map(u32::to_le_bytes).as_slice().as_flattened());
        }
        next_name = 0;
        for shaped in &index.shapes {
            let (name, original) = (self.string(&shaped.name), self.string(&shaped.original));
            put_difference(&mut self.columns[SHAPES], name, next_name);
            next_name = name + 1;
            put_difference(&mut self.columns[SHAPES], original, name);
            let (shape, is_new) = number(&mut self.shapes, shaped.shape.as_slice());
            if is_new {
                put(&mut self.shape_column, shaped.shape.len() as u64);
                shaped.shape.iter().for_each(|size| put(&mut self.shape_column, *size));
            }
            let before = last(&mut self.predicted.shapes, name);
            put_difference(&mut self.columns[SHAPES], shape, *before);
            *before = shape;
        }
        let (mut next_name, mut next_shard) = (0, 0);
        for part in &index.shards {
            let (name, shard) = (self.string(&part.name), self.string(&part.shard));
            put_difference(&mut self.columns[SHARDS], name, next_name);
            put_difference(&mut self.columns[SHARDS], shard, next_shard);
            (next_name, next_shard) = (name + 1, shard + 1);
        }
        Ok(())
    }

    /// The file.
    pub fn finish(self) -> Result<Vec<u8>> {
        packed(MAGIC, &self.body()?, MAX_FOLDER)
    }

    /// The body before compression.
    pub fn body(self) -> Result<Vec<u8>> {
        if self.strings.len() > MAX_STRINGS || self.shapes.len() > MAX_STRINGS {
            return Err(Error::Invalid(format!("the folder has more than {MAX_STRINGS} names or shapes")));
        }
        let mut body = Vec::new();
        put(&mut body, self.folder.unwrap_or(0) as u64);
        put(&mut body, self.strings.len() as u64);
        put_bytes(&mut body, &self.string_column);
        put(&mut body, self.shapes.len() as u64);
        put_bytes(&mut body, &self.shape_column);
        put(&mut body, self.files);
        self.columns.iter().for_each(|column| put_bytes(&mut body, column));
        Ok(body)
    }
}

/// A folder file that was read and checked as a whole.
#[derive(Debug)]
pub struct Folder {
    body: Vec<u8>,
    file: String,
    number: Step,
}

impl Folder {
    /// Parses a folder file. `file` names it in errors.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Folder> {
        Folder::of_body(unpacked(MAGIC, bytes, file, MAX_FOLDER)?, file)
    }

    /// Parses the body of a folder file.
    pub fn of_body(body: Vec<u8>, file: &str) -> Result<Folder> {
        let number = Cursor::new(file, &body).number()?;
        let Some(number) = Step::try_from(number).ok().filter(|number| *number <= Step::MAX / STEPS_PER_FOLDER) else {
            return Err(damaged(file, 0, format_args!("folder {number}")));
        };
        let folder = Folder { body, file: file.into(), number };
        folder.files()?.try_for_each(|file| file.map(drop))?;
        Ok(folder)
    }

    /// The number of the folder: its steps divided by [`STEPS_PER_FOLDER`].
    pub fn number(&self) -> Step {
        self.number
    }

    /// The index files of the folder.
    pub fn files(&self) -> Result<Files<'_>> {
        let mut body = Cursor::new(&self.file, &self.body);
        body.number()?;
        let count = body.count(MAX_STRINGS, "strings")?;
        let mut column = body.column()?;
        let mut strings = Vec::with_capacity(count.min(column.left()));
        for _ in 0..count {
            strings.push(column.text()?);
        }
        column.end()?;
        let count = body.count(MAX_STRINGS, "shapes")?;
        let mut column = body.column()?;
        let mut shapes = Vec::with_capacity(count.min(column.left()));
        for _ in 0..count {
            shapes.push(column);
            for _ in 0..column.count(MOST_DIMENSIONS, "dimensions")? {
                if column.number()? > LARGEST {
                    return column.error(format_args!("a dimension exceeds {LARGEST}"));
                }
            }
        }
        column.end()?;
        let left = body.count(self.body.len(), "index files")?;
        let mut columns = [body; 8];
        for column in &mut columns {
            *column = body.column()?;
        }
        body.end()?;
        let is_shard = vec![false; strings.len()];
        let is_worker = vec![false; strings.len()];
        let predicted = Predictions::default();
        Ok(Files { folder: self.number, strings, shapes, is_shard, is_worker, left, columns, predicted, failed: false })
    }
}

/// Iterates over the index files of a folder.
pub struct Files<'a> {
    folder: Step,
    strings: Vec<&'a str>,
    /// Where each shape starts.
    shapes: Vec<Cursor<'a>>,
    /// Strings that are known to be positions of shards.
    is_shard: Vec<bool>,
    /// Strings that are known to be names of workers.
    is_worker: Vec<bool>,
    left: usize,
    columns: [Cursor<'a>; 8],
    predicted: Predictions,
    failed: bool,
}

impl<'a> Iterator for Files<'a> {
    type Item = Result<CompactedFile<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = if self.left > 0 {
            self.left -= 1;
            Some(self.file())
        } else {
            self.columns.iter().find_map(|column| column.end().err()).map(Err)
        };
        self.failed = next.as_ref().is_none_or(Result::is_err);
        next
    }
}

impl<'a> Files<'a> {
    fn file(&mut self) -> Result<CompactedFile<'a>> {
        let files = &mut self.columns[FILES];
        let step = files.difference(self.predicted.step + 1)?;
        let Some(step) = Step::try_from(step).ok().filter(|step| step / STEPS_PER_FOLDER == self.folder) else {
            return files.error(format_args!("step {step} in folder {}", self.folder));
        };
        let worker_id = files.number()?;
        let mode = files.byte()?;
        let Some(mode) = Mode::from_number(mode) else { return files.error(format_args!("mode {mode}")) };
        let mode_step = files.difference(self.predicted.mode_step.wrapping_add(1))? as Step;
        if mode_step.unsigned_abs() > LARGEST {
            return files.error(format_args!("mode step {mode_step}"));
        }
        let events = files.number()?;
        let mut left = MAX_ENTRIES;
        let mut counts = [0; 3];
        for count in &mut counts {
            *count = files.count(left, "entries of an index file")?;
            left -= *count;
        }
        let worker = self.string(FILES, worker_id)?;
        if !self.is_worker[worker_id as usize] {
            if parse_key(&index_key(step, worker)) != Some((step, worker)) {
                return self.columns[FILES].error(format_args!("worker {worker:?}"));
            }
            self.is_worker[worker_id as usize] = true;
        }
        let event_file = match events {
            NO_EVENTS if counts[0] > 0 => return self.columns[FILES].error("records without an event file"),
            NO_EVENTS => None,
            USUAL_EVENTS => Some(Cow::Owned(event_key(step, worker))),
            other => Some(Cow::Borrowed(self.string(FILES, other - OTHER_EVENTS)?)),
        };
        (self.predicted.step, self.predicted.mode_step) = (step as u64, mode_step as u64);
        let entries = self.entries(counts[0])?;
        let shapes = self.shapes(counts[1])?;
        let shards = self.shards(counts[2])?;
        Ok(CompactedFile { step, worker, index: Index { mode, mode_step, event_file, entries, shapes, shards } })
    }

    fn string(&self, column: usize, number: u64) -> Result<&'a str> {
        match usize::try_from(number).ok().and_then(|at| self.strings.get(at)) {
            Some(text) => Ok(text),
            None => self.columns[column].error(format_args!("string {number} of {}", self.strings.len())),
        }
    }

    /// A vector for entries, with at most the capacity that the rest of a column can fill.
    fn reserved<T>(&self, column: usize, count: usize) -> Vec<T> {
        Vec::with_capacity(count.min(self.columns[column].left()))
    }

    fn entries(&mut self, count: usize) -> Result<Vec<TensorEntry<'a>>> {
        let mut entries = self.reserved(NAMES, count);
        let mut next_name = 0;
        let mut next_offset = self.predicted.first_offset;
        for at in 0..count {
            let name = self.columns[NAMES].difference(next_name)?;
            let text = self.string(NAMES, name)?;
            next_name = name + 1;
            let offset = self.columns[OFFSETS].difference(next_offset)?;
            if at == 0 {
                self.predicted.first_offset = offset;
            }
            let before = last(&mut self.predicted.lengths, name);
            let length = self.columns[LENGTHS].difference(*before)?;
            *before = length;
            next_offset = offset.wrapping_add(length);
            if offset > LARGEST || length > LARGEST {
                return self.columns[OFFSETS].error(format_args!("a record of {length} bytes at offset {offset}"));
            }
            let crc = match self.columns[CHECKED].byte()? {
                0 => None,
                1 => Some(u32::from_le_bytes(self.columns[CHECKSUMS].array()?)),
                other => return self.columns[CHECKED].error(format_args!("number of checksums {other}")),
            };
            entries.push(TensorEntry { name: text.into(), offset, length, crc });
        }
        Ok(entries)
    }

    fn shapes(&mut self, count: usize) -> Result<Vec<ShapeEntry<'a>>> {
        let mut entries = self.reserved(SHAPES, count);
        let (mut next_name, mut left) = (0, MAX_DIMENSIONS);
        for _ in 0..count {
            let name = self.columns[SHAPES].difference(next_name)?;
            let text = self.string(SHAPES, name)?;
            next_name = name + 1;
            let original = self.columns[SHAPES].difference(name)?;
            let original = self.string(SHAPES, original)?;
            let before = last(&mut self.predicted.shapes, name);
            let number = self.columns[SHAPES].difference(*before)?;
            *before = number;
            let Some(mut start) = usize::try_from(number).ok().and_then(|at| self.shapes.get(at).copied()) else {
                return self.columns[SHAPES].error(format_args!("shape {number} of {}", self.shapes.len()));
            };
            let dimensions = start.count(left, "dimensions of an index file")?;
            left -= dimensions;
            let shape = (0..dimensions).map(|_| start.number()).collect::<Result<_>>()?;
            entries.push(ShapeEntry { name: text.into(), original: original.into(), shape });
        }
        Ok(entries)
    }

    fn shards(&mut self, count: usize) -> Result<Vec<ShardEntry<'a>>> {
        let mut entries = self.reserved(SHARDS, count);
        let (mut next_name, mut next_shard) = (0, 0);
        for _ in 0..count {
            let name = self.columns[SHARDS].difference(next_name)?;
            let number = self.columns[SHARDS].difference(next_shard)?;
            let (text, shard) = (self.string(SHARDS, name)?, self.string(SHARDS, number)?);
            (next_name, next_shard) = (name + 1, number + 1);
            if !self.is_shard[number as usize] {
                if !is_ascii_json(shard) {
                    return self.columns[SHARDS].error("the position of a shard is not JSON in ASCII on one line");
                }
                self.is_shard[number as usize] = true;
            }
            entries.push(ShardEntry { name: text.into(), shard: shard.into() });
        }
        Ok(entries)
    }
}
