//! `smdwidgets._core`: the Python bindings of the core. Converts arguments, results and errors, and releases the GIL.

use pyo3::prelude::*;
use smdwidgets_core::allocator::HugePageAllocator;

mod block_copy;
mod buffer;
mod catalog;
mod dlpack;
mod elements;
mod errors;
mod events;
mod files;
mod gil;
mod log;
mod logged;
mod manifest;
mod modes;
mod numpy;
mod open_files;
mod picture;
mod precision;
mod pyramid;
mod recent;
mod records;
mod reduce;
mod statistics;
mod statistics_file;
mod stores;
mod sweep;
mod wandb;
mod writer;

#[global_allocator]
static ALLOCATOR: HugePageAllocator = HugePageAllocator;

/// The extension module.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;
    use smdwidgets_core::source::FILE_TIME_GRANULARITY;

    #[pymodule_export]
    use super::block_copy::copy;
    #[pymodule_export]
    use super::catalog::{Catalog, Entry};
    #[pymodule_export]
    use super::files::{Fetched, Files};
    #[pymodule_export]
    use super::records::{crc32c, decode, masked_crc};
    #[pymodule_export]
    use super::sweep::{Cancel, heads, part, sweep, sweep_statistics, values, verify};

    #[pymodule_export]
    use super::events::{
        Event, Events, event_of, histogram_record, is_event_file, read_events, scalar_record, version_record,
        write_record,
    };

    #[pymodule_export]
    use super::log::{EventLog, ScalarCursor};
    #[pymodule_export]
    use super::logged::{Logged, decode_png, hparams};

    #[pymodule_export]
    use super::manifest::{ManifestRoot, manifest_differences, manifest_folder, manifest_root};

    #[pymodule_export]
    use super::wandb::WandbReader;

    #[pymodule_export]
    use super::writer::{SegmentWriter, StepWriter, reduction_name, worker_file_name};

    #[pymodule_export]
    use super::picture::{difference, encode_png, histogram, percentiles, pooled, sample, window};
    #[pymodule_export]
    use super::precision::{precision_cast, precision_loss};
    #[pymodule_export]
    use super::pyramid::Pyramid;
    #[pymodule_export]
    use super::reduce::{norm, norm_of_gradients, reduce, reduction, stats, widen};
    #[pymodule_export]
    use super::statistics::{combine_statistics, statistics_of, tensor_statistics};
    #[pymodule_export]
    use super::statistics_file::{StatisticsReader, StatisticsWriter};

    #[pymodule_export]
    use super::stores::{Contents, ObjectStore, Pages};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("FILE_TIME_GRANULARITY", FILE_TIME_GRANULARITY.as_nanos() as u64)?;
        module.add("StoreError", module.py().get_type::<super::stores::StoreError>())?;
        // Registered first, so that it runs after the functions that still write.
        let end_waits = wrap_pyfunction!(super::stores::end_waits, module)?;
        module.py().import("atexit")?.call_method1("register", (end_waits,))?;
        Ok(())
    }
}
