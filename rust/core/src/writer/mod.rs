//! Writing one step of one worker: its event file and its index file.
//!
//! Both are written under temporary names and renamed when the step is published or finished, the event file first, so readers
//! of an index file can read all its entries. A step that fails or is dropped before leaves no files.

mod file;
mod names;
pub mod segment;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::crc::{MaskedCrc, Running};
use crate::error::{Error, Result};
use crate::index::{self, Index, LARGEST, ShapeEntry, ShardEntry, TensorEntry};
use crate::proto::MAX_RANK;
use crate::record;
use crate::reduce::{self, Op};
use crate::step::{Mode, Step};
use crate::tensor::{DType, Data, Meta, encode_tensor_event};

use file::Unfinished;
pub use names::{event_key, index_key, reduction_name, worker_file_name};

/// Unit of checksumming and writing: the kernel then copies data that is still in the cache.
const PIECE: usize = 1 << 20;

/// Records of a step that are kept in memory; a larger step is written to its own files.
const LARGEST_IN_MEMORY: usize = 8 << 20;

/// The files of a finished step, relative to the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// The event file; `None` for a step with shapes only.
    pub event_key: Option<String>,
    /// The index file; `None` for an empty step.
    pub index_key: Option<String>,
    /// Total size.
    pub bytes: u64,
}

/// Writes one step of one worker.
///
/// The footer of each record is smdebug's constant, which its readers require. The unmasked CRC32C of the payload is stored
/// in the index entry under `crc32c`, which other readers ignore.
#[derive(Debug)]
pub struct StepWriter {
    root: PathBuf,
    event_key: String,
    index_key: String,
    step: Step,
    fsync: bool,
    events: Option<Unfinished>,
    /// The records, until they are appended to a segment or written to the step's own files.
    memory: Option<Vec<u8>>,
    /// Entries of the index that a segment has.
    appended: usize,
    index: Index<'static>,
    /// Whether [`StepWriter::publish`] has made the step visible.
    published: bool,
    failed: bool,
}

impl StepWriter {
    /// Creates a writer for a global step of the run in `root`. Writes nothing yet.
    ///
    /// `worker` can be a device name such as `/job:worker/replica:0/task:1`. With `fsync`, a finished step survives a power
    /// failure.
    pub fn new(root: &Path, step: Step, worker: &str, mode: Mode, mode_step: Step, fsync: bool) -> Result<Self> {
        let worker = worker_file_name(worker)?;
        if !(0..=LARGEST.cast_signed()).contains(&mode_step) {
            return Err(Error::Invalid(format!("invalid mode step {mode_step}; the largest is 2^53")));
        }
        Ok(StepWriter {
            root: root.to_owned(),
            event_key: event_key(step, &worker)?,
            index_key: index_key(step, &worker)?,
            step,
            fsync,
            events: None,
            memory: None,
            appended: 0,
            index: Index {
                mode,
                mode_step,
                event_file: None,
                entries: Vec::new(),
                shapes: Vec::new(),
                shards: Vec::new(),
            },
            published: false,
            failed: false,
        })
    }

