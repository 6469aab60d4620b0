//! Writing segments: see [`crate::segments`].

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::file::Unfinished;
use super::{StepWriter, index_key, worker_file_name};
use crate::error::{Error, Result};
use crate::index::Index;
use crate::segments::{Name, SEGMENTS, damaged, lines, of_worker, parse_key, to_line};
use crate::source::Local;
use crate::step::Step;

/// A segment of this size is followed by another one.
const LARGEST: u64 = 8 << 20;

/// What is deleted of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// The whole step.
    All,
    /// The tensors from the one of this name on, in the order in which they were written.
    From(String),
}

/// Appends steps of one worker to segments.
#[derive(Debug)]
pub struct SegmentWriter {
    root: PathBuf,
    worker: String,
    open: Option<Open>,
}

/// A segment that grows.
#[derive(Debug)]
struct Open {
    name: Name,
    events: File,
    index: File,
    size: u64,
    index_size: u64,
}

impl SegmentWriter {
    /// Creates a writer for the run in `root`. Writes nothing yet.
    pub fn new(root: &Path, worker: &str) -> Result<Self> {
        Ok(SegmentWriter { root: root.to_owned(), worker: worker_file_name(worker)?, open: None })
    }

    /// Appends a step that is in memory, so that readers see it. More tensors can follow, after which it is appended
    /// again. Returns the key of the index, and the number of bytes written.
    pub fn append(&mut self, step: &mut StepWriter) -> Result<(String, u64)> {
        step.check_usable()?;
        let Some(memory) = &step.memory else {
            return Err(Error::Invalid(format!("step {} is not in memory", step.step)));
        };
        if self.open.as_ref().is_some_and(|open| open.size >= LARGEST) {
            self.open = None;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.create()?,
        };
        let key = open.name.index_key(&self.worker);
        if step.appended == step.entries() {
            self.open = Some(open);
            return Ok((key, 0));
        }
        let mut index = step.index.clone();
        for entry in &mut index.entries {
            entry.offset += open.size;
        }
        index.event_file = index.event_file.map(|_| open.name.event_key(&self.worker).into());
        let line = to_line(step.step, &index);
        let wrong = |source| io_error(&self.root.join(&key), source);
        if let Err(source) = open.events.write_all(memory) {
            self.open = open.cut_back();
            return Err(wrong(source));
        }
        if let Err(source) = open.index.write_all(&line) {
            self.open = open.cut_back();
            return Err(wrong(source));
        }
        open.size += memory.len() as u64;
        open.index_size += line.len() as u64;
        step.appended = step.entries();
        let written = memory.len() + line.len();
        self.open = Some(open);
        Ok((key, written as u64))
    }

    /// Begins another segment with the next step.
    pub fn end(&mut self) {
        self.open = None;
    }

    fn create(&self) -> Result<Open> {
        let folder = self.root.join(SEGMENTS).join(&self.worker);
        let wrong = |source| io_error(&folder, source);
        fs::create_dir_all(&folder).map_err(wrong)?;
        let mut number = 0;
        for file in fs::read_dir(&folder).map_err(wrong)?.flatten() {
            let name = file.file_name().into_string().unwrap_or_default();
            let digits = name.bytes().take_while(u8::is_ascii_digit).count();
            if let Ok(known) = name[..digits].parse::<u32>() {
                number = number.max(known + 1);
            }
        }
        let name = Name { number, version: 0 };
        let create = |key: String| {
            let path = self.root.join(key);
            OpenOptions::new().append(true).create_new(true).open(&path).map_err(|source| io_error(&path, source))
        };
        let events = create(name.event_key(&self.worker))?;
        let index = create(name.index_key(&self.worker))?;
        Ok(Open { name, events, index, size: 0, index_size: 0 })
    }
}

impl Open {
    /// Removes what a failed write may have left. `None` if that failed, too: the next step begins another segment.
    fn cut_back(self) -> Option<Open> {
        let cut = self.index.set_len(self.index_size).and_then(|()| self.events.set_len(self.size));
        cut.is_ok().then_some(self)
    }
}

