//! A segment being written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::arrow::schema;
use super::{COMMIT_SIZE, Commit, END_OF_STREAM};
use crate::crc::crc32c;
use crate::error::{Error, Result};

/// A file that grows only by what [`Part::advance`] confirms. A failed write is overwritten by the next.
struct Part {
    file: File,
    path: PathBuf,
    end: u64,
}

impl Part {
    fn create(path: PathBuf) -> io::Result<Part> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Part { file, path, end: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut write = || {
            self.file.seek(SeekFrom::Start(self.end))?;
            self.file.write_all(bytes)
        };
        write().map_err(|source| Error::Io { file: self.path.display().to_string(), source })
    }

    fn advance(&mut self, by: usize) {
        self.end += by as u64;
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| Error::Io { file: self.path.display().to_string(), source })
    }
}

/// The three files of a segment.
pub struct Segment {
    stream: Part,
    commits: Part,
    names: Part,
}

impl Segment {
    /// Creates the next segment in a worker's directory.
    pub fn create(directory: &Path) -> Result<Segment> {
        let wrong = |source| Error::Io { file: directory.display().to_string(), source };
        fs::create_dir_all(directory).map_err(wrong)?;
        let mut number = next_number(directory).map_err(wrong)?;
        loop {
            let path = |extension: &str| directory.join(format!("{number:06}.{extension}"));
            // The process that creates the stream owns the number.
            match Part::create(path("arrows")) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                stream => {
                    let names = Part::create(path("names.jsonl")).map_err(wrong)?;
                    let commits = Part::create(path("commit")).map_err(wrong)?;
                    return Ok(Segment { stream: stream.map_err(wrong)?, commits, names });
                }
            }
        }
    }

    /// The path of the stream.
    pub fn path(&self) -> &Path {
        &self.stream.path
    }

    /// The size of the stream.
    pub fn size(&self) -> u64 {
        self.stream.end
    }

    /// Writes a batch after the names it needs, then its commit record. Returns the number of bytes.
    pub fn append(&mut self, names: &[u8], block: &[u8], steps: (i64, i64), rows: usize) -> Result<u64> {
        if self.stream.end == 0 {
            let schema = schema();
            self.stream.write(&schema)?;
            self.stream.advance(schema.len());
        }
        let done = self.try_append(names, block, steps, rows);
        if done.is_err() {
            // A disk that is full gets the space back. The commit record counts, so what stays does no harm.
            let _ = self.stream.file.set_len(self.stream.end);
            let _ = self.names.file.set_len(self.names.end);
            let _ = self.commits.file.set_len(self.commits.end);
        }
        done
    }

    fn try_append(&mut self, names: &[u8], block: &[u8], (first, last): (i64, i64), rows: usize) -> Result<u64> {
        let large = |what: &str| Error::Invalid(format!("the {what} exceed 4 GiB"));
        let names_end = self.names.end + names.len() as u64;
        let commit = Commit {
            offset: self.stream.end,
            length: u32::try_from(block.len()).map_err(|_| large("statistics of a step"))?,
            crc: crc32c(block),
            first: u32::try_from(first).unwrap_or(u32::MAX),
            last: u32::try_from(last).unwrap_or(u32::MAX),
            rows: u32::try_from(rows).map_err(|_| large("rows"))?,
            names_length: u32::try_from(names_end).map_err(|_| large("names"))?,
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
        };
        self.names.write(names)?;
        self.stream.write(block)?;
        self.commits.write(&commit.encode())?;
        self.names.advance(names.len());
        self.stream.advance(block.len());
        self.commits.advance(COMMIT_SIZE);
        Ok((names.len() + block.len() + COMMIT_SIZE) as u64)
    }

    /// Waits until all is on the disk.
    pub fn sync(&self) -> Result<()> {
        [&self.names, &self.stream, &self.commits].into_iter().try_for_each(Part::sync)
    }

    /// Ends the stream. A segment without the mark is read as well.
    pub fn close(mut self) -> Result<()> {
        self.stream.write(&END_OF_STREAM)
    }
}

/// One more than the highest number of a file in a directory.
fn next_number(directory: &Path) -> io::Result<u64> {
    let mut next = 0;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.split('.').next());
        if let Some(number) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
            next = next.max(number.saturating_add(1));
        }
    }
    Ok(next)
}
