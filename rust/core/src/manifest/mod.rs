//! The compacted index of a run: the content of its index files, one file per 1,000 steps, and a root file that names them.
//!
//! Both kinds of files have a header with a checksum and a zstd-compressed body of columns. Everything that is read is
//! checked, in memory that is bounded by the limits below. docs/format.md specifies the files.

mod folder;
mod numbers;
mod root;
#[cfg(test)]
mod tests;

pub use folder::{CompactedFile, Files, Folder, FolderBuilder};
pub use root::{Hash, Root, RootFolder};

use zstd::bulk::{Compressor, Decompressor};

use crate::crc::crc32c;
use crate::error::{Error, Location, Result};
use crate::step::Step;

/// The version of the format.
pub const VERSION: u32 = 1;
/// Steps per folder of the index, as in smdebug's keys.
pub const STEPS_PER_FOLDER: Step = 1000;
/// Limit on the decompressed body of a folder file.
pub const MAX_FOLDER: usize = 256 << 20;
/// Limit on the decompressed body of a root file.
pub const MAX_ROOT: usize = 16 << 20;
/// Limit on the size of a file.
pub const MAX_FILE: usize = 256 << 20;
/// Limit on the strings of a file.
pub const MAX_STRINGS: usize = 1 << 20;
/// Limit on the entries, shapes and shards of one index file.
pub const MAX_ENTRIES: usize = 1 << 20;
/// Limit on the dimensions of all shapes of one index file.
pub const MAX_DIMENSIONS: usize = 1 << 22;

/// Magic bytes, version, checksum of the rest, size of the decompressed body.
const HEADER: usize = 20;
const LEVEL: i32 = 12;

/// Adds the header to a body and compresses it.
fn packed(magic: [u8; 8], body: &[u8], limit: usize) -> Result<Vec<u8>> {
    if body.len() > limit {
        return Err(Error::Invalid(format!("the compacted index needs {} bytes; the limit is {limit}", body.len())));
    }
    let failed = |error: std::io::Error| Error::Invalid(format!("cannot compress the index: {error}"));
    let frame = Compressor::new(LEVEL).and_then(|mut compressor| compressor.compress(body)).map_err(failed)?;
    let mut rest = (body.len() as u32).to_le_bytes().to_vec();
    rest.extend(frame);
    let mut file = magic.to_vec();
    file.extend(VERSION.to_le_bytes());
    file.extend(crc32c(&rest).to_le_bytes());
    file.extend(rest);
    Ok(file)
}

/// Checks the header and decompresses the body.
fn unpacked(magic: [u8; 8], bytes: &[u8], file: &str, limit: usize) -> Result<Vec<u8>> {
    let corrupt = |offset, what: String| Error::Corrupt { location: Location::new(file, offset), what };
    let Some((header, frame)) = bytes.split_first_chunk::<HEADER>() else {
        let location = Location::new(file, 0);
        return Err(Error::Truncated { location, needed: HEADER as u64, found: bytes.len() as u64 });
    };
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    if header[..8] != magic {
        return Err(corrupt(0, "not a file of a compacted index".into()));
    }
    if number(8) != VERSION {
        let what = format!("version {} of the compacted index; this version of smdwidgets reads {VERSION}", number(8));
        return Err(Error::Unsupported { location: Location::new(file, 8), what });
    }
    let computed = crc32c(&bytes[16..]);
    if number(12) != computed {
        return Err(corrupt(12, format!("checksum mismatch: stored {:#010x}, computed {computed:#010x}", number(12))));
    }
    let size = number(16) as usize;
    if size > limit {
        return Err(corrupt(16, format!("the decompressed size is {size} bytes; the limit is {limit}")));
    }
    let failed = |error: std::io::Error| corrupt(HEADER as u64, format!("cannot decompress: {error}"));
    let body = Decompressor::new().and_then(|mut one| one.decompress(frame, size)).map_err(failed)?;
    if body.len() != size {
        return Err(corrupt(16, format!("the decompressed size is {}, not {size} bytes", body.len())));
    }
    Ok(body)
}

/// An error at an offset of the decompressed body.
fn damaged(file: &str, at: usize, what: impl std::fmt::Display) -> Error {
    let what = format!("invalid compacted index: {what} at byte {at} of the decompressed content");
    Error::Corrupt { location: Location::new(file, HEADER as u64), what }
}
