//! Queries of a log: names, steps, modes, workers.
//!
//! In a plain run, global steps are those of the log. If directories stand for modes, the same step can occur in several:
//! the global step is then four times the log's step, plus 0 for TRAIN, 1 for EVAL, 2 for PREDICT, 3 for GLOBAL.

use std::sync::Arc;

use super::column::{Cell, Column, ValueLocation};
use super::scan::Scanner;
use super::view::{self, Orphans, Part, View};
use super::{EventDirectory, Log};
use crate::step::{Mode, Step};

/// Number of modes that share global steps.
const MODES: Step = Mode::ALL.len() as Step;

/// A value of a log.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The file, relative to the run.
    pub key: &'a str,
    /// The worker.
    pub worker: &'a str,
    /// The value.
    pub cell: Cell,
    /// Wall time, in seconds since 1970.
    pub wall_time: f64,
    scanner: &'a Scanner,
}

impl Found<'_> {
    /// The encoded value, if it is in memory. `buffer` is a buffer for values stored as differences.
    pub fn stored_value<'b>(&'b self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        match self.cell {
            Cell::ValueLocation(location) => self.scanner.stored_value(location, buffer),
            Cell::Number(_) => None,
        }
    }
}

/// The rows of a tag as columns.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Course {
    /// Global steps.
    pub steps: Vec<Step>,
    /// Mode steps.
    pub mode_steps: Vec<Step>,
    /// Wall times, in seconds since 1970.
    pub wall_times: Vec<f64>,
    /// The numbers; NaN for other values.
    pub values: Vec<f64>,
    /// Index of the lane of each row.
    pub lanes: Vec<u32>,
}

impl EventDirectory {
    pub(super) fn parts(&self, name: u32) -> Vec<Part<'_>> {
        let part = |(at, file): (usize, &'_ super::File)| -> Option<(u32, usize)> {
            file.series.get(&name).map(|series| (at as u32, *series as usize))
        };
        let of = |(at, series): (u32, usize)| {
            let scanner = &self.files[at as usize].scanner;
            Part { file: at, column: &scanner.series()[series].column, restarts: scanner.restarts() }
        };
        self.files.iter().enumerate().filter_map(part).map(of).collect()
    }

    pub(super) fn view(&self, log: &Log, name: u32) -> Arc<View> {
        if let Some(view) = self.views.lock().get(&name) {
            return view.clone();
        }
        let view = Arc::new(view::of(&self.parts(name), &self.restarted, log.orphans, log.range));
        self.views.lock().insert(name, view.clone());
        view
    }

    pub(super) fn has(&self, name: u32) -> bool {
        self.files.iter().any(|file| file.series.contains_key(&name))
    }

    pub(super) fn column(&self, name: u32, file: u32) -> Option<&Column> {
        self.files.get(file as usize)?.column(name)
    }

    /// Calls `each` with the steps that are not superseded.
    fn steps<R>(&self, log: &Log, name: u32, each: impl FnOnce(&[Step]) -> R) -> Option<R> {
        if !self.has(name) {
            return None;
        }
        Some(match &*self.view(log, name) {
            View::Part { file, first, end } => each(self.column(name, *file)?.steps().get(*first..*end)?),
            View::Rows { steps, .. } => each(steps),
        })
    }

    fn row(&self, log: &Log, name: u32, step: Step) -> Option<(u32, usize)> {
        if !self.has(name) {
            return None;
        }
        match &*self.view(log, name) {
            View::Part { file, first, end } => {
                let steps = self.column(name, *file)?.steps().get(*first..*end)?;
                steps.binary_search(&step).ok().map(|at| (*file, first + at))
            }
            View::Rows { steps, rows } => {
                let (file, row) = *rows.get(steps.binary_search(&step).ok()?)?;
                Some((file, row as usize))
            }
        }
    }
}

impl Course {
    /// Makes room for more rows.
    fn reserve(&mut self, rows: usize) {
        self.steps.reserve(rows);
        self.mode_steps.reserve(rows);
        self.wall_times.reserve(rows);
        self.values.reserve(rows);
        self.lanes.reserve(rows);
    }
}

