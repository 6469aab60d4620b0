//! The commit records of all segments of a worker in one file, so that a store is asked once and not for each segment.
//!
//! A reader that has it continues behind its records in each segment. docs/format.md specifies it.

use std::collections::BTreeMap;

use super::{COMMIT_SIZE, Commit, DIRECTORY};
use crate::crc::crc32c;
use crate::error::{Error, Location, Result};

const MAGIC: &[u8; 8] = b"SMDWSEG\n";
const VERSION: u32 = 1;

/// The name of the file in the directory of a worker.
pub const FILE: &str = "segments.index";

/// The key of a worker's index.
pub fn key(worker: &str) -> String {
    format!("{DIRECTORY}/{worker}/{FILE}")
}

/// The worker whose index has this key.
pub fn worker_of(key: &str) -> Option<&str> {
    let (worker, file) = key.strip_prefix(DIRECTORY)?.strip_prefix('/')?.split_once('/')?;
    (file == FILE).then_some(worker)
}

/// The content of the file.
pub fn encode<'s>(segments: impl Iterator<Item = (u64, &'s [Commit])>) -> Vec<u8> {
    let mut out = [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat();
    for (number, commits) in segments {
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&(commits.len() as u64).to_le_bytes());
        commits.iter().for_each(|commit| out.extend_from_slice(&commit.encode()));
    }
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

/// The commit records of each segment in the file of this key.
pub fn decode(bytes: &[u8], key: &str) -> Result<BTreeMap<u64, Vec<Commit>>> {
    let corrupt =
        |offset: usize, what: &str| Error::Corrupt { location: Location::new(key, offset as u64), what: what.into() };
    let head = MAGIC.len() + 4;
    let (content, crc) = bytes
        .split_last_chunk::<4>()
        .filter(|(content, _)| content.len() >= head && content.starts_with(MAGIC))
        .ok_or_else(|| corrupt(0, "the file is no index of segments"))?;
    let version = u32::from_le_bytes(std::array::from_fn(|at| content[MAGIC.len() + at]));
    if version != VERSION {
        let what = format!("an index of segments of version {version}");
        return Err(Error::Unsupported { location: Location::new(key, 0), what });
    }
    if crc32c(content) != u32::from_le_bytes(*crc) {
        return Err(corrupt(content.len(), "index checksum mismatch"));
    }
    let (mut found, mut rest) = (BTreeMap::new(), &content[head..]);
    while !rest.is_empty() {
        let here = content.len() - rest.len();
        let segment = segment(&mut rest).ok_or_else(|| corrupt(here, "the segment is invalid"))?;
        found.insert(segment.0, segment.1);
    }
    Ok(found)
}

/// The next segment. Its records are there before memory is allocated for them.
fn segment(rest: &mut &[u8]) -> Option<(u64, Vec<Commit>)> {
    let mut number = || rest.split_off(..8).map(|bytes| u64::from_le_bytes(std::array::from_fn(|at| bytes[at])));
    let (number, count) = (number()?, number()?);
    let records = rest.split_off(..usize::try_from(count).ok()?.checked_mul(COMMIT_SIZE)?)?;
    let (records, _) = records.as_chunks::<COMMIT_SIZE>();
    Some((number, records.iter().map(Commit::decode).collect::<Option<_>>()?))
}
