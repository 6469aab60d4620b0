//! A run in a local directory. Opens nothing outside it: no `..`, no links to the outside, no pipes or devices.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Blob, LARGEST_WHOLE, Source, inside};
use crate::crc::crc32c;
use crate::error::{Error, Result};

/// Reads up to this size allocate what the index file claims.
const SMALL: u64 = 64 << 10;
/// The largest offset at which the system reads up to `SMALL` bytes; an index file can claim any.
const LAST: u64 = i64::MAX as u64 - SMALL;

/// How many files this process may have open.
pub fn open_files_limit() -> usize {
    #[cfg(unix)]
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    let limit = Some(512); // of the C runtime of Windows
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The directory of a run.
#[derive(Debug, Clone)]
pub struct Local {
    root: PathBuf,
}

impl Local {
    /// A run in a directory, which may not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Local {
        Local { root: root.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Opens a regular file of the run.
    pub fn open_file(&self, key: &str) -> Result<File> {
        let parts = inside(key).map_err(|what| self.outside(key, what))?;
        let path: PathBuf = parts.collect();
        let file = self.open_beneath(key, &path)?;
        // The file was opened non-blocking, so a pipe does not hang here.
        let is_file = file.metadata().map_err(|e| self.io(key, e))?.is_file();
        if is_file { Ok(file) } else { Err(self.outside(key, "it is not a regular file")) }
    }

    /// Reads an open file to its end.
    pub fn read_whole(&self, mut file: File, key: &str) -> Result<Vec<u8>> {
        if file.metadata().map_err(|e| self.io(key, e))?.len() > LARGEST_WHOLE {
            return Err(Error::too_large(&self.name(key)));
        }
        let mut bytes = Vec::new();
        // `read_to_end` reserves the file's size first.
        file.read_to_end(&mut bytes).map_err(|e| self.io(key, e))?;
        Ok(bytes)
    }

    #[cfg(target_os = "linux")]
    fn open_beneath(&self, key: &str, path: &Path) -> Result<File> {
        use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
        use rustix::io::Errno;
        let root = open(&self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| self.io(key, e.into()))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        // A single call, so that no directory can be replaced by a link between check and open.
        match openat2(&root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
            Ok(file) => Ok(file.into()),
            // An old kernel, a sandbox without the call, or an absolute link that may still point inside.
            Err(Errno::NOSYS | Errno::PERM | Errno::XDEV | Errno::AGAIN | Errno::INVAL) => {
                self.open_resolved(key, path)
            }
            Err(e) => Err(self.io(key, e.into())),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open_beneath(&self, key: &str, path: &Path) -> Result<File> {
        self.open_resolved(key, path)
    }

    /// The portable fallback: resolves all links, then checks the result.
    fn open_resolved(&self, key: &str, path: &Path) -> Result<File> {
        let resolve = |path: &Path| path.canonicalize().map_err(|e| self.io(key, e));
        let (root, file) = (resolve(&self.root)?, resolve(&self.root.join(path))?);
        if !file.starts_with(&root) {
            return Err(self.outside(key, "a symbolic link points there"));
        }
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.custom_flags((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits() as i32);
        }
        #[cfg(not(unix))]
        if !fs::metadata(&file).map_err(|e| self.io(key, e))?.is_file() {
            return Err(self.outside(key, "it is not a regular file"));
        }
        options.open(&file).map_err(|e| self.io(key, e))
    }

    /// A hash of a file's size, time and inode, to detect replacement.
    pub fn stamp(file: &File) -> u32 {
        file.metadata().map_or(0, |about| stamp_of(&about))
    }

    /// The stamp of a file by its key; 0 if it is not accessible.
    pub fn stamp_of_key(&self, key: &str) -> u32 {
        let Ok(parts) = inside(key) else { return 0 };
        let path: PathBuf = parts.collect();
        fs::metadata(self.root.join(path)).map_or(0, |about| stamp_of(&about))
    }

    fn name(&self, key: &str) -> String {
        self.root.join(key).display().to_string()
    }

    fn io(&self, key: &str, source: io::Error) -> Error {
        Error::Io { file: self.name(key), source }
    }

    fn outside(&self, key: &str, what: &str) -> Error {
        Error::OutsideRun { root: self.root(), name: key.into(), what: what.into() }
    }
}

fn stamp_of(about: &fs::Metadata) -> u32 {
    let since = |time: io::Result<std::time::SystemTime>| {
        time.ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map_or(0, |age| age.as_nanos() as u64)
    };
    #[cfg(unix)]
    let identity = std::os::unix::fs::MetadataExt::ino(about);
    #[cfg(not(unix))]
    let identity = since(about.created());
    let numbers = [about.len(), since(about.modified()), identity];
    let hash = crc32c(numbers.map(u64::to_le_bytes).as_flattened());
    // 0 means not accessible.
    hash.max(1)
}

impl Source for Local {
    fn root(&self) -> String {
        self.root.display().to_string()
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        Ok(Box::new(LocalFile { file: self.open_file(key)?, name: self.name(key) }))
    }
}

struct LocalFile {
    file: File,
    name: String,
}

impl LocalFile {
    fn error(&self, source: io::Error) -> Error {
        Error::Io { file: self.name.clone(), source }
    }
}

impl Blob for LocalFile {
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        // Allocates only for existing bytes, whatever length the index file claims. A small claim costs less than a look at
        // the file's size.
        let there = if length <= SMALL && offset <= LAST {
            length
        } else {
            let size = self.file.metadata().map_err(|e| self.error(e))?.len();
            size.saturating_sub(offset).min(length)
        };
        let there = usize::try_from(there).map_err(|_| self.error(io::ErrorKind::OutOfMemory.into()))?;
        let fresh = buffer.is_empty();
        if fresh {
            // `vec!` gets zeroed memory from the system, so a large buffer is not written twice.
            *buffer = vec![0; there];
        } else if buffer.len() < there {
            buffer.resize(there, 0);
        }
        let mut done = 0;
        while done < there {
            match read_at(&self.file, &mut buffer[done..there], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.error(e)),
            }
        }
        if fresh {
            buffer.truncate(done);
        }
        Ok(done)
    }
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}
