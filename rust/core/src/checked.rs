//! One record, held against what the index file promised.

use crate::catalog::{Kind, When, tag_fits};
use crate::crc::MaskedCrc;
use crate::error::{Error, Place, Result};
use crate::record::{self, HEADER, Record};
use crate::source::Source;
use crate::step::Step;
use crate::tensor::{DType, TensorEvent, TensorView, decode_head, tensor_event};

/// Bytes of a record that its head is looked for in, first: nearly always enough.
pub const HEAD: u64 = 512;

/// What an index file promises of a record.
#[derive(Debug, Clone, Copy)]
pub struct Promise<'a> {
    /// The tensor.
    pub tensor: &'a str,
    /// What the record is to the tensor.
    pub kind: Kind,
    /// When it was saved.
    pub when: When,
    /// Bytes of the whole record.
    pub length: u64,
    /// CRC32C of its payload.
    pub crc: Option<u32>,
}

/// What vouches for a record's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vouched {
    /// The footer is the content's true checksum, not smdebug's constant.
    pub by_footer: bool,
    /// The index file has a checksum.
    pub by_index: bool,
}

impl Vouched {
    /// Whether there is any checksum to hold the content against.
    pub fn any(self) -> bool {
        self.by_footer || self.by_index
    }
}

/// The record in these bytes, and what could vouch for its content: framing and header checksum hold, the length is the
/// promised one. The content has not been looked at.
pub fn frame<'a>(bytes: &'a [u8], promise: &Promise<'_>) -> Result<(Record<'a>, Vouched)> {
    let record = record::whole(bytes, 0)?;
    is_as_long(record.size as u64, promise)?;
    let by_footer = record.footer_value != MaskedCrc::SMDEBUG_CONSTANT.0;
    Ok((record, Vouched { by_footer, by_index: promise.crc.is_some() }))
}

/// Hold a record's content against the checksums there are.
pub fn verify(record: &Record<'_>, promise: &Promise<'_>) -> Result<()> {
    let by_footer = record.footer_value != MaskedCrc::SMDEBUG_CONSTANT.0;
    if !by_footer && promise.crc.is_none() {
        return Ok(());
    }
    let is = MaskedCrc::of(record.payload);
    let fails = |whose: &str, stands: MaskedCrc| {
        let what = format!("the record fails the checksum of {whose} ({stands} stands there, {is} belongs there)");
        Err(Error::Corrupt { place: Place::memory(0), what })
    };
    match promise.crc.map(MaskedCrc::from_crc) {
        _ if by_footer && is.0 != record.footer_value => fails("its footer", MaskedCrc(record.footer_value)),
        Some(stands) if stands != is => fails("the index file", stands),
        _ => Ok(()),
    }
}

/// The tensor of a record, which is the promised one.
pub fn tensor<'a>(record: &Record<'a>, promise: &Promise<'_>) -> Result<TensorView<'a>> {
    let event = tensor_event(record.payload).map_err(|error| error.within("", HEADER as u64))?;
    is_promised(event.tag, promise)?;
    is_of_then(&event, promise)?;
    Ok(event.tensor)
}

/// Dtype and shape from the beginning of a record. [`Error::Truncated`] where it takes more of it.
pub fn head(beginning: &[u8], promise: &Promise<'_>) -> Result<(DType, Vec<u64>)> {
    let head = decode_head(beginning)?;
    is_as_long(head.size, promise)?;
    is_promised(head.tag, promise)?;
    is_of_step(head.step, promise.when.step)?;
    Ok((head.dtype, head.shape))
}

/// The same from a file, of which no more is read than it takes.
pub fn head_in(source: &dyn Source, key: &str, offset: u64, promise: &Promise<'_>) -> Result<(DType, Vec<u64>)> {
    let blob = source.open(key)?;
    let mut buffer = Vec::new();
    let mut length = promise.length.min(HEAD);
    loop {
        let count = blob.read_at(offset, length, &mut buffer)?;
        match head(&buffer[..count], promise) {
            Err(Error::Truncated { .. }) if length < promise.length && count as u64 == length => {
                length = promise.length
            }
            head => return head.map_err(|error| error.within(key, offset)),
        }
    }
}

fn is_as_long(size: u64, promise: &Promise<'_>) -> Result<()> {
    if size == promise.length {
        return Ok(());
    }
    let what = format!("the index file says {} bytes, the record says {size}", promise.length);
    Err(Error::Corrupt { place: Place::memory(0), what })
}

