//! Verification of a record against its entry in the index file.

use std::ops::Range;

use crate::catalog::{Kind, SavedAt, tag_matches};
use crate::crc::{MaskedCrc, Running};
use crate::error::{Error, Location, Result};
use crate::record::{self, FOOTER, HEADER, Record};
use crate::source::{Blob, Reach, Source};
use crate::step::Step;
use crate::tensor::{DType, Head, TensorEvent, TensorView, decode_head, tensor_event};

/// Bytes read first to find dtype and shape of a record; nearly always enough.
pub const HEAD: u64 = 512;

/// What the index file says about a record.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedRecord<'a> {
    /// The name of the tensor.
    pub tensor: &'a str,
    /// The kind of the entry.
    pub kind: Kind,
    /// Step and mode.
    pub when: SavedAt,
    /// Size of the whole record.
    pub length: u64,
    /// CRC32C of the payload, if the index file has one.
    pub crc: Option<u32>,
}

/// The checksums that cover a record's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checksums {
    /// The footer is a checksum, not smdebug's constant.
    pub by_footer: bool,
    /// The index file has a checksum.
    pub by_index: bool,
}

impl Checksums {
    /// Whether any checksum covers the payload.
    pub fn any(self) -> bool {
        self.by_footer || self.by_index
    }
}

/// Parses a record and checks its header and length. Does not read the payload.
pub fn parse<'a>(bytes: &'a [u8], expected: &ExpectedRecord<'_>) -> Result<(Record<'a>, Checksums)> {
    let record = record::complete(bytes, 0)?;
    check_length(record.size as u64, expected)?;
    let by_footer = record.footer_value != MaskedCrc::SMDEBUG_CONSTANT.0;
    Ok((record, Checksums { by_footer, by_index: expected.crc.is_some() }))
}

/// Verifies the payload against all available checksums.
pub fn verify(record: &Record<'_>, expected: &ExpectedRecord<'_>) -> Result<()> {
    let by_footer = record.footer_value != MaskedCrc::SMDEBUG_CONSTANT.0;
    if !by_footer && expected.crc.is_none() {
        return Ok(());
    }
    compare(MaskedCrc::of(record.payload), record.footer_value, expected)
}

/// Compares the checksum of a payload with the available ones.
fn compare(computed: MaskedCrc, footer: u32, expected: &ExpectedRecord<'_>) -> Result<()> {
    let by_footer = footer != MaskedCrc::SMDEBUG_CONSTANT.0;
    let fails = |source: &str, stored: MaskedCrc| {
        let what = format!("record checksum mismatch: {stored} in {source}, computed {computed}");
        Err(Error::Corrupt { location: Location::memory(0), what })
    };
    match expected.crc.map(MaskedCrc::from_crc) {
        _ if by_footer && computed.0 != footer => fails("the footer", MaskedCrc(footer)),
        Some(stored) if stored != computed => fails("the index file", stored),
        _ => Ok(()),
    }
}

/// Decodes the tensor of a record and checks name, step and mode.
pub fn tensor<'a>(record: &Record<'a>, expected: &ExpectedRecord<'_>) -> Result<TensorView<'a>> {
    let event = tensor_event(record.payload).map_err(|error| error.within("", HEADER as u64))?;
    check_tag(event.tag, expected)?;
    check_step_and_mode(&event, expected)?;
    Ok(event.tensor)
}

/// Decodes the beginning of a record and checks it. [`Error::Truncated`] if more bytes are needed.
fn checked_head<'a>(beginning: &'a [u8], expected: &ExpectedRecord<'_>) -> Result<Head<'a>> {
    let head = decode_head(beginning)?;
    check_length(head.size, expected)?;
    check_tag(head.tag, expected)?;
    check_step(head.step, expected.when.step)?;
    Ok(head)
}

/// Decodes dtype and shape from the beginning of a record. [`Error::Truncated`] if more bytes are needed.
pub fn head(beginning: &[u8], expected: &ExpectedRecord<'_>) -> Result<(DType, Vec<u64>)> {
    checked_head(beginning, expected).map(|head| (head.dtype, head.shape))
}

