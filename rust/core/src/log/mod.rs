//! TensorBoard logs: growing event files, indexed by tag.
//!
//! A run is one directory of event files, or several for modes (`train/`, `validation/`): its *lanes*. Tags are the names
//! of tensors. Scalars are stored as columns of numbers, all other values by location.

mod cache;
mod column;
mod cursor;
mod external_rows;
mod parts;
mod queries;
mod scan;
mod stored_values;
mod values;
mod view;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rayon::prelude::*;

pub use cache::Cache;
pub use column::{Cell, Class, Column, ValueLocation};
pub use cursor::{NewRows, ScalarCursor};
pub use external_rows::ExternalRows;
pub use queries::Found;
pub use scan::{Problem, Scanner, Series};
pub use values::{LoggedValue, RequestedRow, Values, buckets};
pub use view::{Orphans, Range, RowRef, View};

use cache::FileVersion;

use crate::error::Result;
use crate::pool;
use crate::source::{FILE_TIME_GRANULARITY, Source};
use crate::step::{Mode, Step};

/// Files with so many unread bytes are read by several threads.
const LONG: u64 = 8 << 20;

/// A directory of event files.
#[derive(Debug)]
struct EventDirectory {
    /// The directory, relative to the run; empty for the run's own.
    directory: String,
    worker: String,
    mode: Mode,
    /// Suffix that is added to its tags.
    suffix: String,
    /// Ordered by name, which is the order of creation.
    files: Vec<File>,
    listed: Option<SystemTime>,
    /// For each file, the lowest restart step in it or a later file.
    restarted: Vec<Step>,
    views: Mutex<HashMap<u32, Arc<View>>>,
}

/// A directory of event files and its role in the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    /// The path, relative to the run; empty for the run's own directory.
    pub path: String,
    /// The name of the worker.
    pub worker: String,
    /// The mode.
    pub mode: Mode,
    /// Suffix that is added to its tags.
    pub suffix: String,
}

#[derive(Debug)]
struct File {
    key: String,
    scanner: Scanner,
    /// Index of the series of each name.
    series: HashMap<u32, u32>,
    numbered: usize,
    seen: Option<FileStat>,
    unreadable: Option<String>,
    /// Bytes that were restored from the cache.
    cached: u64,
    /// Offset up to which the file was last cached.
    cached_until: u64,
    /// Whether values are kept in memory.
    stores_values: bool,
    /// Whether its rows were read elsewhere, so that it is no event file.
    external: bool,
}

/// File metadata, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStat {
    about: FileVersion,
    identity: u64,
}

/// A tensor: a tag and the class of its values.
#[derive(Debug)]
pub struct Name {
    /// The name: the tag, made unique if another class of values has the same tag.
    pub name: String,
    /// The tag.
    pub tag: String,
    /// The class of the values.
    pub class: Class,
    /// The TensorBoard plugin.
    pub plugin: String,
    /// The writer's description.
    pub description: String,
}

/// The log of a run.
#[derive(Debug)]
pub struct Log {
    lanes: Vec<EventDirectory>,
    orphans: Orphans,
    range: Range,
    names: Vec<Name>,
    by_key: HashMap<(Class, String), u32>,
    by_name: HashMap<String, u32>,
    generation: u64,
    /// Increases whenever indices of lanes or files, or rows that were read, have changed.
    arrangement: u64,
    steps: Mutex<HashMap<Option<Mode>, Arc<Vec<Step>>>>,
    cache: Option<Cache>,
    stores_values: bool,
    /// The keys of the files to read; `None`: all.
    only: Option<HashSet<String>>,
}

impl Log {
    /// A log of these directories. Reads nothing yet.
    pub fn new(directories: Vec<Directory>, orphans: Orphans, range: Range) -> Self {
        Log {
            lanes: directories.into_iter().map(EventDirectory::new).collect(),
            orphans,
            range,
            names: Vec::new(),
            by_key: HashMap::new(),
            by_name: HashMap::new(),
            generation: 0,
            arrangement: 0,
            steps: Mutex::default(),
            cache: None,
            stores_values: false,
            only: None,
        }
    }

