//! Values of many rows: from memory if kept, else in one pass over the files.

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

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum LoggedValue {
    /// A number.
    Number(f64),
    /// A histogram: its range in [`Values::buckets`].
    Buckets(Range<usize>),
    /// Any other value, as encoded.
    Written(Vec<u8>),
}

/// A requested row that exists.
#[derive(Debug)]
pub struct RequestedRow {
    /// The file.
    pub key: String,
    /// The location, unless it is a number.
    pub location: ValueLocation,
    /// The class of the value.
    pub class: Class,
    /// Wall time, in seconds since 1970.
    pub wall_time: f64,
}

/// Requested values: plain data, so the log is not locked while reading.
#[derive(Debug, Default)]
pub struct Values {
    /// The rows, in the order of the requests; `None` if there is no value.
    pub rows: Vec<Option<RequestedRow>>,
    /// The values; before `read` only those in memory.
    pub contents: Vec<Option<LoggedValue>>,
    /// Buckets of all histograms: left edge, right edge, count.
    pub buckets: Vec<[f64; 3]>,
    failed: Vec<(u32, Arc<Error>)>,
    plan: Plan,
    /// Index of the row of each item of the plan.
    items: Vec<u32>,
}

impl Values {
    /// Resolves requests of (name, global step, worker or the first).
    pub fn of<'q>(log: &Log, requests: impl Iterator<Item = (&'q str, Step, Option<&'q str>)>) -> Values {
        let mut values = Values::default();
        let mut files: HashMap<String, u32> = HashMap::new();
        let mut last: Option<(&str, Option<u32>)> = None;
        let mut buffer = Vec::new();
        for (name, step, worker) in requests {
            // Requests for one name are mostly consecutive.
            let id = match last {
                Some((known, id)) if known == name => id,
                _ => log.id(name),
            };
            last = Some((name, id));
            let found = id.and_then(|id| Some((log.find(id, step, worker)?, log.names().get(id as usize)?.class)));
            values.add(&mut files, &mut buffer, found);
        }
        values
    }

    fn add(&mut self, files: &mut HashMap<String, u32>, buffer: &mut Vec<u8>, found: Option<(Found<'_>, Class)>) {
        let Some((found, class)) = found else {
            self.rows.push(None);
            self.contents.push(None);
            return;
        };
        let Found { key, cell, wall_time, .. } = found;
        let (location, content) = match (cell, found.stored_value(buffer)) {
            (Cell::Number(number), _) => (ValueLocation::default(), Some(LoggedValue::Number(number))),
            (Cell::ValueLocation(location), Some(stored)) => {
                let content =
                    content(stored, &mut self.buckets).map_err(|error| Arc::new(error.within(key, location.at)));
                (location, content.map_err(|error| self.failed.push((self.rows.len() as u32, error))).ok())
            }
            (Cell::ValueLocation(location), None) => {
                let file = files.get(key).copied().unwrap_or_else(|| {
                    let file = self.plan.files.len() as u32;
                    self.plan.files.push(key.to_owned());
                    files.insert(key.to_owned(), file);
                    file
                });
                self.plan.items.push(Item { file, offset: location.record, length: location.length });
                self.items.push(self.rows.len() as u32);
                (location, None)
            }
        };
        self.rows.push(Some(RequestedRow { key: key.to_owned(), location, class, wall_time }));
        self.contents.push(content);
    }

    /// Reads missing values. Returns the failed rows with their errors, by row.
    pub fn read(&mut self, source: &dyn Source, options: &Options<'_>) -> Result<Vec<(u32, Arc<Error>)>> {
        let Values { rows, contents, buckets, failed, plan, items } = self;
        let mut failed = std::mem::take(failed);
        if items.is_empty() {
            return Ok(failed);
        }
        let found = Mutex::new((contents, buckets, &mut failed));
        execute(plan, source, options, &|item, bytes| {
            let row = items[item];
            let Some(RequestedRow { key, location, .. }) = &rows[row as usize] else { return };
            let mut own = Vec::new();
            let read = bytes.and_then(|bytes| {
                let value = location.checked(bytes).map_err(|error| error.within(key, location.record));
                let content = value.and_then(|value| content(value, &mut own).map_err(|e| e.within(key, location.at)));
                content.map_err(Arc::new)
            });
            let (contents, buckets, failed) = &mut *found.lock();
            let content = match read {
                Ok(LoggedValue::Buckets(_)) => {
                    let first = buckets.len();
                    buckets.append(&mut own);
                    LoggedValue::Buckets(first..buckets.len())
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

/// Decodes a value. Appends buckets to `all`.
fn content(bytes: &[u8], all: &mut Vec<[f64; 3]>) -> Result<LoggedValue> {
    Ok(match Value::parse(bytes)?.kind {
        Kind::Histogram(histogram) => {
            let first = all.len();
            all.extend(buckets(&histogram)?);
            LoggedValue::Buckets(first..all.len())
        }
        _ => LoggedValue::Written(bytes.to_vec()),
    })
}

/// The buckets of a histogram as left edge, right edge, count. They span the range from minimum to maximum.
pub fn buckets(histogram: &Histogram) -> Result<impl ExactSizeIterator<Item = [f64; 3]>> {
    let Histogram { min, max, limits, counts, .. } = histogram;
    if limits.len() != counts.len() {
        let what = format!("histogram with {} limits but {} counts", limits.len(), counts.len());
        return Err(Error::Corrupt { location: error::Location::memory(0), what });
    }
    let last = limits.len().wrapping_sub(1);
    // Writers add an empty bucket at both ends, whose edge may exceed the range of values.
    let inside = move |edge: f64| if min <= max { edge.clamp(*min, *max) } else { edge };
    let bucket = move |at: usize| {
        let left = if at == 0 { *min } else { inside(limits[at - 1]) };
        [left, if at == last { *max } else { inside(limits[at]) }, counts[at]]
    };
    Ok((0..limits.len()).map(bucket))
}
