//! Everything that is fast in smdwidgets, and nothing that knows of Python.
//!
//! Bytes come in at the bottom (`record`, `proto`, `tensor`), are found through `index` and `catalog`, and leave as
//! numbers (`reduce`), pictures (`picture`) or views of the bytes themselves. A module uses only the modules above it in the
//! list below.

// Unsafe code lives in named modules only, each block with its reason.
#![deny(unsafe_code)]

pub mod catalog;
pub mod checked;
pub mod crc;
pub mod error;
pub mod index;
pub mod large;
pub mod load;
pub mod log;
pub mod picture;
pub mod pool;
pub mod proto;
pub mod record;
pub mod reduce;
pub mod simd;
pub mod source;
pub mod step;
pub mod sweep;
pub mod tensor;
pub mod writer;
