//! A run in a directory. Nothing outside of it is opened: no `..`, no links that lead out, no pipes and devices.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Blob, LARGEST_WHOLE, Source, inside};
use crate::error::{Error, Result};

/// A run's directory.
#[derive(Debug, Clone)]
pub struct Local {
    root: PathBuf,
}

impl Local {
    /// A run in this directory, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Local {
        Local { root: root.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Open a regular file of the run.
    pub fn open_file(&self, key: &str) -> Result<File> {
        let parts = inside(key).map_err(|what| self.outside(key, what))?;
        let path: PathBuf = parts.collect();
        let file = self.open_beneath(key, &path)?;
        // Opening did not wait for the other end of a pipe, and reading has not begun.
        let is_file = file.metadata().map_err(|e| self.io(key, e))?.is_file();
        if is_file { Ok(file) } else { Err(self.outside(key, "it is no regular file")) }
    }

    /// The bytes of an open file.
    pub fn read_whole(&self, mut file: File, key: &str) -> Result<Vec<u8>> {
        if file.metadata().map_err(|e| self.io(key, e))?.len() > LARGEST_WHOLE {
            return Err(Error::too_large(&self.name(key)));
        }
        let mut bytes = Vec::new();
        // Makes room for the file's size first.
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
        // One call, so that nobody can swap a directory for a link between a look and the opening.
        match openat2(&root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
            Ok(file) => Ok(file.into()),
            // An old kernel, a sandbox that does not know the call, or an absolute link, which may yet lead inside.
            Err(Errno::NOSYS | Errno::PERM | Errno::XDEV | Errno::AGAIN | Errno::INVAL) => self.open_looking(key, path),
            Err(e) => Err(self.io(key, e.into())),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open_beneath(&self, key: &str, path: &Path) -> Result<File> {
        self.open_looking(key, path)
    }

    /// Where no system call does it: resolve all links first, then look where they lead.
    fn open_looking(&self, key: &str, path: &Path) -> Result<File> {
        let resolve = |path: &Path| path.canonicalize().map_err(|e| self.io(key, e));
        let (root, file) = (resolve(&self.root)?, resolve(&self.root.join(path))?);
        if !file.starts_with(&root) {
            return Err(self.outside(key, "a link leads there"));
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
            return Err(self.outside(key, "it is no regular file"));
        }
        options.open(&file).map_err(|e| self.io(key, e))
    }

    /// A digest of a file's size, time and identity: another one tells of another file.
    pub fn stamp(file: &File) -> u32 {
        file.metadata().map_or(0, |about| stamp_of(&about))
    }

    /// The stamp of a file by its key; 0 where there is none to be seen.
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
    // Fowler, Noll and Vo's hash: any will do, as long as it is the same tomorrow.
    let mixed = [about.len(), since(about.modified()), identity]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // 0 is kept for files that can't be seen.
    mixed.max(1)
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
        // Room only for what is there, whatever an index file claims.
        let size = self.file.metadata().map_err(|e| self.error(e))?.len();
        let there = size.saturating_sub(offset).min(length);
        let there = usize::try_from(there).map_err(|_| self.error(io::ErrorKind::OutOfMemory.into()))?;
        if buffer.is_empty() {
            // The system's fresh memory is zero: a large buffer isn't filled twice.
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
