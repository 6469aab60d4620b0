//! What is known of a tensor behind its last record, so that more records may follow.

use super::file::{In, Out};
use super::measure::{COUNT, Record, flag};
use super::window::WINDOW;

/// Records of findings that are kept at most. Of values that stay NaN only the first and the last are.
const MOST_RECORDS: u64 = 2_000_000;
/// Bytes of a record in a file.
pub const RECORD_SIZE: u64 = 4 + 8 + 2 + 4 * (COUNT as u64 + 3);

/// Records of all tensors that were kept, since the file grew last.
#[derive(Default)]
pub struct Kept {
    pub records: Vec<Record>,
    /// Number of those that are in the file.
    pub stored: u64,
    /// Number of those for which there was no room.
    pub dropped: u64,
}

impl Kept {
    fn keep(&mut self, record: Record) {
        if self.stored + (self.records.len() as u64) < MOST_RECORDS {
            self.records.push(record);
        } else {
            self.dropped += 1;
        }
    }
}

/// What is known of a tensor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Has several elements.
    pub several: bool,
    /// The first finite size and norm, and their steps.
    pub starts: [Option<(i64, f32)>; 2],
    /// The record before, and whether it was kept; a bad one after another is kept if no more follow.
    pub before: Option<(Record, bool)>,
    /// The record with the largest surprise.
    largest: Option<Record>,
}

impl Seen {
    /// Notes a record, and keeps those that stand out with their neighbours; of a whole tensor, all.
    pub fn note(&mut self, record: Record, whole: bool, kept: &mut Kept) {
        self.several |= record.elements != 1.0;
        for (at, start) in self.starts.iter_mut().enumerate() {
            if start.is_none() && record.values[at].is_finite() {
                *start = Some((record.step, record.values[at]));
            }
        }
        if record.amount() > self.largest.map_or(0.0, |largest| largest.amount()) {
            self.largest = Some(record);
        }
        let stands_out = |record: &Record| whole || record.is_bad() || record.flag & flag::SUDDEN != 0;
        let follows_bad = self.before.is_some_and(|(before, _)| before.is_bad()) && record.is_bad() && !whole;
        let mut is_kept = stands_out(&record) && !follows_bad;
        if let Some((before, was_kept)) = self.before {
            // The neighbour before, which may be the last of a series of bad ones.
            if !was_kept && (is_kept || (before.is_bad() && !record.is_bad())) {
                kept.keep(before);
            }
            // The neighbour after.
            is_kept |= !follows_bad && stands_out(&before);
        }
        if is_kept {
            kept.keep(record);
        }
        self.before = Some((record, is_kept));
    }

    /// The last record, which may be the last of bad ones or the neighbour of what follows, and the one with the
    /// largest surprise.
    pub fn standing(&self) -> impl Iterator<Item = Record> {
        self.before.map(|(last, _)| last).into_iter().chain(self.largest)
    }

    fn encode(&self, out: &mut Out) {
        out.u8(u8::from(self.several) | u8::from(self.before.is_some_and(|(_, was_kept)| was_kept)) << 1);
        for start in self.starts {
            let (step, value) = start.unwrap_or((i64::MAX, 0.0));
            out.i64(step);
            out.f32(value);
        }
        let records = [self.before.map(|(record, _)| record), self.largest];
        out.u8(u8::from(records[0].is_some()) | u8::from(records[1].is_some()) << 1);
        records.iter().flatten().for_each(|record| put_record(out, record));
    }

    fn decode(input: &mut In<'_>, tensors: usize) -> Option<Seen> {
        let flags = input.u8()?;
        let mut starts = [None; 2];
        for start in &mut starts {
            let (step, value) = (input.i64()?, input.f32()?);
            *start = (step < i64::MAX).then_some((step, value));
        }
        let present = input.u8()?;
        let mut next = |bit: u8| if present & bit > 0 { take_record(input, tensors).map(Some) } else { Some(None) };
        let (before, largest) = (next(1)?, next(2)?);
        let before = before.map(|record| (record, flags & 2 > 0));
        Some(Seen { several: flags & 1 > 0, starts, before, largest })
    }
}

/// The bytes of what is known of tensors, and of the last sizes of series.
pub fn encode<'s>(seen: impl Iterator<Item = &'s Seen>, sizes: impl Iterator<Item = [f32; WINDOW]>) -> Vec<u8> {
    let mut out = Out::default();
    seen.for_each(|each| each.encode(&mut out));
    sizes.flatten().for_each(|size| out.f32(size));
    out.0
}

/// What [`encode`] was called with, of so many tensors and series.
pub fn decode(bytes: &[u8], tensors: usize, series: usize) -> Option<(Vec<Seen>, Vec<[f32; WINDOW]>)> {
    let input = &mut In(bytes);
    // Counts are those of lists that were read, so that they are no claims.
    let seen = (0..tensors).map(|_| Seen::decode(input, tensors)).collect::<Option<Vec<_>>>()?;
    let sizes = (0..series).map(|_| {
        let mut sizes = [f32::NAN; WINDOW];
        for size in &mut sizes {
            *size = input.f32()?;
        }
        Some(sizes)
    });
    let sizes = sizes.collect::<Option<Vec<_>>>()?;
    input.0.is_empty().then_some((seen, sizes))
}

/// Appends a record.
pub fn put_record(out: &mut Out, record: &Record) {
    out.u32(record.tensor);
    out.i64(record.step);
    out.u8(record.mode);
    out.u8(record.flag);
    let numbers = [record.mean, record.elements, record.usual];
    record.values.iter().chain(&numbers).for_each(|number| out.f32(*number));
}

/// The next record; `None` if it is of no tensor.
pub fn take_record(input: &mut In<'_>, tensors: usize) -> Option<Record> {
    let (tensor, step, mode, flag) = (input.u32()?, input.i64()?, input.u8()?, input.u8()?);
    let mut values = [0.0; COUNT];
    for value in &mut values {
        *value = input.f32()?;
    }
    let (mean, elements, usual) = (input.f32()?, input.f32()?, input.f32()?);
    let record = Record { tensor, step, mode, flag, values, mean, elements, usual };
    ((tensor as usize) < tensors && step >= 0).then_some(record)
}
