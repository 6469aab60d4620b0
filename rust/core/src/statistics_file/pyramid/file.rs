//! The file: a header of fixed size, compressed blocks, and a directory of them.
//!
//! The header is written last. A file that grows gets blocks that its directory does not have yet, then another
//! directory, then the header that names it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use zstd::bulk::{Compressor, Decompressor};

use super::tile::COUNTS;
use super::{BLOCK, VERSION};
use crate::crc::crc32c;
use crate::error::{Error, Location, Result};
use crate::source::Blob;
use crate::statistics_file::reader::Covered;

/// The first bytes of the file.
const MAGIC: [u8; 8] = *b"SMDWPYR\n";
/// The size of the header.
const HEADER: usize = 48;
/// Tiles are noise below their high bytes: higher levels save little, and take longer than all the rest.
const LEVEL: i32 = 1;
/// Blocks of a level whose tiles are arranged together: as many bins as a picture has pixels, about.
const STRETCH: u32 = 64;
/// Limit on a block, and on its size over that of its compressed form.
const MAX_BLOCK: u32 = 1 << 30;
const MAX_RATIO: u64 = 4096;

/// Where a block is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    pub length: u32,
    /// Size of the content.
    pub raw: u32,
    /// CRC32C of the compressed bytes.
    pub crc: u32,
}

/// Which tile: level, kind, block, group.
pub type TileKey = (u8, u8, u32, u32);

/// What the file has, and where.
#[derive(Debug, Default, PartialEq)]
pub struct Directory {
    /// The lowest and the highest level.
    pub base: u8,
    pub top: u8,
    /// The first and the last step.
    pub first: i64,
    pub last: i64,
    pub rows: u64,
    /// Size of the file.
    pub size: u64,
    /// Records of which findings are made that had no room.
    pub dropped: u64,
    pub covered: Vec<Covered>,
    /// Names, series, records: each what was new when the file grew.
    pub sections: [Vec<Place>; 3],
    /// What changes whenever the file grows.
    pub state: Place,
    /// The slots of this state and directory, and of those before: offset and size. They take turns, so that the file
    /// does not grow by them.
    pub slots: [(u64, u64); 2],
    pub tiles: Vec<(TileKey, Place)>,
}

/// Numbers one after the other.
#[derive(Default)]
pub struct Out(pub Vec<u8>);

impl Out {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub fn f32(&mut self, value: f32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn place(&mut self, place: &Place) {
        self.u64(place.offset);
        [place.length, place.raw, place.crc].into_iter().for_each(|each| self.u32(each));
    }
}

/// Reads numbers; `None` at the end.
pub struct In<'b>(pub &'b [u8]);

impl<'b> In<'b> {
    pub fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    pub fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }
    pub fn i64(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.array()?))
    }
    pub fn f32(&mut self) -> Option<f32> {
        Some(f32::from_le_bytes(self.array()?))
    }
    fn place(&mut self) -> Option<Place> {
        Some(Place { offset: self.u64()?, length: self.u32()?, raw: self.u32()?, crc: self.u32()? })
    }
}

impl Directory {
    /// The step before which a level has all of its blocks. Bins behind it are those of the levels below.
    pub fn complete(&self, level: u8) -> u64 {
        let bins = (self.last as u64 + 1) >> level;
        (bins / BLOCK as u64 * BLOCK as u64) << level
    }

