//! The view of a tensor: dtype, shape and content.

use std::fmt::Arguments;

use super::dtype::DType;
use crate::error::{Error, Location, Result};
use crate::proto::TensorProto;

/// Limit on the bytes that one repeated value may fill, so that a wrong shape cannot exhaust memory.
pub const MAX_FILLED: u64 = 16 << 20;

/// A tensor whose content matches its shape and dtype.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorView<'a> {
    /// The element type.
    pub dtype: DType,
    /// The dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// The elements.
    pub data: Data<'a>,
}

/// The elements of a tensor in C order.
#[derive(Debug, Clone, PartialEq)]
pub enum Data<'a> {
    /// A slice of the input: little-endian, at any alignment.
    Raw(&'a [u8]),
    /// Collected from typed fields: little-endian.
    Owned(Vec<u8>),
    /// Strings, one slice per element: UTF-8 from smdebug, any bytes from TensorFlow.
    Strings(Vec<&'a [u8]>),
}

impl Data<'_> {
    /// The bytes of the elements; `None` for strings.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Data::Raw(bytes) => Some(bytes),
            Data::Owned(bytes) => Some(bytes),
            Data::Strings(_) => None,
        }
    }
}

impl TensorView<'_> {
    /// The number of elements.
    pub fn len(&self) -> u64 {
        // Cannot overflow: `from_proto` checks the product.
        self.shape.iter().product()
    }

    /// The element of a one-element tensor as a number; `None` for other sizes, strings and complex numbers.
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
            dtype => f64::from(dtype.small()?.values[usize::from(*bytes.first()?)]),
        })
    }

    /// Whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// The number of elements of a shape. An error if the size in bytes, or that of the nonzero dimensions, overflows.
pub(super) fn count(proto: &TensorProto<'_>, shape: &[u64], item_size: usize) -> Result<u64> {
    let limit = i64::MAX as u64 / item_size.max(1) as u64;
    let mut all = 1u64;
    for size in shape.iter().filter(|size| **size != 0) {
        all = all
            .checked_mul(*size)
            .filter(|all| *all <= limit)
            .ok_or_else(|| corrupt(proto, format_args!("the size of shape {shape:?} overflows")))?;
    }
    Ok(if shape.contains(&0) { 0 } else { all })
}

#[cold]
pub(super) fn corrupt(proto: &TensorProto<'_>, what: Arguments<'_>) -> Error {
    Error::Corrupt { location: Location::memory(proto.at as u64), what: what.to_string() }
}

#[cold]
pub(super) fn unsupported(proto: &TensorProto<'_>, what: Arguments<'_>) -> Error {
    Error::Unsupported { location: Location::memory(proto.at as u64), what: what.to_string() }
}
