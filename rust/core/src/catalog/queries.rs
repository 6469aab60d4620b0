//! Queries of the catalog. File names answer those about steps and workers, loaded index files all others.

use std::borrow::Cow;
use std::ops::Range;

use super::keys::{Kind, display_worker};
use super::rows::EntryRow;
use super::{Catalog, Entry, File, FileId, State};
use crate::reduce::Op;
use crate::step::{Mode, Step};

impl Catalog {
    // ---------------------------------------------------------------------------------------------------- what to read

    /// Unread files, by step and worker: all, or those of `steps`.
    pub fn unread(&mut self, steps: Option<&[Step]>) -> Vec<FileId> {
        let unread = |file: &FileId| self.files[*file as usize].state == State::Unread;
        if let Some(steps) = steps {
            return steps.iter().flat_map(|step| self.at_step(*step)).copied().filter(unread).collect();
        }
        if self.unread == 0 {
            self.pending.clear();
            return Vec::new();
        }
        let mut list: Vec<FileId> = self.pending.iter().copied().filter(unread).collect();
        list.sort_by_key(|file| self.files[*file as usize].step);
        list.dedup();
        self.pending.clone_from(&list);
        list
    }

    /// Whether some file of a step is unread.
    pub fn has_unread(&self, step: Step) -> bool {
        self.unread > 0 && self.at_step(step).iter().any(|file| self.files[*file as usize].state == State::Unread)
    }

    /// Whether a file has not been read.
    pub fn is_unread(&self, file: FileId) -> bool {
        self.files[file as usize].state == State::Unread
    }

    /// Whether all files have been read.
    pub fn is_all_read(&self) -> bool {
        self.unread == 0
    }

    /// Loaded files of these steps, with their stamps.
    pub fn stamps(&self, steps: &[Step]) -> Vec<(FileId, u32)> {
        let read = |file: &&FileId| self.files[**file as usize].state == State::Read;
        let files = steps.iter().flat_map(|step| self.at_step(*step)).filter(read);
        files.map(|file| (*file, self.files[*file as usize].stamp)).collect()
    }

    /// Malformed files, with their stamps.
    pub fn bad(&self) -> Vec<(FileId, u32)> {
        self.problems.keys().map(|file| (*file, self.files[*file as usize].stamp)).collect()
    }