    /// Sorts tiles so that those that a view reads are beside one another.
    ///
    /// A view has one measure, or its counts, of some series and of many bins, so these are the innermost. What a view
    /// of all steps reads is a separate stretch: the highest level, and of those below it the blocks that complete it.
    fn arrange(&self, tiles: &mut [(TileKey, Place)]) {
        let above: Vec<u64> = (0..=self.top).map(|level| self.complete(level + 1) >> level).collect();
        tiles.sort_unstable_by_key(|((level, kind, block, group), _)| {
            let is_end = *level == self.top || u64::from(*block) * BLOCK as u64 >= above[usize::from(*level)];
            let stretch = if is_end { (self.top, 0) } else { (*level, block / STRETCH) };
            // The sizes, which the map shows first, are beside the counts.
            (stretch, (*kind + 1) % (COUNTS + 1), *group, *level, *block)
        });
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.u8(self.base);
        out.u8(self.top);
        out.i64(self.first);
        out.i64(self.last);
        out.u64(self.rows);
        out.u64(self.size);
        out.u64(self.dropped);
        out.u32(self.covered.len() as u32);
        for each in &self.covered {
            [each.segment, each.batches, each.end].into_iter().for_each(|number| out.u64(number));
            out.u32(each.crc);
        }
        for parts in &self.sections {
            out.u32(parts.len() as u32);
            parts.iter().for_each(|place| out.place(place));
        }
        out.place(&self.state);
        self.slots.iter().flat_map(|slot| [slot.0, slot.1]).for_each(|number| out.u64(number));
        out.u32(self.tiles.len() as u32);
        for ((level, kind, block, group), place) in &self.tiles {
            out.u8(*level);
            out.u8(*kind);
            out.u32(*block);
            out.u32(*group);
            out.place(place);
        }
        out.0
    }

    /// The directory in these bytes. Counts are not trusted: nothing is allocated ahead.
    fn decode(bytes: &[u8]) -> Option<Directory> {
        let input = &mut In(bytes);
        let mut found = Directory {
            base: input.u8()?,
            top: input.u8()?,
            first: input.i64()?,
            last: input.i64()?,
            rows: input.u64()?,
            size: input.u64()?,
            dropped: input.u64()?,
            ..Directory::default()
        };
        for _ in 0..input.u32()? {
            let [segment, batches, end] = [input.u64()?, input.u64()?, input.u64()?];
            found.covered.push(Covered { segment, batches, end, crc: input.u32()? });
        }
        for parts in &mut found.sections {
            for _ in 0..input.u32()? {
                parts.push(input.place()?);
            }
        }
        found.state = input.place()?;
        for slot in &mut found.slots {
            *slot = (input.u64()?, input.u64()?);
        }
        for _ in 0..input.u32()? {
            found.tiles.push(((input.u8()?, input.u8()?, input.u32()?, input.u32()?), input.place()?));
        }
        let is_valid = found.base <= found.top && found.top < 63 && (0..=found.last).contains(&found.first);
        (is_valid && input.0.is_empty()).then_some(found)
    }
}

/// The right to write a pyramid, which one process at a time has: a lock of the file beside it.
struct Claim {
    file: File,
    path: PathBuf,
}

impl Claim {
    fn new(target: &Path) -> Result<Claim> {
        let mut name = target.as_os_str().to_owned();
        name.push(".tmp");
        let path = PathBuf::from(name);
        let failed = |source| wrong(&path, source);
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(Error::Invalid("another process writes it".into())),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // Who had the lock may have removed or renamed the file meanwhile.
            if is_at(&file, &path) {
                return Ok(Claim { file, path });
            }
        }
    }
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |about: fs::Metadata| (about.dev(), about.ino());
    let named = fs::metadata(path).ok().map(identity);
    named.is_some() && named == file.metadata().ok().map(identity)
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Writes a file that appears complete or not at all, or continues one.
pub struct FileWriter {
    file: BufWriter<File>,
    path: PathBuf,
    claim: Claim,
    /// The file is a new one, which gets its name at the end.
    is_new: bool,
    /// Size of the file that is continued.
    begin: u64,
    at: u64,
    /// Tiles of a new file, in the order in which they come, until all are known.
    tiles: Option<Tiles>,
    compressor: Compressor<'static>,
    done: bool,
}

impl FileWriter {
    /// A writer of the file at a path; nobody else writes it meanwhile.
    pub fn claim(path: &Path) -> Result<FileWriter> {
        let claim = Claim::new(path)?;
        let own = || claim.file.try_clone().map_err(|source| wrong(&claim.path, source));
        let compressor = Compressor::new(LEVEL).map_err(|error| Error::Invalid(format!("cannot use zstd: {error}")))?;
        let file = BufWriter::new(own()?);
        let (path, is_new, tiles, done) = (path.into(), true, None, false);
        Ok(FileWriter { file, path, claim, is_new, begin: 0, at: 0, tiles, compressor, done })
    }

