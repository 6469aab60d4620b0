//! The Rust core of smdwidgets: reads, reduces, draws and writes training runs. Independent of Python.
//!
//! Records are parsed by `record`, `proto` and `tensor`, located through `index` and `catalog`, and returned as reductions
//! (`reduce`), pictures (`picture`) or views of the bytes. docs/architecture.md lists the layers; a module uses only the
//! modules below it.

// Unsafe code is limited to modules that allow it explicitly; every block states why it is sound.
#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!(
    "smdwidgets reads files with the low byte first straight into memory; this processor has the high byte first"
);

pub mod allocator;
pub mod block_copy;
pub mod catalog;
pub mod checked;
pub mod crc;
pub mod error;
pub mod index;
pub mod load;
pub mod log;
pub mod manifest;
pub mod picture;
pub mod pool;
pub mod precision;
pub mod proto;
pub mod record;
pub mod reduce;
pub mod segments;
pub mod simd;
pub mod source;
pub mod statistics;
pub mod statistics_file;
pub mod step;
pub mod sweep;
pub mod tensor;
pub mod wandb;
pub mod writer;
