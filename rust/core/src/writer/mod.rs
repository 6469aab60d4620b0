//! Writing one step of one worker: its event file and the index file that says what lies where in it.
//!
//! Both are written under a temporary name and renamed when they are whole, the event file first: who sees an index file
//! can read all it names. A step that fails, or is dropped unfinished, leaves nothing.

mod file;
mod names;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::crc::{MaskedCrc, Running};
use crate::error::{Error, Result};
use crate::index::{Index, LARGEST, ShapeEntry, TensorEntry};
use crate::proto::MAX_RANK;
use crate::record;
use crate::reduce::{self, Op};
use crate::step::{Mode, Step};
use crate::tensor::{DType, Data, Meta, encode_tensor_event};

use file::Unfinished;
pub use names::{event_key, index_key, reduction_name, worker_file_name};

/// Content is checksummed and written by pieces of this size: the kernel then copies what the checksum has just brought near.
const PIECE: usize = 1 << 20;

/// What a finished step left behind: keys relative to the run, `None` for a file that wasn't needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// The event file; a step of nothing but shapes has none.
    pub event_key: Option<String>,
    /// The index file; a step that saved nothing has none.
    pub index_key: Option<String>,
    /// Bytes of both.
    pub bytes: u64,
}

/// Writes one step of one worker.
///
/// Every record's footer is smdebug's constant, as its readers demand. The payload's true CRC32C goes, unmasked, into the
/// record's index entry under `crc32c`, a key that other readers pass over.
#[derive(Debug)]
pub struct StepWriter {
    root: PathBuf,
    event_key: String,
    index_key: String,
    step: Step,
    fsync: bool,
    events: Option<Unfinished>,
    index: Index<'static>,
    /// Readers see the step already, by [`StepWriter::publish`].
    published: bool,
    failed: bool,
}

