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
        // A missing shape means a scalar, by protobuf's defaults.
        let shape = shape.unwrap_or_default();
        check_size(&proto, dtype, &shape)?;
        Ok(TensorView { dtype, shape, data: Data::Raw(proto.content) })
    }
}

/// Dtype and shape of a tensor of which only the beginning may be present; `None` if more bytes are needed.
pub(super) fn head_of(proto: &TensorProto<'_>) -> Result<Option<(DType, Vec<u64>)>> {
    // Writers order fields by number: if content is present, dtype and shape precede it.
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
        unsupported(proto, format_args!("unsupported dtype number {} ({name})", proto.dtype))
    })
}

/// Checks the size of raw content against dtype and shape.
fn check_size(proto: &TensorProto<'_>, dtype: DType, shape: &[u64]) -> Result<()> {
    let needed = count(proto, shape, dtype.item_size())?.saturating_mul(dtype.item_size() as u64);
    if needed == proto.content_size {
        return Ok(());
    }
    let (dtype, found) = (dtype.name(), proto.content_size);
    Err(corrupt(
        proto,
        format_args!("size mismatch: a {dtype} tensor of shape {shape:?} takes {needed} bytes, found {found}"),
    ))
}

/// The dimensions; `None` if the writer stored no shape.
fn shape_of(proto: &TensorProto<'_>) -> Result<Option<Vec<u64>>> {
    let Some(shape) = proto.shape.as_ref().filter(|shape| !shape.unknown_rank) else {
        return Ok(None);
    };
    if shape.rank > MAX_RANK {
        let what = format_args!("a tensor of {} dimensions; at most {MAX_RANK} are supported", shape.rank);
        return Err(unsupported(proto, what));
    }
    let size = |dim: &i64| {
        u64::try_from(*dim).map_err(|_| corrupt(proto, format_args!("negative dimension in shape {:?}", shape.dims)))
    };
    shape.dims.iter().map(size).collect::<Result<_>>().map(Some)
}
