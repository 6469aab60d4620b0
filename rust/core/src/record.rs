//! TFRecord framing, as pure functions over bytes.
//!
//! A record is the payload's length (u64), the masked CRC32C of those eight bytes, the payload, and a four-byte footer.

use crate::crc::{MaskedCrc, crc32c_of_8};
use crate::error::{Error, Location};

/// Size of a record's header: length and checksum.
pub const HEADER: usize = 12;
/// Size of a record's footer.
pub const FOOTER: usize = 4;

/// The kind of a record's footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Footer {
    /// smdebug's constant; the payload has no checksum here.
    Constant,
    /// The checksum of the payload.
    TrueCrc,
    /// Neither of these: the payload or the footer is damaged.
    Neither,
}

/// A record whose header checksum matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// The footer as stored.
    pub footer_value: u32,
    /// Size of the whole record, with header and footer.
    pub size: usize,
}

impl Record<'_> {
    /// The kind of the footer. Reads the payload only if the footer is not smdebug's constant.
    pub fn footer(&self) -> Footer {
        if self.footer_value == MaskedCrc::SMDEBUG_CONSTANT.0 {
            Footer::Constant
        } else if self.footer_value == MaskedCrc::of(self.payload).0 {
            Footer::TrueCrc
        } else {
            Footer::Neither
        }
    }

    /// Fails if the footer is neither smdebug's constant nor the payload's checksum.
    pub fn check(&self) -> Result<(), Error> {
        if self.footer() != Footer::Neither {
            return Ok(());
        }
        let (stored, computed) = (MaskedCrc(self.footer_value), MaskedCrc::of(self.payload));
        let what = format!("record checksum mismatch: stored {stored}, computed {computed}");
        Err(Error::Corrupt { location: Location::memory(0), what })
    }
}

/// The result of parsing at an offset.
#[derive(Debug)]
pub enum Next<'a> {
    /// A complete record.
    Record(Record<'a>),
    /// An incomplete record, and the size it needs from its start (12 if its header is incomplete).
    NeedMore(u64),
    /// No record starts at this offset.
    Corrupt(Error),
}

/// Parses the record at offset `at`. Allocates nothing but error messages, whatever length the header claims.
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
        let what = format!("invalid record length of {length} bytes");
        return Next::Corrupt(Error::Corrupt { location: Location::memory(at as u64), what });
    };
    if size > rest.len() as u64 {
        return Next::NeedMore(size);
    }
    // `size` is at most the length of the buffer, so it fits in a usize.
    let (payload, footer) = body.split_at(length as usize);
    let footer = footer.first_chunk::<FOOTER>().copied().unwrap_or_default();
    Next::Record(Record { payload, footer_value: u32::from_le_bytes(footer), size: size as usize })
}

/// Parses the record at offset `at`; an error if there is no complete one.
pub fn complete(buf: &[u8], at: usize) -> Result<Record<'_>, Error> {
    match next(buf, at) {
        Next::Record(record) => Ok(record),
        Next::Corrupt(error) => Err(error),
        Next::NeedMore(needed) => Err(Error::Truncated {
            location: Location::memory(at as u64),
            needed,
            found: buf.len().saturating_sub(at) as u64,
        }),
    }
}

/// Finds the next complete record at or after `from`, to continue after a corrupt one.
///
/// A random header passes its checksum with probability 2^-32; the record must also fit in `buf`.
pub fn resync(buf: &[u8], from: usize) -> Option<usize> {
    let last = buf.len().checked_sub(HEADER + FOOTER)?;
    (from..=last).find(|at| {
        // Checking the length first is cheaper than the checksum and rejects nearly all offsets.
        let claimed = buf[*at..].first_chunk().map(|length| u64::from_le_bytes(*length));
        claimed.is_some_and(|length| length <= (last - at) as u64) && matches!(next(buf, *at), Next::Record(_))
    })
}

/// The header of a record whose payload has `length` bytes.
pub fn header(length: u64) -> [u8; HEADER] {
    let length = length.to_le_bytes();
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&length);
    header[8..].copy_from_slice(&MaskedCrc::of(&length).0.to_le_bytes());
    header
}

/// Encodes a record with the payload's checksum as footer, as TensorBoard expects.
pub fn encode(payload: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER + payload.len() + FOOTER);
    record.extend_from_slice(&header(payload.len() as u64));
    record.extend_from_slice(payload);
    record.extend_from_slice(&MaskedCrc::of(payload).0.to_le_bytes());
    record
}

/// The length in a header, or its checksum (stored, computed) on a mismatch.
fn length_of(header: &[u8; HEADER]) -> Result<u64, (MaskedCrc, MaskedCrc)> {
    let [a, b, c, d, e, f, g, h, crc @ ..] = *header;
    let length = [a, b, c, d, e, f, g, h];
    let (stored, computed) = (MaskedCrc(u32::from_le_bytes(crc)), MaskedCrc::from_crc(crc32c_of_8(length)));
    if stored == computed { Ok(u64::from_le_bytes(length)) } else { Err((stored, computed)) }
}

#[cold]
fn wrong_header(at: usize, (stored, computed): (MaskedCrc, MaskedCrc)) -> Error {
    Error::Corrupt {
        location: Location::memory(at as u64),
        what: format!("record header checksum mismatch: stored {stored}, computed {computed}"),
    }
}
