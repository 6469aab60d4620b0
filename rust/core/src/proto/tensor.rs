//! A tensor as the wire has it: nothing here knows what a dtype's number means.

use super::wire::{Field, Fields};
use crate::error::Result;

/// More dimensions than any array library holds; a shape stops being collected there.
pub const MAX_RANK: usize = 64;

/// A tensor's fields.
#[derive(Debug, Clone)]
pub struct TensorProto<'a> {
    /// The number of its element type; 0 when left out.
    pub dtype: u64,
    /// Its shape, where one is given.
    pub shape: Option<Shape>,
    /// Its elements as raw bytes; empty when they stand in typed fields.
    pub content: &'a [u8],
    /// How many bytes of content were written: more than `content` has where the input is the beginning of a record.
    pub content_size: u64,
    /// Where `content` starts, counted from the start of the payload.
    pub content_at: usize,
    /// Where the tensor starts, counted from the start of the payload.
    pub at: usize,
    fields: Fields<'a>,
    typed: u32,
}

/// A tensor's shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// The dimensions, at most [`MAX_RANK`] of them. A negative one was written as such.
    pub dims: Vec<i64>,
    /// How many dimensions there are in the message.
    pub rank: usize,
    /// Whether the writer said that it doesn't know the rank.
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
                // An enumeration is 32 bits wide.
                1 => tensor.dtype = u64::from(field.int()? as u32),
                2 => field.once(&mut tensor.shape, Shape::parse(field.message("TensorShapeProto")?)?)?,
                4 => {
                    tensor.content = field.bytes()?;
                    tensor.content_size = field.claimed;
                    tensor.content_at = field.at;
                }
                number @ 5..=17 => tensor.typed |= 1 << number,
                _ => {}
            }
        }
        Ok(tensor)
    }

    /// Whether more of the tensor may follow what is here.
    pub fn is_beginning(&self) -> bool {
        self.fields.is_beginning()
    }

    /// Whether a typed field of this number (5 to 17) is there.
    pub fn has_typed(&self, number: u32) -> bool {
        self.typed.checked_shr(number).unwrap_or(0) & 1 == 1
    }

    /// The number of a typed field that is there, the lowest.
    pub fn any_typed(&self) -> Option<u32> {
        (self.typed != 0).then(|| self.typed.trailing_zeros())
    }

    /// Its typed fields of one number, in order.
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