impl Log {
    /// Whether directories stand for modes.
    pub fn has_modes(&self) -> bool {
        self.lanes.iter().any(|lane| lane.mode != Mode::Global)
    }

    fn code(lane: &EventDirectory) -> Step {
        Step::from(lane.mode.number()) - 1
    }

    /// The global step of a lane's step.
    pub(super) fn global(&self, lane: &EventDirectory, step: Step) -> Option<Step> {
        if self.has_modes() { step.checked_mul(MODES)?.checked_add(Log::code(lane)) } else { Some(step) }
    }

    /// Mode and mode step of a global step.
    fn own(&self, step: Step) -> (Mode, Step) {
        if self.has_modes() {
            (Mode::ALL[step.rem_euclid(MODES) as usize], step.div_euclid(MODES))
        } else {
            (Mode::Global, step)
        }
    }

    fn lanes_at(&self, step: Step) -> impl Iterator<Item = (&EventDirectory, Step)> {
        let (mode, own) = self.own(step);
        self.lanes.iter().filter(move |lane| lane.mode == mode).map(move |lane| (lane, own))
    }

    fn in_mode(lane: &EventDirectory, mode: Option<Mode>) -> bool {
        mode.is_none_or(|mode| mode == Mode::Global || mode == lane.mode)
    }

    /// The number of a name.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Global steps, ascending, of one mode or all.
    pub fn steps(&self, mode: Option<Mode>) -> Arc<Vec<Step>> {
        if let Some(steps) = self.steps.lock().get(&mode) {
            return steps.clone();
        }
        let mut all: Vec<Step> = Vec::new();
        for lane in self.lanes.iter().filter(|lane| Log::in_mode(lane, mode)) {
            // Most tags share their steps, so repeated ones are skipped.
            let mut last: Vec<Step> = Vec::new();
            for name in 0..self.names.len() as u32 {
                lane.steps(self, name, |steps| {
                    if steps != last {
                        all.extend(steps.iter().filter_map(|step| self.global(lane, *step)));
                        last = steps.to_vec();
                    }
                });
            }
        }
        // A stable sort detects runs that are already in order.
        all.sort();
        all.dedup();
        let all = Arc::new(all);
        self.steps.lock().insert(mode, all.clone());
        all
    }

    /// The last global step.
    pub fn last_step(&self) -> Option<Step> {
        let of = |lane: &EventDirectory, name: u32| lane.steps(self, name, |steps| steps.last().copied())?;
        let lasts = self
            .lanes
            .iter()
            .flat_map(|lane| (0..self.names.len() as u32).filter_map(move |name| self.global(lane, of(lane, name)?)));
        lasts.max()
    }

    /// Whether a global step has any value.
    pub fn has_step(&self, step: Step) -> bool {
        let names = 0..self.names.len() as u32;
        self.lanes_at(step).any(|(lane, own)| names.clone().any(|name| lane.row(self, name, own).is_some()))
    }

    /// Workers, by directory name.
    pub fn workers(&self) -> Vec<&str> {
        // A directory may not exist yet.
        let there = self.lanes.iter().filter(|lane| !lane.files.is_empty());
        distinct(there.map(|lane| lane.worker.as_str()))
    }

    /// Modes with any value, ascending.
    pub fn modes(&self) -> Vec<Mode> {
        let written = |lane: &&EventDirectory| lane.files.iter().any(|file| !file.series.is_empty());
        let mut modes: Vec<Mode> = self.lanes.iter().filter(written).map(|lane| lane.mode).collect();
        modes.sort_unstable();
        modes.dedup();
        modes
    }

    /// Mode and mode step of a global step; `None` if it has no values.
    pub fn mode_of(&self, step: Step) -> Option<(Mode, Step)> {
        self.has_step(step).then(|| self.own(step))
    }

    /// Mode steps of a mode, ascending: all, or those of one name.
    pub fn mode_steps(&self, mode: Mode, name: Option<u32>) -> Vec<Step> {
        let globally = match name {
            Some(name) => self.steps_of(name, Some(mode)),
            None => self.steps(Some(mode)).to_vec(),
        };
        if mode == Mode::Global { globally } else { globally.into_iter().map(|step| self.own(step).1).collect() }
    }

