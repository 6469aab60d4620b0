//! TensorBoard's logs: growing files of events, and what lies where in them.
//!
//! A run is one directory of event files, or several that stand for modes (`train/`, `validation/`): its *lanes*. Tags are the
//! names of tensors. Scalars are kept as columns of numbers, all else by where it lies.

mod cache;
mod column;
mod held;
mod queries;
mod scan;
mod values;
mod view;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rayon::prelude::*;

pub use cache::Cache;
pub use column::{Cell, Class, Column, ValueLocation};
pub use queries::Found;
pub use scan::{Problem, Scanner, Series};
pub use values::{Asked, Content, Values, buckets};
pub use view::{Orphans, Range, Row, View};

use cache::About;

use crate::error::Result;
use crate::pool;
use crate::source::{FILE_TIME_GRANULARITY, Source};
use crate::step::{Mode, Step};

/// One directory of event files.
#[derive(Debug)]
struct Lane {
    /// The directory, relative to the run; empty for the run's own.
    directory: String,
    worker: String,
    mode: Mode,
    /// What its tags are called by: tag and suffix.
    suffix: String,
    /// In the order of their names, which is that of their times.
    files: Vec<File>,
    listed: Option<SystemTime>,
    /// The least step restarted in each file or a later one.
    restarted: Vec<Step>,
    views: Mutex<HashMap<u32, Arc<View>>>,
}

/// A directory of event files, and what it is in its run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    /// Where it is, relative to the run; empty for the run's own.
    pub path: String,
    /// The worker's name.
    pub worker: String,
    /// The mode's number.
    pub mode: Mode,
    /// What is put behind its tags, to make them names.
    pub suffix: String,
}

#[derive(Debug)]
struct File {
    key: String,
    scanner: Scanner,
    /// Its tags, by the numbers of names: where in the scanner's list each is.
    series: HashMap<u32, u32>,
    numbered: usize,
    seen: Option<Seen>,
    unreadable: Option<String>,
    /// Bytes that need not be read, because a cache knew what is in them.
    cached: u64,
    /// How far reading had come when it was last kept in a cache.
    kept: u64,
    /// Whether its values are to be held in memory.
    holds: bool,
}

/// What is known of a file from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    about: About,
    identity: u64,
}

/// The name of a tensor: a tag and what its values are.
#[derive(Debug)]
pub struct Name {
    /// The name: the tag, but where another class of value has taken that.
    pub name: String,
    /// The tag.
    pub tag: String,
    /// What its values are.
    pub class: Class,
    /// The plugin of TensorBoard's.
    pub plugin: String,
    /// What the writer says about it.
    pub description: String,
}

/// What a run holds.
#[derive(Debug)]
pub struct Log {
    lanes: Vec<Lane>,
    orphans: Orphans,
    range: Range,
    names: Vec<Name>,
    by_key: HashMap<(Class, String), u32>,
    by_name: HashMap<String, u32>,
    generation: u64,
    steps: Mutex<HashMap<Option<Mode>, Arc<Vec<Step>>>>,
    cache: Option<Cache>,
    holds: bool,
}

impl Log {
    /// A log of these directories. Nothing is read yet.
    pub fn new(directories: Vec<Directory>, orphans: Orphans, range: Range) -> Self {
        Log {
            lanes: directories.into_iter().map(Lane::new).collect(),
            orphans,
            range,
            names: Vec::new(),
            by_key: HashMap::new(),
            by_name: HashMap::new(),
            generation: 0,
            steps: Mutex::default(),
            cache: None,
            holds: false,
        }
    }

    /// The log is found to be one of these directories. What was read of those that it had is kept.
    pub fn lay_out(&mut self, directories: Vec<Directory>) {
        let mut known = std::mem::take(&mut self.lanes);
        let lay = |directory: Directory| {
            let mut lane = Lane::new(directory);
            let own = |one: &Lane| one.directory == lane.directory && one.suffix == lane.suffix;
            if let Some(at) = known.iter().position(own) {
                lane.files = known.swap_remove(at).files;
            }
            lane
        };
        self.lanes = directories.into_iter().map(lay).collect();
        self.take_in();
    }

