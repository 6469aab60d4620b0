//! The reader of statistics files, also while they grow. It never writes, and checks everything it reads.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::prelude::*;
use zstd::bulk::Decompressor;

use super::arrow::{Finiteness, is_schema};
use super::segment_index;
use super::{COMMIT_SIZE, Commit, DIRECTORY, END_OF_STREAM, MAX_BLOCK, MAX_ROWS, Name, Row, decode_batch};
use crate::crc::crc32c;
use crate::error::{Error, Location, Result};
use crate::pool;
use crate::source::{Blob, Source};
use crate::step::{Mode, Step};

/// Limit on the size of a schema message.
const MAX_SCHEMA: u64 = 64 << 10;
/// Commit records read at once.
const COMMITS_AT_ONCE: u64 = 1 << 16;
/// Limit on the size of an index of segments: records of 500 TB of statistics.
const MAX_INDEX: u64 = 256 << 20;

/// The known part of a segment.
#[derive(Default)]
pub(super) struct Segment {
    pub(super) commits: Vec<Commit>,
    /// The size of the commit file, if it was listed.
    listed: Option<u64>,
    /// The names that were read. A pyramid has them, too, so that those of many segments are not needed for a picture.
    known: Mutex<KnownNames>,
    /// Why the segment cannot be read.
    problem: Option<String>,
}

impl Segment {
    /// The end of the last complete batch.
    fn end(&self) -> u64 {
        self.commits.last().map_or(0, |last| last.offset + u64::from(last.length))
    }

    /// What a pyramid of the complete batches covers; `None` without any.
    pub(super) fn covered(&self, number: u64) -> Option<Covered> {
        let crc = self.commits.last()?.crc;
        Some(Covered { segment: number, batches: self.commits.len() as u64, end: self.end(), crc })
    }
}

/// Tensors by number.
pub(super) type Names = Arc<HashMap<u32, Name>>;

/// What was read of a names file.
#[derive(Clone, Default)]
struct KnownNames {
    /// The tensors. Segments with equal files share them.
    names: Names,
    /// Bytes of the file that were read.
    size: u64,
    /// Their checksum, if they were read at once.
    crc: Option<u32>,
}

/// The key of a segment without extension, by worker and number.
pub(super) fn stem(worker: &str, number: u64) -> String {
    format!("{DIRECTORY}/{worker}/{number:06}")
}

/// Worker and number of a commit file.
fn parse_key(key: &str) -> Option<(&str, u64)> {
    let (worker, file) = key.strip_prefix(DIRECTORY)?.strip_prefix('/')?.split_once('/')?;
    let number = file.strip_suffix(".commit")?.parse().ok()?;
    (stem(worker, number) + ".commit" == key).then_some((worker, number))
}

/// What is known of a segment, by which a reader sees later whether it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Covered {
    /// The number of the segment.
    pub segment: u64,
    /// Complete batches.
    pub batches: u64,
    /// Their end in the stream.
    pub end: u64,
    /// The checksum of the last one.
    pub crc: u32,
}

/// What is read of the statistics.
#[derive(Default)]
pub struct Selection<'s> {
    /// Names of tensors, in the order of the rows; all by default, in the order in which they were added.
    pub names: Option<Vec<&'s str>>,
    /// Global steps; all by default.
    pub steps: Option<BTreeSet<Step>>,
    /// Workers; all by default.
    pub workers: Option<HashSet<&'s str>>,
    /// The mode; all by default.
    pub mode: Option<Mode>,
}

/// Rows that were read, one per tensor, step and worker, in this order.
#[derive(Default)]
pub struct Found {
    /// The names of tensors.
    pub names: Vec<String>,
    /// The names of workers.
    pub workers: Vec<String>,
    /// Rows, each with the index of its name and worker.
    pub rows: Vec<(u32, u32, Row)>,
    /// Batches that cannot be read.
    pub failed: Vec<Error>,
}

/// What [`Reader::scan`] has seen, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Steps that have rows.
    pub steps: Vec<Step>,
    /// Steps at which values of some tensor are not finite for the first time. A tensor that several processes wrote
    /// has a first one in the rows of each.
    pub broken: Vec<Step>,
}

