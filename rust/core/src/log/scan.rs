//! An incremental reader of a growing event file: continues where it stopped, skips damage, and fills columns.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::column::{Cell, Class, Column, ValueLocation};
use super::stored_values::StoredValues;
use crate::crc::MaskedCrc;
use crate::error::{self, Error, Result};
use crate::proto::{Content, Event, Kind, ScalarEvent, Value};
use crate::record::{self, FOOTER, HEADER, Record};
use crate::source::Blob;
use crate::step::Step;
use crate::tensor::TensorView;

/// Limit on plausible record lengths when searching for a header after damage.
const PLAUSIBLE: u64 = 1 << 40;
/// Limit on stored problems per file; further ones are counted.
const MAX_PROBLEMS: usize = 1000;

/// An unusable record.
#[derive(Debug)]
pub struct Problem {
    /// Offset of the record.
    pub at: u64,
    /// The fault.
    pub what: String,
    /// Where reading resumed; `None` if no valid record has followed so far.
    pub resumed: Option<u64>,
}

/// The values of a tag in a file.
#[derive(Debug)]
pub struct Series {
    /// The tag.
    pub tag: String,
    /// The class of the values.
    pub class: Class,
    /// The TensorBoard plugin of the first value.
    pub plugin: String,
    /// The writer's description, in Markdown.
    pub description: String,
    /// The rows.
    pub column: Column,
}

/// Lookup of tags. Writers repeat their order of tags, so the tag that followed last time is tried first.
#[derive(Debug, Default)]
struct Tags {
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// For each series, the one that followed it last time.
    followed: Vec<u32>,
    last: u32,
}

impl Tags {
    /// Records that a series followed the last one.
    #[inline]
    fn follow(&mut self, id: u32) {
        if let Some(followed) = self.followed.get_mut(self.last as usize) {
            *followed = id;
        }
        self.last = id;
    }
}

/// The reader of an event file.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Offset of the first unread byte.
    pub(super) end: u64,
    /// Offset and cause of damage after which no record was found yet.
    pub(super) lost: Option<(u64, String)>,
    pub(super) version: Option<String>,
    pub(super) series: Vec<Series>,
    tags: Tags,
    /// Restart steps of the writer, in order.
    pub(super) restarts: Vec<Step>,
    pub(super) problems: Vec<Problem>,
    pub(super) more_problems: u64,
    pub(super) graphs: u64,
    /// Values that are not scalars, if they are kept in memory.
    stored: Option<StoredValues>,
    /// Whether the class of a value was that of an earlier one of its tag, or would have been.
    pub(super) looked_up: bool,
}

/// What to read next.
enum Next {
    /// At least this many bytes from `end` on.
    Read(u64),
    /// Nothing: the file ends within a record or within damage.
    Nothing,
}

impl Scanner {
    /// A reader that has read nothing yet.
    pub fn new(stores_values: bool) -> Self {
        if stores_values { Scanner::default().storing_values() } else { Scanner::default() }
    }

    /// Keeps the values that are read from now on in memory.
    #[must_use]
    pub fn storing_values(self) -> Self {
        Scanner { stored: Some(StoredValues::default()), ..self }
    }

