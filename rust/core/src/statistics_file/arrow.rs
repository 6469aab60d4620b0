//! The messages of the Arrow IPC stream: one fixed schema, and record batches with zstd-compressed columns.

use zstd::bulk::{Compressor, Decompressor};

use super::flatbuffer::{Builder, Slot, Table};
use super::round::to_24_bits;
use super::{MAX_ROWS, Row, VERSION};
use crate::error::{Error, Location, Result};
use crate::statistics::Statistics;
use crate::step::Mode;

/// A column: its name, and its width in bytes, negative for signed integers and 0 for f64.
type Column = (&'static str, i8);

const COLUMNS: [Column; 18] = [
    ("step", -8),
    ("mode", 1),
    ("mode_step", -8),
    ("tensor", 4),
    ("flags", 2),
    ("count", 8),
    ("nan", 8),
    ("neg_inf", 8),
    ("pos_inf", 8),
    ("zeros", 8),
    ("min", 0),
    ("max", 0),
    ("mean", 0),
    ("std", 0),
    ("l1", 0),
    ("update", 0),
    ("saturated", 8),
    ("subnormal", 8),
];
/// Columns that every version has; those after them were added later.
const FIRST_COLUMNS: usize = 16;

const CONTINUATION: [u8; 4] = [0xff; 4];
/// Numbers of the Arrow format.
const V5: i16 = 4;
const SCHEMA: u8 = 1;
const RECORD_BATCH: u8 = 3;
const INT: u8 = 2;
const FLOATING_POINT: u8 = 3;
const DOUBLE: i16 = 2;
const ZSTD: u8 = 1;
/// Limit on the number of columns that a newer version may have.
const MAX_COLUMNS: usize = 256;

fn width(column: &Column) -> usize {
    if column.1 == 0 { 8 } else { column.1.unsigned_abs().into() }
}

/// A message: prefix and metadata. The body follows.
fn message(kind: u8, body: usize, header: impl FnOnce(&mut Builder) -> usize) -> Vec<u8> {
    let mut builder = Builder::new();
    let slots = [Slot::I16(V5), Slot::U8(kind), Slot::Offset, Slot::I64(body as i64)];
    let (root, places) = builder.table(slots);
    let header = header(&mut builder);
    builder.point(places[2], header);
    let metadata = builder.finish(root);
    [&CONTINUATION, (metadata.len() as u32).to_le_bytes().as_slice(), &metadata].concat()
}

/// The schema message, with which every stream starts.
pub fn schema() -> Vec<u8> {
    schema_of(&COLUMNS)
}

fn schema_of(columns: &[Column]) -> Vec<u8> {
    message(SCHEMA, 0, |builder| {
        let (schema, places) = builder.table([Slot::I16(0), Slot::Offset, Slot::Offset]);
        let (fields, first) = builder.offsets(columns.len());
        builder.point(places[1], fields);
        for (at, column) in columns.iter().enumerate() {
            let kind = if column.1 == 0 { FLOATING_POINT } else { INT };
            let slots = [Slot::Offset, Slot::U8(0), Slot::U8(kind), Slot::Offset, Slot::Default, Slot::Offset];
            let (field, places) = builder.table(slots);
            builder.point(first + 4 * at, field);
            let name = builder.string(column.0);
            builder.point(places[0], name);
            let (kind, _) = if column.1 == 0 {
                builder.table([Slot::I16(DOUBLE), Slot::Default])
            } else {
                builder.table([Slot::I32(width(column) as i32 * 8), Slot::U8(u8::from(column.1 < 0))])
            };
            builder.point(places[3], kind);
            let (children, _) = builder.offsets(0);
            builder.point(places[5], children);
        }
        let (metadata, first) = builder.offsets(1);
        builder.point(places[2], metadata);
        let (pair, places) = builder.table([Slot::Offset, Slot::Offset]);
        builder.point(first, pair);
        for (place, text) in places.into_iter().zip(["smdwidgets.statistics", VERSION]) {
            let text = builder.string(text);
            builder.point(place, text);
        }
        schema
    })
}

/// Whether a message is a schema with these columns, at least the first. More columns may follow them.
pub fn is_schema(bytes: &[u8]) -> bool {
    fn of(bytes: &[u8]) -> Option<bool> {
        let (metadata, _) = split(bytes)?;
        let root = Table::root(metadata)?;
        if root.u8(1)? != SCHEMA {
            return Some(false);
        }
        let fields = root.table(2)?.tables(1, MAX_COLUMNS)?;
        let same = |column: &Column, field: &Table<'_>| {
            let kind = field.table(3)?;
            let of_type = if column.1 == 0 {
                field.u8(2)? == FLOATING_POINT && kind.i16(0)? == DOUBLE
            } else {
                let is_signed = kind.u8(1).unwrap_or(0) != 0;
                field.u8(2)? == INT && kind.i32(0)? == width(column) as i32 * 8 && is_signed == (column.1 < 0)
            };
            Some(of_type && field.string(0)? == column.0)
        };
        let all = COLUMNS.iter().zip(&fields).all(|(column, field)| same(column, field) == Some(true));
        Some(all && fields.len() >= FIRST_COLUMNS)
    }
    of(bytes) == Some(true)
}