    /// Keeps the records in memory while they are small, so that the step can be appended to a segment.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.memory = Some(Vec::new());
        self
    }

    /// Whether the step is in memory, so that it can be appended to a segment.
    pub fn is_in_memory(&self) -> bool {
        self.memory.is_some() && !self.failed
    }

    /// The name of the first tensor, if any was written.
    pub fn first(&self) -> Option<&str> {
        self.index.entries.first().map(|entry| entry.name.as_ref())
    }

    /// Writes a tensor. `content` holds its elements, little-endian, in C order.
    ///
    /// A name may be repeated; readers use the last one. A reduction is a tensor named by [`reduction_name`].
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: &[u64], content: &[u8]) -> Result<()> {
        let count = shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
        if dtype == DType::Str
            || count.and_then(|count| count.checked_mul(dtype.item_size() as u64)) != Some(content.len() as u64)
        {
            let (found, dtype) = (content.len(), dtype.name());
            return Err(Error::Invalid(format!(
                "{name:?}: {found} bytes do not match a {dtype} tensor of shape {shape:?}"
            )));
        }
        self.write(name, dtype, shape, &Data::Raw(content))
    }

    /// Writes a string tensor.
    pub fn text(&mut self, name: &str, shape: &[u64], strings: Vec<&[u8]>) -> Result<()> {
        if shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size)) != Some(strings.len() as u64) {
            return Err(Error::Invalid(format!("{name:?}: {} strings do not match shape {shape:?}", strings.len())));
        }
        self.write(name, DType::Str, shape, &Data::Strings(strings))
    }

    /// Writes reductions of a tensor: `requested` lists (reduction, of |x|).
    ///
    /// Reductions that an empty tensor lacks (its minimum) are omitted.
    pub fn reductions(&mut self, name: &str, dtype: DType, content: &[u8], requested: &[(Op, bool)]) -> Result<()> {
        let found = reduce::reduce_some(dtype, content, requested.iter().copied().collect())?;
        for (op, abs) in requested {
            if let Some(number) = found.try_get(*op, *abs) {
                let name = reduction_name(op.name(), *abs, name);
                self.tensor(&name, number.dtype(), &[], number.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Records a tensor's shape instead of, or in addition to, its value. `original` is the framework's name.
    pub fn shape(&mut self, name: &str, original: &str, shape: &[u64]) -> Result<()> {
        self.check_usable()?;
        check_rank(name, shape)?;
        if let Some(size) = shape.iter().find(|size| **size > LARGEST) {
            return Err(Error::Invalid(format!("{name:?}: dimension of {size} elements exceeds 2^53")));
        }
        let (name, original) = (name.to_owned().into(), original.to_owned().into());
        self.index.shapes.push(ShapeEntry { name, original, shape: shape.to_vec() });
        Ok(())
    }

    /// Records the position of this worker's part of a sharded tensor: a JSON value in ASCII on one line.
    pub fn shard(&mut self, name: &str, shard: &str) -> Result<()> {
        self.check_usable()?;
        if !index::is_ascii_json(shard) {
            return Err(Error::Invalid(format!("{name:?}: the position of a shard is not JSON in ASCII on one line")));
        }
        self.index.shards.push(ShardEntry { name: name.to_owned().into(), shard: shard.to_owned().into() });
        Ok(())
    }

    /// Makes the step visible with the tensors written so far. More tensors can follow; [`StepWriter::finish`] shows them.
    ///
    /// The event file only grows and the index file is replaced atomically, so readers see one of both states.
    pub fn publish(&mut self) -> Result<()> {
        self.show().map(drop)
    }

    /// Renames both files to their final names, the event file first. Writes nothing if nothing was saved.
    pub fn finish(mut self) -> Result<Written> {
        let Some(index_bytes) = self.show()? else { return Ok(Written::default()) };
        let mut written = Written { index_key: Some(self.index_key.clone()), bytes: index_bytes, ..Written::default() };
        if let Some(events) = self.events.take() {
            written.event_key = Some(self.event_key.clone());
            written.bytes += events.publish(self.fsync)?;
        }
        Ok(written)
    }

    /// Publishes the event file, then the index file. Returns the size of the index file; `None` if nothing was saved.
    fn show(&mut self) -> Result<Option<u64>> {
        self.check_usable()?;
        if self.entries() == 0 {
            return Ok(None);
        }
        let mut index = Unfinished::create(&self.root, &self.index_key)?;
        index.write(&self.index.to_bytes())?;
        index.complete(self.fsync)?;
        if !self.published {
            // An index file of the same step can remain from before the training went back to a checkpoint. It must not
            // refer to the new event file.
            index.remove_final()?;
        }
        self.spill()?;
        if let Some(events) = &mut self.events {
            events.show(self.fsync)?;
        }
        let bytes = index.publish(self.fsync)?;
        self.published = true;
        Ok(Some(bytes))
    }

    /// Writes what is in memory to the step's own event file, as everything that follows.
    fn spill(&mut self) -> Result<()> {
        let Some(memory) = self.memory.take().filter(|memory| !memory.is_empty()) else { return Ok(()) };
        self.failed = true;
        let mut events = Unfinished::create(&self.root, &self.event_key)?;
        events.write(&memory)?;
        self.events = Some(events);
        self.failed = false;
        Ok(())
    }

    fn write(&mut self, name: &str, dtype: DType, shape: &[u64], data: &Data<'_>) -> Result<()> {
        self.check_usable()?;
        check_rank(name, shape)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let meta = Meta {
            step: self.step,
            wall_time: now.as_secs_f64(),
            tag: name,
            mode: self.index.mode,
            mode_step: self.index.mode_step,
        };
        let (before, behind) = encode_tensor_event(&meta, dtype, shape, data);
        let content = data.bytes().unwrap_or_default();
        let written = self.record(&before, content, &behind);
        // After a failed write the content of the file is unknown, so nothing can follow.
        self.failed = written.is_err();
        let (offset, length, crc) = written?;
        self.index.event_file.get_or_insert_with(|| self.event_key.clone().into());
        self.index.entries.push(TensorEntry { name: name.to_owned().into(), offset, length, crc: Some(crc) });
        Ok(())
    }

    /// Writes a record. Returns its offset, size and payload CRC.
    fn record(&mut self, before: &[u8], content: &[u8], behind: &[u8]) -> Result<(u64, u64, u32)> {
        let length = before.len() + content.len() + behind.len();
        if self.memory.as_ref().is_some_and(|memory| memory.len() + length > LARGEST_IN_MEMORY) {
            self.spill()?;
        }
        if let Some(memory) = &mut self.memory {
            let (start, mut crc) = (memory.len(), Running::new());
            memory.extend_from_slice(&record::header(length as u64));
            for piece in [before, content, behind] {
                crc.add(piece);
                memory.extend_from_slice(piece);
            }
            memory.extend_from_slice(&MaskedCrc::SMDEBUG_CONSTANT.0.to_le_bytes());
            return Ok((start as u64, (memory.len() - start) as u64, crc.value()));
        }
        let events = match &mut self.events {
            Some(events) => events,
            None => self.events.insert(Unfinished::create(&self.root, &self.event_key)?),
        };
        let start = events.written();
        let mut crc = Running::new();
        events.write(&record::header(length as u64))?;
        for piece in std::iter::once(before).chain(content.chunks(PIECE)).chain(std::iter::once(behind)) {
            crc.add(piece);
            events.write(piece)?;
        }
        events.write(&MaskedCrc::SMDEBUG_CONSTANT.0.to_le_bytes())?;
        Ok((start, events.written() - start, crc.value()))
    }

    /// Number of entries of the index.
    fn entries(&self) -> usize {
        self.index.entries.len() + self.index.shapes.len() + self.index.shards.len()
    }

    fn check_usable(&self) -> Result<()> {
        if self.failed {
            return Err(Error::Invalid(format!("cannot write step {}: an earlier write failed", self.step)));
        }
        Ok(())
    }
}

fn check_rank(name: &str, shape: &[u64]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::Invalid(format!("{name:?}: {} dimensions exceed the limit of {MAX_RANK}", shape.len())));
    }
    Ok(())
}