/// Writes segments of one worker, which no writer appends to, as one segment, without the tensors to delete in each.
/// With one segment, a reader finds either the old or the new one.
///
/// They are given in order. The new one is the next version of the last of them, because later segments count: a reader
/// that finds others of them beside it takes their steps from the new one. Returns the key of its index, and its bytes;
/// `None` if nothing is left.
pub fn rewrite(root: &Path, segments: &[(&str, &HashMap<Step, Cut>)]) -> Result<Option<(String, u64)>> {
    let Some((last, _)) = segments.last() else { return Ok(None) };
    let (worker, name) = named(last)?;
    let next = Name { version: name.version + 1, ..name };
    let mut new = Rewritten { root, worker, name: next, events: None, index: Vec::new(), moved: Vec::new() };
    for (key, cuts) in segments {
        new.add(key, cuts)?;
    }
    let left = new.publish()?;
    let key = next.index_key(worker);
    for (key, _) in segments {
        remove(root, key)?;
        remove(root, &named(key)?.1.event_key(worker))?;
    }
    Ok(left.map(|size| (key, size)))
}

fn named(key: &str) -> Result<(&str, Name)> {
    parse_key(key).ok_or_else(|| Error::Invalid(format!("{key:?} is not the key of the index of a segment")))
}

/// A segment with what is left of others.
struct Rewritten<'a> {
    root: &'a Path,
    worker: &'a str,
    name: Name,
    events: Option<Unfinished>,
    index: Vec<u8>,
    /// The steps, the event files that they were in, and their new lines in the form of an index file.
    moved: Vec<(Step, String, Option<Vec<u8>>)>,
}

impl Rewritten<'_> {
    /// Adds what is left of a segment without what is to be deleted.
    fn add(&mut self, key: &str, cuts: &HashMap<Step, Cut>) -> Result<()> {
        let (worker, name) = named(key)?;
        if worker != self.worker {
            return Err(Error::Invalid(format!("{key:?} is a segment of another worker than {:?}", self.worker)));
        }
        let (root, old_events) = (self.root, name.event_key(worker));
        let content = read(root, key)?;
        let mut old = match Local::new(root).open_file(&old_events) {
            Ok(file) => Some(file),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        for (step, mut known) in last_lines(&content, key)? {
            match cuts.get(&step) {
                Some(Cut::All) => {
                    self.moved.push((step, old_events.clone(), None));
                    continue;
                }
                Some(Cut::From(first)) => cut_index(&mut known, first),
                None => {}
            }
            if known.entries.is_empty() && known.shapes.is_empty() && known.shards.is_empty() {
                self.moved.push((step, old_events.clone(), None));
                continue;
            }
            known.entries.sort_by_key(|entry| entry.offset);
            for entry in &mut known.entries {
                let file = old.as_mut().ok_or_else(|| damaged(key, "its event file is missing"))?;
                let events = match &mut self.events {
                    Some(events) => events,
                    None => self.events.insert(Unfinished::create(root, &self.name.event_key(worker))?),
                };
                let wrong = |source| io_error(&root.join(&old_events), source);
                let mut record = Vec::new();
                file.seek(SeekFrom::Start(entry.offset)).map_err(wrong)?;
                file.take(entry.length).read_to_end(&mut record).map_err(wrong)?;
                if record.len() as u64 != entry.length {
                    return Err(damaged(key, format!("the record of step {step} at byte {} is cut off", entry.offset)));
                }
                entry.offset = events.written();
                events.write(&record)?;
            }
            known.event_file = known.event_file.map(|_| self.name.event_key(worker).into());
            self.index.extend_from_slice(&to_line(step, &known));
            self.moved.push((step, old_events.clone(), Some(known.to_bytes())));
        }
        Ok(())
    }

    /// Makes the segment visible, and index files of its steps refer to it. Returns its bytes, if anything is left.
    fn publish(self) -> Result<Option<u64>> {
        let mut size = self.index.len() as u64;
        if size > 0 {
            if let Some(events) = self.events {
                size += events.written();
                events.publish(false)?;
            }
            replace(self.root, &self.name.index_key(self.worker), &self.index)?;
        }
        for (step, old_events, known) in self.moved {
            move_index_file(self.root, step, self.worker, &old_events, known.as_deref())?;
        }
        Ok(Some(size).filter(|size| *size > 0))
    }
}