impl StepWriter {
    /// A writer for a global step of the run in `root`. Touches nothing yet.
    ///
    /// `worker` may be a device name such as `/job:worker/replica:0/task:1`.
    /// With `fsync` a finished step survives a power cut.
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
            index: Index { mode, mode_step, event_file: None, entries: Vec::new(), shapes: Vec::new() },
            published: false,
            failed: false,
        })
    }

    /// Writes a tensor: `content` is its elements, little-endian, the last dimension's next to each other.
    ///
    /// The same name may come again; readers take the last. A reduction is a tensor named by [`reduction_name`].
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: &[u64], content: &[u8]) -> Result<()> {
        let count = shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
        if dtype == DType::Str
            || count.and_then(|count| count.checked_mul(dtype.item_size() as u64)) != Some(content.len() as u64)
        {
            let (found, dtype) = (content.len(), dtype.name());
            return Err(Error::Invalid(format!("{name:?}: {found} bytes are no {dtype} tensor of shape {shape:?}")));
        }
        self.write(name, dtype, shape, &Data::Raw(content))
    }

    /// Writes a tensor of text.
    pub fn text(&mut self, name: &str, shape: &[u64], strings: Vec<&[u8]>) -> Result<()> {
        if shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size)) != Some(strings.len() as u64) {
            return Err(Error::Invalid(format!(
                "{name:?}: {} strings are no tensor of shape {shape:?}",
                strings.len()
            )));
        }
        self.write(name, DType::Str, shape, &Data::Strings(strings))
    }

    /// Writes reductions of a tensor: `wanted` are kinds, each of x or (with true) of |x|.
    ///
    /// What an empty tensor has none of (its minimum) is left out.
    pub fn reductions(&mut self, name: &str, dtype: DType, content: &[u8], wanted: &[(Op, bool)]) -> Result<()> {
        let found = reduce::reduce_some(dtype, content, wanted.iter().copied().collect())?;
        for (op, abs) in wanted {
            if let Some(number) = found.try_get(*op, *abs) {
                let name = reduction_name(op.name(), *abs, name);
                self.tensor(&name, number.dtype(), &[], number.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Notes a tensor's shape in place of, or beside, its value. `original` is the name its framework gave it.
    pub fn shape(&mut self, name: &str, original: &str, shape: &[u64]) -> Result<()> {
        self.usable()?;
        check_rank(name, shape)?;
        if let Some(size) = shape.iter().find(|size| **size > LARGEST) {
            return Err(Error::Invalid(format!("{name:?}: a dimension of {size} elements")));
        }
        let (name, original) = (name.to_owned().into(), original.to_owned().into());
        self.index.shapes.push(ShapeEntry { name, original, shape: shape.to_vec() });
        Ok(())
    }

    /// Makes the step visible with the tensors written so far. More tensors may follow; [`StepWriter::finish`] shows them.
    ///
    /// The event file only grows and the index file is replaced in one step, so a reader sees one of both states.
    pub fn publish(&mut self) -> Result<()> {
        self.show().map(drop)
    }

    /// Gives both files their final names, the event file first. Writes nothing at all if nothing was saved.
    pub fn finish(mut self) -> Result<Written> {
        let Some(index_bytes) = self.show()? else { return Ok(Written::default()) };
        let mut written = Written { index_key: Some(self.index_key.clone()), bytes: index_bytes, ..Written::default() };
        if let Some(events) = self.events.take() {
            written.event_key = Some(self.event_key.clone());
            written.bytes += events.publish(self.fsync)?;
        }
        Ok(written)
    }

    /// Puts the event file, then the index file in place; the size of the index file, `None` if nothing was saved.
    fn show(&mut self) -> Result<Option<u64>> {
        self.usable()?;
        if self.index.entries.is_empty() && self.index.shapes.is_empty() {
            return Ok(None);
        }
        let mut index = Unfinished::create(&self.root, &self.index_key)?;
        index.write(&self.index.to_bytes())?;
        index.complete(self.fsync)?;
        if !self.published {
            // An index of the same step can be left from before the training went back to a checkpoint. It must not refer to
            // the new event file.
            index.remove_final()?;
        }
        if let Some(events) = &mut self.events {
            events.show(self.fsync)?;
        }
        let bytes = index.publish(self.fsync)?;
        self.published = true;
        Ok(Some(bytes))
    }

    fn write(&mut self, name: &str, dtype: DType, shape: &[u64], data: &Data<'_>) -> Result<()> {
        self.usable()?;
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
        // What is in the file now is unknown: nothing can come after it.
        self.failed = written.is_err();
        let (offset, length, crc) = written?;
        self.index.event_file.get_or_insert_with(|| self.event_key.clone().into());
        self.index.entries.push(TensorEntry { name: name.to_owned().into(), offset, length, crc: Some(crc) });
        Ok(())
    }

    /// Writes a record; where it starts, its size and its payload's CRC.
    fn record(&mut self, before: &[u8], content: &[u8], behind: &[u8]) -> Result<(u64, u64, u32)> {
        let events = match &mut self.events {
            Some(events) => events,
            None => self.events.insert(Unfinished::create(&self.root, &self.event_key)?),
        };
        let start = events.written();
        let mut crc = Running::new();
        events.write(&record::header((before.len() + content.len() + behind.len()) as u64))?;
        for piece in std::iter::once(before).chain(content.chunks(PIECE)).chain(std::iter::once(behind)) {
            crc.add(piece);
            events.write(piece)?;
        }
        events.write(&MaskedCrc::SMDEBUG_CONSTANT.0.to_le_bytes())?;
        Ok((start, events.written() - start, crc.value()))
    }

    fn usable(&self) -> Result<()> {
        if self.failed {
            return Err(Error::Invalid(format!("step {} can't be written: an earlier write failed", self.step)));
        }
        Ok(())
    }
}

fn check_rank(name: &str, shape: &[u64]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::Invalid(format!("{name:?}: {} dimensions; at most {MAX_RANK} can be read", shape.len())));
    }
    Ok(())
}