/// The end of a segment that is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// The stream's key.
    pub key: String,
    /// Bytes of the stream after the last complete batch.
    pub bytes: u64,
    /// Whether the worker has a later segment, so that this one does not grow.
    pub superseded: bool,
}

/// Reads the statistics of a run, and what is new in each [`Reader::refresh`].
#[derive(Default)]
pub struct Reader {
    workers: BTreeMap<String, BTreeMap<u64, Segment>>,
    /// The workers of which an index of the segments was listed, with its size if that is known.
    indexed: BTreeMap<String, Option<u64>>,
}

impl Reader {
    /// A reader without data; see [`Reader::refresh`].
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Reads new commit records, given the keys of the run's statistics. Returns whether there were any.
    pub fn refresh<'k>(&mut self, source: &dyn Source, keys: impl IntoIterator<Item = &'k str>) -> Result<bool> {
        self.refresh_listed(source, keys.into_iter().map(|key| (key, None)))
    }

    /// Does what [`Reader::refresh`] does, and does not ask for files that have no more bytes than were read. The keys
    /// come with the sizes of files, if a listing has them.
    pub fn refresh_listed<'k>(
        &mut self,
        source: &dyn Source,
        keys: impl IntoIterator<Item = (&'k str, Option<u64>)>,
    ) -> Result<bool> {
        let (mut listed, mut indexed) = (BTreeMap::new(), BTreeMap::new());
        for (key, size) in keys {
            if let Some(segment) = parse_key(key) {
                listed.insert(segment, size);
            } else if let Some(worker) = segment_index::worker_of(key) {
                indexed.insert(worker.to_owned(), size);
            }
        }
        self.indexed = indexed;
        let count = |reader: &Reader| reader.workers.values().map(BTreeMap::len).sum::<usize>();
        let before = count(self);
        for (worker, segments) in &mut self.workers {
            segments.retain(|number, _| listed.contains_key(&(worker.as_str(), *number)));
        }
        let mut is_new = count(self) != before;
        for ((worker, number), size) in &listed {
            self.workers.entry((*worker).to_owned()).or_default().entry(*number).or_default().listed = *size;
        }
        is_new |= self.take_indexes(source)?;
        let all = self.workers.iter_mut().flat_map(|(worker, segments)| {
            segments.iter_mut().map(move |(number, segment)| (stem(worker, *number), segment))
        });
        let mut all: Vec<(String, &mut Segment)> = all.filter(|(_, segment)| segment.may_have_more()).collect();
        let refresh = |(stem, segment): &mut (String, &mut Segment)| segment.refresh(source, stem);
        let news: Vec<Result<bool>> = match source.reads_at_once() {
            // A store answers many requests in the time of one.
            Some(at_once) if all.len() > 1 => {
                pool::run(Some(at_once.min(all.len())), || all.par_iter_mut().map(refresh).collect())?
            }
            _ => all.iter_mut().map(refresh).collect(),
        };
        for one in news {
            is_new |= one?;
        }
        self.workers.retain(|_, segments| !segments.is_empty());
        Ok(is_new)
    }

    /// Takes the commit records of new segments from the indexes of a store. Returns whether there were any.
    fn take_indexes(&mut self, source: &dyn Source) -> Result<bool> {
        let mut is_new = false;
        for (worker, segments) in &mut self.workers {
            let mut unread: Vec<_> = segments.iter_mut().filter(|(_, segment)| segment.is_unread()).collect();
            // The request pays if it takes the place of several.
            let index = self.indexed.get(worker).filter(|_| unread.len() > 1 && source.reads_at_once().is_some());
            let Some(size) = index else { continue };
            let mut known = match indexed(source, worker, *size) {
                Err(error @ Error::Io { .. }) => return Err(error),
                Ok(Some(known)) => known,
                // The segments are read; `verify` says what is wrong.
                Ok(None) | Err(_) => continue,
            };
            for (number, segment) in &mut unread {
                is_new |= known.remove(number).is_some_and(|commits| segment.take(commits));
            }
        }
        Ok(is_new)
    }

    /// The content of the file that [`segment_index`] describes, of a worker with several segments.
    pub fn segment_index(&self, worker: &str) -> Option<Vec<u8>> {
        let segments = self.workers.get(worker).filter(|segments| segments.len() > 1)?;
        Some(segment_index::encode(segments.iter().map(|(number, segment)| (*number, segment.commits.as_slice()))))
    }

    /// The workers, by their names in files.
    pub fn workers(&self) -> Vec<String> {
        let has_rows = |segments: &BTreeMap<u64, Segment>| segments.values().any(|segment| !segment.commits.is_empty());
        self.workers.iter().filter(|(_, segments)| has_rows(segments)).map(|(worker, _)| worker.clone()).collect()
    }

    /// The segments of a worker.
    pub(super) fn segments(&self, worker: &str) -> Option<&BTreeMap<u64, Segment>> {
        self.workers.get(worker)
    }

    /// The tensors, in the order in which the workers added them, but those of segments that a pyramid has up to a step
    /// and that have no later one. `covered` are these of a worker, with that step.
    pub fn names(&self, source: &dyn Source, covered: &HashMap<&str, (&[Covered], Step)>) -> Result<Vec<Name>> {
        let mut known = HashSet::new();
        let mut found = Vec::new();
        let mut before: Option<(&Segment, Names)> = None;
        for (worker, segments) in &self.workers {
            let (covered, until) = covered.get(worker.as_str()).copied().unwrap_or_default();
            let covered: HashSet<&Covered> = covered.iter().collect();
            for (number, segment) in segments {
                let is_covered = segment.covered(*number).is_some_and(|here| covered.contains(&here));
                if is_covered && segment.commits.iter().all(|commit| *commit.steps().end() <= until) {
                    continue;
                }
                let names =
                    segment.names(source, &stem(worker, *number), before.as_ref().map(|(before, _)| *before))?;
                if !before.as_ref().is_some_and(|(_, before)| Arc::ptr_eq(before, &names)) {
                    let mut all: Vec<&Name> = names.values().collect();
                    all.sort_by_key(|name| name.id);
                    found.extend(all.into_iter().filter(|name| known.insert(name.name.clone())).cloned());
                }
                before = Some((segment, names));
            }
        }
        Ok(found)
    }

    /// Number of batches, of rows, and of bytes in complete batches.
    pub fn size(&self) -> (u64, u64, u64) {
        let commits = || self.workers.values().flat_map(BTreeMap::values).flat_map(|segment| &segment.commits);
        let sum = |of: fn(&Commit) -> u32| commits().map(|commit| u64::from(of(commit))).sum();
        (commits().count() as u64, sum(|commit| commit.rows), sum(|commit| commit.length))
    }

    /// Why segments cannot be read.
    pub fn problems(&self) -> Vec<(String, String)> {
        let each = self.workers.iter().flat_map(|(worker, segments)| segments.iter().map(move |one| (worker, one)));
        each.filter_map(|(worker, (number, segment))| {
            Some((stem(worker, *number) + ".arrows", segment.problem.clone()?))
        })
        .collect()
    }

    /// The ends of segments that are not complete: of a batch that is being written, or of a process that was killed.
    pub fn dropped(&self, source: &dyn Source) -> Result<Vec<Dropped>> {
        let mut found = Vec::new();
        for (worker, segments) in &self.workers {
            let last = segments.keys().next_back();
            for (number, segment) in segments.iter().filter(|(_, segment)| segment.problem.is_none()) {
                let key = stem(worker, *number) + ".arrows";
                let Some(bytes) = tail(source, &key, segment.end())? else { continue };
                if bytes > 0 {
                    found.push(Dropped { key, bytes, superseded: last != Some(number) });
                }
            }
        }
        Ok(found)
    }

    /// Reads the selected rows. Where a step was written again, the later row counts.
    pub fn read(&self, source: &dyn Source, selection: &Selection<'_>) -> Result<Found> {
        let mut found = Found::default();
        let mut names: HashMap<String, u32> = HashMap::new();
        for name in selection.names.iter().flatten() {
            let next = names.len() as u32;
            names.entry((*name).to_owned()).or_insert(next);
        }
        let has_selected = |commit: &&Commit| {
            selection.steps.as_ref().is_none_or(|steps| steps.range(commit.steps()).next().is_some())
        };
        for (worker, segments) in &self.workers {
            if selection.workers.as_ref().is_some_and(|workers| !workers.contains(worker.as_str())) {
                continue;
            }
            let worker_number = found.workers.len() as u32;
            found.workers.push(worker.clone());
            let mut before = None;
            for (number, segment) in segments {
                let key = stem(worker, *number) + ".arrows";
                let mut commits = segment.commits.iter().filter(has_selected).peekable();
                if commits.peek().is_none() {
                    continue;
                }
                // The selected tensors of the segment, by number.
                let mut wanted: HashMap<u32, u32> = HashMap::new();
                let selected = |name: &&Name| selection.names.is_none() || names.contains_key(&name.name);
                let known = segment.names(source, &stem(worker, *number), before.replace(segment))?;
                let mut all: Vec<&Name> = known.values().filter(selected).collect();
                all.sort_by_key(|name| name.id);
                for name in all {
                    let next = names.len() as u32;
                    let at = *names.entry(name.name.clone()).or_insert(next);
                    wanted.insert(name.id, at);
                }
                each_batch(source, &key, commits, &mut |_, rows| match rows {
                    Err(error) => found.failed.push(error),
                    Ok(rows) => found.rows.extend(rows.into_iter().filter_map(|row| {
                        let is_selected = selection.steps.as_ref().is_none_or(|steps| steps.contains(&row.step))
                            && selection.mode.is_none_or(|mode| row.mode == mode);
                        let name = wanted.get(&row.tensor).filter(|_| is_selected)?;
                        Some((*name, worker_number, row))
                    })),
                })?;
            }
        }
        found.names = vec![String::new(); names.len()];
        names.into_iter().for_each(|(name, at)| found.names[at as usize] = name);
        found.rows = sorted(found.rows, found.names.len());
        Ok(found)
    }

    /// Looks through the rows after a step for steps and for values that are not finite. Memory is that of one batch.
    ///
    /// Batches that cannot be read are left out; [`Reader::read`] reports them. `progress` is called with the rows done
    /// and their total after each batch; an error ends the work.
    pub fn scan(
        &self,
        source: &dyn Source,
        after: Step,
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Scanned> {
        let is_later = |commit: &&Commit| *commit.steps().end() > after;
        let segments = || self.workers.iter().flat_map(|(worker, all)| all.iter().map(move |one| (worker, one)));
        let commits = segments().flat_map(|(_, (_, segment))| segment.commits.iter().filter(is_later));
        let total = commits.map(|commit| u64::from(commit.rows)).sum();
        let (mut steps, mut broken) = (BTreeSet::new(), BTreeSet::new());
        let (mut columns, mut done) = (Finiteness::default(), 0);
        let mut known: Option<(&String, &Segment, Names)> = None;
        let mut lost: HashSet<u32> = HashSet::new();
        for (worker, (number, segment)) in segments() {
            if !segment.commits.iter().any(|commit| is_later(&commit)) {
                continue;
            }
            // Numbers of tensors are those of the segment.
            let before = known.as_ref().map(|(_, before, _)| *before);
            let names = segment.names(source, &stem(worker, *number), before)?;
            if !known.as_ref().is_some_and(|(before, _, known)| *before == worker && Arc::ptr_eq(known, &names)) {
                lost.clear();
            }
            known = Some((worker, segment, names));
            let key = stem(worker, *number) + ".arrows";
            each_block(source, &key, segment.commits.iter().filter(is_later), &mut |commit, block, decompressor| {
                let read = block.and_then(|bytes| check_rows(columns.decode(bytes, decompressor)?, commit));
                if read.is_ok() {
                    for ((step, tensor), bad) in columns.step.iter().zip(&columns.tensor).zip(&columns.lost) {
                        if *bad > 0 && *step > after && lost.insert(*tensor) {
                            broken.insert(*step);
                        }
                    }
                    columns.step.sort_unstable();
                    columns.step.dedup();
                    steps.extend(columns.step.iter().filter(|step| **step > after));
                }
                done += u64::from(commit.rows);
                progress(done, total)
            })?;
        }
        Ok(Scanned { steps: steps.into_iter().collect(), broken: broken.into_iter().collect() })
    }

    /// Checks every batch: its checksum, its content, and that its tensors have names. Returns the errors.
    pub fn verify(&self, source: &dyn Source) -> Result<Vec<Error>> {
        let mut errors = Vec::new();
        for (worker, segments) in &self.workers {
            if let Some(size) = self.indexed.get(worker) {
                errors.extend(verify_index(source, worker, *size, segments)?);
            }
            let mut before = None;
            for (number, segment) in segments {
                let key = stem(worker, *number) + ".arrows";
                let names = segment.names(source, &stem(worker, *number), before.replace(segment))?;
                each_batch(source, &key, segment.commits.iter(), &mut |commit, rows| match rows {
                    Err(error) => errors.push(error),
                    Ok(rows) => {
                        let location = Location::new(key.as_str(), commit.offset);
                        let outside = |row: &&Row| !commit.steps().contains(&row.step);
                        if let Some(row) = rows.iter().find(|row| !names.contains_key(&row.tensor)) {
                            let what = format!("tensor {} has no name", row.tensor);
                            errors.push(Error::Corrupt { location, what });
                        } else if let Some(row) = rows.iter().find(outside) {
                            let what = format!("step {} is outside the steps of its commit record", row.step);
                            errors.push(Error::Corrupt { location, what });
                        }
                    }
                })?;
            }
        }
        Ok(errors)
    }
}

