//! Values of many rows: from memory where they are held, else in one pass over their files.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::column::{Cell, Class, ValueLocation};
use super::{Found, Log};
use crate::error::{self, Error, Result};
use crate::proto::{Histogram, Kind, Value};
use crate::source::Source;
use crate::step::Step;
use crate::sweep::{Item, Options, Plan, execute};

/// What stands in a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A number.
    Number(f64),
    /// A histogram: where its buckets are among [`Values::buckets`].
    Buckets(Range<usize>),
    /// Anything else: the value as it was written.
    Written(Vec<u8>),
}

/// A row that was asked for and is there.
#[derive(Debug)]
pub struct Asked {
    /// The file.
    pub key: String,
    /// Where it lies, if it is no number.
    pub place: ValueLocation,
    /// What it is.
    pub class: Class,
    /// When it was written, in seconds since 1970.
    pub wall_time: f64,
}

/// Values to be read: plain data, for which a log need not be held.
#[derive(Debug, Default)]
pub struct Values {
    /// The rows, in the order of the questions; `None` where nothing was written.
    pub rows: Vec<Option<Asked>>,
    /// What is in each; at first only what is in memory.
    pub contents: Vec<Option<Content>>,
    /// Buckets of all histograms: left edge, right edge, count.
    pub buckets: Vec<[f64; 3]>,
    failed: Vec<(u32, Arc<Error>)>,
    plan: Plan,
    /// Which row each of the plan's items is for.
    items: Vec<u32>,
}

impl Values {
    /// The rows of these questions: (name, global step, worker or the first).
    pub fn of<'q>(log: &Log, questions: impl Iterator<Item = (&'q str, Step, Option<&'q str>)>) -> Values {
        let mut values = Values::default();
        let mut files: HashMap<String, u32> = HashMap::new();
        let mut last: Option<(&str, Option<u32>)> = None;
        let mut room = Vec::new();
        for (name, step, worker) in questions {
            // Questions about one name mostly stand together.
            let id = match last {
                Some((known, id)) if known == name => id,
                _ => log.id(name),
            };
            last = Some((name, id));
            let found = id.and_then(|id| Some((log.find(id, step, worker)?, log.names().get(id as usize)?.class)));
            values.add(&mut files, &mut room, found);
        }
        values
    }

    fn add(&mut self, files: &mut HashMap<String, u32>, room: &mut Vec<u8>, found: Option<(Found<'_>, Class)>) {
        let Some((found, class)) = found else {
            self.rows.push(None);
            self.contents.push(None);
            return;
        };
        let Found { key, cell, wall_time, .. } = found;
        let (place, content) = match (cell, found.held(room)) {
            (Cell::Number(number), _) => (ValueLocation::default(), Some(Content::Number(number))),
            (Cell::ValueLocation(place), Some(held)) => {
                let content = content(held, &mut self.buckets).map_err(|error| Arc::new(error.within(key, place.at)));
                (place, content.map_err(|error| self.failed.push((self.rows.len() as u32, error))).ok())
            }
            (Cell::ValueLocation(place), None) => {
                let file = files.get(key).copied().unwrap_or_else(|| {
                    let file = self.plan.files.len() as u32;
                    self.plan.files.push(key.to_owned());
                    files.insert(key.to_owned(), file);
                    file
                });
                self.plan.items.push(Item { file, offset: place.record, length: place.length });
                self.items.push(self.rows.len() as u32);
                (place, None)
            }
        };
        self.rows.push(Some(Asked { key: key.to_owned(), place, class, wall_time }));
        self.contents.push(content);
    }

    /// Reads what isn't there yet. Rows that failed, with the reason, in order.
    pub fn read(&mut self, source: &dyn Source, options: &Options<'_>) -> Result<Vec<(u32, Arc<Error>)>> {
        let Values { rows, contents, buckets, failed, plan, items } = self;
        let mut failed = std::mem::take(failed);
        if items.is_empty() {
            return Ok(failed);
        }
        let found = Mutex::new((contents, buckets, &mut failed));
        execute(plan, source, options, &|item, bytes| {
            let row = items[item];
            let Some(Asked { key, place, .. }) = &rows[row as usize] else { return };
            let mut own = Vec::new();
            let read = bytes.and_then(|bytes| {
                let value = place.checked(bytes).map_err(|error| error.within(key, place.record));
                let content = value.and_then(|value| content(value, &mut own).map_err(|e| e.within(key, place.at)));
                content.map_err(Arc::new)
            });
            let (contents, buckets, failed) = &mut *found.lock();
            let content = match read {
                Ok(Content::Buckets(_)) => {
                    let first = buckets.len();
                    buckets.append(&mut own);
                    Content::Buckets(first..buckets.len())
                }
                Ok(content) => content,
                Err(error) => return failed.push((row, error)),
            };
            contents[row as usize] = Some(content);
        })?;
        failed.sort_by_key(|(row, _)| *row);
        Ok(failed)
    }
}

/// What stands in the bytes of a value. Buckets are put behind those that are there.
fn content(bytes: &[u8], all: &mut Vec<[f64; 3]>) -> Result<Content> {
    Ok(match Value::parse(bytes)?.kind {
        Kind::Histogram(histogram) => {
            let first = all.len();
            all.extend(buckets(&histogram)?);
            Content::Buckets(first..all.len())
        }
        _ => Content::Written(bytes.to_vec()),
    })
}

/// The buckets of a histogram that was written by its right edges: left edge, right edge, count. They reach from the least value
/// to the greatest.
pub fn buckets(histogram: &Histogram) -> Result<impl ExactSizeIterator<Item = [f64; 3]>> {
    let Histogram { min, max, limits, counts, .. } = histogram;
    if limits.len() != counts.len() {
        let what = format!("a histogram of {} limits and {} counts", limits.len(), counts.len());
        return Err(Error::Corrupt { place: error::Location::memory(0), what });
    }
    let last = limits.len().wrapping_sub(1);
    // Writers begin and end with an empty bucket, whose edge may lie beyond the least and the greatest value.
    let inside = move |edge: f64| if min <= max { edge.clamp(*min, *max) } else { edge };
    let bucket = move |at: usize| {
        let left = if at == 0 { *min } else { inside(limits[at - 1]) };
        [left, if at == last { *max } else { inside(limits[at]) }, counts[at]]
    };
    Ok((0..limits.len()).map(bucket))
}
