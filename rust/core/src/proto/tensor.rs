//! The `TensorProto` message, independent of the parse_recorded_name of dtype numbers.

use super::wire::{Field, Fields};
use crate::error::Result;

/// Limit on dimensions, above that of any array library; further ones are counted but not stored.
pub const MAX_RANK: usize = 64;

/// The fields of a `TensorProto`.
#[derive(Debug, Clone)]
pub struct TensorProto<'a> {
    /// The dtype number; 0 if omitted.
    pub dtype: u64,
    /// The shape, if stored.
    pub shape: Option<Shape>,
    /// The raw content; empty if the elements are in typed fields.
    pub content: &'a [u8],
    /// The size of the content as written; exceeds `content` if the input is the beginning of a record.
    pub content_size: u64,
    /// Offset of `content` from the start of the payload.
    pub content_at: usize,
    /// Offset of the message from the start of the payload.
    pub at: usize,
    fields: Fields<'a>,
    typed: u32,
}

/// The shape of a tensor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// The dimensions, at most [`MAX_RANK`]. Can be negative in malformed input.
    pub dims: Vec<i64>,
    /// The number of dimensions in the message.
    pub rank: usize,
    /// Whether the writer marked the rank as unknown.
    pub unknown_rank: bool,
}

impl<'a> TensorProto<'a> {
    #[inline]
    pub(super) fn parse(mut fields: Fields<'a>) -> Result<Self> {
        let mut tensor = TensorProto {
            dtype: 0,
            shape: None,
            content: &[],
            content_size: 0,
            content_at: fields.at(),
            at: fields.at(),
            fields: fields.clone(),
            typed: 0,
        };
        while let Some(field) = fields.step()? {
            match field.number {
                // Enums are 32 bits wide.
                1 => tensor.dtype = u64::from(field.int()? as u32),
                2 => field.once(&mut tensor.shape, Shape::parse(field.message("TensorShapeProto")?)?)?,
                4 => {
                    tensor.content = field.bytes()?;
                    tensor.content_size = field.claimed;
                    tensor.content_at = field.at;
                }
                number @ 5..=18 => tensor.typed |= 1 << number,
                _ => {}
            }
        }
        Ok(tensor)
    }

    /// Whether the input is only the beginning of the message.
    pub fn is_beginning(&self) -> bool {
        self.fields.is_beginning()
    }

    /// Whether there is a typed field of this number (5 to 18).
    pub fn has_typed(&self, number: u32) -> bool {
        self.typed.checked_shr(number).unwrap_or(0) & 1 == 1
    }

    /// The lowest number of a typed field.
    pub fn any_typed(&self) -> Option<u32> {
        (self.typed != 0).then(|| self.typed.trailing_zeros())
    }

    /// The typed fields of one number, in order.
    pub fn typed(&self, number: u32) -> impl Iterator<Item = Result<Field<'a>>> + use<'a> {
        self.fields.clone().filter(move |field| field.as_ref().map_or(true, |field| field.number == number))
    }
}

impl Shape {
    #[inline]
    fn parse(mut fields: Fields<'_>) -> Result<Self> {
        let mut shape = Shape::default();
        while let Some(field) = fields.step()? {
            match field.number {
                2 => {
                    let mut size = 0;
                    let mut dim = field.message("TensorShapeProto.Dim")?;
                    while let Some(field) = dim.step()? {
                        if field.number == 1 {
                            size = field.int()?.cast_signed();
                        }
                    }
                    shape.rank += 1;
                    if shape.dims.len() < MAX_RANK {
                        shape.dims.push(size);
                    }
                }
                3 => shape.unknown_rank = field.int()? != 0,
                _ => {}
            }
        }
        Ok(shape)
    }
}
