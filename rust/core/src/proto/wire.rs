//! The protobuf wire format: iteration over the fields of a message.

use crate::error::{Error, Location, Result};

/// Limit on nested groups, as in protobuf's own parsers.
const MAX_GROUPS: usize = 100;

/// The encoded value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire<'a> {
    /// A varint.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// A length-delimited value: text, bytes, a message or packed numbers.
    Len(&'a [u8]),
    /// A group (deprecated), already skipped.
    Group,
    /// Four bytes.
    Fixed32(u32),
}

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// The field number.
    pub number: u32,
    /// The value.
    pub wire: Wire<'a>,
    /// Offset of the value from the start of the outermost message.
    pub at: usize,
    /// The length that the field claims. Exceeds that of `wire` only if the input is the beginning of a message.
    pub claimed: u64,
    message: &'static str,
}

/// An iterator over the fields of a message.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    next: usize,
    base: usize,
    beginning: bool,
    message: &'static str,
}

impl<'a> Fields<'a> {
    /// Iterates over a message. `base` is added to offsets; `message` names it in errors.
    pub fn new(bytes: &'a [u8], base: usize, message: &'static str) -> Self {
        Fields { bytes, next: 0, base, beginning: false, message }
    }

    /// As [`Fields::new`] for the beginning of a message: a field that runs past the end is cut there, and one that cannot
    /// be cut is [`Error::Truncated`].
    pub fn beginning(bytes: &'a [u8], base: usize, message: &'static str) -> Self {
        Fields { beginning: true, ..Fields::new(bytes, base, message) }
    }

    /// The same fields from an offset that [`at`](Self::at) returned.
    pub(super) fn from(&self, at: usize) -> Self {
        Fields { next: at.saturating_sub(self.base).min(self.bytes.len()), ..self.clone() }
    }

    /// Whether the input is only the beginning of the message.
    pub fn is_beginning(&self) -> bool {
        self.beginning
    }

    /// Offset of the next field from the start of the outermost message.
    pub fn at(&self) -> usize {
        self.base + self.next
    }

