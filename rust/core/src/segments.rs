//! Segments: many steps of one worker in two files that only grow, an event file and its index.
//!
//! The index has a line for each step: the JSON of an index file, and the step. The line is written after the records, so a
//! line that ends in a line break is that of a whole step. If a step occurs twice, the later line counts. A segment of
//! which steps were deleted is written again under the same number and the next version; the highest version counts.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};

use parking_lot::RwLock;
use serde::Deserialize;

use crate::catalog::{Catalog, LoadedIndex};
use crate::crc::crc32c;
use crate::error::{Error, Location, Result};
use crate::index::Index;
pub use crate::index::SEGMENTS;
use crate::source::Local;
use crate::step::Step;

const INDEX: &str = ".index";
/// Lines that are added to a catalog at a time.
const BATCH: usize = 64;

/// Number and version of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The number; segments of a worker are numbered in the order of their steps.
    pub number: u32,
    /// How often the segment was written again.
    pub version: u32,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.number)?;
        if self.version > 0 { write!(f, "-{}", self.version) } else { Ok(()) }
    }
}

impl Name {
    /// Parses the name of an index of a segment (`000003.index`, `000003-1.index`).
    pub fn parse(file_name: &str) -> Option<Name> {
        let stem = file_name.strip_suffix(INDEX)?;
        let (number, version) = stem.split_once('-').unwrap_or((stem, "0"));
        let name = Name { number: number.parse().ok()?, version: version.parse().ok()? };
        (name.to_string() == stem).then_some(name)
    }

    /// The key of the index.
    pub fn index_key(self, worker: &str) -> String {
        format!("{SEGMENTS}/{worker}/{self}{INDEX}")
    }

    /// The key of the event file.
    pub fn event_key(self, worker: &str) -> String {
        format!("{SEGMENTS}/{worker}/{self}.tfevents")
    }
}

/// Parses the key of an index of a segment into worker and name.
pub fn parse_key(key: &str) -> Option<(&str, Name)> {
    let (worker, name) = key.strip_prefix(SEGMENTS)?.strip_prefix('/')?.split_once('/')?;
    Some((worker, Name::parse(name)?)).filter(|_| !worker.is_empty())
}

/// The segments of which a higher version is among these keys are left out.
pub fn newest<'k>(keys: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let mut best: HashMap<(&str, u32), (Name, &str)> = HashMap::new();
    for key in keys {
        let Some((worker, name)) = parse_key(key) else { continue };
        let known = best.entry((worker, name.number)).or_insert((name, key));
        if known.0 < name {
            *known = (name, key);
        }
    }
    let mut found: Vec<_> = best.into_iter().map(|((worker, number), (_, key))| (number, worker, key)).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, _, key)| key).collect()
}

/// A line of an index.
pub struct Line<'a> {
    /// The global step.
    pub step: Step,
    /// The positions of its tensors.
    pub index: Result<Index<'a>>,
}

#[derive(Deserialize)]
struct OfStep {
    step: Step,
}

/// The line of a step.
pub fn to_line(step: Step, index: &Index<'_>) -> Vec<u8> {
    let json = index.to_bytes();
    let mut line = format!("{{\"step\":{step},").into_bytes();
    line.extend_from_slice(&json[1..]);
    line.push(b'\n');
    line
}

/// The whole lines at the beginning of `bytes`, and their size. Lines without a step are left out.
pub fn lines<'a>(bytes: &'a [u8], file: &str) -> (Vec<Line<'a>>, usize) {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut found = Vec::new();
    for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if let Ok(OfStep { step }) = serde_json::from_slice(line) {
            found.push(Line { step, index: Index::parse(line, file) });
        }
    }
    (found, whole)
}

/// Adds the whole lines at the beginning of `bytes` to a catalog. Returns the number of new steps, and the size of the
/// lines.
pub fn load(catalog: &RwLock<Catalog>, key: &str, bytes: &[u8]) -> Result<(usize, usize)> {
    let Some((worker, _)) = parse_key(key) else {
        return Err(Error::Invalid(format!("{key:?} is not the key of the index of a segment")));
    };
    let (lines, size) = lines(bytes, key);
    let stamp = crc32c(key.as_bytes()) | 1;
    let mut new = 0;
    let mut lines = lines.into_iter().peekable();
    while lines.peek().is_some() {
        let batch: Vec<Line<'_>> = lines.by_ref().take(BATCH).collect();
        let steps: Vec<Step> = batch.iter().map(|line| line.step).collect();
        let mut catalog = catalog.write();
        let (files, added) = catalog.add_segment(key, worker, &steps)?;
        new += added;
        let known = files.into_iter().zip(batch);
        let intake = known.filter_map(|(file, line)| Some(LoadedIndex { file: file?, stamp, content: line.index }));
        catalog.insert(intake.collect())?;
    }
    Ok((new, size))
}

/// The segments of a run in a directory, as far as they were read.
#[derive(Default)]
pub struct Segments {
    read: HashMap<String, u64>,
}

impl Segments {
    /// Adds to a catalog what was appended since the last call. Returns the number of new steps.
    pub fn follow(&mut self, catalog: &RwLock<Catalog>, run: &Local) -> Result<usize> {
        let keys = keys(run)?;
        let mut new = 0;
        for key in newest(keys.iter().map(String::as_str)) {
            let from = self.read.get(key).copied().unwrap_or_default();
            let wrong = |source: io::Error| Error::Io { file: run.path().join(key).display().to_string(), source };
            let mut file = match run.open_file(key) {
                Ok(file) => file,
                // It was written again.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if file.metadata().map_err(wrong)?.len() <= from {
                continue;
            }
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut bytes)).map_err(wrong)?;
            let (added, size) = load(catalog, key, &bytes)?;
            new += added;
            self.read.insert(key.to_owned(), from + size as u64);
        }
        Ok(new)
    }
}

/// The keys of all files of segments of a run in a directory.
fn keys(run: &Local) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    let root = run.path().join(SEGMENTS);
    let workers = match fs::read_dir(&root) {
        Ok(workers) => workers,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(keys);
        }
        Err(source) => return Err(Error::Io { file: root.display().to_string(), source }),
    };
    for worker in workers.flatten() {
        let Ok(name) = worker.file_name().into_string() else { continue };
        for file in fs::read_dir(worker.path()).into_iter().flatten().flatten() {
            if let Ok(file) = file.file_name().into_string() {
                keys.push(format!("{SEGMENTS}/{name}/{file}"));
            }
        }
    }
    Ok(keys)
}

/// The keys of the newest indexes of a worker's segments in a directory.
pub fn of_worker(run: &Local, worker: &str) -> Result<Vec<String>> {
    let keys = keys(run)?;
    let own = keys.iter().filter(|key| parse_key(key).is_some_and(|(other, _)| other == worker));
    Ok(newest(own.map(String::as_str)).into_iter().map(str::to_owned).collect())
}

/// An error of a line of an index.
pub(crate) fn damaged(key: &str, what: impl Into<String>) -> Error {
    Error::Index { location: Location::new(key, 0), what: what.into() }
}

#[cfg(test)]
mod tests;
