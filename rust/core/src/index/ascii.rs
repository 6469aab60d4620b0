//! ASCII-only JSON on one line: other readers decode the file in the platform's default encoding.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Serializes a value.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(4096);
    // Serialization of strings, numbers and lists to a Vec cannot fail.
    let written = value.serialize(&mut Serializer::with_formatter(&mut json, Ascii));
    debug_assert!(written.is_ok(), "{written:?}");
    json
}

struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for chunk in fragment.split_inclusive(|c: char| !c.is_ascii()) {
            let plain = chunk.trim_end_matches(|c: char| !c.is_ascii());
            writer.write_all(plain.as_bytes())?;
            for unit in chunk[plain.len()..].encode_utf16() {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}
