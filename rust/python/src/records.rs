//! Records and checksums.

use pyo3::prelude::*;
use smdwidgets_core::crc::{self, MaskedCrc};
use smdwidgets_core::tensor::decode_record;

use crate::buffer::Bytes;
use crate::errors::to_python;
use crate::numpy;

/// Payloads shorter than this are done before letting go of the interpreter would be.
const WORTH_DETACHING: usize = 64 << 10;

/// Runs `work` with the interpreter let go, if the work is big.
pub fn detached<T: Send>(py: Python<'_>, size: usize, work: impl FnOnce() -> T + Send) -> T {
    if size < WORTH_DETACHING { work() } else { py.detach(work) }
}

/// The tensor in a whole record that starts `offset` bytes into `data`.
#[pyfunction]
#[pyo3(signature = (data, offset = 0))]
pub fn decode<'py>(data: &Bound<'py, PyAny>, offset: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    let bytes = Bytes::of(data)?;
    let held = bytes.as_slice();
    let record = held.get(offset..).unwrap_or_default();
    let event = detached(py, record.len(), || decode_record(record))
        .map_err(|error| to_python(py, &error.within("", offset as u64)))?;
    numpy::array(py, event.tensor)
}

/// The CRC32C of some bytes.
#[pyfunction]
pub fn crc32c(data: &Bound<'_, PyAny>) -> PyResult<u32> {
    let bytes = Bytes::of(data)?;
    let bytes = bytes.as_slice();
    Ok(detached(data.py(), bytes.len(), || crc::crc32c(bytes)))
}

/// The CRC32C of some bytes as it stands in a file.
#[pyfunction]
pub fn masked_crc(data: &Bound<'_, PyAny>) -> PyResult<u32> {
    Ok(MaskedCrc::from_crc(crc32c(data)?).0)
}