/// The size of the message at the start of these bytes, without its body.
pub fn message_size(bytes: &[u8]) -> Option<usize> {
    let size = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) as usize;
    (bytes.get(..4)? == CONTINUATION && size > 0).then_some(size.checked_add(8)?)
}

/// Metadata and body of a message.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, body) = bytes.split_at_checked(message_size(bytes)?)?;
    Some((&head[8..], body))
}

/// The cells of a column, little-endian.
fn cells(rows: &[Row], column: usize, into: &mut Vec<u8>) {
    into.clear();
    macro_rules! each {
        ($of:expr) => {
            rows.iter().for_each(|row| into.extend_from_slice(&$of(row).to_le_bytes()))
        };
    }
    match column {
        0 => each!(|row: &Row| row.step),
        1 => each!(|row: &Row| row.mode.number()),
        2 => each!(|row: &Row| row.mode_step),
        3 => each!(|row: &Row| row.tensor),
        4 => each!(|row: &Row| row.flags),
        5 => each!(|row: &Row| row.statistics.count),
        6 => each!(|row: &Row| row.statistics.nan),
        7 => each!(|row: &Row| row.statistics.neg_inf),
        8 => each!(|row: &Row| row.statistics.pos_inf),
        9 => each!(|row: &Row| row.statistics.zeros),
        10 => each!(|row: &Row| row.statistics.min),
        11 => each!(|row: &Row| row.statistics.max),
        12 => each!(|row: &Row| to_24_bits(row.statistics.mean)),
        13 => each!(|row: &Row| to_24_bits(row.statistics.std)),
        14 => each!(|row: &Row| to_24_bits(row.statistics.l1)),
        15 => each!(|row: &Row| to_24_bits(row.statistics.update)),
        16 => each!(|row: &Row| row.statistics.saturated),
        _ => each!(|row: &Row| row.statistics.subnormal),
    }
}

/// A record batch message with these rows, and its body.
pub fn encode_batch(rows: &[Row], compressor: &mut Compressor<'_>) -> Result<Vec<u8>> {
    encode_columns(rows, COLUMNS.len(), compressor)
}

