//! Files that get their final name only when complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Small writes are buffered up to this size; larger ones are written directly.
const GATHER: usize = 256 << 10;

/// A file under a temporary name, which is removed on drop unless published.
#[derive(Debug)]
pub(super) struct Unfinished {
    path: PathBuf,
    temporary: PathBuf,
    /// Number of directories from the run's root to the file, with the root.
    depth: usize,
    file: Option<BufWriter<File>>,
    written: u64,
    published: bool,
}

impl Unfinished {
    /// Creates a file that will be `key` under `root`. Replaces a temporary file that a crash left behind.
    pub fn create(root: &Path, key: &str) -> Result<Self> {
        let path = root.join(key);
        let temporary = root.join(format!("{key}.tmp"));
        let open = || {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            OpenOptions::new().write(true).create_new(true).open(&temporary)
        };
        let file = open().map_err(|source| io_error(&temporary, source))?;
        let file = Some(BufWriter::with_capacity(GATHER, file));
        let depth = key.split('/').count();
        Ok(Unfinished { path, temporary, depth, file, written: 0, published: false })
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Err(Error::Invalid(format!("{} is already complete", self.path.display())));
        };
        file.write_all(bytes).map_err(|source| io_error(&self.temporary, source))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Flushes and closes the file; with `fsync` also to the disk.
    pub fn complete(&mut self, fsync: bool) -> Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let close = || {
            let file = file.into_inner().map_err(|error| error.into_error())?;
            if fsync { file.sync_all() } else { Ok(()) }
        };
        close().map_err(|source| io_error(&self.temporary, source))
    }

    /// Removes the current file of the final name.
    pub fn remove_final(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(&self.path, error)),
            _ => Ok(()),
        }
    }

    /// Renames the file with all that was written so far, and keeps it open.
    pub fn show(&mut self, fsync: bool) -> Result<()> {
        if let Some(file) = &mut self.file {
            let flush = |file: &mut BufWriter<File>| {
                file.flush()?;
                if fsync { file.get_ref().sync_all() } else { Ok(()) }
            };
            flush(file).map_err(|source| io_error(&self.temporary, source))?;
        }
        self.rename(fsync)
    }

    /// Closes the file under its final name. Returns its size.
    pub fn publish(mut self, fsync: bool) -> Result<u64> {
        self.complete(fsync)?;
        self.rename(fsync)?;
        Ok(self.written)
    }

    fn rename(&mut self, fsync: bool) -> Result<()> {
        if !self.published {
            fs::rename(&self.temporary, &self.path).map_err(|source| io_error(&self.path, source))?;
            self.published = true;
            if fsync {
                sync_directories(&self.path, self.depth).map_err(|source| io_error(&self.path, source))?;
            }
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.published {
            // Buffered data must not be written, and Windows cannot remove an open file.
            if let Some(file) = self.file.take() {
                drop(file.into_parts());
            }
            // A failure to remove is ignored; readers skip temporary names.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// A new name is durable once its directory is synced, and that directory once its parent is.
fn sync_directories(path: &Path, depth: usize) -> io::Result<()> {
    if cfg!(unix) {
        for directory in path.ancestors().skip(1).take(depth) {
            let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            File::open(directory)?.sync_all()?;
        }
    }
    Ok(())
}

fn io_error(path: &Path, source: io::Error) -> Error {
    Error::Io { file: path.display().to_string(), source }
}
