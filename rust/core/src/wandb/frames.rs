//! The framing of LevelDB's logs: blocks of fragments, each with a checksum.

use crate::crc::crc32;

/// The size of a block. No fragment crosses the end of one.
pub const BLOCK: usize = 32 << 10;
/// Checksum, length and kind of a fragment.
const HEADER: usize = 7;

/// What a fragment is of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Full,
    First,
    Middle,
    Last,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Full,
            2 => Kind::First,
            3 => Kind::Middle,
            4 => Kind::Last,
            _ => return None,
        })
    }
}

/// What is at an offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A fragment whose checksum matches.
    Fragment(Kind, &'a [u8]),
    /// Damage, with which the rest of the block is lost.
    Damage(&'static str),
}

/// The fragments of a piece of a file that begins with a block.
pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    /// Where the next fragment begins in the piece.
    pub(super) next: usize,
}

impl<'a> Frames<'a> {
    pub(super) fn new(bytes: &'a [u8], next: usize) -> Self {
        Frames { bytes, next }
    }

    /// The next fragment and the offset where it begins; `None` if it is not whole in this piece.
    ///
    /// Damage in a block that is not whole is returned, but not passed: the block may still be written.
    pub(super) fn step(&mut self) -> Option<(usize, Frame<'a>)> {
        let mut left = BLOCK - self.next % BLOCK;
        if left < HEADER {
            if self.next + left > self.bytes.len() {
                return None;
            }
            self.next += left;
            left = BLOCK;
        }
        let begin = self.next;
        let (header, rest) = self.bytes.get(begin..)?.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, low, high, number] = *header;
        let size = usize::from(u16::from_le_bytes([low, high]));
        let damage = match Kind::of(number) {
            Some(kind) if size <= left - HEADER => {
                let data = rest.get(..size)?; // else it is being written
                if crc32(number, data) == u32::from_le_bytes([a, b, c, d]) {
                    self.next = begin + HEADER + size;
                    return Some((begin, Frame::Fragment(kind, data)));
                }
                "record checksum mismatch"
            }
            _ => "invalid record header",
        };
        if begin + left <= self.bytes.len() {
            self.next = begin + left;
        }
        Some((begin, Frame::Damage(damage)))
    }
}