fn is_promised(tag: &str, promise: &Promise<'_>) -> Result<()> {
    if tag_fits(tag, promise.tensor, promise.kind) {
        return Ok(());
    }
    let what = format!("a record of {tag:?} lies where the index file says {:?} does", promise.tensor);
    Err(Error::Corrupt { place: Place::memory(0), what })
}

fn is_of_step(step: Step, promised: Step) -> Result<()> {
    if step == promised {
        return Ok(());
    }
    let what = format!("a record of step {step} lies where the index file says step {promised} does");
    Err(Error::Corrupt { place: Place::memory(0), what })
}

/// A file of another step, put or named in the place of this one, has the same tensors at the same places. So has one of
/// another mode; but smdebug's records and index files disagree at times over modes, and ours, which carry checksums, don't.
fn is_of_then(event: &TensorEvent<'_>, promise: &Promise<'_>) -> Result<()> {
    let when = promise.when;
    is_of_step(event.step, when.step)?;
    if promise.crc.is_none() {
        return Ok(());
    }
    let mode = event.mode.unwrap_or(when.mode);
    let mode_step = event.mode_step.unwrap_or(when.mode_step);
    if (mode, mode_step) == (when.mode, when.mode_step) {
        return Ok(());
    }
    let (is, says) = (mode.name(), when.mode.name());
    let what = format!(
        "a record of step {mode_step} of {is} lies where the index file says step {} of {says} does",
        when.mode_step
    );
    Err(Error::Corrupt { place: Place::memory(0), what })
}

/// All of it: frame, checksums, tensor.
pub fn whole<'a>(bytes: &'a [u8], promise: &Promise<'_>) -> Result<TensorView<'a>> {
    let (record, _) = frame(bytes, promise)?;
    verify(&record, promise)?;
    tensor(&record, promise)
}

/// The tensor of bytes that passed [`whole`] before.
pub fn again<'a>(bytes: &'a [u8], promise: &Promise<'_>) -> Result<TensorView<'a>> {
    tensor(&frame(bytes, promise)?.0, promise)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::crc32c;
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
    fn what_was_promised_is_held_against_what_is_there() {
        let bytes = record(false);
        let when = When { step: 3, mode: Mode::Train, mode_step: 3 };
        let promise = Promise { tensor: "w", kind: Kind::VALUE, when, length: bytes.len() as u64, crc: None };
        assert_eq!(whole(&bytes, &promise).unwrap().data, Data::Raw(&[7, 9]));
        let wrong = |promise: Promise<'_>, says: &str| {
            let error = whole(&bytes, &promise).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        wrong(Promise { tensor: "v", ..promise }, "a record of \"w\" lies where the index file says \"v\"");
        wrong(Promise { length: 30, ..promise }, "the index file says 30 bytes");
        let crc = Some(crc32c(&bytes[12..bytes.len() - 4]));
        let at = |step, mode, mode_step| Promise { when: When { step, mode, mode_step }, crc, ..promise };
        wrong(at(4, Mode::Train, 3), "a record of step 3 lies where the index file says step 4");
        wrong(at(3, Mode::Eval, 3), "a record of step 3 of TRAIN lies where");
        wrong(at(3, Mode::Train, 2), "the index file says step 2 of TRAIN does");
        wrong(Promise { crc: Some(1), ..promise }, "the checksum of the index file");
        assert!(whole(&bytes, &Promise { crc, ..promise }).is_ok());
        assert!(matches!(whole(&bytes[..20], &promise), Err(Error::Truncated { .. })));
    }

    #[test]
    fn any_flipped_bit_of_the_content_is_seen_where_a_checksum_is() {
        for true_footer in [false, true] {
            let sound = record(true_footer);
            let crc = Some(crc32c(&sound[12..sound.len() - 4]));
            let when = When { step: 3, mode: Mode::Train, mode_step: 3 };
            let promise = Promise { tensor: "w", kind: Kind::VALUE, when, length: sound.len() as u64, crc };
            for at in 0..(sound.len() - 4) * 8 {
                let mut bytes = sound.clone();
                bytes[at / 8] ^= 1 << (at % 8);
                assert!(whole(&bytes, &promise).is_err(), "bit {at}");
            }
        }
    }
}
