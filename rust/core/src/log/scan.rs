//! One event file that may still be growing: read on from where it was left, past damage, into columns.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::column::{Cell, Class, Column, ValueLocation};
use super::held::Held;
use crate::crc::MaskedCrc;
use crate::error::{self, Error, Result};
use crate::proto::{Content, Event, Kind, ScalarEvent, Value};
use crate::record::{self, FOOTER, HEADER, Record};
use crate::source::Blob;
use crate::step::Step;
use crate::tensor::TensorView;

/// A header whose length is more than this is none, when one is looked for among damage.
const PLAUSIBLE: u64 = 1 << 40;
/// Problems of a file that are kept in full; the others are counted.
const MAX_PROBLEMS: usize = 1000;

/// A record that can't be used.
#[derive(Debug)]
pub struct Problem {
    /// Where it starts.
    pub at: u64,
    /// What is wrong with it.
    pub what: String,
    /// Where reading went on; `None` where nothing sound has followed so far.
    pub resumed: Option<u64>,
}

/// What a file says of one tag.
#[derive(Debug)]
pub struct Series {
    /// The tag.
    pub tag: String,
    /// What its values are.
    pub class: Class,
    /// The plugin of TensorBoard's that the first value named.
    pub plugin: String,
    /// What the writer says about the tag, in Markdown.
    pub description: String,
    /// Its rows.
    pub column: Column,
}

/// The tags of a file. Writers repeat the order of their tags, so the one that followed last time is tried first.
#[derive(Debug, Default)]
struct Tags {
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Which series came after each.
    followed: Vec<u32>,
    last: u32,
}

impl Tags {
    /// Notes which came after the last one.
    #[inline]
    fn follow(&mut self, id: u32) {
        if let Some(followed) = self.followed.get_mut(self.last as usize) {
            *followed = id;
        }
        self.last = id;
    }
}

/// A growing event file.
#[derive(Debug, Default)]
pub struct Scanner {
    /// The first byte not read.
    pub(super) end: u64,
    /// Where damage began after which no record has been found yet, and what it is.
    pub(super) lost: Option<(u64, String)>,
    pub(super) version: Option<String>,
    pub(super) series: Vec<Series>,
    tags: Tags,
    /// Steps at which the writer began anew, in order.
    pub(super) restarts: Vec<Step>,
    pub(super) problems: Vec<Problem>,
    pub(super) more_problems: u64,
    pub(super) graphs: u64,
    /// The values that are no numbers, if they are to be held.
    held: Option<Held>,
}

/// What to read next.
enum Next {
    /// So many bytes from `end` on, or as many as are best read in one go.
    Read(u64),
    /// Nothing: the file ends in the middle of a record, or of damage, or of nothing.
    Nothing,
}

impl Scanner {
    /// One that has read nothing yet, and that holds what it reads or not.
    pub fn new(holds: bool) -> Self {
        if holds { Scanner::default().holding() } else { Scanner::default() }
    }

    /// The same, which holds the values that it reads from now on.
    #[must_use]
    pub fn holding(self) -> Self {
        Scanner { held: Some(Held::default()), ..self }
    }

