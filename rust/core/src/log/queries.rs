//! Questions to a log, in the words of the trial: names, steps, modes, workers.
//!
//! Steps of a plain run are the log's own. Where directories stand for modes, the same step of several modes must be told
//! apart: a global step is then four times the log's step, plus 0 for TRAIN, 1 for EVAL, 2 for PREDICT, 3 for the rest.

use std::sync::Arc;

use super::column::{Cell, Column, ValueLocation};
use super::scan::Scanner;
use super::view::{self, Orphans, Part, View};
use super::{Lane, Log};
use crate::step::{Mode, Step};

/// Modes that share the numbers of global steps.
const MODES: Step = Mode::ALL.len() as Step;

/// A value, found.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The file, relative to the run.
    pub key: &'a str,
    /// The worker.
    pub worker: &'a str,
    /// What stands there.
    pub cell: Cell,
    /// When it was written, in seconds since 1970.
    pub wall_time: f64,
    scanner: &'a Scanner,
}

impl Found<'_> {
    /// The value as it was written, if it is held in memory; put together in `room` where it is held in parts.
    pub fn held<'b>(&'b self, room: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        match self.cell {
            Cell::ValueLocation(place) => self.scanner.held(place, room),
            Cell::Number(_) => None,
        }
    }
}

/// A tag's rows as columns.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Course {
    /// Global steps.
    pub steps: Vec<Step>,
    /// Steps in the mode's own count.
    pub mode_steps: Vec<Step>,
    /// Seconds since 1970.
    pub wall_times: Vec<f64>,
    /// The numbers; NaN for what is none.
    pub values: Vec<f64>,
    /// Which lane each row is of.
    pub lanes: Vec<u32>,
}

impl Lane {
    fn parts(&self, name: u32) -> Vec<Part<'_>> {
        let part = |(at, file): (usize, &'_ super::File)| -> Option<(u32, usize)> {
            file.series.get(&name).map(|series| (at as u32, *series as usize))
        };
        let of = |(at, series): (u32, usize)| {
            let scanner = &self.files[at as usize].scanner;
            Part { file: at, column: &scanner.series()[series].column, restarts: scanner.restarts() }
        };
        self.files.iter().enumerate().filter_map(part).map(of).collect()
    }

    fn view(&self, log: &Log, name: u32) -> Arc<View> {
        if let Some(view) = self.views.lock().get(&name) {
            return view.clone();
        }
        let view = Arc::new(view::of(&self.parts(name), &self.restarted, log.orphans, log.range));
        self.views.lock().insert(name, view.clone());
        view
    }

    fn has(&self, name: u32) -> bool {
        self.files.iter().any(|file| file.series.contains_key(&name))
    }

    fn column(&self, name: u32, file: u32) -> Option<&Column> {
        self.files.get(file as usize)?.column(name)
    }

    /// Calls `each` with the steps that count.
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

impl Log {
    /// Whether directories stand for modes.
    pub fn has_modes(&self) -> bool {
        self.lanes.iter().any(|lane| lane.mode != Mode::Global)
    }

    fn code(lane: &Lane) -> Step {
        Step::from(lane.mode.number()) - 1
    }

    /// The global step of a lane's own step.
    fn global(&self, lane: &Lane, step: Step) -> Option<Step> {
        if step < 0 {
            None
        } else if self.has_modes() {
            step.checked_mul(MODES)?.checked_add(Log::code(lane))
        } else {
            Some(step)
        }
    }

    /// The mode of a global step, and its own step.
    fn own(&self, step: Step) -> (Mode, Step) {
        if self.has_modes() {
            (Mode::ALL[step.rem_euclid(MODES) as usize], step.div_euclid(MODES))
        } else {
            (Mode::Global, step)
        }
    }

    fn lanes_at(&self, step: Step) -> impl Iterator<Item = (&Lane, Step)> {
        let (mode, own) = self.own(step);
        self.lanes.iter().filter(move |lane| own >= 0 && lane.mode == mode).map(move |lane| (lane, own))
    }

