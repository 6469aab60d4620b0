//! Incremental listing of a growing directory tree: unchanged directories are not read again.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::watch::Watch;
use super::{FILE_TIME_GRANULARITY, Local};
use crate::error::{Error, Result};

/// Resolution of file times on file systems that store them in nanoseconds: one tick of the kernel's clock, and a margin.
const FINE: Duration = Duration::from_millis(50);

/// Limit on the depth of directories; the format has two levels.
const DEEPEST: usize = 4;

/// With this many files in total, directories are watched from the second listing on.
const MANY: usize = 200;

/// A directory's modification time and, on Unix, its change time, which copiers that preserve times cannot set.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Modified {
    time: SystemTime,
    changed: (i64, i64),
}

impl Modified {
    fn of(path: &Path) -> Modified {
        let about = fs::symlink_metadata(path).ok();
        let time = about.as_ref().and_then(|about| about.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH);
        #[cfg(unix)]
        let changed = about.map_or((0, 0), |about| {
            use std::os::unix::fs::MetadataExt;
            (about.ctime(), about.ctime_nsec())
        });
        #[cfg(not(unix))]
        let changed = (0, 0);
        Modified { time, changed }
    }
}

/// The state of a directory tree at the last listing.
#[derive(Default)]
pub struct Listing {
    directories: HashMap<String, DirectoryState>,
    watch: Option<Watch>,
}

struct DirectoryState {
    modified: Modified,
    /// When this modification time was first seen.
    since: Instant,
    /// Whether a listing began after the modification time could no longer hide additions.
    settled: bool,
    /// Subdirectories.
    below: Vec<String>,
    /// Number of files.
    files: usize,
}

impl Listing {
    /// Calls `found(directory, name)` for all files in the tree that may be new. May repeat a file, never omits one.
    pub fn walk(&mut self, run: &Local, directory: &str, found: &mut dyn FnMut(&str, &str)) -> Result<()> {
        if let (Some(mut watch), Some(about)) = (self.watch.take(), about(&run.path().join(directory))?)
            && watch.changes(&about, found)
        {
            self.watch = Some(watch);
            return Ok(());
        }
        let is_large = self.directories.values().map(|seen| seen.files).sum::<usize>() >= MANY;
        // Watching starts before listing, so that nothing is missed in between.
        let mut watch = if is_large { Watch::new() } else { None };
        self.list_changed(run, directory, &mut watch, found)?;
        self.watch = watch;
        Ok(())
    }

    /// Lists all changed directories.
    fn list_changed(
        &mut self,
        run: &Local,
        directory: &str,
        watch: &mut Option<Watch>,
        found: &mut dyn FnMut(&str, &str),
    ) -> Result<()> {
        let path = run.path().join(directory);
        // Links are not followed.
        let Some(about) = about(&path)?.filter(Metadata::is_dir) else {
            self.directories.remove(directory);
            return Ok(());
        };
        if watch.as_mut().is_some_and(|watch| !watch.add(&path, directory, &about)) {
            *watch = None;
        }
        // Read after the watch was added.
        let modified = Modified::of(&path);
        let unchanged = self.directories.get(directory).filter(|seen| seen.settled && seen.modified == modified);
        let below = match unchanged {
            Some(seen) => seen.below.clone(),
            None => self.list(directory, &path, modified, found)?,
        };
        if directory.matches('/').count() >= DEEPEST {
            return Ok(());
        }
        below.iter().try_for_each(|name| self.list_changed(run, &format!("{directory}/{name}"), watch, found))
    }

    /// Lists a directory and returns its subdirectories.
    fn list(
        &mut self,
        directory: &str,
        path: &Path,
        modified: Modified,
        found: &mut dyn FnMut(&str, &str),
    ) -> Result<Vec<String>> {
        let before = self.directories.remove(directory).filter(|before| before.modified == modified);
        let since = before.map_or_else(Instant::now, |before| before.since);
        // The time can no longer hide additions: judged by our own clock, since a server's may differ, or, for fine-grained
        // times, if it is old by any clock.
        let age = SystemTime::now().duration_since(modified.time).unwrap_or_default();
        let settled = since.elapsed() > granularity(modified.time) || is_fine(modified.time) && age > FINE;
        let (mut files, mut below) = (0, Vec::new());
        list(path, &mut |name, is_directory| {
            if is_directory {
                below.push(name.to_owned());
            } else {
                files += 1;
                found(directory, name);
            }
        })?;
        self.directories
            .insert(directory.to_owned(), DirectoryState { modified, since, settled, below: below.clone(), files });
        Ok(below)
    }
}

/// Metadata of a path, without following links; `None` if nothing exists there.
fn about(path: &Path) -> Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(about) => Ok(Some(about)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { file: path.display().to_string(), source }),
    }
}

fn is_fine(time: SystemTime) -> bool {
    time.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|age| age.subsec_nanos() % 1_000_000 != 0)
}

fn granularity(time: SystemTime) -> Duration {
    if is_fine(time) { FINE } else { FILE_TIME_GRANULARITY }
}

/// Calls `found(name, is_directory)` for each entry of a directory.
#[cfg(target_os = "linux")]
fn list(path: &Path, found: &mut dyn FnMut(&str, bool)) -> Result<()> {
    use rustix::fs::{FileType, Mode, OFlags, RawDir, open};
    let wrong = |e: rustix::io::Errno| Error::Io { file: path.display().to_string(), source: e.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let directory = open(path, flags, Mode::empty()).map_err(wrong)?;
    // Reads large blocks without a string per name: a directory can hold a thousand steps of every worker.
    let mut buffer = Vec::with_capacity(64 * 1024);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(wrong)?;
        // Names that are not UTF-8 are not ours.
        let Ok(name) = entry.file_name().to_str() else { continue };
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => fs::symlink_metadata(path.join(name)).is_ok_and(|about| about.is_dir()),
            _ => false,
        };
        if name != "." && name != ".." {
            found(name, is_directory);
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn list(path: &Path, found: &mut dyn FnMut(&str, bool)) -> Result<()> {
    let wrong = |source| Error::Io { file: path.display().to_string(), source };
    for entry in fs::read_dir(path).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Links to directories are not followed: the type is that of the link.
        found(&name, entry.file_type().is_ok_and(|kind| kind.is_dir()));
    }
    Ok(())
}
