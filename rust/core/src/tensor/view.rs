//! A tensor's dtype, shape and content, checked against each other.

use std::fmt::Arguments;

use super::dtype::{DType, foreign_name};
use super::typed;
use crate::error::{Error, Place, Result};
use crate::proto::{MAX_RANK, TensorProto};

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

impl<'a> TensorView<'a> {
    /// The tensor that stands in these fields.
    pub fn of(proto: TensorProto<'a>) -> Result<Self> {
        let dtype = dtype_of(&proto)?;
        let shape = shape_of(&proto)?;
        if dtype == DType::Str {
            return typed::strings(&proto, shape);
        }
        if proto.content.is_empty() && proto.any_typed().is_some() {
            return typed::numbers(&proto, dtype, shape);
        }
        // A shape that was left out means a single value, as everywhere in protobuf.
        let shape = shape.unwrap_or_default();
        check_size(&proto, dtype, &shape)?;
        Ok(TensorView { dtype, shape, data: Data::Raw(proto.content) })
    }

    /// How many elements it has.
    pub fn len(&self) -> u64 {
        // No overflow: `of` has checked it.
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

/// The dtype and shape of a tensor whose beginning this is; `None` when they can't be told without the rest.
pub(super) fn head_of(proto: &TensorProto<'_>) -> Result<Option<(DType, Vec<u64>)>> {
    // Writers put a tensor's fields in the order of their numbers: with content in sight, dtype and shape have been seen.
    if proto.is_beginning() && proto.content_size == 0 && proto.any_typed().is_none() {
        return Ok(None);
    }
    let dtype = dtype_of(proto)?;
    match shape_of(proto)? {
        Some(shape) => {
            if proto.content_size > 0 {
                check_size(proto, dtype, &shape)?;
            }
            Ok(Some((dtype, shape)))
        }
        None if proto.is_beginning() => Ok(None),
        None => TensorView::of(proto.clone()).map(|tensor| Some((tensor.dtype, tensor.shape))),
    }
}

fn dtype_of(proto: &TensorProto<'_>) -> Result<DType> {
    DType::from_number(proto.dtype).ok_or_else(|| {
        let name = foreign_name(proto.dtype);
        unsupported(proto, format_args!("a tensor of dtype number {} ({name})", proto.dtype))
    })
}

/// An error if the raw content is not as long as dtype and shape say.
fn check_size(proto: &TensorProto<'_>, dtype: DType, shape: &[u64]) -> Result<()> {
    let wanted = count(proto, shape, dtype.item_size())?.saturating_mul(dtype.item_size() as u64);
    if wanted == proto.content_size {
        return Ok(());
    }
    let (dtype, found) = (dtype.name(), proto.content_size);
    Err(corrupt(proto, format_args!("a {dtype} tensor of shape {shape:?} takes {wanted} bytes, but {found} are there")))
}

/// The sizes of its dimensions; `None` when the writer gave no shape.
fn shape_of(proto: &TensorProto<'_>) -> Result<Option<Vec<u64>>> {
    let Some(shape) = proto.shape.as_ref().filter(|shape| !shape.unknown_rank) else {
        return Ok(None);
    };
    if shape.rank > MAX_RANK {
        let what = format_args!("a tensor of {} dimensions; at most {MAX_RANK} can be shown", shape.rank);
        return Err(unsupported(proto, what));
    }
    let size = |dim: &i64| {
        u64::try_from(*dim).map_err(|_| corrupt(proto, format_args!("a negative dimension in shape {:?}", shape.dims)))
    };
    shape.dims.iter().map(size).collect::<Result<_>>().map(Some)
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