/// Deletes a worker's steps from `first` on from its segments, which no writer appends to.
pub fn cut_steps(root: &Path, worker: &str, first: Step) -> Result<()> {
    for key in of_worker(&Local::new(root), &worker_file_name(worker)?)? {
        let content = read(root, &key)?;
        let steps = lines(&content, &key).0.into_iter().map(|line| line.step).filter(|step| *step >= first);
        let cuts: HashMap<Step, Cut> = steps.map(|step| (step, Cut::All)).collect();
        if !cuts.is_empty() {
            rewrite(root, &[(&key, &cuts)])?;
        }
    }
    Ok(())
}

/// Writes index files of steps that are in segments, for readers that know only these.
pub fn show_steps(root: &Path, worker: &str, steps: &[Step]) -> Result<()> {
    let worker = worker_file_name(worker)?;
    for key in of_worker(&Local::new(root), &worker)? {
        let content = read(root, &key)?;
        for (step, known) in last_lines(&content, &key)? {
            if steps.contains(&step) {
                replace(root, &index_key(step, &worker)?, &known.to_bytes())?;
            }
        }
    }
    Ok(())
}

/// The last line of each step, in the order of the steps' first lines.
fn last_lines<'a>(content: &'a [u8], key: &str) -> Result<Vec<(Step, Index<'a>)>> {
    let mut places: HashMap<Step, usize> = HashMap::new();
    let mut steps: Vec<(Step, Index<'a>)> = Vec::new();
    for line in lines(content, key).0 {
        let at = *places.entry(line.step).or_insert(steps.len());
        if at == steps.len() {
            steps.push((line.step, line.index?));
        } else {
            steps[at].1 = line.index?;
        }
    }
    Ok(steps)
}

/// Leaves the tensors before the one of this name, and what is known of them.
fn cut_index(index: &mut Index<'_>, first: &str) {
    let Some(end) = index.entries.iter().filter(|entry| entry.name == first).map(|entry| entry.offset).min() else {
        return;
    };
    index.entries.retain(|entry| entry.offset < end);
    let is_left = |name: &str| index.entries.iter().any(|entry| entry.name == name);
    index.shapes.retain(|shaped| is_left(&shaped.name));
    index.shards.retain(|part| is_left(&part.name));
}

/// An index file of a step that refers to the old event file is replaced, or removed.
fn move_index_file(root: &Path, step: Step, worker: &str, old: &str, known: Option<&[u8]>) -> Result<()> {
    let key = index_key(step, worker)?;
    let Ok(content) = fs::read(root.join(&key)) else { return Ok(()) };
    if !Index::parse(&content, &key).is_ok_and(|found| found.event_file.as_deref() == Some(old)) {
        return Ok(());
    }
    match known {
        Some(known) => replace(root, &key, known),
        None => remove(root, &key),
    }
}

fn read(root: &Path, key: &str) -> Result<Vec<u8>> {
    let run = Local::new(root);
    let file = run.open_file(key)?;
    run.read_whole(file, key)
}

fn replace(root: &Path, key: &str, content: &[u8]) -> Result<()> {
    let mut file = Unfinished::create(root, key)?;
    file.write(content)?;
    file.publish(false).map(drop)
}

fn remove(root: &Path, key: &str) -> Result<()> {
    let path = root.join(key);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(io_error(&path, source)),
        _ => Ok(()),
    }
}

fn io_error(path: &Path, source: io::Error) -> Error {
    Error::Io { file: path.display().to_string(), source }
}