/// Why the index of a worker's segments is not one of these; `None` if it is.
fn verify_index(
    source: &dyn Source,
    worker: &str,
    size: Option<u64>,
    segments: &BTreeMap<u64, Segment>,
) -> Result<Option<Error>> {
    let known = match indexed(source, worker, size) {
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(error) => return Ok(Some(error)),
        Ok(known) => known.unwrap_or_default(),
    };
    let is_of = |(number, commits): (&u64, &Vec<Commit>)| {
        segments.get(number).is_some_and(|segment| segment.commits.starts_with(commits))
    };
    Ok((!known.iter().all(is_of)).then(|| Error::Corrupt {
        location: Location::new(segment_index::key(worker), 0),
        what: "the index has other batches than the segments".into(),
    }))
}

/// The commit records in the index of a worker's segments; `None` without one.
fn indexed(source: &dyn Source, worker: &str, size: Option<u64>) -> Result<Option<BTreeMap<u64, Vec<Commit>>>> {
    let key = segment_index::key(worker);
    let Some(file) = open(source, &key)? else { return Ok(None) };
    let mut buffer = Vec::new();
    let count = file.read_at(0, size.unwrap_or(MAX_INDEX).min(MAX_INDEX), &mut buffer)?;
    segment_index::decode(&buffer[..count], &key).map(Some)
}