fn encode_columns(rows: &[Row], columns: usize, compressor: &mut Compressor<'_>) -> Result<Vec<u8>> {
    let (mut body, mut buffers) = (Vec::new(), Vec::with_capacity(2 * columns));
    let (mut raw, mut packed) = (Vec::new(), Vec::new());
    for column in 0..columns {
        cells(rows, column, &mut raw);
        packed.resize(zstd::zstd_safe::compress_bound(raw.len()), 0);
        let size = compressor
            .compress_to_buffer(&raw, packed.as_mut_slice())
            .map_err(|error| Error::Invalid(format!("cannot compress statistics: {error}")))?;
        let start = body.len();
        // The validity of a column without nulls is empty.
        buffers.push([start as i64, 0]);
        if size < raw.len() {
            body.extend_from_slice(&(raw.len() as i64).to_le_bytes());
            body.extend_from_slice(&packed[..size]);
        } else {
            body.extend_from_slice(&(-1i64).to_le_bytes());
            body.extend_from_slice(&raw);
        }
        buffers.push([start as i64, (body.len() - start) as i64]);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let mut bytes = message(RECORD_BATCH, body.len(), |builder| {
        let (batch, places) = builder.table([Slot::I64(rows.len() as i64), Slot::Offset, Slot::Offset, Slot::Offset]);
        let nodes = builder.pairs((0..columns).map(|_| [rows.len() as i64, 0]));
        builder.point(places[1], nodes);
        let buffers = builder.pairs(buffers.into_iter());
        builder.point(places[2], buffers);
        let (compression, _) = builder.table([Slot::U8(ZSTD), Slot::U8(0)]);
        builder.point(places[3], compression);
        batch
    });
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// The buffers of a record batch.
struct Batch<'b> {
    rows: usize,
    body: &'b [u8],
    /// Pairs of offset and length.
    buffers: &'b [u8],
    is_compressed: bool,
}

fn corrupt(what: &str) -> Error {
    Error::Corrupt { location: Location::memory(0), what: format!("record batch: {what}") }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported { location: Location::memory(0), what: format!("record batch: {what}") }
}

impl<'b> Batch<'b> {
    fn of(bytes: &'b [u8]) -> Result<Batch<'b>> {
        let (metadata, body) = split(bytes).ok_or_else(|| corrupt("not an Arrow message"))?;
        let root = Table::root(metadata).ok_or_else(|| corrupt("invalid metadata"))?;
        let batch =
            root.table(2).filter(|_| root.u8(1) == Some(RECORD_BATCH)).ok_or_else(|| corrupt("no record batch"))?;
        if root.i64(3) != i64::try_from(body.len()).ok() {
            return Err(corrupt("wrong length of the body"));
        }
        let rows =
            batch.i64(0).and_then(|rows| usize::try_from(rows).ok()).ok_or_else(|| corrupt("no number of rows"))?;
        if rows > MAX_ROWS {
            return Err(unsupported("more than 1,048,576 rows"));
        }
        let compression = batch.table(3);
        if compression.is_some_and(|compression| compression.u8(0).unwrap_or(0) != ZSTD) {
            return Err(unsupported("compressed by another method than zstd"));
        }
        let buffers = batch.vector(2, 16).ok_or_else(|| corrupt("no buffers"))?;
        Ok(Batch { rows, body, buffers, is_compressed: compression.is_some() })
    }

    /// The number of columns.
    fn columns(&self) -> usize {
        self.buffers.len() / 32
    }

    /// The stored bytes of a column.
    fn buffer(&self, at: usize) -> Result<&'b [u8]> {
        let pair = self
            .buffers
            .get((2 * at + 1) * 16..)
            .and_then(|rest| rest.get(..16))
            .ok_or_else(|| corrupt("too few buffers"))?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| pair[at + i]));
        usize::try_from(number(0))
            .ok()
            .zip(usize::try_from(number(8)).ok())
            .and_then(|(start, length)| self.body.get(start..start.checked_add(length)?))
            .ok_or_else(|| corrupt("a buffer is outside the body"))
    }

    /// The cells of a column, of the size that follows from the number of rows.
    fn column<'r>(&self, at: usize, raw: &'r mut Vec<u8>, decompressor: &mut Decompressor<'_>) -> Result<&'r [u8]>
    where
        'b: 'r,
    {
        let buffer = self.buffer(at)?;
        let size = self.rows * width(&COLUMNS[at]);
        if self.is_compressed {
            unpacked(buffer, size, raw, decompressor).ok_or_else(|| corrupt("a buffer cannot be decompressed"))
        } else {
            buffer.get(..size).ok_or_else(|| corrupt("a buffer is too short"))
        }
    }
}

/// The rows of a record batch. Lengths are checked before memory is allocated for them.
pub fn decode_batch(bytes: &[u8], decompressor: &mut Decompressor<'_>) -> Result<Vec<Row>> {
    let batch = Batch::of(bytes)?;
    let mut found = vec![EMPTY; batch.rows];
    let mut raw = Vec::new();
    for at in 0..COLUMNS.len().min(batch.columns().max(FIRST_COLUMNS)) {
        let content = batch.column(at, &mut raw, decompressor)?;
        fill(&mut found, at, content).ok_or_else(|| corrupt("a mode or step is invalid"))?;
    }
    found.iter_mut().for_each(|row| {
        row.statistics.l2 = row.statistics.derived_l2();
        row.statistics.abs_max = row.statistics.derived_abs_max();
    });
    Ok(found)
}

/// The columns of a record batch that the pyramid is made of. The others are not decompressed.
#[derive(Default)]
pub struct Columns {
    pub step: Vec<i64>,
    pub mode: Vec<u8>,
    pub tensor: Vec<u32>,
    pub count: Vec<u64>,
    pub nan: Vec<u64>,
    pub neg_inf: Vec<u64>,
    pub pos_inf: Vec<u64>,
    pub zeros: Vec<u64>,
    pub mean: Vec<f64>,
    pub std: Vec<f64>,
    pub update: Vec<f64>,
    raw: Vec<u8>,
    /// The stored bytes of the columns that mostly are those of the batch before, and their number of rows.
    stored: [(Vec<u8>, usize); REPEATED],
}

/// Columns of [`Columns`] that mostly repeat: modes, tensors and counts.
const REPEATED: usize = 7;