/// Reads dtype and shape from a file, with as few bytes as possible.
pub fn head_in(
    source: &dyn Source,
    key: &str,
    offset: u64,
    expected: &ExpectedRecord<'_>,
) -> Result<(DType, Vec<u64>)> {
    with_head(&*source.open(key)?, offset, expected, |head| (head.dtype, head.shape))
        .map_err(|error| error.within(key, offset))
}

fn with_head<T>(
    blob: &dyn Blob,
    offset: u64,
    expected: &ExpectedRecord<'_>,
    take: impl Fn(Head<'_>) -> T,
) -> Result<T> {
    let mut buffer = Vec::new();
    let mut length = expected.length.min(HEAD);
    loop {
        let count = blob.read_at(offset, length, &mut buffer)?;
        match checked_head(&buffer[..count], expected) {
            Err(Error::Truncated { .. }) if length < expected.length && count as u64 == length => {
                length = expected.length
            }
            head => return head.map(take),
        }
    }
}

/// Some rows of a tensor.
#[derive(Debug, PartialEq)]
pub struct RowsOf {
    /// The element type.
    pub dtype: DType,
    /// The size of each dimension; the first is the number of these rows.
    pub shape: Vec<u64>,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// Reads the rows `from..to` along the first axis of a record's tensor; `None` if no part of the record is these rows alone.
///
/// With `verify`, a record that has a checksum is read whole, in pieces. Memory is that of the rows and a piece.
pub fn rows_in(
    source: &dyn Source,
    key: &str,
    offset: u64,
    expected: &ExpectedRecord<'_>,
    (from, to): (u64, u64),
    verify: bool,
) -> Result<Option<RowsOf>> {
    let blob = source.open(key)?;
    let read = || {
        let (dtype, mut shape, content, size) =
            with_head(&*blob, offset, expected, |head| (head.dtype, head.shape, head.content, head.size))?;
        let Some((at, length)) = content.filter(|_| !shape.is_empty()) else { return Ok(None) };
        if from > to || to > shape[0] {
            return Err(Error::Invalid(format!("rows {from} to {to} of a tensor of shape {shape:?}")));
        }
        // The size of the content is that of the shape, so no dimension is 0.
        let row = length / shape[0];
        if at.checked_add(length).is_none_or(|end| end > size - FOOTER as u64) {
            let what = "the content exceeds the record".to_owned();
            return Err(Error::Corrupt { location: Location::memory(at), what });
        }
        let wanted = at + from * row..at + to * row;
        shape[0] = to - from;
        let bytes =
            if verify { verified_range(&*blob, offset, expected, wanted)? } else { exactly(&*blob, offset, wanted)? };
        Ok(Some(RowsOf { dtype, shape, bytes }))
    };
    read().map_err(|error: Error| error.within(key, offset))
}

/// Reads a range of a record.
fn exactly(blob: &dyn Blob, record: u64, range: Range<u64>) -> Result<Vec<u8>> {
    let (mut bytes, needed) = (Vec::new(), range.end - range.start);
    let found = blob.read_at(record.saturating_add(range.start), needed, &mut bytes)?;
    bytes.truncate(found);
    if found as u64 == needed {
        return Ok(bytes);
    }
    Err(Error::Truncated { location: Location::memory(range.start), needed, found: found as u64 })
}

/// Reads a range of a record, and verifies the record if it has a checksum.
fn verified_range(blob: &dyn Blob, record: u64, expected: &ExpectedRecord<'_>, wanted: Range<u64>) -> Result<Vec<u8>> {
    let end = expected.length - FOOTER as u64;
    let footer = exactly(blob, record, end..expected.length)?;
    let footer = u32::from_le_bytes(footer.first_chunk().copied().unwrap_or_default());
    if footer == MaskedCrc::SMDEBUG_CONSTANT.0 && expected.crc.is_none() {
        return exactly(blob, record, wanted);
    }
    let (mut crc, mut bytes) = (Running::new(), Vec::new());
    let mut at = HEADER as u64;
    while at < end {
        let next = end.min(at + Reach::REMOTE.piece);
        let piece = exactly(blob, record, at..next)?;
        crc.add(&piece);
        let (from, to) = (wanted.start.clamp(at, next), wanted.end.clamp(at, next));
        bytes.extend_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
        at = next;
    }
    compare(MaskedCrc::from_crc(crc.value()), footer, expected)?;
    Ok(bytes)
}

fn check_length(size: u64, expected: &ExpectedRecord<'_>) -> Result<()> {
    if size == expected.length {
        return Ok(());
    }
    let what = format!("record length mismatch: {} bytes in the index file, {size} in the record", expected.length);
    Err(Error::Corrupt { location: Location::memory(0), what })
}

fn check_tag(tag: &str, expected: &ExpectedRecord<'_>) -> Result<()> {
    if tag_matches(tag, expected.tensor, expected.kind) {
        return Ok(());
    }
    let what = format!("record tag mismatch: {:?} in the index file, {tag:?} in the record", expected.tensor);
    Err(Error::Corrupt { location: Location::memory(0), what })
}

fn check_step(step: Step, expected: Step) -> Result<()> {
    if step == expected {
        return Ok(());
    }
    let what = format!("record step mismatch: {expected} in the index file, {step} in the record");
    Err(Error::Corrupt { location: Location::memory(0), what })
}

/// A file of another step or mode under this name has the same tensors at the same offsets, so step and mode are checked.
/// The mode only where the index has a checksum: smdebug's records and index files sometimes disagree on the mode, those of
/// smdwidgets never do.
fn check_step_and_mode(event: &TensorEvent<'_>, expected: &ExpectedRecord<'_>) -> Result<()> {
    let when = expected.when;
    check_step(event.step, when.step)?;
    if expected.crc.is_none() {
        return Ok(());
    }
    let mode = event.mode.unwrap_or(when.mode);
    let mode_step = event.mode_step.unwrap_or(when.mode_step);
    if (mode, mode_step) == (when.mode, when.mode_step) {
        return Ok(());
    }
    let (found, expected) = (mode.name(), when.mode.name());
    let what = format!(
        "record mode step mismatch: {expected} {} in the index file, {found} {mode_step} in the record",
        when.mode_step
    );
    Err(Error::Corrupt { location: Location::memory(0), what })
}

/// Parses and verifies a record and decodes its tensor.
pub fn decode<'a>(bytes: &'a [u8], expected: &ExpectedRecord<'_>) -> Result<TensorView<'a>> {
    let (record, _) = parse(bytes, expected)?;
    verify(&record, expected)?;
    tensor(&record, expected)
}

/// Decodes the tensor of a record that passed [`decode`] before.
pub fn decode_verified<'a>(bytes: &'a [u8], expected: &ExpectedRecord<'_>) -> Result<TensorView<'a>> {
    tensor(&parse(bytes, expected)?.0, expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::crc32c;
    use crate::source::Memory;
    use crate::step::Mode;
    use crate::tensor::{DType, Data, Meta, encode_tensor_event};

    fn record(true_footer: bool) -> Vec<u8> {
        let meta = Meta { step: 3, wall_time: 1.0, tag: "w", mode: Mode::Train, mode_step: 3 };
        let (mut payload, behind) = encode_tensor_event(&meta, DType::U8, &[2], &Data::Raw(&[7, 9]));
        payload.extend([7, 9]);
        payload.extend(behind);
        let length = (payload.len() as u64).to_le_bytes();
        let footer = if true_footer { MaskedCrc::of(&payload) } else { MaskedCrc::SMDEBUG_CONSTANT };
        [&length[..], &MaskedCrc::of(&length).0.to_le_bytes(), &payload, &footer.0.to_le_bytes()].concat()
    }

    #[test]
    fn mismatch_with_index_is_an_error() {
        let bytes = record(false);
        let when = SavedAt { step: 3, mode: Mode::Train, mode_step: 3 };
        let expected = ExpectedRecord { tensor: "w", kind: Kind::VALUE, when, length: bytes.len() as u64, crc: None };
        assert_eq!(decode(&bytes, &expected).unwrap().data, Data::Raw(&[7, 9]));
        let wrong = |expected: ExpectedRecord<'_>, says: &str| {
            let error = decode(&bytes, &expected).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        wrong(ExpectedRecord { tensor: "v", ..expected }, "tag mismatch: \"v\" in the index file, \"w\" in the record");
        wrong(ExpectedRecord { length: 30, ..expected }, "30 bytes in the index file");
        let crc = Some(crc32c(&bytes[12..bytes.len() - 4]));
        let at = |step, mode, mode_step| ExpectedRecord { when: SavedAt { step, mode, mode_step }, crc, ..expected };
        wrong(at(4, Mode::Train, 3), "4 in the index file, 3 in the record");
        wrong(at(3, Mode::Eval, 3), "EVAL 3 in the index file, TRAIN 3 in the record");
        wrong(at(3, Mode::Train, 2), "TRAIN 2 in the index file, TRAIN 3");
        wrong(ExpectedRecord { crc: Some(1), ..expected }, "in the index file, computed");
        assert!(decode(&bytes, &ExpectedRecord { crc, ..expected }).is_ok());
        assert!(matches!(decode(&bytes[..20], &expected), Err(Error::Truncated { .. })));
    }

    #[test]
    fn rows_are_parts_of_the_value() {
        let meta = Meta { step: 3, wall_time: 1.0, tag: "w", mode: Mode::Train, mode_step: 3 };
        let content: Vec<u8> = (0..240).collect();
        let (mut payload, behind) = encode_tensor_event(&meta, DType::U8, &[8, 30], &Data::Raw(&content));
        payload.extend(&content);
        payload.extend(behind);
        let bytes = record::encode(&payload);
        let mut source = Memory::default();
        source.insert("e", [&[9; 5][..], &bytes].concat());
        let when = SavedAt { step: 3, mode: Mode::Train, mode_step: 3 };
        let sum = Some(crc32c(&payload));
        let expected = ExpectedRecord { tensor: "w", kind: Kind::VALUE, when, length: bytes.len() as u64, crc: sum };
        let of = |expected: &ExpectedRecord<'_>, rows, verify| rows_in(&source, "e", 5, expected, rows, verify);
        for verify in [true, false] {
            for (from, to) in [(0, 8), (0, 0), (2, 3), (7, 8), (3, 3)] {
                let found = of(&expected, (from, to), verify).unwrap().unwrap();
                assert_eq!(found.bytes, content[from as usize * 30..to as usize * 30]);
                assert_eq!((found.dtype, found.shape), (DType::U8, vec![to - from, 30]));
            }
            assert!(matches!(of(&expected, (2, 9), verify), Err(Error::Invalid(_))));
            assert!(matches!(of(&expected, (3, 2), verify), Err(Error::Invalid(_))));
        }
        let other = ExpectedRecord { crc: Some(1), ..expected };
        assert!(of(&other, (2, 3), true).unwrap_err().to_string().contains("checksum mismatch"));
        assert_eq!(of(&other, (2, 3), false).unwrap().unwrap().bytes, content[60..90]);
    }

    #[test]
    fn any_flipped_bit_fails_a_checksum() {
        for true_footer in [false, true] {
            let sound = record(true_footer);
            let crc = Some(crc32c(&sound[12..sound.len() - 4]));
            let when = SavedAt { step: 3, mode: Mode::Train, mode_step: 3 };
            let expected = ExpectedRecord { tensor: "w", kind: Kind::VALUE, when, length: sound.len() as u64, crc };
            for at in 0..(sound.len() - 4) * 8 {
                let mut bytes = sound.clone();
                bytes[at / 8] ^= 1 << (at % 8);
                assert!(decode(&bytes, &expected).is_err(), "bit {at}");
            }
        }
    }
}