    /// The next field; `None` at the end of the message.
    #[inline(always)]
    pub fn step(&mut self) -> Result<Option<Field<'a>>> {
        if self.next >= self.bytes.len() {
            return Ok(None);
        }
        match self.field() {
            Ok(field) => Ok(Some(field)),
            Err(error) => {
                // After an error, field boundaries are unknown.
                self.next = self.bytes.len();
                Err(error)
            }
        }
    }

    /// The next packed integer, if the bytes are packed integers instead of fields.
    #[inline]
    pub fn packed_int(&mut self) -> Result<Option<u64>> {
        if self.next >= self.bytes.len() { Ok(None) } else { self.varint().map(Some) }
    }

    #[inline(always)]
    fn field(&mut self) -> Result<Field<'a>> {
        let (number, kind) = self.key()?;
        let at = self.at();
        Ok(match kind {
            2 => {
                let claimed = self.varint()?;
                let at = self.at();
                Field { number, wire: Wire::Len(self.take(claimed)?), at, claimed, message: self.message }
            }
            3 => {
                self.skip_group(number)?;
                Field { number, wire: Wire::Group, at, claimed: 0, message: self.message }
            }
            kind => Field { number, wire: self.plain(kind)?, at, claimed: 0, message: self.message },
        })
    }

    #[inline(always)]
    fn key(&mut self) -> Result<(u32, u8)> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number != 0 && *number < 1 << 29);
        match number {
            Some(number) => Ok((number, (key & 7) as u8)),
            None => Err(self.wrong(format_args!("invalid field number {}", key >> 3))),
        }
    }

    #[inline(always)]
    fn plain(&mut self, kind: u8) -> Result<Wire<'a>> {
        Ok(match kind {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Wire::Len(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            kind => return Err(self.wrong(format_args!("invalid wire type {kind}"))),
        })
    }

    /// Skips a group without recursion, so that nesting takes no stack.
    fn skip_group(&mut self, number: u32) -> Result<()> {
        let mut open = [0u32; MAX_GROUPS];
        open[0] = number;
        let mut depth = 1;
        while depth > 0 {
            match self.key()? {
                (number, 3) if depth < MAX_GROUPS => {
                    open[depth] = number;
                    depth += 1;
                }
                (_, 3) => return Err(self.wrong(format_args!("groups nested more than {MAX_GROUPS} deep"))),
                (number, 4) if open[depth - 1] == number => depth -= 1,
                (number, 4) => return Err(self.wrong(format_args!("end of group {number}, which is not open"))),
                (_, kind) => {
                    self.plain(kind)?;
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64> {
        // Nearly every key, length and number takes one byte.
        match self.bytes.get(self.next) {
            Some(byte @ 0..=0x7f) => {
                self.next += 1;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let rest = &self.bytes[self.next..];
        let mut value = 0u64;
        for (i, byte) in rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                if i == 9 && *byte > 1 {
                    break;
                }
                self.next += i + 1;
                return Ok(value);
            }
        }
        if rest.len() < 10 { Err(self.ends()) } else { Err(self.wrong(format_args!("varint of more than 64 bits"))) }
    }

    #[inline(always)]
    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.next..];
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(taken) => {
                self.next += taken.len();
                Ok(taken)
            }
            None if self.beginning => {
                self.next = self.bytes.len();
                Ok(rest)
            }
            None => {
                Err(self.wrong(format_args!("field length of {length} bytes exceeds the remaining {}", rest.len())))
            }
        }
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.bytes[self.next..].first_chunk() {
            Some(taken) => {
                self.next += N;
                Ok(*taken)
            }
            None => Err(self.ends()),
        }
    }

    #[cold]
    fn ends(&self) -> Error {
        if !self.beginning {
            return self.wrong(format_args!("message ends inside a number"));
        }
        truncated(self.base, self.bytes.len())
    }

    #[cold]
    fn wrong(&self, what: std::fmt::Arguments<'_>) -> Error {
        corrupt(self.at(), self.message, what)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

impl<'a> Field<'a> {
    /// The value as an integer.
    #[inline]
    pub fn int(&self) -> Result<u64> {
        match self.wire {
            Wire::Varint(value) => Ok(value),
            _ => Err(self.not("an integer")),
        }
    }

    /// The value as a 64-bit float.
    #[inline]
    pub fn double(&self) -> Result<f64> {
        match self.wire {
            Wire::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(self.not("a 64-bit float")),
        }
    }

    /// The value as a 32-bit float.
    #[inline]
    pub fn float(&self) -> Result<f32> {
        match self.wire {
            Wire::Fixed32(bits) => Ok(f32::from_bits(bits)),
            _ => Err(self.not("a 32-bit float")),
        }
    }

    /// The value as bytes.
    #[inline]
    pub fn bytes(&self) -> Result<&'a [u8]> {
        match self.wire {
            Wire::Len(bytes) => Ok(bytes),
            _ => Err(self.not("bytes")),
        }
    }

    /// The value as text.
    #[inline]
    pub fn text(&self) -> Result<&'a str> {
        let bytes = self.bytes()?;
        if self.is_cut() {
            return Err(truncated(self.at, bytes.len()));
        }
        std::str::from_utf8(bytes).map_err(|e| self.wrong(format_args!("invalid UTF-8: {e}")))
    }

    /// The fields of an embedded message.
    #[inline]
    pub fn message(&self, name: &'static str) -> Result<Fields<'a>> {
        Ok(Fields { beginning: self.is_cut(), ..Fields::new(self.bytes()?, self.at, name) })
    }

    /// Whether the value is cut at the end of the input.
    pub fn is_cut(&self) -> bool {
        matches!(self.wire, Wire::Len(bytes) if self.claimed > bytes.len() as u64)
    }

    /// Stores a value that may occur only once.
    pub(super) fn once<T>(&self, location: &mut Option<T>, value: T) -> Result<()> {
        match location.replace(value) {
            None => Ok(()),
            Some(_) => Err(self.wrong(format_args!("more than one value"))),
        }
    }

    /// A corruption error at this field.
    #[cold]
    pub fn wrong(&self, what: std::fmt::Arguments<'_>) -> Error {
        corrupt(self.at, self.message, format_args!("field {}: {what}", self.number))
    }

    #[cold]
    fn not(&self, expected: &str) -> Error {
        let found = match self.wire {
            Wire::Varint(_) => "an integer",
            Wire::Fixed64(_) => "eight bytes",
            Wire::Len(_) => "a length and bytes",
            Wire::Group => "a group",
            Wire::Fixed32(_) => "four bytes",
        };
        self.wrong(format_args!("{found} instead of {expected}"))
    }
}

#[cold]
fn corrupt(at: usize, message: &str, what: std::fmt::Arguments<'_>) -> Error {
    Error::Corrupt { location: Location::memory(at as u64), what: format!("{message}: {what}") }
}

#[cold]
fn truncated(at: usize, found: usize) -> Error {
    Error::Truncated { location: Location::memory(at as u64), needed: found as u64 + 1, found: found as u64 }
}