/// Reads a column of numbers in place of what the vector has.
macro_rules! read_column {
    ($batch:ident, $at:literal, $into:expr, $kind:ty, $raw:expr, $decompressor:expr) => {{
        let content = $batch.column($at, $raw, $decompressor)?;
        let (cells, _) = content.as_chunks::<{ size_of::<$kind>() }>();
        $into.clear();
        $into.extend(cells.iter().map(|cell| <$kind>::from_le_bytes(*cell)));
    }};
}

impl Columns {
    /// Reads the columns of a batch in place of those before, and returns the number of rows.
    pub fn decode(&mut self, bytes: &[u8], decompressor: &mut Decompressor<'_>) -> Result<usize> {
        let batch = Batch::of(bytes)?;
        macro_rules! read {
            ($at:literal, $field:ident, $kind:ty) => {
                read_column!(batch, $at, self.$field, $kind, &mut self.raw, decompressor)
            };
        }
        // What is stored in the same bytes as in the batch before is there already.
        macro_rules! read_unless_repeated {
            ($number:literal, $at:literal, $field:ident, $kind:ty) => {
                let buffer = batch.buffer($at)?;
                let (bytes, rows) = &mut self.stored[$number];
                if !(batch.is_compressed && bytes == buffer && *rows == batch.rows) {
                    // A column that cannot be read repeats nothing.
                    bytes.clear();
                    read!($at, $field, $kind);
                    self.stored[$number].0.extend_from_slice(buffer);
                    self.stored[$number].1 = batch.rows;
                }
            };
        }
        read!(0, step, i64);
        read_unless_repeated!(0, 1, mode, u8);
        read_unless_repeated!(1, 3, tensor, u32);
        read_unless_repeated!(2, 5, count, u64);
        read_unless_repeated!(3, 6, nan, u64);
        read_unless_repeated!(4, 7, neg_inf, u64);
        read_unless_repeated!(5, 8, pos_inf, u64);
        read_unless_repeated!(6, 9, zeros, u64);
        read!(12, mean, f64);
        read!(13, std, f64);
        read!(15, update, f64);
        let is_valid =
            self.step.iter().all(|step| *step >= 0) && self.mode.iter().all(|mode| Mode::from_number(*mode).is_some());
        if is_valid { Ok(batch.rows) } else { Err(corrupt("a mode or step is invalid")) }
    }
}

/// The columns of a record batch that say which values are not finite.
#[derive(Default)]
pub struct Finiteness {
    pub step: Vec<i64>,
    pub tensor: Vec<u32>,
    /// Numbers of values that are not finite.
    pub lost: Vec<u64>,
    added: Vec<u64>,
    raw: Vec<u8>,
}

impl Finiteness {
    /// Reads the columns of a batch in place of those before, and returns the number of rows.
    pub fn decode(&mut self, bytes: &[u8], decompressor: &mut Decompressor<'_>) -> Result<usize> {
        let batch = Batch::of(bytes)?;
        read_column!(batch, 0, self.step, i64, &mut self.raw, decompressor);
        read_column!(batch, 3, self.tensor, u32, &mut self.raw, decompressor);
        read_column!(batch, 6, self.lost, u64, &mut self.raw, decompressor);
        macro_rules! add {
            ($at:literal) => {
                read_column!(batch, $at, self.added, u64, &mut self.raw, decompressor);
                self.lost.iter_mut().zip(&self.added).for_each(|(lost, more)| *lost = lost.saturating_add(*more));
            };
        }
        add!(7);
        add!(8);
        Ok(batch.rows)
    }
}

const EMPTY: Row = Row {
    step: 0,
    mode: Mode::Global,
    mode_step: 0,
    tensor: 0,
    flags: 0,
    statistics: Statistics {
        count: 0,
        nan: 0,
        neg_inf: 0,
        pos_inf: 0,
        zeros: 0,
        saturated: 0,
        subnormal: 0,
        min: f64::NAN,
        max: f64::NAN,
        mean: f64::NAN,
        std: f64::NAN,
        l1: 0.0,
        l2: 0.0,
        abs_max: f64::NAN,
        update: f64::NAN,
    },
};

/// The content of a compressed buffer, which must have exactly `size` bytes.
fn unpacked<'b>(
    buffer: &'b [u8],
    size: usize,
    raw: &'b mut Vec<u8>,
    decompressor: &mut Decompressor<'_>,
) -> Option<&'b [u8]> {
    if size == 0 {
        return Some(&[]);
    }
    let (length, packed) = buffer.split_at_checked(8)?;
    let length = i64::from_le_bytes(length.try_into().ok()?);
    if length == -1 {
        return packed.get(..size);
    }
    if usize::try_from(length) != Ok(size) {
        return None;
    }
    raw.resize(size, 0);
    let done = decompressor.decompress_to_buffer(packed, raw.as_mut_slice()).ok()?;
    (done == size).then_some(raw)
}

