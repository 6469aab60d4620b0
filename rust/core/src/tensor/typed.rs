//! Elements in typed fields (`float_val`, `int_val`, …) instead of raw bytes.
//!
//! TensorFlow omits trailing elements that repeat the last stored value.

use super::dtype::DType;
use super::view::{Data, MAX_FILLED, TensorView, corrupt, count, unsupported};
use crate::error::Result;
use crate::proto::{Field, Fields, TensorProto, Wire};

/// The wire format of a typed field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Fixed32,
    Fixed64,
    /// A varint, of which this many low bytes count.
    Varint(usize),
    /// One string of bytes, one per value.
    Bytes,
}

/// The number and wire format of a dtype's typed field. A complex number is two values.
fn field_of(dtype: DType) -> (u32, Form) {
    match dtype {
        DType::F32 => (5, Form::Fixed32),
        DType::F64 => (6, Form::Fixed64),
        DType::I32 => (7, Form::Varint(4)),
        DType::I16 | DType::U16 => (7, Form::Varint(2)),
        DType::I8 | DType::U8 => (7, Form::Varint(1)),
        DType::Str => (8, Form::Varint(0)),
        DType::C64 => (9, Form::Fixed32),
        DType::I64 => (10, Form::Varint(8)),
        DType::Bool => (11, Form::Varint(1)),
        DType::C128 => (12, Form::Fixed64),
        DType::F16 | DType::BF16 => (13, Form::Varint(2)),
        DType::U32 => (16, Form::Varint(4)),
        DType::U64 => (17, Form::Varint(8)),
        DType::F8E5M2 | DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E4M3B11FNUZ | DType::F8E5M2FNUZ => {
            (18, Form::Bytes)
        }
        DType::F4E2M1FN | DType::F8E8M0FNU => (18, Form::Bytes),
    }
}

/// Decodes a numeric tensor from its typed field.
pub(super) fn numbers<'a>(proto: &TensorProto<'a>, dtype: DType, shape: Option<Vec<u64>>) -> Result<TensorView<'a>> {
    let (number, form) = field_of(dtype);
    if !proto.has_typed(number) {
        let found = proto.any_typed().unwrap_or(0);
        return Err(corrupt(proto, format_args!("a {} tensor has its values in field {found}", dtype.name())));
    }
    let item = dtype.item_size();
    let mut bytes = Vec::with_capacity(size_of_values(proto, number, form)?);
    for field in proto.typed(number) {
        append(&field?, dtype, form, &mut bytes)?;
    }
    let given = bytes.len() / item;
    if bytes.len() % item != 0 {
        return Err(corrupt(proto, format_args!("incomplete {} value", dtype.name())));
    }
    let shape = shape.unwrap_or_else(|| flat(given));
    let needed = count(proto, &shape, item)?;
    let more = missing(proto, given, needed, item, &shape)?;
    if let Some(last) = bytes.len().checked_sub(item) {
        bytes.reserve_exact(more * item);
        for _ in 0..more {
            bytes.extend_from_within(last..last + item);
        }
    }
    Ok(TensorView { dtype, shape, data: Data::Owned(bytes) })
}

/// Decodes a string tensor.
pub(super) fn strings<'a>(proto: &TensorProto<'a>, shape: Option<Vec<u64>>) -> Result<TensorView<'a>> {
    let (number, _) = field_of(DType::Str);
    if !proto.content.is_empty() {
        return Err(corrupt(proto, format_args!("{} bytes of raw content in a string tensor", proto.content.len())));
    }
    if let Some(other) = proto.any_typed().filter(|_| !proto.has_typed(number)) {
        return Err(corrupt(proto, format_args!("values in field {other} of a string tensor")));
    }
    let mut strings = Vec::with_capacity(proto.typed(number).count());
    for field in proto.typed(number) {
        strings.push(field?.bytes()?);
    }
    let shape = shape.unwrap_or_else(|| flat(strings.len()));
    let needed = count(proto, &shape, size_of::<&[u8]>())?;
    let more = missing(proto, strings.len(), needed, size_of::<&[u8]>(), &shape)?;
    if let Some(last) = strings.last().copied() {
        strings.resize(strings.len() + more, last);
    }
    Ok(TensorView { dtype: DType::Str, shape, data: Data::Strings(strings) })
}

/// The shape of values without a stored one: a scalar or a vector.
fn flat(given: usize) -> Vec<u64> {
    if given == 1 { Vec::new() } else { vec![given as u64] }
}

/// The number of elements to fill with the last value.
fn missing(proto: &TensorProto<'_>, given: usize, needed: u64, item: usize, shape: &[u64]) -> Result<usize> {
    match needed.checked_sub(given as u64) {
        Some(0) => Ok(0),
        Some(_) if given == 0 => Err(corrupt(proto, format_args!("no values for shape {shape:?}"))),
        Some(more) if needed.saturating_mul(item as u64) <= MAX_FILLED => Ok(more as usize),
        Some(_) => {
            let what = format_args!("filling shape {shape:?} from {given} values takes more than {MAX_FILLED} bytes");
            Err(unsupported(proto, what))
        }
        None => Err(corrupt(proto, format_args!("{given} values for shape {shape:?}"))),
    }
}

/// The size of the decoded values, computed from the input alone.
fn size_of_values(proto: &TensorProto<'_>, number: u32, form: Form) -> Result<usize> {
    proto.typed(number).try_fold(0, |size, field| {
        Ok(size
            + match (form, field?.wire) {
                // The last byte of a varint is below 0x80.
                (Form::Varint(item), Wire::Len(packed)) => item * packed.iter().filter(|byte| **byte < 0x80).count(),
                (Form::Varint(item), _) => item,
                (_, Wire::Len(packed)) => packed.len(),
                (Form::Fixed32, _) => 4,
                (Form::Fixed64, _) => 8,
                (Form::Bytes, _) => 0,
            })
    })
}

/// Decodes the values of one field, packed or single.
fn append(field: &Field<'_>, dtype: DType, form: Form, into: &mut Vec<u8>) -> Result<()> {
    match (form, field.wire) {
        (Form::Varint(size), Wire::Varint(value)) => integer(dtype, size, value, into),
        (Form::Varint(size), Wire::Len(packed)) => {
            let mut values = Fields::new(packed, field.at, "packed integers");
            while let Some(value) = values.packed_int()? {
                integer(dtype, size, value, into);
            }
        }
        (Form::Fixed32, Wire::Fixed32(value)) => into.extend_from_slice(&value.to_le_bytes()),
        (Form::Fixed64, Wire::Fixed64(value)) => into.extend_from_slice(&value.to_le_bytes()),
        (Form::Bytes, Wire::Len(packed)) => {
            // The field is not repeated, so the last one counts.
            into.clear();
            into.extend_from_slice(packed);
        }
        (Form::Fixed32, Wire::Len(packed)) if packed.len().is_multiple_of(4) => into.extend_from_slice(packed),
        (Form::Fixed64, Wire::Len(packed)) if packed.len().is_multiple_of(8) => into.extend_from_slice(packed),
        (_, wire) => return Err(field.wrong(format_args!("{wire:.0?} instead of {} values", dtype.name()))),
    }
    Ok(())
}

/// The low bytes of an integer, its value in two's complement; booleans become 0 or 1.
fn integer(dtype: DType, size: usize, value: u64, into: &mut Vec<u8>) {
    let value = if dtype == DType::Bool { u64::from(value != 0) } else { value };
    into.extend_from_slice(&value.to_le_bytes()[..size]);
}
