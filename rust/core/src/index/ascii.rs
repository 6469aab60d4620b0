//! ASCII-only JSON on one line: other readers decode the file in the platform's default encoding.

use std::borrow::Cow;
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

/// The same JSON in ASCII on one line. Outside strings, JSON has only ASCII; inside them, no line breaks.
pub(super) fn one_line(json: &str) -> Cow<'_, str> {
    if json.bytes().all(|byte| byte.is_ascii() && byte != b'\n' && byte != b'\r') {
        return Cow::Borrowed(json);
    }
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' | '\r' => line.push(' '),
            c if c.is_ascii() => line.push(c),
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| line.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    Cow::Owned(line)
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
