//! The JSON index file of a step and worker: the offset and length of each tensor in the event file.
//!
//! Unescaped strings are borrowed from the input. Parsing is strict: any malformed structure is an [`Error::Index`] with
//! its offset.

mod ascii;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{Error, Location, Result};
use crate::step::{Mode, Step};

/// The directory of segments, which has one for each worker.
pub const SEGMENTS: &str = "segments";

/// The largest integer that every JSON parser represents exactly.
pub const LARGEST: u64 = 1 << 53;

/// Limit on dimensions, above that of any array library.
pub const MOST_DIMENSIONS: usize = 64;

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

// Implemented by hand, because serde's derived enums also accept `{"TRAIN": null}`.
impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;
        impl Visitor<'_> for Named {
            type Value = Mode;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string with the name of a mode")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Mode, E> {
                // Some old writers add whitespace, which smdebug strips.
                let named = Mode::ALL.into_iter().find(|mode| mode.name() == name.trim());
                named.ok_or_else(|| E::custom(format_args!("unknown mode {name:?}")))
            }
        }
        deserializer.deserialize_str(Named)
    }
}

/// An index file.
#[derive(Debug, Clone, PartialEq)]
pub struct Index<'a> {
    /// The mode of all entries.
    pub mode: Mode,
    /// The step within the mode.
    pub mode_step: Step,
    /// The event file, relative to the run; `None` if only shapes were saved.
    pub event_file: Option<Cow<'a, str>>,
    /// The entries. If a name occurs twice, the last one counts.
    pub entries: Vec<TensorEntry<'a>>,
    /// Shapes saved instead of, or in addition to, values.
    pub shapes: Vec<ShapeEntry<'a>>,
    /// Positions of this worker's parts of sharded tensors: a key of smdwidgets that other readers ignore.
    pub shards: Vec<ShardEntry<'a>>,
}

/// The location of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorEntry<'a> {
    /// The name of the tensor.
    #[serde(rename = "tensorname", borrow)]
    pub name: Cow<'a, str>,
    /// Offset of the record in the event file.
    #[serde(rename = "start_idx", deserialize_with = "unsigned")]
    pub offset: u64,
    /// Size of the record, with framing.
    #[serde(deserialize_with = "unsigned")]
    pub length: u64,
    /// Unmasked CRC32C of the payload: a key of smdwidgets that other readers ignore.
    #[serde(rename = "crc32c", default, skip_serializing_if = "Option::is_none")]
    pub crc: Option<u32>,
}

/// The shape of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapeEntry<'a> {
    /// The name of the tensor.
    #[serde(rename = "tensorname", borrow)]
    pub name: Cow<'a, str>,
    /// The framework's name of the tensor.
    #[serde(rename = "originalname", borrow)]
    pub original: Cow<'a, str>,
    /// The dimensions.
    #[serde(deserialize_with = "dimensions")]
    pub shape: Vec<u64>,
}

/// The position of a worker's part of a sharded tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardEntry<'a> {
    /// The name of the tensor.
    #[serde(rename = "tensorname", borrow)]
    pub name: Cow<'a, str>,
    /// The position, a JSON value in ASCII on one line. Its meaning belongs to the callers.
    #[serde(borrow, deserialize_with = "raw_json", serialize_with = "as_raw_json")]
    pub shard: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct Meta<'a> {
    mode: Mode,
    #[serde(deserialize_with = "signed")]
    mode_step: Step,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    event_file_name: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct Written<'a> {
    meta: Meta<'a>,
    tensor_payload: &'a [TensorEntry<'a>],
    shape_payload: &'a [ShapeEntry<'a>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    shard_payload: &'a [ShardEntry<'a>],
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow)]
    meta: Object<Meta<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    tensor_payload: Option<Vec<Object<TensorEntry<'a>>>>,
    #[serde(borrow, default, deserialize_with = "present")]
    shape_payload: Option<Vec<Object<ShapeEntry<'a>>>>,
    #[serde(borrow, default, deserialize_with = "present")]
    shard_payload: Option<Vec<Object<ShardEntry<'a>>>>,
}