impl Segment {
    /// Whether nothing was read, and there may be something.
    fn is_unread(&self) -> bool {
        self.commits.is_empty() && self.may_have_more()
    }

    /// Whether there may be more commit records than are known.
    fn may_have_more(&self) -> bool {
        let known = (self.commits.len() * COMMIT_SIZE) as u64;
        self.problem.is_none() && self.listed.is_none_or(|size| size >= known + COMMIT_SIZE as u64)
    }

    /// Takes commit records of an index; none if they are not those of the segment.
    fn take(&mut self, commits: Vec<Commit>) -> bool {
        let size = (commits.len() * COMMIT_SIZE) as u64;
        let is_whole = self.listed.is_none_or(|listed| size <= listed)
            && commits.into_iter().all(|commit| self.accept(commit).is_some());
        if !is_whole {
            self.commits.clear();
        }
        !self.commits.is_empty()
    }

    /// Reads what is new.
    fn refresh(&mut self, source: &dyn Source, stem: &str) -> Result<bool> {
        let known = self.commits.len();
        let commits = open(source, &format!("{stem}.commit"))?;
        let mut buffer = Vec::new();
        while let Some(commits) = &commits {
            let at = (self.commits.len() * COMMIT_SIZE) as u64;
            // A store answers a range that ends with the object at once.
            let rest = self.listed.map_or(u64::MAX, |size| size.saturating_sub(at));
            let count = commits.read_at(at, rest.min(COMMITS_AT_ONCE * COMMIT_SIZE as u64), &mut buffer)?;
            let (records, _) = buffer[..count].as_chunks::<COMMIT_SIZE>();
            let added = records.iter().map_while(Commit::decode).map_while(|commit| self.accept(commit)).count();
            // A record that is not valid may be one that is being written: it is read again next time.
            if (added as u64) < COMMITS_AT_ONCE {
                break;
            }
        }
        if known == 0
            && let Some(first) = self.commits.first()
        {
            let stream = open(source, &format!("{stem}.arrows"))?;
            let mut buffer = Vec::new();
            let count = stream.map_or(Ok(0), |stream| stream.read_at(0, first.offset.min(MAX_SCHEMA), &mut buffer))?;
            if !is_schema(&buffer[..count]) {
                self.problem = Some("the stream has another schema than version 1".into());
                self.commits.clear();
                return Ok(true);
            }
        }
        Ok(self.commits.len() > known)
    }

