//! What one file says of one tag: columns of steps, times, and numbers or places.

use crate::crc::MaskedCrc;
use crate::error::{self, Error, Result};
use crate::proto::Metadata;
use crate::record::{self, HEADER};
use crate::step::Step;

/// TensorBoard's classes of data: numbers, tensors of any shape, and sequences of bytes.
const SCALARS: u64 = 1;
const TENSORS: u64 = 2;
const BLOBS: u64 = 3;

/// What a tag's values are, whichever of its forms on the wire they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// One number, kept here.
    Scalar,
    /// How values are distributed.
    Histogram,
    /// A picture, or several.
    Image,
    /// Sound.
    Audio,
    /// Text.
    Text,
    /// Hyperparameters, which stand in metadata.
    Hparams,
    /// Precision and recall over thresholds.
    PrCurve,
    /// Any other tensor.
    Tensor,
}

impl Class {
    /// All of them, in the order of their numbers.
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

    /// What a person calls one.
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

    /// The class of tensors that belong to a plugin of TensorBoard's.
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

    /// The class of tensors of this metadata, if it says anything of it. The plugin is the last that is named; where a class of
    /// data is named, that decides whether they are numbers.
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

/// Where a value lies in its file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueLocation {
    /// Where it starts.
    pub at: u64,
    /// How many bytes it takes.
    pub size: u64,
    /// Where its record starts.
    pub record: u64,
    /// How many bytes that takes.
    pub length: u64,
    /// What stands behind the record's payload.
    pub footer: u32,
}

impl ValueLocation {
    /// The value, in the bytes that its record has now: they must be those that were read, and hold.
    pub fn checked<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let record = record::whole(bytes, 0)?;
        let first = self.at.checked_sub(self.record).and_then(|at| usize::try_from(at).ok()?.checked_sub(HEADER));
        let value = first.and_then(|first| record.payload.get(first..)?.get(..usize::try_from(self.size).ok()?));
        let same = record.size as u64 == self.length && record.footer_value == self.footer;
        match value.filter(|_| same) {
            Some(value) => record.check().map(|()| value),
            None => Err(Error::Corrupt {
                place: error::Location::memory(0),
                what: format!(
                    "another record than the one that was read ({} bytes and {} were there, now {} and {}): the file was written \
                     over; open the run again",
                    self.length,
                    MaskedCrc(self.footer),
                    record.size,
                    MaskedCrc(record.footer_value)
                ),
            }),
        }
    }
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// Anything else, by where it lies.
    ValueLocation(ValueLocation),
}

/// The cells of a column.
#[derive(Debug)]
pub(super) enum Cells {
    Numbers(Vec<f64>),
    Places(Vec<ValueLocation>),
}

/// The rows of one tag in one file, in the order they were written.
#[derive(Debug)]
pub struct Column {
    steps: Vec<Step>,
    wall_times: Vec<f64>,
    pub(super) cells: Cells,
    /// Where rows begin that come after so many restarts: (restarts, first row).
    restarts: Vec<(u32, usize)>,
    ascending: bool,
}

impl Column {
    /// An empty column of numbers, or of places.
    pub fn new(class: Class) -> Self {
        let cells = if class == Class::Scalar { Cells::Numbers(Vec::new()) } else { Cells::Places(Vec::new()) };
        Column { steps: Vec::new(), wall_times: Vec::new(), cells, restarts: Vec::new(), ascending: true }
    }

    /// A column of rows that are there already: as many steps as times and cells, and where rows begin after so many restarts.
    pub(super) fn of(steps: Vec<Step>, wall_times: Vec<f64>, cells: Cells, restarts: Vec<(u32, usize)>) -> Self {
        let ascending = steps.is_sorted_by(|one, next| one < next);
        Column { steps, wall_times, cells, restarts, ascending }
    }

    /// Adds a row, which comes after so many restarts of the writer. A cell of the other kind than the column's is refused.
    #[inline]
    pub fn push(&mut self, step: Step, wall_time: f64, cell: Cell, restarts: u32) {
        match (&mut self.cells, cell) {
            (Cells::Numbers(numbers), Cell::Number(number)) => numbers.push(number),
            (Cells::Places(places), Cell::ValueLocation(place)) => places.push(place),
            _ => return,
        }
        self.ascending &= self.steps.last().is_none_or(|last| *last < step);
        if self.restarts.last().is_none_or(|(last, _)| *last != restarts) {
            self.restarts.push((restarts, self.steps.len()));
        }
        self.steps.push(step);
        self.wall_times.push(wall_time);
    }

    /// Gives back memory that was only room to grow.
    pub fn fit(&mut self) {
        // A file that grows slowly keeps its room; a file that was read in one go doesn't need any.
        if self.steps.capacity() - self.steps.len() > self.steps.len() / 8 {
            self.steps.shrink_to_fit();
            self.wall_times.shrink_to_fit();
            match &mut self.cells {
                Cells::Numbers(numbers) => numbers.shrink_to_fit(),
                Cells::Places(places) => places.shrink_to_fit(),
            }
        }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// When the rows were written, in seconds since 1970.
    pub fn wall_times(&self) -> &[f64] {
        &self.wall_times
    }

    /// The numbers, if it is a column of these.
    pub fn numbers(&self) -> Option<&[f64]> {
        match &self.cells {
            Cells::Numbers(numbers) => Some(numbers),
            Cells::Places(_) => None,
        }
    }

    /// What stands in a row.
    pub fn cell(&self, row: usize) -> Option<Cell> {
        match &self.cells {
            Cells::Numbers(numbers) => numbers.get(row).copied().map(Cell::Number),
            Cells::Places(places) => places.get(row).copied().map(Cell::ValueLocation),
        }
    }

    /// Whether each step is greater than the one before.
    pub fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Runs of rows between restarts: (restarts before them, first row, end).
    pub fn runs(&self) -> impl Iterator<Item = (u32, usize, usize)> + '_ {
        let ends = self.restarts.iter().skip(1).map(|(_, first)| *first).chain([self.steps.len()]);
        self.restarts.iter().zip(ends).map(|((restarts, first), end)| (*restarts, *first, end))
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        let cells = match &self.cells {
            Cells::Numbers(numbers) => numbers.capacity() * size_of::<f64>(),
            Cells::Places(places) => places.capacity() * size_of::<ValueLocation>(),
        };
        (self.steps.capacity() + self.wall_times.capacity()) * 8 + cells + self.restarts.capacity() * 16
    }
}
