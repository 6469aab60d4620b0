//! Bindings of records and checksums.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smdwidgets_core::crc::{self, MaskedCrc};
use smdwidgets_core::tensor::decode_record;

use crate::buffer::{SharedBytes, StableBytes};
use crate::errors::to_python;
use crate::gil::detached;
use crate::numpy;

/// Decodes the tensor in the record at `offset`.
#[pyfunction]
#[pyo3(signature = (data, offset = 0))]
pub fn decode<'py>(data: &Bound<'py, PyAny>, offset: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    let (bytes, begin) = match data.cast_exact::<PyBytes>() {
        Ok(_) => (StableBytes::of(data)?, offset),
        Err(_) => (StableBytes::record_at(data, offset)?, 0),
    };
    let record = bytes.as_slice(py).get(begin..).unwrap_or_default();
    let event = detached(py, record.len(), || decode_record(record))
        .map_err(|error| to_python(py, &error.within("", offset as u64)))?;
    numpy::array(py, event.tensor)
}

/// Computes the CRC32C of `data`.
#[pyfunction]
pub fn crc32c(data: &Bound<'_, PyAny>) -> PyResult<u32> {
    let shared = SharedBytes::of(data)?;
    let bytes: &[u8] = &shared;
    Ok(detached(data.py(), bytes.len(), || crc::crc32c(bytes)))
}

/// Computes the masked CRC32C of `data`.
#[pyfunction]
pub fn masked_crc(data: &Bound<'_, PyAny>) -> PyResult<u32> {
    Ok(MaskedCrc::from_crc(crc32c(data)?).0)
}