    /// Adds a commit record that continues the segment.
    fn accept(&mut self, commit: Commit) -> Option<()> {
        let continues = if self.commits.is_empty() {
            (1..=MAX_SCHEMA).contains(&commit.offset)
        } else {
            commit.offset == self.end()
        };
        let is_bounded = u64::from(commit.length) <= MAX_BLOCK && commit.rows as usize <= MAX_ROWS;
        (continues && is_bounded).then(|| self.commits.push(commit))
    }

    /// The tensors by number; names that are not known yet are read. Most segments have those of the one before.
    pub(super) fn names(&self, source: &dyn Source, stem: &str, before: Option<&Segment>) -> Result<Names> {
        let before = before.map(|before| before.known.lock().clone());
        let mut known = self.known.lock();
        let end = self.commits.last().map_or(0, |last| u64::from(last.names_length));
        if end <= known.size {
            return Ok(known.names.clone());
        }
        let Some(file) = open(source, &format!("{stem}.names.jsonl"))? else { return Ok(known.names.clone()) };
        let mut buffer = Vec::new();
        let count = file.read_at(known.size, end - known.size, &mut buffer)?;
        let complete = buffer[..count].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        known.crc = (known.size == 0).then(|| crc32c(&buffer[..complete]));
        if let Some(before) = before
            && (before.size, before.crc) == (complete as u64, known.crc)
            && before.crc.is_some()
        {
            *known = before;
            return Ok(known.names.clone());
        }
        let names = Arc::make_mut(&mut known.names);
        for line in buffer[..complete].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if let Some(name) = Name::of_line(line) {
                names.entry(name.id).or_insert(name);
            }
        }
        known.size += complete as u64;
        Ok(known.names.clone())
    }
}

