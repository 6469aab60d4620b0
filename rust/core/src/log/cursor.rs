//! What was added to the scalars of a log since a previous call.

use std::collections::HashMap;
use std::sync::Arc;

use super::view::{self, Orphans, View};
use super::{Class, EventDirectory, Log};
use crate::step::Step;

/// Rows of a scalar in one directory.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRows {
    /// The number of the name.
    pub name: u32,
    /// Index of the lane.
    pub lane: u32,
    /// Mode steps.
    pub steps: Vec<Step>,
    /// The numbers.
    pub values: Vec<f64>,
    /// Whether these are all rows, which replace those returned before.
    pub whole: bool,
    /// If `whole`: the number of rows that were written and are superseded.
    pub superseded: usize,
}

/// A position in the scalars of a log. Advancing it costs what is new, as long as new rows only follow earlier ones.
#[derive(Debug, Default)]
pub struct ScalarCursor {
    generation: Option<u64>,
    arrangement: u64,
    seen: HashMap<(u32, u32), Arc<View>>,
}

impl ScalarCursor {
    /// Moves to the end of the log and returns the rows since the last position, by first appearance of the name.
    ///
    /// If earlier rows of a scalar have changed, such as after a restart of the writer, all its rows are returned, which may
    /// be none.
    pub fn advance(&mut self, log: &Log) -> Vec<NewRows> {
        if self.generation == Some(log.generation) {
            return Vec::new();
        }
        let moved = self.arrangement != log.arrangement;
        (self.generation, self.arrangement) = (Some(log.generation), log.arrangement);
        let mut found = Vec::new();
        for (name, _) in (0_u32..).zip(&log.names).filter(|(_, name)| name.class == Class::Scalar) {
            for (number, lane) in (0_u32..).zip(&log.lanes).filter(|(_, lane)| lane.has(name)) {
                let now = lane.view(log, name);
                let before = self.seen.insert((name, number), now.clone());
                let known = before.as_ref().map_or(0, |before| before.len());
                let begin = before.filter(|_| !moved).map_or(0, |before| unchanged(&before, &now));
                if begin < now.len() || begin < known {
                    found.push(rows(log, name, number, lane, &now, begin));
                }
            }
        }
        found
    }
}

/// The number of rows of a view if another one begins with them all; else 0.
fn unchanged(before: &View, now: &View) -> usize {
    let same = match (before, now) {
        (View::Part { file, first, end }, View::Part { file: other, first: begin, end: new_end }) => {
            file == other && first == begin && end <= new_end
        }
        (View::Part { file, first, end }, View::Rows { rows, .. }) => rows.get(..end - first).is_some_and(|rows| {
            rows.iter().map(|row| (row.0, row.1 as usize)).eq((*first..*end).map(|row| (*file, row)))
        }),
        (View::Rows { rows: old, .. }, View::Rows { rows, .. }) => rows.starts_with(old),
        (View::Rows { .. }, View::Part { .. }) => false,
    };
    if same { before.len() } else { 0 }
}

fn rows(log: &Log, name: u32, number: u32, lane: &EventDirectory, view: &View, begin: usize) -> NewRows {
    let whole = begin == 0;
    let superseded = if whole { superseded(lane, name) } else { 0 };
    let mut new = NewRows { name, lane: number, steps: Vec::new(), values: Vec::new(), whole, superseded };
    for (file, row) in (begin..view.len()).map(|at| view.row(at)) {
        let Some(column) = lane.column(name, file) else { continue };
        let step = column.steps()[row];
        if log.global(lane, step).is_some() {
            new.steps.push(step);
            new.values.push(column.numbers().map_or(f64::NAN, |numbers| numbers[row]));
        }
    }
    new
}

fn superseded(lane: &EventDirectory, name: u32) -> usize {
    let parts = lane.parts(name);
    let all: usize = parts.iter().map(|part| part.column.len()).sum();
    all - view::of(&parts, &lane.restarted, Orphans::Dropped, (Step::MIN, Step::MAX)).len()
}
