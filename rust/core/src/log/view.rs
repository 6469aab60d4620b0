//! The current rows of a tag over all files of a directory, without those that restarts supersede.

use super::column::Column;
use crate::step::Step;

/// A row: index of the file, row of its column.
pub type RowRef = (u32, u32);

/// The current rows of a tag by step, without duplicate steps.
#[derive(Debug)]
pub enum View {
    /// A range of rows of one file, which is the usual case.
    Part {
        /// Index of the file.
        file: u32,
        /// The first row.
        first: usize,
        /// The end of the rows (exclusive).
        end: usize,
    },
    /// Any rows of any files.
    Rows {
        /// Steps, ascending.
        steps: Vec<Step>,
        /// The row of each step.
        rows: Vec<RowRef>,
    },
}

impl View {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            View::Part { first, end, .. } => end - first,
            View::Rows { rows, .. } => rows.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file and row at an index.
    pub(super) fn row(&self, at: usize) -> (u32, usize) {
        match self {
            View::Part { file, first, .. } => (*file, first + at),
            View::Rows { rows, .. } => (rows[at].0, rows[at].1 as usize),
        }
    }
}

/// A column with the restarts of its file.
pub struct Part<'a> {
    /// Index of the file.
    pub file: u32,
    /// The column of the tag.
    pub column: &'a Column,
    /// Restart steps of the file.
    pub restarts: &'a [Step],
}

/// Handling of superseded rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// Dropped, as in TensorBoard.
    Dropped,
    /// Kept, unless the step was written again.
    Kept,
}

/// Range of steps: start, end (exclusive).
pub type Range = (Step, Step);

/// Builds the view of a tag. `parts` are in the order of files; `restarted` holds the lowest restart step from each file
/// on.
///
/// Two events supersede rows: a restart of the writer at a step (for all tags, from that step on), and a step of a tag that
/// does not increase (for that tag, from that step on).
pub fn of(parts: &[Part<'_>], restarted: &[Step], orphans: Orphans, range: Range) -> View {
    let superseded_by_later = |file: u32| restarted.get(file as usize + 1).copied().unwrap_or(Step::MAX);
    if let [part] = parts
        && part.column.is_ascending()
        && (orphans == Orphans::Kept || part.restarts.is_empty())
        && (orphans == Orphans::Kept || superseded_by_later(part.file) == Step::MAX)
    {
        let steps = part.column.steps();
        let first = steps.partition_point(|step| *step < range.0);
        let end = steps.partition_point(|step| *step < range.1).max(first);
        return View::Part { file: part.file, first, end };
    }
    let mut kept: Vec<(Step, RowRef)> = Vec::new();
    for part in parts {
        let later = superseded_by_later(part.file);
        // The lowest restart step after each number of restarts of this file.
        let mut least = vec![later; part.restarts.len() + 1];
        for (at, step) in part.restarts.iter().enumerate().rev() {
            least[at] = least[at + 1].min(*step);
        }
        for (restarts, first, end) in part.column.runs() {
            let superseded_from = least.get(restarts as usize).copied().unwrap_or(later);
            for row in first..end {
                let step = part.column.steps()[row];
                match orphans {
                    Orphans::Kept => {}
                    Orphans::Dropped if step >= superseded_from => continue,
                    Orphans::Dropped => {
                        while kept.last().is_some_and(|(last, _)| *last >= step) {
                            kept.pop();
                        }
                    }
                }
                kept.push((step, (part.file, row as u32)));
            }
        }
    }
    if orphans == Orphans::Kept {
        // The last write of a step wins: in reversed order it comes first, and the stable sort keeps it there.
        kept.reverse();
        kept.sort_by_key(|(step, _)| *step);
        kept.dedup_by_key(|(step, _)| *step);
    }
    kept.retain(|(step, _)| (range.0..range.1).contains(step));
    let (steps, rows) = kept.into_iter().unzip();
    View::Rows { steps, rows }
}
