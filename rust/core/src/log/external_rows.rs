//! Rows of files in other formats, which are read outside of this crate.

use super::column::{Cells, Class, Column, ValueLocation};
use super::scan::Series;
use crate::step::Step;

/// The rows of a series of a file that is no event file.
#[derive(Debug, Default)]
pub struct ExternalRows {
    /// The name.
    pub tag: String,
    /// Steps, in the order written.
    pub steps: Vec<Step>,
    /// Wall times, in seconds since 1970; NaN if unknown.
    pub wall_times: Vec<f64>,
    /// Numbers, if the series is one of scalars.
    pub numbers: Option<Vec<f64>>,
    /// Offset and size in the file of each value, unless the series is one of scalars.
    pub places: Vec<(u64, u64)>,
    /// Whether these are histograms and not tensors.
    pub are_histograms: bool,
}

impl From<ExternalRows> for Series {
    /// Uses the rows that all columns have.
    fn from(rows: ExternalRows) -> Series {
        let ExternalRows { tag, mut steps, mut wall_times, numbers, places, are_histograms } = rows;
        let count = numbers.as_ref().map_or(places.len(), Vec::len).min(steps.len()).min(wall_times.len());
        steps.truncate(count);
        wall_times.truncate(count);
        let (class, cells) = match numbers {
            Some(mut numbers) => {
                numbers.truncate(count);
                (Class::Scalar, Cells::Numbers(numbers))
            }
            None => {
                let place = |(at, size)| ValueLocation { at, size, record: at, length: size, footer: 0 };
                let class = if are_histograms { Class::Histogram } else { Class::Tensor };
                (class, Cells::Places(places.into_iter().take(count).map(place).collect()))
            }
        };
        let restarts = if count == 0 { Vec::new() } else { vec![(0, 0)] };
        let column = Column::of(steps, wall_times, cells, restarts);
        Series { tag, class, plugin: String::new(), description: String::new(), column }
    }
}
