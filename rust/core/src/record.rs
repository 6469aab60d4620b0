//! TFRecord framing: pure functions over bytes. The same code reads a map, a buffer, an S3 answer and a fuzzer's input.
//!
//! A record is its length (u64), the masked CRC of those eight bytes, the payload, and a footer of four bytes.

use crate::crc::{MaskedCrc, crc32c_of_8};
use crate::error::{Error, Place};

/// Bytes in front of a payload: the length and its checksum.
pub const HEADER: usize = 12;
/// Bytes behind a payload.
pub const FOOTER: usize = 4;

/// What stands behind a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Footer {
    /// smdebug's constant: nothing is known of the payload's health.
    Constant,
    /// The payload's true checksum.
    TrueCrc,
    /// Neither: the payload or the footer is damaged.
    Neither,
}

/// One record. Its header's checksum holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The bytes between header and footer.
    pub payload: &'a [u8],
    /// The footer as it stands in the file.
    pub footer_value: u32,
    /// Bytes of the whole record, header and footer included.
    pub size: usize,
}

impl Record<'_> {
    /// What the footer is. Looks at the payload only when the footer isn't smdebug's constant.
    pub fn footer(&self) -> Footer {
        if self.footer_value == MaskedCrc::SMDEBUG_CONSTANT.0 {
            Footer::Constant
        } else if self.footer_value == MaskedCrc::of(self.payload).0 {
            Footer::TrueCrc
        } else {
            Footer::Neither
        }
    }

    /// An error if the footer is neither smdebug's constant nor the payload's true checksum.
    pub fn check(&self) -> Result<(), Error> {
        if self.footer() != Footer::Neither {
            return Ok(());
        }
        let (stands, should) = (MaskedCrc(self.footer_value), MaskedCrc::of(self.payload));
        let what = format!("the record fails its checksum ({stands} stands there, {should} belongs there)");
        Err(Error::Corrupt { place: Place::memory(0), what })
    }
}

/// What lies at a place in a stream of records.
#[derive(Debug)]
pub enum Next<'a> {
    /// A whole record.
    Record(Record<'a>),
    /// A record that isn't all there: it needs this many bytes, counted from where it starts (12 while its length is not known).
    NeedMore(u64),
    /// No record can start here.
    Corrupt(Error),
}

/// What lies `at` bytes into `buf`. Never allocates, whatever the bytes claim, unless to say what is wrong.
pub fn next(buf: &[u8], at: usize) -> Next<'_> {
    let rest = buf.get(at..).unwrap_or_default();
    let Some((header, body)) = rest.split_first_chunk::<HEADER>() else {
        return Next::NeedMore(HEADER as u64);
    };
    let length = match length_of(header) {
        Ok(length) => length,
        Err(crcs) => return Next::Corrupt(wrong_header(at, crcs)),
    };
    let Some(size) = length.checked_add((HEADER + FOOTER) as u64).filter(|size| i64::try_from(*size).is_ok()) else {
        let what = format!("a record claims a length of {length} bytes");
        return Next::Corrupt(Error::Corrupt { place: Place::memory(at as u64), what });
    };
    if size > rest.len() as u64 {
        return Next::NeedMore(size);
    }
    // `size` is at most the buffer's own length, so it fits a usize.
    let (payload, footer) = body.split_at(length as usize);
    let footer = footer.first_chunk::<FOOTER>().copied().unwrap_or_default();
    Next::Record(Record { payload, footer_value: u32::from_le_bytes(footer), size: size as usize })
}

/// The whole record `at` bytes into `buf`, where one must be: an error when there isn't.
pub fn whole(buf: &[u8], at: usize) -> Result<Record<'_>, Error> {
    match next(buf, at) {
        Next::Record(record) => Ok(record),
        Next::Corrupt(error) => Err(error),
        Next::NeedMore(wanted) => Err(Error::Truncated {
            place: Place::memory(at as u64),
            wanted,
            found: buf.len().saturating_sub(at) as u64,
        }),
    }
}

/// Where the next record that is all there starts, at `from` or after it: the way on after a corrupt one.
///
/// A header's checksum holds by chance once in 2^32 places, and the record must fit into `buf` as well.
pub fn resync(buf: &[u8], from: usize) -> Option<usize> {
    let last = buf.len().checked_sub(HEADER + FOOTER)?;
    (from..=last).find(|at| {
        // Whether the length fits is the cheaper question, and nearly always enough.
        let claimed = buf[*at..].first_chunk().map(|length| u64::from_le_bytes(*length));
        claimed.is_some_and(|length| length <= (last - at) as u64) && matches!(next(buf, *at), Next::Record(_))
    })
}

/// The header of a record with a payload of this many bytes.
pub fn header(length: u64) -> [u8; HEADER] {
    let length = length.to_le_bytes();
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&length);
    header[8..].copy_from_slice(&MaskedCrc::of(&length).0.to_le_bytes());
    header
}

/// A whole record around a payload, with the payload's true checksum: what TensorBoard reads.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER + payload.len() + FOOTER);
    record.extend_from_slice(&header(payload.len() as u64));
    record.extend_from_slice(payload);
    record.extend_from_slice(&MaskedCrc::of(payload).0.to_le_bytes());
    record
}

/// The length a header claims, or its checksum (as it stands, as it should be) when that doesn't hold.
fn length_of(header: &[u8; HEADER]) -> Result<u64, (MaskedCrc, MaskedCrc)> {
    let [a, b, c, d, e, f, g, h, crc @ ..] = *header;
    let length = [a, b, c, d, e, f, g, h];
    let (stands, should) = (MaskedCrc(u32::from_le_bytes(crc)), MaskedCrc::from_crc(crc32c_of_8(length)));
    if stands == should { Ok(u64::from_le_bytes(length)) } else { Err((stands, should)) }
}

#[cold]
fn wrong_header(at: usize, (stands, should): (MaskedCrc, MaskedCrc)) -> Error {
    Error::Corrupt {
        place: Place::memory(at as u64),
        what: format!("the length of a record fails its checksum ({stands} stands there, {should} belongs there)"),
    }
}
