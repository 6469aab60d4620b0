//! The values of one tag in one file, as columns.

use crate::crc::MaskedCrc;
use crate::error::{self, Error, Result};
use crate::proto::Metadata;
use crate::record::{self, HEADER};
use crate::step::Step;

/// TensorBoard's data classes: scalars, tensors, blob sequences.
const SCALARS: u64 = 1;
const TENSORS: u64 = 2;
const BLOBS: u64 = 3;

/// The class of a tag's values, independent of their encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A scalar, stored as a number.
    Scalar,
    /// A histogram.
    Histogram,
    /// One or more images.
    Image,
    /// Audio.
    Audio,
    /// Text.
    Text,
    /// Hyperparameters, which are stored in metadata.
    Hparams,
    /// A precision-recall curve.
    PrCurve,
    /// Any other tensor.
    Tensor,
}

impl Class {
    /// All classes, by number.
    pub const ALL: [Class; 8] = [
        Class::Scalar,
        Class::Histogram,
        Class::Image,
        Class::Audio,
        Class::Text,
        Class::Hparams,
        Class::PrCurve,
        Class::Tensor,
    ];

    /// The name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Class::Scalar => "scalar",
            Class::Histogram => "histogram",
            Class::Image => "image",
            Class::Audio => "audio",
            Class::Text => "text",
            Class::Hparams => "hparams",
            Class::PrCurve => "pr_curve",
            Class::Tensor => "tensor",
        }
    }

    /// The class of a TensorBoard plugin.
    pub fn of_plugin(plugin: &str) -> Class {
        match plugin {
            "scalars" => Class::Scalar,
            "histograms" => Class::Histogram,
            "images" => Class::Image,
            "audio" => Class::Audio,
            "text" => Class::Text,
            "hparams" => Class::Hparams,
            "pr_curves" => Class::PrCurve,
            _ => Class::Tensor,
        }
    }

    /// The class that metadata declares, if any. The last plugin counts; an explicit data class decides whether values are
    /// scalars.
    pub fn of(metadata: &Metadata<'_>) -> Result<Option<Class>> {
        let plugin = metadata.plugins().last().transpose()?.map_or("", |(name, _)| name);
        Ok(match (Class::of_plugin(plugin), metadata.data_class) {
            (Class::Tensor, SCALARS) => Some(Class::Scalar),
            (Class::Scalar, TENSORS | BLOBS) => Some(Class::Tensor),
            (Class::Tensor, 0) if plugin.is_empty() => None,
            (class, _) => Some(class),
        })
    }
}

/// The location of a value in its file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueLocation {
    /// Offset of the value.
    pub at: u64,
    /// Size of the value.
    pub size: u64,
    /// Offset of the record.
    pub record: u64,
    /// Size of the record.
    pub length: u64,
    /// The footer of the record.
    pub footer: u32,
}

impl ValueLocation {
    /// Verifies the current bytes of the record and returns the value in them.
    pub fn checked<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let record = record::complete(bytes, 0)?;
        let first = self.at.checked_sub(self.record).and_then(|at| usize::try_from(at).ok()?.checked_sub(HEADER));
        let value = first.and_then(|first| record.payload.get(first..)?.get(..usize::try_from(self.size).ok()?));
        let same = record.size as u64 == self.length && record.footer_value == self.footer;
        match value.filter(|_| same) {
            Some(value) => record.check().map(|()| value),
            None => Err(Error::Corrupt {
                location: error::Location::memory(0),
                what: format!(
                    "record changed on disk (was {} bytes with checksum {}, now {} bytes with {}): the file was overwritten; \
                     open the run again",
                    self.length,
                    MaskedCrc(self.footer),
                    record.size,
                    MaskedCrc(record.footer_value)
                ),
            }),
        }
    }
}

/// A value of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// The location of any other value.
    ValueLocation(ValueLocation),
}

/// The values of a column.
#[derive(Debug)]
pub(super) enum Cells {
    Numbers(Vec<f64>),
    Places(Vec<ValueLocation>),
}

/// The rows of a tag in a file, in the order written.
#[derive(Debug)]
pub struct Column {
    steps: Vec<Step>,
    wall_times: Vec<f64>,
    pub(super) cells: Cells,
    /// (number of restarts, first row after them).
    restarts: Vec<(u32, usize)>,
    ascending: bool,
}

impl Column {
    /// An empty column.
    pub fn new(class: Class) -> Self {
        let cells = if class == Class::Scalar { Cells::Numbers(Vec::new()) } else { Cells::Places(Vec::new()) };
        Column { steps: Vec::new(), wall_times: Vec::new(), cells, restarts: Vec::new(), ascending: true }
    }

