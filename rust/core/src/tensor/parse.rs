//! `TensorProto` to [`TensorView`]: checks that dtype, shape and content agree.

use super::dtype::{DType, foreign_name};
use super::typed;
use super::view::{Data, TensorView, corrupt, count, unsupported};
use crate::error::Result;
use crate::proto::{MAX_RANK, TensorProto};

impl<'a> TensorView<'a> {
    /// Builds the view of a `TensorProto` and checks that its fields agree.
    pub fn from_proto(proto: TensorProto<'a>) -> Result<Self> {
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
        None => TensorView::from_proto(proto.clone()).map(|tensor| Some((tensor.dtype, tensor.shape))),
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