    /// The value at a place, as it was written, if it is held; put together in `room` where it is held in parts.
    pub fn held<'a>(&'a self, place: ValueLocation, room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        self.held.as_ref()?.get(place.at, room).filter(|value| value.len() as u64 == place.size)
    }

    /// The first byte not read: where it goes on when the file has grown.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The writer's version, where it says so.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Its tags, in the order of their first appearance.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// Steps at which the writer said that it begins anew.
    pub fn restarts(&self) -> &[Step] {
        &self.restarts
    }

    /// How many graphs were passed over.
    pub fn graphs(&self) -> u64 {
        self.graphs
    }

    /// What could not be used.
    pub fn problems(&self) -> impl Iterator<Item = (u64, String)> + '_ {
        let told = self.problems.iter().map(|problem| {
            let on = problem.resumed.map_or(String::new(), |at| format!("; reading goes on at byte {at}"));
            (problem.at, format!("{}{on}", problem.what))
        });
        let lost = self.lost.iter().map(|(at, what)| (*at, format!("{what}; nothing sound follows so far")));
        let more = (self.more_problems > 0).then(|| (self.end, format!("{} more damaged records", self.more_problems)));
        told.chain(lost).chain(more)
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        let series = |series: &Series| series.tag.capacity() + series.column.memory() + size_of::<Series>();
        let held = self.held.as_ref().map_or(0, Held::memory);
        self.series.iter().map(series).sum::<usize>() + self.tags.table.allocation_size() + held
    }

    /// Reads what is new, so many bytes in one go. Says whether there was anything.
    ///
    /// Holds one piece of the file in memory, or one record where that is longer. Nothing is held on the word of a length: a
    /// buffer grows by what the file gives.
    pub fn read(&mut self, blob: &dyn Blob, piece: u64) -> Result<bool> {
        let (before, mut wanted) = (self.end, piece);
        let mut buffer = Vec::new();
        loop {
            let count = blob.read_at(self.end, wanted, &mut buffer)?;
            let bytes = buffer.get(..count).unwrap_or(&buffer);
            let more = count as u64 >= wanted;
            match self.take(bytes, more, blob)? {
                Next::Read(bytes) => wanted = bytes.max(piece),
                Next::Nothing => break,
            }
        }
        if self.end - before > piece {
            for series in &mut self.series {
                series.column.fit();
            }
            self.held.iter_mut().for_each(Held::fit);
        }
        Ok(self.end != before)
    }

    /// Takes in records from `bytes`, which lie at `end` and are followed by more or not.
    fn take(&mut self, bytes: &[u8], more: bool, blob: &dyn Blob) -> Result<Next> {
        let base = self.end;
        let mut at = 0;
        loop {
            self.end = base + at as u64;
            if self.lost.is_some() {
                let Some(found) = header_from(bytes, at) else {
                    // The last bytes may be the beginning of a header.
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
                record::Next::NeedMore(size) if more => {
                    if self.skips(&bytes[at..], size, blob)? {
                        return Ok(Next::Read(0));
                    }
                    return Ok(Next::Read(size));
                }
                record::Next::NeedMore(_) => return Ok(Next::Nothing),
                record::Next::Corrupt(error) => {
                    self.lost = Some((base + at as u64, said(&error)));
                    at += 1;
                }
            }
        }
    }

    /// Passes over a long record that is a graph, by its length alone. Whether that was done.
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

    /// A record follows the damage that had begun.
    #[cold]
    fn found(&mut self, resumed: u64) {
        if let Some((at, what)) = self.lost.take() {
            self.note(Problem { at, what, resumed: Some(resumed) });
        }
    }

    #[cold]
    fn problem(&mut self, at: u64, error: &Error, resumed: u64) {
        self.note(Problem { at, what: said(error), resumed: Some(resumed) });
    }

    fn note(&mut self, problem: Problem) {
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
                for value in event.values() {
                    self.value(at, record, &event, &value?)?;
                }
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
        let place = ValueLocation {
            at: at + (HEADER + value.at) as u64,
            size: value.size as u64,
            record: at,
            length: record.size as u64,
            footer: record.footer_value,
        };
        let (class, cell) = match &value.kind {
            Kind::Scalar(number) => (Class::Scalar, Cell::Number(f64::from(*number))),
            Kind::Histogram(_) => (Class::Histogram, Cell::ValueLocation(place)),
            Kind::Image(_) => (Class::Image, Cell::ValueLocation(place)),
            Kind::Audio(_) => (Class::Audio, Cell::ValueLocation(place)),
            Kind::Tensor(tensor) => match self.class(value)? {
                Class::Scalar => match TensorView::from_proto(tensor.clone())?.number() {
                    Some(number) => (Class::Scalar, Cell::Number(number)),
                    None => {
                        return Err(wrong(
                            value,
                            "is said to be a scalar, but is a tensor of several elements or of text",
                        ));
                    }
                },
                class => (class, Cell::ValueLocation(place)),
            },
            Kind::None if self.class(value)? == Class::Hparams => (Class::Hparams, Cell::ValueLocation(place)),
            Kind::None => return Ok(()),
            Kind::OldHistogram(_) => {
                return Err(wrong(value, "is a histogram in a form given up before TensorFlow 1.0"));
            }
        };
        let restarts = self.restarts.len() as u32;
        let id = self.series_of(value, class)?;
        self.series[id as usize].column.push(event.step, event.wall_time, cell, restarts);
        if let (Some(held), Cell::ValueLocation(place)) = (&mut self.held, cell)
            && let Some(written) = record.payload.get(value.at..).and_then(|rest| rest.get(..value.size))
        {
            held.put(id, place.at, written);
        }
        Ok(())
    }

    /// The class of a tensor: that of its metadata, which only the first value of a tag may have.
    fn class(&self, value: &Value<'_>) -> Result<Class> {
        if let Some(class) = value.metadata.as_ref().map(Class::of).transpose()?.flatten() {
            return Ok(class);
        }
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

    /// The scalars of a tag, if there are any yet.
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
        self.put(series).ok_or_else(|| wrong(value, "is one tag too many"))
    }

    /// Takes a series in; its number, or `None` if there is one of this tag and class already.
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

/// The first place, from `at` on, with a header whose checksum holds. It holds by chance once in 2^32 places.
#[cold]
fn header_from(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let header = |window: &[u8]| {
        let (length, crc) = window.split_first_chunk::<8>()?;
        // Whether the length is plausible is the cheaper question, and nearly always enough.
        let plausible = u64::from_le_bytes(*length) < PLAUSIBLE;
        (plausible && MaskedCrc::of(length).0.to_le_bytes() == *crc).then_some(())
    };
    rest.windows(HEADER).position(|window| header(window).is_some()).map(|found| at + found)
}

/// What an error says, without its place: that is given beside it.
fn said(error: &Error) -> String {
    match error {
        Error::Corrupt { what, .. } | Error::Unsupported { what, .. } => what.clone(),
        error => error.to_string(),
    }
}

#[cold]
fn wrong(value: &Value<'_>, what: &str) -> Error {
    let place = error::Location::memory(value.at as u64);
    Error::Unsupported { place, what: format!("tag {:?} {what}", value.tag) }
}