impl<'a> Index<'a> {
    /// Parses an index file. `file` names it in errors.
    pub fn parse(bytes: &'a [u8], file: &str) -> Result<Index<'a>> {
        let wrong = |offset, what: String| Error::Index { location: Location::new(file, offset), what };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(wrong(0, "the file is empty".into()));
        }
        // UTF-8 is validated once for the whole file.
        let text = std::str::from_utf8(bytes).map_err(|e| wrong(e.valid_up_to() as u64, "invalid UTF-8".into()))?;
        let Object(read): Object<Read<'a>> =
            serde_json::from_str(text).map_err(|e| wrong(offset_of(bytes, &e), without_place(&e)))?;
        if read.tensor_payload.is_none() && read.shape_payload.is_none() {
            return Err(wrong(0, "missing tensor_payload and shape_payload".into()));
        }
        let Object(meta) = read.meta;
        let entries: Vec<_> = objects(read.tensor_payload);
        if meta.event_file_name.is_none() && !entries.is_empty() {
            return Err(wrong(0, "tensor_payload without event_file_name in meta".into()));
        }
        Ok(Index {
            mode: meta.mode,
            mode_step: meta.mode_step,
            event_file: meta.event_file_name,
            entries,
            shapes: objects(read.shape_payload),
            shards: objects(read.shard_payload),
        })
    }

    /// Encodes the file: one line of ASCII JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        let meta = Meta { mode: self.mode, mode_step: self.mode_step, event_file_name: self.event_file.clone() };
        let written =
            Written { meta, tensor_payload: &self.entries, shape_payload: &self.shapes, shard_payload: &self.shards };
        ascii::to_json(&written)
    }
}

fn objects<T>(list: Option<Vec<Object<T>>>) -> Vec<T> {
    // `Object<T>` has the layout of `T`, so this does not copy.
    list.unwrap_or_default().into_iter().map(|Object(item)| item).collect()
}

/// A JSON object. serde's derived code also accepts an array of the field values.
#[derive(Debug)]
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyMap<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(OnlyMap(PhantomData))
    }
}

/// A key that may be missing but not null.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Any JSON value, as it is encoded: in ASCII on one line.
fn raw_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(|raw| ascii::one_line(raw.get()))
}

fn as_raw_json<S: Serializer>(json: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serde_json::from_str::<&RawValue>(json).map_err(serde::ser::Error::custom)?.serialize(serializer)
}

/// Whether a text is a JSON value in ASCII on one line.
pub(crate) fn is_ascii_json(text: &str) -> bool {
    let value = serde_json::from_str::<&RawValue>(text);
    value.is_ok_and(|value| matches!(ascii::one_line(value.get()), Cow::Borrowed(same) if same == text))
}

fn unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = deserializer.deserialize_any(IntegerVisitor)?;
    u64::try_from(number).map_err(|_| D::Error::invalid_value(Unexpected::Signed(number), &IntegerVisitor))
}

fn signed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    deserializer.deserialize_any(IntegerVisitor)
}

/// An integer that a double represents exactly, as other readers need; old writers store it as a string.
struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = i64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer up to 2^53")
    }
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<i64, E> {
        if number.unsigned_abs() <= LARGEST {
            Ok(number)
        } else {
            Err(E::invalid_value(Unexpected::Signed(number), &self))
        }
    }
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<i64, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<i64, E> {
        match text.parse() {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

fn dimensions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    struct Dimension(u64);
    impl<'de> Deserialize<'de> for Dimension {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            unsigned(deserializer).map(Dimension)
        }
    }
    struct Shape;
    impl<'de> Visitor<'de> for Shape {
        type Value = Vec<u64>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST_DIMENSIONS} dimensions")
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u64>, A::Error> {
            let mut shape = Vec::new();
            while let Some(Dimension(size)) = list.next_element()? {
                if shape.len() == MOST_DIMENSIONS {
                    return Err(A::Error::invalid_length(shape.len() + 1, &self));
                }
                shape.push(size);
            }
            Ok(shape)
        }
    }
    deserializer.deserialize_seq(Shape)
}

/// Converts the line and column of a serde_json error to a byte offset.
fn offset_of(bytes: &[u8], error: &serde_json::Error) -> u64 {
    let line_start = match error.line() {
        0 | 1 => 0,
        line => bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(line - 2).map_or(0, |(at, _)| at + 1),
    };
    (line_start + error.column().saturating_sub(1)).min(bytes.len()) as u64
}

fn without_place(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.rfind(" at line ") {
        text.truncate(at);
    }
    text
}

#[cfg(test)]
mod tests;