    /// Begins a new file. If its tiles are arranged, they are written to another file until all are known.
    pub fn create(&mut self, arranged: bool) -> Result<()> {
        self.claim.file.set_len(0).map_err(|source| wrong(&self.claim.path, source))?;
        self.tiles = if arranged { Some(Tiles::new(&self.path)?) } else { None };
        self.write(&[0; HEADER])
    }

    /// Continues the file behind its blocks.
    pub fn resume(&mut self, directory: &Directory) -> Result<()> {
        let mut open = || {
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            file.seek(SeekFrom::Start(directory.size))?;
            self.file = BufWriter::new(file);
            Ok(())
        };
        open().map_err(|source| wrong(&self.path, source))?;
        (self.begin, self.at, self.is_new) = (directory.size, directory.size, false);
        Ok(())
    }

    /// Writes a block.
    pub fn block(&mut self, raw: &[u8]) -> Result<Place> {
        let packed = self.packed(raw)?;
        let place = place(&packed, raw.len(), self.at);
        self.write(&packed)?;
        Ok(place)
    }

    /// Writes a tile. Its place is final when all tiles were arranged.
    pub fn tile(&mut self, raw: &[u8]) -> Result<Place> {
        let packed = self.packed(raw)?;
        let place = place(&packed, raw.len(), self.tiles.as_ref().map_or(self.at, |tiles| tiles.at));
        match &mut self.tiles {
            Some(tiles) => tiles.write(&packed)?,
            None => self.write(&packed)?,
        }
        Ok(place)
    }

    /// Writes the tiles that wait for it in the order in which they are read, and sets their places.
    pub fn arrange(&mut self, directory: &mut Directory) -> Result<()> {
        let Some(mut waiting) = self.tiles.take() else { return Ok(()) };
        let mut tiles = std::mem::take(&mut directory.tiles);
        directory.arrange(&mut tiles);
        let mut packed = Vec::new();
        for (_, place) in &mut tiles {
            packed.resize(place.length as usize, 0);
            waiting.read(place.offset, &mut packed)?;
            place.offset = self.at;
            self.write(&packed)?;
        }
        directory.tiles = tiles;
        Ok(())
    }

    fn packed(&mut self, raw: &[u8]) -> Result<Vec<u8>> {
        if raw.len() > MAX_BLOCK as usize {
            return Err(Error::Invalid("a block of the pyramid exceeds 1 GiB".into()));
        }
        let packed = self.compressor.compress(raw);
        packed.map_err(|error| Error::Invalid(format!("cannot compress statistics: {error}")))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| wrong(&self.path, source))
    }

    /// Writes state and directory, waits for the disk, and makes them count. Returns the size of the file. If it
    /// will grow, their place has room for larger ones.
    pub fn finish(mut self, directory: &mut Directory, state: &[u8], growing: bool) -> Result<u64> {
        let packed_state = self.packed(state)?;
        let [current, spare] = directory.slots;
        // The slot of the directory before the current one, which no new reader looks at.
        let mut slot = spare;
        let (directory_place, packed) = loop {
            directory.slots = [slot, current];
            directory.size = self.at.max(slot.0 + slot.1);
            directory.state = place(&packed_state, state.len(), slot.0);
            let raw = directory.encode();
            let packed = self.packed(&raw)?;
            let size = (packed_state.len() + packed.len()) as u64;
            if size <= slot.1 {
                // At the end of the slot, so that a file that is cut off has no directory.
                break (place(&packed, raw.len(), slot.0 + slot.1 - packed.len() as u64), packed);
            }
            let spare = if growing { size / 4 } else { 0 };
            // The directory has these numbers, so that its size may change a little.
            slot = (self.at, size + spare + 32);
        };
        let mut header = Out(MAGIC.to_vec());
        header.u32(VERSION);
        header.place(&directory_place);
        header.0.resize(HEADER - 4, 0);
        header.u32(crc32c(&header.0));
        let mut end = || {
            self.file.seek(SeekFrom::Start(slot.0))?;
            self.file.write_all(&packed_state)?;
            self.file.seek(SeekFrom::Start(directory_place.offset))?;
            self.file.write_all(&packed)?;
            self.file.flush()?;
            let file = self.file.get_ref();
            // Otherwise, after a crash of the system, the header could be there without what it names.
            file.sync_data()?;
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&header.0)?;
            self.file.flush()?;
            if self.is_new { fs::rename(&self.claim.path, &self.path) } else { Ok(()) }
        };
        end().map_err(|source| wrong(&self.path, source))?;
        self.done = true;
        Ok(directory.size)
    }
}