    /// The global step of a mode step, if it has any value.
    pub fn global_step(&self, mode: Mode, mode_step: Step) -> Option<Step> {
        if mode == Mode::Global && !self.has_modes() {
            return self.has_step(mode_step).then_some(mode_step);
        }
        let lane = self.lanes.iter().find(|lane| lane.mode == mode)?;
        self.global(lane, mode_step).filter(|step| self.has_step(*step))
    }

    /// Numbers of the names at a global step.
    pub fn names_at(&self, step: Step, worker: Option<&str>) -> Vec<u32> {
        let lanes: Vec<(&EventDirectory, Step)> =
            self.lanes_at(step).filter(|(lane, _)| worker.is_none_or(|worker| worker == lane.worker)).collect();
        let has = |name: &u32| lanes.iter().any(|(lane, own)| lane.row(self, *name, *own).is_some());
        (0..self.names.len() as u32).filter(has).collect()
    }

    /// Numbers of the names of a mode.
    pub fn names_in_mode(&self, mode: Mode) -> Vec<u32> {
        let has = |name: &u32| self.lanes.iter().any(|lane| Log::in_mode(lane, Some(mode)) && lane.has(*name));
        (0..self.names.len() as u32).filter(has).collect()
    }

    /// Global steps of a name, ascending.
    pub fn steps_of(&self, name: u32, mode: Option<Mode>) -> Vec<Step> {
        let mut all = Vec::new();
        let mut lanes = 0;
        for lane in self.lanes.iter().filter(|lane| Log::in_mode(lane, mode)) {
            let some = lane.steps(self, name, |steps| {
                all.extend(steps.iter().filter_map(|step| self.global(lane, *step)));
            });
            lanes += usize::from(some.is_some());
        }
        if lanes > 1 {
            all.sort();
            all.dedup();
        }
        all
    }

    /// Workers that wrote a name at a global step.
    pub fn workers_of(&self, name: u32, step: Step) -> Vec<&str> {
        let wrote = self.lanes_at(step).filter(|(lane, own)| lane.row(self, name, *own).is_some());
        distinct(wrote.map(|(lane, _)| lane.worker.as_str()))
    }

    /// Workers that wrote anything at a global step.
    pub fn workers_at(&self, step: Step) -> Vec<&str> {
        let names = 0..self.names.len() as u32;
        let wrote =
            self.lanes_at(step).filter(|(lane, own)| names.clone().any(|name| lane.row(self, name, *own).is_some()));
        distinct(wrote.map(|(lane, _)| lane.worker.as_str()))
    }

