//! JSON of one line, in ASCII alone: other readers open the file in the encoding their machine happens to be set to.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// A value as JSON.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(4096);
    // Strings, numbers and lists of them: nothing here can fail to be JSON, and a Vec takes all of it.
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