    /// The encoded value at a location, if it is kept. `buffer` is a buffer for values stored as differences.
    pub fn stored_value<'a>(&'a self, location: ValueLocation, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        self.stored.as_ref()?.get(location.at, buffer).filter(|value| value.len() as u64 == location.size)
    }

    /// Offset of the first unread byte, where reading continues.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The version of the writer, if stated.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The series, in the order of first appearance.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// Restart steps of the writer.
    pub fn restarts(&self) -> &[Step] {
        &self.restarts
    }

    /// The number of skipped graphs.
    pub fn graphs(&self) -> u64 {
        self.graphs
    }

    /// Unusable records: (offset, message).
    pub fn problems(&self) -> impl Iterator<Item = (u64, String)> + '_ {
        let listed = self.problems.iter().map(|problem| {
            let on = problem.resumed.map_or(String::new(), |at| format!("; reading resumed at byte {at}"));
            (problem.at, format!("{}{on}", problem.what))
        });
        let lost = self.lost.iter().map(|(at, what)| (*at, format!("{what}; no valid record follows so far")));
        let more = (self.more_problems > 0).then(|| (self.end, format!("{} more damaged records", self.more_problems)));
        listed.chain(lost).chain(more)
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        let series = |series: &Series| series.tag.capacity() + series.column.memory() + size_of::<Series>();
        let stored = self.stored.as_ref().map_or(0, StoredValues::memory);
        self.series.iter().map(series).sum::<usize>() + self.tags.table.allocation_size() + stored
    }

    /// Reads new data in pieces of `piece` bytes. Returns whether there was any.
    ///
    /// Holds one piece in memory, or one record if that is longer. Buffers grow only with the data of the file, never by a
    /// claimed length.
    pub fn read(&mut self, blob: &dyn Blob, piece: u64) -> Result<bool> {
        self.read_with(blob, piece, &mut |_| Ok(()))
    }

    /// As [`Scanner::read`], calling `ahead` where a record begins that is not the last of the file; it may read further.
    pub(super) fn read_with(
        &mut self,
        blob: &dyn Blob,
        piece: u64,
        ahead: &mut dyn FnMut(&mut Scanner) -> Result<()>,
    ) -> Result<bool> {
        let (before, mut needed) = (self.end, piece);
        let mut buffer = Vec::new();
        loop {
            let count = blob.read_at(self.end, needed, &mut buffer)?;
            let bytes = buffer.get(..count).unwrap_or(&buffer);
            let more = count as u64 >= needed;
            match self.take(bytes, more, blob)? {
                Next::Read(bytes) => {
                    needed = bytes.max(piece);
                    if self.lost.is_none() && needed == piece {
                        ahead(self)?;
                    }
                }
                Next::Nothing => break,
            }
        }
        if self.end - before > piece {
            for series in &mut self.series {
                series.column.fit();
            }
            self.stored.iter_mut().for_each(StoredValues::fit);
        }
        Ok(self.end != before)
    }

    /// Parses whole records, which start at `end`.
    pub(super) fn parse(&mut self, bytes: &[u8], blob: &dyn Blob) -> Result<()> {
        self.take(bytes, false, blob).map(drop)
    }

    /// Whether values are kept in memory.
    pub(super) fn stores_values(&self) -> bool {
        self.stored.is_some()
    }

    /// Parses records from `bytes`, which start at `end`; `more` states whether the file continues.
    fn take(&mut self, bytes: &[u8], more: bool, blob: &dyn Blob) -> Result<Next> {
        let base = self.end;
        let mut at = 0;
        loop {
            self.end = base + at as u64;
            if self.lost.is_some() {
                let Some(found) = header_from(bytes, at) else {
                    // The last bytes may be part of a header.
                    self.end = base + at.max((bytes.len() + 1).saturating_sub(HEADER)) as u64;
                    return Ok(if more { Next::Read(0) } else { Next::Nothing });
                };
                at = found;
                self.found(base + at as u64);
                continue;
            }
            match record::next(bytes, at) {
                record::Next::Record(record) => {
                    if let Err(error) = record.check().and_then(|()| self.event(base + at as u64, &record)) {
                        self.problem(base + at as u64, &error, base + (at + record.size) as u64);
                    }
                    at += record.size;
                }
                // Read from its start, so that it does not depend on where the bytes were cut whether a graph is skipped.
                record::Next::NeedMore(_) if more && at > 0 => return Ok(Next::Read(0)),
                record::Next::NeedMore(size) if more => {
                    let is_skipped = self.skips(bytes, size, blob)?;
                    return Ok(Next::Read(if is_skipped { 0 } else { size }));
                }
                record::Next::NeedMore(_) => return Ok(Next::Nothing),
                record::Next::Corrupt(error) => {
                    self.lost = Some((base + at as u64, message_of(&error)));
                    at += 1;
                }
            }
        }
    }

    /// Skips a long record that contains a graph, by its length. Returns whether it did.
    fn skips(&mut self, beginning: &[u8], size: u64, blob: &dyn Blob) -> Result<bool> {
        let Some(payload) = beginning.get(HEADER..).filter(|payload| !payload.is_empty()) else { return Ok(false) };
        let is_graph = Event::parse_beginning(payload).is_ok_and(|event| matches!(event.content, Content::Graph(_)));
        if !is_graph {
            return Ok(false);
        }
        let Some(end) = self.end.checked_add(size) else { return Ok(false) };
        let mut footer = Vec::new();
        let whole = blob.read_at(end - FOOTER as u64, FOOTER as u64, &mut footer)? == FOOTER;
        if whole {
            self.graphs += 1;
            self.end = end;
        }
        Ok(whole)
    }

    /// A record follows the damage.
    #[cold]
    fn found(&mut self, resumed: u64) {
        if let Some((at, what)) = self.lost.take() {
            self.note(Problem { at, what, resumed: Some(resumed) });
        }
    }

    #[cold]
    fn problem(&mut self, at: u64, error: &Error, resumed: u64) {
        self.note(Problem { at, what: message_of(error), resumed: Some(resumed) });
    }

    pub(super) fn note(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS { self.problems.push(problem) } else { self.more_problems += 1 }
    }

    #[inline]
    fn event(&mut self, at: u64, record: &Record<'_>) -> Result<()> {
        if let Some(number) = ScalarEvent::parse(record.payload)
            && let Some(id) = self.known_scalar(number.tag)
        {
            let restarts = self.restarts.len() as u32;
            let cell = Cell::Number(f64::from(number.value));
            self.series[id as usize].column.push(number.step, number.wall_time, cell, restarts);
            return Ok(());
        }
        let event = Event::parse(record.payload)?;
        match event.content {
            Content::Summary => {
                // A bad value does not affect the others of its summary.
                let mut bad = Ok(());
                for value in event.values() {
                    let taken = value.and_then(|value| self.value(at, record, &event, &value));
                    bad = bad.and(taken);
                }
                bad?;
            }
            Content::FileVersion(version) if self.version.is_none() => self.version = Some(version.to_owned()),
            Content::Graph(_) => self.graphs += 1,
            Content::Other(7) if event.restart => self.restarts.push(event.step),
            Content::FileVersion(_) | Content::Empty | Content::Other(_) => {}
        }
        Ok(())
    }

    #[inline]
    fn value(&mut self, at: u64, record: &Record<'_>, event: &Event<'_>, value: &Value<'_>) -> Result<()> {
        let location = ValueLocation {
            at: at + (HEADER + value.at) as u64,
            size: value.size as u64,
            record: at,
            length: record.size as u64,
            footer: record.footer_value,
        };
        let (class, cell) = match &value.kind {
            Kind::Scalar(number) => (Class::Scalar, Cell::Number(f64::from(*number))),
            Kind::Histogram(_) => (Class::Histogram, Cell::ValueLocation(location)),
            Kind::Image(_) => (Class::Image, Cell::ValueLocation(location)),
            Kind::Audio(_) => (Class::Audio, Cell::ValueLocation(location)),
            Kind::Tensor(tensor) => match self.class(value)? {
                Class::Scalar => match TensorView::from_proto(tensor.clone())?.number() {
                    Some(number) => (Class::Scalar, Cell::Number(number)),
                    None => {
                        return Err(wrong(
                            value,
                            "is declared as a scalar but is not a numeric tensor with one element",
                        ));
                    }
                },
                class => (class, Cell::ValueLocation(location)),
            },
            Kind::None if self.class(value)? == Class::Hparams => (Class::Hparams, Cell::ValueLocation(location)),
            Kind::None => return Ok(()),
            Kind::OldHistogram(_) => {
                return Err(wrong(value, "is a histogram in a format that TensorFlow 1.0 removed"));
            }
        };
        let restarts = self.restarts.len() as u32;
        let id = self.series_of(value, class)?;
        self.series[id as usize].column.push(event.step, event.wall_time, cell, restarts);
        if let (Some(stored), Cell::ValueLocation(location)) = (&mut self.stored, cell)
            && let Some(written) = record.payload.get(value.at..).and_then(|rest| rest.get(..value.size))
        {
            stored.put(id, location.at, written);
        }
        Ok(())
    }

    /// The class of a tensor, from its metadata, which only the first value of a tag may have.
    fn class(&mut self, value: &Value<'_>) -> Result<Class> {
        if let Some(class) = value.metadata.as_ref().map(Class::of).transpose()?.flatten() {
            return Ok(class);
        }
        self.looked_up = true;
        let known = |class: &Class| self.find(value.tag, *class).is_some();
        Ok(Class::ALL.into_iter().find(known).unwrap_or(Class::Tensor))
    }

    fn find(&self, tag: &str, class: Class) -> Option<u32> {
        let is = |id: &u32| self.series.get(*id as usize).is_some_and(|one| one.class == class && one.tag == tag);
        self.tags.table.find(self.tags.hasher.hash_one((class, tag)), is).copied()
    }

    #[inline]
    fn series_of(&mut self, value: &Value<'_>, class: Class) -> Result<u32> {
        let id = match self.guess(value.tag.as_bytes(), class) {
            Some(id) => id,
            None => match self.find(value.tag, class) {
                Some(id) => id,
                None => self.new_series(value, class)?,
            },
        };
        self.tags.follow(id);
        Ok(id)
    }

    /// The series of a known scalar tag.
    #[inline]
    fn known_scalar(&mut self, tag: &[u8]) -> Option<u32> {
        let id = match self.guess(tag, Class::Scalar) {
            Some(id) => id,
            None => self.find(std::str::from_utf8(tag).ok()?, Class::Scalar)?,
        };
        self.tags.follow(id);
        Some(id)
    }

    #[inline]
    fn guess(&self, tag: &[u8], class: Class) -> Option<u32> {
        let guess = self.tags.followed.get(self.tags.last as usize).copied().unwrap_or_default();
        let one = self.series.get(guess as usize)?;
        (one.class == class && one.tag.as_bytes() == tag).then_some(guess)
    }

    #[cold]
    fn new_series(&mut self, value: &Value<'_>, class: Class) -> Result<u32> {
        let metadata = value.metadata.as_ref();
        let plugin = metadata.and_then(|metadata| metadata.plugins().last()).transpose()?.map_or("", |(name, _)| name);
        let series = Series {
            tag: value.tag.to_owned(),
            class,
            plugin: plugin.to_owned(),
            description: metadata.map_or("", |metadata| metadata.description).to_owned(),
            column: Column::new(class),
        };
        self.put(series).ok_or_else(|| wrong(value, "exceeds the number of tags"))
    }

    /// The number of the series with the tag and class of another, added if it is new.
    pub(super) fn number_of(&mut self, other: &Series) -> Option<u32> {
        let Series { tag, class, plugin, description, .. } = other;
        self.find(tag, *class).or_else(|| {
            self.put(Series {
                tag: tag.clone(),
                class: *class,
                plugin: plugin.clone(),
                description: description.clone(),
                column: Column::new(*class),
            })
        })
    }

    /// Adds a series and returns its number; `None` if tag and class exist already.
    pub(super) fn put(&mut self, new: Series) -> Option<u32> {
        let id = u32::try_from(self.series.len()).ok()?;
        if self.find(&new.tag, new.class).is_some() {
            return None;
        }
        let own = self.tags.hasher.hash_one((new.class, new.tag.as_str()));
        self.series.push(new);
        self.tags.followed.push(0);
        let Scanner { series, tags, .. } = self;
        let hash = |id: &u32| {
            let one = &series[*id as usize];
            tags.hasher.hash_one((one.class, one.tag.as_str()))
        };
        tags.table.insert_unique(own, id, hash);
        Some(id)
    }
}

/// The first offset from `at` with a header whose checksum matches. A random match has probability 2^-32.
#[cold]
fn header_from(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let header = |window: &[u8]| {
        let (length, crc) = window.split_first_chunk::<8>()?;
        // Checking the length first is cheaper and rejects nearly all offsets.
        let plausible = u64::from_le_bytes(*length) < PLAUSIBLE;
        (plausible && MaskedCrc::of(length).0.to_le_bytes() == *crc).then_some(())
    };
    rest.windows(HEADER).position(|window| header(window).is_some()).map(|found| at + found)
}

/// The message of an error without its location, which is reported separately.
fn message_of(error: &Error) -> String {
    match error {
        Error::Corrupt { what, .. } | Error::Unsupported { what, .. } => what.clone(),
        error => error.to_string(),
    }
}

#[cold]
fn wrong(value: &Value<'_>, what: &str) -> Error {
    let location = error::Location::memory(value.at as u64);
    Error::Unsupported { location, what: format!("tag {:?} {what}", value.tag) }
}
