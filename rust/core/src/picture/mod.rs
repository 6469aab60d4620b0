//! Pictures of a tensor: histogram, percentiles, pooled image, window of exact values, sample, difference of two.
//!
//! Size and memory use of the result depend on the request, not on the tensor. Complex numbers are shown by magnitude;
//! strings are not supported.

mod difference;
mod histogram;
mod percentiles;
pub mod png;
mod pool;
mod values;
mod window;

pub use difference::{Difference, MAX_CHANGED, difference};
pub use histogram::{Binning, Histogram, MAX_BINS, Scale, histogram};
pub use percentiles::percentiles;
pub use pool::{Image, MAX_SIDE, Pool, pooled};
pub use window::{Axes, MAX_WINDOW, Plane, Sample, sample, window};
