//! Mapped files: the one place where a file's bytes are taken for memory.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

use memmap2::{Advice, Mmap, MmapOptions};

/// A file that is mapped for reading. It keeps the file open, to see whether it has shrunk.
pub struct Mapping {
    map: Mmap,
    file: File,
}

impl Mapping {
    /// Map a regular file.
    pub fn new(file: File) -> io::Result<Mapping> {
        // SAFETY: the map is read-only and private to us, and its bytes are only handed out after the file was seen to
        // reach that far. Finished files of the format are never written in place: writers rename, and an overwritten
        // file is another inode. What remains is a file cut short by hand between the look and the touch (a bus error, as
        // for any reader of maps) and one scribbled over in place (other numbers); readers who fear that take copies.
        let map = unsafe { MmapOptions::new().map(&file)? };
        Ok(Mapping { map, file })
    }

    /// The file's size now.
    pub fn size(&self) -> io::Result<u64> {
        // The cheapest question about a size; nobody uses the position, since all reads say where.
        (&self.file).seek(SeekFrom::End(0))
    }

    /// Some of the bytes; where the file does not reach that far (any more), how far it does.
    pub fn get(&self, offset: u64, length: u64) -> Result<&[u8], u64> {
        let size = self.size().unwrap_or(0).min(self.map.len() as u64);
        match offset.checked_add(length) {
            Some(end) if end <= size => super::part(&self.map, offset, length).ok_or(size),
            _ => Err(size),
        }
    }

    /// All bytes there were when it was mapped.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Tell the system that the bytes will be read from front to back. Only advice: failing is no error.
    pub fn will_scan(&self) {
        #[cfg(unix)]
        let _ = self.map.advise(Advice::Sequential);
    }
}
