//! The view of a tensor: dtype, shape and content.

use std::fmt::Arguments;

use super::dtype::DType;
use crate::error::{Error, Place, Result};
use crate::proto::TensorProto;

/// The most bytes that one value, repeated, may fill. A lie about a shape must not cost more than this.
pub const MAX_FILLED: u64 = 16 << 20;

/// A tensor whose content is as long as its shape and dtype say.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorView<'a> {
    /// The element type.
    pub dtype: DType,
    /// The size of each dimension; empty for a single value.
    pub shape: Vec<u64>,
    /// The elements.
    pub data: Data<'a>,
}

/// A tensor's elements, the last dimension's next to each other.
#[derive(Debug, Clone, PartialEq)]
pub enum Data<'a> {
    /// As they lie in the input: little-endian, at any alignment.
    Raw(&'a [u8]),
    /// Gathered from typed fields: little-endian.
    Owned(Vec<u8>),
    /// Text, one slice an element. smdebug's is UTF-8; TensorFlow's may be any bytes.
    Strings(Vec<&'a [u8]>),
}

impl Data<'_> {
    /// The elements' bytes; `None` for text.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Data::Raw(bytes) => Some(bytes),
            Data::Owned(bytes) => Some(bytes),
            Data::Strings(_) => None,
        }
    }
}

impl TensorView<'_> {
    /// How many elements it has.
    pub fn len(&self) -> u64 {
        // Cannot overflow: `from_proto` checks the product.
        self.shape.iter().product()
    }

    /// Its only element as a number; `None` where there are more or fewer, and for text and complex numbers.
    pub fn number(&self) -> Option<f64> {
        let bytes = self.data.bytes().filter(|_| self.len() == 1)?;
        Some(match self.dtype {
            DType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
            DType::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
            DType::F16 => f64::from(half::f16::from_le_bytes(bytes.try_into().ok()?)),
            DType::BF16 => f64::from(half::bf16::from_le_bytes(bytes.try_into().ok()?)),
            DType::I8 => f64::from(i8::from_le_bytes(bytes.try_into().ok()?)),
            DType::I16 => f64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
            DType::I32 => f64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
            DType::I64 => i64::from_le_bytes(bytes.try_into().ok()?) as f64,
            DType::U8 | DType::Bool => f64::from(u8::from_le_bytes(bytes.try_into().ok()?)),
            DType::U16 => f64::from(u16::from_le_bytes(bytes.try_into().ok()?)),
            DType::U32 => f64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
            DType::U64 => u64::from_le_bytes(bytes.try_into().ok()?) as f64,
            DType::Str | DType::C64 | DType::C128 => return None,
        })
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// How many elements a shape has. An error when their bytes, or those of the dimensions that aren't 0, are past counting.
pub(super) fn count(proto: &TensorProto<'_>, shape: &[u64], item_size: usize) -> Result<u64> {
    let limit = i64::MAX as u64 / item_size.max(1) as u64;
    let mut all = 1u64;
    for size in shape.iter().filter(|size| **size != 0) {
        all = all
            .checked_mul(*size)
            .filter(|all| *all <= limit)
            .ok_or_else(|| corrupt(proto, format_args!("shape {shape:?} has more elements than can be counted")))?;
    }
    Ok(if shape.contains(&0) { 0 } else { all })
}

#[cold]
pub(super) fn corrupt(proto: &TensorProto<'_>, what: Arguments<'_>) -> Error {
    Error::Corrupt { place: Place::memory(proto.at as u64), what: what.to_string() }
}

#[cold]
pub(super) fn unsupported(proto: &TensorProto<'_>, what: Arguments<'_>) -> Error {
    Error::Unsupported { place: Place::memory(proto.at as u64), what: what.to_string() }
}