/// Sorts rows by name, step and worker. Of equal ones the last counts.
///
/// The rows of a name are mostly in order already, so each row is moved once.
fn sorted(mut rows: Vec<(u32, u32, Row)>, names: usize) -> Vec<(u32, u32, Row)> {
    let mut ends = vec![0; names];
    rows.iter().for_each(|(name, ..)| ends[*name as usize] += 1);
    let mut begin = 0;
    for end in &mut ends {
        begin += std::mem::replace(end, begin);
    }
    let mut order = vec![0; rows.len()];
    for (at, (name, ..)) in rows.iter().enumerate() {
        let end = &mut ends[*name as usize];
        order[*end] = at;
        *end += 1;
    }
    let key = |at: &usize| (rows[*at].2.step, rows[*at].1);
    let (mut kept, mut dropped) = (Vec::with_capacity(rows.len()), Vec::new());
    let mut begin = 0;
    for end in ends {
        let of_name = &mut order[begin..end];
        if !of_name.is_sorted_by_key(key) {
            of_name.sort_by_key(key);
        }
        for same in of_name.chunk_by(|a, b| key(a) == key(b)) {
            let (earlier, last) = same.split_at(same.len() - 1);
            kept.extend_from_slice(last);
            dropped.extend_from_slice(earlier);
        }
        begin = end;
    }
    let count = kept.len();
    kept.append(&mut dropped);
    permute(&mut rows, kept);
    rows.truncate(count);
    rows
}

