//! The rows of a tag that count, of all files of a directory: what restarts have made void is left out.

use super::column::Column;
use crate::step::Step;

/// A row: which file of the directory, and which row of its column.
pub type Row = (u32, u32);

/// The rows of a tag, by step. No step comes twice.
#[derive(Debug)]
pub enum View {
    /// All rows of one file, between two: how nearly every tag is.
    Part {
        /// Which file.
        file: u32,
        /// The first row.
        first: usize,
        /// The end of the rows.
        end: usize,
    },
    /// Some rows of some files.
    Rows {
        /// Steps, ascending.
        steps: Vec<Step>,
        /// Where each stands.
        rows: Vec<Row>,
    },
}

/// A column and the restarts of the file it is in.
pub struct Part<'a> {
    /// Which file.
    pub file: u32,
    /// The file's column of the tag.
    pub column: &'a Column,
    /// Steps at which the file's writer began anew.
    pub restarts: &'a [Step],
}

/// What becomes of rows that a restart has made void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// They are left out, as TensorBoard leaves them out.
    Dropped,
    /// They stay, but where the step was written again.
    Kept,
}

/// Steps that count: from the first, to before the end.
pub type Range = (Step, Step);

/// The view of a tag. `parts` are in the files' order; `later` are the least restarted steps in files from each on.
///
/// Two things make rows void: a writer that says that it begins anew at a step (all tags, from that step on), and a tag whose
/// step does not go up (that tag, from that step on).
pub fn of(parts: &[Part<'_>], restarted: &[Step], orphans: Orphans, range: Range) -> View {
    let void_later = |file: u32| restarted.get(file as usize + 1).copied().unwrap_or(Step::MAX);
    if let [part] = parts
        && part.column.is_ascending()
        && (orphans == Orphans::Kept || part.restarts.is_empty())
        && (orphans == Orphans::Kept || void_later(part.file) == Step::MAX)
    {
        let steps = part.column.steps();
        let first = steps.partition_point(|step| *step < range.0);
        let end = steps.partition_point(|step| *step < range.1).max(first);
        return View::Part { file: part.file, first, end };
    }
    let mut kept: Vec<(Step, Row)> = Vec::new();
    for part in parts {
        let later = void_later(part.file);
        // The least step restarted after each count of restarts of this file.
        let mut least = vec![later; part.restarts.len() + 1];
        for (at, step) in part.restarts.iter().enumerate().rev() {
            least[at] = least[at + 1].min(*step);
        }
        for (restarts, first, end) in part.column.runs() {
            let void_from = least.get(restarts as usize).copied().unwrap_or(later);
            for row in first..end {
                let step = part.column.steps()[row];
                match orphans {
                    Orphans::Kept => {}
                    Orphans::Dropped if step >= void_from => continue,
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
        // What was written last stands for its step: it comes first in reversed order, which the sort keeps.
        kept.reverse();
        kept.sort_by_key(|(step, _)| *step);
        kept.dedup_by_key(|(step, _)| *step);
    }
    kept.retain(|(step, _)| (range.0..range.1).contains(step));
    let (steps, rows) = kept.into_iter().unzip();
    View::Rows { steps, rows }
}
