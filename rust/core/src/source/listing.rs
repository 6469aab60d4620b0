//! Listing a growing directory again and again: what has not changed is not read again.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::Local;
use crate::error::{Error, Result};

/// How finely file systems tell times apart: the coarse ones to two seconds, the others to a tick of the kernel's clock.
const COARSE: Duration = Duration::from_secs(2);
const FINE: Duration = Duration::from_millis(50);

/// Directories below directories below ...: the format has two.
const DEEPEST: usize = 4;

/// What was seen of the directories below one directory.
#[derive(Default)]
pub struct Listing {
    directories: HashMap<String, Seen>,
}

struct Seen {
    modified: SystemTime,
    /// When this time of modification was first seen.
    since: Instant,
    /// A listing began when nothing could be added any more without changing the time.
    settled: bool,
    /// The directories in it.
    below: Vec<String>,
}

impl Listing {
    /// Say `found(key)` for the files in `directory` and below, except in directories that have not changed since they were
    /// last listed. A file may be said again; none is left out.
    pub fn walk(&mut self, run: &Local, directory: &str, found: &mut dyn FnMut(&str, &str)) -> Result<()> {
        let path = run.path().join(directory);
        let about = match fs::symlink_metadata(&path) {
            Ok(about) => about,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.directories.remove(directory);
                return Ok(());
            }
            Err(source) => return Err(Error::Io { file: path.display().to_string(), source }),
        };
        // A link is not followed, and a file is not a directory of index files.
        if !about.is_dir() {
            return Ok(());
        }
        let below = match self.unchanged(directory, &about) {
            Some(below) => below,
            None => {
                let below = list(&path, &mut |name| found(directory, name));
                let below = below.inspect_err(|_| drop(self.directories.remove(directory)))?;
                if let Some(seen) = self.directories.get_mut(directory) {
                    seen.below.clone_from(&below);
                }
                below
            }
        };
        if directory.matches('/').count() >= DEEPEST {
            return Ok(());
        }
        below.iter().try_for_each(|name| self.walk(run, &format!("{directory}/{name}"), found))
    }

    /// The directories in a directory that need not be listed again. Notes what its time says.
    fn unchanged(&mut self, directory: &str, about: &Metadata) -> Option<Vec<String>> {
        let (now, modified) = (Instant::now(), about.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        let seen = self.directories.get_mut(directory);
        if let Some(seen) = seen.filter(|seen| seen.modified == modified) {
            if seen.settled {
                return Some(seen.below.clone());
            }
            // By our own clock alone: a server's may be ahead or behind.
            seen.settled = now.duration_since(seen.since) > granularity(modified);
        } else {
            // First seen now. If it is old, and times are fine, nothing of the same time can come.
            let age = SystemTime::now().duration_since(modified).unwrap_or_default();
            let settled = is_fine(modified) && age > FINE;
            let seen = Seen { modified, since: now, settled, below: Vec::new() };
            self.directories.insert(directory.to_owned(), seen);
        }
        None
    }
}

fn is_fine(time: SystemTime) -> bool {
    time.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|age| age.subsec_nanos() % 1_000_000 != 0)
}

fn granularity(time: SystemTime) -> Duration {
    if is_fine(time) { FINE } else { COARSE }
}

/// The names of files in a directory, to `found`; its directories.
#[cfg(target_os = "linux")]
fn list(path: &Path, found: &mut dyn FnMut(&str)) -> Result<Vec<String>> {
    use rustix::fs::{FileType, Mode, OFlags, RawDir, open};
    let wrong = |e: rustix::io::Errno| Error::Io { file: path.display().to_string(), source: e.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let directory = open(path, flags, Mode::empty()).map_err(wrong)?;
    // Read in large pieces and without a string for each name: a folder holds up to a thousand steps of every worker.
    let mut buffer = Vec::with_capacity(64 * 1024);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    let mut below = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(wrong)?;
        // A name that is no text is none of ours.
        let Ok(name) = entry.file_name().to_str() else { continue };
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => fs::symlink_metadata(path.join(name)).is_ok_and(|about| about.is_dir()),
            _ => false,
        };
        match (is_directory, name) {
            (true, "." | "..") => {}
            (true, name) => below.push(name.to_owned()),
            (false, name) => found(name),
        }
    }
    Ok(below)
}

#[cfg(not(target_os = "linux"))]
fn list(path: &Path, found: &mut dyn FnMut(&str)) -> Result<Vec<String>> {
    let wrong = |source| Error::Io { file: path.display().to_string(), source };
    let mut below = Vec::new();
    for entry in fs::read_dir(path).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below.push(name);
        } else {
            found(&name);
        }
    }
    Ok(below)
}
