//! Decoding of tensor records: the fast path first, then the general parser.

use super::canonical;
use super::event::{TensorEvent, general_tensor_event};
use crate::error::Result;
use crate::proto::Event;
use crate::record::{self, HEADER};

/// Decodes the tensor in a whole record.
///
/// The header checksum must match, and the footer must be smdebug's constant or the payload's checksum. Bytes after the
/// record are ignored. Offsets in errors count from the start of the record.
pub fn decode_record(bytes: &[u8]) -> Result<TensorEvent<'_>> {
    let record = record::complete(bytes, 0)?;
    record.check()?;
    tensor_event(record.payload).map_err(|error| error.within("", HEADER as u64))
}

/// Decodes the tensor in a record's payload: the first value of the event, as smdebug does.
#[inline]
pub fn tensor_event(payload: &[u8]) -> Result<TensorEvent<'_>> {
    match canonical::tensor_event(payload) {
        Some(event) => Ok(event),
        None => general_tensor_event(&Event::parse(payload)?),
    }
}
