//! The index file of a step, as it is written.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::error::{Error, Result};

/// What an index file holds.
#[derive(Debug, Serialize)]
pub(super) struct Index {
    pub meta: Meta,
    pub tensor_payload: Vec<TensorEntry>,
    pub shape_payload: Vec<ShapeEntry>,
}

#[derive(Debug, Serialize)]
pub(super) struct Meta {
    mode: &'static str,
    mode_step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_file_name: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct TensorEntry {
    pub tensorname: String,
    pub start_idx: u64,
    pub length: u64,
    pub crc32c: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct ShapeEntry {
    pub tensorname: String,
    pub originalname: String,
    pub shape: Vec<u64>,
}

impl Index {
    pub fn new(mode: &'static str, mode_step: u64) -> Self {
        let meta = Meta { mode, mode_step, event_file_name: None };
        Index { meta, tensor_payload: Vec::new(), shape_payload: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.tensor_payload.is_empty() && self.shape_payload.is_empty()
    }

    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut json = Vec::with_capacity(128 + 96 * (self.tensor_payload.len() + self.shape_payload.len()));
        let mut serializer = Serializer::with_formatter(&mut json, Ascii);
        self.serialize(&mut serializer).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(json)
    }
}

/// JSON in ASCII alone: other readers open the file in the encoding their machine happens to be set to.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_script_are_written_in_ascii_and_read_back() {
        let names = ["w", "ünï", "日本", "😀/a😀b", "q\"\\\n\u{7f}", ""];
        let mut index = Index::new("TRAIN", 5);
        for name in names {
            let (start_idx, length, crc32c) = (0, 16, u32::MAX);
            index.tensor_payload.push(TensorEntry { tensorname: name.to_owned(), start_idx, length, crc32c });
        }
        let json = index.to_json().unwrap();
        assert!(json.is_ascii());
        let read: serde_json::Value = serde_json::from_slice(&json).unwrap();
        for (entry, name) in read["tensor_payload"].as_array().unwrap().iter().zip(names) {
            assert_eq!(entry["tensorname"], name);
        }
        assert_eq!(read["meta"], serde_json::json!({"mode": "TRAIN", "mode_step": 5}));
    }
}
