//! A whole stream of events, as TensorBoard's logs are: scalars as columns, the rest by where it lies.
//!
//! Nothing in a damaged stream stops the walk: a bad record is noted, and reading goes on at the next sound one.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::proto::{Content, Event, Kind, Value};
use crate::record::{self, HEADER, Record, Step};
use crate::tensor::TensorView;

/// TensorBoard's plugin for scalars, which newer writers put into tensors.
const SCALARS: &str = "scalars";

/// A record that can't be used.
#[derive(Debug)]
pub struct Problem {
    /// Where it starts.
    pub at: u64,
    /// What is wrong with it.
    pub error: Error,
    /// Where reading went on; `None` where nothing sound follows.
    pub resumed: Option<u64>,
}

/// Walks over the records of `buf`, past damaged ones.
#[derive(Debug)]
pub struct Walk<'a> {
    buf: &'a [u8],
    /// The first byte not yet walked over: where a file that grows goes on.
    pub at: usize,
    /// Bytes that the unfinished record at `at` needs; 0 while there is none.
    pub wanted: u64,
    /// What couldn't be used.
    pub problems: Vec<Problem>,
}

impl<'a> Walk<'a> {
    /// A walk that starts `at` bytes into `buf`.
    pub fn new(buf: &'a [u8], at: usize) -> Self {
        Walk { buf, at, wanted: 0, problems: Vec::new() }
    }

    /// Notes what is wrong with the record at `at`, which has `size` bytes.
    pub fn note(&mut self, at: usize, size: usize, error: Error) {
        let resumed = Some((at + size) as u64);
        self.problems.push(Problem { at: at as u64, error: error.within("", at as u64), resumed });
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (usize, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            match record::next(self.buf, at) {
                Step::Record(record) => {
                    self.at += record.size;
                    return Some((at, record));
                }
                Step::NeedMore(wanted) => {
                    self.wanted = if at < self.buf.len() { wanted } else { 0 };
                    return None;
                }
                Step::Corrupt(error) => {
                    let resumed = record::resync(self.buf, at + 1);
                    self.problems.push(Problem { at: at as u64, error, resumed: resumed.map(|at| at as u64) });
                    self.at = resumed?;
                }
            }
        }
    }
}

/// One scalar's course, in the order it was written.
#[derive(Debug, Default, PartialEq)]
pub struct Scalars {
    /// Global steps.
    pub steps: Vec<i64>,
    /// Seconds since 1970.
    pub wall_times: Vec<f64>,
    /// The values.
    pub values: Vec<f64>,
}

/// A value, or a graph, that isn't a scalar: where to find it again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Other {
    /// Where its record starts.
    pub record: u64,
    /// Where it starts itself.
    pub at: u64,
    /// How many bytes it takes.
    pub size: u64,
    /// The global step.
    pub step: i64,
    /// Seconds since 1970.
    pub wall_time: f64,
    /// Whether it is a graph; a value otherwise.
    pub graph: bool,
}

/// What a stream of events holds.
#[derive(Debug, Default)]
pub struct Events<'a> {
    /// The writer's version, where it says so.
    pub version: Option<&'a str>,
    /// Scalars by their tag, in the order of first appearance.
    pub scalars: Vec<(&'a str, Scalars)>,
    /// All else, in order.
    pub others: Vec<Other>,
    /// What couldn't be used.
    pub problems: Vec<Problem>,
    /// The first byte not read: where a file that grows goes on.
    pub end: u64,
    /// Bytes that the unfinished record at `end` needs; 0 where there is none.
    pub wanted: u64,
}

/// Reads the events from `at` on. With `check`, payloads are held against their checksums; without, only headers are.
pub fn read(buf: &[u8], at: usize, check: bool) -> Events<'_> {
    let mut events = Events::default();
    let mut columns = HashMap::new();
    let mut walk = Walk::new(buf, at);
    while let Some((at, record)) = walk.next() {
        let sound = if check { record.check() } else { Ok(()) };
        if let Err(error) = sound.and_then(|()| events.take(&mut columns, at, record.payload)) {
            walk.note(at, record.size, error);
        }
    }
    Events { problems: walk.problems, end: walk.at as u64, wanted: walk.wanted, ..events }
}

impl<'a> Events<'a> {
    fn take(&mut self, columns: &mut HashMap<&'a str, usize>, record: usize, payload: &'a [u8]) -> Result<()> {
        let in_payload = |error: Error| error.within("", HEADER as u64);
        let event = Event::parse(payload).map_err(in_payload)?;
        let other = |at: usize, size: usize, graph| {
            let (record, at) = (record as u64, (record + HEADER + at) as u64);
            Other { record, at, size: size as u64, step: event.step, wall_time: event.wall_time, graph }
        };
        match event.content {
            Content::FileVersion(version) => self.version = Some(version),
            Content::Graph(graph) => {
                let at = graph.as_ptr().addr() - payload.as_ptr().addr();
                self.others.push(other(at, graph.len(), true));
            }
            Content::Summary => {
                for value in event.values() {
                    let value = value.map_err(in_payload)?;
                    if let Some(number) = scalar(&value).map_err(in_payload)? {
                        let scalars = &mut self.scalars;
                        let column = *columns.entry(value.tag).or_insert_with(|| {
                            scalars.push((value.tag, Scalars::default()));
                            scalars.len() - 1
                        });
                        let (_, column) = &mut self.scalars[column];
                        column.steps.push(event.step);
                        column.wall_times.push(event.wall_time);
                        column.values.push(number);
                    } else if !matches!(value.kind, Kind::None) {
                        self.others.push(other(value.at, value.size, false));
                    }
                }
            }
            Content::Empty | Content::Other(_) => {}
        }
        Ok(())
    }
}

/// A value's number, if it is a scalar: old writers have a field for it, newer ones a tensor that belongs to a plugin.
fn scalar(value: &Value<'_>) -> Result<Option<f64>> {
    match (&value.kind, &value.metadata) {
        (Kind::Scalar(number), _) => Ok(Some(f64::from(*number))),
        (Kind::Tensor(proto), Some(metadata)) => {
            let last = metadata.plugins().last().transpose()?;
            if last.is_some_and(|(name, _)| name == SCALARS) {
                Ok(TensorView::from_proto(proto.clone())?.number())
            } else {
                Ok(None)
            }
        }
        _ => Ok(None),
    }
}