    fn in_mode(lane: &Lane, mode: Option<Mode>) -> bool {
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
            // Most tags of a log share their steps: those that are the last one's again are not taken in again.
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
        // Finds the runs that are in order already.
        all.sort();
        all.dedup();
        let all = Arc::new(all);
        self.steps.lock().insert(mode, all.clone());
        all
    }

    /// The last global step.
    pub fn last_step(&self) -> Option<Step> {
        let of = |lane: &Lane, name: u32| lane.steps(self, name, |steps| steps.last().copied())?;
        let lasts = self
            .lanes
            .iter()
            .flat_map(|lane| (0..self.names.len() as u32).filter_map(move |name| self.global(lane, of(lane, name)?)));
        lasts.max()
    }

    /// Whether anything was written at a global step.
    pub fn has_step(&self, step: Step) -> bool {
        let names = 0..self.names.len() as u32;
        self.lanes_at(step).any(|(lane, own)| names.clone().any(|name| lane.row(self, name, own).is_some()))
    }

    /// Workers, in the order of the directories' names.
    pub fn workers(&self) -> Vec<&str> {
        // A directory may be expected that isn't there yet.
        let there = self.lanes.iter().filter(|lane| !lane.files.is_empty());
        distinct(there.map(|lane| lane.worker.as_str()))
    }

    /// Modes in which there is anything, ascending.
    pub fn modes(&self) -> Vec<Mode> {
        let written = |lane: &&Lane| lane.files.iter().any(|file| !file.series.is_empty());
        let mut modes: Vec<Mode> = self.lanes.iter().filter(written).map(|lane| lane.mode).collect();
        modes.sort_unstable();
        modes.dedup();
        modes
    }

    /// The mode of a global step, and the step in its own count; nothing where none was written.
    pub fn mode_of(&self, step: Step) -> Option<(Mode, Step)> {
        self.has_step(step).then(|| self.own(step))
    }

    /// Steps in a mode's own count, ascending: all, or those of one name.
    pub fn mode_steps(&self, mode: Mode, name: Option<u32>) -> Vec<Step> {
        let globally = match name {
            Some(name) => self.steps_of(name, Some(mode)),
            None => self.steps(Some(mode)).to_vec(),
        };
        if mode == Mode::Global { globally } else { globally.into_iter().map(|step| self.own(step).1).collect() }
    }

    /// The global step of a step in a mode's own count, if anything was written there.
    pub fn global_step(&self, mode: Mode, mode_step: Step) -> Option<Step> {
        if mode == Mode::Global && !self.has_modes() {
            return self.has_step(mode_step).then_some(mode_step);
        }
        let lane = self.lanes.iter().find(|lane| lane.mode == mode)?;
        self.global(lane, mode_step).filter(|step| self.has_step(*step))
    }

    /// Numbers of names that have something at a global step.
    pub fn names_at(&self, step: Step, worker: Option<&str>) -> Vec<u32> {
        let lanes: Vec<(&Lane, Step)> =
            self.lanes_at(step).filter(|(lane, _)| worker.is_none_or(|worker| worker == lane.worker)).collect();
        let has = |name: &u32| lanes.iter().any(|(lane, own)| lane.row(self, *name, *own).is_some());
        (0..self.names.len() as u32).filter(has).collect()
    }

    /// Numbers of names that have something in a mode.
    pub fn names_in_mode(&self, mode: Mode) -> Vec<u32> {
        let has = |name: &u32| self.lanes.iter().any(|lane| Log::in_mode(lane, Some(mode)) && lane.has(*name));
        (0..self.names.len() as u32).filter(has).collect()
    }

    /// Global steps at which a name has something, ascending.
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

