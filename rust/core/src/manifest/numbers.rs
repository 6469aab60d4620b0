//! Integers of variable length, as in protobuf, and columns of them.

use super::damaged;
use crate::error::Result;

/// Appends an integer: seven bits per byte, the lowest first.
pub fn put(column: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        column.push(number as u8 | 0x80);
        number >>= 7;
    }
    column.push(number as u8);
}

/// Appends the difference of an integer to its prediction. Small differences of both signs take one byte.
pub fn put_difference(column: &mut Vec<u8>, number: u64, predicted: u64) {
    let difference = number.wrapping_sub(predicted) as i64;
    put(column, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// Appends bytes with their length.
pub fn put_bytes(column: &mut Vec<u8>, bytes: &[u8]) {
    put(column, bytes.len() as u64);
    column.extend_from_slice(bytes);
}

/// Reads a column from its start.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    file: &'a str,
    /// The column.
    bytes: &'a [u8],
    /// Offset of the next byte in the column.
    next: usize,
    /// Offset of the column in the body.
    base: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(file: &'a str, bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { file, bytes, next: 0, base: 0 }
    }

    /// Offset in the body.
    pub fn at(&self) -> usize {
        self.base + self.next
    }

    pub fn error<T>(&self, what: impl std::fmt::Display) -> Result<T> {
        Err(damaged(self.file, self.at(), what))
    }

    pub fn byte(&mut self) -> Result<u8> {
        let Some(byte) = self.bytes.get(self.next) else { return self.error("a column ends too early") };
        self.next += 1;
        Ok(*byte)
    }

    pub fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        self.error("an integer exceeds 64 bits")
    }

    /// A number up to a limit.
    pub fn count(&mut self, limit: usize, what: &str) -> Result<usize> {
        let number = self.number()?;
        match usize::try_from(number) {
            Ok(count) if count <= limit => Ok(count),
            _ => self.error(format_args!("{number} {what}, at most {limit} are possible")),
        }
    }

    /// A number that is stored as the difference to its prediction.
    pub fn difference(&mut self, predicted: u64) -> Result<u64> {
        let stored = self.number()?;
        Ok(predicted.wrapping_add((stored >> 1) ^ (stored & 1).wrapping_neg()))
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        match self.bytes[self.next..].get(..length) {
            Some(bytes) => {
                self.next += length;
                Ok(bytes)
            }
            None => self.error(format_args!("{length} bytes needed, {} left", self.left())),
        }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.take(N)?;
        Ok(std::array::from_fn(|at| taken[at]))
    }

    pub fn text(&mut self) -> Result<&'a str> {
        let length = self.count(self.left(), "bytes of text")?;
        let at = self.at();
        std::str::from_utf8(self.take(length)?).map_err(|_| damaged(self.file, at, "invalid UTF-8"))
    }

    /// A column with its length.
    pub fn column(&mut self) -> Result<Cursor<'a>> {
        let length = self.count(self.left(), "bytes of a column")?;
        let base = self.at();
        Ok(Cursor { file: self.file, bytes: self.take(length)?, next: 0, base })
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.next
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<()> {
        if self.left() == 0 { Ok(()) } else { self.error(format_args!("{} unexpected bytes", self.left())) }
    }
}