    /// The same log, which keeps what it reads of large files there, and finds there what was kept of them.
    #[must_use]
    pub fn cached(self, cache: Cache) -> Self {
        Log { cache: Some(cache), ..self }
    }

    /// The same log, which holds all values in memory as it reads, so that no file is needed to give them.
    #[must_use]
    pub fn holding(self) -> Self {
        Log { holds: true, ..self }
    }

    /// Grows whenever an answer may have changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Names of tensors, in the order of their first appearance.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Lists the directories below `root` that may have changed. Whether there are new files.
    pub fn list_local(&mut self, root: &Path) -> Result<()> {
        for lane in 0..self.lanes.len() {
            let directory = root.join(&self.lanes[lane].directory);
            let Ok(changed) = fs::metadata(&directory).and_then(|about| about.modified()) else { continue };
            // What comes within one tick of the last look does not show in the directory's time.
            let young = changed.elapsed().is_ok_and(|age| age < FILE_TIME_GRANULARITY);
            if self.lanes[lane].listed == Some(changed) && !young {
                continue;
            }
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let own = self.lanes[lane].directory.clone();
            let key = |name: String| if own.is_empty() { name } else { format!("{own}/{name}") };
            let keys = names.map(key).filter(|key| is_event_file(key) && root.join(key).is_file()).collect();
            self.add_files(lane, keys);
            self.lanes[lane].listed = Some(changed);
        }
        Ok(())
    }

    /// Takes in the keys of a listing: those of event files that lie directly in one of the directories.
    pub fn add_keys(&mut self, keys: &[String]) {
        for lane in 0..self.lanes.len() {
            let own = &self.lanes[lane].directory;
            let mine = |key: &&String| {
                let directory = key.rsplit_once('/').map_or("", |(directory, _)| directory);
                directory == own && is_event_file(key)
            };
            let mine: Vec<String> = keys.iter().filter(mine).cloned().collect();
            self.add_files(lane, mine);
        }
    }

    fn add_files(&mut self, lane: usize, keys: Vec<String>) {
        let holds = self.holds;
        let lane = &mut self.lanes[lane];
        let known: std::collections::HashSet<&str> = lane.files.iter().map(|file| file.key.as_str()).collect();
        let new: Vec<String> = keys.into_iter().filter(|key| !known.contains(key.as_str())).collect();
        if new.is_empty() {
            return;
        }
        lane.files.extend(new.into_iter().map(|key| File::new(key, holds)));
        lane.files.sort_by(|a, b| a.key.cmp(&b.key));
        lane.views.get_mut().clear();
        self.generation += 1;
    }

    /// Reads what is new in the files, side by side. `local` is where they lie, if they lie in a directory: then only files
    /// that have changed are opened, and one that was replaced is read anew. Whether there was anything new.
    pub fn read(&mut self, source: &dyn Source, local: Option<&Path>, threads: Option<usize>) -> Result<bool> {
        let mut changed: Vec<&mut File> = Vec::new();
        let mut replaced = false;
        let cache = self.cache.as_ref();
        for file in self.lanes.iter_mut().flat_map(|lane| &mut lane.files) {
            if let Some(root) = local {
                // A file that is gone keeps what was read of it.
                let Some(seen) = Seen::of(&root.join(&file.key)) else { continue };
                if file.seen == Some(seen) {
                    continue;
                }
                if file.seen.is_some_and(|before| before.identity != seen.identity)
                    || seen.about.size < file.scanner.end()
                {
                    *file = File::new(std::mem::take(&mut file.key), file.holds);
                    replaced = true;
                }
                file.seen = Some(seen);
            }
            changed.push(file);
        }
        let news = match changed.as_mut_slice() {
            [] => false,
            [one] => one.read(source, cache),
            many => pool::run(threads, || {
                many.par_iter_mut().map(|file| file.read(source, cache)).reduce(|| false, |one, other| one | other)
            })?,
        };
        if news || replaced {
            self.take_in();
        }
        Ok(news || replaced)
    }