/// A file of tiles that wait for their order.
struct Tiles {
    file: BufWriter<File>,
    path: PathBuf,
    at: u64,
}

impl Tiles {
    /// An empty file beside the target, for which the writer has the claim.
    fn new(target: &Path) -> Result<Tiles> {
        let mut name = target.as_os_str().to_owned();
        name.push(".tiles.tmp");
        let path = PathBuf::from(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let file = BufWriter::new(file.map_err(|source| wrong(&path, source))?);
        Ok(Tiles { file, path, at: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| wrong(&self.path, source))
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        // Seeking writes what is buffered.
        let done = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.get_ref().read_exact(buffer));
        done.map_err(|source| wrong(&self.path, source))
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Where compressed bytes are, at an offset.
fn place(packed: &[u8], raw: usize, offset: u64) -> Place {
    Place { offset, length: packed.len() as u32, raw: raw as u32, crc: crc32c(packed) }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !(self.done && self.is_new) {
            // What remains of an attempt that failed is not read by anyone.
            let _ = fs::remove_file(&self.claim.path);
        }
        if !self.done && !self.is_new {
            // A disk that is full gets the space back.
            let _ = self.file.get_ref().set_len(self.begin);
        }
    }
}

fn wrong(path: &Path, source: std::io::Error) -> Error {
    Error::Io { file: path.display().to_string(), source }
}

/// The directory of a file. Who reads it also sees whether the file is as long as the directory says.
pub fn directory(file: &dyn Blob, key: &str) -> Result<Directory> {
    let corrupt = |offset: u64, what: &str| Error::Corrupt { location: Location::new(key, offset), what: what.into() };
    let mut buffer = Vec::new();
    let count = file.read_at(0, HEADER as u64, &mut buffer)?;
    let header = &buffer[..count];
    if count < HEADER || !header.starts_with(&MAGIC) {
        return Err(corrupt(0, "the file is no pyramid"));
    }
    let input = &mut In(&header[MAGIC.len()..]);
    let (version, place) = (input.u32(), input.place());
    if In(&header[HEADER - 4..]).u32() != Some(crc32c(&header[..HEADER - 4])) {
        return Err(corrupt(0, "header checksum mismatch"));
    }
    if version != Some(VERSION) {
        let what = format!("a pyramid of version {}", version.unwrap_or(0));
        return Err(Error::Unsupported { location: Location::new(key, 0), what });
    }
    let place = place.ok_or_else(|| corrupt(0, "the header is too short"))?;
    let count = file.read_at(place.offset, place.length.into(), &mut buffer)?;
    let raw = unpacked(&buffer[..count], key, &place)?;
    Directory::decode(&raw).ok_or_else(|| corrupt(place.offset, "the directory is invalid"))
}

/// The content of a block in these bytes. Its size is checked before memory is allocated.
pub fn unpacked(packed: &[u8], key: &str, place: &Place) -> Result<Vec<u8>> {
    let location = || Location::new(key, place.offset);
    if packed.len() < place.length as usize {
        let (needed, found) = (place.length.into(), packed.len() as u64);
        return Err(Error::Truncated { location: location(), needed, found });
    }
    let corrupt = |what: &str| Error::Corrupt { location: location(), what: what.into() };
    if crc32c(packed) != place.crc {
        return Err(corrupt("block checksum mismatch"));
    }
    if place.raw > MAX_BLOCK || u64::from(place.raw) > (1 << 16) + MAX_RATIO * u64::from(place.length) {
        return Err(corrupt("the block is too large"));
    }
    let mut decompressor = Decompressor::new().map_err(|error| Error::Invalid(format!("cannot use zstd: {error}")))?;
    let raw = decompressor.decompress(packed, place.raw as usize).ok();
    raw.filter(|raw| raw.len() == place.raw as usize).ok_or_else(|| corrupt("the block cannot be decompressed"))
}