    /// The value of a name at a global step: of a worker, or of the first that has one.
    pub fn find(&self, name: u32, step: Step, worker: Option<&str>) -> Option<Found<'_>> {
        let lanes = self.lanes_at(step).filter(|(lane, _)| worker.is_none_or(|worker| worker == lane.worker));
        lanes.into_iter().find_map(|(lane, own)| {
            let row = lane.row(self, name, own)?;
            self.found(lane, name, row).map(|(_, found)| found)
        })
    }

    /// The value at a place of a file, as it was written, if it is held in memory.
    pub fn held<'a>(&'a self, key: &str, place: ValueLocation, room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let of =
            |lane: &'a Lane| lane.files.binary_search_by(|file| file.key.as_str().cmp(key)).map(|at| &lane.files[at]);
        self.lanes.iter().find_map(|lane| of(lane).ok())?.scanner.held(place, room)
    }

    /// Rows of a name in a lane: those that count, or those that restarts have made void.
    fn rows(&self, lane: &Lane, name: u32, orphans: bool) -> Vec<(u32, usize)> {
        let parts = lane.parts(name);
        if orphans {
            let all = view::of(&parts, &lane.restarted, Orphans::Dropped, (Step::MIN, Step::MAX));
            return void_rows(&parts, &all);
        }
        if parts.is_empty() {
            return Vec::new();
        }
        match &*lane.view(self, name) {
            View::Part { file, first, end } => (*first..*end).map(|row| (*file, row)).collect(),
            View::Rows { rows, .. } => rows.iter().map(|(file, row)| (*file, *row as usize)).collect(),
        }
    }

    /// What restarts have made void of a name, by its global steps: the rows of its [`course`](Self::course) of orphans.
    pub fn orphans(&self, name: u32) -> Vec<(Step, Found<'_>)> {
        let of = |lane| self.rows(lane, name, true).into_iter().filter_map(move |row| self.found(lane, name, row));
        self.lanes.iter().flat_map(of).collect()
    }

    fn found<'a>(&'a self, lane: &'a Lane, name: u32, (file, row): (u32, usize)) -> Option<(Step, Found<'a>)> {
        let column = lane.column(name, file)?;
        let step = self.global(lane, *column.steps().get(row)?)?;
        let wall_time = *column.wall_times().get(row)?;
        let super::File { key, scanner, .. } = lane.files.get(file as usize)?;
        Some((step, Found { key, worker: &lane.worker, cell: column.cell(row)?, wall_time, scanner }))
    }

    /// The course of a name: all rows that count, of one mode or all; or only those that restarts have made void.
    pub fn course(&self, name: u32, mode: Option<Mode>, orphans: bool) -> Course {
        let mut course = Course::default();
        for (number, lane) in self.lanes.iter().enumerate().filter(|(_, lane)| Log::in_mode(lane, mode)) {
            for (file, row) in self.rows(lane, name, orphans) {
                let Some(column) = lane.column(name, file) else { continue };
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

    /// What could not be read or used: (file, where, what).
    pub fn problems(&self) -> Vec<(&str, u64, String)> {
        let mut all = Vec::new();
        for file in self.lanes.iter().flat_map(|lane| &lane.files) {
            all.extend(file.unreadable.iter().map(|what| (file.key.as_str(), file.scanner.end(), what.clone())));
            all.extend(file.scanner.problems().map(|(at, what)| (file.key.as_str(), at, what)));
        }
        all
    }

    /// The files: (key, bytes read of it, the writer's version).
    pub fn files(&self) -> impl Iterator<Item = (&str, u64, Option<&str>)> {
        let files = self.lanes.iter().flat_map(|lane| &lane.files);
        files.map(|file| (file.key.as_str(), file.scanner.end(), file.scanner.version()))
    }

    /// Bytes of all files that need not be read, because a cache knew what is in them.
    pub fn cached_bytes(&self) -> u64 {
        self.lanes.iter().flat_map(|lane| &lane.files).map(|file| file.cached).sum()
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.lanes.iter().flat_map(|lane| &lane.files).map(|file| file.scanner.memory()).sum()
    }
}

/// Each once, in the order of first appearance.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Rows that are in no view.
fn void_rows(parts: &[Part<'_>], view: &View) -> Vec<(u32, usize)> {
    let counted: std::collections::HashSet<(u32, usize)> = match view {
        View::Part { .. } => return Vec::new(),
        View::Rows { rows, .. } => rows.iter().map(|(file, row)| (*file, *row as usize)).collect(),
    };
    let all = parts.iter().flat_map(|part| (0..part.column.len()).map(move |row| (part.file, row)));
    all.filter(|row| !counted.contains(row)).collect()
}