    /// The value of a name at a global step, of a worker or of the first that has one.
    pub fn find(&self, name: u32, step: Step, worker: Option<&str>) -> Option<Found<'_>> {
        let lanes = self.lanes_at(step).filter(|(lane, _)| worker.is_none_or(|worker| worker == lane.worker));
        lanes.into_iter().find_map(|(lane, own)| {
            let row = lane.row(self, name, own)?;
            self.found(lane, name, row).map(|(_, found)| found)
        })
    }

    /// The encoded value at a location of a file, if it is in memory.
    pub fn stored_value<'a>(&'a self, key: &str, location: ValueLocation, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let of = |lane: &'a EventDirectory| {
            lane.files.binary_search_by(|file| file.key.as_str().cmp(key)).map(|at| &lane.files[at])
        };
        self.lanes.iter().find_map(|lane| of(lane).ok())?.scanner.stored_value(location, buffer)
    }

    /// Rows of a name in a lane: the current or the superseded ones.
    fn rows(&self, lane: &EventDirectory, name: u32, orphans: bool) -> Vec<(u32, usize)> {
        let parts = lane.parts(name);
        if orphans {
            let all = view::of(&parts, &lane.restarted, Orphans::Dropped, (Step::MIN, Step::MAX));
            return superseded_rows(&parts, &all);
        }
        if parts.is_empty() {
            return Vec::new();
        }
        let view = lane.view(self, name);
        (0..view.len()).map(|at| view.row(at)).collect()
    }

    /// Superseded values of a name with their global steps, in the order of [`course`](Self::course) with `orphans`.
    pub fn orphans(&self, name: u32) -> Vec<(Step, Found<'_>)> {
        let of = |lane| self.rows(lane, name, true).into_iter().filter_map(move |row| self.found(lane, name, row));
        self.lanes.iter().flat_map(of).collect()
    }

    /// The number of superseded values of a name.
    pub fn num_superseded(&self, name: u32) -> usize {
        let of = |lane: &EventDirectory| {
            let parts = lane.parts(name);
            match view::of(&parts, &lane.restarted, Orphans::Dropped, (Step::MIN, Step::MAX)) {
                View::Part { .. } => 0,
                View::Rows { steps, .. } => parts.iter().map(|part| part.column.len()).sum::<usize>() - steps.len(),
            }
        };
        self.lanes.iter().map(of).sum()
    }

    fn found<'a>(
        &'a self,
        lane: &'a EventDirectory,
        name: u32,
        (file, row): (u32, usize),
    ) -> Option<(Step, Found<'a>)> {
        let column = lane.column(name, file)?;
        let step = self.global(lane, *column.steps().get(row)?)?;
        let wall_time = *column.wall_times().get(row)?;
        let super::File { key, scanner, .. } = lane.files.get(file as usize)?;
        Some((step, Found { key, worker: &lane.worker, cell: column.cell(row)?, wall_time, scanner }))
    }

    /// All current rows of a name, of one mode or all; or only the superseded ones.
    pub fn course(&self, name: u32, mode: Option<Mode>, orphans: bool) -> Course {
        let mut course = Course::default();
        for (number, lane) in self.lanes.iter().enumerate().filter(|(_, lane)| Log::in_mode(lane, mode)) {
            let rows = self.rows(lane, name, orphans);
            course.reserve(rows.len());
            let mut last = None;
            for (file, row) in rows {
                // Rows of one file follow each other.
                if last.is_none_or(|(of, _)| of != file) {
                    last = lane.column(name, file).map(|column| (file, column));
                }
                let Some((_, column)) = last else { continue };
                let Some(step) = self.global(lane, column.steps()[row]) else { continue };
                course.steps.push(step);
                course.mode_steps.push(column.steps()[row]);
                course.wall_times.push(column.wall_times()[row]);
                course.values.push(column.numbers().map_or(f64::NAN, |numbers| numbers[row]));
                course.lanes.push(number as u32);
            }
        }
        course
    }

    /// The lanes: (worker, mode).
    pub fn lanes(&self) -> impl Iterator<Item = (&str, Mode)> {
        self.lanes.iter().map(|lane| (lane.worker.as_str(), lane.mode))
    }

    /// Unreadable files and records: (file, offset, message).
    pub fn problems(&self) -> Vec<(&str, u64, String)> {
        let mut all = Vec::new();
        for file in self.lanes.iter().flat_map(|lane| &lane.files) {
            all.extend(file.unreadable.iter().map(|what| (file.key.as_str(), file.scanner.end(), what.clone())));
            all.extend(file.scanner.problems().map(|(at, what)| (file.key.as_str(), at, what)));
        }
        all
    }

    /// The files: (key, bytes read, version of the writer).
    pub fn files(&self) -> impl Iterator<Item = (&str, u64, Option<&str>)> {
        let files = self.lanes.iter().flat_map(|lane| &lane.files);
        files.map(|file| (file.key.as_str(), file.scanner.end(), file.scanner.version()))
    }

    /// Total bytes that were restored from the cache.
    pub fn cached_bytes(&self) -> u64 {
        self.lanes.iter().flat_map(|lane| &lane.files).map(|file| file.cached).sum()
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.lanes.iter().flat_map(|lane| &lane.files).map(|file| file.scanner.memory()).sum()
    }
}

/// Removes duplicates, keeping the first of each.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Rows that are not in the view.
fn superseded_rows(parts: &[Part<'_>], view: &View) -> Vec<(u32, usize)> {
    let counted: std::collections::HashSet<(u32, usize)> = match view {
        View::Part { .. } => return Vec::new(),
        View::Rows { rows, .. } => rows.iter().map(|(file, row)| (*file, *row as usize)).collect(),
    };
    let all = parts.iter().flat_map(|part| (0..part.column.len()).map(move |row| (part.file, row)));
    all.filter(|row| !counted.contains(row)).collect()
}