    /// A column from its parts, which have the same length.
    pub(super) fn of(steps: Vec<Step>, wall_times: Vec<f64>, cells: Cells, restarts: Vec<(u32, usize)>) -> Self {
        let ascending = steps.is_sorted_by(|one, next| one < next);
        Column { steps, wall_times, cells, restarts, ascending }
    }

    /// Appends a row that follows `restarts` restarts of the writer. Ignores a cell of the wrong kind.
    #[inline]
    pub fn push(&mut self, step: Step, wall_time: f64, cell: Cell, restarts: u32) {
        match (&mut self.cells, cell) {
            (Cells::Numbers(numbers), Cell::Number(number)) => numbers.push(number),
            (Cells::Places(locations), Cell::ValueLocation(location)) => locations.push(location),
            _ => return,
        }
        self.ascending &= self.steps.last().is_none_or(|last| *last < step);
        if self.restarts.last().is_none_or(|(last, _)| *last != restarts) {
            self.restarts.push((restarts, self.steps.len()));
        }
        self.steps.push(step);
        self.wall_times.push(wall_time);
    }

    /// Moves the rows of another column of the same class to the end. They follow `restarts` more restarts of the writer
    /// than they count.
    pub(super) fn append(&mut self, other: &mut Column, restarts: u32) {
        let rows = self.steps.len();
        let follows = self.steps.last().zip(other.steps.first()).is_none_or(|(last, first)| last < first);
        self.ascending &= follows && std::mem::replace(&mut other.ascending, true);
        for (number, first) in other.restarts.drain(..) {
            if self.restarts.last().is_none_or(|(last, _)| *last != number + restarts) {
                self.restarts.push((number + restarts, first + rows));
            }
        }
        self.steps.append(&mut other.steps);
        self.wall_times.append(&mut other.wall_times);
        match (&mut self.cells, &mut other.cells) {
            (Cells::Numbers(numbers), Cells::Numbers(others)) => numbers.append(others),
            (Cells::Places(places), Cells::Places(others)) => places.append(others),
            // Columns of one class have cells of one kind.
            _ => {}
        }
    }

    /// Frees unused capacity.
    pub fn fit(&mut self) {
        // A slowly growing file keeps its capacity; one that was read at once does not need it.
        if self.steps.capacity() - self.steps.len() > self.steps.len() / 8 {
            self.steps.shrink_to_fit();
            self.wall_times.shrink_to_fit();
            match &mut self.cells {
                Cells::Numbers(numbers) => numbers.shrink_to_fit(),
                Cells::Places(locations) => locations.shrink_to_fit(),
            }
        }
    }

    /// Whether the first rows are those of another column.
    pub(super) fn begins_with(&self, other: &Column) -> bool {
        let same = |one: &f64, other: &f64| one.to_bits() == other.to_bits();
        let cells = match (&self.cells, &other.cells) {
            (Cells::Numbers(numbers), Cells::Numbers(others)) => {
                numbers.len() >= others.len() && numbers.iter().zip(others).all(|(one, other)| same(one, other))
            }
            (Cells::Places(places), Cells::Places(others)) => places.starts_with(others),
            _ => false,
        };
        cells && self.steps.starts_with(&other.steps)
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Wall times, in seconds since 1970.
    pub fn wall_times(&self) -> &[f64] {
        &self.wall_times
    }

    /// The numbers, if the column has scalars.
    pub fn numbers(&self) -> Option<&[f64]> {
        match &self.cells {
            Cells::Numbers(numbers) => Some(numbers),
            Cells::Places(_) => None,
        }
    }

    /// The value of a row.
    pub fn cell(&self, row: usize) -> Option<Cell> {
        match &self.cells {
            Cells::Numbers(numbers) => numbers.get(row).copied().map(Cell::Number),
            Cells::Places(locations) => locations.get(row).copied().map(Cell::ValueLocation),
        }
    }

    /// Whether the steps strictly increase.
    pub fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Runs of rows between restarts: (number of restarts, first row, end).
    pub fn runs(&self) -> impl Iterator<Item = (u32, usize, usize)> + '_ {
        let ends = self.restarts.iter().skip(1).map(|(_, first)| *first).chain([self.steps.len()]);
        self.restarts.iter().zip(ends).map(|((restarts, first), end)| (*restarts, *first, end))
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        let cells = match &self.cells {
            Cells::Numbers(numbers) => numbers.capacity() * size_of::<f64>(),
            Cells::Places(locations) => locations.capacity() * size_of::<ValueLocation>(),
        };
        (self.steps.capacity() + self.wall_times.capacity()) * 8 + cells + self.restarts.capacity() * 16
    }
}