/// Sets a column of all rows; `None` if a cell is out of range.
fn fill(rows: &mut [Row], column: usize, content: &[u8]) -> Option<()> {
    macro_rules! each {
        ($kind:ty, $set:expr) => {{
            const SIZE: usize = size_of::<$kind>();
            for (row, raw) in rows.iter_mut().zip(content.chunks_exact(SIZE)) {
                let value = <$kind>::from_le_bytes(std::array::from_fn(|i| raw[i]));
                let set: fn(&mut Row, $kind) -> Option<()> = $set;
                set(row, value)?;
            }
        }};
    }
    macro_rules! statistic {
        ($kind:ty, $field:ident) => {
            each!($kind, |row, value| {
                row.statistics.$field = value;
                Some(())
            })
        };
    }
    match column {
        0 => each!(i64, |row, value| {
            row.step = value;
            (value >= 0).then_some(())
        }),
        1 => each!(u8, |row, value| {
            row.mode = Mode::from_number(value)?;
            Some(())
        }),
        2 => each!(i64, |row, value| {
            row.mode_step = value;
            (value >= 0).then_some(())
        }),
        3 => each!(u32, |row, value| {
            row.tensor = value;
            Some(())
        }),
        4 => each!(u16, |row, value| {
            row.flags = value;
            Some(())
        }),
        5 => statistic!(u64, count),
        6 => statistic!(u64, nan),
        7 => statistic!(u64, neg_inf),
        8 => statistic!(u64, pos_inf),
        9 => statistic!(u64, zeros),
        10 => statistic!(f64, min),
        11 => statistic!(f64, max),
        12 => statistic!(f64, mean),
        13 => statistic!(f64, std),
        14 => statistic!(f64, l1),
        15 => statistic!(f64, update),
        16 => statistic!(u64, saturated),
        _ => statistic!(u64, subnormal),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_later_columns_are_read() {
        let mut row = EMPTY;
        (row.tensor, row.step, row.statistics.count, row.statistics.saturated) = (3, 5, 7, 2);
        row.statistics.update = 0.5;
        let (first, less) = (&COLUMNS[..FIRST_COLUMNS], &COLUMNS[..FIRST_COLUMNS - 1]);
        assert!(is_schema(&schema()) && is_schema(&schema_of(first)) && !is_schema(&schema_of(less)));
        let mut compressor = Compressor::new(3).unwrap();
        let mut read = |columns| {
            let batch = encode_columns(&[row], columns, &mut compressor).unwrap();
            decode_batch(&batch, &mut Decompressor::new().unwrap()).map(|rows| rows[0].statistics)
        };
        let old = read(FIRST_COLUMNS).unwrap();
        assert_eq!((old.count, old.update, old.saturated, old.subnormal), (7, 0.5, 0, 0));
        assert_eq!(read(COLUMNS.len()).unwrap().saturated, 2);
        assert!(read(FIRST_COLUMNS - 1).is_err());
    }

    #[test]
    fn columns_that_repeat_are_those_of_their_batch() {
        let row = |tensor, zeros, step| {
            let mut row = EMPTY;
            (row.tensor, row.step, row.statistics.count, row.statistics.zeros) = (tensor, step, 7, zeros);
            row
        };
        let (mut compressor, mut decompressor) = (Compressor::new(3).unwrap(), Decompressor::new().unwrap());
        let mut columns = Columns::default();
        // Equal bytes in batches of other sizes, other bytes, and a batch that cannot be read between equal ones.
        for (count, zeros) in [(9, 1), (9, 1), (9, 2), (5, 2), (0, 2), (9, 2), (9, 2)] {
            let rows: Vec<Row> = (0..count).map(|at| row(at, zeros, i64::from(at) + zeros as i64)).collect();
            let batch = encode_columns(&rows, COLUMNS.len(), &mut compressor).unwrap();
            assert!(columns.decode(&batch[..batch.len() - 1], &mut decompressor).is_err());
            assert_eq!(columns.decode(&batch, &mut decompressor).unwrap(), rows.len());
            let expected: Vec<(u32, u64, i64)> =
                rows.iter().map(|row| (row.tensor, row.statistics.zeros, row.step)).collect();
            let found = columns.tensor.iter().zip(&columns.zeros).zip(&columns.step);
            assert_eq!(found.map(|((tensor, zeros), step)| (*tensor, *zeros, *step)).collect::<Vec<_>>(), expected);
            assert_eq!(
                (columns.count.len(), columns.nan.len(), columns.mode.len()),
                (count as usize, count as usize, count as usize)
            );
        }
    }
}