    /// The errors of malformed files, by key.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut list: Vec<_> = self.problems.iter().map(|(file, what)| (self.index_key(*file), what.clone())).collect();
        list.sort();
        list
    }

    // ------------------------------------------------------------------------------------------------ steps, workers

    fn file(&self, file: FileId) -> &File {
        &self.files[file as usize]
    }

    fn step_groups(&self) -> impl DoubleEndedIterator<Item = &[FileId]> {
        self.order.chunk_by(|a, b| self.file(*a).step == self.file(*b).step)
    }

    /// Global steps, ascending; with a mode only those known to belong to it.
    pub fn steps(&self, mode: Option<Mode>) -> Vec<Step> {
        match mode {
            None => self.step_groups().map(|group| self.file(group[0]).step).collect(),
            Some(mode) => {
                let mut steps: Vec<Step> = self.modes.of(mode).iter().map(|file| self.file(*file).step).collect();
                steps.sort_unstable();
                steps
            }
        }
    }

    /// The last global step.
    pub fn last_step(&self) -> Option<Step> {
        self.order.last().map(|file| self.file(*file).step)
    }

    /// Whether any worker has written this step.
    pub fn has_step(&self, step: Step) -> bool {
        !self.at_step(step).is_empty()
    }

    /// The number of global steps after this one.
    pub fn count_after(&self, step: Option<Step>) -> usize {
        let start = step.map_or(0, |step| self.order.partition_point(|file| self.file(*file).step <= step));
        self.order[start..].chunk_by(|a, b| self.file(*a).step == self.file(*b).step).count()
    }

    /// Display names of the workers, sorted.
    pub fn workers(&self) -> Vec<Cow<'_, str>> {
        // Workers are interned only for files that are kept.
        let mut list: Vec<_> = (0..self.workers.len() as u32).map(|id| display_worker(self.workers.get(id))).collect();
        list.sort();
        list
    }

    /// The workers of a step, sorted.
    pub fn workers_at(&self, step: Step) -> Vec<Cow<'_, str>> {
        self.at_step(step).iter().map(|file| self.worker_of(*file)).collect()
    }

    /// The display name of a file's worker.
    pub fn worker_of(&self, file: FileId) -> Cow<'_, str> {
        display_worker(self.workers.get(self.file(file).worker))
    }

    /// The last step that `num_workers` workers have written. All earlier steps count as complete.
    pub fn complete_until(&self, num_workers: usize) -> Option<Step> {
        let complete = self.step_groups().rev().find(|group| group.len() >= num_workers.max(1))?;
        Some(self.file(complete[0]).step)
    }

    // --------------------------------------------------------------------------------------------------------- modes

    /// Mode and mode step of a global step: those of its first worker by name.
    pub fn mode_of(&self, step: Step) -> Option<(Mode, Step)> {
        self.represents(step).map(|file| (self.file(file).mode, self.file(file).mode_step))
    }

    /// The modes that have steps.
    pub fn modes(&self) -> Vec<Mode> {
        Mode::ALL.into_iter().filter(|mode| !self.modes.of(*mode).is_empty()).collect()
    }

    /// Mode steps of a mode, without duplicates; with a name only those that have the tensor.
    pub fn mode_steps(&self, mode: Mode, name: Option<&str>) -> Vec<Step> {
        let steps = name.map(|name| self.steps_of(name, None));
        let has =
            |file: &&FileId| steps.as_ref().is_none_or(|steps| steps.binary_search(&self.file(**file).step).is_ok());
        let mut list: Vec<Step> =
            self.modes.of(mode).iter().filter(has).map(|file| self.file(*file).mode_step).collect();
        list.dedup();
        list
    }

    /// Global steps of a mode step, ascending; several if a restarted training repeated it.
    pub fn global_steps(&self, mode: Mode, mode_step: Step) -> impl DoubleEndedIterator<Item = Step> {
        self.modes.at(&self.files, mode, mode_step).iter().map(|file| self.file(*file).step)
    }

    // ------------------------------------------------------------------------------------------------------- tensors

    fn sorted_names(&self, ids: impl Iterator<Item = u32>) -> Vec<&str> {
        let mut list: Vec<&str> = ids.map(|id| self.names.get(id)).collect();
        list.sort_unstable();
        list
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.sorted_names((0..self.names.len() as u32).filter(|id| self.is_saved(*id)))
    }

    /// Names of the tensors of a step (and worker), sorted.
    pub fn names_at(&self, step: Step, worker: Option<&str>) -> Vec<&str> {
        let mut ids: Vec<u32> = self.files_at(step, worker).flat_map(|file| self.names_in(file)).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        self.sorted_names(ids.into_iter())
    }

    /// Names of the tensors of a mode, sorted.
    pub fn names_in_mode(&self, mode: Mode) -> Vec<&str> {
        // Steps mostly repeat the names of the previous one, so marking is cheaper than sorting.
        let mut seen = vec![false; self.names.len()];
        for file in self.modes.of(mode) {
            for file in self.at_step(self.file(*file).step) {
                self.names_in(*file).iter().for_each(|id| seen[*id as usize] = true);
            }
        }
        self.sorted_names((0..self.names.len() as u32).filter(|id| seen[*id as usize]))
    }

    fn names_in(&self, file: FileId) -> &[u32] {
        self.file(file).section.map_or(&[], |section| self.rows.names(section))
    }

    /// The rows of a tensor in a file.
    fn rows_of_name(&self, file: FileId, name: u32) -> impl Iterator<Item = EntryRow> {
        self.file(file).section.into_iter().flat_map(move |section| self.rows.of(section, name))
    }

    fn row_in(&self, file: FileId, name: u32, kind: Kind) -> Option<EntryRow> {
        self.rows.find(self.file(file).section?, name, kind)
    }

    /// Whether a name is that of a tensor with any entry.
    fn is_saved(&self, name: u32) -> bool {
        self.rows.files_of(name).any(|files| !files.is_empty())
    }

    /// Whether a tensor has any entry.
    pub fn has(&self, name: &str) -> bool {
        self.name_id(name).is_some()
    }

    fn name_id(&self, name: &str) -> Option<u32> {
        self.names.find(name).filter(|id| self.is_saved(*id))
    }

    /// Global steps of a tensor, ascending; with a mode only its steps.
    pub fn steps_of(&self, name: &str, mode: Option<Mode>) -> Vec<Step> {
        let Some(id) = self.name_id(name) else { return Vec::new() };
        let mut steps: Vec<Step> = self.rows.files_of(id).flatten().map(|file| self.file(*file).step).collect();
        // Files are nearly in order, which makes a run-detecting sort cheap.
        steps.sort();
        steps.dedup();
        if let Some(mode) = mode {
            steps.retain(|step| self.mode_of(*step).is_some_and(|(of, _)| of == mode));
        }
        steps
    }

    /// The workers that wrote a tensor at a step, sorted.
    pub fn workers_of(&self, name: &str, step: Step) -> Vec<Cow<'_, str>> {
        let Some(id) = self.name_id(name) else { return Vec::new() };
        let has = |file: &&FileId| self.names_in(**file).binary_search(&id).is_ok();
        self.at_step(step).iter().filter(has).map(|file| self.worker_of(*file)).collect()
    }

    /// The files of a step: all, or those of a worker, by display name or as spelled in file names.
    pub fn files_at(&self, step: Step, worker: Option<&str>) -> impl Iterator<Item = FileId> {
        let files = self.at_step(step).iter().copied();
        files.filter(move |file| {
            worker.is_none_or(|worker| {
                let raw = self.workers.get(self.file(*file).worker);
                raw == worker || raw.starts_with('_') && display_worker(raw) == worker
            })
        })
    }

    /// A row of a tensor at a step, from the first worker that has it.
    fn row(&self, name: &str, step: Step, worker: Option<&str>, kind: Kind) -> Option<(FileId, EntryRow)> {
        let id = self.names.find(name)?;
        let row = |file| Some((file, self.row_in(file, id, kind)?));
        self.files_at(step, worker).find_map(row)
    }

    /// The entry of a tensor's value or stored reduction; without a worker that of the first worker that has it.
    pub fn find(&self, name: &str, step: Step, worker: Option<&str>, kind: Kind) -> Option<Entry> {
        self.row(name, step, worker, kind).map(|(file, row)| self.entry(file, &row))
    }

    /// The stored reductions of a tensor; without a worker those of the first worker that has any.
    pub fn stored_reductions(&self, name: &str, step: Step, worker: Option<&str>) -> Vec<(Op, bool, Entry)> {
        let Some(id) = self.names.find(name) else { return Vec::new() };
        let stored = |file| {
            let of = |row: EntryRow| row.kind.as_reduction().map(|(op, abs)| (op, abs, self.entry(file, &row)));
            let list: Vec<_> = self.rows_of_name(file, id).filter_map(of).collect();
            if list.is_empty() { None } else { Some(list) }
        };
        self.files_at(step, worker).find_map(stored).unwrap_or_default()
    }

    /// The saved shape of a tensor.
    pub fn shape_of(&self, name: &str, step: Step, worker: Option<&str>) -> Option<&[u64]> {
        let (_, row) = self.row(name, step, worker, Kind::SHAPE)?;
        self.shapes.get(row.offset as usize).map(AsRef::as_ref)
    }

    /// Whether any position of a shard has been read.
    pub fn has_shards(&self) -> bool {
        self.shards.len() > 0
    }

    /// The parts of a sharded tensor at a step, by worker: file and position.
    pub fn shards_of(&self, name: &str, step: Step) -> impl Iterator<Item = (FileId, &str)> {
        let number = if self.has_shards() { self.names.find(name) } else { None };
        number.into_iter().flat_map(move |number| {
            self.at_step(step).iter().filter_map(move |file| {
                let row = self.row_in(*file, number, Kind::SHARD)?;
                Some((*file, self.shards.get(u32::try_from(row.offset).ok()?)))
            })
        })
    }

    /// The framework's name of a tensor, from the latest step that has it.
    pub fn original_name(&self, name: &str) -> Option<&str> {
        let id = self.name_id(name)?;
        let shape = |file: &FileId| Some((self.file(*file).step, self.row_in(*file, id, Kind::SHAPE)?));
        let last = self.rows.files_of(id).filter_map(|files| files.iter().rev().find_map(shape));
        let (_, row) = last.max_by_key(|(step, _)| *step)?;
        Some(self.names.get(u32::try_from(row.length).ok()?))
    }

    /// The number of a tensor's name, for [`Catalog::entries_of`].
    pub fn number_of(&self, name: &str) -> Option<u32> {
        self.names.find(name)
    }

    /// The entries of a tensor in a file without its shape and position; the value comes first.
    pub fn entries_of(&self, file: FileId, number: u32) -> impl Iterator<Item = Entry> {
        let rows = self.rows_of_name(file, number);
        rows.filter(|row| row.kind.is_record()).map(move |row| self.entry(file, &row))
    }

    /// All entries of a file without shapes and positions, as (tensor, entry).
    pub fn entries_in(&self, file: FileId) -> impl Iterator<Item = (&str, Entry)> {
        let rows = self.file(file).section.into_iter().flat_map(|section| self.rows.rows(section));
        let records = rows.filter(|row| row.kind.is_record());
        records.map(move |row| (self.names.get(row.name), self.entry(file, &row)))
    }

    fn entry(&self, file: FileId, row: &EntryRow) -> Entry {
        let stamp = self.file(file).stamp;
        Entry { file, stamp, kind: row.kind, offset: row.offset, length: row.length, crc: row.crc }
    }

    /// The range of the event file that the entries of a file span; `None` without entries.
    pub fn extent(&self, file: FileId) -> Option<Range<u64>> {
        let spans = self.entries_in(file).map(|(_, entry)| entry.offset..entry.offset.saturating_add(entry.length));
        spans.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
    }

    /// The number of entries.
    pub fn num_entries(&self) -> usize {
        self.rows.len() - self.dead_rows
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        let odd = self.unusual_index_keys.values().chain(self.unusual_event_keys.values());
        let odd: usize = odd.map(|key| key.len() + 32).sum();
        let shapes: usize = self.shapes.iter().map(|shape| 2 * (shape.len() * 8 + 32)).sum();
        size_of::<Catalog>()
            + self.names.memory()
            + self.workers.memory()
            + self.shards.memory()
            + self.meanings.capacity() * size_of::<(u32, Kind)>()
            + self.files.capacity() * size_of::<File>()
            + (self.order.capacity() + self.pending.capacity()) * size_of::<FileId>()
            + self.modes.memory()
            + self.rows.memory()
            + self.scratch.capacity() * size_of::<EntryRow>()
            + odd
            + shapes
            + self.problems.values().map(|what| what.len() + 64).sum::<usize>()
    }
}