/// Moves each element to the place that has its number in `order`, a permutation.
///
/// A second array of millions of rows would take longer to allocate than these moves.
fn permute<T: Copy>(elements: &mut [T], mut order: Vec<usize>) {
    for start in 0..order.len() {
        let (first, mut at) = (elements[start], start);
        loop {
            let from = std::mem::replace(&mut order[at], at);
            if from == start {
                break;
            }
            elements[at] = elements[from];
            at = from;
        }
        if at != start {
            elements[at] = first;
        }
    }
}

/// Opens a file; `None` if it does not exist.
fn open(source: &dyn Source, key: &str) -> Result<Option<Box<dyn Blob>>> {
    match source.open(key) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Reads batches and calls `each` with the rows or the error of each.
fn each_batch<'c>(
    source: &dyn Source,
    key: &str,
    commits: impl Iterator<Item = &'c Commit>,
    each: &mut dyn FnMut(&Commit, Result<Vec<Row>>),
) -> Result<()> {
    each_block(source, key, commits, &mut |commit, block, decompressor| {
        let rows = block.and_then(|bytes| {
            let rows = decode_batch(bytes, decompressor)?;
            check_rows(rows.len(), commit).map(|()| rows)
        });
        each(commit, rows.map_err(|error| error.within(key, commit.offset)));
        Ok(())
    })
}

/// What is called with a commit record, and the bytes of its batch or why they are not those that were written.
pub(super) type EachBlock<'e> = &'e mut dyn FnMut(&Commit, Result<&[u8]>, &mut Decompressor<'_>) -> Result<()>;

/// Reads batches and calls `each` with the bytes of each, until it fails.
pub(super) fn each_block<'c>(
    source: &dyn Source,
    key: &str,
    commits: impl Iterator<Item = &'c Commit>,
    each: EachBlock<'_>,
) -> Result<()> {
    let mut commits = commits.peekable();
    if commits.peek().is_none() {
        return Ok(());
    }
    let Some(stream) = open(source, key)? else { return Ok(()) };
    let mut decompressor = Decompressor::new().map_err(|error| Error::Invalid(format!("cannot use zstd: {error}")))?;
    let mut buffer = Vec::new();
    for commit in commits {
        let count = stream.read_at(commit.offset, commit.length.into(), &mut buffer)?;
        each(commit, checked(&buffer[..count], commit), &mut decompressor)?;
    }
    Ok(())
}

/// The bytes of a batch, if they are those that were written.
fn checked<'b>(bytes: &'b [u8], commit: &Commit) -> Result<&'b [u8]> {
    let location = Location::memory(0);
    if bytes.len() < commit.length as usize {
        return Err(Error::Truncated { location, needed: commit.length.into(), found: bytes.len() as u64 });
    }
    let crc = crc32c(bytes);
    if crc != commit.crc {
        let what = format!("batch checksum mismatch: stored {:#010x}, computed {crc:#010x}", commit.crc);
        return Err(Error::Corrupt { location, what });
    }
    Ok(bytes)
}

/// Fails if a batch has another number of rows than its commit record says.
pub(super) fn check_rows(rows: usize, commit: &Commit) -> Result<()> {
    if rows == commit.rows as usize {
        return Ok(());
    }
    let what = format!("{rows} rows in a batch of {}", commit.rows);
    Err(Error::Corrupt { location: Location::memory(0), what })
}

/// Bytes of a stream after its last complete batch, without an end mark; `None` if the file does not exist.
fn tail(source: &dyn Source, key: &str, end: u64) -> Result<Option<u64>> {
    let Some(stream) = open(source, key)? else { return Ok(None) };
    let (mut at, mut buffer) = (end, Vec::new());
    loop {
        let count = stream.read_at(at, 1 << 20, &mut buffer)?;
        if at == end && buffer[..count] == END_OF_STREAM {
            return Ok(Some(0));
        }
        if count == 0 {
            return Ok(Some(at - end));
        }
        at += count as u64;
    }
}