    /// Gives new tags names and forgets answers that may have changed.
    fn take_in(&mut self) {
        self.generation += 1;
        self.steps.get_mut().clear();
        let Log { lanes, names, by_key, by_name, .. } = self;
        for lane in lanes {
            lane.views.get_mut().clear();
            for file in &mut lane.files {
                for (at, series) in file.scanner.series().iter().enumerate().skip(file.numbered) {
                    let full = format!("{}{}", series.tag, lane.suffix);
                    let key = (series.class, full.clone());
                    let id = *by_key.entry(key).or_insert_with(|| {
                        let id = names.len() as u32;
                        // A tag may stand for values of several classes: the first keeps the plain name.
                        let mut name = full;
                        while by_name.contains_key(&name) {
                            name = format!("{name} ({})", series.class.name());
                        }
                        by_name.insert(name.clone(), id);
                        names.push(Name {
                            name,
                            tag: series.tag.clone(),
                            class: series.class,
                            plugin: series.plugin.clone(),
                            description: series.description.clone(),
                        });
                        id
                    });
                    file.series.insert(id, at as u32);
                }
                file.numbered = file.scanner.series().len();
            }
            lane.restarted = vec![Step::MAX; lane.files.len() + 1];
            for (at, file) in lane.files.iter().enumerate().rev() {
                let least = file.scanner.restarts().iter().copied().min().unwrap_or(Step::MAX);
                lane.restarted[at] = lane.restarted[at + 1].min(least);
            }
        }
    }
}

impl Lane {
    fn new(directory: Directory) -> Lane {
        let Directory { path, worker, mode, suffix } = directory;
        let (files, restarted) = (Vec::new(), Vec::new());
        Lane { directory: path, worker, mode, suffix, files, listed: None, restarted, views: Mutex::default() }
    }
}

impl File {
    fn new(key: String, holds: bool) -> Self {
        File {
            key,
            scanner: Scanner::new(holds),
            series: HashMap::new(),
            numbered: 0,
            seen: None,
            unreadable: None,
            cached: 0,
            kept: 0,
            holds,
        }
    }

    fn read(&mut self, source: &dyn Source, cache: Option<&Cache>) -> bool {
        let read = source.open(&self.key).and_then(|blob| {
            let about = self.seen.map_or_else(Default::default, |seen| seen.about);
            let mut resumed = false;
            if let Some(cache) = cache.filter(|_| self.scanner.end() == 0)
                && let Some(scanner) = cache.load(&self.key, blob.as_ref(), about)
                // What a cache knows of other values is where they lie.
                && (!self.holds || scanner.series().iter().all(|series| series.class == Class::Scalar))
            {
                (self.cached, self.kept, resumed) = (scanner.end(), scanner.end(), true);
                self.scanner = if self.holds { scanner.holding() } else { scanner };
            }
            let news = self.scanner.read(blob.as_ref(), source.reach().piece)?;
            if let Some(cache) = cache {
                self.kept = cache.keep(&self.key, blob.as_ref(), about, &self.scanner, self.kept);
            }
            Ok(news || resumed)
        });
        let was = self.unreadable.take();
        match read {
            Ok(news) => news || was.is_some(),
            Err(error) => {
                // Tried again with the next look, whatever the file's size.
                self.seen = None;
                self.unreadable = Some(error.to_string());
                self.unreadable != was
            }
        }
    }

    fn column(&self, name: u32) -> Option<&Column> {
        let at = self.series.get(&name)?;
        self.scanner.series().get(*at as usize).map(|series| &series.column)
    }
}

impl Seen {
    fn of(path: &Path) -> Option<Seen> {
        let about = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let identity = std::os::unix::fs::MetadataExt::ino(&about);
        #[cfg(not(unix))]
        let identity = 0;
        let since = about.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let written = since.map_or(0, |since| since.as_nanos() as u64);
        Some(Seen { about: About { size: about.len(), written }, identity })
    }
}

/// Whether a key names an event file of TensorBoard. smdebug's tensor files, which also have `tfevents` in their names,
/// are recognized by their directory: `events/<12 digits>/<12 digits>_...`.
pub fn is_event_file(key: &str) -> bool {
    let mut parts = key.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let is_step = |digits: &str| digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_smdebug = name.split_once('_').is_some_and(|(step, _)| is_step(step))
        && parts.next().is_some_and(is_step)
        && parts.next() == Some("events");
    name.contains("tfevents") && !is_smdebug
}

#[cfg(test)]
mod tests;