    /// Reads only these files, by key.
    #[must_use]
    pub fn only(self, keys: impl IntoIterator<Item = String>) -> Self {
        Log { only: Some(keys.into_iter().collect()), ..self }
    }

    /// Changes the set of directories. Keeps what was read of those that remain.
    pub fn set_directories(&mut self, directories: Vec<Directory>) {
        let mut known = std::mem::take(&mut self.lanes);
        let lay = |directory: Directory| {
            let mut lane = EventDirectory::new(directory);
            let own = |one: &EventDirectory| one.directory == lane.directory && one.suffix == lane.suffix;
            if let Some(at) = known.iter().position(own) {
                lane.files = known.swap_remove(at).files;
            }
            lane
        };
        self.lanes = directories.into_iter().map(lay).collect();
        self.arrangement += 1;
        self.index_new_series();
    }

    /// Uses a cache for what is read of large files.
    #[must_use]
    pub fn cached(self, cache: Cache) -> Self {
        Log { cache: Some(cache), ..self }
    }

    /// Keeps all values in memory, so that no file is needed to return them.
    #[must_use]
    pub fn storing_values(self) -> Self {
        Log { stores_values: true, ..self }
    }

    /// Increases whenever a result may have changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The tensors, in the order of first appearance.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Lists the directories that may have changed and adds new files.
    pub fn list_local(&mut self, root: &Path) -> Result<()> {
        for lane in 0..self.lanes.len() {
            let directory = root.join(&self.lanes[lane].directory);
            let Ok(changed) = fs::metadata(&directory).and_then(|about| about.modified()) else { continue };
            // Files created within the granularity after the last listing do not change the directory's time.
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

    /// Adds keys: those of event files directly in one of the directories.
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

    /// Sets the rows of a file in another format, which was read elsewhere. They replace those of an earlier call. Returns
    /// whether the log has the directory.
    pub fn set_rows(&mut self, directory: &str, key: &str, rows: Vec<ExternalRows>) -> bool {
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.directory == directory) else { return false };
        let mut file = File::new(key.to_owned(), false);
        file.external = true;
        for external in rows {
            file.scanner.put(external.into());
        }
        let grew = match lane.files.binary_search_by(|known| known.key.as_str().cmp(key)) {
            Ok(at) => {
                let before = std::mem::replace(&mut lane.files[at], file);
                begins_with(lane.files[at].scanner.series(), before.scanner.series())
            }
            Err(at) => {
                lane.files.insert(at, file);
                at + 1 == lane.files.len()
            }
        };
        self.arrangement += u64::from(!grew);
        self.index_new_series();
        true
    }

    fn add_files(&mut self, lane: usize, keys: Vec<String>) {
        let stores_values = self.stores_values;
        let only = self.only.as_ref();
        let lane = &mut self.lanes[lane];
        let known: HashSet<&str> = lane.files.iter().map(|file| file.key.as_str()).collect();
        let new: Vec<String> = keys
            .into_iter()
            .filter(|key| !known.contains(key.as_str()) && only.is_none_or(|only| only.contains(key)))
            .collect();
        if new.is_empty() {
            return;
        }
        let moved = lane.files.last().is_some_and(|last| new.iter().any(|key| *key < last.key));
        lane.files.extend(new.into_iter().map(|key| File::new(key, stores_values)));
        lane.files.sort_by(|a, b| a.key.cmp(&b.key));
        self.arrangement += u64::from(moved);
        lane.views.get_mut().clear();
        self.generation += 1;
    }

    /// Reads new data of all files in parallel. With `local`, the directory of the files, only changed files are opened and
    /// replaced ones are read again. Returns whether anything changed.
    pub fn read(&mut self, source: &dyn Source, local: Option<&Path>, threads: Option<usize>) -> Result<bool> {
        let mut files: Vec<&mut File> = Vec::new();
        let mut replaced = false;
        let cache = self.cache.as_ref();
        for file in self.lanes.iter_mut().flat_map(|lane| &mut lane.files).filter(|file| !file.external) {
            if let Some(root) = local {
                // Deleted files keep what was read of them.
                let Some(seen) = FileStat::of(&root.join(&file.key)) else { continue };
                if file.seen == Some(seen) {
                    continue;
                }
                if file.seen.is_some_and(|before| before.identity != seen.identity)
                    || seen.about.size < file.scanner.end()
                {
                    *file = File::new(std::mem::take(&mut file.key), file.stores_values);
                    replaced = true;
                }
                file.seen = Some(seen);
            }
            files.push(file);
        }
        let changed = match files.as_mut_slice() {
            [] => false,
            [one] if !one.is_long() => one.read(source, cache),
            many => pool::run(threads, || {
                many.par_iter_mut().map(|file| file.read(source, cache)).reduce(|| false, |one, other| one | other)
            })?,
        };
        self.arrangement += u64::from(replaced);
        if changed || replaced {
            self.index_new_series();
        }
        Ok(changed || replaced)
    }

    /// Names new tags and clears cached results.
    fn index_new_series(&mut self) {
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
                        // A tag may have values of several classes: the first keeps the plain name.
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

/// Whether the first rows of all series are those of others.
fn begins_with(series: &[Series], others: &[Series]) -> bool {
    others.iter().all(|other| {
        let same = |one: &&Series| one.class == other.class && one.tag == other.tag;
        series.iter().find(same).is_some_and(|one| one.column.begins_with(&other.column))
    })
}

impl EventDirectory {
    fn new(directory: Directory) -> EventDirectory {
        let Directory { path, worker, mode, suffix } = directory;
        let (files, restarted) = (Vec::new(), Vec::new());
        EventDirectory {
            directory: path,
            worker,
            mode,
            suffix,
            files,
            listed: None,
            restarted,
            views: Mutex::default(),
        }
    }
}

impl File {
    fn new(key: String, stores_values: bool) -> Self {
        File {
            key,
            scanner: Scanner::new(stores_values),
            series: HashMap::new(),
            numbered: 0,
            seen: None,
            unreadable: None,
            cached: 0,
            cached_until: 0,
            stores_values,
            external: false,
        }
    }

    fn read(&mut self, source: &dyn Source, cache: Option<&Cache>) -> bool {
        let read = source.open(&self.key).and_then(|blob| {
            let about = self.seen.map_or_else(Default::default, |seen| seen.about);
            let mut resumed = false;
            if let Some(cache) = cache.filter(|_| self.scanner.end() == 0)
                && let Some(scanner) = cache.load(&self.key, blob.as_ref(), about)
                // The cache stores only the location of other values.
                && (!self.stores_values || scanner.series().iter().all(|series| series.class == Class::Scalar))
            {
                (self.cached, self.cached_until, resumed) = (scanner.end(), scanner.end(), true);
                self.scanner = if self.stores_values { scanner.storing_values() } else { scanner };
            }
            let piece = source.reach().piece;
            let changed = if self.is_long() {
                self.scanner.read_on_threads(blob.as_ref(), piece)?
            } else {
                self.scanner.read(blob.as_ref(), piece)?
            };
            if let Some(cache) = cache {
                self.cached_until = cache.store(&self.key, blob.as_ref(), about, &self.scanner, self.cached_until);
            }
            Ok(changed || resumed)
        });
        let was = self.unreadable.take();
        match read {
            Ok(changed) => changed || was.is_some(),
            Err(error) => {
                // Retried on the next read, whatever the file's size.
                self.seen = None;
                self.unreadable = Some(error.to_string());
                self.unreadable != was
            }
        }
    }

    /// Whether so much is to be read that threads are worth starting.
    fn is_long(&self) -> bool {
        self.seen.is_some_and(|seen| seen.about.size.saturating_sub(self.scanner.end()) >= LONG)
    }

    fn column(&self, name: u32) -> Option<&Column> {
        let at = self.series.get(&name)?;
        self.scanner.series().get(*at as usize).map(|series| &series.column)
    }
}

impl FileStat {
    fn of(path: &Path) -> Option<FileStat> {
        let about = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let identity = std::os::unix::fs::MetadataExt::ino(&about);
        #[cfg(not(unix))]
        let identity = 0;
        let since = about.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let written = since.map_or(0, |since| since.as_nanos() as u64);
        Some(FileStat { about: FileVersion { size: about.len(), written }, identity })
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
