//! What a screen can show of a tensor: a histogram, percentiles, a pooled image, a window of exact values, a sample.
//!
//! However large the tensor, what comes out is as large as what was asked for, and so is the memory on the way. Complex
//! numbers are shown by their magnitude; text can't be shown.

mod histogram;
mod percentiles;
pub mod png;
mod pool;
mod values;
mod window;

pub use histogram::{Binning, Histogram, MAX_BINS, Scale, histogram};
pub use percentiles::percentiles;
pub use pool::{Image, MAX_SIDE, Pool, pooled};
pub use window::{Axes, MAX_WINDOW, Plane, Sample, sample, window};
